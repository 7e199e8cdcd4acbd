/* SPDX-License-Identifier: MIT */
/*
 * The caller's I/O on a queue: checked, cut into commands that the target takes, and put together
 * again as one event. A queue has as many I/Os as requests: what finds no request free waits for
 * one, in order.
 */
#include "initiator/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "initiator/admin.h"
#include "initiator/namespace.h"

struct haul_io {
	struct haul_pending pending; /* its event has the first failure */
	struct haul_queue *queue;
	uint32_t nsid;
	uint32_t block_shift;
	uint16_t control; /* of read, write and write zeroes */
	uint8_t opcode;
	uint32_t nr_out;	 /* commands at the transport */
	uint64_t lba;		 /* of the next command */
	uint64_t nr_left;	 /* blocks that no command covers yet; Flush: 1 until it is sent */
	uint64_t max_blocks;	 /* of one command */
	const struct iovec *iov; /* the rest of the data: the caller's until the call returns */
	uint32_t nr_iov;
	size_t iov_at; /* bytes of iov[0] that are used up */
	struct list starved;
};

/* --- made and freed ------------------------------------------------------------------------ */

static void io_taken(struct haul_pending *pending)
{
	struct haul_io *io = container_of(pending, struct haul_io, pending);

	slots_put(&io->queue->io_slots, (uint32_t)(io - io->queue->ios));
}

int io_alloc(struct haul_queue *queue)
{
	queue->ios = calloc(queue->depth, sizeof(*queue->ios));
	/* Not touched, hence no memory, until an I/O of many pieces has to wait. */
	queue->io_iov = calloc(queue->depth, HAUL_IO_MAX_IOV * sizeof(struct iovec));
	if (!queue->ios || !queue->io_iov)
		return -ENOMEM;
	for (uint32_t i = 0; i < queue->depth; i++) {
		queue->ios[i].queue = queue;
		list_init(&queue->ios[i].starved);
		pending_init(&queue->ios[i].pending, 0, io_taken);
	}
	return slots_init(&queue->io_slots, queue->depth);
}

void io_free(struct haul_queue *queue)
{
	slots_destroy(&queue->io_slots);
	free(queue->io_iov);
	free(queue->ios);
}

void io_drop_events(struct haul_queue *queue)
{
	for (uint32_t i = 0; queue->ios && i < queue->io_slots.nr_touched; i++)
		list_remove(&queue->ios[i].pending.node);
}

/* --- the end -------------------------------------------------------------------------------- */

static void io_end_if_done(struct haul_io *io)
{
	if (io->nr_out || io->nr_left)
		return;
	if (io->pending.event.result)
		io->queue->hl->stats.nr_errors++;
	list_push_back(&io->queue->hl->ended, &io->pending.node);
}

static void io_fail(struct haul_io *io, int result, uint16_t status)
{
	if (!io->pending.event.result) {
		io->pending.event.result = result;
		io->pending.event.status = status;
	}
	io->nr_left = 0; /* what was not sent need not be */
	list_remove(&io->starved);
}

void io_cancel_starved(struct haul_queue *queue)
{
	struct list *node;

	while ((node = list_pop_front(&queue->starved))) {
		struct haul_io *io = container_of(node, struct haul_io, starved);

		io_fail(io, queue->failure == -ETIMEDOUT ? -ECANCELED : queue->failure, 0);
		io_end_if_done(io);
	}
}

static void io_command_done(struct haul_request *request)
{
	struct haul_io *io = request->context;
	uint16_t status = 0;
	int result = request->result;

	if (likely(!result)) {
		status = le16_get(request->cqe.status);
		if (unlikely(status > 1))
			result = request_result(request, &status);
		else
			status = 0;
	}
	io->nr_out--;
	if (unlikely(result))
		io_fail(io, result, status);
	io_end_if_done(io);
}

/* --- data ----------------------------------------------------------------------------------- */

struct io_cursor {
	const struct iovec *iov;
	uint32_t nr_iov;
	size_t at;
};

/*
 * Takes at most MAX_BYTES in at most MAX_PIECES from CURSOR into IOV (NULL: only counts). Returns
 * the bytes; adjoining pieces become one.
 */
static uint64_t io_gather(struct io_cursor *cursor, uint64_t max_bytes, uint32_t max_pieces,
	struct iovec *iov, uint32_t *ret_nr)
{
	uint64_t bytes = 0;
	uint32_t nr = 0;
	char *end = NULL;

