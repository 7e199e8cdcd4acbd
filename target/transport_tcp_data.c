/* SPDX-License-Identifier: MIT */
/*
 * Data from the host over TCP: in capsules and by R2T. What is checked here is checked once, before
 * a byte is put anywhere.
 *
 * In-capsule data lies in the stream in front of everything else. While its command waits for a
 * buffer the stream stands still - unless other commands of this connection hold buffers and wait
 * for H2CData from the same stream, which would wait for each other. Then the capsule's data is
 * taken aside (at most TCP_MAX_IN_CAPSULE for each command of the queue) and copied later.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/status.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/transport_tcp.h"

struct tcp_side {
	struct list node;	 /* the connection's */
	struct request *request; /* NULL: nobody wants it any more */
	bool here;
	bool intact;
	struct iovec iov;
	uint8_t bytes[];
};

static void tcp_data_end_pull(struct request *request)
{
	list_remove(&request->node);
	request_pulled(request, tcp_request(request)->status);
}

/* --- aside -------------------------------------------------------------------------------------
 */

static void tcp_side_free(struct tcp_side *side)
{
	list_remove(&side->node);
	free(side);
}

/* The data of the request at hand, which waits for a buffer, goes aside. */
static void tcp_side_receive(struct transport_conn *tc)
{
	struct request *request = tc->filling;
	struct tcp_side *side = malloc(sizeof(*side) + request->inline_len);

	if (!side) {
		conn_close(tc->conn, "out of memory for in-capsule data");
		return;
	}
	side->request = request;
	side->here = false;
	side->iov.iov_base = side->bytes;
	side->iov.iov_len = request->inline_len;
	list_init(&side->node);
	list_push_back(&tc->sides, &side->node);
	tcp_request(request)->side = side;
	tc->side_filling = side;
	tc->fill = TCP_FILL_SIDE;
	tc->filling = NULL;
	tcp_stream_receive(&tc->stream, &side->iov, 0, request->inline_len);
}

static void tcp_side_copy(struct request *request)
{
	struct tcp_request *tr = tcp_request(request);
	struct tcp_side *side = tr->side;

	tr->side = NULL;
	tr->status = side->intact ? 0 : NVME_SC_TRANSIENT_TRANSPORT;
	memcpy(request->bytes, side->bytes, request->data_len);
	tcp_side_free(side);
	tcp_data_end_pull(request);
}

static void tcp_side_received(struct transport_conn *tc, bool intact)
{
	struct tcp_side *side = tc->side_filling;

	tc->side_filling = NULL;
	side->here = true;
	side->intact = intact;
	if (!side->request)
		tcp_side_free(side);
	else if (side->request->state == REQUEST_PULL)
		tcp_side_copy(side->request);
}

/* --- in-capsule data ---------------------------------------------------------------------------
 */

void tcp_data_decide(struct transport_conn *tc, struct request *request)
{
	if (tc->fill != TCP_FILL_ASKING || tc->filling != request)
		return;
	/* Whoever else has the request now does without its data. */
	if (request->state != REQUEST_WAIT_BUF) {
		tc->fill = TCP_FILL_NONE;
		tc->filling = NULL;
	} else if (list_empty(&tc->pulling)) {
		tcp_stream_pause(&tc->stream);
	} else {
		tcp_side_receive(tc);
	}
}

static void tcp_data_pull_capsule(struct transport_conn *tc, struct request *request)
{
	struct tcp_request *tr = tcp_request(request);

	list_push_back(&tc->pulling, &request->node);
	if (tr->side) {
		if (tr->side->here)
			tcp_side_copy(request);
		return;
	}
	assert(tc->fill == TCP_FILL_ASKING && tc->filling == request);
	tc->fill = TCP_FILL_CAPSULE;
	tcp_stream_receive(&tc->stream, &tr->iov, 0, request->data_len);
}

void tcp_data_forget(struct transport_conn *tc, struct request *request)
{
	struct tcp_request *tr = tcp_request(request);

	if (tc->fill == TCP_FILL_ASKING && tc->filling == request) {
		tc->fill = TCP_FILL_NONE;
		tc->filling = NULL;
		tcp_stream_discard(&tc->stream);
	}
	if (!tr->side)
		return;
	if (tr->side->here)
		tcp_side_free(tr->side);
	else
		tr->side->request = NULL;
	tr->side = NULL;
}

/* --- R2T and H2CData ---------------------------------------------------------------------------
 */

