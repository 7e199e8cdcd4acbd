/* SPDX-License-Identifier: MIT */
/*
 * Regions, their buffers, and who waits for one: see bufpool.h. A region stays in its size class
 * while it is free, so that a load that comes and goes costs nothing; it is given to another class
 * when the cap demands it, and back to the system after some idle time.
 */
#include "proto/base/bufpool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/base/log.h"

/* A region free for this long is given back to the system. */
#define BUFPOOL_IDLE_NS	 10000000000ull
/* No new attempt to get memory for this long after one failed. */
#define BUFPOOL_PAUSE_NS 100000000ull

/* Shelves but the reserve. */
#define BUFPOOL_NR_CLASSES 4

struct bufpool {
	struct loop *loop;
	uint64_t cap_bytes;
	/* Regions by class. PARTIAL: some buffer is free; wholly free ones at its end. */
	struct list partial[BUFPOOL_NR_CLASSES];
	struct list full[BUFPOOL_NR_CLASSES];
	struct list
		leaked; /* regions that a registrar did not release, or with abandoned buffers */
	/* What is in PARTIAL and FULL, by class. */
	uint32_t nr_regions[BUFPOOL_NR_CLASSES];
	uint32_t nr_idle[BUFPOOL_NR_CLASSES];
	uint32_t nr_free[BUFPOOL_NR_CLASSES]; /* buffers */
	uint32_t nr_leaked;
	uint32_t nr_reserve_used;
	/* The cap, or what it has turned out to be when memory was short; in bytes without what has
	 * leaked. */
	uint32_t room_regions;
	uint64_t room_bytes;
	struct bufpool_registrar *registrars[BUFPOOL_NR_REGISTRARS];
	struct list waiters[BUFPOOL_NR_SHELVES];
	uint32_t nr_waiting[BUFPOOL_NR_SHELVES];
	uint64_t bytes_waiting;
	struct loop_flush serve; /* WAITERS may get a buffer */
	struct loop_timer timer; /* idle regions; waiters while memory is short */
	uint64_t grow_not_before_ns;
	struct log_limit log;
	struct bufpool_stats stats;
};

/* --- use of free memory shows --------------------------------------------------------------- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define bufpool_poison_fresh(bytes, size) ASAN_POISON_MEMORY_REGION(bytes, size)
#define bufpool_poison(bytes, size)	  ASAN_POISON_MEMORY_REGION(bytes, size)
#define bufpool_unpoison(bytes, size)	  ASAN_UNPOISON_MEMORY_REGION(bytes, size)
#elif !defined(__OPTIMIZE__)
#define bufpool_poison_fresh(bytes, size) ((void)(bytes), (void)(size)) /* stays untouched */
#define bufpool_poison(bytes, size)	  memset(bytes, 0xdb, size)
#define bufpool_unpoison(bytes, size)	  ((void)(bytes), (void)(size))
#else
#define bufpool_poison_fresh(bytes, size) ((void)(bytes), (void)(size))
#define bufpool_poison(bytes, size)	  ((void)(bytes), (void)(size))
#define bufpool_unpoison(bytes, size)	  ((void)(bytes), (void)(size))
#endif

/* --- regions -------------------------------------------------------------------------------- */

static uint32_t bufpool_class_bytes(uint32_t size_class)
{
	return bufpool_shelf_bytes((enum bufpool_shelf)size_class);
}

static uint32_t bufpool_nr_bufs(uint32_t size_class)
{
	return BUFPOOL_REGION_BYTES / bufpool_class_bytes(size_class);
}

static bool bufpool_region_is_idle(const struct bufpool_region *region)
{
	return region->nr_free == region->nr_bufs;
}

static void bufpool_set_room(struct bufpool *pool, uint64_t bytes)
{
	pool->room_regions = (uint32_t)(bytes / BUFPOOL_REGION_BYTES);
	pool->room_bytes = (pool->room_regions - min_of(pool->nr_leaked, pool->room_regions)) *
			   (uint64_t)BUFPOOL_REGION_BYTES;
}

