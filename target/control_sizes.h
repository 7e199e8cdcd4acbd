/* SPDX-License-Identifier: MIT */
/*
 * Disks that have grown or shrunk are noticed: their sizes are looked at every few seconds, and
 * what has changed is published. On the control thread.
 */
#ifndef HAUL_TARGET_CONTROL_SIZES_H
#define HAUL_TARGET_CONTROL_SIZES_H

#include <stdbool.h>

#include "target/change.h"

struct backend;
struct catalog;
struct target;

struct control_size {
	struct backend *backend; /* one reference */
	uint64_t bytes;
	int error;
};

struct control_sizes {
	struct target *target;
	struct loop_timer timer;
	struct change change;
	struct loop_op op;
	struct control_size *looks; /* the helper thread's while LOOKING */
	uint32_t nr;
	bool looking;
	bool stopped;
};

int control_sizes_start(struct control_sizes *sizes, struct target *target) must_check;
/* False: a disk hangs, and a thread with it: nothing may be destroyed any more. */
bool control_sizes_stop(struct control_sizes *sizes);

/* Gives the namespaces of CATALOG, not yet published, the sizes their disks have now. */
void control_sizes_look(struct catalog *catalog);

#endif
