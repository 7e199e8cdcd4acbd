/* SPDX-License-Identifier: MIT */
/*
 * Pairs of commands from the first's arrival to both answers.
 */
#include "target/fused.h"

#include <string.h>

#include "target/cmd_io.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/reservation_visit.h"
#include "target/target.h"

/* In the first's buffer, behind the data of all. */
struct fused {
	struct request *compare;
	struct request *write;
	uint16_t compare_status;
	uint16_t write_status;
	bool begun;		   /* the range has been locked */
	bool unlocked;		   /* ... and is not any more, or never will be */
	struct fused_abort *abort; /* NULL: none */
	struct range_lock lock;	   /* last, for it is as long as there are reactors */
};

/* The buffer: the Compare's data, the disk's blocks, the Write's data, struct fused. */
static char *fused_disk_bytes(const struct request *compare)
{
	return (char *)compare->bytes + compare->data_len;
}

static char *fused_write_bytes(const struct request *compare)
{
	return (char *)compare->bytes + 2 * compare->data_len;
}

static struct fused *fused_of(const struct request *compare)
{
	return (struct fused *)((char *)compare->bytes + 3 * compare->data_len);
}

static uint32_t fused_scratch_len(const struct request *compare)
{
	const struct target *target = compare->conn->reactor->target;

	return 2 * compare->data_len +
	       (uint32_t)(offsetof(struct fused, lock) + range_lock_size(target->nr_reactors));
}

/* --- two become a pair ----------------------------------------------------------------------- */

/* What waits for its other half ends with STATUS, at once or as soon as it can. */
static void fused_fail(struct request *request, uint16_t status)
{
	switch (request->state) {
	case REQUEST_HELD:
	case REQUEST_WAIT_BUF:
		request_unlist(request);
		request_complete(request, status);
		break;
	case REQUEST_PULL:
	case REQUEST_CORE:
		if (!request->fused_status)
			request->fused_status = status;
		break;
	case REQUEST_FREE:
	case REQUEST_EXEC:
	case REQUEST_REPLY:
		break;
	}
}

/* NVMe base 2.0 3.4.2: the same blocks of the same namespace. */
static bool fused_match(const struct request *first, const struct request *second)
{
	return first->ns == second->ns && first->io.offset == second->io.offset &&
	       first->io.extent == second->io.extent;
}

static uint16_t fused_second_received(
	struct request *first, struct request *second, uint16_t status)
{
	first->partner = second;
	second->partner = first;
	if (!status && !fused_match(first, second)) {
		status = CMD_INVALID_FIELD;
		fused_fail(first, status);
	}
	return status;
}

static void fused_first_received(struct request *first, uint16_t status)
{
	struct conn *conn = first->conn;
	struct loop *loop = conn->reactor->loop;

	conn->fused_open = true;
	if (status)
		return;
	conn->fused_first = first;
	/* It holds a buffer until then. */
	loop_timer_set(loop, &conn->handshake, loop_now_ns(loop) + conn->reactor->patience_ns);
}

uint16_t fused_received(struct request *request, uint16_t status)
{
	struct conn *conn = request->conn;
	struct request *first = conn->fused_first;
	bool failed = conn->fused_open && !first;
	uint8_t fuse = request->cmd.flags & NVME_CMD_FUSE_MASK;

	if (!conn->connected || conn->qid == 0)
		return status;
	conn->fused_first = NULL;
	conn->fused_open = false;
	loop_timer_cancel(conn->reactor->loop, &conn->handshake);
	if (fuse == NVME_CMD_FUSE_SECOND) {
		if (first)
			return fused_second_received(first, request, status);
		return failed ? NVME_SC_ABORT_FUSED_FAILED : NVME_SC_ABORT_FUSED_MISSING;
	}
	if (first)
		fused_fail(first, NVME_SC_ABORT_FUSED_MISSING);
	if (fuse == NVME_CMD_FUSE_FIRST)
		fused_first_received(request, status);
	return status;
}

void fused_expired(struct conn *conn)
{
	struct request *first = conn->fused_first;

	conn->fused_first = NULL;
	conn->fused_open = false;
	if (first)
		fused_fail(first, NVME_SC_ABORT_FUSED_MISSING);
}

/* --- their buffer ---------------------------------------------------------------------------- */

bool fused_take_buffer(struct request *second)
{
	struct request *first = second->partner;

	if (!first->buf)
		return false;
	second->buf = first->buf;
	second->bytes = fused_write_bytes(first);
	second->loop_buffer = first->loop_buffer;
	return true;
}

