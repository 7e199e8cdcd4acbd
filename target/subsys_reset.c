/* SPDX-License-Identifier: MIT */
/*
 * Brings a host's reset of its subsystem to the control thread and home again.
 */
#include "target/subsys_reset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/catalog.h"
#include "target/change.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/host_turns.h"
#include "target/reactor.h"
#include "target/request_errand.h"
#include "target/target.h"

struct subsys_reset {
	struct host_turn turn; /* the control thread's, as what follows */
	struct change change;
	struct request_errand errand;
	struct target *target;
	char nqn[NVME_NQN_MAX + 1];
	uint16_t status;
};

/* --- on the control thread ------------------------------------------------------------------- */

static int subsys_reset_make(struct change *change, const struct catalog *now, struct catalog **ret,
	char *why, size_t why_size)
{
	struct subsys_reset *reset = container_of(change, struct subsys_reset, change);
	const struct subsys *subsys = catalog_find(now, reset->nqn);

	/* The configuration has changed meanwhile. */
	if (!subsys || !subsys->reset_offered) {
		reset->status = CMD_INVALID_FIELD;
		return 0;
	}
	*ret = catalog_clone(now);
	if (!*ret) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	catalog_find(*ret, reset->nqn)->nr_resets++;
	return 0;
}

static void subsys_reset_over(struct change *change, int error, const char *why)
{
	struct subsys_reset *reset = container_of(change, struct subsys_reset, change);

	(void)why;
	if (error)
		reset->status = NVME_SC_INTERNAL;
	host_turns_over(&reset->target->host_turns, &reset->turn);
	request_errand_return(&reset->errand);
}

static void subsys_reset_begin(struct host_turn *turn)
{
	struct subsys_reset *reset = container_of(turn, struct subsys_reset, turn);

	reset->change.make = subsys_reset_make;
	reset->change.over = subsys_reset_over;
	change_ask(&reset->target->changes, &reset->change);
}

/* A host could keep the target with catalogs for ever. */
static void subsys_reset_arrive(struct request_errand *errand)
{
	struct subsys_reset *reset = container_of(errand, struct subsys_reset, errand);

	reset->turn.begin = subsys_reset_begin;
	host_turns_ask(&reset->target->host_turns, &reset->turn);
}

/* --- at home --------------------------------------------------------------------------------- */

static void subsys_reset_back(struct request_errand *errand)
{
	struct subsys_reset *reset = container_of(errand, struct subsys_reset, errand);
	struct request *request = errand->request;
	uint16_t status = reset->status;

	free(reset);
	if (request_executed(request))
		request_complete(request, status);
}

void subsys_reset(struct request *request)
{
	const struct conn *conn = request->conn;
	struct subsys_reset *reset = calloc(1, sizeof(*reset));

	if (!reset) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	reset->target = conn->reactor->target;
	reset->turn.host = conn->share->key;
	snprintf(reset->nqn, sizeof(reset->nqn), "%s", conn->subsys->nqn);
	conn_log(request->conn, "NVM Subsystem Reset of %s, by host %s", reset->nqn, conn->hostnqn);
	request_errand_send(&reset->errand, request, subsys_reset_arrive, subsys_reset_back);
}
