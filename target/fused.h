/* SPDX-License-Identifier: MIT */
/*
 * Compare and Write, the fused operation (NVMe base 2.0 3.4.2, NVM command set 1.0 2.1.3): two
 * commands next to each other in a queue, done as one step that nothing comes between.
 *
 * The first waits (HELD, or wherever its data is) for the second. One buffer holds all that both
 * need, so that neither holds one while it waits for another; it belongs to the first, and to the
 * second when that one is freed later. When both have their data, both are in EXEC: the range is
 * locked (target/range_lock.h), read, compared, written and unlocked. Then both are answered.
 */
#ifndef HAUL_TARGET_FUSED_H
#define HAUL_TARGET_FUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "target/range_lock.h"
#include "target/request.h"

struct cmd;
struct conn;

/* The largest pair, and what ACWU and NACWU say; a buffer of the pool has room for three times as
 * much. */
#define FUSED_MAX_BYTES (128u << 10)

/* The row of a command that says it is part of a pair; another command's when it cannot be. */
const struct cmd *fused_find(const struct request *request);

/* REQUEST has arrived: the second of a pair, the first, or what should have been the second. STATUS
 * is what its checks say; returned is what it ends with, 0 if it goes on. */
uint16_t fused_received(struct request *request, uint16_t status);

/* The second of a pair: gives it its part of the first's buffer. False: that one waits, too. */
bool fused_take_buffer(struct request *second);
/* The first of a pair, in CORE, has BUF: the second may wait for it. */
void fused_buffer_ready(struct request *first, struct buf *buf);

/* A request of a pair is about to be answered: the other one fails if it still waits. */
void fused_ended(struct request *request);
/* One of a pair is about to be freed: the other one keeps the buffer, if it has a part in it. */
void fused_part(struct request *request);
/* Both are in EXEC, but the range is not theirs yet: REQUEST ends as aborted and the other one with
 * it, then DONE is called. False: they have begun, or will end so already; or it is none of a pair.
 */
struct fused_abort {
	struct range_cancel cancel;
	bool over;
	void (*done)(struct fused_abort *abort);
};
bool fused_abort(struct request *request, struct fused_abort *abort);

/* The second has not come in time. */
void fused_expired(struct conn *conn);

#endif
