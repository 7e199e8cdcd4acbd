/* SPDX-License-Identifier: MIT */
/*
 * The buffer pool: classes, cap, waiting in order, registrars that fail, giving memory back.
 */
#include "tests/unit/base/engines.h"

#include <sys/mman.h>

#include "proto/base/bufpool.h"

#define MIB (1ull << 20)

static struct bufpool *pool_of(struct loop *loop, uint64_t cap_bytes)
{
	struct bufpool *pool;

	assert_int_equal(bufpool_create(loop, cap_bytes, &pool), 0);
	return pool;
}

static struct bufpool_stats stats_of(const struct bufpool *pool)
{
	struct bufpool_stats stats;

	bufpool_stats_get(pool, &stats);
	return stats;
}

static void buffers_have_the_size_of_their_class_and_do_not_overlap(void **state)
{
	static const struct {
		uint32_t size;
		uint32_t class_size;
	} cases[] = {
		{1, 4096},
		{4096, 4096},
		{4097, 32768},
		{32768, 32768},
		{32769, 131072},
		{131072, 131072},
		{131073, 1 << 20},
		{1 << 20, 1 << 20},
	};
	enum { NR = 6 };
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct buf *bufs[NR];

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		for (unsigned j = 0; j < NR; j++) {
			bufs[j] = bufpool_get(pool, bufpool_shelf_of(cases[i].size));
			assert_non_null(bufs[j]);
			assert_int_equal(bufs[j]->size, cases[i].class_size);
			assert_int_equal((uintptr_t)bufs[j]->bytes % 4096, 0);
			assert_true((char *)bufs[j]->bytes >= (char *)bufs[j]->region->base);
			assert_true((char *)bufs[j]->bytes + bufs[j]->size <=
				    (char *)bufs[j]->region->base + BUFPOOL_REGION_BYTES);
			memset(bufs[j]->bytes, (int)j, bufs[j]->size);
		}
		for (unsigned j = 0; j < NR; j++) {
			assert_int_equal(((char *)bufs[j]->bytes)[0], j);
			assert_int_equal(((char *)bufs[j]->bytes)[bufs[j]->size - 1], j);
			bufpool_put(pool, bufs[j]);
		}
	}
	assert_int_equal(stats_of(pool).nr_used, 0);
	assert_int_equal(stats_of(pool).bytes_used, 0);
	bufpool_destroy(pool);
}

struct waiter {
	struct bufpool_wait wait;
	struct buf *buf;
	unsigned order;
};
static unsigned nr_served;

static void waiter_ready(struct bufpool_wait *wait, struct buf *buf)
{
	struct waiter *waiter = container_of(wait, struct waiter, wait);

	waiter->buf = buf;
	waiter->order = ++nr_served;
}

static void waiter_start(struct bufpool *pool, struct waiter *waiter, enum bufpool_shelf shelf)
{
	*waiter = (struct waiter){.wait = {.ready = waiter_ready, .shelf = shelf}};
	bufpool_wait(pool, &waiter->wait);
}

static void at_the_cap_who_asks_waits_in_order(void **state)
{
	enum { NR_CAP = 4, NR_WAIT = 5 };
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, 10 * MIB);
	struct waiter waiters[NR_WAIT];
	struct buf *bufs[NR_CAP];

	nr_served = 0;
	for (unsigned i = 0; i < NR_CAP; i++) {
		bufs[i] = bufpool_get(pool, BUFPOOL_SHELF_1M);
		assert_non_null(bufs[i]);
	}
	assert_null(bufpool_get(pool, BUFPOOL_SHELF_1M));
	for (unsigned i = 0; i < NR_WAIT; i++)
		waiter_start(pool, &waiters[i], BUFPOOL_SHELF_1M);
	loop_turn(loop);
	assert_int_equal(nr_served, 0);
	assert_int_equal(stats_of(pool).nr_waiting, NR_WAIT);
	/* The second gives up. */
	bufpool_wait_cancel(pool, &waiters[1].wait);
	bufpool_wait_cancel(pool, &waiters[1].wait);
	for (unsigned i = 0; i < NR_CAP; i++) {
		bufpool_put(pool, bufs[i]);
		assert_int_equal(nr_served, i);
		/* Who comes later does not overtake. */
		assert_null(i < NR_CAP - 1 ? bufpool_get(pool, BUFPOOL_SHELF_1M) : NULL);
		loop_turn(loop);
		assert_int_equal(nr_served, i + 1);
	}
	assert_null(waiters[1].buf);
	assert_int_equal(waiters[0].order, 1);
	assert_int_equal(waiters[2].order, 2);
	assert_int_equal(waiters[3].order, 3);
	assert_int_equal(waiters[4].order, 4);
	for (unsigned i = 0; i < NR_WAIT; i++)
		if (waiters[i].buf)
			bufpool_put(pool, waiters[i].buf);
	assert_int_equal(stats_of(pool).nr_waits, NR_WAIT);
	assert_int_equal(stats_of(pool).nr_waiting, 0);
	bufpool_destroy(pool);
}

