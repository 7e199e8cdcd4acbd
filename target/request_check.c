/* SPDX-License-Identifier: MIT */
/*
 * What is checked of any command before it runs: that it may come now, its flags, its SGL.
 */
#include "target/request_steps.h"

#include "proto/nvme/identify.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/transport.h"

/* NVMe base 2.0 3.3.2: before anything else come Connect and, if the host must, its proof. */
static uint16_t request_check_early(const struct request *request)
{
	const struct cmd *command = request->command;

	if (request->conn->auth.due)
		return command && command->before_proof ? 0
							: NVME_SC_AUTH_REQUIRED | NVME_STATUS_DNR;
	return command && command->before_connect ? 0 : NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
}

static uint16_t request_check_state(const struct request *request)
{
	const struct conn *conn = request->conn;
	const struct cmd *command = request->command;

	if (!conn->connected)
		return request_check_early(request);
	/* An I/O queue exists only while its controller is ready. */
	if (conn->qid)
		return command ? 0 : NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	ctrl_alive(conn->member.ctrl);
	if (!command)
		return NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	if (!command->before_ready && !ctrl_ready(conn->member.ctrl))
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	return 0;
}

/* NVMe base 2.0 3.3.1.1: PRPs do not occur here. 3.4.2: fused are only commands that can be. */
static uint16_t request_check_flags(const struct request *request)
{
	uint8_t flags = request->cmd.flags;
	bool sgl = (flags & NVME_CMD_PSDT_MASK) == NVME_CMD_PSDT_SGL;

	return sgl && (flags & NVME_CMD_FUSE_MASK) == request->command->fuse ? 0
									     : CMD_INVALID_FIELD;
}

/* Over TCP fabrics commands may always bring 8 KiB (NVMe TCP 1.0c 3.3.2.1), on I/O queues
 * authentication does. */
static uint32_t request_in_capsule_max(const struct request *request)
{
	const struct conn *conn = request->conn;

	if (likely(request->cmd.opcode != NVME_OPC_FABRICS))
		return conn->in_capsule_max;
	return max_of(conn->in_capsule_max, conn->ops->admin_in_capsule);
}

static uint16_t request_check_sgl(struct request *request)
{
	const struct conn *conn = request->conn;
	const struct cmd *command = request->command;
	const struct nvme_sgl_limits limits = {
		.in_capsule_max = request_in_capsule_max(request),
		.msdbd = conn->msdbd,
		.keyed = conn->ops->sgls & NVME_ID_SGLS_KEYED,
	};
	uint16_t status = nvme_sgl_parse(
		&request->cmd, request->inline_bytes, request->inline_len, &limits, &request->sgl);
	uint32_t max_len;

	if (status)
		return status;
	if (request->sgl.place == NVME_SGL_IN_CAPSULE) {
		if (command->direction != REQUEST_FROM_HOST)
			return CMD_INVALID_FIELD;
		/* Only what is in memory already can be found at an offset. */
		if (!request->inline_bytes && request->sgl.piece[0].addr)
			return NVME_SC_SGL_OFFSET_INVALID | NVME_STATUS_DNR;
	}
	max_len = max_of(request->data_len, command->max_len);
	if (request->sgl.len < request->data_len || request->sgl.len > max_len)
		return NVME_SC_SGL_DATA_LEN_INVALID | NVME_STATUS_DNR;
	request->data_len = (uint32_t)request->sgl.len;
	return 0;
}

uint16_t request_check(struct request *request)
{
	const struct cmd *command = request->command;
	uint16_t status = request_check_state(request);

	if (!status)
		status = request_check_flags(request);
	if (status)
		return status;
	request->direction = command->direction;
	if (command->prepare)
		status = command->prepare(request);
	if (!status && request->data_len)
		status = request_check_sgl(request);
	return status;
}
