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

#define BUFPOOL_NR_CLASSES 4
static const uint32_t bufpool_class_bytes[BUFPOOL_NR_CLASSES] = {
	4u << 10, 32u << 10, 128u << 10, BUFPOOL_MAX_BYTES};

struct bufpool {
	struct loop *loop;
	uint64_t cap_bytes;
	/* Regions by class. PARTIAL: some buffer is free; wholly free ones at its end. */
	struct list partial[BUFPOOL_NR_CLASSES];
	struct list full[BUFPOOL_NR_CLASSES];
	struct list
		leaked; /* regions that a registrar did not release, or with abandoned buffers */
	struct bufpool_registrar *registrars[BUFPOOL_NR_REGISTRARS];
	struct list waiters;
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

static uint32_t bufpool_nr_bufs(uint32_t size_class)
{
	return BUFPOOL_REGION_BYTES / bufpool_class_bytes[size_class];
}

static bool bufpool_region_is_idle(const struct bufpool_region *region)
{
	return region->nr_free == bufpool_nr_bufs(region->size_class);
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
		list_push_back(&pool->leaked, &region->node);
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

/* An idle region of any class, taken out of its list. */
static struct bufpool_region *bufpool_take_idle(struct bufpool *pool)
{
	struct bufpool_region *region;

	for (unsigned i = 0; i < BUFPOOL_NR_CLASSES; i++) {
		if (list_empty(&pool->partial[i]))
			continue;
		region = container_of(pool->partial[i].prev, struct bufpool_region, node);
		if (!bufpool_region_is_idle(region))
			continue;
		list_remove(&region->node);
		return region;
	}
	return NULL;
}

/* One more region with free buffers of SIZE_CLASS: a new one, at the cap another class's. */
static struct bufpool_region *bufpool_grow(struct bufpool *pool, uint32_t size_class)
{
	struct bufpool_region *region = NULL;
	uint64_t now_ns = loop_now_ns(pool->loop);

	if (pool->stats.bytes_mapped + BUFPOOL_REGION_BYTES <= pool->cap_bytes &&
		now_ns >= pool->grow_not_before_ns) {
		region = bufpool_region_new(pool, size_class);
		if (!region)
			pool->grow_not_before_ns = now_ns + BUFPOOL_PAUSE_NS;
	}
	if (!region) {
		region = bufpool_take_idle(pool);
		if (region && bufpool_region_cut(region, size_class)) {
			list_push_back(&pool->partial[region->size_class], &region->node);
			return NULL;
		}
	}
	if (region)
		list_push_front(&pool->partial[size_class], &region->node);
	return region;
}

/* --- buffers -------------------------------------------------------------------------------- */

static uint32_t bufpool_class_of(uint32_t size)
{
	uint32_t size_class = 0;

	assert(size <= BUFPOOL_MAX_BYTES);
	while (bufpool_class_bytes[size_class] < size)
		size_class++;
	return size_class;
}

static struct buf *bufpool_region_take(struct bufpool_region *region)
{
	struct list *node = list_pop_front(&region->free);
	struct buf *buf;

	region->nr_free--;
	if (node)
		return container_of(node, struct buf, node);
	buf = &region->bufs[region->nr_touched];
	buf->size = bufpool_class_bytes[region->size_class];
	buf->bytes = (char *)region->base + (size_t)region->nr_touched * buf->size;
	buf->region = region;
	list_init(&buf->node);
	region->nr_touched++;
	return buf;
}

/* A region with a free buffer of at least SIZE_CLASS; larger than need be only at the cap. */
static struct bufpool_region *bufpool_region_for(struct bufpool *pool, uint32_t size_class)
{
	struct bufpool_region *region = NULL;

	if (list_empty(&pool->partial[size_class]))
		region = bufpool_grow(pool, size_class);
	for (; !region && size_class < BUFPOOL_NR_CLASSES; size_class++)
		if (!list_empty(&pool->partial[size_class]))
			region = container_of(
				pool->partial[size_class].next, struct bufpool_region, node);
	return region;
}

static struct buf *bufpool_take(struct bufpool *pool, uint32_t size)
{
	struct bufpool_region *region = bufpool_region_for(pool, bufpool_class_of(size));
	struct buf *buf;

	if (!region)
		return NULL;
	buf = bufpool_region_take(region);
	if (!region->nr_free) {
		list_remove(&region->node);
		list_push_back(&pool->full[region->size_class], &region->node);
	}
	bufpool_unpoison(buf->bytes, buf->size);
	pool->stats.bytes_used += buf->size;
	pool->stats.nr_used++;
	return buf;
}

struct buf *bufpool_get(struct bufpool *pool, uint32_t size)
{
	if (!list_empty(&pool->waiters))
		return NULL;
	return bufpool_take(pool, size);
}

static void bufpool_region_became_idle(struct bufpool *pool, struct bufpool_region *region)
{
	uint64_t now_ns = loop_now_ns(pool->loop);

	region->idle_since_ns = now_ns;
	list_remove(&region->node);
	list_push_back(&pool->partial[region->size_class], &region->node);
	if (!loop_timer_is_set(&pool->timer))
		loop_timer_set(pool->loop, &pool->timer, now_ns + BUFPOOL_IDLE_NS);
}

void bufpool_put(struct bufpool *pool, struct buf *buf)
{
	struct bufpool_region *region = buf->region;

	bufpool_poison(buf->bytes, buf->size);
	pool->stats.bytes_used -= buf->size;
	pool->stats.nr_used--;
	list_push_front(&region->free, &buf->node);
	region->nr_free++;
	/* What a device may still write to is not used again. */
	if (region->leaked)
		return;
	if (region->nr_free == 1) {
		list_remove(&region->node);
		list_push_front(&pool->partial[region->size_class], &region->node);
	}
	if (bufpool_region_is_idle(region))
		bufpool_region_became_idle(pool, region);
	if (!list_empty(&pool->waiters))
		loop_flush_later(pool->loop, &pool->serve);
}

void bufpool_abandon(struct bufpool *pool, struct buf *buf)
{
	struct bufpool_region *region = buf->region;

	pool->stats.bytes_used -= buf->size;
	pool->stats.nr_used--;
	if (region->leaked)
		return;
	region->leaked = true;
	list_remove(&region->node);
	list_push_back(&pool->leaked, &region->node);
}

/* --- waiting -------------------------------------------------------------------------------- */

/* Strictly in order: a large wish is not overtaken for ever by small ones. */
static void bufpool_serve(struct loop_flush *flush)
{
	struct bufpool *pool = container_of(flush, struct bufpool, serve);
	uint64_t now_ns = loop_now_ns(pool->loop);
	struct bufpool_wait *wait;
	struct buf *buf;

	while (!list_empty(&pool->waiters)) {
		wait = container_of(pool->waiters.next, struct bufpool_wait, node);
		buf = bufpool_take(pool, wait->size);
		if (!buf)
			break;
		list_remove(&wait->node);
		pool->stats.nr_waiting--;
		wait->ready(wait, buf);
	}
	/* Buffers that come back serve them; where memory was short, time may help. */
	if (!list_empty(&pool->waiters) &&
		(!pool->stats.nr_used || now_ns < pool->grow_not_before_ns))
		loop_timer_set(pool->loop, &pool->timer, now_ns + BUFPOOL_PAUSE_NS);
}

void bufpool_wait(struct bufpool *pool, struct bufpool_wait *wait)
{
	list_init(&wait->node);
	list_push_back(&pool->waiters, &wait->node);
	pool->stats.nr_waiting++;
	pool->stats.nr_waits++;
	loop_flush_later(pool->loop, &pool->serve);
}

void bufpool_wait_cancel(struct bufpool *pool, struct bufpool_wait *wait)
{
	if (list_empty(&wait->node))
		return;
	list_remove(&wait->node);
	pool->stats.nr_waiting--;
	/* The next one may be content with less. */
	if (!list_empty(&pool->waiters))
		loop_flush_later(pool->loop, &pool->serve);
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
			list_remove(&region->node);
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

	if (!list_empty(&pool->waiters))
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
		if (!key || !registrar->del(registrar, region, key))
			continue;
		region->leaked = true;
		list_remove(&region->node);
		list_push_back(&pool->leaked, &region->node);
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

	if (cap_bytes < BUFPOOL_REGION_BYTES)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	err = loop_timer_reserve(loop);
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
	list_init(&pool->leaked);
	list_init(&pool->waiters);
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
	assert(!pool->stats.nr_used && list_empty(&pool->waiters));
	bufpool_shrink(pool, 0);
	while ((node = list_pop_front(&pool->leaked))) {
		struct bufpool_region *region = container_of(node, struct bufpool_region, node);

		/* Not its memory. */
		free(region->bufs);
		free(region);
	}
	loop_flush_cancel(&pool->serve);
	loop_timer_cancel(pool->loop, &pool->timer);
	loop_timer_unreserve(pool->loop);
	free(pool);
}

void bufpool_stats_get(const struct bufpool *pool, struct bufpool_stats *ret)
{
	*ret = pool->stats;
}