/* All buffers of SHELF there are; returns how many. */
static unsigned take_all(struct bufpool *pool, enum bufpool_shelf shelf, struct buf **bufs)
{
	unsigned nr = 0;

	while ((bufs[nr] = bufpool_get(pool, shelf)))
		nr++;
	return nr;
}

static void put_all(struct bufpool *pool, struct buf **bufs, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		bufpool_put(pool, bufs[i]);
}

#define NR_MANY 4096

/* Who uses one size, however much, leaves a region to each other one. */
static void each_shelf_has_something_whoever_came_first(void **state)
{
	static const enum bufpool_shelf shelves[] = {BUFPOOL_SHELF_4K, BUFPOOL_SHELF_32K,
		BUFPOOL_SHELF_128K, BUFPOOL_SHELF_1M, BUFPOOL_SHELF_RESERVE};
	struct buf **first = calloc(NR_MANY, sizeof(*first));
	struct buf **then = calloc(NR_MANY, sizeof(*then));
	unsigned nr_first, nr_then;

	for (unsigned i = 0; i < ARRAY_SIZE(shelves); i++) {
		struct bufpool *pool = pool_of(*state, 12 * MIB);

		nr_first = take_all(pool, shelves[i], first);
		for (unsigned j = 0; j < ARRAY_SIZE(shelves); j++) {
			if (i == j)
				continue;
			nr_then = take_all(pool, shelves[j], then);
			assert_true(nr_then >= 2);
			put_all(pool, then, nr_then);
		}
		put_all(pool, first, nr_first);
		bufpool_destroy(pool);
	}
	free(first);
	free(then);
}

static void the_reserve_is_not_for_data(void **state)
{
	struct bufpool *pool = pool_of(*state, BUFPOOL_MIN_BYTES);
	struct buf **data = calloc(NR_MANY, sizeof(*data));
	struct buf **reserved = calloc(NR_MANY, sizeof(*reserved));
	unsigned nr_data, nr_reserved;

	nr_data = take_all(pool, BUFPOOL_SHELF_4K, data);
	assert_int_equal(nr_data, 512 - BUFPOOL_NR_RESERVED);
	nr_reserved = take_all(pool, BUFPOOL_SHELF_RESERVE, reserved);
	assert_int_equal(nr_reserved, BUFPOOL_NR_RESERVED);
	assert_false(bufpool_has(pool, BUFPOOL_SHELF_RESERVE, 0, BUFPOOL_SMALL_BYTES));
	put_all(pool, reserved, nr_reserved);
	assert_null(bufpool_get(pool, BUFPOOL_SHELF_4K));
	put_all(pool, data, nr_data);
	bufpool_destroy(pool);
	free(data);
	free(reserved);
}

