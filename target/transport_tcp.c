/* SPDX-License-Identifier: MIT */
/*
 * The target's end of an NVMe/TCP connection: its start with ICReq, commands, responses, its end.
 * The PDUs themselves are cut and sent by proto/link/tcp_stream.
 */
#include "target/transport_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/link/sock.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/status.h"
#include "target/reactor.h"
#include "target/request.h"

/* --- receiving ------------------------------------------------------------------------------- */

static void tcp_received_ic_req(struct transport_conn *tc, const struct nvme_tcp_ic_req *req)
{
	const struct port *port = tc->conn->port;

	if (le16_get(req->pfv) != NVME_TCP_PFV) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_UNSUPPORTED_PARAMETER,
			offsetof(struct nvme_tcp_ic_req, pfv), req, sizeof(*req),
			"unknown PDU format version");
		return;
	}
	if (req->hpda > NVME_TCP_PDA_MAX) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_INVALID_HEADER_FIELD,
			offsetof(struct nvme_tcp_ic_req, hpda), req, sizeof(*req),
			"host PDU data alignment above 31");
		return;
	}
	/* In use is what the host asks for and the listener allows. */
	tc->digests = req->dgst &
		      nvme_tcp_dgst(port->option[TCP_OPTION_HDGST], port->option[TCP_OPTION_DDGST]);
	tcp_stream_initialized(&tc->stream, tc->digests, req->hpda);
	tcp_stream_send(&tc->stream, &tc->icresp);
}

static void tcp_received_cmd(
	struct transport_conn *tc, const struct nvme_tcp_capsule_cmd *capsule, uint32_t data_len)
{
	struct request *request = request_get(tc->conn);
	struct tcp_request *tr;

	if (!request) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_SEQUENCE, 0, capsule,
			sizeof(*capsule), "more commands than the queue holds");
		return;
	}
	request->cmd = capsule->cmd;
	request->inline_len = data_len;
	tr = tcp_request(request);
	tcp_item_init(&tr->item);
	tr->side = NULL;
	if (!data_len) {
		request_received(request);
		return;
	}
	tc->fill = TCP_FILL_ASKING;
	tc->filling = request;
	request_received(request);
	tcp_data_decide(tc, request);
}

static void tcp_received_term_req(struct transport_conn *tc, const struct nvme_tcp_term_req *term)
{
	uint16_t fes = le16_get(term->fes);
	char why[96];

	snprintf(why, sizeof(why), "the host has ended it: %s (%u)", tcp_stream_fes_text(fes),
		le32_get(term->fei));
	conn_close(tc->conn, why);
}

static void tcp_received(
	struct tcp_stream *stream, const struct nvme_tcp_pdu *pdu, const void *header)
{
	struct transport_conn *tc = container_of(stream, struct transport_conn, stream);

	if (likely(pdu->type == NVME_TCP_CAPSULE_CMD))
		tcp_received_cmd(tc, header, pdu->data_len);
	else if (pdu->type == NVME_TCP_H2C_DATA)
		tcp_data_h2c(tc, header, pdu->data_len);
	else if (pdu->type == NVME_TCP_IC_REQ)
		tcp_received_ic_req(tc, header);
	else
		tcp_received_term_req(tc, header);
}

static void tcp_stream_data_received(struct tcp_stream *stream, bool intact)
{
	tcp_data_received(container_of(stream, struct transport_conn, stream), intact);
}

/* --- sending --------------------------------------------------------------------------------- */

static void tcp_build_ic_resp(struct transport_conn *tc)
{
	struct nvme_tcp_ic_resp *resp = tcp_stream_put(&tc->stream, sizeof(*resp));

	*resp = (struct nvme_tcp_ic_resp){
		.ch = {.type = NVME_TCP_IC_RESP,
			.hlen = sizeof(*resp),
			.plen = le32(sizeof(*resp))},
		.pfv = le16(NVME_TCP_PFV),
		.cpda = 0,
		.dgst = tc->digests,
		.maxh2cdata = le32(tc->stream.rules.data_max),
	};
}

