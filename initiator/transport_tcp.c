/* SPDX-License-Identifier: MIT */
/*
 * The initiator's end of an NVMe/TCP connection: ICReq, commands, their data both ways, responses.
 * The PDUs themselves are cut and sent by proto/link/tcp_stream.
 *
 * A request is done when the target has answered and nothing of the caller's memory is in the
 * stream's hands: data to the host is received to its end before the answer counts, and of data to
 * the target the transmit must have completed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/loop_private.h"
#include "initiator/transport.h"
#include "proto/link/address.h"
#include "proto/link/sock.h"
#include "proto/link/tcp_stream.h"
#include "proto/nvme/status.h"

enum tcp_queue_state {
	TCP_QUEUE_IDLE,
	TCP_QUEUE_CONNECTING,	/* the socket connects */
	TCP_QUEUE_INITIALIZING, /* ICReq is on its way, or ICResp */
	TCP_QUEUE_LIVE,
	TCP_QUEUE_FAILING,	 /* closes; then haul_queue_connected() with an error */
	TCP_QUEUE_DISCONNECTING, /* closes; then haul_queue_quiesced() */
	TCP_QUEUE_CLOSED,
};

#define TCP_QUEUE_WHY_BYTES 160

struct haul_transport_queue {
	struct haul_queue *queue;
	enum tcp_queue_state state;
	bool has_stream;
	struct tcp_stream stream;
	struct loop_op connect_op;
	struct loop_flush ended; /* where there is no stream to be closed */
	struct tcp_item icreq;
	uint32_t maxh2cdata;
	struct haul_request *filling; /* whose data passes through the stream */
	bool success;		      /* it is the last, and no response follows */
	int error;		      /* why it is FAILING */
	char why[TCP_QUEUE_WHY_BYTES];
};

enum tcp_send { TCP_SEND_COMMAND, TCP_SEND_DATA };

/* The transport's part of a request. */
struct tcp_request {
	struct tcp_item item;
	enum tcp_send send;
	bool in_capsule;     /* the data goes with the command */
	bool built;	     /* the command is sent, or in the batch that is */
	bool lent;	     /* the item and the caller's memory are in that batch */
	bool digest_failed;  /* of data received */
	bool answered;	     /* CQE is the answer; it waits for the end of LENT */
	uint16_t ttag;	     /* of the R2T being served */
	uint32_t received;   /* bytes, in C2HData */
	uint32_t asked;	     /* bytes, by R2Ts up to now */
	uint32_t r2t_left;   /* of the R2T being served */
	uint32_t r2t_offset; /* of the first of these */
	struct nvme_cqe cqe;
};
static_assert(sizeof(struct tcp_request) <= HAUL_REQUEST_TRANSPORT_BYTES);

static struct tcp_request *tcp_request(struct haul_request *request)
{
	return (struct tcp_request *)request->transport;
}

static struct haul_request *tcp_request_of_item(struct tcp_item *item)
{
	struct tcp_request *tr = container_of(item, struct tcp_request, item);

	return (struct haul_request *)((uintptr_t)tr - offsetof(struct haul_request, transport));
}

/* --- sending --------------------------------------------------------------------------------- */

static void tcp_build_ic_req(struct haul_transport_queue *tq)
{
	struct nvme_tcp_ic_req *req = tcp_stream_put(&tq->stream, sizeof(*req));
	const struct haul_queue *queue = tq->queue;

	*req = (struct nvme_tcp_ic_req){
		.ch = {.type = NVME_TCP_IC_REQ, .hlen = sizeof(*req), .plen = le32(sizeof(*req))},
		.pfv = le16(NVME_TCP_PFV),
		.hpda = 0,
		.dgst = nvme_tcp_dgst(queue->header_digest, queue->data_digest),
		.maxr2t = le32(0), /* one at a time */
	};
}

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

