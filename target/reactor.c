/* SPDX-License-Identifier: MIT */
/*
 * Reactors: their threads from the first turn to the last.
 */
#include "target/reactor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/conn.h"
#include "target/fence.h"
#include "target/reactor_ns.h"
#include "target/smart_past.h"
#include "target/target.h"

/* What transports have begun to take down is over when nothing happens for that long. */
#define REACTOR_SETTLE_NS    10000000
#define REACTOR_SETTLE_TURNS 1000

/* What hosts had sent before the end began is found by then: it lies in the sockets already. */
#define REACTOR_SETTLES_NS 20000000ull
/* Time for the commands that have begun; then they are dropped. */
#define REACTOR_DRAINS_NS  2000000000ull

#define REACTOR_NR_TIMERS 4u /* of fences, of associations, of the drain and of hiding */

static void reactor_drain_expired(struct loop_timer *timer);
static void reactor_check_drained(struct loop_flush *flush);

int reactor_create(struct target *target, uint32_t index, struct reactor **ret)
{
	const struct target_settings *settings = &target->settings;
	const struct loop_options options = {
		.engine = settings->engine, .spin_ns = settings->spin_ns};
	uint64_t pool_bytes = settings->memory_bytes / target->nr_reactors;
	struct reactor *reactor = calloc(1, sizeof(*reactor));
	int error = -ENOMEM;

	if (!reactor)
		return error;
	reactor->target = target;
	reactor->index = index;
	reactor->catalog = target->catalog;
	reactor->next_conn_number = index + 1;
	reactor->patience_ns = settings->patience_ns;
	reactor->namespaces = calloc(CATALOG_MAX_NAMESPACES, sizeof(struct reactor_ns *));
	if (!reactor->namespaces)
		goto free_reactor;
	list_init(&reactor->conns);
	list_init(&reactor->fences);
	reactor->fence_ns = FENCE_DEADLINE_NS;
	loop_timer_init(&reactor->fence_timer, fence_expired);
	associations_init(&reactor->associations);
	list_init(&reactor->range_locks);
	list_init(&reactor->smart_past);
	loop_timer_init(&reactor->drain_timer, reactor_drain_expired);
	loop_flush_init(&reactor->drain_check, reactor_check_drained);
	view_hide_init(&reactor->hide, reactor);
	error = loop_create(&options, &reactor->loop);
	if (error)
		goto free_reactor;
	reactor->started_ns = loop_now_ns(reactor->loop);
	error = loop_timers_reserve(reactor->loop, REACTOR_NR_TIMERS);
	if (error)
		goto destroy_loop;
	error = bufpool_create(reactor->loop, pool_bytes, &reactor->pool);
	if (error)
		goto destroy_loop;
	share_table_init(&reactor->shares, reactor->loop, reactor->pool, target->share_key);
	*ret = reactor;
	return 0;

destroy_loop:
	loop_destroy(reactor->loop);
free_reactor:
	free(reactor->namespaces);
	free(reactor);
	return error;
}

/* --- on the reactor's thread ----------------------------------------------------------------- */

static void reactor_settle(struct reactor *reactor)
{
	for (int i = 0; i < REACTOR_SETTLE_TURNS; i++)
		if (!loop_wait(reactor->loop, REACTOR_SETTLE_NS))
			return;
}

/* What tests/bench reads. */
static void reactor_log_stats(const struct reactor *reactor)
{
	struct loop_stats stats;

	loop_stats_get(reactor->loop, &stats);
	log_debug("reactor %u: turns=%llu syscalls=%llu sleeps=%llu operations=%llu",
		reactor->index, (unsigned long long)stats.nr_turns,
		(unsigned long long)stats.nr_syscalls, (unsigned long long)stats.nr_sleeps,
		(unsigned long long)stats.nr_ops);
}

