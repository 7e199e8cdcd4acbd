/* SPDX-License-Identifier: MIT */
/*
 * Requests on an NVMe/TCP connection: commands, their data both ways, responses.
 *
 * A request is done when the target has answered and nothing of the caller's memory is in the
 * stream's hands: data to the host is received to its end before the answer counts, and of data to
 * the target the transmit must have completed.
 */
#include "initiator/transport_tcp.h"

#include <string.h>

#include "proto/nvme/status.h"

/* --- sending --------------------------------------------------------------------------------- */

static enum tcp_built tcp_build_command(struct tcp_stream *stream, struct haul_request *request)
{
	struct tcp_request *tr = tcp_request(request);
	uint32_t data_len = tr->in_capsule ? request->data_len : 0;
	struct nvme_tcp_capsule_cmd *capsule =
		tcp_stream_put_header(stream, NVME_TCP_CAPSULE_CMD, 0, sizeof(*capsule), data_len);

	capsule->cmd = request->cmd;
	tcp_stream_seal_header(capsule);
	tr->built = true;
	if (!data_len)
		return TCP_BUILT_COPIED;
	tcp_stream_put_data(stream, request->iov, 0, data_len);
	tr->lent = true;
	return TCP_BUILT_LENT;
}

static void tcp_build_h2c_data(
	struct haul_transport_queue *tq, struct haul_request *request, uint32_t len)
{
	struct tcp_request *tr = tcp_request(request);
	uint8_t flags = len == tr->r2t_left ? NVME_TCP_LAST_PDU : 0;

	tcp_stream_put_data_pdu(
		&tq->stream, flags, request->cmd.cid, tr->ttag, request->iov, tr->r2t_offset, len);
	tr->r2t_offset += len;
	tr->r2t_left -= len;
}

/* As much of what the R2T asks for as the batch takes; the rest follows when that has been sent. */
static enum tcp_built tcp_build_data(struct haul_transport_queue *tq, struct haul_request *request)
{
	struct tcp_request *tr = tcp_request(request);

	do
		tcp_build_h2c_data(tq, request, min_of(tr->r2t_left, tq->maxh2cdata));
	while (tr->r2t_left && tcp_stream_has_room(&tq->stream));
	tr->lent = true;
	return TCP_BUILT_LENT;
}

enum tcp_built tcp_queue_build(struct haul_transport_queue *tq, struct haul_request *request)
{
	if (tcp_request(request)->send == TCP_SEND_COMMAND)
		return tcp_build_command(&tq->stream, request);
	return tcp_build_data(tq, request);
}

void tcp_queue_sent(struct tcp_stream *stream, struct tcp_item *item)
{
	struct haul_request *request = tcp_request_of_item(item);
	struct tcp_request *tr = tcp_request(request);

	tr->lent = false;
	if (tr->answered) {
		/* REQUEST may be another command as soon as it is done. */
		struct nvme_cqe cqe = tr->cqe;

		haul_request_done(request, 0, &cqe);
	} else if (tr->r2t_left) {
		tcp_stream_send(stream, item);
	}
}

/* Connect's data goes in-capsule whatever the limit of the queue will be (NVMe TCP 1.0c 3.3.2). */
static bool tcp_fits_capsule(const struct haul_queue *queue, const struct haul_request *request)
{
	uint32_t limit = queue->in_capsule_bytes;

	if (request->cmd.opcode == NVME_OPC_FABRICS)
		limit = NVME_TCP_ADMIN_IN_CAPSULE;
	return request->data_len && !request->to_host && request->data_len <= limit;
}

