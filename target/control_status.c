/* SPDX-License-Identifier: MIT */
/*
 * Gathers the status from all reactors.
 */
#include "target/control_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"
#include "target/control_private.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/round.h"
#include "target/target.h"
#include "target/transport.h"

struct status {
	struct control_work work;
	struct round round;
	struct list node; /* control->statuses */
	uint32_t nr_reactors;
	struct status_reactor reactors[];
};

/* --- on each reactor ------------------------------------------------------------------------- */

static uint32_t status_length(const struct list *list)
{
	uint32_t nr = 0;

	for (const struct list *node = list->next; node != list; node = node->next)
		nr++;
	return nr;
}

static void status_visit_ctrl(struct status_ctrl *ret, const struct ctrl *ctrl)
{
	*ret = (struct status_ctrl){.cntlid = ctrl->cntlid,
		.reactor = ctrl->reactor->index,
		.kato_ms = ctrl->kato_ms,
		.ready = ctrl_ready(ctrl)};
	memcpy(ret->hostid, ctrl->hostid, sizeof(ret->hostid));
	snprintf(ret->hostnqn, sizeof(ret->hostnqn), "%s", ctrl->hostnqn);
	snprintf(ret->subnqn, sizeof(ret->subnqn), "%s", ctrl->subsys->nqn);
}

static void status_visit_ctrls(struct status_reactor *ret, const struct reactor *reactor)
{
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		ret->nr_ctrls += reactor->ctrls[slot] != NULL;
	ret->ctrls = calloc(ret->nr_ctrls + 1, sizeof(*ret->ctrls));
	for (uint32_t slot = 0, nr = 0; ret->ctrls && slot < REACTOR_MAX_CTRLS; slot++)
		if (reactor->ctrls[slot])
			status_visit_ctrl(&ret->ctrls[nr++], reactor->ctrls[slot]);
}

static void status_visit_queue(struct status_queue *ret, const struct conn *conn)
{
	*ret = (struct status_queue){
		.cntlid = conn->connected && conn->state == CONN_LIVE ? conn->cntlid : 0,
		.qid = conn->qid,
		.reactor = conn->reactor->index,
		.depth = conn->depth,
		.nr_in_flight = conn->nr_commands,
		.nr_commands = conn->nr_received,
		.proof_due = conn->auth.due,
		.both_ways = conn->auth.both_ways,
		.hash = conn->auth.hash,
		.group = conn->auth.group,
		.transport = conn->ops->name,
		.peer = conn->peer,
		.local = conn->local,
		.number = conn->number,
	};
}

static void status_visit_conns(struct status_reactor *ret, const struct reactor *reactor)
{
	const struct conn *conn;
	uint32_t nr = 0;

	list_for_each_entry (conn, &reactor->conns, node) {
		ret->nr_conns++;
		ret->nr_requests += conn->nr_out;
	}
	ret->queues = calloc(ret->nr_conns + 1, sizeof(*ret->queues));
	if (!ret->queues)
		return;
	list_for_each_entry (conn, &reactor->conns, node)
		status_visit_queue(&ret->queues[nr++], conn);
	ret->nr_queues = nr;
}

static struct status_held status_held(uint64_t held, uint64_t left)
{
	return (struct status_held){held, share_limit(held, left)};
}

static uint32_t status_receives_left(const struct reactor *reactor)
{
	uint32_t left = 0;

	for (unsigned i = 0; i < NR_TRANSPORTS; i++)
		if (transports[i]->receives_left)
			left = max_of(left, transports[i]->receives_left(reactor));
	return left;
}

static void status_visit_share(struct status_share *ret, const struct share *share,
	const struct reactor *reactor, const struct bufpool_stats *pool)
{
	const struct target *target = reactor->target;
	uint64_t reserve = BUFPOOL_NR_RESERVED * BUFPOOL_SMALL_BYTES;

	share_describe(share, ret->address);
	ret->data = status_held(share->data.bytes, pool->bytes_left);
	ret->reserve =
		status_held(share->reserve.bytes, reserve - min_of(pool->reserve_used, reserve));
	ret->ctrls = status_held(share->nr_ctrls, ctrl_nr_left(reactor));
	ret->receives = status_held(share->nr_receives, status_receives_left(reactor));
	if (!reactor->index)
		ret->conns = status_held(share->nr_conns, target->max_conns - target->nr_conns_all);
	ret->nr_waiting = share_nr_waiting(share);
}

static void status_visit_shares(struct status_reactor *ret, const struct reactor *reactor)
{
	const struct share *share;
	uint32_t nr = 0;

	for (uint32_t i = 0; i < SHARE_NR_ROWS; i++)
		ret->nr_shares += status_length(&reactor->shares.rows[i]);
	ret->shares = calloc(ret->nr_shares + 1, sizeof(*ret->shares));
	for (uint32_t i = 0; ret->shares && i < SHARE_NR_ROWS; i++)
		list_for_each_entry (share, &reactor->shares.rows[i], node) {
			status_visit_share(&ret->shares[nr], share, reactor, &ret->pool);
			/* Who waits for a buffer does so in its share's line or in the pool's. */
			ret->pool.nr_waiting += ret->shares[nr++].nr_waiting;
		}
}

static void status_visit(struct round *round, struct reactor *reactor)
{
	struct status *status = container_of(round, struct status, round);
	struct status_reactor *ret = &status->reactors[reactor->index];

	ret->engine = loop_engine_name(reactor->loop);
	bufpool_stats_get(reactor->pool, &ret->pool);
	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++) {
		if (!reactor->namespaces[i])
			continue;
		ret->nr_namespaces++;
		ret->nr_ns_requests += reactor->namespaces[i]->nr_requests;
	}
	status_visit_shares(ret, reactor);
	ret->nr_fences = status_length(&reactor->fences);
	status_visit_ctrls(ret, reactor);
	status_visit_conns(ret, reactor);
	round_go_on(round);
}

/* --- on the control thread ------------------------------------------------------------------- */

static void status_free(struct status *status)
{
	for (uint32_t i = 0; i < status->nr_reactors; i++) {
		free(status->reactors[i].ctrls);
		free(status->reactors[i].queues);
		free(status->reactors[i].shares);
	}
	list_remove(&status->node);
	free(status);
}

static void status_done(struct round *round)
{
	struct status *status = container_of(round, struct status, round);
	const struct control *control = status->work.control;
	struct control_client *client = control_work_over(&status->work);
	struct json_object *answer = json_object_new_object();

	if (client) {
		json_object_object_add(answer, "status",
			control_status_describe(control, status->reactors, status->nr_reactors));
		control_answer(client, answer);
	} else {
		json_object_put(answer);
	}
	status_free(status);
}

void control_status(struct control_client *client, struct json_object *request)
{
	struct control *control = control_client_control(client);
	struct target *target = control->target;
	struct status *status;

	(void)request;
	/* Reactors that end answer nothing. */
	if (target->draining) {
		control_refuse(client, "the target is about to stop");
		return;
	}
	status = calloc(1, sizeof(*status) + target->nr_reactors * sizeof(status->reactors[0]));
	if (!status) {
		control_refuse(client, "out of memory");
		return;
	}
	status->nr_reactors = target->nr_reactors;
	list_init(&status->node);
	list_push_back(&control->statuses, &status->node);
	control_client_wait(client, &status->work);
	round_start(&status->round, target, target->loop, status_visit, status_done);
}

void control_status_forget(struct control *control)
{
	while (!list_empty(&control->statuses))
		status_free(container_of(control->statuses.next, struct status, node));
}
