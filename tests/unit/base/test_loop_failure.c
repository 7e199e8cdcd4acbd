/* SPDX-License-Identifier: MIT */
/*
 * Failures that the system rarely shows: disks out of tags, no memory. Linked so that the loop's
 * clock and allocations are the test's.
 */
#include "tests/unit/base/engines.h"

#include <poll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/bufpool.h"
#include "proto/base/loop_engine.h"
#include "proto/base/slots.h"

/* --- clock and memory ------------------------------------------------------------------------ */

static uint64_t fake_now_ns; /* 0: the real clock */
static unsigned nr_allocations;
static unsigned failing_allocation; /* counted from 1; 0: none */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (!fake_now_ns)
		return __real_clock_gettime(clock, ret);
	ret->tv_sec = (time_t)(fake_now_ns / ENGINES_SECOND_NS);
	ret->tv_nsec = (long)(fake_now_ns % ENGINES_SECOND_NS);
	return 0;
}

static bool allocation_fails(void)
{
	return ++nr_allocations == failing_allocation;
}

#define FAILING(type, failure, name, parameters, arguments)                    \
	type __real_##name parameters;                                         \
	type __wrap_##name parameters;                                         \
	type __wrap_##name parameters                                          \
	{                                                                      \
		return allocation_fails() ? failure : __real_##name arguments; \
	}
FAILING(void *, NULL, malloc, (size_t size), (size))
FAILING(void *, NULL, calloc, (size_t nr, size_t size), (nr, size))
FAILING(void *, NULL, realloc, (void *old, size_t size), (old, size))
FAILING(void *, NULL, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
FAILING(void *, MAP_FAILED, mmap64,
	(void *at, size_t size, int protection, int flags, int fd, off_t offset),
	(at, size, protection, flags, fd, offset))

/* --- an engine whose disk fails as told --------------------------------------------------------
 */

static struct {
	struct loop loop;
	unsigned nr_failures; /* attempts that fail before one succeeds */
	int error;
	unsigned nr_attempts;
	uint64_t look_ns;
	uint64_t slept_ns;
	bool in_flight; /* attempts end in the turn after, in the completions step */
	struct list flying;
} fake;

static void fake_destroy(struct loop *loop)
{
	loop_exit(loop);
}

static uint32_t fake_submit(struct loop *loop)
{
	struct list *node;
	uint32_t nr = 0;
	int res;

	for (; (node = list_pop_front(&loop->submits)); nr++) {
		if (fake.in_flight) {
			container_of(node, struct loop_op, node)->state = LOOP_OP_FLIGHT;
			list_push_back(&fake.flying, node);
			continue;
		}
		res = fake.nr_attempts++ < fake.nr_failures ? fake.error : 4096;
		loop_op_complete(loop, container_of(node, struct loop_op, node), res);
	}
	return nr;
}

/* Each look takes some time. */
static uint32_t fake_complete(struct loop *loop, uint32_t budget)
{
	struct list *node;

	(void)budget;
	fake_now_ns += fake.look_ns;
	while ((node = list_pop_front(&fake.flying))) {
		fake.nr_attempts++;
		loop_op_finish(loop, container_of(node, struct loop_op, node), fake.error);
	}
	return 0;
}

/* It comes too late. */
static void fake_cancel(struct loop *loop, struct loop_op *op)
{
	(void)loop;
	(void)op;
}

static void fake_sleep(struct loop *loop, int64_t timeout_ns)
{
	(void)loop;
	assert_true(timeout_ns >= 0);
	fake.slept_ns += (uint64_t)timeout_ns;
	fake_now_ns += (uint64_t)timeout_ns;
}

static const struct loop_engine_ops fake_ops = {
	.name = "fake",
	.destroy = fake_destroy,
	.cancel = fake_cancel,
	.submit = fake_submit,
	.complete = fake_complete,
	.sleep = fake_sleep,
};

static struct loop *fake_create(unsigned nr_failures, int error)
{
	const struct loop_options options = {.nr_ops = 64};

	fake_now_ns = 1000 * ENGINES_SECOND_NS;
	fake.nr_failures = nr_failures;
	fake.error = error;
	fake.nr_attempts = 0;
	fake.look_ns = 0;
	fake.slept_ns = 0;
	fake.in_flight = false;
	list_init(&fake.flying);
	memset(&fake.loop, 0, sizeof(fake.loop));
	assert_int_equal(loop_init(&fake.loop, &fake_ops, &options), 0);
	return &fake.loop;
}

static void fake_end(struct loop *loop)
{
	loop_destroy(loop);
	fake_now_ns = 0;
}

/* Turns until READ is done; the clock jumps to each next timer. */
static void run_until_done(struct loop *loop, struct waited *read)
{
	for (unsigned i = 0; !read->nr_done && i < 100000; i++)
		if (!loop_turn(loop) && loop_timers_next_ns(loop) != UINT64_MAX)
			fake_now_ns = loop_timers_next_ns(loop);
	assert_int_equal(read->nr_done, 1);
}

static void a_disk_out_of_tags_is_tried_again_with_pauses(void **state)
{
	static const struct {
		unsigned nr_failures;
		int error;
		int res;
		uint64_t min_ns, max_ns;
	} cases[] = {
		{0, -EAGAIN, 4096, 0, 0},
		{1, -EAGAIN, 4096, 1000000, 1000000},
		{5, -EAGAIN, 4096, 31000000, 31000000},
		{3, -EINTR, 4096, 7000000, 7000000},
		{1000000, -EAGAIN, -EAGAIN, LOOP_RETRY_LIMIT_NS, LOOP_RETRY_LIMIT_NS + 64000000},
		{1000000, -EIO, -EIO, 0, 0},
	};
	struct loop_file file = {};
	struct iovec iov = {};
	struct waited read;
	struct loop *loop;
	uint64_t start_ns;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		loop = fake_create(cases[i].nr_failures, cases[i].error);
		start_ns = fake_now_ns;
		waited_init(&read);
		loop_read(loop, &read.op, &file, &iov, 1, 0, LOOP_BUFFER_NONE);
		run_until_done(loop, &read);
		assert_int_equal(read.res, cases[i].res);
		assert_in_range(fake_now_ns - start_ns, cases[i].min_ns, cases[i].max_ns);
		/* 30 s take no more than some hundred attempts. */
		assert_true(fake.nr_attempts < 600);
		fake_end(loop);
	}
}

