/* SPDX-License-Identifier: MIT */
/*
 * Disks that have grown or shrunk are noticed: their sizes are looked at every few seconds, and
 * what has changed is published. On the control thread.
 */
#ifndef HAUL_TARGET_CONTROL_SIZES_H
#define HAUL_TARGET_CONTROL_SIZES_H

#include <stdbool.h>

#include "target/change.h"

struct catalog;
struct target;

struct control_sizes {
	struct target *target;
	struct loop_timer timer;
	struct change change;
	bool stopped;
};

int control_sizes_start(struct control_sizes *sizes, struct target *target) must_check;
void control_sizes_stop(struct control_sizes *sizes);

/* Gives the namespaces of CATALOG, not yet published, the sizes their disks have now. */
void control_sizes_look(struct catalog *catalog);

#endif