/* What a pool says it has it gives, exactly, whatever is free and whatever is cut how. */
static void what_is_said_to_be_there_is_there(void **state)
{
	static const uint32_t region_bufs[] = {512, 64, 16, 2};
	struct bufpool *pool = pool_of(*state, 16 * MIB);
	struct buf **bufs = calloc(NR_MANY, sizeof(*bufs));
	struct buf **more = calloc(NR_MANY, sizeof(*more));
	unsigned nr = 0, nr_more, seed = 5;

	for (unsigned round = 0; round < 200; round++) {
		enum bufpool_shelf shelf = (unsigned)rand_r(&seed) % 4;
		uint64_t bytes;
		unsigned wish = 1 + (unsigned)rand_r(&seed) % (2 * region_bufs[shelf]);

		while (nr && rand_r(&seed) % 64) {
			unsigned which = (unsigned)rand_r(&seed) % nr;

			bufpool_put(pool, bufs[which]);
			bufs[which] = bufs[--nr];
		}
		while (wish-- && nr < NR_MANY && (bufs[nr] = bufpool_get(pool, shelf)))
			nr++;
		shelf = (unsigned)rand_r(&seed) % 4;
		bytes = bufpool_shelf_bytes(shelf);
		nr_more = take_all(pool, shelf, more);
		assert_false(bufpool_has(pool, shelf, 0, bytes));
		put_all(pool, more, nr_more);
		assert_true(bufpool_has(pool, shelf, 0, nr_more * bytes));
		assert_false(bufpool_has(pool, shelf, 0, (nr_more + 1) * bytes));
	}
	put_all(pool, bufs, nr);
	bufpool_destroy(pool);
	free(bufs);
	free(more);
}

/* They wait for different things. */
static void who_waits_for_one_size_does_not_hold_up_another(void **state)
{
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, BUFPOOL_MIN_BYTES);
	struct buf *large[4], *small[NR_MANY];
	unsigned nr_large = take_all(pool, BUFPOOL_SHELF_1M, large);
	unsigned nr_small = take_all(pool, BUFPOOL_SHELF_4K, small);
	struct waiter first, second;

	assert_int_equal(nr_large, 2);
	waiter_start(pool, &first, BUFPOOL_SHELF_1M);
	waiter_start(pool, &second, BUFPOOL_SHELF_4K);
	bufpool_put(pool, small[--nr_small]);
	loop_turn(loop);
	assert_null(first.buf);
	assert_non_null(second.buf);
	bufpool_put(pool, large[--nr_large]);
	loop_turn(loop);
	assert_non_null(first.buf);
	bufpool_put(pool, first.buf);
	bufpool_put(pool, second.buf);
	put_all(pool, large, nr_large);
	put_all(pool, small, nr_small);
	bufpool_destroy(pool);
}

static void free_regions_go_back_to_the_system(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct buf *bufs[16];

	for (unsigned i = 0; i < 16; i++)
		bufs[i] = bufpool_get(pool, BUFPOOL_SHELF_1M);
	assert_int_equal(stats_of(pool).bytes_mapped, 16 * MIB);
	for (unsigned i = 1; i < 16; i++)
		bufpool_put(pool, bufs[i]);
	bufpool_shrink(pool, 8 * MIB);
	assert_int_equal(stats_of(pool).bytes_mapped, 8 * MIB);
	bufpool_shrink(pool, 0);
	assert_int_equal(stats_of(pool).bytes_mapped, 2 * MIB);
	memset(bufs[0]->bytes, 1, MIB);
	bufpool_put(pool, bufs[0]);
	bufpool_destroy(pool);
}

static void another_class_takes_over_free_regions_at_the_cap(void **state)
{
	struct bufpool *pool = pool_of(*state, 12 * MIB);
	struct buf *bufs[6];

	for (unsigned i = 0; i < 100; i++) {
		enum bufpool_shelf shelf = i % 2 ? BUFPOOL_SHELF_128K : BUFPOOL_SHELF_1M;
		unsigned nr = i % 2 ? 1 : 6;

		for (unsigned j = 0; j < nr; j++) {
			bufs[j] = bufpool_get(pool, shelf);
			assert_non_null(bufs[j]);
			memset(bufs[j]->bytes, 1, bufs[j]->size);
		}
		put_all(pool, bufs, nr);
	}
	assert_true(stats_of(pool).bytes_mapped <= 12 * MIB);
	bufpool_destroy(pool);
}

/* --- registrars ------------------------------------------------------------------------------ */

struct device {
	struct bufpool_registrar registrar;
	unsigned nr_added;
	unsigned nr_allowed;
	bool refuses_release;
	void *last_base;
};