static void after_a_success_the_pauses_are_short_again(void **state)
{
	struct loop *loop = fake_create(8, -EAGAIN);
	struct loop_file file = {};
	struct iovec iov = {};
	struct waited read;
	uint64_t start_ns;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		fake.nr_attempts = i ? 7 : 0;
		start_ns = fake_now_ns;
		waited_init(&read);
		loop_read(loop, &read.op, &file, &iov, 1, 0, LOOP_BUFFER_NONE);
		run_until_done(loop, &read);
	}
	assert_int_equal(fake_now_ns - start_ns, 1000000);
	fake_end(loop);
}

static void an_operation_is_cancelled_between_attempts(void **state)
{
	struct loop *loop = fake_create(1000000, -EAGAIN);
	struct loop_file file = {};
	struct waited read;

	(void)state;
	waited_init(&read);
	loop_fsync(loop, &read.op, &file, true);
	loop_turn(loop);
	loop_turn(loop);
	assert_int_equal(fake.nr_attempts, 1);
	loop_cancel(loop, &read.op);
	assert_int_equal(read.nr_done, 0);
	loop_turn(loop);
	assert_int_equal(read.nr_done, 1);
	assert_int_equal(read.res, -ECANCELED);
	fake_end(loop);
}

static void a_cancelled_operation_is_not_tried_again(void **state)
{
	static const struct {
		bool in_flight, is_socket;
		int error;
	} cases[] = {
		{false, false, -EAGAIN},
		{false, true, -EINTR},
		{true, false, -EAGAIN},
		{true, false, -EINTR},
		{true, true, -EINTR},
	};
	struct loop_file file = {};
	struct iovec iov = {};
	struct waited waited;
	struct loop *loop;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		loop = fake_create(1000000, cases[i].error);
		fake.in_flight = cases[i].in_flight;
		waited_init(&waited);
		if (cases[i].is_socket)
			loop_receive(loop, &waited.op, &file, &iov, 1);
		else
			loop_read(loop, &waited.op, &file, &iov, 1, 0, LOOP_BUFFER_NONE);
		loop_turn(loop);
		loop_cancel(loop, &waited.op);
		assert_int_equal(waited.nr_done, 0);
		loop_turn(loop);
		assert_int_equal(waited.nr_done, 1);
		assert_int_equal(waited.res, -ECANCELED);
		assert_int_equal(fake.nr_attempts, 1);
		fake_end(loop);
	}
}

