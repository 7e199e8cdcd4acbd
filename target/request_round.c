/* SPDX-License-Identifier: MIT */
/*
 * Sends a request's round and takes the request back.
 */
#include "target/request_round.h"

#include <stdio.h>
#include <stdlib.h>

#include "target/conn.h"
#include "target/reactor.h"
#include "target/subsys.h"

struct request_round *request_round_create(struct request *request, size_t size)
{
	struct request_round *round = calloc(1, size);

	assert(size >= sizeof(*round));
	if (!round)
		return NULL;
	round->request = request;
	snprintf(round->nqn, sizeof(round->nqn), "%s", request->conn->subsys->nqn);
	snprintf(round->hostnqn, sizeof(round->hostnqn), "%s", request->conn->hostnqn);
	return round;
}

static void request_round_visit(struct round *base, struct reactor *reactor)
{
	struct request_round *round = container_of(base, struct request_round, round);

	round->visit(round, reactor);
	round_go_on(base);
}

static void request_round_done(struct round *base)
{
	struct request_round *round = container_of(base, struct request_round, round);

	if (request_executed(round->request))
		round->done(round);
	free(round);
}

void request_round_start(struct request_round *round,
	void (*visit)(struct request_round *round, struct reactor *reactor),
	void (*done)(struct request_round *round))
{
	const struct reactor *reactor = round->request->conn->reactor;

	round->visit = visit;
	round->done = done;
	request_hand_to(round->request, REQUEST_EXEC);
	round_start(&round->round, reactor->target, reactor->loop, request_round_visit,
		request_round_done);
}