/* Into the list of its class, and into the counts. */
static void bufpool_region_enlist(struct bufpool *pool, struct bufpool_region *region, bool back)
{
	uint32_t size_class = region->size_class;
	struct list *list = &pool->partial[size_class];

	if (back)
		list_push_back(list, &region->node);
	else
		list_push_front(list, &region->node);
	pool->nr_regions[size_class]++;
	pool->nr_free[size_class] += region->nr_free;
	pool->nr_idle[size_class] += bufpool_region_is_idle(region);
}

static void bufpool_region_delist(struct bufpool *pool, struct bufpool_region *region)
{
	uint32_t size_class = region->size_class;

	list_remove(&region->node);
	pool->nr_regions[size_class]--;
	pool->nr_free[size_class] -= region->nr_free;
	pool->nr_idle[size_class] -= bufpool_region_is_idle(region);
}

static void bufpool_count_leaked(struct bufpool *pool, struct bufpool_region *region)
{
	list_push_back(&pool->leaked, &region->node);
	pool->nr_leaked++;
	bufpool_set_room(pool, (uint64_t)pool->room_regions * BUFPOOL_REGION_BYTES);
}

/* Nobody gets any of it again. */
static void bufpool_region_leak(struct bufpool *pool, struct bufpool_region *region)
{
	region->leaked = true;
	bufpool_region_delist(pool, region);
	bufpool_count_leaked(pool, region);
}

/* Twice the size, of which what lies outside the aligned half goes back at once. */
static void *bufpool_map(void)
{
	const size_t bytes = BUFPOOL_REGION_BYTES;
	char *mapped;
	size_t before;

	mapped = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)mapped & (bytes - 1);
	if (before)
		munmap(mapped, before);
	munmap(mapped + before + bytes, bytes - before);
	/* All of it is touched as it is registered: by one fault instead of 512, if the system has
	 * a huge page. */
	madvise(mapped + before, bytes, MADV_HUGEPAGE);
	return mapped + before;
}

/* Makes an idle region one of SIZE_CLASS; -ENOMEM leaves it as it was. */
static int bufpool_region_cut(struct bufpool_region *region, uint32_t size_class)
{
	uint32_t nr = bufpool_nr_bufs(size_class);
	struct buf *bufs;

	/* Not cleared: each is written when it is handed out for the first time. */
	bufs = malloc(nr * sizeof(*bufs));
	if (!bufs)
		return -ENOMEM;
	free(region->bufs);
	region->bufs = bufs;
	list_init(&region->free);
	region->size_class = size_class;
	region->nr_bufs = nr;
	region->nr_free = nr;
	region->nr_touched = 0;
	return 0;
}

/* False: a device may still write there. */
static bool bufpool_unregister(struct bufpool *pool, struct bufpool_region *region)
{
	struct bufpool_registrar *registrar;

	for (unsigned i = 0; i < BUFPOOL_NR_REGISTRARS; i++) {
		registrar = pool->registrars[i];
		if (!registrar || !region->keys[i])
			continue;
		if (registrar->del(registrar, region, region->keys[i]))
			region->leaked = true;
		region->keys[i] = NULL;
	}
	return !region->leaked;
}

static int bufpool_register(struct bufpool *pool, struct bufpool_region *region)
{
	struct bufpool_registrar *registrar;
	int err;

	for (unsigned i = 0; i < BUFPOOL_NR_REGISTRARS; i++) {
		registrar = pool->registrars[i];
		if (!registrar)
			continue;
		err = registrar->add(registrar, region, &region->keys[i]);
		if (!err)
			continue;
		region->keys[i] = NULL;
		log_line_limited(&pool->log, loop_now_ns(pool->loop), LOG_LEVEL_WARNING,
			"a buffer region cannot be registered with an RDMA device (%s): the pool "
			"stays at %llu MiB; is locked memory (RLIMIT_MEMLOCK) short?",
			strerror(-err), (unsigned long long)(pool->stats.bytes_mapped >> 20));
		return err;
	}
	return 0;
}

