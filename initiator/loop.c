/* SPDX-License-Identifier: MIT */
/*
 * The caller's loop: proto/base's loop and pool, and the list of what has ended. An event lives
 * inside the object that it ends, so the list needs no memory of its own and has no bound to hit.
 */
#include "initiator/loop_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/nvme/status.h"
#include "initiator/ctrl.h"

#define LOOP_SPIN_US 20 /* a round trip over a fast network */

static void loop_woken(struct loop_message *message)
{
	struct haul_loop *hl = container_of(message, struct haul_loop, wake);

	__atomic_store_n(&hl->wake_is_out, 0, __ATOMIC_RELEASE);
}

static int loop_options_read(const struct haul_loop_options *options, struct loop_options *ret)
{
	*ret = (struct loop_options){.spin_ns = LOOP_SPIN_US * 1000ull};
	if (!options)
		return 0;
	if (options->size < sizeof(*options))
		return -EINVAL;
	ret->spin_ns = options->spin_us * 1000ull;
	return options->engine ? loop_engine_parse(options->engine, &ret->engine) : 0;
}

int haul_loop_create(const struct haul_loop_options *options, struct haul_loop **ret)
{
	struct loop_options loop_options;
	struct haul_loop *hl;
	int error = loop_options_read(options, &loop_options);

	if (error)
		return error;
	hl = calloc(1, sizeof(*hl));
	if (!hl)
		return -ENOMEM;
	list_init(&hl->ctrls);
	list_init(&hl->mems);
	list_init(&hl->ended);
	hl->wake.fn = loop_woken;
	error = loop_create(&loop_options, &hl->loop);
	if (error)
		goto free_hl;
	error = bufpool_create(hl->loop, HAUL_POOL_BYTES, &hl->pool);
	if (error)
		goto destroy_loop;
	*ret = hl;
	return 0;

destroy_loop:
	loop_destroy(hl->loop);
free_hl:
	free(hl);
	return error;
}

void haul_loop_destroy(struct haul_loop *hl)
{
	if (!hl)
		return;
	assert(list_empty(&hl->ctrls) && list_empty(&hl->mems));
	while (hl->nr_resolving || __atomic_load_n(&hl->wake_is_out, __ATOMIC_ACQUIRE))
		loop_turn_or_wait(hl, -1);
	for (unsigned i = 0; i < HAUL_NR_TRANSPORTS; i++)
		if (haul_transports[i] && haul_transports[i]->free_loop && hl->transport_loop[i])
			haul_transports[i]->free_loop(hl);
	bufpool_destroy(hl->pool);
	loop_destroy(hl->loop);
	free(hl->by_address);
	free(hl);
}

const char *haul_loop_engine(const struct haul_loop *hl)
{
	return loop_engine_name(hl->loop);
}

int haul_loop_fd(struct haul_loop *hl)
{
	return loop_fd(hl->loop);
}

int haul_loop_arm(struct haul_loop *hl)
{
	if (hl->unsent || !list_empty(&hl->ended))
		return 1;
	return loop_arm(hl->loop);
}

void pending_end(struct haul_loop *hl, struct haul_pending *pending, int result, uint16_t status,
	uint64_t value)
{
	pending->event.result = result;
	pending->event.status = status;
	pending->event.value = value;
	list_push_back(&hl->ended, &pending->node);
}

static int loop_take_events(struct haul_loop *hl, struct haul_event *events, unsigned nr)
{
	unsigned n = 0;

	while (n < nr) {
		struct list *node = list_pop_front(&hl->ended);
		struct haul_pending *pending;

		if (!node)
			break;
		pending = container_of(node, struct haul_pending, node);
		events[n++] = pending->event;
		pending->taken(pending);
	}
	return (int)n;
}

void loop_turn_or_wait(struct haul_loop *hl, int64_t timeout_ns)
{
	hl->is_turning = true;
	if (timeout_ns)
		loop_wait(hl->loop, timeout_ns);
	else
		loop_turn(hl->loop);
	hl->is_turning = false;
	hl->now_is_fresh = false;
	hl->unsent = false; /* what the turn itself started was flushed at its end */
}

int haul_loop_poll(struct haul_loop *hl, struct haul_event *events, unsigned nr)
{
	loop_turn_or_wait(hl, 0);
	return loop_take_events(hl, events, nr);
}

/* Turns without blocking while events wait, else sleeps until the deadline. */
int haul_loop_wait(struct haul_loop *hl, struct haul_event *events, unsigned nr, int64_t timeout_ns)
{
	uint64_t deadline_ns = timeout_ns > 0 ? haul_loop_now_ns(hl) + (uint64_t)timeout_ns : 0;
	int n = haul_loop_poll(hl, events, nr);

	while (n == 0 && timeout_ns != 0) {
		int64_t left_ns = -1;

		if (__atomic_exchange_n(&hl->interrupted, 0, __ATOMIC_ACQ_REL))
			return -EINTR;
		if (timeout_ns > 0) {
			uint64_t now_ns = loop_now_ns(hl->loop);

			if (now_ns >= deadline_ns)
				return 0;
			left_ns = (int64_t)(deadline_ns - now_ns);
		}
		loop_turn_or_wait(hl, left_ns);
		n = loop_take_events(hl, events, nr);
	}
	return n;
}

void haul_loop_interrupt(struct haul_loop *hl)
{
	__atomic_store_n(&hl->interrupted, 1, __ATOMIC_RELEASE);
	/* The message may be under way once only: its second sending would break the mailbox. */
	if (!__atomic_exchange_n(&hl->wake_is_out, 1, __ATOMIC_ACQ_REL))
		loop_send(hl->loop, &hl->wake);
}

uint64_t haul_loop_now_ns(struct haul_loop *hl)
{
	struct timespec now;

	if (hl->is_turning)
		return loop_now_ns(hl->loop);
	if (!hl->now_is_fresh) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		hl->now_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
		hl->now_is_fresh = true;
	}
	return hl->now_ns;
}

const char *haul_loop_error(const struct haul_loop *hl)
{
	return hl->error;
}

void haul_loop_stats(const struct haul_loop *hl, struct haul_loop_stats *ret)
{
	struct loop_stats stats;

	loop_stats_get(hl->loop, &stats);
	*ret = hl->stats;
	ret->nr_syscalls += stats.nr_syscalls;
}

const char *haul_version(void)
{
	return HAUL_VERSION;
}

const char *haul_status_text(uint16_t status)
{
	return nvme_status_str(status);
}