static enum tcp_built tcp_build(struct tcp_stream *stream, struct tcp_item *item)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);
	struct haul_request *request = tcp_request_of_item(item);

	if (item == &tq->icreq) {
		tcp_build_ic_req(tq);
		return TCP_BUILT_COPIED;
	}
	if (tcp_request(request)->send == TCP_SEND_COMMAND)
		return tcp_build_command(stream, request);
	return tcp_build_data(tq, request);
}

static void tcp_sent(struct tcp_stream *stream, struct tcp_item *item)
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

static void tcp_submit(struct haul_queue *queue, struct haul_request *request)
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

static void tcp_received_resp(
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

static void tcp_received_data(
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

static void tcp_data_received(struct tcp_stream *stream, bool intact)
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

static void tcp_received_r2t(struct haul_transport_queue *tq, const struct nvme_tcp_r2t *r2t)
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

/* --- the start ------------------------------------------------------------------------------- */

/* Before it was LIVE: haul_queue_connected() tells when nothing is open any more. */
static void tcp_fail_to_connect(struct haul_transport_queue *tq, int error, const char *why)
{
	tq->state = TCP_QUEUE_FAILING;
	tq->error = error;
	snprintf(tq->why, sizeof(tq->why), "%s", why);
	if (tq->has_stream)
		tcp_stream_close(&tq->stream);
	else
		loop_flush_later(tq->queue->loop, &tq->ended);
}

/* NVMe TCP 1.0c 3.6.2.3. */
static const char *tcp_ic_resp_fault(const struct haul_transport_queue *tq,
	const struct nvme_tcp_ic_resp *resp, size_t *ret_offset)
{
	const struct haul_queue *queue = tq->queue;
	uint32_t maxh2cdata = le32_get(resp->maxh2cdata);
	uint8_t asked = nvme_tcp_dgst(queue->header_digest, queue->data_digest);

	*ret_offset = offsetof(struct nvme_tcp_ic_resp, pfv);
	if (le16_get(resp->pfv) != NVME_TCP_PFV)
		return "the target speaks another version of NVMe/TCP";
	*ret_offset = offsetof(struct nvme_tcp_ic_resp, cpda);
	if (resp->cpda > NVME_TCP_PDA_MAX)
		return "the target wants data aligned in an impossible way";
	*ret_offset = offsetof(struct nvme_tcp_ic_resp, dgst);
	if (resp->dgst & ~asked)
		return "the target turned on a digest that was not asked for";
	*ret_offset = offsetof(struct nvme_tcp_ic_resp, maxh2cdata);
	if (maxh2cdata < NVME_TCP_MAXH2CDATA_MIN || maxh2cdata % 4)
		return "the target's MAXH2CDATA is not a multiple of 4 of at least 4096";
	return NULL;
}

/*
 * A digest that the target does not do ends the connect: who asks for one wants it. Not to grant it
 * is no mistake of the target's (NVMe TCP 1.0c 3.6.2.3), so nothing is terminated. RET is left
 * alone when all is granted.
 */
static int tcp_check_digests(
	const struct haul_transport_queue *tq, uint8_t granted, char *ret, size_t ret_size)
{
	static const char *const what[4][2] = {
		[NVME_TCP_DGST_HEADER] = {"header digests", "hdgst"},
		[NVME_TCP_DGST_DATA] = {"data digests", "ddgst"},
		[NVME_TCP_DGST_HEADER | NVME_TCP_DGST_DATA] = {"digests", "hdgst and ddgst"},
	};
	const struct haul_queue *queue = tq->queue;
	uint8_t missing = nvme_tcp_dgst(queue->header_digest, queue->data_digest) & ~granted;

	if (!missing)
		return 0;
	snprintf(ret, ret_size,
		"the target does no %s, which were asked for: leave %s out, or allow them at the target",
		what[missing][0], what[missing][1]);
	return -EOPNOTSUPP;
}

static void tcp_received_ic_resp(
	struct haul_transport_queue *tq, const struct nvme_tcp_ic_resp *resp)
{
	size_t offset;
	const char *fault = tcp_ic_resp_fault(tq, resp, &offset);
	char why[TCP_QUEUE_WHY_BYTES];
	int error;

	if (fault) {
		tcp_stream_terminate(&tq->stream,
			le16_get(resp->pfv) ? NVME_TCP_FES_UNSUPPORTED_PARAMETER
					    : NVME_TCP_FES_INVALID_HEADER_FIELD,
			offset, resp, sizeof(*resp), fault);
		return;
	}
	error = tcp_check_digests(tq, resp->dgst, why, sizeof(why));
	if (error) {
		tcp_fail_to_connect(tq, error, why);
		return;
	}
	tcp_stream_initialized(&tq->stream, resp->dgst, resp->cpda);
	tq->maxh2cdata = le32_get(resp->maxh2cdata);
	tq->state = TCP_QUEUE_LIVE;
	haul_queue_connected(tq->queue, 0, NULL);
}

static void tcp_ended(struct haul_transport_queue *tq, int error, const char *why)
{
	if (tq->state == TCP_QUEUE_LIVE)
		haul_queue_failed(tq->queue, error, why);
	else if (tq->state == TCP_QUEUE_INITIALIZING)
		tcp_fail_to_connect(tq, error, why);
}

static void tcp_received_term_req(
	struct haul_transport_queue *tq, const struct nvme_tcp_term_req *term)
{
	uint16_t fes = le16_get(term->fes);
	char why[TCP_QUEUE_WHY_BYTES];

	snprintf(why, sizeof(why), "the target has ended the connection: %s (%u)",
		tcp_stream_fes_text(fes), le32_get(term->fei));
	tcp_ended(tq, -ECONNRESET, why);
}

static void tcp_received(
	struct tcp_stream *stream, const struct nvme_tcp_pdu *pdu, const void *header)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);

	if (pdu->type == NVME_TCP_CAPSULE_RESP)
		tcp_received_resp(tq, header);
	else if (pdu->type == NVME_TCP_C2H_DATA)
		tcp_received_data(tq, header, pdu->data_len);
	else if (pdu->type == NVME_TCP_R2T)
		tcp_received_r2t(tq, header);
	else if (pdu->type == NVME_TCP_IC_RESP)
		tcp_received_ic_resp(tq, header);
	else
		tcp_received_term_req(tq, header);
}

