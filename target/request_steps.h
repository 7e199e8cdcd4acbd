/* SPDX-License-Identifier: MIT */
/*
 * The steps of a request, and what the files share that lead it on its way: request.c (it comes,
 * is answered and is free again), request_check.c, request_data.c (a buffer, and what is in it),
 * request_io.c (a backend has it). All others have target/request.h.
 */
#ifndef HAUL_TARGET_REQUEST_STEPS_H
#define HAUL_TARGET_REQUEST_STEPS_H

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "target/conn.h"
#include "target/request.h"

#define REQUEST_BIT(state) (1u << (state))

static const uint32_t request_steps[REQUEST_NR_STATES] = {
	[REQUEST_FREE] = REQUEST_BIT(REQUEST_CORE),
	[REQUEST_CORE] = REQUEST_BIT(REQUEST_FREE) | REQUEST_BIT(REQUEST_HELD) |
			 REQUEST_BIT(REQUEST_WAIT_BUF) | REQUEST_BIT(REQUEST_PULL) |
			 REQUEST_BIT(REQUEST_EXEC) | REQUEST_BIT(REQUEST_REPLY),
	[REQUEST_HELD] = REQUEST_BIT(REQUEST_CORE) | REQUEST_BIT(REQUEST_FREE),
	[REQUEST_WAIT_BUF] = REQUEST_BIT(REQUEST_CORE) | REQUEST_BIT(REQUEST_FREE),
	[REQUEST_PULL] = REQUEST_BIT(REQUEST_CORE) | REQUEST_BIT(REQUEST_FREE),
	[REQUEST_EXEC] = REQUEST_BIT(REQUEST_CORE) | REQUEST_BIT(REQUEST_FREE),
	[REQUEST_REPLY] = REQUEST_BIT(REQUEST_FREE),
};

/* From here on the host has to do something: take, send or make room. */
void request_begin_move(struct request *request);

/* Inlined where STATE is a constant: half of what it would ask is known there. */
static inline_always void request_step(struct request *request, enum request_state state)
{
	enum request_state old = request->state;

	assert(request_steps[old] & REQUEST_BIT(state));
	request->state = state;
	switch (state) {
	case REQUEST_CORE:
		if (old == REQUEST_FREE)
			request->conn->nr_commands++;
		else if (old == REQUEST_PULL)
			list_remove(&request->moving);
		break;
	case REQUEST_REPLY:
		request->conn->nr_commands--;
		request_begin_move(request);
		break;
	case REQUEST_PULL:
		request_begin_move(request);
		break;
	case REQUEST_FREE:
		if (old != REQUEST_REPLY)
			request->conn->nr_commands--;
		if (old == REQUEST_REPLY || old == REQUEST_PULL)
			list_remove(&request->moving);
		break;
	case REQUEST_HELD:
	case REQUEST_WAIT_BUF:
	case REQUEST_EXEC:
		break;
	}
}

/* It is AWAITED, and over: whoever waits is told. */
void request_over(struct request *request);

/* Whoever has held it has let go of it. */
void request_free(struct request *request);

/* Whether it may run: a status. Sets its direction and, with what the command's own checks find,
 * how much data it has and where in the host. */
uint16_t request_check(struct request *request);

/* The command runs, unless a reservation is in its way. Its data is here. */
void request_run(struct request *request);
/* A command that has been checked: it runs, when its data is here and a buffer for it. */
void request_begin(struct request *request);
/* The same for the second of a fused pair: it has a part of the first's buffer. */
void request_begin_second(struct request *second);
/* The wait's READY. */
void request_buffer_ready(struct bufpool_wait *wait, struct buf *buf);

#endif