	while (bytes < max_bytes && cursor->nr_iov) {
		char *base = (char *)cursor->iov->iov_base + cursor->at;
		size_t len = min_of(cursor->iov->iov_len - cursor->at, max_bytes - bytes);

		if (len && (nr == 0 || base != end)) {
			if (nr == max_pieces)
				break;
			if (iov)
				iov[nr] = (struct iovec){base, 0};
			nr++;
		}
		if (len && iov)
			iov[nr - 1].iov_len += len;
		if (len)
			end = base + len;
		bytes += len;
		cursor->at += len;
		if (cursor->at == cursor->iov->iov_len) {
			cursor->iov++;
			cursor->nr_iov--;
			cursor->at = 0;
		}
	}
	*ret_nr = nr;
	return bytes;
}

/*
 * How many bytes, in whole blocks, the next command can take. Over RDMA each piece needs a
 * descriptor of the target's few (MSDBD); a block in more pieces than that is put together by the
 * transport.
 */
static uint64_t io_fit(const struct haul_queue *queue, struct io_cursor cursor, uint64_t max_bytes,
	uint32_t block_shift)
{
	uint32_t max_pieces =
		queue->ops->trtype == NVME_TRTYPE_RDMA ? queue->max_segments : HAUL_MAX_IOV;
	struct io_cursor again = cursor;
	uint32_t nr;
	uint64_t bytes = io_gather(&cursor, max_bytes, max_pieces, NULL, &nr);

	if (bytes >> block_shift == 0)
		bytes = io_gather(&again, max_bytes, HAUL_MAX_IOV, NULL, &nr);
	return bytes >> block_shift << block_shift;
}

/* Fills REQUEST's data with the next bytes; returns the blocks they are. */
static uint64_t io_take_data(struct haul_io *io, struct haul_request *request, uint64_t max_blocks)
{
	struct io_cursor cursor = {io->iov, io->nr_iov, io->iov_at};
	uint64_t bytes = max_blocks << io->block_shift;

	if (likely(io->iov->iov_len - io->iov_at >= bytes)) { /* all in one piece */
		request->iov[0] = (struct iovec){(char *)io->iov->iov_base + io->iov_at, bytes};
		request->nr_iov = 1;
		io->iov_at += bytes;
	} else {
		bytes = io_fit(io->queue, cursor, bytes, io->block_shift);
		io_gather(&cursor, bytes, HAUL_MAX_IOV, request->iov, &request->nr_iov);
		io->iov = cursor.iov;
		io->nr_iov = cursor.nr_iov;
		io->iov_at = cursor.at;
	}
	request->data_len = (uint32_t)bytes;
	return bytes >> io->block_shift;
}

/* Each command can be made: no block lies in more pieces than one command can have. */
static bool io_can_be_cut(const struct haul_queue *queue, const struct iovec *iov, uint32_t nr_iov,
	uint64_t length, uint64_t max_bytes, uint32_t block_shift)
{
	struct io_cursor cursor = {iov, nr_iov, 0};

	while (length) {
		uint64_t bytes = io_fit(queue, cursor, min_of(length, max_bytes), block_shift);
		uint32_t nr;

		if (bytes == 0)
			return false;
		io_gather(&cursor, bytes, HAUL_MAX_IOV, NULL, &nr);
		length -= bytes;
	}
	return true;
}

/* --- commands ------------------------------------------------------------------------------- */

static void io_fill_discard(struct haul_io *io, struct haul_request *request, uint64_t nr_blocks)
{
	request->range =
		(struct nvme_dsm_range){.nlb = le32((uint32_t)nr_blocks), .slba = le64(io->lba)};
	request->cmd.dsm.attributes = le32(NVME_DSM_AD);
	request->iov[0] = (struct iovec){&request->range, sizeof(request->range)};
	request->nr_iov = 1;
	request->data_len = sizeof(request->range);
}

