/* SPDX-License-Identifier: MIT */
/*
 * Waits on each reactor for what a host's earlier controllers may still write.
 */
#include "target/fence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/keep_alive.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/reservation.h"
#include "target/round.h"
#include "target/subsys.h"
#include "target/target.h"

/* Turns of a reactor before it is looked at: that a host has gone may lie in its sockets or its
 * mailbox since before the host came back. */
#define FENCE_TURNS 3

struct fence {
	struct round round;
	struct list node;    /* reactor->fences */
	struct list awaited; /* requests of REACTOR, by FENCED, but for those that an earlier fence
				of this host has */
	const struct ctrl *ctrl;
	struct request *request;
	void (*over)(struct request *request, bool late);
	struct reactor *reactor; /* that is visited */
	unsigned nr_turns;
	uint64_t began_ns;
	uint64_t deadline_ns;
	bool again; /* what waits for memory may have more behind it */
	bool ended; /* queues that have got nowhere */
	bool late;
	char hostnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];
	char subnqn[NVME_NQN_MAX + 1];
};

/* A subsystem that has been removed has lost its name; the new one may be just that. */
static bool fence_meets(const struct fence *fence, const char *hostnqn, const uint8_t hostid[16],
	const struct subsys *subsys)
{
	return !strcmp(hostnqn, fence->hostnqn) &&
	       !memcmp(hostid, fence->hostid, sizeof(fence->hostid)) &&
	       (subsys == &subsys_removed || !strcmp(subsys->nqn, fence->subnqn));
}

/* --- controllers whose queues must leave: until then these may begin something --------------- */

static bool fence_is_old(const struct fence *fence, const struct ctrl *ctrl)
{
	if (!ctrl || !ctrl->nr_members || ctrl == fence->ctrl ||
		!(ctrl_expels(ctrl) || ctrl->overdue_asked))
		return false;
	return fence_meets(fence, ctrl->hostnqn, ctrl->hostid, ctrl->subsys);
}

static bool fence_has_old_ctrl(const struct fence *fence)
{
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		if (fence_is_old(fence, fence->reactor->ctrls[slot]))
			return true;
	return false;
}

/* Whether they are overdue turns out when their queues have been asked. */
static void fence_end_overdue(const struct fence *fence)
{
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++) {
		struct ctrl *ctrl = fence->reactor->ctrls[slot];

		if (ctrl && ctrl != fence->ctrl && ctrl->nr_members &&
			fence_meets(fence, ctrl->hostnqn, ctrl->hostid, ctrl->subsys))
			keep_alive_end_if_overdue(ctrl);
	}
}

/* --- commands that must be over -------------------------------------------------------------- */

/* More than its depth cannot have been in its socket when FENCE began. */
static bool fence_has_read_all(const struct fence *fence, struct conn *conn)
{
	if (conn->fence_began_ns != fence->began_ns) {
		conn->fence_began_ns = fence->began_ns;
		conn->fence_received = conn->nr_received;
	}
	return conn->nr_received - conn->fence_received >= conn->depth;
}

/* Or something behind it: what has brought data and waits for memory holds up its socket. */
static bool fence_may_write(const struct request *request)
{
	bool writes = request->command && request->command->access == RESERVATION_WRITE;

	if (!request->conn)
		return false;
	if (request->state == REQUEST_WAIT_BUF)
		return writes || request->direction == REQUEST_FROM_HOST;
	return writes && (request->state == REQUEST_PULL || request->state == REQUEST_EXEC);
}

static void fence_await_conn(struct fence *fence, struct conn *conn)
{
	if (fence_has_read_all(fence, conn))
		return;
	for (uint32_t i = 0; i < conn->slots.nr_touched; i++) {
		struct request *request = &conn->requests[i];

		if (!fence_may_write(request))
			continue;
		fence->again |= request->state == REQUEST_WAIT_BUF;
		if (!list_empty(&request->fenced))
			continue;
		request->awaited = true;
		list_push_back(&fence->awaited, &request->fenced);
	}
}

/* Of queues that close, and of those that live: their host may have lost them without a word. */
static void fence_await_commands(struct fence *fence)
{
	struct conn *conn;

	list_for_each_entry (conn, &fence->reactor->conns, node)
		if (conn->qid && conn->subsys &&
			fence_meets(fence, conn->hostnqn, conn->hostid, conn->subsys))
			fence_await_conn(fence, conn);
}

static bool fence_same_host(const struct fence *a, const struct fence *b)
{
	return !strcmp(a->hostnqn, b->hostnqn) && !memcmp(a->hostid, b->hostid, sizeof(a->hostid));
}

/* Its own, or those that another fence of its host has found before. */
static bool fence_has_commands(const struct fence *fence)
{
	const struct fence *earlier;

	list_for_each_entry (earlier, &fence->reactor->fences, node) {
		if (!list_empty(&earlier->awaited) && fence_same_host(earlier, fence))
			return true;
		if (earlier == fence)
			break;
	}
	return false;
}

static bool fence_must_wait(const struct fence *fence)
{
	return fence_has_commands(fence) || fence_has_old_ctrl(fence);
}

/* It waits no longer here; what it has not seen the end of is for the next one of this host. */
static void fence_leave(struct fence *fence)
{
	struct fence *next;

	list_remove(&fence->node);
	list_for_each_entry (next, &fence->reactor->fences, node)
		if (fence_same_host(next, fence)) {
			list_splice_back(&next->awaited, &fence->awaited);
			break;
		}
	while (list_pop_front(&fence->awaited))
		;
	round_go_on(&fence->round);
}

void fence_request_over(struct request *request)
{
	bool last = request->fenced.next == request->fenced.prev;

	list_remove(&request->fenced);
	if (last)
		fence_look_again(request->conn->reactor);
}