/* --- spinning ----------------------------------------------------------------------------------
 */

static void nothing_flushed(struct loop_flush *flush)
{
	(void)flush;
}

static void a_loop_spins_for_its_time_after_work_and_then_sleeps(void **state)
{
	static const struct {
		uint64_t spin_ns;
		int64_t timeout_ns;
		uint64_t slept_ns;
		uint64_t nr_turns; /* of 10 us each, the one with work among them */
	} cases[] = {
		{0, 500000, 490000, 3},
		{100000, 500000, 400000, 12},
		{100000, 50000, 0, 7},
		{100000, 0, 0, 2},
	};
	struct loop_flush work;
	struct loop_stats stats;
	struct loop *loop;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		loop = fake_create(0, 0);
		loop->spin_ns = cases[i].spin_ns;
		fake.look_ns = 10000;
		loop_flush_init(&work, nothing_flushed);
		loop_flush_later(loop, &work);
		assert_int_equal(loop_wait(loop, 0), 1);
		assert_int_equal(loop_wait(loop, cases[i].timeout_ns), 0);
		loop_stats_get(loop, &stats);
		assert_int_equal(fake.slept_ns, cases[i].slept_ns);
		assert_int_equal(stats.nr_turns, cases[i].nr_turns);
		assert_int_equal(stats.nr_sleeps, cases[i].slept_ns != 0);
		fake_end(loop);
	}
}

/* --- time and the pool -------------------------------------------------------------------------
 */

static void regions_idle_for_ten_seconds_go_back_by_themselves(void **state)
{
	struct bufpool_stats stats;
	struct loop *loop = fake_create(0, 0);
	struct bufpool *pool;
	struct buf *bufs[6];

	(void)state;
	/* The fake engine registers no buffers. */
	struct loop_engine_ops ops = fake_ops;

	ops.buffer_register = loop_epoll_ops.buffer_register;
	ops.buffer_unregister = loop_epoll_ops.buffer_unregister;
	loop->engine = &ops;
	assert_int_equal(bufpool_create(loop, 64u << 20, &pool), 0);
	for (unsigned i = 0; i < 6; i++)
		bufs[i] = bufpool_get(pool, BUFPOOL_SHELF_1M);
	for (unsigned i = 0; i < 6; i++) {
		loop_turn(loop);
		bufpool_put(pool, bufs[i]);
		fake_now_ns += ENGINES_SECOND_NS;
	}
	/* Put at 0 and 1 s, 2 and 3 s, 4 and 5 s: free since 1, 3, 5 s. */
	for (unsigned second = 6; second < 18; second++) {
		loop_turn(loop);
		bufpool_stats_get(pool, &stats);
		assert_int_equal(stats.bytes_mapped >> 20,
			second < 11 ? 6 : (second < 13 ? 4 : (second < 15 ? 2 : 0)));
		fake_now_ns += ENGINES_SECOND_NS;
	}
	/* Nothing ticks while there is nothing to give back. */
	assert_int_equal(loop_timers_next_ns(loop), UINT64_MAX);
	bufpool_destroy(pool);
	fake_end(loop);
}

/* --- no memory ---------------------------------------------------------------------------------
 */

static int add_one(void *arg)
{
	return *(int *)arg + 1;
}

