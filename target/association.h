/* SPDX-License-Identifier: MIT */
/*
 * Claims to associations, of subsystems that let a host have one only at each address: one
 * controller of its host NQN and identifier (subsys->one_association). What there is, the reactor
 * of the listener knows, which all connections of that listener have come by, so that of two that
 * come at once only one gets it.
 */
#ifndef HAUL_TARGET_ASSOCIATION_H
#define HAUL_TARGET_ASSOCIATION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "proto/base/loop.h"

struct association;
struct reactor;
struct request;

/* Of the first reactor. */
struct associations {
	struct list held;
	struct list waiting; /* for one that is held */
	struct loop_timer timer;
	uint64_t wait_ns; /* at most */
};
/* Has one timer, which is the caller's to reserve. */
void associations_init(struct associations *associations);

/*
 * On the reactor of an admin queue whose Connect, with its data, is in EXEC. One that its host has
 * may be about to go, so the answer may take half a second: OVER is called with the association, or
 * with NULL: its host has one already. False: no memory.
 */
bool association_claim(struct request *request, const char *subnqn,
	void (*over)(struct request *request, struct association *association)) must_check;
/* On the same reactor: its controller has ended, or has not been made. NULL is allowed. */
void association_release(struct association *association);

#endif