/* The region is in no list. What a device may still write to is kept for ever. */
static void bufpool_region_free(struct bufpool *pool, struct bufpool_region *region)
{
	bool released = bufpool_unregister(pool, region);

	loop_buffer_unregister(pool->loop, region->loop_buffer);
	region->loop_buffer = LOOP_BUFFER_NONE;
	if (!released) {
		bufpool_count_leaked(pool, region);
		return;
	}
	bufpool_unpoison(region->base, BUFPOOL_REGION_BYTES);
	munmap(region->base, BUFPOOL_REGION_BYTES);
	pool->stats.bytes_mapped -= BUFPOOL_REGION_BYTES;
	free(region->bufs);
	free(region);
}

static struct bufpool_region *bufpool_region_new(struct bufpool *pool, uint32_t size_class)
{
	struct bufpool_region *region;

	region = calloc(1, sizeof(*region));
	if (!region)
		return NULL;
	list_init(&region->node);
	region->loop_buffer = LOOP_BUFFER_NONE;
	if (bufpool_region_cut(region, size_class))
		goto free_region;
	region->base = bufpool_map();
	if (!region->base)
		goto free_bufs;
	pool->stats.bytes_mapped += BUFPOOL_REGION_BYTES;
	if (bufpool_register(pool, region)) {
		bufpool_region_free(pool, region);
		return NULL;
	}
	region->loop_buffer = loop_buffer_register(pool->loop, region->base, BUFPOOL_REGION_BYTES);
	bufpool_poison_fresh(region->base, BUFPOOL_REGION_BYTES);
	return region;

free_bufs:
	free(region->bufs);
free_region:
	free(region);
	return NULL;
}

/* Whether CLASS may give a free region to another one. The last one it keeps, unless memory is
 * short: then others may have no room at all. */
static bool bufpool_can_spare(const struct bufpool *pool, uint32_t size_class)
{
	return pool->nr_idle[size_class] &&
	       (pool->nr_regions[size_class] > 1 ||
		       loop_now_ns(pool->loop) < pool->grow_not_before_ns);
}

/* An idle region of a class other than SIZE_CLASS, taken out of its list. */
static struct bufpool_region *bufpool_take_idle(struct bufpool *pool, uint32_t size_class)
{
	struct bufpool_region *region;

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++) {
		if (i == size_class || !bufpool_can_spare(pool, i))
			continue;
		region = container_of(pool->partial[i].prev, struct bufpool_region, node);
		assert(bufpool_region_is_idle(region));
		bufpool_region_delist(pool, region);
		return region;
	}
	return NULL;
}

/* Regions that SIZE_CLASS may have mapped: what the others have a right to is theirs. */
static uint32_t bufpool_room(const struct bufpool *pool, uint32_t size_class, uint32_t nr_regions)
{
	uint32_t taken = (uint32_t)(pool->stats.bytes_mapped / BUFPOOL_REGION_BYTES);

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++)
		taken += i != size_class && !pool->nr_regions[i];
	return taken < nr_regions ? nr_regions - taken : 0;
}

static struct bufpool_region *bufpool_map_region(struct bufpool *pool, uint32_t size_class)
{
	uint32_t cap_regions = (uint32_t)(pool->cap_bytes / BUFPOOL_REGION_BYTES);
	uint64_t now_ns = loop_now_ns(pool->loop);
	struct bufpool_region *region;

	if (!bufpool_room(pool, size_class, cap_regions) || now_ns < pool->grow_not_before_ns)
		return NULL;
	region = bufpool_region_new(pool, size_class);
	bufpool_set_room(pool, region ? pool->cap_bytes : pool->stats.bytes_mapped);
	if (!region)
		pool->grow_not_before_ns = now_ns + BUFPOOL_PAUSE_NS;
	return region;
}