void tcp_queue_submit(struct haul_queue *queue, struct haul_request *request)
{
	struct haul_transport_queue *tq = queue->transport;
	struct tcp_request *tr = tcp_request(request);

	memset(tr, 0, sizeof(*tr));
	tcp_item_init(&tr->item);
	tr->send = TCP_SEND_COMMAND;
	tr->in_capsule = tcp_fits_capsule(queue, request);
	request->cmd.flags |= NVME_CMD_PSDT_SGL;
	request->cmd.sgl = tr->in_capsule ? nvme_sgl_in_capsule(0, request->data_len)
					  : nvme_sgl_transport(request->data_len);
	tcp_stream_send(&tq->stream, &tr->item);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* The command that a PDU is about: one that has been sent. NULL: the target has been told. */
static struct haul_request *tcp_request_of_pdu(struct haul_transport_queue *tq, uint16_t cid,
	size_t cid_offset, const void *header, size_t header_len)
{
	struct haul_request *request = haul_queue_request_by_cid(tq->queue, cid);

	if (likely(request && tcp_request(request)->built))
		return request;
	tcp_stream_terminate(&tq->stream, NVME_TCP_FES_INVALID_HEADER_FIELD, cid_offset, header,
		header_len, "no command with this identifier is out");
	return NULL;
}

static void tcp_answered(struct haul_request *request, const struct nvme_cqe *cqe)
{
	struct tcp_request *tr = tcp_request(request);

	tr->cqe = *cqe;
	/* Bad data must not be taken for good; sending the command again may help. */
	if (tr->digest_failed && !nvme_cqe_status(cqe))
		nvme_cqe_set_status(&tr->cqe, NVME_SC_TRANSIENT_TRANSPORT);
	tr->r2t_left = 0;
	if (tr->lent) {
		tr->answered = true;
		return;
	}
	/* It may be queued with data that the target has no use for any more. */
	list_remove(&tr->item.node);
	haul_request_done(request, 0, &tr->cqe);
}

/* A success is only believed when all data has moved. */
static bool tcp_data_is_missing(const struct haul_request *request, const struct tcp_request *tr)
{
	if (!request->data_len || tr->in_capsule)
		return false;
	if (request->to_host)
		return tr->received != request->data_len;
	return tr->asked != request->data_len || tr->r2t_left;
}

void tcp_queue_received_resp(
	struct haul_transport_queue *tq, const struct nvme_tcp_capsule_resp *resp)
{
	struct haul_request *request = tcp_request_of_pdu(tq, le16_get(resp->cqe.cid),
		offsetof(struct nvme_tcp_capsule_resp, cqe.cid), resp, sizeof(*resp));

	if (!request)
		return;
	if (tcp_request(request)->answered) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_SEQUENCE, 0, resp, sizeof(*resp),
			"a command has been answered twice");
		return;
	}
	if (!nvme_cqe_status(&resp->cqe) && tcp_data_is_missing(request, tcp_request(request))) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_SEQUENCE, 0, resp, sizeof(*resp),
			"a command ended well without all of its data");
		return;
	}
	tcp_answered(request, &resp->cqe);
}

void tcp_queue_received_data(
	struct haul_transport_queue *tq, const struct nvme_tcp_data *data, uint32_t data_len)
{
	struct haul_request *request = tcp_request_of_pdu(tq, le16_get(data->cccid),
		offsetof(struct nvme_tcp_data, cccid), data, sizeof(*data));
	uint64_t end = (uint64_t)le32_get(data->datao) + data_len;
	struct tcp_request *tr;

	if (!request)
		return;
	tr = tcp_request(request);
	if (le32_get(data->datal) != data_len) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_INVALID_HEADER_FIELD,
			offsetof(struct nvme_tcp_data, datal), data, sizeof(*data),
			"the data has another length");
		return;
	}
	if (!request->to_host || le32_get(data->datao) != tr->received || end > request->data_len ||
		((data->ch.flags & NVME_TCP_LAST_PDU) && end != request->data_len)) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_OUT_OF_RANGE, 0, data, sizeof(*data),
			"the data is not what the command asked for");
		return;
	}
	tq->filling = request;
	tq->success = data->ch.flags & NVME_TCP_SUCCESS;
	tcp_stream_receive(&tq->stream, request->iov, tr->received, data_len);
	tr->received += data_len;
}

void tcp_queue_data_received(struct tcp_stream *stream, bool intact)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);
	struct haul_request *request = tq->filling;
	struct nvme_cqe cqe = {0};

	tq->filling = NULL;
	if (!request)
		return;
	if (!intact)
		tcp_request(request)->digest_failed = true;
	if (!tq->success)
		return;
	cqe.cid = request->cmd.cid;
	tcp_answered(request, &cqe);
}

void tcp_queue_received_r2t(struct haul_transport_queue *tq, const struct nvme_tcp_r2t *r2t)
{
	struct haul_request *request = tcp_request_of_pdu(
		tq, le16_get(r2t->cccid), offsetof(struct nvme_tcp_r2t, cccid), r2t, sizeof(*r2t));
	uint64_t offset = le32_get(r2t->r2to), len = le32_get(r2t->r2tl);
	struct tcp_request *tr;

	if (!request)
		return;
	tr = tcp_request(request);
	if (tr->r2t_left) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_LIMIT_EXCEEDED, 0, r2t, sizeof(*r2t),
			"a second R2T for a command, of which only one may be out");
		return;
	}
	if (request->to_host || tr->in_capsule || tr->answered || offset != tr->asked || !len ||
		offset + len > request->data_len) {
		tcp_stream_terminate(&tq->stream, NVME_TCP_FES_OUT_OF_RANGE, 0, r2t, sizeof(*r2t),
			"the R2T asks for data the command does not have");
		return;
	}
	tr->ttag = le16_get(r2t->ttag);
	tr->r2t_offset = (uint32_t)offset;
	tr->r2t_left = (uint32_t)len;
	tr->asked += (uint32_t)len;
	tr->send = TCP_SEND_DATA;
	/* The last data of the R2T before may still be on its way: it goes on from there. */
	if (!tr->lent)
		tcp_stream_send(&tq->stream, &tr->item);
}
