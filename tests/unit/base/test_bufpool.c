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
			bufs[j] = bufpool_get(pool, cases[i].size);
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

static void waiter_start(struct bufpool *pool, struct waiter *waiter, uint32_t size)
{
	*waiter = (struct waiter){.wait = {.ready = waiter_ready, .size = size}};
	bufpool_wait(pool, &waiter->wait);
}

static void at_the_cap_who_asks_waits_in_order(void **state)
{
	enum { NR_CAP = 4, NR_WAIT = 5 };
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, 4 * MIB);
	struct waiter waiters[NR_WAIT];
	struct buf *bufs[NR_CAP];

	nr_served = 0;
	for (unsigned i = 0; i < NR_CAP; i++) {
		bufs[i] = bufpool_get(pool, MIB);
		assert_non_null(bufs[i]);
	}
	assert_null(bufpool_get(pool, MIB));
	assert_null(bufpool_get(pool, 1));
	for (unsigned i = 0; i < NR_WAIT; i++)
		waiter_start(pool, &waiters[i], MIB);
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
		assert_null(i < NR_CAP - 1 ? bufpool_get(pool, MIB) : NULL);
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

static void a_large_wish_is_not_starved_by_small_ones(void **state)
{
	enum { NR = 1024 };
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, 4 * MIB);
	struct buf **bufs = calloc(NR, sizeof(*bufs));
	struct waiter large;
	struct waiter small;

	nr_served = 0;
	for (unsigned i = 0; i < NR; i++) {
		bufs[i] = bufpool_get(pool, 4096);
		assert_non_null(bufs[i]);
	}
	waiter_start(pool, &large, MIB);
	waiter_start(pool, &small, 4096);
	/* Small ones come back; none is given out before a whole region is free for the large. */
	for (unsigned i = 0; i < NR - 1 && !large.buf; i++) {
		bufpool_put(pool, bufs[i]);
		bufs[i] = NULL;
		loop_turn(loop);
		assert_true(large.buf || !small.buf);
	}
	assert_non_null(large.buf);
	loop_turn(loop);
	assert_non_null(small.buf);
	bufpool_put(pool, large.buf);
	bufpool_put(pool, small.buf);
	for (unsigned i = 0; i < NR; i++)
		if (bufs[i])
			bufpool_put(pool, bufs[i]);
	bufpool_destroy(pool);
	free(bufs);
}

static void cancelling_the_first_lets_the_next_have_its_buffer(void **state)
{
	struct loop *loop = *state;
	struct bufpool *pool = pool_of(loop, 2 * MIB);
	struct buf *small = bufpool_get(pool, 4096);
	struct waiter large;
	struct waiter next;

	waiter_start(pool, &large, MIB);
	waiter_start(pool, &next, 4096);
	loop_turn(loop);
	assert_null(next.buf);
	bufpool_wait_cancel(pool, &large.wait);
	loop_turn(loop);
	assert_non_null(next.buf);
	bufpool_put(pool, next.buf);
	bufpool_put(pool, small);
	bufpool_destroy(pool);
}

static void free_regions_go_back_to_the_system(void **state)
{
	struct bufpool *pool = pool_of(*state, 64 * MIB);
	struct buf *bufs[16];

	for (unsigned i = 0; i < 16; i++)
		bufs[i] = bufpool_get(pool, MIB);
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
	struct bufpool *pool = pool_of(*state, 2 * MIB);
	struct buf *buf;

	for (unsigned i = 0; i < 100; i++) {
		buf = bufpool_get(pool, i % 2 ? 4096 : MIB);
		assert_non_null(buf);
		memset(buf->bytes, 1, buf->size);
		bufpool_put(pool, buf);
	}
	assert_int_equal(stats_of(pool).bytes_mapped, 2 * MIB);
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

	bufs[0] = bufpool_get(pool, MIB);
	bufs[1] = bufpool_get(pool, 4096);
	assert_int_equal(bufpool_registrar_add(pool, &devices[0].registrar), 0);
	assert_int_equal(devices[0].nr_added, 2);
	assert_int_equal(bufpool_registrar_add(pool, &devices[1].registrar), 0);
	bufs[2] = bufpool_get(pool, 32768);
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
	struct buf *bufs[3] = {
		bufpool_get(pool, MIB), bufpool_get(pool, 4096), bufpool_get(pool, 32768)};

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
	assert_null(bufpool_get(pool, 4096));
	assert_int_equal(stats_of(pool).bytes_mapped, 0);
	waiter_start(pool, &waiter, 4096);
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
	buf = bufpool_get(pool, 4096);
	base = device.last_base;
	device.refuses_release = true;
	bufpool_registrar_del(pool, &device.registrar);
	bufpool_put(pool, buf);
	buf = bufpool_get(pool, 4096);
	assert_ptr_not_equal(buf->region->base, base);
	bufpool_put(pool, buf);
	bufpool_shrink(pool, 0);
	bufpool_destroy(pool);
	assert_true(is_mapped(base));
	munmap(base, BUFPOOL_REGION_BYTES);

	pool = pool_of(*state, 64 * MIB);
	device = device_template;
	assert_int_equal(bufpool_registrar_add(pool, &device.registrar), 0);
	bufpool_put(pool, bufpool_get(pool, 4096));
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
		buf[i] = bufpool_get(pool, 4096);
	base = buf[0]->region->base;
	bufpool_abandon(pool, buf[0]);
	bufpool_put(pool, buf[1]);
	bufpool_abandon(pool, buf[2]);
	bufpool_stats_get(pool, &stats);
	assert_int_equal(stats.nr_used, 0);
	assert_int_equal(stats.bytes_used, 0);
	buf[0] = bufpool_get(pool, 4096);
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

static void a_cap_below_one_region_is_refused(void **state)
{
	struct bufpool *pool = NULL;

	assert_int_equal(bufpool_create(*state, BUFPOOL_REGION_BYTES - 1, &pool), -EINVAL);
	assert_null(pool);
	bufpool_destroy(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(buffers_have_the_size_of_their_class_and_do_not_overlap),
		loop_test(at_the_cap_who_asks_waits_in_order),
		loop_test(a_large_wish_is_not_starved_by_small_ones),
		loop_test(cancelling_the_first_lets_the_next_have_its_buffer),
		loop_test(free_regions_go_back_to_the_system),
		loop_test(another_class_takes_over_free_regions_at_the_cap),
		loop_test(every_region_is_registered_with_every_device),
		loop_test(a_device_that_cannot_take_all_regions_takes_none),
		loop_test(a_region_no_device_takes_is_not_used_and_its_waiter_waits),
		loop_test(memory_a_device_does_not_release_is_neither_used_nor_unmapped),
		loop_test(an_abandoned_buffer_is_neither_used_nor_unmapped),
		loop_test(a_ninth_device_is_refused),
		loop_test(a_cap_below_one_region_is_refused),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
