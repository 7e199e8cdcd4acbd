/* SPDX-License-Identifier: MIT */
/*
 * Commands on the admin queue: the library's own and, as bounded operations, the caller's.
 */
#include "initiator/admin.h"

#include <errno.h>
#include <string.h>

#include "proto/nvme/status.h"
#include "initiator/queue.h"

int request_result(const struct haul_request *request, uint16_t *ret_status)
{
	*ret_status = request->result ? 0 : nvme_cqe_status(&request->cqe);
	if (request->result)
		return request->result;
	return likely(!*ret_status) ? 0 : nvme_status_to_errno(*ret_status);
}

int admin_send(struct haul_ctrl *ctrl, const struct nvme_cmd *cmd, void *bytes, uint32_t len,
	int to_host, uint32_t timeout_ms, void (*completed)(struct haul_request *request),
	void *context)
{
	struct haul_request *request;

	if (!ctrl->admin || ctrl->admin->state != HAUL_QUEUE_LIVE)
		return -ENOTCONN;
	request = queue_request_get(ctrl->admin);
	if (!request)
		return -EAGAIN;
	request->cmd = *cmd;
	request->cmd.flags = NVME_CMD_PSDT_SGL;
	request->to_host = to_host;
	request->data_len = len;
	request->iov[0] = (struct iovec){bytes, len};
	request->nr_iov = len ? 1 : 0;
	request->completed = completed;
	request->context = context;
	queue_request_send(request, timeout_ms * NS_PER_MS);
	return 0;
}

struct nvme_cmd admin_cmd_identify(uint8_t cns, uint32_t nsid, uint8_t csi)
{
	return (struct nvme_cmd){.opcode = NVME_OPC_IDENTIFY,
		.nsid = le32(nsid),
		.identify = {.cns = cns, .csi = csi}};
}

struct nvme_cmd admin_cmd_property_get(uint32_t offset, bool is_8_bytes)
{
	return (struct nvme_cmd){.opcode = NVME_OPC_FABRICS,
		.fctype = NVME_FCTYPE_PROPERTY_GET,
		.property = {.attrib = is_8_bytes ? NVME_PROPERTY_8_BYTES : NVME_PROPERTY_4_BYTES,
			.ofst = le32(offset)}};
}

struct nvme_cmd admin_cmd_property_set(uint32_t offset, uint64_t value)
{
	return (struct nvme_cmd){.opcode = NVME_OPC_FABRICS,
		.fctype = NVME_FCTYPE_PROPERTY_SET,
		.property = {.attrib = NVME_PROPERTY_4_BYTES,
			.ofst = le32(offset),
			.value = le64(value)}};
}

/* --- the caller's operations --------------------------------------------------------------- */

static void admin_op_taken(struct haul_pending *pending)
{
	admin_op_drop(container_of(pending, struct admin_op, pending));
}

struct admin_op *admin_op_get(struct haul_ctrl *ctrl, uint64_t user_data)
{
	uint32_t index = slots_get(&ctrl->op_slots);
	struct admin_op *op;

	if (index == SLOTS_NONE)
		return NULL;
	op = &ctrl->ops_pool[index];
	pending_init(&op->pending, user_data, admin_op_taken);
	return op;
}

void admin_op_drop(struct admin_op *op)
{
	slots_put(&op->ctrl->op_slots, (uint32_t)(op - op->ctrl->ops_pool));
}

void admin_op_end(struct admin_op *op, int result, uint16_t status, uint64_t value)
{
	pending_end(op->ctrl->hl, &op->pending, result, status, value);
}

static void admin_answered(struct haul_request *request)
{
	uint16_t status;
	int result = request_result(request, &status);

	admin_op_end(request->context, result, status,
		request->result ? 0 : le64_get(request->cqe.property));
}

/* What would upset the library's own bookkeeping of the association. */
static bool admin_is_ours(uint8_t opcode)
{
	return opcode == NVME_OPC_KEEP_ALIVE || opcode == NVME_OPC_ASYNC_EVENT_REQUEST ||
	       opcode == NVME_OPC_FABRICS;
}

int haul_admin(struct haul_ctrl *ctrl, uint8_t opcode, uint32_t nsid, const uint32_t cdw[6],
	void *bytes, uint32_t data_len, int to_host, uint64_t user_data)
{
	struct nvme_cmd cmd = {.opcode = opcode,
		.nsid = le32(nsid),
		.cdw10 = le32(cdw[0]),
		.cdw11 = le32(cdw[1]),
		.cdw12 = le32(cdw[2]),
		.cdw13 = le32(cdw[3]),
		.cdw14 = le32(cdw[4]),
		.cdw15 = le32(cdw[5])};
	struct admin_op *op;
	int error;

	if (ctrl->state != CTRL_LIVE)
		return -ENOTCONN;
	if (admin_is_ours(opcode) || data_len % 4 || data_len > ctrl->limits.max_transfer_bytes)
		return -EINVAL;
	op = admin_op_get(ctrl, user_data);
	if (!op)
		return -EAGAIN;
	error = admin_send(ctrl, &cmd, bytes, data_len, to_host, ctrl->options.command_timeout_ms,
		admin_answered, op);
	if (error)
		admin_op_drop(op);
	return error;
}
