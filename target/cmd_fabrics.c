/* SPDX-License-Identifier: MIT */
/*
 * Fabrics commands (NVMe base 2.0 chapter 6): Connect, properties, Disconnect; the rest is in
 * target/auth.c.
 */
#include "target/cmd.h"

#include <string.h>

#include "target/cmd_connect.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/fence.h"
#include "target/subsys.h"
#include "target/subsys_reset.h"

static uint16_t cmd_property_prepare(struct request *request)
{
	return request->conn->qid ? NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR : 0;
}

static bool cmd_property_value(
	const struct ctrl *ctrl, uint32_t offset, uint64_t *ret_value, unsigned *ret_size)
{
	*ret_size = NVME_PROPERTY_4_BYTES;
	switch (offset) {
	case NVME_PROPERTY_CAP:
		*ret_size = NVME_PROPERTY_8_BYTES;
		*ret_value = ctrl_cap(ctrl);
		return true;
	case NVME_PROPERTY_VS:
		*ret_value = CTRL_VERSION;
		return true;
	case NVME_PROPERTY_CC:
		*ret_value = ctrl->cc;
		return true;
	case NVME_PROPERTY_CSTS:
		*ret_value = ctrl_csts(ctrl);
		return true;
	case NVME_PROPERTY_NSSR:
		*ret_value = 0;
		return ctrl_may_reset_subsys(ctrl);
	case NVME_PROPERTY_CRTO:
		*ret_value = NVME_CRTO_CRWMT(CTRL_CAP_TO);
		return true;
	default:
		return false;
	}
}

static void cmd_property_get_run(struct request *request)
{
	const struct nvme_property *property = &request->cmd.property;
	struct ctrl *ctrl = request->conn->member.ctrl;
	uint64_t value;
	unsigned size;

	if (!cmd_property_value(ctrl, le32_get(property->ofst), &value, &size) ||
		(property->attrib & NVME_PROPERTY_ATTRIB_SIZE) != size) {
		request_complete(request, CMD_INVALID_FIELD);
		return;
	}
	request->cqe.property = le64(value);
	request_complete(request, 0);
}

/* A shutdown is complete, and its Property Set answered, when all that was written is on the media
 * (NVMe base 2.0 3.6). What a disk refuses now it cannot be asked for again. */
static void cmd_shutdown_next(struct request *request);

static void cmd_shutdown_flushed(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	if (res)
		conn_log(request->conn, "a disk could not be flushed at shutdown: %s",
			strerror(-res));
	cmd_shutdown_next(request);
}

static void cmd_shutdown_next(struct request *request)
{
	if (cmd_flush_next(request, cmd_shutdown_flushed))
		return;
	ctrl_shutdown_done(request->conn->member.ctrl);
	request_complete(request, 0);
}

/* CSTS.RDY comes when nothing of an earlier association can be written any more. */
static void cmd_enabled(struct request *request, bool late)
{
	ctrl_enabled(request->conn->member.ctrl, late);
	if (request_executed(request))
		request_complete(request, 0);
}

void cmd_property_go_on(struct request *request)
{
	const struct nvme_property *property = &request->cmd.property;
	struct ctrl *ctrl = request->conn->member.ctrl;
	bool enable = !NVME_CC_SHN((uint32_t)le64_get(property->value));

	if (enable && ctrl->subsys->discovery)
		cmd_enabled(request, false);
	else if (enable)
		fence_start(ctrl, request, cmd_enabled);
	else if (request_executed(request))
		cmd_shutdown_next(request);
}

static void cmd_property_set_cc(struct request *request, struct ctrl *ctrl, uint32_t value)
{
	switch (ctrl_set_cc(ctrl, value)) {
	case CTRL_TASK_NONE:
		request_complete(request, 0);
		break;
	case CTRL_TASK_ENABLE:
	case CTRL_TASK_SHUT_DOWN:
		request_hand_to(request, REQUEST_EXEC);
		if (ctrl->nr_members)
			list_push_back(&ctrl->parked, &request->node);
		else
			cmd_property_go_on(request);
		break;
	}
}