/* --- a reactor's fences ---------------------------------------------------------------------- */

static void fence_arm(struct reactor *reactor)
{
	const struct fence *fence;
	uint64_t first_ns = UINT64_MAX;

	list_for_each_entry (fence, &reactor->fences, node)
		first_ns = min_of(first_ns, fence->deadline_ns);
	if (first_ns == UINT64_MAX)
		loop_timer_cancel(reactor->loop, &reactor->fence_timer);
	else
		loop_timer_set(reactor->loop, &reactor->fence_timer, first_ns);
}

static void fence_turn(struct loop_message *message);

static void fence_start_turns(struct fence *fence)
{
	fence->nr_turns = fence->late ? FENCE_TURNS : 0;
	fence->round.message.fn = fence_turn;
	fence_turn(&fence->round.message);
}

/* Nothing is left to be waited for, as far as it has been looked. */
static void fence_go_on(struct fence *fence)
{
	if (!fence->again) {
		fence_leave(fence);
		return;
	}
	list_remove(&fence->node);
	fence_start_turns(fence);
}

static void fence_look(struct fence *fence)
{
	if (fence->late || fence->reactor->stage == REACTOR_CLOSES) {
		round_go_on(&fence->round);
		return;
	}
	list_push_back(&fence->reactor->fences, &fence->node);
	fence->again = false;
	fence_await_commands(fence);
	if (fence_must_wait(fence))
		fence_arm(fence->reactor);
	else
		fence_leave(fence);
}

void fence_look_again(struct reactor *reactor)
{
	struct fence *fence, *after;

	list_for_each_entry_safe (fence, after, &reactor->fences, node) {
		if (!fence_must_wait(fence))
			fence_go_on(fence);
	}
	fence_arm(reactor);
}

/* Some command of CONN's that is awaited waits for the host or for memory. */
static bool fence_is_stuck(const struct conn *conn)
{
	for (uint32_t i = 0; i < conn->slots.nr_touched; i++) {
		const struct request *request = &conn->requests[i];

		if (request->conn && request->state != REQUEST_EXEC && fence_may_write(request) &&
			!list_empty(&request->fenced))
			return true;
	}
	return false;
}

/* Their writes never begin then. The disk's have no more time. */
static void fence_end_stuck(struct fence *fence, uint64_t now_ns)
{
	struct conn *conn, *after;

	fence->ended = true;
	list_for_each_entry_safe (conn, after, &fence->reactor->conns, node) {
		if (conn->state != CONN_LIVE || !conn->qid || !conn->subsys ||
			!fence_meets(fence, conn->hostnqn, conn->hostid, conn->subsys) ||
			fence_has_read_all(fence, conn) || !fence_is_stuck(conn))
			continue;
		fence->deadline_ns = now_ns + FENCE_FLUSH_NS;
		conn_log(conn, "a write has got nowhere since its host has a new controller");
		conn_close(conn, "its host has a new controller that waits for its writes");
	}
}

static struct fence *fence_due(struct reactor *reactor, uint64_t now_ns)
{
	struct fence *fence;

	list_for_each_entry (fence, &reactor->fences, node)
		if (fence->deadline_ns <= now_ns)
			return fence;
	return NULL;
}

void fence_expired(struct loop_timer *timer)
{
	struct reactor *reactor = container_of(timer, struct reactor, fence_timer);
	uint64_t now_ns = loop_now_ns(reactor->loop);
	struct fence *fence;

	while ((fence = fence_due(reactor, now_ns))) {
		if (!fence->ended) {
			fence_end_stuck(fence, now_ns);
			continue;
		}
		fence->late = fence_must_wait(fence);
		fence_leave(fence);
	}
	fence_look_again(reactor);
}

void fence_give_up(struct reactor *reactor)
{
	struct fence *fence, *after;

	list_for_each_entry_safe (fence, after, &reactor->fences, node) {
		fence->late = true;
		fence_leave(fence);
	}
	fence_arm(reactor);
}

static void fence_turn(struct loop_message *message)
{
	struct fence *fence = container_of(message, struct fence, round.message);

	if (fence->nr_turns++ < FENCE_TURNS)
		loop_send(fence->reactor->loop, message);
	else
		fence_look(fence);
}

static void fence_visit(struct round *round, struct reactor *reactor)
{
	struct fence *fence = container_of(round, struct fence, round);

	fence->reactor = reactor;
	if (!fence->late)
		fence_end_overdue(fence);
	fence_start_turns(fence);
}

static void fence_over(struct round *round)
{
	struct fence *fence = container_of(round, struct fence, round);

	fence->over(fence->request, fence->late);
	free(fence);
}

void fence_start(struct ctrl *ctrl, struct request *request,
	void (*over)(struct request *request, bool late))
{
	struct loop *loop = ctrl->reactor->loop;
	struct fence *fence = calloc(1, sizeof(*fence));

	if (!fence) {
		over(request, true);
		return;
	}
	list_init(&fence->node);
	list_init(&fence->awaited);
	fence->ctrl = ctrl;
	fence->request = request;
	fence->over = over;
	fence->began_ns = loop_now_ns(loop);
	fence->deadline_ns = fence->began_ns + ctrl->reactor->fence_ns;
	memcpy(fence->hostid, ctrl->hostid, sizeof(fence->hostid));
	snprintf(fence->hostnqn, sizeof(fence->hostnqn), "%s", ctrl->hostnqn);
	snprintf(fence->subnqn, sizeof(fence->subnqn), "%s", ctrl->subsys->nqn);
	round_start(&fence->round, ctrl->reactor->target, loop, fence_visit, fence_over);
}
