/* SPDX-License-Identifier: MIT */
/*
 * Brings a new catalog to all reactors: their disks and listeners first, which may fail and then
 * leaves all as it was, then the change itself, which cannot. One at a time. On the control thread;
 * the steps run on the reactors by messages:
 *
 *   first    namespaces get the owners of their reservations, which may be read from files
 *   attach   each reactor opens queues for namespaces that are new    -> abandon on failure
 *   listen   the first reactor ends listeners that go, starts those that come    -> undone, too
 *   hide     each reactor: hosts that lose sight of a namespace that others see end what they do
 *   switch   each reactor: commands see the new catalog
 *   open     each reactor tells its hosts what concerns them, the first one lets in the hosts that
 *            have come to new listeners meanwhile
 *   then the catalog before is freed; removed disks are closed when their last command is over
 */
#ifndef HAUL_TARGET_PUBLISH_H
#define HAUL_TARGET_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/loop.h"

struct catalog;
struct publish;
struct target;

#define PUBLISH_MAX_PARTS 64 /* reactors */
/* Room for what went wrong, for the user. */
#define PUBLISH_WHY_BYTES 512

struct publish_part { /* one reactor's part of it */
	struct loop_message message;
	struct publish *publish;
	uint32_t index;
	int error;
};

struct publish {
	struct target *target;
	struct catalog *catalog; /* what is being published; NULL: nothing */
	void (*done)(struct publish *publish, int error);
	int error; /* the first one's */
	char why[PUBLISH_WHY_BYTES];
	uint32_t failed_port; /* of the catalog, that cannot listen; else UINT32_MAX */
	uint32_t nr_waiting;  /* parts that have not answered */
	struct publish_part parts[PUBLISH_MAX_PARTS];
};

void publish_init(struct publish *publish, struct target *target);

/* Takes CATALOG, whose previous one is that which counts now. DONE is called once, on the control
 * thread, never inside this: 0, or an error, WHY, and CATALOG freed. */
void publish_start(struct publish *publish, struct catalog *catalog,
	void (*done)(struct publish *publish, int error));
static inline bool publish_is_busy(const struct publish *publish)
{
	return publish->catalog;
}

/* The reactors are gone, with whatever was on its way: frees the catalogs. */
void publish_forget(struct publish *publish);

#endif
