/* SPDX-License-Identifier: MIT */
/*
 * No late write lands after newer data: a controller becomes ready only when no disk has a write
 * any more that an earlier controller of the same host (NQN and identifier) with the same subsystem
 * had begun. A round visits each reactor and waits there
 *  - for the I/O queues of controllers that have ended, are in reset or shut down: a queue stays
 * until its last command is back, and one that has not heard of that yet may begin another;
 *  - for the commands that change data and have come until then, on any I/O queue of that host,
 *    whatever state they are in. A queue may close alone, and a host that has lost power says
 *    nothing: its controller lives on until the keep-alive timer expires. It may as well be another
 *    path of the host, which works on: what it sends later is the host's own to order and not
 *    waited for. Commands that wait for memory hold up what lies behind them in the socket, so it
 *    is looked again when they are over, until a queue's depth has come.
 * Controllers of that host that are overdue (target/keep_alive.h) end.
 *
 * At the deadline a queue that has got nowhere, with a write that waits for the host's data or for
 * memory, ends: that write never begins. What a disk has cannot be ended: the new controller fails.
 * What is still in the network is the host's: it has to wait as long as the target takes to notice
 * that it is gone (NVMe base 2.1 9.6).
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
/* Then, for queues that end, to give their commands back. */
#define FENCE_FLUSH_NS	  (1000 * NS_PER_MS)

/* On CTRL's reactor. REQUEST is in EXEC until OVER, which takes it back with request_executed().
 * LATE: the deadline has come first. */
void fence_start(struct ctrl *ctrl, struct request *request,
	void (*over)(struct request *request, bool late));

/* The last I/O queue of a controller of REACTOR has left, or a command that was awaited is over. */
void fence_look_again(struct reactor *reactor);

/* REQUEST, which is FENCED, is over. */
void fence_request_over(struct request *request);

/* REACTOR ends: whoever waits here does so no longer. */
void fence_give_up(struct reactor *reactor);

void fence_expired(struct loop_timer *timer);

#endif
