/* SPDX-License-Identifier: MIT */
/*
 * Copy (NVM command set 1.0 3.2.2): source ranges, one after the other, to one place of the same
 * namespace. Piece by piece through one buffer, so that a long one holds no more than a short one
 * and all its I/O queues up like any other's.
 */
#include "target/cmd_copy.h"

#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "target/cmd_io.h"
#include "target/reactor_ns.h"

#define COPY_PIECE_BYTES (116u << 10)

/* In the buffer behind the piece. */
struct copy {
	uint32_t range;	     /* the one at hand */
	uint32_t piece;	     /* bytes that are under way */
	uint64_t nr_done;    /* bytes of the range */
	uint64_t range_dest; /* where the range goes, in bytes */
	bool backwards;	     /* its end first, for its end is where it goes to */
};

/* All is one buffer of the pool's 128 KiB. */
static_assert(
	COPY_MAX_RANGES * sizeof(struct nvme_copy_range) + COPY_PIECE_BYTES + 4096 <= 128u << 10);

static struct copy *copy_of(const struct request *request)
{
	return (struct copy *)((char *)request_scratch(request) + COPY_PIECE_BYTES);
}

static uint32_t copy_nr_ranges(const struct request *request)
{
	return request->cmd.copy.nr + 1u;
}

static const struct nvme_copy_range *copy_range(const struct request *request, uint32_t which)
{
	return (const struct nvme_copy_range *)request->bytes + which;
}

static uint64_t copy_range_lbas(const struct nvme_copy_range *range)
{
	return le16_get(range->nlb) + 1ull;
}

static uint16_t cmd_copy_prepare(struct request *request)
{
	const struct nvme_cmd_copy *copy = &request->cmd.copy;
	uint16_t status = cmd_io_find_ns(request);

	if (!status)
		status = cmd_io_check_writable(&request->ns->ns);
	if (status)
		return status;
	/* Format 1 is for protection information, which no namespace has. */
	if ((copy->format & NVME_COPY_FORMAT_MASK) != NVME_COPY_FORMAT_0)
		return CMD_INVALID_FIELD;
	if (copy_nr_ranges(request) > COPY_MAX_RANGES)
		return NVME_SC_COMMAND_SIZE_LIMIT | NVME_STATUS_DNR;
	request->data_len = copy_nr_ranges(request) * (uint32_t)sizeof(struct nvme_copy_range);
	request->scratch_len = COPY_PIECE_BYTES + (uint32_t)sizeof(struct copy);
	return 0;
}

/* Ranges and sum are checked before anything is written. */
static uint16_t copy_check(const struct request *request)
{
	const struct ns *ns = &request->ns->ns;
	uint64_t nr_lbas = 0;

	for (uint32_t i = 0; i < copy_nr_ranges(request); i++) {
		const struct nvme_copy_range *range = copy_range(request, i);
		uint16_t status;

		if (copy_range_lbas(range) > COPY_MAX_RANGE_BYTES >> ns->lba_shift)
			return NVME_SC_COMMAND_SIZE_LIMIT | NVME_STATUS_DNR;
		status = cmd_io_check_range(ns, le64_get(range->slba), copy_range_lbas(range));
		if (status)
			return status;
		nr_lbas += copy_range_lbas(range);
	}
	if (nr_lbas > COPY_MAX_BYTES >> ns->lba_shift)
		return NVME_SC_COMMAND_SIZE_LIMIT | NVME_STATUS_DNR;
	return cmd_io_check_range(ns, le64_get(request->cmd.copy.sdlba), nr_lbas);
}

/* --- a piece: read, written ------------------------------------------------------------------ */

static uint64_t copy_range_bytes(const struct request *request, uint32_t which)
{
	return copy_range_lbas(copy_range(request, which)) << request->ns->ns.lba_shift;
}

static uint64_t copy_range_source(const struct request *request, uint32_t which)
{
	return le64_get(copy_range(request, which)->slba) << request->ns->ns.lba_shift;
}

