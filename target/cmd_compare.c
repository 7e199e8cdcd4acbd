/* SPDX-License-Identifier: MIT */
/*
 * Compare (NVM command set 1.0 3.2.1): reads the disk beside the host's data, piece by piece.
 */
#include <stdlib.h>
#include <string.h>

#include "target/cmd_io.h"
#include "target/reactor_ns.h"

#define COMPARE_SCRATCH_BYTES (128u << 10)
/* Any namespace's block, and aligned for any disk. */
#define COMPARE_FIRST_BYTES   4096u

static uint16_t cmd_compare_prepare(struct request *request)
{
	uint16_t status = cmd_io_prepare_transfer(request, BACKEND_READ);

	if (status)
		return status;
	/* One buffer for both, so that no command holds one while it waits for another. */
	request->scratch_len = min_of(request->data_len, COMPARE_SCRATCH_BYTES);
	request->scratch_len = min_of(request->scratch_len, CMD_MAX_BYTES - request->data_len);
	return 0;
}

static void cmd_compare_next(struct request *request);

/* Behind it there is nothing to read into. */
static bool cmd_compare_fills_buffer(const struct request *request)
{
	return !request->scratch_len && !request->nr_parts;
}

static uint16_t cmd_compare_check(const struct request *request)
{
	const char *expected = (const char *)request->bytes + request->nr_parts;

	if (memcmp(request->io.bytes, expected, request->io.length))
		return NVME_SC_COMPARE_FAILED | NVME_STATUS_DNR;
	return 0;
}

static void cmd_compare_read(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);
	uint16_t status = res ? cmd_io_status(&request->io, res) : cmd_compare_check(request);

	(void)flags;
	if (cmd_compare_fills_buffer(request))
		free(request->io.bytes);
	if (!request_executed(request))
		return;
	request->io.offset += request->io.length;
	request->nr_parts += request->io.length;
	if (status || request->nr_parts == request->data_len)
		request_complete(request, status);
	else
		cmd_compare_next(request);
}

/*
 * The disk's blocks go behind the host's or over those that have been compared, where there is more
 * room. Where there is none - a Compare as long as the largest buffer, before its first block - a
 * few bytes are allocated: that is rare, and what such commands hold of the pool bounds it.
 */
static void cmd_compare_next(struct request *request)
{
	uint32_t left = request->data_len - request->nr_parts;
	uint32_t room = max_of(request->scratch_len, request->nr_parts);
	struct backend_io *io = &request->io;

	io->loop_buffer = request->loop_buffer;
	io->bytes = room == request->nr_parts ? request->bytes : request_scratch(request);
	if (cmd_compare_fills_buffer(request)) {
		room = COMPARE_FIRST_BYTES;
		io->loop_buffer = LOOP_BUFFER_NONE;
		if (posix_memalign(&io->bytes, COMPARE_FIRST_BYTES, COMPARE_FIRST_BYTES)) {
			request_complete(request, NVME_SC_INTERRUPTED);
			return;
		}
	}
	io->length = min_of(left, room);
	request_submit(request, cmd_compare_read);
}

static bool cmd_compare_more(const struct request *request)
{
	return request->io.op == BACKEND_FLUSH ||
	       request->nr_parts + request->io.length < request->data_len;
}

static void cmd_compare_run(struct request *request)
{
	if (!cmd_io_flush_first(request))
		cmd_compare_next(request);
}

const struct cmd cmd_compare = {
	.name = "Compare",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_compare_prepare,
	.run = cmd_compare_run,
	.access = RESERVATION_READ,
	.counts = NS_COUNT_READ,
	.more_parts = cmd_compare_more,
};
