/* SPDX-License-Identifier: MIT */
/*
 * Turns of hosts at what the control thread does for them one after the other and what may wait for
 * the disk: each host that waits has one in turn, however many it has asked for, and beyond a burst
 * they take no more than half of the time, so that the rest is for everybody else: changes of the
 * administrator, the status, other hosts' reservations. A host is what it is to target/share.h. All
 * on the control thread.
 */
#ifndef HAUL_TARGET_HOST_TURNS_H
#define HAUL_TARGET_HOST_TURNS_H

#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "target/share.h"

struct host_turn {
	struct share_key host;
	/* The turn has come; host_turns_over() is due, later or at once. */
	void (*begin)(struct host_turn *turn);
	struct list node;
	uint64_t number;
};

struct host_turns {
	struct loop *loop;
	struct list waiting; /* by number */
	struct host_turn *current;
	struct share_key last_host; /* who has had turn LAST_NUMBER */
	uint64_t last_number;
	uint64_t began_ns;
	uint64_t debt_ns;  /* time taken, less half of the time that has passed ... */
	uint64_t as_of_ns; /* ... until then */
	struct loop_timer rest;
};

int host_turns_init(struct host_turns *turns, struct loop *loop) must_check;
/* Those that wait begin at once from now on, one after the other: the target is about to stop. */
void host_turns_hurry(struct host_turns *turns);

/* BEGIN may be called before this returns. */
void host_turns_ask(struct host_turns *turns, struct host_turn *turn);
/* TURN, which has begun, is over and its caller's. */
void host_turns_over(struct host_turns *turns, struct host_turn *turn);

#endif