/* In the range: where the piece at hand is. */
static uint64_t copy_piece_offset(const struct request *request, const struct copy *copy)
{
	if (copy->backwards)
		return copy_range_bytes(request, copy->range) - copy->nr_done - copy->piece;
	return copy->nr_done;
}

static void copy_end(struct request *request, uint16_t status)
{
	const struct copy *copy = copy_of(request);
	struct reactor_ns *ns = request->ns;

	/* NVM command set 1.0 3.2.2.1: the first range that is not copied. */
	if (status)
		request->cqe.dw0 = le32(copy->range);
	else
		reactor_ns_count(ns, NS_COUNT_COPY,
			(copy->range_dest >> ns->ns.lba_shift) - le64_get(request->cmd.copy.sdlba));
	request_complete(request, status);
}

static void copy_next(struct request *request);

static void copy_begin_range(struct request *request)
{
	struct copy *copy = copy_of(request);
	uint64_t source = copy_range_source(request, copy->range);

	copy->nr_done = 0;
	copy->backwards = copy->range_dest > source &&
			  copy->range_dest < source + copy_range_bytes(request, copy->range);
}

static void copy_written(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);
	struct copy *copy = copy_of(request);

	(void)flags;
	if (!request_executed(request))
		return;
	if (res) {
		copy_end(request, cmd_io_status(&request->io, res));
		return;
	}
	copy->nr_done += copy->piece;
	if (copy->nr_done == copy_range_bytes(request, copy->range)) {
		copy->range_dest += copy->nr_done;
		if (++copy->range == copy_nr_ranges(request)) {
			copy_end(request, 0);
			return;
		}
		copy_begin_range(request);
	}
	copy_next(request);
}

static void copy_read(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);
	const struct copy *copy = copy_of(request);

	(void)flags;
	if (!request_executed(request))
		return;
	if (res) {
		copy_end(request, cmd_io_status(&request->io, res));
		return;
	}
	request->io.op = BACKEND_WRITE;
	request->io.fua = cmd_io_force_unit_access(request, le16_get(request->cmd.copy.control));
	request->io.offset = copy->range_dest + copy_piece_offset(request, copy);
	request_submit(request, copy_written);
}

static void copy_next(struct request *request)
{
	struct copy *copy = copy_of(request);
	uint64_t left = copy_range_bytes(request, copy->range) - copy->nr_done;

	copy->piece = (uint32_t)min_of(left, (uint64_t)COPY_PIECE_BYTES);
	request->io.op = BACKEND_READ;
	request->io.fua = false;
	request->io.bytes = request_scratch(request);
	request->io.loop_buffer = request->loop_buffer;
	request->io.length = copy->piece;
	request->io.offset =
		copy_range_source(request, copy->range) + copy_piece_offset(request, copy);
	request_submit(request, copy_read);
}

static void cmd_copy_run(struct request *request)
{
	struct copy *copy = copy_of(request);
	uint16_t status = copy_check(request);

	*copy = (struct copy){
		.range_dest = le64_get(request->cmd.copy.sdlba) << request->ns->ns.lba_shift};
	if (status) {
		copy_end(request, status);
		return;
	}
	copy_begin_range(request);
	copy_next(request);
}

/* Only the last write of the last range is the last. */
static bool cmd_copy_more_parts(const struct request *request)
{
	const struct copy *copy = copy_of(request);

	return request->io.op == BACKEND_READ || copy->range + 1 < copy_nr_ranges(request) ||
	       copy->nr_done + copy->piece < copy_range_bytes(request, copy->range);
}

const struct cmd cmd_copy = {
	.name = "Copy",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_copy_prepare,
	.run = cmd_copy_run,
	.access = RESERVATION_WRITE,
	.more_parts = cmd_copy_more_parts,
	.effects = NVME_EFFECTS_LBCC,
};