/* NVMe base 2.0 3.1.3.6: NSSRO is cleared by writing 1 to it; the rest is read only. */
static void cmd_property_set_csts(struct request *request, struct ctrl *ctrl, uint32_t value)
{
	if (value & NVME_CSTS_NSSRO)
		ctrl->nssro = false;
	request_complete(request, 0);
}

/* NVMe base 2.0 3.1.3.7: other values do nothing. */
static void cmd_property_set_nssr(struct request *request, uint32_t value)
{
	if (value == NVME_NSSR_RESET)
		subsys_reset(request);
	else
		request_complete(request, 0);
}

static void cmd_property_set_run(struct request *request)
{
	const struct nvme_property *property = &request->cmd.property;
	struct ctrl *ctrl = request->conn->member.ctrl;
	uint32_t offset = le32_get(property->ofst);
	uint32_t value = (uint32_t)le64_get(property->value);
	bool whole = (property->attrib & NVME_PROPERTY_ATTRIB_SIZE) == NVME_PROPERTY_4_BYTES;

	if (whole && offset == NVME_PROPERTY_CC)
		cmd_property_set_cc(request, ctrl, value);
	else if (whole && offset == NVME_PROPERTY_CSTS && ctrl_may_reset_subsys(ctrl))
		cmd_property_set_csts(request, ctrl, value);
	else if (whole && offset == NVME_PROPERTY_NSSR && ctrl_may_reset_subsys(ctrl))
		cmd_property_set_nssr(request, value);
	else
		request_complete(request, CMD_INVALID_FIELD);
}

static uint16_t cmd_disconnect_prepare(struct request *request)
{
	/* NVMe base 2.0 6.4: only an I/O queue is disconnected by a command. */
	if (request->conn->qid == 0)
		return NVME_SC_DISCONNECT_INVALID_QUEUE_TYPE | NVME_STATUS_DNR;
	if (le16_get(request->cmd.disconnect.recfmt) != NVME_DISCONNECT_RECFMT)
		return NVME_SC_CONNECT_FORMAT | NVME_STATUS_DNR;
	return 0;
}

static void cmd_disconnect_run(struct request *request)
{
	request->conn->connected = false;
	request->conn->leaves = true;
	request_complete(request, 0);
}

static const struct cmd cmd_connect = {
	.name = "Connect",
	.direction = REQUEST_FROM_HOST,
	.before_connect = true,
	.before_ready = true,
	.prepare = cmd_connect_prepare,
	.run = cmd_connect_run,
};

static const struct cmd cmd_property_get = {
	.name = "Property Get",
	.before_ready = true,
	.prepare = cmd_property_prepare,
	.run = cmd_property_get_run,
};

static const struct cmd cmd_property_set = {
	.name = "Property Set",
	.before_ready = true,
	.prepare = cmd_property_prepare,
	.run = cmd_property_set_run,
};

static const struct cmd cmd_disconnect = {
	.name = "Disconnect",
	.before_ready = true,
	.prepare = cmd_disconnect_prepare,
	.ends_queue = true,
	.run = cmd_disconnect_run,
};

const struct cmd *cmd_fabrics_find(uint8_t fctype)
{
	switch (fctype) {
	case NVME_FCTYPE_CONNECT:
		return &cmd_connect;
	case NVME_FCTYPE_PROPERTY_GET:
		return &cmd_property_get;
	case NVME_FCTYPE_PROPERTY_SET:
		return &cmd_property_set;
	case NVME_FCTYPE_AUTH_SEND:
		return &cmd_auth_send;
	case NVME_FCTYPE_AUTH_RECV:
		return &cmd_auth_receive;
	case NVME_FCTYPE_DISCONNECT:
		return &cmd_disconnect;
	default:
		return NULL;
	}
}
