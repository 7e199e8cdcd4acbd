/* SPDX-License-Identifier: MIT */
/*
 * No late write lands after newer data: a controller becomes ready only when no I/O queue of an
 * earlier, ended controller of the same host (NQN and identifier) with the same subsystem is left,
 * for a queue stays until its last command is back from the disk. A round visits each reactor and
 * waits there; controllers of that host that live are other paths and are not waited for.
 */
#ifndef HAUL_TARGET_FENCE_H
#define HAUL_TARGET_FENCE_H

#include <stdbool.h>

#include "proto/base/loop.h"

struct ctrl;
struct reactor;
struct request;

/* Hosts wait longer than that for what they have asked (Linux 60 s, libhaul 10 s). */
#define FENCE_DEADLINE_NS (8000 * NS_PER_MS)

/* On CTRL's reactor. REQUEST is in EXEC until OVER, which takes it back with request_executed().
 * LATE: the deadline has come first. */
void fence_start(struct ctrl *ctrl, struct request *request,
	void (*over)(struct request *request, bool late));

/* The last I/O queue of an ended controller of REACTOR has left. */
void fence_look_again(struct reactor *reactor);

/* REACTOR ends: whoever waits here does so no longer. */
void fence_give_up(struct reactor *reactor);

void fence_expired(struct loop_timer *timer);

#endif