/* One more region with free buffers of SIZE_CLASS: a new one, at the cap another class's. */
static struct bufpool_region *bufpool_grow(struct bufpool *pool, uint32_t size_class)
{
	struct bufpool_region *region = bufpool_map_region(pool, size_class);

	if (!region) {
		region = bufpool_take_idle(pool, size_class);
		if (region && bufpool_region_cut(region, size_class)) {
			bufpool_region_enlist(pool, region, true);
			return NULL;
		}
	}
	if (region)
		bufpool_region_enlist(pool, region, false);
	return region;
}

/* --- shelves -------------------------------------------------------------------------------- */

enum bufpool_shelf bufpool_shelf_of(uint32_t size)
{
	uint32_t size_class = 0;

	assert(size <= BUFPOOL_MAX_BYTES);
	while (bufpool_class_bytes(size_class) < size)
		size_class++;
	return (enum bufpool_shelf)size_class;
}

static uint32_t bufpool_class_of(enum bufpool_shelf shelf)
{
	return shelf == BUFPOOL_SHELF_RESERVE ? BUFPOOL_SHELF_4K : (uint32_t)shelf;
}

/* Small buffers that only the reserve may give. */
static uint32_t bufpool_kept(const struct bufpool *pool, enum bufpool_shelf shelf)
{
	return shelf == BUFPOOL_SHELF_4K ? BUFPOOL_NR_RESERVED - pool->nr_reserve_used : 0;
}

/* Regions that SIZE_CLASS could have more. */
static uint32_t bufpool_growth(const struct bufpool *pool, uint32_t size_class)
{
	uint32_t nr = bufpool_room(pool, size_class, pool->room_regions);

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++)
		if (i != size_class && pool->nr_regions[i])
			nr += min_of(pool->nr_idle[i], pool->nr_regions[i] - 1);
	return nr;
}

static bool bufpool_reserve_has(const struct bufpool *pool, uint64_t bytes)
{
	uint64_t taken = pool->nr_reserve_used + pool->nr_waiting[BUFPOOL_SHELF_RESERVE];

	return taken * BUFPOOL_SMALL_BYTES + bytes <= BUFPOOL_NR_RESERVED * BUFPOOL_SMALL_BYTES;
}

bool bufpool_has(
	const struct bufpool *pool, enum bufpool_shelf shelf, uint64_t bytes, uint64_t shelf_bytes)
{
	uint64_t size = bufpool_shelf_bytes(shelf);
	uint64_t nr;

	if (shelf == BUFPOOL_SHELF_RESERVE)
		return bufpool_reserve_has(pool, shelf_bytes);
	if (pool->stats.bytes_used + pool->bytes_waiting + bytes > pool->room_bytes)
		return false;
	shelf_bytes += (bufpool_kept(pool, shelf) + pool->nr_waiting[shelf]) * size;
	nr = pool->nr_free[shelf];
	/* Most often it is there already. */
	if (likely(shelf_bytes <= nr * size))
		return true;
	nr += (uint64_t)bufpool_growth(pool, shelf) * bufpool_nr_bufs(shelf);
	return shelf_bytes <= nr * size;
}

/* --- buffers -------------------------------------------------------------------------------- */

static struct buf *bufpool_region_take(struct bufpool_region *region)
{
	struct list *node = list_pop_front(&region->free);
	struct buf *buf;

	region->nr_free--;
	if (node)
		return container_of(node, struct buf, node);
	buf = &region->bufs[region->nr_touched];
	buf->size = bufpool_class_bytes(region->size_class);
	buf->bytes = (char *)region->base + (size_t)region->nr_touched * buf->size;
	buf->region = region;
	list_init(&buf->node);
	region->nr_touched++;
	return buf;
}

/* A region with a free buffer for SHELF. */
static struct bufpool_region *bufpool_region_for(struct bufpool *pool, enum bufpool_shelf shelf)
{
	uint32_t size_class = bufpool_class_of(shelf);

