/* SPDX-License-Identifier: MIT */
/*
 * I/O commands (NVM command set 1.0 chapter 3) onto a namespace's backend.
 */
#include "target/cmd.h"

#include <errno.h>

#include "proto/nvme/identify.h"
#include "target/conn.h"
#include "target/reactor_ns.h"
#include "target/subsys.h"

static uint16_t cmd_io_find_ns(struct request *request)
{
	const struct conn *conn = request->conn;
	uint32_t nsid = le32_get(request->cmd.nsid);

	request_set_ns(request, reactor_ns_find(conn->reactor, conn->subsys, nsid));
	return request->ns ? 0 : NVME_SC_INVALID_NS | NVME_STATUS_DNR;
}

static uint16_t cmd_io_check_range(const struct ns *ns, uint64_t slba, uint64_t nr_lbas)
{
	/* In this order nothing overflows (B063). */
	if (nr_lbas > ns->nr_lbas || slba > ns->nr_lbas - nr_lbas)
		return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
	return 0;
}

static uint16_t cmd_io_check_writable(const struct ns *ns)
{
	return ns->read_only ? NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR : 0;
}

/* Namespace and range of a command with struct nvme_cmd_rw. */
static uint16_t cmd_rw_prepare(struct request *request, enum backend_op op)
{
	const struct nvme_cmd_rw *rw = &request->cmd.rw;
	uint64_t slba = le64_get(rw->slba);
	uint64_t nr_lbas = le16_get(rw->nlb) + 1ull;
	uint16_t status = cmd_io_find_ns(request);

	if (!status && op != BACKEND_READ)
		status = cmd_io_check_writable(&request->ns->ns);
	if (!status)
		status = cmd_io_check_range(&request->ns->ns, slba, nr_lbas);
	if (status)
		return status;
	request->io.op = op;
	request->io.fua = le16_get(rw->control) & NVME_RW_FUA;
	request->io.deallocate = le16_get(rw->control) & NVME_RW_DEAC;
	request->io.offset = slba << request->ns->ns.lba_shift;
	request->io.extent = nr_lbas << request->ns->ns.lba_shift;
	return 0;
}

static uint16_t cmd_io_status(const struct backend_io *io, int res)
{
	return nvme_status_from_errno(res, io->op != BACKEND_READ);
}

static void cmd_io_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (request_executed(request))
		request_complete(request, cmd_io_status(&request->io, res));
}

/* --- Read, Write, Write Zeroes --------------------------------------------------------------- */

static uint16_t cmd_transfer_prepare(struct request *request, enum backend_op op)
{
	uint16_t status = cmd_rw_prepare(request, op);

	if (status)
		return status;
	if (request->io.extent > CMD_MAX_BYTES)
		return CMD_INVALID_FIELD;
	request->io.length = (uint32_t)request->io.extent;
	request->data_len = request->io.length;
	return 0;
}

static uint16_t cmd_read_prepare(struct request *request)
{
	return cmd_transfer_prepare(request, BACKEND_READ);
}

static uint16_t cmd_write_prepare(struct request *request)
{
	return cmd_transfer_prepare(request, BACKEND_WRITE);
}

static void cmd_transfer_run(struct request *request)
{
	request->io.bytes = request->bytes;
	request->io.loop_buffer = request->loop_buffer;
	request_submit(request, cmd_io_done);
}

static uint16_t cmd_write_zeroes_prepare(struct request *request)
{
	return cmd_rw_prepare(request, BACKEND_WRITE_ZEROES);
}

static void cmd_write_zeroes_run(struct request *request)
{
	request_submit(request, cmd_io_done);
}

/* --- Flush: of one namespace or, one after the other, of all --------------------------------- */

static uint16_t cmd_flush_prepare(struct request *request)
{
	if (le32_get(request->cmd.nsid) != NVME_NSID_ALL)
		return cmd_io_find_ns(request);
	return 0;
}

static void cmd_flush_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	if (res || !cmd_flush_next(request, cmd_flush_done))
		request_complete(request, cmd_io_status(&request->io, res));
}