void fused_buffer_ready(struct request *first, struct buf *buf)
{
	struct request *second = first->partner;

	request_set_buffer(first, buf);
	if (second->state != REQUEST_WAIT_BUF)
		return;
	request_unlist(second);
	request_hand_to(second, REQUEST_CORE);
	(void)fused_take_buffer(second);
	request_bring(second);
}

void fused_part(struct request *request)
{
	struct request *other = request->partner;

	other->partner = NULL;
	request->partner = NULL;
	if (!request->buf || request->buf != other->buf)
		return;
	request->buf = NULL;
	if (request->claim.bytes)
		share_claim_move(&other->claim, &request->claim);
}

void fused_ended(struct request *request)
{
	struct conn *conn = request->conn;

	if (conn->fused_first == request) {
		conn->fused_first = NULL;
		loop_timer_cancel(conn->reactor->loop, &conn->handshake);
	}
	if (request->partner)
		fused_fail(request->partner, NVME_SC_ABORT_FUSED_FAILED);
}

/*
 * --- the operation ---------------------------------------------------------------------------
 * NVM command set 1.0 2.1.3.1: a Write that fails leaves the Compare's success as it is; a Compare
 * that fails takes the Write with it.
 */

/* Under the lock; request_submit() would wait for it. */
static void fused_submit(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags))
{
	struct backend_queue *queue = request->ns->queue;

	request->io.done.fn = done;
	queue->ops->submit(queue, &request->io);
}

static void fused_end(struct request *request, uint16_t status)
{
	if (request_executed(request))
		request_complete(request, status);
}

static void fused_try_end(const struct fused *fused)
{
	struct request *compare = fused->compare, *write = fused->write;
	uint16_t compare_status = fused->compare_status, write_status = fused->write_status;
	struct fused_abort *abort = fused->abort;

	if (!fused->unlocked || (abort && !abort->over))
		return;
	fused_end(compare, compare_status);
	fused_end(write, write_status);
	if (abort)
		abort->done(abort);
}

static void fused_unlocked(struct range_lock *lock)
{
	struct fused *fused = container_of(lock, struct fused, lock);

	fused->unlocked = true;
	fused_try_end(fused);
}

static void fused_finish(struct fused *fused, uint16_t compare_status, uint16_t write_status)
{
	fused->compare_status = compare_status;
	fused->write_status = write_status;
	range_lock_release(&fused->lock);
}

static void fused_written(struct done *done, int res, unsigned flags)
{
	struct request *write = container_of(done, struct request, io.done);

	(void)flags;
	fused_finish(fused_of(write->partner), 0, cmd_io_status(&write->io, res));
}

static void fused_read(struct done *done, int res, unsigned flags)
{
	struct request *compare = container_of(done, struct request, io.done);
	struct fused *fused = fused_of(compare);

	(void)flags;
	if (res)
		fused_finish(fused, cmd_io_status(&compare->io, res), NVME_SC_ABORT_FUSED_FAILED);
	else if (memcmp(compare->bytes, compare->io.bytes, compare->data_len))
		fused_finish(fused, NVME_SC_COMPARE_FAILED | NVME_STATUS_DNR,
			NVME_SC_ABORT_FUSED_FAILED);
	else if (compare->conn->state != CONN_LIVE)
		fused_finish(fused, 0, 0);  /* nobody is told, and nothing is changed any more */
	else if (compare->ns->ns.read_only) /* since it was prepared */
		fused_finish(fused, 0, NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR);
	else
		fused_submit(fused->write, fused_written);
}

static void fused_submit_read(struct request *compare)
{
	struct backend_io *io = &compare->io;

	io->op = BACKEND_READ;
	io->bytes = fused_disk_bytes(compare);
	io->loop_buffer = compare->loop_buffer;
	fused_submit(compare, fused_read);
}

static void fused_flushed(struct done *done, int res, unsigned flags)
{
	struct request *compare = container_of(done, struct request, io.done);

	(void)flags;
	if (res)
		fused_finish(fused_of(compare), cmd_io_status(&compare->io, res),
			NVME_SC_ABORT_FUSED_FAILED);
	else
		fused_submit_read(compare);
}

static void fused_locked(struct range_lock *lock)
{
	struct fused *fused = container_of(lock, struct fused, lock);
	struct request *compare = fused->compare;

	fused->begun = true;
	if (fused->abort) {
		range_lock_release(lock);
	} else if (compare->io.fua && compare->ns->queue->backend->geometry.volatile_cache) {
		compare->io.op = BACKEND_FLUSH;
		fused_submit(compare, fused_flushed);
	} else {
		fused_submit_read(compare);
	}
}