	if (shelf == BUFPOOL_SHELF_RESERVE && pool->nr_reserve_used == BUFPOOL_NR_RESERVED)
		return NULL;
	if (likely(pool->nr_free[size_class] > bufpool_kept(pool, shelf)))
		return container_of(pool->partial[size_class].next, struct bufpool_region, node);
	return bufpool_grow(pool, size_class);
}

static struct buf *bufpool_take(struct bufpool *pool, enum bufpool_shelf shelf)
{
	struct bufpool_region *region = bufpool_region_for(pool, shelf);
	struct buf *buf;

	if (!region)
		return NULL;
	pool->nr_idle[region->size_class] -= bufpool_region_is_idle(region);
	pool->nr_free[region->size_class]--;
	buf = bufpool_region_take(region);
	buf->reserved = shelf == BUFPOOL_SHELF_RESERVE;
	pool->nr_reserve_used += buf->reserved;
	if (!region->nr_free) {
		list_remove(&region->node);
		list_push_back(&pool->full[region->size_class], &region->node);
	}
	bufpool_unpoison(buf->bytes, buf->size);
	pool->stats.bytes_used += buf->size;
	pool->stats.nr_used++;
	return buf;
}

struct buf *bufpool_get(struct bufpool *pool, enum bufpool_shelf shelf)
{
	if (!list_empty(&pool->waiters[shelf]))
		return NULL;
	return bufpool_take(pool, shelf);
}

static void bufpool_region_became_idle(struct bufpool *pool, struct bufpool_region *region)
{
	uint64_t now_ns = loop_now_ns(pool->loop);

	region->idle_since_ns = now_ns;
	pool->nr_idle[region->size_class]++;
	list_remove(&region->node);
	list_push_back(&pool->partial[region->size_class], &region->node);
	if (!loop_timer_is_set(&pool->timer))
		loop_timer_set(pool->loop, &pool->timer, now_ns + BUFPOOL_IDLE_NS);
}

static void bufpool_uncount(struct bufpool *pool, const struct buf *buf)
{
	pool->stats.bytes_used -= buf->size;
	pool->stats.nr_used--;
	pool->nr_reserve_used -= buf->reserved;
}

void bufpool_put(struct bufpool *pool, struct buf *buf)
{
	struct bufpool_region *region = buf->region;

	bufpool_poison(buf->bytes, buf->size);
	bufpool_uncount(pool, buf);
	list_push_front(&region->free, &buf->node);
	region->nr_free++;
	/* What a device may still write to is not used again. */
	if (region->leaked)
		return;
	pool->nr_free[region->size_class]++;
	if (region->nr_free == 1) {
		list_remove(&region->node);
		list_push_front(&pool->partial[region->size_class], &region->node);
	}
	if (bufpool_region_is_idle(region))
		bufpool_region_became_idle(pool, region);
	if (pool->stats.nr_waiting)
		loop_flush_later(pool->loop, &pool->serve);
}

void bufpool_abandon(struct bufpool *pool, struct buf *buf)
{
	struct bufpool_region *region = buf->region;

	bufpool_uncount(pool, buf);
	if (!region->leaked)
		bufpool_region_leak(pool, region);
}

/* --- waiting -------------------------------------------------------------------------------- */

static void bufpool_unwait(struct bufpool *pool, struct bufpool_wait *wait)
{
	list_remove(&wait->node);
	pool->stats.nr_waiting--;
	pool->nr_waiting[wait->shelf]--;
	pool->bytes_waiting -= bufpool_shelf_bytes(wait->shelf);
}

/* In order; a shelf that is empty holds up no other one. */
static void bufpool_serve_shelf(struct bufpool *pool, enum bufpool_shelf shelf)
{
	struct list *waiters = &pool->waiters[shelf];
	struct bufpool_wait *wait;
	struct buf *buf;

	while (!list_empty(waiters)) {
		buf = bufpool_take(pool, shelf);
		if (!buf)
			return;
		wait = container_of(waiters->next, struct bufpool_wait, node);
		bufpool_unwait(pool, wait);
		wait->ready(wait, buf);
	}
}