bool cmd_flush_next(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags))
{
	const struct subsys *subsys = request->conn->subsys;
	uint32_t nsid = request->nr_parts;

	while (nsid < subsys->ns_limit && !subsys->ns[nsid])
		nsid++;
	if (nsid >= subsys->ns_limit)
		return false;
	request->nr_parts = nsid + 1;
	request_set_ns(request, reactor_ns_find(request->conn->reactor, subsys, nsid));
	request->io.op = BACKEND_FLUSH;
	request_submit(request, done);
	return true;
}

static void cmd_flush_run(struct request *request)
{
	request->io.op = BACKEND_FLUSH;
	if (request->ns)
		request_submit(request, cmd_io_done);
	else if (!cmd_flush_next(request, cmd_flush_done))
		request_complete(request, 0);
}

/* --- Dataset Management ---------------------------------------------------------------------- */

static uint16_t cmd_dsm_prepare(struct request *request)
{
	uint16_t status = cmd_io_find_ns(request);

	if (!status && (le32_get(request->cmd.dsm.attributes) & NVME_DSM_AD))
		status = cmd_io_check_writable(&request->ns->ns);
	request->data_len = (request->cmd.dsm.nr + 1u) * (uint32_t)sizeof(struct nvme_dsm_range);
	return status;
}

static uint16_t cmd_dsm_check_ranges(const struct request *request)
{
	const struct nvme_dsm_range *ranges = request->bytes;

	for (uint32_t i = 0; i <= request->cmd.dsm.nr; i++) {
		uint16_t status = cmd_io_check_range(
			&request->ns->ns, le64_get(ranges[i].slba), le32_get(ranges[i].nlb));

		if (status)
			return status;
	}
	return 0;
}

static bool cmd_dsm_submit_next(struct request *request);

static void cmd_dsm_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	/* Advisory: what cannot be deallocated stays. */
	if (res == -EOPNOTSUPP)
		res = 0;
	if (res || !cmd_dsm_submit_next(request))
		request_complete(request, cmd_io_status(&request->io, res));
}

/* One range at a time: 256 of one command shall not crowd out others. False: no further one. */
static bool cmd_dsm_submit_next(struct request *request)
{
	const struct nvme_dsm_range *ranges = request->bytes;
	uint8_t shift = request->ns->ns.lba_shift;

	while (request->nr_parts <= request->cmd.dsm.nr) {
		const struct nvme_dsm_range *range = &ranges[request->nr_parts++];

		if (!le32_get(range->nlb))
			continue;
		request->io.offset = le64_get(range->slba) << shift;
		request->io.extent = (uint64_t)le32_get(range->nlb) << shift;
		request_submit(request, cmd_dsm_done);
		return true;
	}
	return false;
}

static void cmd_dsm_run(struct request *request)
{
	bool deallocate = le32_get(request->cmd.dsm.attributes) & NVME_DSM_AD;
	uint16_t status = cmd_dsm_check_ranges(request);

	request->io.op = BACKEND_DISCARD;
	if (status || !deallocate || !request->ns->queue->backend->geometry.can_discard ||
		!cmd_dsm_submit_next(request))
		request_complete(request, status);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct cmd cmd_read = {
	.name = "Read",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_read_prepare,
	.run = cmd_transfer_run,
	.fills_all = true,
};

static const struct cmd cmd_write = {
	.name = "Write",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_write_prepare,
	.run = cmd_transfer_run,
};

static const struct cmd cmd_flush = {
	.name = "Flush",
	.prepare = cmd_flush_prepare,
	.run = cmd_flush_run,
};

static const struct cmd cmd_write_zeroes = {
	.name = "Write Zeroes",
	.prepare = cmd_write_zeroes_prepare,
	.run = cmd_write_zeroes_run,
};

static const struct cmd cmd_dsm = {
	.name = "Dataset Management",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_dsm_prepare,
	.max_len = NVME_DSM_MAX_RANGES * sizeof(struct nvme_dsm_range),
	.run = cmd_dsm_run,
};

const struct cmd *cmd_io_find(uint8_t opcode)
{
	switch (opcode) {
	case NVME_OPC_READ:
		return &cmd_read;
	case NVME_OPC_WRITE:
		return &cmd_write;
	case NVME_OPC_FLUSH:
		return &cmd_flush;
	case NVME_OPC_WRITE_ZEROES:
		return &cmd_write_zeroes;
	case NVME_OPC_DSM:
		return &cmd_dsm;
	default:
		return NULL;
	}
}