static void tcp_build_r2t(struct tcp_stream *stream, struct request *request)
{
	struct nvme_tcp_r2t *r2t = tcp_stream_put_header(stream, NVME_TCP_R2T, 0, sizeof(*r2t), 0);

	r2t->cccid = request->cmd.cid;
	r2t->ttag = le16((uint16_t)request->index);
	r2t->r2to = le32(0);
	r2t->r2tl = le32(request->data_len);
	r2t->rsvd20[0] = r2t->rsvd20[1] = r2t->rsvd20[2] = r2t->rsvd20[3] = 0;
	tcp_stream_seal_header(r2t);
	tcp_request(request)->r2t_sent = true;
}

/* The host can do without a response that says nothing, if it does not take SQHD from there. */
static bool tcp_response_is_implied(const struct request *request)
{
	const struct nvme_cqe *cqe = &request->cqe;

	return request->conn->flow_control_disabled && !le32_get(cqe->dw0) && !le32_get(cqe->dw1);
}

static void tcp_build_c2h_data(struct tcp_stream *stream, struct request *request, bool success)
{
	uint8_t flags = NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0);
	struct tcp_request *tr = tcp_request(request);

	tr->iov.iov_base = request->bytes;
	tr->iov.iov_len = request->data_len;
	tcp_stream_put_data_pdu(stream, flags, request->cmd.cid, 0, &tr->iov, 0, request->data_len);
}

static void tcp_build_reply(struct tcp_stream *stream, struct request *request)
{
	struct nvme_tcp_capsule_resp *resp;

	if (request->direction == REQUEST_TO_HOST && request->data_len &&
		!nvme_cqe_status(&request->cqe)) {
		bool success = tcp_response_is_implied(request);

		tcp_build_c2h_data(stream, request, success);
		if (success)
			return;
	}
	resp = tcp_stream_put_header(stream, NVME_TCP_CAPSULE_RESP, 0, sizeof(*resp), 0);
	resp->cqe = request->cqe;
	tcp_stream_seal_header(resp);
}

static struct request *tcp_request_of_item(struct tcp_item *item)
{
	struct tcp_request *tr = container_of(item, struct tcp_request, item);

	return (struct request *)((uintptr_t)tr - offsetof(struct request, transport));
}

static enum tcp_built tcp_build(struct tcp_stream *stream, struct tcp_item *item)
{
	struct transport_conn *tc = container_of(stream, struct transport_conn, stream);
	struct request *request = tcp_request_of_item(item);

	if (item == &tc->icresp) {
		tcp_build_ic_resp(tc);
		return TCP_BUILT_COPIED;
	}
	if (tcp_request(request)->send == TCP_SEND_R2T) {
		tcp_build_r2t(stream, request);
		return TCP_BUILT_COPIED;
	}
	tcp_build_reply(stream, request);
	return TCP_BUILT_LENT;
}

static void tcp_sent(struct tcp_stream *stream, struct tcp_item *item)
{
	(void)stream;
	request_sent(tcp_request_of_item(item));
}

static void tcp_reply(struct request *request)
{
	struct transport_conn *tc = request->conn->transport;
	struct tcp_request *tr = tcp_request(request);

	if (request->inline_len)
		tcp_data_forget(tc, request);
	tr->send = TCP_SEND_REPLY;
	tcp_stream_send(&tc->stream, &tr->item);
}

/* --- life ------------------------------------------------------------------------------------ */

static void tcp_failed(struct tcp_stream *stream, int error, const char *why)
{
	struct transport_conn *tc = container_of(stream, struct transport_conn, stream);

	if (error == -EPROTO)
		conn_close_for_mistake(tc->conn, why);
	else
		conn_close(tc->conn, why);
}

static void tcp_closed(struct tcp_stream *stream)
{
	struct transport_conn *tc = container_of(stream, struct transport_conn, stream);
	struct tcp_item *item;

	tc->fill = TCP_FILL_NONE;
	tc->filling = NULL;
	while ((item = tcp_stream_take(stream))) {
		struct request *request = tcp_request_of_item(item);

		if (item == &tc->icresp || tcp_request(request)->send == TCP_SEND_R2T)
			continue;
		request_flushed(request);
	}
	tcp_data_destroy(tc);
	conn_quiesced(tc->conn);
}

