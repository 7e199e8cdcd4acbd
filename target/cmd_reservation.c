/* SPDX-License-Identifier: MIT */
/*
 * Reservation Register, Acquire, Release and Report (NVMe base 2.0 7.2 to 7.5): fields are checked
 * here, all else at the namespace's owner. And the feature Reservation Persistence.
 */
#include "target/cmd_reservation.h"

#include <string.h>

#include "target/cmd_io.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/reservation_owner.h"

#define CMD_RESERVATION_CPTPL(field) ((field) >> 6)

static void cmd_reservation_done(struct request *request, uint16_t status)
{
	if (request_executed(request))
		request_complete(request, status);
}

/* A host that does not say who it is cannot be known again (NVMe base 2.0 5.27.1.25). */
static bool cmd_reservation_host_known(const struct conn *conn)
{
	static const uint8_t nobody[RESERVATION_HOST_BYTES];

	return memcmp(conn->hostid, nobody, sizeof(nobody));
}

static uint16_t cmd_reservation_prepare(struct request *request, uint32_t data_len)
{
	uint16_t status = cmd_io_find_ns(request);

	if (status)
		return status;
	if (!cmd_reservation_host_known(request->conn))
		return NVME_SC_OPERATION_DENIED | NVME_STATUS_DNR;
	request->data_len = data_len;
	return 0;
}

static void cmd_reservation_run(struct request *request, enum reservation_op op)
{
	const struct nvme_cmd_reservation *fields = &request->cmd.reservation;
	const struct nvme_reservation_keys *keys = request->bytes;
	struct reservation_task *task = reservation_task_create(request);

	if (!task) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	task->done = cmd_reservation_done;
	task->command.op = op;
	task->command.action = fields->action & NVME_RESERVATION_ACTION_MASK;
	task->command.iekey = fields->action & NVME_RESERVATION_IEKEY;
	task->command.cptpl = CMD_RESERVATION_CPTPL(fields->cptpl);
	task->command.type = fields->rtype;
	task->command.crkey = le64_get(keys->crkey);
	if (op != RESERVATION_RELEASE)
		task->command.key = le64_get(keys->key);
	reservation_task_send(task, request);
}

/* --- Register, Acquire, Release -------------------------------------------------------------- */

static uint16_t cmd_register_prepare(struct request *request)
{
	uint16_t status = cmd_reservation_prepare(request, sizeof(struct nvme_reservation_keys));
	uint8_t cptpl = CMD_RESERVATION_CPTPL(request->cmd.reservation.cptpl);

	if (status)
		return status;
	if (cptpl == 1 || (cptpl == RESERVATION_CPTPL_SET && !request->ns->ns.may_persist))
		return CMD_INVALID_FIELD;
	return 0;
}

static void cmd_register_run(struct request *request)
{
	cmd_reservation_run(request, RESERVATION_REGISTER);
}

const struct cmd cmd_reservation_register = {
	.name = "Reservation Register",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_register_prepare,
	.run = cmd_register_run,
};

static uint16_t cmd_acquire_prepare(struct request *request)
{
	return cmd_reservation_prepare(request, sizeof(struct nvme_reservation_keys));
}

static void cmd_acquire_run(struct request *request)
{
	cmd_reservation_run(request, RESERVATION_ACQUIRE);
}

const struct cmd cmd_reservation_acquire = {
	.name = "Reservation Acquire",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_acquire_prepare,
	.run = cmd_acquire_run,
};

/* One key only. */
static uint16_t cmd_release_prepare(struct request *request)
{
	return cmd_reservation_prepare(request, sizeof(le64_t));
}

static void cmd_release_run(struct request *request)
{
	cmd_reservation_run(request, RESERVATION_RELEASE);
}

const struct cmd cmd_reservation_release = {
	.name = "Reservation Release",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_release_prepare,
	/* Linux sends as much as with the others. */
	.max_len = sizeof(struct nvme_reservation_keys),
	.run = cmd_release_run,
};

/* --- Report ---------------------------------------------------------------------------------- */

static uint16_t cmd_report_prepare(struct request *request)
{
	const struct nvme_cmd_reservation_report *report = &request->cmd.reservation_report;
	uint64_t length = (le32_get(report->numd) + 1ull) * 4;
	uint16_t status = cmd_io_find_ns(request);

	if (status)
		return status;
	/* The shorter form has no room for identifiers of 128 bits, which are all there are. */
	if (!(report->eds & NVME_RESERVATION_REPORT_EDS))
		return NVME_SC_HOSTID_FORMAT | NVME_STATUS_DNR;
	if (length > request->conn->transfer_max)
		return CMD_INVALID_FIELD;
	request->data_len = (uint32_t)length;
	return 0;
}

static void cmd_report_run(struct request *request)
{
	struct reservation_task *task = reservation_task_create(request);

	if (!task) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	task->done = cmd_reservation_done;
	task->report = true;
	reservation_task_send(task, request);
}

const struct cmd cmd_reservation_report = {
	.name = "Reservation Report",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_report_prepare,
	.run = cmd_report_run,
};

/* --- Reservation Persistence (NVMe base 2.0 5.27.1.27) --------------------------------------- */

uint32_t cmd_persistence_get(const struct request *request, uint32_t nsid)
{
	const struct reactor *reactor = request->conn->reactor;
	const struct reactor_ns *ns = reactor_ns_find(reactor, request->conn->subsys, nsid);

	return ns && ns->ns.reservation->seen[reactor->index]->ptpl;
}

static bool cmd_persistence_set_next(struct request *request);

static void cmd_persistence_set_one(struct request *request, uint16_t status)
{
	if (!request_executed(request))
		return;
	if (status || !cmd_persistence_set_next(request))
		request_complete(request, status);
}

/* The next of the namespaces that are meant (request->nr_parts counts them). False: there is none.
 */
static bool cmd_persistence_set_next(struct request *request)
{
	const struct subsys *subsys = request->conn->subsys;
	uint32_t wanted = le32_get(request->cmd.nsid);
	bool persist = le32_get(request->cmd.features.cdw11) & NVME_RESERVATION_PTPL;
	struct reservation_task *task;
	uint32_t nsid = request->nr_parts;

	while (nsid < subsys->ns_limit &&
		(!subsys->ns[nsid] ||
			(wanted == NVME_NSID_ALL ? persist && !subsys->ns[nsid]->may_persist
						 : nsid != wanted)))
		nsid++;
	if (nsid >= subsys->ns_limit)
		return false;
	request->nr_parts = nsid + 1;
	request_set_ns(request, reactor_ns_find(request->conn->reactor, subsys, nsid));
	task = reservation_task_create(request);
	if (!task) {
		request_complete(request, NVME_SC_INTERNAL);
		return true;
	}
	task->done = cmd_persistence_set_one;
	task->command.op = RESERVATION_PERSISTENCE;
	task->command.cptpl = persist ? RESERVATION_CPTPL_SET : RESERVATION_CPTPL_CLEAR;
	reservation_task_send(task, request);
	return true;
}

void cmd_persistence_set(struct request *request)
{
	const struct ns *ns = subsys_ns(request->conn->subsys, le32_get(request->cmd.nsid));
	uint32_t value = le32_get(request->cmd.features.cdw11);

	if ((value & ~NVME_RESERVATION_PTPL) ||
		(ns && !ns->may_persist && (value & NVME_RESERVATION_PTPL)))
		request_complete(request, CMD_INVALID_FIELD);
	else if (!cmd_persistence_set_next(request))
		request_complete(request, 0);
}
