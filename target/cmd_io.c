/* SPDX-License-Identifier: MIT */
/*
 * I/O commands (NVM command set 1.0 chapter 3) onto a namespace's backend.
 */
#include "target/cmd_io.h"

#include <errno.h>

#include "proto/nvme/log.h"
#include "target/cmd_reservation.h"
#include "target/conn.h"
#include "target/reactor_ns.h"
#include "target/reservation_visit.h"
#include "target/revoke.h"
#include "target/view_hide.h"

static out_of_line uint16_t cmd_io_check_gate(const struct conn *conn, uint32_t gate, uint32_t nsid)
{
	uint16_t status = gate & REACTOR_NS_NARROWS ? view_hide_check(conn, nsid) : 0;

	return status ? status : ana_check(conn, nsid);
}

/* NVMe base 2.0 4.1 (figure 87): an id that could be one is no namespace of this host's, the
 * broadcast value is none of the command's; all others are not valid. */
static out_of_line uint16_t cmd_io_no_ns(uint32_t nsid)
{
	return nsid_valid(nsid) || nsid == NVME_NSID_ALL ? CMD_INVALID_FIELD
							 : NVME_SC_INVALID_NS | NVME_STATUS_DNR;
}

uint16_t cmd_io_find_ns(struct request *request)
{
	const struct conn *conn = request->conn;
	uint32_t nsid = le32_get(request->cmd.nsid);

	request_set_ns(request, reactor_ns_find(conn->reactor, conn->subsys, nsid));
	if (unlikely(!request->ns))
		return cmd_io_no_ns(nsid);
	if (likely(!(request->ns->gate & (REACTOR_NS_ANA | REACTOR_NS_NARROWS))))
		return 0;
	return cmd_io_check_gate(conn, request->ns->gate, nsid);
}

uint16_t cmd_io_prepare_rw(struct request *request, enum backend_op op)
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
	request->io.fua = cmd_io_force_unit_access(request, le16_get(rw->control));
	request->io.deallocate = le16_get(rw->control) & NVME_RW_DEAC;
	request->io.offset = slba << request->ns->ns.lba_shift;
	request->io.extent = nr_lbas << request->ns->ns.lba_shift;
	return 0;
}

uint16_t cmd_io_status(struct backend_io *io, int res)
{
	struct reactor_ns *ns = container_of(io, struct request, io)->ns;

	if (unlikely(res == -EROFS) && !ns->ns.read_only)
		reactor_ns_note_refused_write(ns);
	return nvme_status_from_errno(res, io->op != BACKEND_READ);
}

void cmd_io_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (request_executed(request))
		request_complete(request, likely(!res) ? 0 : cmd_io_status(&request->io, res));
}

static void cmd_io_flushed(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	request->io.op = BACKEND_READ;
	request->io.fua = false;
	if (res)
		request_complete(request, cmd_io_status(&request->io, res));
	else
		request->command->run(request);
}

bool cmd_io_flush_first(struct request *request)
{
	if (!request->io.fua || !request->ns->queue->backend->geometry.volatile_cache)
		return false;
	request->io.op = BACKEND_FLUSH;
	request_submit(request, cmd_io_flushed);
	return true;
}

/* --- Read, Write, Write Zeroes --------------------------------------------------------------- */

uint16_t cmd_io_prepare_transfer(struct request *request, enum backend_op op)
{
	uint16_t status = cmd_io_prepare_rw(request, op);

	if (status)
		return status;
	if (request->io.extent > request->conn->transfer_max)
		return CMD_INVALID_FIELD;
	request->io.length = (uint32_t)request->io.extent;
	request->data_len = request->io.length;
	return 0;
}

static uint16_t cmd_read_prepare(struct request *request)
{
	return cmd_io_prepare_transfer(request, BACKEND_READ);
}

static uint16_t cmd_write_prepare(struct request *request)
{
	return cmd_io_prepare_transfer(request, BACKEND_WRITE);
}

static void cmd_transfer_run(struct request *request)
{
	request->io.bytes = request->bytes;
	request->io.loop_buffer = request->loop_buffer;
	request_submit(request, cmd_io_done);
}

