/* SPDX-License-Identifier: MIT */
/*
 * The Connect command of a queue, admin or I/O, and what its answer means.
 */
#include "initiator/queue.h"

#include <errno.h>
#include <string.h>

#include "proto/nvme/status.h"

/* Connect's codes share their values with those of other commands (NVMe-oF 6.3). */
static const struct {
	uint16_t code;
	int error;
	const char *text;
} queue_connect_errors[] = {
	{NVME_SC_CONNECT_FORMAT, -EPROTO, "the target does not know the format of our Connect"},
	{NVME_SC_CONNECT_BUSY, -EBUSY,
		"the controller is busy or out of resources; try again later"},
	{NVME_SC_CONNECT_INVALID_PARAM, -EINVAL,
		"the target refuses a parameter; is the subsystem's NQN right? try haul discover"},
	{NVME_SC_CONNECT_RESTART_DISCOVERY, -EAGAIN,
		"the target asks for discovery to be repeated; try haul discover"},
	{NVME_SC_CONNECT_INVALID_HOST, -EACCES,
		"this host's NQN is not on the subsystem's list of allowed hosts"},
};

static int queue_connect_refused(uint16_t status, const char **ret_text)
{
	for (size_t i = 0; i < ARRAY_SIZE(queue_connect_errors); i++)
		if (queue_connect_errors[i].code == (status & NVME_STATUS_CODE_MASK)) {
			*ret_text = queue_connect_errors[i].text;
			return queue_connect_errors[i].error;
		}
	*ret_text = nvme_status_str(status);
	return nvme_status_to_errno(status);
}

static int queue_connect_check(
	const struct haul_queue *queue, const struct nvme_cqe *cqe, const char **ret_text)
{
	uint16_t cntlid = le16_get(cqe->connect_ok.cntlid);
	uint16_t status = nvme_cqe_status(cqe);

	if (status)
		return queue_connect_refused(status, ret_text);
	if (le16_get(cqe->connect_ok.authreq)) {
		*ret_text = "the target demands authentication, which haul cannot do";
		return -EOPNOTSUPP;
	}
	if (queue->qid ? cntlid != queue->ctrl->cntlid : cntlid > NVME_CNTLID_MAX) {
		*ret_text = "Connect was answered with a wrong controller id";
		return -EPROTO;
	}
	return 0;
}

static void queue_connect_answered(struct haul_request *request)
{
	struct haul_queue *queue = request->queue;
	const char *why = "the connection was lost during Connect";
	int result = request->result;

	if (queue->state != HAUL_QUEUE_FABRICS)
		return;
	if (!result)
		result = queue_connect_check(queue, &request->cqe, &why);
	if (result) {
		ctrl_queue_lost(queue, result, why);
		return;
	}
	if (!queue->qid)
		queue->ctrl->cntlid = le16_get(request->cqe.connect_ok.cntlid);
	loop_timer_cancel(queue->loop, &queue->timeout_timer);
	queue->state = HAUL_QUEUE_LIVE;
	ctrl_queue_live(queue);
}

void queue_send_connect(struct haul_queue *queue)
{
	struct haul_ctrl *ctrl = queue->ctrl;
	struct haul_request *request = queue_request_get(queue);
	struct nvme_connect_data *data = queue->connect_data;

	memcpy(data->hostid, ctrl->host_id.b, sizeof(data->hostid));
	data->cntlid = le16(queue->qid ? ctrl->cntlid : NVME_CNTLID_DYNAMIC);
	memcpy(data->subnqn, ctrl->nqn, strlen(ctrl->nqn));
	memcpy(data->hostnqn, ctrl->host_nqn, strlen(ctrl->host_nqn));
	request->cmd.opcode = NVME_OPC_FABRICS;
	request->cmd.fctype = NVME_FCTYPE_CONNECT;
	request->cmd.connect.recfmt = le16(NVME_CONNECT_RECFMT);
	request->cmd.connect.qid = le16(queue->qid);
	request->cmd.connect.sqsize = le16((uint16_t)queue->depth);
	/* While looking for a subsystem the discovery log is read at once and needs no keep-alive.
	 */
	if (!queue->qid && !ctrl->lookup)
		request->cmd.connect.kato = le32(ctrl->options.keep_alive_ms);
	request->to_host = 0;
	request->data_len = sizeof(*data);
	request->iov[0] = (struct iovec){data, sizeof(*data)};
	request->nr_iov = 1;
	request->completed = queue_connect_answered;
	queue_request_send(request, 0);
}
