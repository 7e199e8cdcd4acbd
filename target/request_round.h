/* SPDX-License-Identifier: MIT */
/*
 * A command that needs something from every reactor: it waits in EXEC while a round
 * (target/round.h) visits them, and goes on at home. What a command gathers it embeds behind a
 * struct request_round.
 */
#ifndef HAUL_TARGET_REQUEST_ROUND_H
#define HAUL_TARGET_REQUEST_ROUND_H

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"
#include "target/round.h"

struct request;

struct request_round {
	struct round round;
	struct request *request; /* in EXEC, home's alone */
	/* The subsystem's name: while the round is under way its reactors may change catalogs. */
	char nqn[NVME_NQN_MAX + 1];
	char hostnqn[NVME_NQN_MAX + 1]; /* whose view of it counts (target/view.h) */
	void (*visit)(struct request_round *round, struct reactor *reactor);
	void (*done)(struct request_round *round);
};

/* For REQUEST, on its reactor: zeroed, SIZE bytes, the first of them a struct request_round. NULL:
 * no memory. */
struct request_round *request_round_create(struct request *request, size_t size) must_check;

/* The request is handed from CORE to EXEC. VISIT is called on each reactor and does all at once.
 * DONE is called at home with the request in CORE and ends it; not if its connection is closing.
 * Frees ROUND afterwards. */
void request_round_start(struct request_round *round,
	void (*visit)(struct request_round *round, struct reactor *reactor),
	void (*done)(struct request_round *round));

#endif
