/* SPDX-License-Identifier: MIT */
/*
 * Gives turns to hosts, in order, with rests between.
 */
#include "target/host_turns.h"

#include <string.h>

/* What they may take in a burst. */
#define HOST_TURNS_BURST_NS 1000000000ull

static void host_turns_begin(struct host_turns *turns)
{
	struct list *node;

	if (turns->current || loop_timer_is_set(&turns->rest))
		return;
	node = list_pop_front(&turns->waiting);
	if (!node)
		return;
	turns->current = container_of(node, struct host_turn, node);
	turns->last_host = turns->current->host;
	turns->last_number = turns->current->number;
	turns->began_ns = loop_now_ns(turns->loop);
	turns->current->begin(turns->current);
}

static void host_turns_rested(struct loop_timer *timer)
{
	host_turns_begin(container_of(timer, struct host_turns, rest));
}

int host_turns_init(struct host_turns *turns, struct loop *loop)
{
	*turns = (struct host_turns){.loop = loop};
	list_init(&turns->waiting);
	loop_timer_init(&turns->rest, host_turns_rested);
	return loop_timers_reserve(loop, 1);
}

static bool host_turns_is_of(const struct share_key *host, const struct share_key *other)
{
	return !memcmp(host, other, sizeof(*host));
}

/* One after the host's last; a host that has none is next. Before all with a higher number. */
void host_turns_ask(struct host_turns *turns, struct host_turn *turn)
{
	struct list *before = &turns->waiting;
	struct host_turn *other;

	turn->number = turns->last_number + host_turns_is_of(&turn->host, &turns->last_host);
	list_for_each_entry (other, &turns->waiting, node)
		if (host_turns_is_of(&turn->host, &other->host))
			turn->number = other->number + 1;
	list_for_each_entry (other, &turns->waiting, node) {
		if (other->number <= turn->number)
			continue;
		before = &other->node;
		break;
	}
	list_init(&turn->node);
	list_insert_before(&turn->node, before);
	host_turns_begin(turns);
}

static void host_turns_pay(struct host_turns *turns)
{
	uint64_t now = loop_now_ns(turns->loop);
	uint64_t paid = min_of((now - turns->as_of_ns) / 2, turns->debt_ns + now - turns->began_ns);

	turns->debt_ns += now - turns->began_ns - paid;
	turns->as_of_ns = now;
	if (turns->debt_ns > HOST_TURNS_BURST_NS)
		loop_timer_set(turns->loop, &turns->rest,
			now + 2 * (turns->debt_ns - HOST_TURNS_BURST_NS));
}

void host_turns_over(struct host_turns *turns, struct host_turn *turn)
{
	assert(turns->current == turn);
	turns->current = NULL;
	host_turns_pay(turns);
	host_turns_begin(turns);
}

void host_turns_hurry(struct host_turns *turns)
{
	turns->debt_ns = 0;
	if (loop_timer_is_set(&turns->rest))
		loop_timer_cancel(turns->loop, &turns->rest);
	host_turns_begin(turns);
}