static int device_add(
	struct bufpool_registrar *registrar, struct bufpool_region *region, void **ret_key)
{
	struct device *device = container_of(registrar, struct device, registrar);

	if (device->nr_added == device->nr_allowed)
		return -ENOMEM;
	device->nr_added++;
	device->last_base = region->base;
	*ret_key = region->base;
	return 0;
}

static int device_del(struct bufpool_registrar *registrar, struct bufpool_region *region, void *key)
{
	struct device *device = container_of(registrar, struct device, registrar);

	assert_ptr_equal(key, region->base);
	if (device->refuses_release)
		return -EBUSY;
	device->nr_added--;
	return 0;
}

static const struct device device_template = {
	.registrar = {.add = device_add, .del = device_del}, .nr_allowed = 1000};

static void every_region_is_registered_with_every_device(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct device devices[2] = {device_template, device_template};
	struct buf *bufs[3];

	bufs[0] = bufpool_get(pool, BUFPOOL_SHELF_1M);
	bufs[1] = bufpool_get(pool, BUFPOOL_SHELF_4K);
	assert_int_equal(bufpool_registrar_add(pool, &devices[0].registrar), 0);
	assert_int_equal(devices[0].nr_added, 2);
	assert_int_equal(bufpool_registrar_add(pool, &devices[1].registrar), 0);
	bufs[2] = bufpool_get(pool, BUFPOOL_SHELF_32K);
	assert_int_equal(devices[0].nr_added, 3);
	assert_int_equal(devices[1].nr_added, 3);
	assert_ptr_equal(bufs[2]->region->keys[devices[1].registrar.index], bufs[2]->region->base);
	bufpool_registrar_del(pool, &devices[0].registrar);
	assert_int_equal(devices[0].nr_added, 0);
	for (unsigned i = 0; i < 3; i++)
		bufpool_put(pool, bufs[i]);
	bufpool_shrink(pool, 0);
	assert_int_equal(devices[1].nr_added, 0);
	bufpool_registrar_del(pool, &devices[1].registrar);
	bufpool_destroy(pool);
}

static void a_device_that_cannot_take_all_regions_takes_none(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct device device = device_template;
	struct buf *bufs[3] = {bufpool_get(pool, BUFPOOL_SHELF_1M),
		bufpool_get(pool, BUFPOOL_SHELF_4K), bufpool_get(pool, BUFPOOL_SHELF_32K)};

	device.nr_allowed = 2;
	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), -ENOMEM);
	assert_int_equal(device.nr_added, 0);
	device.nr_allowed = 3;
	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	for (unsigned i = 0; i < 3; i++)
		bufpool_put(pool, bufs[i]);
	bufpool_registrar_del(pool, &device.registrar);
	bufpool_destroy(pool);
}

static void a_region_no_device_takes_is_not_used_and_its_waiter_waits(void **state)
{
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, 64 * MIB);
	struct device device = device_template;
	struct waiter waiter;

	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	device.nr_allowed = 0;
	assert_null(bufpool_get(pool, BUFPOOL_SHELF_4K));
	assert_int_equal(stats_of(pool).bytes_mapped, 0);
	waiter_start(pool, &waiter, BUFPOOL_SHELF_4K);
	loop_turn(loop);
	assert_null(waiter.buf);
	/* No buffer is out that could come back: only time helps. */
	device.nr_allowed = 1;
	wait_for(loop, waiter.buf);
	bufpool_put(pool, waiter.buf);
	bufpool_registrar_del(pool, &device.registrar);
	bufpool_destroy(pool);
}

/* Whether memory is mapped there. */
static bool is_mapped(void *base)
{
	unsigned char resident[BUFPOOL_REGION_BYTES / 4096];

	return !mincore(base, BUFPOOL_REGION_BYTES, resident);
}

