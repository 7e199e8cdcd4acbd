/* SPDX-License-Identifier: MIT */
/*
 * The timers of a loop: a binary heap, the earliest at index 1, each timer knows its place.
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/loop_engine.h"

#define LOOP_TIMER_ROOM 16

void loop_timer_init(struct loop_timer *timer, void (*expired)(struct loop_timer *timer))
{
	*timer = (struct loop_timer){.expired = expired};
}

int loop_timers_reserve(struct loop *loop, uint32_t nr)
{
	struct loop_timer **heap;
	uint32_t room;

	if (loop->nr_timers_room - loop->nr_timers_reserved < nr) {
		room = loop->nr_timers_room ? 2 * loop->nr_timers_room : LOOP_TIMER_ROOM;
		room = max_of(room, loop->nr_timers_reserved + nr);
		heap = realloc(loop->timer_heap, ((size_t)room + 1) * sizeof(*heap));
		if (!heap)
			return -ENOMEM;
		loop->timer_heap = heap;
		loop->nr_timers_room = room;
	}
	loop->nr_timers_reserved += nr;
	return 0;
}

void loop_timers_unreserve(struct loop *loop, uint32_t nr)
{
	assert(loop->nr_timers_reserved - loop->nr_timers >= nr);
	loop->nr_timers_reserved -= nr;
}

static void loop_timer_place(struct loop *loop, struct loop_timer *timer, uint32_t index)
{
	loop->timer_heap[index] = timer;
	timer->heap_index = index;
}

static void loop_timer_up(struct loop *loop, struct loop_timer *timer, uint32_t index)
{
	struct loop_timer **heap = loop->timer_heap;

	while (index > 1 && heap[index / 2]->deadline_ns > timer->deadline_ns) {
		loop_timer_place(loop, heap[index / 2], index);
		index /= 2;
	}
	loop_timer_place(loop, timer, index);
}

static void loop_timer_down(struct loop *loop, struct loop_timer *timer, uint32_t index)
{
	struct loop_timer **heap = loop->timer_heap;
	uint32_t child;

	while ((child = 2 * index) <= loop->nr_timers) {
		if (child < loop->nr_timers &&
			heap[child + 1]->deadline_ns < heap[child]->deadline_ns)
			child++;
		if (heap[child]->deadline_ns >= timer->deadline_ns)
			break;
		loop_timer_place(loop, heap[child], index);
		index = child;
	}
	loop_timer_place(loop, timer, index);
}

static void loop_timer_settle(struct loop *loop, struct loop_timer *timer, uint32_t index)
{
	if (index > 1 && loop->timer_heap[index / 2]->deadline_ns > timer->deadline_ns)
		loop_timer_up(loop, timer, index);
	else
		loop_timer_down(loop, timer, index);
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t deadline_ns)
{
	uint32_t index = timer->heap_index;

	timer->deadline_ns = deadline_ns;
	if (!index) {
		assert(loop->nr_timers < loop->nr_timers_reserved);
		index = ++loop->nr_timers;
	}
	loop_timer_settle(loop, timer, index);
}

void loop_timer_cancel(struct loop *loop, struct loop_timer *timer)
{
	uint32_t index = timer->heap_index;
	struct loop_timer *last;

	if (!index)
		return;
	assert(loop->timer_heap[index] == timer);
	timer->heap_index = 0;
	last = loop->timer_heap[loop->nr_timers--];
	if (last != timer)
		loop_timer_settle(loop, last, index);
}

uint32_t loop_timers_expire(struct loop *loop, uint32_t budget)
{
	struct loop_timer *timer;
	uint32_t nr;

	for (nr = 0; nr < budget && loop_timers_next_ns(loop) <= loop->now_ns; nr++) {
		timer = loop->timer_heap[1];
		loop_timer_cancel(loop, timer);
		timer->expired(timer);
	}
	return nr;
}
