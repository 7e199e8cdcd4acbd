/* SPDX-License-Identifier: MIT */
/*
 * hauld's control socket: haulctl(8) and others ask for its status and for changes, one JSON object
 * a line each way (HACKING.md, "The control socket"). It is served by the control thread's own
 * loop, so a slow client delays no I/O. Also what else changes the catalog while it counts: SIGHUP
 * and disks that have grown.
 */
#ifndef HAUL_TARGET_CONTROL_H
#define HAUL_TARGET_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/compiler.h"

struct control;
struct target;

/* For a target that has started. The socket is that of its settings. CONFIG_FILE: what SIGHUP
 * reloads; NULL: nothing. On failure WHY has a line for the user. */
int control_create(struct target *target, const char *config_file, struct control **ret, char *why,
	size_t why_size) must_check;

/* On the control thread: reads the configuration file again. False: there is none. NULL is good. */
bool control_reload(struct control *control);

/* The socket goes, clients are left. What has been asked of reactors may still be under way. NULL
 * is good. -ETIMEDOUT: a thread hangs in a disk; then nothing may be destroyed, only _exit() is
 * safe. */
int control_close(struct control *control) must_check;
/* The reactors are gone. */
void control_destroy(struct control *control);

#endif