static void fused_start(struct request *compare, struct request *write)
{
	struct fused *fused = fused_of(compare);
	uint64_t start = compare->io.offset;

	request_hand_to(compare, REQUEST_EXEC);
	request_hand_to(write, REQUEST_EXEC);
	write->io.bytes = write->bytes;
	write->io.loop_buffer = write->loop_buffer;
	fused->compare = compare;
	fused->write = write;
	fused->begun = false;
	fused->unlocked = false;
	fused->abort = NULL;
	fused->lock.taken = fused_locked;
	fused->lock.released = fused_unlocked;
	range_lock_take(&fused->lock, compare->ns,
		(struct range){.start = start, .end = start + compare->io.extent});
}

static void fused_cancelled(struct range_cancel *cancel)
{
	struct fused *fused = container_of(cancel->lock, struct fused, lock);

	fused->abort->over = true;
	if (cancel->never_taken)
		fused->unlocked = true;
	fused_try_end(fused);
}

bool fused_abort(struct request *request, struct fused_abort *abort)
{
	bool first = (request->cmd.flags & NVME_CMD_FUSE_MASK) == NVME_CMD_FUSE_FIRST;
	struct fused *fused;

	if (request->state != REQUEST_EXEC || !request->command->fuse || !request->partner)
		return false;
	fused = fused_of(first ? request : request->partner);
	if (fused->begun || fused->abort)
		return false;
	fused->compare_status = first ? NVME_SC_ABORT_REQUESTED : NVME_SC_ABORT_FUSED_FAILED;
	fused->write_status = first ? NVME_SC_ABORT_FUSED_FAILED : NVME_SC_ABORT_REQUESTED;
	fused->abort = abort;
	abort->over = false;
	abort->cancel.lock = &fused->lock;
	abort->cancel.over = fused_cancelled;
	range_lock_cancel(&abort->cancel);
	return true;
}

/* --- commands -------------------------------------------------------------------------------- */

static uint16_t fused_compare_prepare(struct request *request)
{
	uint16_t status = cmd_io_prepare_transfer(request, BACKEND_READ);

	request->fused_status = 0;
	if (status)
		return status;
	if (request->data_len > FUSED_MAX_BYTES)
		return NVME_SC_ATOMIC_WRITE_UNIT_EXCEEDED | NVME_STATUS_DNR;
	request->scratch_len = fused_scratch_len(request);
	return 0;
}

static uint16_t fused_write_prepare(struct request *request)
{
	request->fused_status = 0;
	return cmd_io_prepare_transfer(request, BACKEND_WRITE);
}

/* It was allowed when its own data had come. */
static uint16_t fused_check_again(const struct request *held)
{
	return held->ns->gate & REACTOR_NS_RESERVED ? reservation_check(held) : 0;
}

/* It has its data; the other one perhaps. */
static void fused_run(struct request *request)
{
	struct request *other = request->partner;
	bool first = (request->cmd.flags & NVME_CMD_FUSE_MASK) == NVME_CMD_FUSE_FIRST;

	if (request->fused_status) {
		request_complete(request, request->fused_status);
	} else if (!other || other->state != REQUEST_HELD) {
		request_hand_to(request, REQUEST_HELD);
		list_push_back(&request->conn->held, &request->node);
	} else if (fused_check_again(other)) {
		fused_fail(other, fused_check_again(other));
		request_complete(request, NVME_SC_ABORT_FUSED_FAILED);
	} else {
		request_unlist(other);
		request_hand_to(other, REQUEST_CORE);
		fused_start(first ? request : other, first ? other : request);
	}
}

static const struct cmd fused_compare = {
	.name = "Compare, fused",
	.direction = REQUEST_FROM_HOST,
	.fuse = NVME_CMD_FUSE_FIRST,
	.access = RESERVATION_READ,
	.counts = NS_COUNT_READ,
	.prepare = fused_compare_prepare,
	.run = fused_run,
};

static const struct cmd fused_write = {
	.name = "Write, fused",
	.direction = REQUEST_FROM_HOST,
	.fuse = NVME_CMD_FUSE_SECOND,
	.access = RESERVATION_WRITE,
	.counts = NS_COUNT_WRITE,
	.prepare = fused_write_prepare,
	.run = fused_run,
};

const struct cmd *fused_find(const struct request *request)
{
	uint8_t opcode = request->cmd.opcode;
	uint8_t fuse = request->cmd.flags & NVME_CMD_FUSE_MASK;

	if (opcode == NVME_OPC_COMPARE && fuse == NVME_CMD_FUSE_FIRST)
		return &fused_compare;
	if (opcode == NVME_OPC_WRITE && fuse == NVME_CMD_FUSE_SECOND)
		return &fused_write;
	return cmd_io_find(opcode);
}