/* --- life ------------------------------------------------------------------------------------ */

static void tcp_failed(struct tcp_stream *stream, int error, const char *why)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);
	const char *hint = tq->state == TCP_QUEUE_INITIALIZING ? "; is it an NVMe/TCP port?" : "";
	char text[TCP_QUEUE_WHY_BYTES];

	if (error == -EPROTO)
		snprintf(text, sizeof(text), "mistake of the target: %s", why);
	else if (!error)
		snprintf(text, sizeof(text), "the target has closed the connection%s", hint);
	else
		snprintf(text, sizeof(text), "the connection has failed: %s%s", why, hint);
	tcp_ended(tq, error ? error : -ECONNRESET, text);
}

/* Nothing can touch anyone's memory any more. The last thing done: TQ may be freed in here. */
static void tcp_closed_down(struct haul_transport_queue *tq)
{
	struct haul_queue *queue = tq->queue;

	if (tq->state == TCP_QUEUE_FAILING) {
		tq->state = TCP_QUEUE_CLOSED;
		haul_queue_connected(queue, tq->error, tq->why);
		return;
	}
	for (uint32_t i = 0; i < queue->depth; i++) {
		if (queue->requests[i].state == HAUL_REQUEST_OUT)
			haul_request_done(&queue->requests[i], -ECANCELED, NULL);
	}
	tq->state = TCP_QUEUE_CLOSED;
	haul_queue_quiesced(queue);
}

static void tcp_stream_closed(struct tcp_stream *stream)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);
	struct tcp_item *item;

	while ((item = tcp_stream_take(stream))) {
		struct tcp_request *tr;

		if (item == &tq->icreq)
			continue;
		/* It had been answered: that is its real end. */
		tr = tcp_request(tcp_request_of_item(item));
		if (tr->answered)
			haul_request_done(tcp_request_of_item(item), 0, &tr->cqe);
	}
	tcp_closed_down(tq);
}