static void io_fill(struct haul_io *io, struct haul_request *request)
{
	uint64_t nr_blocks = min_of(io->nr_left, io->max_blocks);

	request->cmd.opcode = io->opcode;
	le32_set(&request->cmd.nsid, io->nsid);
	request->to_host = io->opcode == NVME_OPC_READ;
	request->completed = io_command_done;
	request->context = io;
	request->data_len = 0;
	request->nr_iov = 0;
	if (io->opcode == NVME_OPC_READ || io->opcode == NVME_OPC_WRITE)
		nr_blocks = io_take_data(io, request, nr_blocks);
	if (io->opcode == NVME_OPC_DSM) {
		io_fill_discard(io, request, nr_blocks);
	} else if (io->opcode != NVME_OPC_FLUSH) {
		le64_set(&request->cmd.rw.slba, io->lba);
		le16_set(&request->cmd.rw.nlb, (uint16_t)(nr_blocks - 1));
		le16_set(&request->cmd.rw.control, io->control);
	}
	io->lba += nr_blocks;
	io->nr_left -= nr_blocks;
}

static void io_count(struct haul_loop_stats *stats, const struct haul_request *request)
{
	stats->nr_commands++;
	if (request->to_host)
		stats->nr_bytes_read += request->data_len;
	else
		stats->nr_bytes_written += request->data_len;
}

/* Sends commands while there are requests free. */
static void io_issue(struct haul_io *io)
{
	struct haul_queue *queue = io->queue;
	uint64_t timeout_ns = queue->ctrl->options.command_timeout_ms * NS_PER_MS;

	while (io->nr_left) {
		struct haul_request *request = queue_request_get(queue);

		if (!request)
			return;
		io_fill(io, request);
		io_count(&queue->hl->stats, request);
		io->nr_out++;
		queue_request_send(request, timeout_ns);
	}
}

void io_feed(struct haul_queue *queue)
{
	while (!list_empty(&queue->starved)) {
		struct haul_io *io = container_of(queue->starved.next, struct haul_io, starved);

		io_issue(io);
		if (io->nr_left)
			return;
		list_remove(&io->starved);
	}
}

/* The rest of it waits for a request; the caller's iovecs do not live that long. */
static void io_starve(struct haul_io *io)
{
	struct haul_queue *queue = io->queue;
	struct iovec *own = queue->io_iov + (size_t)(io - queue->ios) * HAUL_IO_MAX_IOV;

	if (io->nr_iov)
		memcpy(own, io->iov, io->nr_iov * sizeof(*own));
	io->iov = own;
	list_push_back(&queue->starved, &io->starved);
}

/* --- what the caller starts ------------------------------------------------------------------ */

/* Everything of an I/O but where it waits. */
struct io_order {
	uint8_t opcode;
	uint16_t control;
	uint32_t nsid;
	const struct iovec *iov;
	uint32_t nr_iov;
	uint64_t offset, length; /* bytes */
	uint64_t user_data;
};

static struct haul_ns *io_find_ns(struct haul_queue *queue, uint32_t nsid)
{
	struct haul_ns *ns = queue->last_ns;

	if (likely(ns && ns->info.nsid == nsid))
		return ns;
	ns = ns_find(queue->ctrl, nsid);
	if (ns)
		queue->last_ns = ns;
	return ns;
}

static int io_check_range(const struct haul_ns *ns, uint64_t offset, uint64_t length)
{
	uint64_t size = ns->info.nr_blocks << ns->block_shift;
	uint64_t mask = ns->info.block_bytes - 1;

	if (unlikely(((offset | length) & mask) || length == 0 || length > size ||
		     offset > size - length))
		return -EINVAL;
	return 0;
}

static uint64_t io_max_blocks(
	const struct haul_queue *queue, const struct haul_ns *ns, uint8_t opcode)
{
	switch (opcode) {
	case NVME_OPC_READ:
	case NVME_OPC_WRITE:
		return queue->ctrl->limits.max_transfer_bytes >> ns->block_shift;
	case NVME_OPC_WRITE_ZEROES:
		return ns->info.max_write_zeroes_blocks;
	case NVME_OPC_DSM:
		return ns->info.max_discard_blocks;
	default:
		return 1;
	}
}

static void io_fill_order(
	struct haul_io *io, const struct io_order *order, const struct haul_ns *ns)
{
	io->pending.event = (struct haul_event){.user_data = order->user_data};
	io->nsid = order->nsid;
	io->block_shift = ns->block_shift;
	io->control = order->control;
	io->opcode = order->opcode;
	io->nr_out = 0;
	io->lba = order->offset >> ns->block_shift;
	io->nr_left = order->opcode == NVME_OPC_FLUSH ? 1 : order->length >> ns->block_shift;
	io->max_blocks = io_max_blocks(io->queue, ns, order->opcode);
	io->iov = order->iov;
	io->nr_iov = order->nr_iov;
	io->iov_at = 0;
}