/* Everything that allocates, once. Any part may fail; what was made is unmade. */
static int use_everything(enum loop_engine engine)
{
	const struct loop_options options = {.engine = engine, .nr_ops = 64};
	struct slots slots = {};
	struct waited offloaded;
	struct bufpool *pool = NULL;
	struct loop *loop = NULL;
	struct buf *buf;
	int arg = 1;
	int err;

	err = loop_create(&options, &loop);
	if (err)
		return err;
	err = bufpool_create(loop, 64u << 20, &pool);
	if (err)
		goto destroy_loop;
	err = slots_init(&slots, 16);
	if (err)
		goto destroy_pool;
	buf = bufpool_get(pool, BUFPOOL_SHELF_4K);
	if (buf)
		bufpool_put(pool, buf);
	for (unsigned i = 0; !err && i < 20; i++)
		err = loop_timers_reserve(loop, 1);
	waited_init(&offloaded);
	loop_offload(loop, &offloaded.op, add_one, &arg);
	if (waited_result(loop, &offloaded) != 2)
		err = offloaded.res;
	err = buf ? err : -ENOMEM;
	slots_destroy(&slots);
destroy_pool:
	bufpool_destroy(pool);
destroy_loop:
	loop_destroy(loop);
	return err;
}

static void each_failing_allocation_is_an_error_or_does_not_matter(void **state)
{
	unsigned nr_errors;
	unsigned nr_all;
	int err;

	(void)state;
	for (unsigned engine = LOOP_ENGINE_URING; engine <= LOOP_ENGINE_EPOLL; engine++) {
		nr_allocations = 0;
		failing_allocation = 0;
		if (use_everything(engine))
			continue; /* no io_uring here */
		nr_all = nr_allocations;
		nr_errors = 0;
		assert_true(nr_all >= 6);
		for (unsigned i = 1; i <= nr_all; i++) {
			nr_allocations = 0;
			failing_allocation = i;
			err = use_everything(engine);
			failing_allocation = 0;
			assert_true(!err || err == -ENOMEM);
			nr_errors += err != 0;
		}
		assert_true(nr_errors >= 6);
	}
}

static struct buf *got;

static void got_ready(struct bufpool_wait *wait, struct buf *buf)
{
	(void)wait;
	got = buf;
}

static void waiters_are_served_when_memory_comes_back(void **state)
{
	const struct loop_options options = {.engine = LOOP_ENGINE_EPOLL};
	struct bufpool_wait wait = {.ready = got_ready, .shelf = BUFPOOL_SHELF_4K};
	struct bufpool *pool;
	struct loop *loop;

	(void)state;
	assert_int_equal(loop_create(&options, &loop), 0);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(bufpool_create(loop, 64u << 20, &pool), 0);
		nr_allocations = 0;
		failing_allocation = i;
		got = bufpool_get(pool, BUFPOOL_SHELF_4K);
		failing_allocation = 0;
		assert_null(got);
		bufpool_wait(pool, &wait);
		wait_for(loop, got);
		bufpool_put(pool, got);
		bufpool_destroy(pool);
	}
	loop_destroy(loop);
}

/* --- slots -------------------------------------------------------------------------------------
 */

static void slots_hand_out_each_number_once_the_warmest_first(void **state)
{
	struct slots slots;
	bool taken[100] = {};
	uint32_t number;

	(void)state;
	assert_int_equal(slots_init(&slots, 0), -EINVAL);
	assert_int_equal(slots_init(&slots, 100), 0);
	for (unsigned i = 0; i < 100; i++) {
		number = slots_get(&slots);
		assert_true(number < 100 && !taken[number]);
		taken[number] = true;
	}
	assert_int_equal(slots_get(&slots), SLOTS_NONE);
	assert_int_equal(slots_nr_used(&slots), 100);
	slots_put(&slots, 17);
	slots_put(&slots, 3);
	assert_int_equal(slots_nr_used(&slots), 98);
	assert_int_equal(slots_get(&slots), 3);
	assert_int_equal(slots_get(&slots), 17);
	assert_int_equal(slots_get(&slots), SLOTS_NONE);
	slots_destroy(&slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_disk_out_of_tags_is_tried_again_with_pauses),
		cmocka_unit_test(after_a_success_the_pauses_are_short_again),
		cmocka_unit_test(an_operation_is_cancelled_between_attempts),
		cmocka_unit_test(a_cancelled_operation_is_not_tried_again),
		cmocka_unit_test(a_loop_spins_for_its_time_after_work_and_then_sleeps),
		cmocka_unit_test(regions_idle_for_ten_seconds_go_back_by_themselves),
		cmocka_unit_test(each_failing_allocation_is_an_error_or_does_not_matter),
		cmocka_unit_test(waiters_are_served_when_memory_comes_back),
		cmocka_unit_test(slots_hand_out_each_number_once_the_warmest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