static void tcp_ended_without_stream(struct loop_flush *flush)
{
	tcp_closed_down(container_of(flush, struct haul_transport_queue, ended));
}

static const struct tcp_stream_ops tcp_ops = {
	.received = tcp_received,
	.data_received = tcp_data_received,
	.build = tcp_build,
	.sent = tcp_sent,
	.failed = tcp_failed,
	.closed = tcp_stream_closed,
};

static void tcp_connect_done(struct done *done, int res, unsigned flags)
{
	struct haul_transport_queue *tq =
		container_of(done, struct haul_transport_queue, connect_op.done);
	char why[TCP_QUEUE_WHY_BYTES];

	(void)flags;
	if (tq->state == TCP_QUEUE_DISCONNECTING) {
		tcp_stream_close(&tq->stream);
		return;
	}
	if (res < 0) {
		snprintf(why, sizeof(why), "cannot connect: %s%s", strerror(-res),
			res == -ECONNREFUSED ? "; does an NVMe/TCP target listen at this address "
					       "and port?"
					     : "");
		tcp_fail_to_connect(tq, res, why);
		return;
	}
	tq->state = TCP_QUEUE_INITIALIZING;
	tcp_stream_start(&tq->stream);
	tcp_stream_send(&tq->stream, &tq->icreq);
}

static int tcp_open(struct haul_transport_queue *tq)
{
	struct haul_queue *queue = tq->queue;
	const struct sock_traffic traffic = {.tos = (uint8_t)queue->tos};
	int fd, ret = sock_create(queue->address.ss_family, &traffic, &fd);

	if (ret)
		return ret;
	ret = tcp_stream_init(&tq->stream, queue->loop, fd, false, &tcp_ops);
	if (ret)
		return ret;
	tq->has_stream = true;
	/* How much a command may get is checked with the command. */
	tq->stream.rules.data_max = UINT32_MAX;
	return 0;
}

static void tcp_connect(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;
	int ret = tcp_open(tq);
	char why[TCP_QUEUE_WHY_BYTES];

	if (ret) {
		snprintf(why, sizeof(why), "cannot open a socket: %s", strerror(-ret));
		tcp_fail_to_connect(tq, ret, why);
		return;
	}
	tq->state = TCP_QUEUE_CONNECTING;
	tq->connect_op.done.fn = tcp_connect_done;
	loop_connect(queue->loop, &tq->connect_op, &tq->stream.file,
		(const struct sockaddr *)&queue->address, address_len(queue->address.ss_family));
}

static void tcp_disconnect(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;
	enum tcp_queue_state was = tq->state;

	tq->state = TCP_QUEUE_DISCONNECTING;
	if (was == TCP_QUEUE_CONNECTING)
		loop_cancel(queue->loop, &tq->connect_op);
	else if (tq->has_stream && was != TCP_QUEUE_CLOSED)
		tcp_stream_close(&tq->stream);
	else /* Nothing is open: it may have failed to connect earlier in this turn. */
		loop_flush_later(queue->loop, &tq->ended);
}

static int tcp_alloc(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = calloc(1, sizeof(*tq));

	if (!tq)
		return -ENOMEM;
	tq->queue = queue;
	loop_flush_init(&tq->ended, tcp_ended_without_stream);
	tcp_item_init(&tq->icreq);
	queue->transport = tq;
	return 0;
}

static void tcp_free(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;

	if (!tq)
		return;
	assert(tq->state == TCP_QUEUE_IDLE || tq->state == TCP_QUEUE_CLOSED);
	loop_flush_cancel(&tq->ended);
	if (tq->has_stream)
		tcp_stream_destroy(&tq->stream);
	queue->transport = NULL;
	free(tq);
}

const struct haul_transport_ops haul_transport_tcp_ops = {
	.name = "tcp",
	.trtype = NVME_TRTYPE_TCP,
	.alloc = tcp_alloc,
	.connect = tcp_connect,
	.submit = tcp_submit,
	.disconnect = tcp_disconnect,
	.free = tcp_free,
};