static void bufpool_serve(struct loop_flush *flush)
{
	struct bufpool *pool = container_of(flush, struct bufpool, serve);
	uint64_t now_ns = loop_now_ns(pool->loop);

	/* The largest first: a region that is free could still be of any class. */
	for (unsigned shelf = BUFPOOL_NR_SHELVES; shelf--;)
		bufpool_serve_shelf(pool, shelf);
	/* Buffers that come back serve them; where memory was short, time may help. */
	if (pool->stats.nr_waiting && (!pool->stats.nr_used || now_ns < pool->grow_not_before_ns))
		loop_timer_set(pool->loop, &pool->timer, now_ns + BUFPOOL_PAUSE_NS);
}

void bufpool_wait(struct bufpool *pool, struct bufpool_wait *wait)
{
	list_init(&wait->node);
	list_push_back(&pool->waiters[wait->shelf], &wait->node);
	pool->nr_waiting[wait->shelf]++;
	pool->bytes_waiting += bufpool_shelf_bytes(wait->shelf);
	pool->stats.nr_waiting++;
	pool->stats.nr_waits++;
	loop_flush_later(pool->loop, &pool->serve);
}

void bufpool_wait_cancel(struct bufpool *pool, struct bufpool_wait *wait)
{
	if (!list_empty(&wait->node))
		bufpool_unwait(pool, wait);
}

/* --- shrinking ------------------------------------------------------------------------------ */

/* Regions idle since before SINCE_NS. */
static void bufpool_release_idle(struct bufpool *pool, uint64_t keep_bytes, uint64_t since_ns)
{
	struct bufpool_region *region;
	struct bufpool_region *after;

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++) {
		list_for_each_entry_safe (region, after, &pool->partial[i], node) {
			if (pool->stats.bytes_mapped < keep_bytes + BUFPOOL_REGION_BYTES)
				return;
			if (!bufpool_region_is_idle(region) || region->idle_since_ns > since_ns)
				continue;
			bufpool_region_delist(pool, region);
			bufpool_region_free(pool, region);
		}
	}
}

void bufpool_shrink(struct bufpool *pool, uint64_t keep_bytes)
{
	bufpool_release_idle(pool, keep_bytes, UINT64_MAX);
}

static uint64_t bufpool_oldest_idle_ns(const struct bufpool *pool)
{
	struct bufpool_region *region;
	uint64_t oldest_ns = UINT64_MAX;

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++)
		list_for_each_entry (region, &pool->partial[i], node)
			if (bufpool_region_is_idle(region))
				oldest_ns = min_of(oldest_ns, region->idle_since_ns);
	return oldest_ns;
}

/* What is registered with a device stays, for it may not be had again: locked memory is short. */
static uint64_t bufpool_kept_bytes(const struct bufpool *pool)
{
	for (unsigned i = 0; i < BUFPOOL_NR_REGISTRARS; i++)
		if (pool->registrars[i])
			return BUFPOOL_REGION_BYTES;
	return 0;
}

static void bufpool_timer_expired(struct loop_timer *timer)
{
	struct bufpool *pool = container_of(timer, struct bufpool, timer);
	uint64_t now_ns = loop_now_ns(pool->loop);
	uint64_t oldest_ns;

	if (pool->stats.nr_waiting)
		loop_flush_later(pool->loop, &pool->serve);
	bufpool_release_idle(pool, bufpool_kept_bytes(pool), now_ns - BUFPOOL_IDLE_NS);
	oldest_ns = bufpool_oldest_idle_ns(pool);
	if (oldest_ns != UINT64_MAX && pool->stats.bytes_mapped > bufpool_kept_bytes(pool))
		loop_timer_set(pool->loop, timer, max_of(oldest_ns + BUFPOOL_IDLE_NS, now_ns + 1));
}

/* --- registrars, creation ------------------------------------------------------------------- */