static void cmd_read_run(struct request *request)
{
	if (likely(!request->io.fua) || !cmd_io_flush_first(request))
		cmd_transfer_run(request);
}

static uint16_t cmd_write_zeroes_prepare(struct request *request)
{
	uint16_t status = cmd_io_prepare_rw(request, BACKEND_WRITE_ZEROES);

	/* NVM command set 1.0 4.1.5.4, WZSL. */
	return !status && request->io.extent > CMD_MAX_ZERO_BYTES ? CMD_INVALID_FIELD : status;
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
	return ana_check_all(request->conn);
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
	/* The namespace before has nothing of it any more. The next one may have to be awaited by
	 * another command. */
	if (request->awaited_by)
		revoke_request_over(request);
	request_set_ns(request, reactor_ns_find(request->conn->reactor, subsys, nsid));
	request->io.op = BACKEND_FLUSH;
	request_submit(request, done);
	return true;
}

/* Of all namespaces; nr_parts is 0 for one. */
static bool cmd_flush_more(const struct request *request)
{
	return request->nr_parts && request->nr_parts < request->conn->subsys->ns_limit;
}

/* NVMe base 2.0 7.1: no namespace is flushed when one of them is reserved. */
static uint16_t cmd_flush_check_all(const struct request *request)
{
	const struct subsys *subsys = request->conn->subsys;
	uint16_t status = 0;

	for (uint32_t nsid = 1; nsid < subsys->ns_limit && !status; nsid++)
		if (subsys->ns[nsid])
			status = reservation_check_ns(
				request, reactor_ns_find(request->conn->reactor, subsys, nsid));
	return status;
}

static void cmd_flush_run(struct request *request)
{
	uint16_t status = request->ns ? 0 : cmd_flush_check_all(request);

	request->io.op = BACKEND_FLUSH;
	if (status)
		request_complete(request, status);
	else if (request->ns)
		request_submit(request, cmd_io_done);
	else if (!cmd_flush_next(request, cmd_flush_done))
		request_complete(request, 0);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct cmd cmd_read = {
	.name = "Read",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_read_prepare,
	.run = cmd_read_run,
	.access = RESERVATION_READ,
	.fills_all = true,
	.counts = NS_COUNT_READ,
};

static const struct cmd cmd_write = {
	.name = "Write",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_write_prepare,
	.run = cmd_transfer_run,
	.access = RESERVATION_WRITE,
	.counts = NS_COUNT_WRITE,
	.effects = NVME_EFFECTS_LBCC,
};

static const struct cmd cmd_flush = {
	.name = "Flush",
	.prepare = cmd_flush_prepare,
	.run = cmd_flush_run,
	.access = RESERVATION_WRITE,
	.more_parts = cmd_flush_more,
};

static const struct cmd cmd_write_zeroes = {
	.name = "Write Zeroes",
	.prepare = cmd_write_zeroes_prepare,
	.run = cmd_write_zeroes_run,
	.access = RESERVATION_WRITE,
	.effects = NVME_EFFECTS_LBCC,
};

const struct cmd *cmd_io_find(uint8_t opcode)
{
	static const struct cmd *const table[] = {
		[NVME_OPC_FLUSH] = &cmd_flush,
		[NVME_OPC_WRITE] = &cmd_write,
		[NVME_OPC_READ] = &cmd_read,
		[NVME_OPC_COMPARE] = &cmd_compare,
		[NVME_OPC_WRITE_ZEROES] = &cmd_write_zeroes,
		[NVME_OPC_DSM] = &cmd_dsm,
		[NVME_OPC_VERIFY] = &cmd_verify,
		[NVME_OPC_COPY] = &cmd_copy,
		[NVME_OPC_RESERVATION_REGISTER] = &cmd_reservation_register,
		[NVME_OPC_RESERVATION_REPORT] = &cmd_reservation_report,
		[NVME_OPC_RESERVATION_ACQUIRE] = &cmd_reservation_acquire,
		[NVME_OPC_RESERVATION_RELEASE] = &cmd_reservation_release,
	};

	return opcode < ARRAY_SIZE(table) ? table[opcode] : NULL;
}