static int io_check(struct haul_queue *queue, const struct io_order *order, struct haul_ns **ret)
{
	struct haul_ns *ns;

	if (unlikely(queue->state != HAUL_QUEUE_LIVE))
		return -ENOTCONN;
	ns = io_find_ns(queue, order->nsid);
	if (unlikely(!ns))
		return -ENODEV;
	*ret = ns;
	return order->opcode == NVME_OPC_FLUSH ? 0
					       : io_check_range(ns, order->offset, order->length);
}

static int io_start(struct haul_queue *queue, const struct io_order *order)
{
	struct haul_ns *ns;
	struct haul_io *io;
	uint32_t index;
	int error = io_check(queue, order, &ns);

	if (unlikely(error))
		return error;
	if (order->nr_iov > HAUL_MAX_IOV &&
		!io_can_be_cut(queue, order->iov, order->nr_iov, order->length,
			queue->ctrl->limits.max_transfer_bytes, ns->block_shift))
		return -EINVAL;
	index = slots_get(&queue->io_slots);
	if (unlikely(index == SLOTS_NONE))
		return -EAGAIN;
	io = &queue->ios[index];
	io_fill_order(io, order, ns);
	if (likely(list_empty(&queue->starved)))
		io_issue(io);
	if (unlikely(io->nr_left))
		io_starve(io);
	return 0;
}

/* The length of all pieces; 0: nothing, or too many. */
static uint64_t io_length(const struct iovec *iov, unsigned nr_iov)
{
	uint64_t length = 0;

	if (nr_iov > HAUL_IO_MAX_IOV)
		return 0;
	for (unsigned i = 0; i < nr_iov; i++)
		if (__builtin_add_overflow(length, iov[i].iov_len, &length))
			return 0;
	return length;
}

int haul_readv(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset, uint64_t user_data)
{
	struct io_order order = {
		NVME_OPC_READ, 0, nsid, iov, nr_iov, offset, io_length(iov, nr_iov), user_data};

	return io_start(queue, &order);
}

int haul_writev(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset, unsigned flags, uint64_t user_data)
{
	struct io_order order = {NVME_OPC_WRITE, flags & HAUL_FUA ? NVME_RW_FUA : 0, nsid, iov,
		nr_iov, offset, io_length(iov, nr_iov), user_data};

	return flags & ~HAUL_FUA ? -EINVAL : io_start(queue, &order);
}

int haul_flush(struct haul_queue *queue, uint32_t nsid, uint64_t user_data)
{
	struct io_order order = {.opcode = NVME_OPC_FLUSH, .nsid = nsid, .user_data = user_data};

	return io_start(queue, &order);
}

int haul_discard(struct haul_queue *queue, uint32_t nsid, uint64_t offset, uint64_t length,
	uint64_t user_data)
{
	struct io_order order = {.opcode = NVME_OPC_DSM,
		.nsid = nsid,
		.offset = offset,
		.length = length,
		.user_data = user_data};

	if (!(queue->ctrl->limits.oncs & NVME_ID_ONCS_DSM))
		return -EOPNOTSUPP;
	return io_start(queue, &order);
}

int haul_write_zeroes(struct haul_queue *queue, uint32_t nsid, uint64_t offset, uint64_t length,
	unsigned flags, uint64_t user_data)
{
	uint16_t control = (uint16_t)((flags & HAUL_FUA ? NVME_RW_FUA : 0) |
				      (flags & HAUL_DEALLOCATE ? NVME_RW_DEAC : 0));
	struct io_order order = {.opcode = NVME_OPC_WRITE_ZEROES,
		.control = control,
		.nsid = nsid,
		.offset = offset,
		.length = length,
		.user_data = user_data};

	if (flags & ~(HAUL_FUA | HAUL_DEALLOCATE))
		return -EINVAL;
	if (!(queue->ctrl->limits.oncs & NVME_ID_ONCS_WRITE_ZEROES))
		return -EOPNOTSUPP;
	return io_start(queue, &order);
}