static void *reactor_main(void *arg)
{
	struct reactor *reactor = arg;

	loop_run(reactor->loop);
	assert(list_empty(&reactor->conns));
	for (unsigned i = 0; i < NR_TRANSPORTS; i++)
		if (reactor->transport_state[i])
			transports[i]->free_state(reactor);
	reactor_settle(reactor);
	reactor_ns_detach_all(reactor);
	reactor_log_stats(reactor);
	return NULL;
}

static void reactor_drained(struct loop_message *message)
{
	target_reactor_drained(container_of(message, struct reactor, drain)->target);
}

static void reactor_end_drain(struct reactor *reactor)
{
	loop_flush_cancel(&reactor->drain_check);
	loop_timer_cancel(reactor->loop, &reactor->drain_timer);
	reactor->stage = REACTOR_CLOSES;
	reactor->drain.fn = reactor_drained;
	loop_send(reactor->target->reactors[0]->loop, &reactor->drain);
}

static void reactor_check_drained(struct loop_flush *flush)
{
	struct reactor *reactor = container_of(flush, struct reactor, drain_check);
	struct conn *conn;

	list_for_each_entry (conn, &reactor->conns, node)
		if (conn_has_commands(conn))
			return;
	reactor_end_drain(reactor);
}

static void reactor_drain_expired(struct loop_timer *timer)
{
	struct reactor *reactor = container_of(timer, struct reactor, drain_timer);

	if (reactor->stage == REACTOR_DRAINS) {
		log_info("reactor %u: closing with commands in flight", reactor->index);
		reactor_end_drain(reactor);
		return;
	}
	reactor->stage = REACTOR_DRAINS;
	log_debug("reactor %u: no further command is begun", reactor->index);
	loop_timer_set(reactor->loop, timer, loop_now_ns(reactor->loop) + REACTOR_DRAINS_NS);
	loop_flush_later(reactor->loop, &reactor->drain_check);
}

static void reactor_drain_here(struct loop_message *message)
{
	struct reactor *reactor = container_of(message, struct reactor, drain);

	reactor->stage = REACTOR_SETTLES;
	loop_timer_set(reactor->loop, &reactor->drain_timer,
		loop_now_ns(reactor->loop) + REACTOR_SETTLES_NS);
}

static void reactor_stop_here(struct loop_message *message)
{
	struct reactor *reactor = container_of(message, struct reactor, stop);
	struct conn *conn, *after;

	list_for_each_entry_safe (conn, after, &reactor->conns, node)
		conn_close(conn, "the target stops");
	fence_give_up(reactor);
}

static void reactor_exit_here(struct loop_message *message)
{
	loop_stop(container_of(message, struct reactor, exit)->loop);
}

/* --- from other threads ---------------------------------------------------------------------- */

int reactor_start(struct reactor *reactor)
{
	char name[16];
	int error = pthread_create(&reactor->thread, NULL, reactor_main, reactor);

	if (error)
		return -error;
	reactor->thread_started = true;
	snprintf(name, sizeof(name), "reactor %u", reactor->index);
	pthread_setname_np(reactor->thread, name);
	return 0;
}

void reactor_drain(struct reactor *reactor)
{
	reactor->drain.fn = reactor_drain_here;
	loop_send(reactor->loop, &reactor->drain);
}

void reactor_stop(struct reactor *reactor)
{
	reactor->stop.fn = reactor_stop_here;
	loop_send(reactor->loop, &reactor->stop);
}

void reactor_exit(struct reactor *reactor)
{
	reactor->exit.fn = reactor_exit_here;
	loop_send(reactor->loop, &reactor->exit);
}

void reactor_destroy(struct reactor *reactor)
{
	if (!reactor)
		return;
	if (reactor->thread_started)
		pthread_join(reactor->thread, NULL);
	smart_past_free_all(reactor);
	share_table_destroy(&reactor->shares);
	bufpool_destroy(reactor->pool);
	loop_destroy(reactor->loop);
	free(reactor->namespaces);
	free(reactor);
}
