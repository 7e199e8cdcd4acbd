/* SPDX-License-Identifier: MIT */
/*
 * Waits on each reactor for the queues of a host's ended controllers.
 */
#include "target/fence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/round.h"
#include "target/subsys.h"
#include "target/target.h"

/* Turns of a reactor before it is looked at: that a host has gone may lie in its sockets or its
 * mailbox since before the host came back. */
#define FENCE_TURNS 3

struct fence {
	struct round round;
	struct list node; /* reactor->fences */
	const struct ctrl *ctrl;
	struct request *request;
	void (*over)(struct request *request, bool late);
	struct reactor *reactor; /* that is visited */
	unsigned nr_turns;
	uint64_t deadline_ns;
	bool late;
	char hostnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];
	char subnqn[NVME_NQN_MAX + 1];
};

static bool fence_is_old(const struct fence *fence, const struct ctrl *ctrl)
{
	if (!ctrl || !ctrl->ending || !ctrl->nr_members || ctrl == fence->ctrl)
		return false;
	/* A subsystem that has been removed has lost its name; the new one may be just that. */
	return !strcmp(ctrl->hostnqn, fence->hostnqn) &&
	       !memcmp(ctrl->hostid, fence->hostid, sizeof(fence->hostid)) &&
	       (ctrl->subsys == &subsys_removed || !strcmp(ctrl->subsys->nqn, fence->subnqn));
}

static bool fence_must_wait(const struct fence *fence)
{
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		if (fence_is_old(fence, fence->reactor->ctrls[slot]))
			return true;
	return false;
}

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

static void fence_look(struct fence *fence)
{
	if (fence->late || fence->reactor->stage == REACTOR_CLOSES || !fence_must_wait(fence)) {
		round_go_on(&fence->round);
		return;
	}
	list_push_back(&fence->reactor->fences, &fence->node);
	fence_arm(fence->reactor);
}

void fence_look_again(struct reactor *reactor)
{
	struct fence *fence, *after;

	list_for_each_entry_safe (fence, after, &reactor->fences, node) {
		if (fence_must_wait(fence))
			continue;
		list_remove(&fence->node);
		round_go_on(&fence->round);
	}
	fence_arm(reactor);
}

void fence_expired(struct loop_timer *timer)
{
	struct reactor *reactor = container_of(timer, struct reactor, fence_timer);
	uint64_t now_ns = loop_now_ns(reactor->loop);
	struct fence *fence, *after;

	list_for_each_entry_safe (fence, after, &reactor->fences, node) {
		if (fence->deadline_ns > now_ns)
			continue;
		list_remove(&fence->node);
		fence->late = true;
		round_go_on(&fence->round);
	}
	fence_arm(reactor);
}

void fence_give_up(struct reactor *reactor)
{
	struct list *node;

	while ((node = list_pop_front(&reactor->fences))) {
		struct fence *fence = container_of(node, struct fence, node);

		fence->late = true;
		round_go_on(&fence->round);
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
	fence->nr_turns = fence->late ? FENCE_TURNS : 0;
	round->message.fn = fence_turn;
	fence_turn(&round->message);
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
	fence->ctrl = ctrl;
	fence->request = request;
	fence->over = over;
	fence->deadline_ns = loop_now_ns(loop) + ctrl->reactor->fence_ns;
	memcpy(fence->hostid, ctrl->hostid, sizeof(fence->hostid));
	snprintf(fence->hostnqn, sizeof(fence->hostnqn), "%s", ctrl->hostnqn);
	snprintf(fence->subnqn, sizeof(fence->subnqn), "%s", ctrl->subsys->nqn);
	round_start(&fence->round, ctrl->reactor->target, loop, fence_visit, fence_over);
}
