/* SPDX-License-Identifier: MIT */
/*
 * A namespace disappears from the sight of some hosts and stays for others. Before the catalog
 * counts that says so, and before anyone else sees what they have lost, their commands are over: so
 * none of their writes lands after newer data. On each reactor: new commands of theirs are refused
 * from now on, those that wait end, those that the disk has are waited for.
 */
#ifndef HAUL_TARGET_VIEW_HIDE_H
#define HAUL_TARGET_VIEW_HIDE_H

#include <stdint.h>

#include "proto/base/loop.h"
#include "target/revoke.h"

struct catalog;
struct conn;
struct reactor;

/* A disk that takes longer holds up no change: it is told in the log. */
#define VIEW_HIDE_PATIENCE_NS (8000 * NS_PER_MS)

struct view_hide { /* a reactor's */
	struct reactor *reactor;
	const struct catalog *catalog; /* that will count; NULL: none that hides anything */
	struct revoke revoke;
	struct loop_timer deadline;
	uint64_t patience_ns;
	void (*over)(void *context);
	void *context;
};

void view_hide_init(struct view_hide *hide, struct reactor *reactor);
/* CATALOG, which narrows, is about to be switched to. OVER may be called inside this. */
void view_hide_start(struct view_hide *hide, const struct catalog *catalog,
	void (*over)(void *context), void *context);
/* It counts. */
void view_hide_switched(struct view_hide *hide);

/* For a command on CONN for namespace NSID, whose gate says REACTOR_NS_NARROWS: a status, 0 if its
 * host goes on to see it. */
uint16_t view_hide_check(const struct conn *conn, uint32_t nsid);

#endif
