/* SPDX-License-Identifier: MIT */
/*
 * The life of the initiator's end of an NVMe/TCP connection: socket, ICReq, failure, the end. What
 * requests send and receive is in transport_tcp_io.c.
 */
#include "initiator/transport_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/link/sock.h"

/* --- the start ------------------------------------------------------------------------------- */

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

static enum tcp_built tcp_build(struct tcp_stream *stream, struct tcp_item *item)
{
	struct haul_transport_queue *tq = container_of(stream, struct haul_transport_queue, stream);

	if (item == &tq->icreq) {
		tcp_build_ic_req(tq);
		return TCP_BUILT_COPIED;
	}
	return tcp_queue_build(tq, tcp_request_of_item(item));
}

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
		tcp_queue_received_resp(tq, header);
	else if (pdu->type == NVME_TCP_C2H_DATA)
		tcp_queue_received_data(tq, header, pdu->data_len);
	else if (pdu->type == NVME_TCP_R2T)
		tcp_queue_received_r2t(tq, header);
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
	.data_received = tcp_queue_data_received,
	.build = tcp_build,
	.sent = tcp_queue_sent,
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
	.submit = tcp_queue_submit,
	.disconnect = tcp_disconnect,
	.free = tcp_free,
};