static int bufpool_registrar_add_list(struct bufpool_registrar *registrar, struct list *regions)
{
	struct bufpool_region *region;
	int err;

	list_for_each_entry (region, regions, node) {
		err = registrar->add(registrar, region, &region->keys[registrar->index]);
		if (!err)
			continue;
		region->keys[registrar->index] = NULL;
		return err;
	}
	return 0;
}

static void bufpool_registrar_del_list(
	struct bufpool *pool, struct bufpool_registrar *registrar, struct list *regions)
{
	struct bufpool_region *region;
	struct bufpool_region *after;
	void *key;

	list_for_each_entry_safe (region, after, regions, node) {
		key = region->keys[registrar->index];
		region->keys[registrar->index] = NULL;
		if (key && registrar->del(registrar, region, key) && !region->leaked)
			bufpool_region_leak(pool, region);
	}
}

int bufpool_registrar_add(struct bufpool *pool, struct bufpool_registrar *registrar)
{
	uint32_t index = 0;
	int err = 0;

	while (index < BUFPOOL_NR_REGISTRARS && pool->registrars[index])
		index++;
	if (index == BUFPOOL_NR_REGISTRARS)
		return -ENOSPC;
	registrar->index = index;
	pool->registrars[index] = registrar;
	for (unsigned i = 0; !err && i < BUFPOOL_NR_CLASSES; i++) {
		err = bufpool_registrar_add_list(registrar, &pool->partial[i]);
		if (!err)
			err = bufpool_registrar_add_list(registrar, &pool->full[i]);
	}
	if (err)
		bufpool_registrar_del(pool, registrar);
	return err;
}

void bufpool_registrar_del(struct bufpool *pool, struct bufpool_registrar *registrar)
{
	assert(pool->registrars[registrar->index] == registrar);
	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++) {
		bufpool_registrar_del_list(pool, registrar, &pool->partial[i]);
		bufpool_registrar_del_list(pool, registrar, &pool->full[i]);
	}
	bufpool_registrar_del_list(pool, registrar, &pool->leaked);
	pool->registrars[registrar->index] = NULL;
}

int bufpool_create(struct loop *loop, uint64_t cap_bytes, struct bufpool **ret)
{
	struct bufpool *pool;
	int err;

	if (cap_bytes < BUFPOOL_MIN_BYTES)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	err = loop_timers_reserve(loop, 1);
	if (err) {
		free(pool);
		return err;
	}
	pool->loop = loop;
	pool->cap_bytes = cap_bytes;
	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++) {
		list_init(&pool->partial[i]);
		list_init(&pool->full[i]);
	}
	for (unsigned i = 0; i < BUFPOOL_NR_SHELVES; i++)
		list_init(&pool->waiters[i]);
	list_init(&pool->leaked);
	bufpool_set_room(pool, cap_bytes);
	loop_flush_init(&pool->serve, bufpool_serve);
	loop_timer_init(&pool->timer, bufpool_timer_expired);
	*ret = pool;
	return 0;
}

void bufpool_destroy(struct bufpool *pool)
{
	struct list *node;

	if (!pool)
		return;
	assert(!pool->stats.nr_used && !pool->stats.nr_waiting);
	bufpool_shrink(pool, 0);
	while ((node = list_pop_front(&pool->leaked))) {
		struct bufpool_region *region = container_of(node, struct bufpool_region, node);

		/* Not its memory. */
		free(region->bufs);
		free(region);
	}
	loop_flush_cancel(&pool->serve);
	loop_timer_cancel(pool->loop, &pool->timer);
	loop_timers_unreserve(pool->loop, 1);
	free(pool);
}

void bufpool_stats_get(const struct bufpool *pool, struct bufpool_stats *ret)
{
	uint64_t taken = pool->stats.bytes_used + pool->bytes_waiting;

	*ret = pool->stats;
	ret->reserve_used =
		(uint64_t)(pool->nr_reserve_used + pool->nr_waiting[BUFPOOL_SHELF_RESERVE]) *
		BUFPOOL_SMALL_BYTES;
	ret->bytes_left = pool->room_bytes - min_of(taken, pool->room_bytes);
}
