/* SPDX-License-Identifier: MIT */
/*
 * Each loop test runs once with each engine: a loop as cmocka's state, and what tests wait with.
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
#include <liburing.h>

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

static enum loop_engine engines_chosen;

static inline int engines_setup(void **state)
{
	const struct loop_options options = {.engine = engines_chosen, .nr_ops = 64};

	return loop_create(&options, (struct loop **)state);
}

static inline int engines_teardown(void **state)
{
	loop_destroy(*state);
	return 0;
}

#define loop_test(test) cmocka_unit_test_setup_teardown(test, engines_setup, engines_teardown)

/* io_uring as of older kernels: the set-up flags they do not know are refused. The tests are
 * linked so that the loop calls this instead of liburing's. */
static unsigned engines_unknown_flags;

int __real_io_uring_queue_init_params(
	unsigned entries, struct io_uring *ring, struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(
	unsigned entries, struct io_uring *ring, struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(
	unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
	if (params->flags & engines_unknown_flags)
		return -EINVAL;
	return __real_io_uring_queue_init_params(entries, ring, params);
}

/* The program's arguments: an engine, and for io_uring the kernel it shall be like. Skips where
 * the kernel refuses it. */
static inline void engines_choose(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "auto";
	struct loop *loop;
	int err;

	if (loop_engine_parse(name, &engines_chosen)) {
		fprintf(stderr, "%s is no engine: io_uring or epoll\n", name);
		exit(2);
	}
	if (argc > 2)
		engines_unknown_flags = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER;
	if (argc > 2 && !strcmp(argv[2], "5.15"))
		engines_unknown_flags |= IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL;
	err = engines_setup((void **)&loop);
	if (err) {
		fprintf(stderr, "skipped: %s is refused here: %s\n", name, strerror(-err));
		exit(SKIPPED);
	}
	loop_destroy(loop);
}

#endif