static void memory_a_device_does_not_release_is_neither_used_nor_unmapped(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct device device = device_template;
	struct buf *buf;
	void *base;

	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	buf = bufpool_get(pool, BUFPOOL_SHELF_4K);
	base = device.last_base;
	device.refuses_release = true;
	bufpool_registrar_del(pool, &device.registrar);
	bufpool_put(pool, buf);
	buf = bufpool_get(pool, BUFPOOL_SHELF_4K);
	assert_ptr_not_equal(buf->region->base, base);
	bufpool_put(pool, buf);
	bufpool_shrink(pool, 0);
	bufpool_destroy(pool);
	assert_true(is_mapped(base));
	munmap(base, BUFPOOL_REGION_BYTES);

	pool = pool_of(*state, 64 * MIB);
	device = device_template;
	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	bufpool_put(pool, bufpool_get(pool, BUFPOOL_SHELF_4K));
	base = device.last_base;
	device.refuses_release = true;
	bufpool_shrink(pool, 0);
	bufpool_registrar_del(pool, &device.registrar);
	bufpool_destroy(pool);
	assert_true(is_mapped(base));
	munmap(base, BUFPOOL_REGION_BYTES);
}

/* Neither is what else is in its region; who has some of that goes on and gives it back. */
static void an_abandoned_buffer_is_neither_used_nor_unmapped(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct device device = device_template;
	struct bufpool_stats stats;
	struct buf *buf[3];
	void *base;
	unsigned i;

	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	for (i = 0; i < ARRAY_SIZE(buf); i++)
		buf[i] = bufpool_get(pool, BUFPOOL_SHELF_4K);
	base = buf[0]->region->base;
	bufpool_abandon(pool, buf[0]);
	bufpool_put(pool, buf[1]);
	bufpool_abandon(pool, buf[2]);
	bufpool_stats_get(pool, &stats);
	assert_int_equal(stats.nr_used, 0);
	assert_int_equal(stats.bytes_used, 0);
	buf[0] = bufpool_get(pool, BUFPOOL_SHELF_4K);
	assert_ptr_not_equal(buf[0]->region->base, base);
	bufpool_put(pool, buf[0]);
	bufpool_shrink(pool, 0);
	bufpool_registrar_del(pool, &device.registrar);
	assert_int_equal(device.nr_added, 0);
	bufpool_destroy(pool);
	assert_true(is_mapped(base));
	munmap(base, BUFPOOL_REGION_BYTES);
}

static void a_ninth_device_is_refused(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct device devices[BUFPOOL_NR_REGISTRARS + 1];

	for (unsigned i = 0; i <= BUFPOOL_NR_REGISTRARS; i++) {
		devices[i] = device_template;
		assert_int_equal(bufpool_registrar_add(pool, &devices[i].registrar),
			i < BUFPOOL_NR_REGISTRARS ? 0 : -ENOSPC);
	}
	for (unsigned i = 0; i < BUFPOOL_NR_REGISTRARS; i++)
		bufpool_registrar_del(pool, &devices[i].registrar);
	bufpool_destroy(pool);
}

static void a_cap_without_a_region_for_each_class_is_refused(void **state)
{
	struct bufpool *pool = NULL;

	assert_int_equal(bufpool_create(*state, BUFPOOL_MIN_BYTES - 1, &pool), -EINVAL);
	assert_null(pool);
	bufpool_destroy(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(buffers_have_the_size_of_their_class_and_do_not_overlap),
		loop_test(at_the_cap_who_asks_waits_in_order),
		loop_test(each_shelf_has_something_whoever_came_first),
		loop_test(the_reserve_is_not_for_data),
		loop_test(what_is_said_to_be_there_is_there),
		loop_test(who_waits_for_one_size_does_not_hold_up_another),
		loop_test(free_regions_go_back_to_the_system),
		loop_test(another_class_takes_over_free_regions_at_the_cap),
		loop_test(every_region_is_registered_with_every_device),
		loop_test(a_device_that_cannot_take_all_regions_takes_none),
		loop_test(a_region_no_device_takes_is_not_used_and_its_waiter_waits),
		loop_test(memory_a_device_does_not_release_is_neither_used_nor_unmapped),
		loop_test(an_abandoned_buffer_is_neither_used_nor_unmapped),
		loop_test(a_ninth_device_is_refused),
		loop_test(a_cap_without_a_region_for_each_class_is_refused),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
