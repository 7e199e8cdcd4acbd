/* SPDX-License-Identifier: MIT */
/*
 * Changes of what the target offers, one after the other: each makes a catalog from the one that
 * counts when its turn comes, and it is published. All on the control thread.
 */
#ifndef HAUL_TARGET_CHANGE_H
#define HAUL_TARGET_CHANGE_H

#include <stdbool.h>

#include "proto/base/list.h"
#include "proto/base/loop.h"

struct catalog;
struct target;

struct change {
	/* Its turn has come: sets a catalog that follows NOW, or NULL for nothing to publish. On
	 * failure WHY has a line for the user. May open disks. */
	int (*make)(struct change *change, const struct catalog *now, struct catalog **ret,
		char *why, size_t why_size);
	/* It counts, there was nothing to publish, or ERROR and WHY and all is as before. Once; may
	 * free CHANGE and ask for others. */
	void (*over)(struct change *change, int error, const char *why);
	struct list node;
};

/* Hears of each catalog that has been made to count by a change; it is target->catalog then. */
struct change_watch {
	void (*counts)(struct change_watch *watch);
};

#define CHANGE_WHY_BYTES 2048

struct change_queue {
	struct target *target;
	struct list waiting;
	struct change *current; /* its catalog is being published */
	struct loop_flush next;
	struct change_watch *watch; /* NULL: none */
	char why[CHANGE_WHY_BYTES];
};

void change_queue_init(struct change_queue *queue, struct target *target);
/* CHANGE belongs to the queue until OVER, which is never called inside this. -ESHUTDOWN there: the
 * target is about to stop. */
void change_ask(struct change_queue *queue, struct change *change);
/* The target has stopped: ends those that wait, and that whose catalog nobody will publish. */
void change_queue_end(struct change_queue *queue);

#endif