void tcp_data_pull(struct request *request)
{
	struct transport_conn *tc = request->conn->transport;
	struct tcp_request *tr = tcp_request(request);

	tr->iov.iov_base = request->bytes;
	tr->iov.iov_len = request->data_len;
	tr->received = 0;
	tr->r2t_sent = false;
	tr->status = 0;
	if (request->sgl.place == NVME_SGL_IN_CAPSULE) {
		tcp_data_pull_capsule(tc, request);
		return;
	}
	tcp_data_forget(tc, request);
	list_push_back(&tc->pulling, &request->node);
	/* One R2T for all of it: never more than any MAXR2T allows (NVMe TCP 1.0c 3.6.2.2). */
	tr->send = TCP_SEND_R2T;
	tcp_stream_send(&tc->stream, &tr->item);
	/* Its data is behind that of the command which holds up the stream. */
	if (tc->fill == TCP_FILL_ASKING && tc->filling->state == REQUEST_WAIT_BUF)
		tcp_side_receive(tc);
}

/* The request whose R2T has this tag, if it is still owed data. */
static struct request *tcp_data_by_ttag(struct transport_conn *tc, uint16_t ttag)
{
	struct conn *conn = tc->conn;
	struct request *request;

	if (ttag >= conn->slots.nr_touched)
		return NULL;
	request = &conn->requests[ttag];
	if (request->state != REQUEST_PULL || !tcp_request(request)->r2t_sent)
		return NULL;
	return request;
}

void tcp_data_h2c(struct transport_conn *tc, const struct nvme_tcp_data *data, uint32_t data_len)
{
	struct request *request = tcp_data_by_ttag(tc, le16_get(data->ttag));
	bool last = data->ch.flags & NVME_TCP_LAST_PDU;
	uint64_t offset = le32_get(data->datao);
	struct tcp_request *tr;

	if (!request) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_INVALID_HEADER_FIELD,
			offsetof(struct nvme_tcp_data, ttag), data, sizeof(*data),
			"no R2T has this transfer tag");
		return;
	}
	tr = tcp_request(request);
	if (le16_get(data->cccid) != le16_get(request->cmd.cid)) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_INVALID_HEADER_FIELD,
			offsetof(struct nvme_tcp_data, cccid), data, sizeof(*data),
			"the R2T is of another command");
		return;
	}
	/* A count of dwords (NVMe TCP 1.0c 3.6.2.6). */
	if (le32_get(data->datal) != data_len || data_len % 4) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_INVALID_HEADER_FIELD,
			offsetof(struct nvme_tcp_data, datal), data, sizeof(*data),
			"the data has another length");
		return;
	}
	if (offset != tr->received || offset + data_len > request->data_len ||
		last != (offset + data_len == request->data_len)) {
		tcp_stream_terminate(&tc->stream, NVME_TCP_FES_OUT_OF_RANGE, 0, data, sizeof(*data),
			"the data is not what the R2T asked for");
		return;
	}
	tc->fill = TCP_FILL_H2C;
	tc->filling = request;
	tcp_stream_receive(&tc->stream, &tr->iov, tr->received, data_len);
	tr->received += data_len;
}

/* --- both --------------------------------------------------------------------------------------
 */

void tcp_data_received(struct transport_conn *tc, bool intact)
{
	struct request *request = tc->filling;
	enum tcp_fill fill = tc->fill;

	tc->fill = TCP_FILL_NONE;
	tc->filling = NULL;
	if (fill == TCP_FILL_SIDE)
		tcp_side_received(tc, intact);
	if (!request)
		return;
	/* The command's error, not the connection's (NVMe TCP 1.0c 3.5.4); what is still to come of
	 * its data comes all the same. */
	if (!intact)
		tcp_request(request)->status = NVME_SC_TRANSIENT_TRANSPORT;
	if (fill == TCP_FILL_CAPSULE || tcp_request(request)->received == request->data_len)
		tcp_data_end_pull(request);
}

void tcp_data_init(struct transport_conn *tc)
{
	list_init(&tc->pulling);
	list_init(&tc->sides);
}

void tcp_data_destroy(struct transport_conn *tc)
{
	struct list *node;

	while ((node = tc->sides.next) != &tc->sides)
		tcp_side_free(container_of(node, struct tcp_side, node));
	while ((node = list_pop_front(&tc->pulling)))
		request_flushed(container_of(node, struct request, node));
}
