/* SPDX-License-Identifier: MIT */
/*
 * Verify (NVM command set 1.0 3.2.5): reads all of the range from the disk and keeps nothing.
 */
#include "target/cmd_io.h"
#include "target/reactor_ns.h"

#define VERIFY_PIECE_BYTES (128u << 10)

static uint16_t cmd_verify_prepare(struct request *request)
{
	uint16_t status = cmd_io_prepare_rw(request, BACKEND_READ);

	if (status)
		return status;
	/* Figure 55; of the other commands the field is ignored without protection information. */
	if (le16_get(request->cmd.rw.control) & NVME_RW_PRACT)
		return CMD_INVALID_FIELD;
	request->scratch_len = (uint32_t)min_of(request->io.extent, (uint64_t)VERIFY_PIECE_BYTES);
	return 0;
}

static void cmd_verify_next(struct request *request);

static void cmd_verify_read(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	request->io.offset += request->io.length;
	request->io.extent -= request->io.length;
	if (res || !request->io.extent)
		request_complete(request, cmd_io_status(&request->io, res));
	else
		cmd_verify_next(request);
}

static void cmd_verify_next(struct request *request)
{
	request->io.bytes = request_scratch(request);
	request->io.loop_buffer = request->loop_buffer;
	request->io.length = (uint32_t)min_of(request->io.extent, (uint64_t)request->scratch_len);
	request_submit(request, cmd_verify_read);
}

static bool cmd_verify_more(const struct request *request)
{
	return request->io.op == BACKEND_FLUSH || request->io.extent > request->io.length;
}

static void cmd_verify_run(struct request *request)
{
	if (!cmd_io_flush_first(request))
		cmd_verify_next(request);
}

const struct cmd cmd_verify = {
	.name = "Verify",
	.prepare = cmd_verify_prepare,
	.run = cmd_verify_run,
	.access = RESERVATION_READ,
	.counts = NS_COUNT_VERIFY,
	.more_parts = cmd_verify_more,
};