static const struct tcp_stream_ops tcp_ops = {
	.received = tcp_received,
	.data_received = tcp_stream_data_received,
	.build = tcp_build,
	.sent = tcp_sent,
	.failed = tcp_failed,
	.closed = tcp_closed,
};

static int tcp_start(struct conn *conn, struct transport_handover *handover)
{
	struct transport_conn *tc = calloc(1, sizeof(*tc));
	struct sockaddr_storage peer;
	struct tcp_handover *th = tcp_handover(handover);
	int fd = th->fd;
	int ret = -ENOMEM;

	free(th);
	if (!tc)
		goto close_fd;
	tc->conn = conn;
	tcp_item_init(&tc->icresp);
	tcp_data_init(tc);
	sock_names(fd, &conn->local, &peer);
	ret = tcp_stream_init(&tc->stream, conn->reactor->loop, fd, true, &tcp_ops);
	fd = -1;
	if (ret)
		goto free_tc;
	/* Which queue it is turns out later: what an I/O queue may not bring is refused then. */
	tc->stream.rules.capsule_data_max = conn->in_capsule_max;
	tc->stream.rules.data_max = min_of(TCP_MAXH2CDATA, conn->transfer_max);
	conn->transport = tc;
	tcp_stream_start(&tc->stream);
	return 0;

free_tc:
	free(tc);
close_fd:
	if (fd >= 0)
		close(fd);
	return ret;
}

static void tcp_close(struct conn *conn)
{
	tcp_stream_close(&conn->transport->stream);
}

static void tcp_free(struct conn *conn)
{
	struct transport_conn *tc = conn->transport;

	if (!tc)
		return;
	tcp_stream_destroy(&tc->stream);
	conn->transport = NULL;
	free(tc);
}

static const struct transport_option tcp_options[NR_TCP_OPTIONS] = {
	[TRANSPORT_MAX_QUEUE_SIZE] = {.key = "max_queue_size",
		.kind = TRANSPORT_NUMBER,
		.unless_given = TCP_MAX_QUEUE_SIZE,
		.min = 2,
		.max = TCP_MAX_QUEUE_SIZE,
		.right = "a number from 2 to 1024"},
	/* IOCCSZ counts 16 bytes. */
	[TRANSPORT_IN_CAPSULE] = {.key = "in_capsule",
		.kind = TRANSPORT_SIZE,
		.unless_given = TCP_IN_CAPSULE,
		.max = TCP_MAX_IN_CAPSULE,
		.step = 16,
		.right = "a multiple of 16 from 0 to 64K"},
	[TRANSPORT_MDTS] = TRANSPORT_OPTION_MDTS,
	[TCP_OPTION_HDGST] = {.key = "hdgst", .unless_given = true, .right = "'on' or 'off'"},
	[TCP_OPTION_DDGST] = {.key = "ddgst", .unless_given = true, .right = "'on' or 'off'"},
	[TCP_OPTION_TOS] = {.key = "tos",
		.kind = TRANSPORT_NUMBER,
		.max = UINT8_MAX,
		.right = "a number from 0 to 255"},
	[TCP_OPTION_PRIORITY] = {.key = "priority",
		.kind = TRANSPORT_NUMBER,
		.max = SOCK_MAX_PRIORITY,
		.right = "a number from 0 to 6"},
};

const struct transport_ops transport_tcp_ops = {
	.name = "tcp",
	.trtype = NVME_TRTYPE_TCP,
	.admin_in_capsule = NVME_TCP_ADMIN_IN_CAPSULE,
	.sgls = NVME_ID_SGLS_SUPPORTED | NVME_ID_SGLS_OFFSET | NVME_ID_SGLS_TRANSPORT,
	.msdbd = 1,
	.max_admin_depth = TCP_MAX_QUEUE_SIZE,
	.options = tcp_options,
	.nr_options = NR_TCP_OPTIONS,
	.listen = tcp_listen,
	.unlisten = tcp_unlisten,
	.refuse = tcp_refuse,
	.start = tcp_start,
	.pull = tcp_data_pull,
	.reply = tcp_reply,
	.close = tcp_close,
	.free = tcp_free,
};
