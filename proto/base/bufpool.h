/* SPDX-License-Identifier: MIT */
/*
 * The data buffers of one loop. Memory comes in regions of 2 MiB that grow with load up to a cap;
 * each region is registered once with the loop and once with each RDMA device in use, and is cut
 * into buffers of one size class (4 KiB, 32 KiB, 128 KiB, 1 MiB). A buffer is one contiguous
 * range in one region. At the cap who asks waits in a FIFO: nothing fails for want of memory.
 *
 * Buffers are asked for by shelf: one for each class, and the reserve, which is a part of the
 * smallest class that requests for data leave alone. Room for one region of each class is never
 * given to another one, so that no shelf can be emptied by those who use the others, and each has a
 * FIFO of its own, so that none waits behind another.
 */
#ifndef HAUL_BASE_BUFPOOL_H
#define HAUL_BASE_BUFPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "proto/base/loop.h"

#define BUFPOOL_REGION_BYTES  (2u << 20)
#define BUFPOOL_MAX_BYTES     (1u << 20) /* the largest buffer: MDTS */
#define BUFPOOL_SMALL_BYTES   (4u << 10) /* the smallest class, and the reserve's buffers */
#define BUFPOOL_NR_RESERVED   256	 /* 1 MiB: half a region */
#define BUFPOOL_MIN_BYTES     (4 * BUFPOOL_REGION_BYTES) /* a region for each class */
#define BUFPOOL_NR_REGISTRARS 8				 /* RDMA devices one loop may use at once */

enum bufpool_shelf {
	BUFPOOL_SHELF_4K,
	BUFPOOL_SHELF_32K,
	BUFPOOL_SHELF_128K,
	BUFPOOL_SHELF_1M,
	BUFPOOL_SHELF_RESERVE,
};
#define BUFPOOL_NR_SHELVES (BUFPOOL_SHELF_RESERVE + 1)

struct bufpool;

struct bufpool_region {
	void *base;			   /* BUFPOOL_REGION_BYTES, aligned to as much */
	int loop_buffer;		   /* LOOP_BUFFER_NONE when not registered with the loop */
	void *keys[BUFPOOL_NR_REGISTRARS]; /* what each registrar's ADD returned */
	/* the pool's from here on */
	struct list node;
	struct list free; /* of struct buf */
	struct buf *bufs;
	uint32_t size_class;
	uint32_t nr_bufs;
	uint32_t nr_free;
	uint32_t nr_touched;	/* bufs below this were handed out at least once */
	bool leaked;		/* a registrar's DEL failed */
	uint64_t idle_since_ns; /* when it became wholly free */
};

struct buf {
	void *bytes;
	uint32_t size; /* of the class: at least what was asked for */
	bool reserved; /* of the reserve */
	struct bufpool_region *region;
	struct list node; /* pool's while free */
};

/*
 * One per RDMA device: registers each region with it. ADD's key is not NULL; when it fails the
 * region is not used. When DEL fails the device may still write there: the region is not used
 * again, nor its memory given back to the system.
 */
struct bufpool_registrar {
	int (*add)(
		struct bufpool_registrar *registrar, struct bufpool_region *region, void **ret_key);
	int (*del)(struct bufpool_registrar *registrar, struct bufpool_region *region, void *key);
	uint32_t index; /* set by bufpool_registrar_add: which of region->keys is its */
};

/* Embedded in who waits: READY is called from bufpool_put's turn (never inside it) with the buffer.
 */
struct bufpool_wait {
	void (*ready)(struct bufpool_wait *wait, struct buf *buf);
	enum bufpool_shelf shelf;
	struct list node;
};

/* CAP_BYTES: at least BUFPOOL_MIN_BYTES. */
int bufpool_create(struct loop *loop, uint64_t cap_bytes, struct bufpool **ret) must_check;
/* All buffers are back and nobody waits. On the loop's thread, or after it has ended. */
void bufpool_destroy(struct bufpool *pool);

/* Registers all regions with a new device, too. On failure nothing stays registered. */
int bufpool_registrar_add(struct bufpool *pool, struct bufpool_registrar *registrar) must_check;
void bufpool_registrar_del(struct bufpool *pool, struct bufpool_registrar *registrar);

/* The shelf for SIZE <= BUFPOOL_MAX_BYTES; never the reserve. */
enum bufpool_shelf bufpool_shelf_of(uint32_t size);
static inline uint32_t bufpool_shelf_bytes(enum bufpool_shelf shelf)
{
	static const uint32_t bytes[BUFPOOL_NR_SHELVES] = {
		BUFPOOL_SMALL_BYTES, 32u << 10, 128u << 10, BUFPOOL_MAX_BYTES, BUFPOOL_SMALL_BYTES};

	return bytes[shelf];
}

/* Whether BYTES are neither in use nor asked for by those who wait, and SHELF could give
 * SHELF_BYTES of them: by itself, or with regions that are or can be free. Of the reserve only the
 * latter. */
bool bufpool_has(
	const struct bufpool *pool, enum bufpool_shelf shelf, uint64_t bytes, uint64_t shelf_bytes);

/* NULL when others wait there already or the shelf is empty: then bufpool_wait(). Contents are
 * those of the last user: clear what you do not fill. */
struct buf *bufpool_get(struct bufpool *pool, enum bufpool_shelf shelf);
void bufpool_wait(struct bufpool *pool, struct bufpool_wait *wait);
void bufpool_wait_cancel(struct bufpool *pool, struct bufpool_wait *wait);
void bufpool_put(struct bufpool *pool, struct buf *buf);
/* Instead of bufpool_put(): a device may still read or write BUF for ever. Its whole region is
 * given to nobody again, nor back to the system; others that have buffers of it keep and put them.
 */
void bufpool_abandon(struct bufpool *pool, struct buf *buf);

/* Gives regions that are wholly free back to the system, down to KEEP_BYTES. The pool does so by
 * itself with those that were not used for ten seconds; while there are registrars it keeps one. */
void bufpool_shrink(struct bufpool *pool, uint64_t keep_bytes);

struct bufpool_stats {
	uint64_t bytes_mapped;
	uint64_t bytes_used;
	uint64_t nr_used;
	uint64_t nr_waiting;
	uint64_t nr_waits;     /* ever */
	uint64_t bytes_left;   /* that may be used yet, what others wait for not counted */
	uint64_t reserve_used; /* bytes of the reserve, with what is waited for */
};
void bufpool_stats_get(const struct bufpool *pool, struct bufpool_stats *ret);

#endif
