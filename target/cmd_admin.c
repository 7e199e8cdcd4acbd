/* SPDX-License-Identifier: MIT */
/*
 * Admin commands of I/O and discovery controllers, and the choice of the table.
 */
#include "target/cmd.h"

#include "target/conn.h"
#include "target/ctrl.h"
#include "target/fused.h"
#include "target/event.h"
#include "target/subsys.h"

/* That it has come is what counts, as it does of any admin command: request_check_state(). */
void cmd_keep_alive_run(struct request *request)
{
	request_complete(request, 0);
}

void cmd_async_event_run(struct request *request)
{
	event_hold_request(request->conn->member.ctrl, request);
}

static const struct cmd cmd_identify = {
	.name = "Identify",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_identify_prepare,
	.run = cmd_identify_run,
};

static const struct cmd cmd_get_log = {
	.name = "Get Log Page",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_get_log_prepare,
	.run = cmd_get_log_run,
};

static const struct cmd cmd_set_features = {
	.name = "Set Features",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_set_features_prepare,
	.run = cmd_set_features_run,
};

static const struct cmd cmd_get_features = {
	.name = "Get Features",
	.direction = REQUEST_TO_HOST,
	.prepare = cmd_get_features_prepare,
	.run = cmd_get_features_run,
};

static const struct cmd cmd_keep_alive = {
	.name = "Keep Alive",
	.run = cmd_keep_alive_run,
};

static const struct cmd cmd_async_event = {
	.name = "Asynchronous Event Request",
	.run = cmd_async_event_run,
};

static const struct cmd cmd_abort = {
	.name = "Abort",
	.run = cmd_abort_run,
};

/* The commands that both kinds of controllers have. */
const struct cmd *cmd_discovery_find(uint8_t opcode)
{
	switch (opcode) {
	case NVME_OPC_IDENTIFY:
		return &cmd_identify;
	case NVME_OPC_GET_LOG_PAGE:
		return &cmd_get_log;
	case NVME_OPC_SET_FEATURES:
		return &cmd_set_features;
	case NVME_OPC_GET_FEATURES:
		return &cmd_get_features;
	case NVME_OPC_KEEP_ALIVE:
		return &cmd_keep_alive;
	case NVME_OPC_ASYNC_EVENT_REQUEST:
		return &cmd_async_event;
	default:
		return NULL;
	}
}

const struct cmd *cmd_admin_find(uint8_t opcode)
{
	return opcode == NVME_OPC_ABORT ? &cmd_abort : cmd_discovery_find(opcode);
}

const struct cmd *cmd_find(const struct request *request)
{
	const struct conn *conn = request->conn;
	uint8_t opcode = request->cmd.opcode;

	if (opcode == NVME_OPC_FABRICS)
		return cmd_fabrics_find(request->cmd.fctype);
	if (!conn->connected)
		return NULL;
	if (unlikely(conn->qid && (request->cmd.flags & NVME_CMD_FUSE_MASK)))
		return fused_find(request);
	if (conn->qid)
		return cmd_io_find(opcode);
	return conn->subsys->discovery ? cmd_discovery_find(opcode) : cmd_admin_find(opcode);
}
