/* SPDX-License-Identifier: MIT */
/*
 * A message that visits every reactor, one after the other, and comes home: for what is rare and
 * concerns them all (counters to add up, a range to lock, a host's old controllers to wait for).
 * Each visit sees that reactor's own data, and nothing is ever looked at from two threads.
 */
#ifndef HAUL_TARGET_ROUND_H
#define HAUL_TARGET_ROUND_H

#include <stdint.h>

#include "proto/base/loop.h"

struct reactor;
struct target;

struct round {
	struct loop_message message;
	struct target *target;
	struct loop *home;
	uint32_t next; /* reactor */
	void (*visit)(struct round *round, struct reactor *reactor);
	void (*done)(struct round *round);
};

/* From any thread. ROUND is the caller's until DONE, which is called at home and may
 * free it. VISIT is called on each reactor, and the round stays there until round_go_on(), which
 * VISIT calls at once or has called later, on that reactor. */
void round_start(struct round *round, struct target *target, struct loop *home,
	void (*visit)(struct round *round, struct reactor *reactor),
	void (*done)(struct round *round));
void round_go_on(struct round *round);

#endif
