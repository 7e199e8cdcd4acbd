/* SPDX-License-Identifier: MIT */
/*
 * Each loop test runs on both engines: a loop as cmocka's state, and what tests wait with.
 */
#ifndef HAUL_TESTS_ENGINES_H
#define HAUL_TESTS_ENGINES_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/loop.h"

#define SKIPPED 77 /* meson's exit status for it */

#define ENGINES_SECOND_NS 1000000000ull

/* An operation with its result. */
struct waited {
	struct loop_op op;
	int res;
	unsigned nr_done;
};

static inline void waited_done(struct done *done, int res, unsigned flags)
{
	struct waited *waited = container_of(done, struct waited, op.done);

	(void)flags;
	waited->res = res;
	waited->nr_done++;
}

static inline void waited_init(struct waited *waited)
{
	*waited = (struct waited){.op.done.fn = waited_done};
}

/* Turns LOOP until CONDITION; fails the test after ten seconds. */
#define wait_for(loop, condition)                                                \
	do {                                                                     \
		uint64_t limit_ns_ = loop_now_ns(loop) + 10 * ENGINES_SECOND_NS; \
		while (!(condition)) {                                           \
			loop_wait(loop, 100000000);                              \
			if (loop_now_ns(loop) > limit_ns_)                       \
				fail_msg("waited in vain for " #condition);      \
		}                                                                \
	} while (0)

static inline int waited_result(struct loop *loop, struct waited *waited)
{
	wait_for(loop, waited->nr_done);
	assert_int_equal(waited->nr_done, 1);
	waited->nr_done = 0;
	return waited->res;
}

static inline int setup_engine(void **state, enum loop_engine engine)
{
	const struct loop_options options = {.engine = engine, .nr_ops = 64};

	return loop_create(&options, (struct loop **)state);
}

static inline int setup_uring(void **state)
{
	return setup_engine(state, LOOP_ENGINE_URING);
}

static inline int setup_epoll(void **state)
{
	return setup_engine(state, LOOP_ENGINE_EPOLL);
}

static inline int teardown_loop(void **state)
{
	loop_destroy(*state);
	return 0;
}

#define on_both_engines(test)                                            \
	{#test " (io_uring)", test, setup_uring, teardown_loop, NULL},   \
	{                                                                \
#test " (epoll)", test, setup_epoll, teardown_loop, NULL \
	}

/* False: the kernel or its settings refuse io_uring to this process. */
static inline bool has_uring(void)
{
	const struct loop_options options = {.engine = LOOP_ENGINE_URING};
	struct loop *loop;
	int err = loop_create(&options, &loop);

	if (!err)
		loop_destroy(loop);
	else
		fprintf(stderr, "io_uring: %s\n", strerror(-err));
	return !err;
}

#endif
