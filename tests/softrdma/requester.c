/* SPDX-License-Identifier: MIT */
/*
 * The requester half of a queue pair: sends requests in order, completes them in order.
 * After a receiver-not-ready answer it starts again from the refused request, as
 * InfiniBand 9.7.5.2.8 has it.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <string.h>

/* How long two queue pairs that no CM connects may take to find each other. */
#define SQ_UNCONNECTED_NS 5000000000u

static struct sr_swqe *sq_at(struct sr_qp *qp, uint32_t index)
{
	return &qp->sq.ring[index % qp->sq.max_wr];
}

static enum ibv_wc_opcode sq_wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

/* All but wr_id, status, qp_num and vendor_err of a failed completion is undefined, and looks like
 * it. */
static void sq_push(struct sr_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	const struct sr_swqe *w = sq_at(qp, index);
	struct sr_cqe cqe = {
		.wc = {.wr_id = w->wr.wr_id, .status = status, .qp_num = qp->qp.qp_num},
		.qp = qp,
		.sq_done = index + 1,
		.is_send = true,
	};

	if (status == IBV_WC_SUCCESS) {
		cqe.wc.opcode = sq_wc_opcode(w->wr.opcode);
		cqe.wc.byte_len = w->wr.opcode == IBV_WR_RDMA_READ ? w->length : 0;
	} else {
		cqe.wc.opcode = (enum ibv_wc_opcode)(sr_random() & 0x87);
		cqe.wc.byte_len = sr_random();
		cqe.wc.wc_flags = sr_random();
		cqe.wc.imm_data = sr_random();
		cqe.wc.vendor_err = 0x80u + (uint32_t)status;
	}
	sr_cq_push(qp->scq, &cqe);
}

static bool sq_signaled(const struct sr_qp *qp, const struct sr_swqe *w)
{
	return qp->sig_all || (w->wr.send_flags & IBV_SEND_SIGNALED);
}

/* Completes from the oldest on, as far as they are done. */
static void sq_complete(struct sr_qp *qp)
{
	struct sr_sq *sq = &qp->sq;

	while (sq->done != sq->head && qp->state == IBV_QPS_RTS) {
		struct sr_swqe *w = sq_at(qp, sq->done);

		if (!w->done)
			return;
		if (w->status != IBV_WC_SUCCESS) {
			sq_push(qp, sq->done++, w->status);
			sr_qp_error(qp);
			return;
		}
		if (sq_signaled(qp, w))
			sq_push(qp, sq->done++, IBV_WC_SUCCESS);
		else
			sq->done++;
		sq->rnr_tries = 0;
	}
}

static void sq_fail(struct sr_qp *qp, struct sr_swqe *w, enum ibv_wc_status status)
{
	w->done = true;
	w->status = status;
	qp->sq.stopped = true;
	sq_complete(qp);
}

void sr_sq_flush(struct sr_qp *qp)
{
	struct sr_sq *sq = &qp->sq;

	sr_timer_cancel(&sq->rnr_timer);
	sr_timer_cancel(&sq->retry_timer);
	while (sq->done != sq->head)
		sq_push(qp, sq->done++, IBV_WC_WR_FLUSH_ERR);
	sq->next = sq->head;
}

void sr_sq_reset(struct sr_qp *qp)
{
	struct sr_sq *sq = &qp->sq;

	sr_timer_cancel(&sq->rnr_timer);
	sr_timer_cancel(&sq->retry_timer);
	sq->next = sq->done = sq->head;
	sq->polled = sq->head;
	sq->seq = 0;
	sq->reads = 0;
	sq->rnr_wait = sq->stopped = false;
}

static void sq_run_local(struct sr_qp *qp, struct sr_swqe *w)
{
	int ret = w->wr.opcode == IBV_WR_BIND_MW ? sr_mw_bind(qp, &w->wr)
						 : sr_key_invalidate(qp, w->wr.invalidate_rkey);

	qp->sq.next++;
	if (ret)
		sq_fail(qp, w, IBV_WC_MW_BIND_ERR);
	else
		w->done = true;
	sq_complete(qp);
}

static unsigned int sq_local_access(const struct sr_swqe *w)
{
	if (w->wr.opcode != IBV_WR_RDMA_READ)
		return 0;
	/* iWARP: the peer answers a READ by writing to the sink. */
	return sr_faults.iwarp ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
			       : IBV_ACCESS_LOCAL_WRITE;
}

/* May the next request start now? If not, an answer to an earlier one looks again. */
static bool sq_may_start(struct sr_qp *qp, struct sr_swqe *w)
{
	struct sr_sq *sq = &qp->sq;

	if (w->started)
		return true;
	if ((w->wr.send_flags & IBV_SEND_FENCE) && sq->reads)
		return false;
	if (w->wr.opcode == IBV_WR_RDMA_READ && sq->reads >= qp->attr.max_rd_atomic) {
		if (!qp->attr.max_rd_atomic)
			sq_fail(qp, w, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	if (w->on_wire && !(w->wr.send_flags & IBV_SEND_INLINE) &&
		sr_sge_check(qp->pd, w->sge, w->wr.num_sge, sq_local_access(w))) {
		sq_fail(qp, w, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	return true;
}

static void sq_fill_hdr(const struct sr_swqe *w, struct sr_hdr *hdr)
{
	*hdr = (struct sr_hdr){
		.seq = w->seq,
		.off = w->sent,
		.total = w->length,
		.rkey = w->wr.wr.rdma.rkey,
		.addr = w->wr.wr.rdma.remote_addr,
		.imm = w->wr.imm_data,
		.flags = w->wr.send_flags & IBV_SEND_SOLICITED ? SR_FLAG_SOLICITED : 0,
	};
	switch (w->wr.opcode) {
	case IBV_WR_RDMA_READ:
		hdr->type = SR_MSG_READ;
		return;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		hdr->flags |= SR_FLAG_IMM;
		hdr->type = SR_MSG_WRITE;
		break;
	case IBV_WR_RDMA_WRITE:
		hdr->type = SR_MSG_WRITE;
		break;
	case IBV_WR_SEND_WITH_IMM:
		hdr->flags |= SR_FLAG_IMM;
		hdr->type = SR_MSG_SEND;
		break;
	case IBV_WR_SEND_WITH_INV:
		hdr->flags |= SR_FLAG_INV;
		hdr->type = SR_MSG_SEND;
		break;
	default:
		hdr->type = SR_MSG_SEND;
		break;
	}
	hdr->len = w->length - w->sent < SR_SEGMENT ? w->length - w->sent : SR_SEGMENT;
}

/* Sends one segment. False: no room, or the request failed. */
static bool sq_send_segment(struct sr_qp *qp, struct sr_swqe *w)
{
	struct sr_hdr hdr;
	uint8_t *to;

	sq_fill_hdr(w, &hdr);
	if (!sr_conn_room(qp->conn, hdr.len))
		return false;
	/* Memory that went away since the last segment fails here, before the frame is made. */
	if (hdr.len && !(w->wr.send_flags & IBV_SEND_INLINE) &&
		sr_sge_check(qp->pd, w->sge, w->wr.num_sge, 0)) {
		sq_fail(qp, w, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	to = sr_conn_put(qp->conn, &hdr);
	if (!to)
		return false;
	if (w->wr.send_flags & IBV_SEND_INLINE)
		memcpy(to, w->data + w->sent, hdr.len);
	else
		sr_sge_gather(qp->pd, w->sge, w->wr.num_sge, w->sent, to, hdr.len);
	if (!w->started && w->wr.opcode == IBV_WR_RDMA_READ)
		qp->sq.reads++;
	w->started = true;
	w->sent += hdr.len;
	if (hdr.type == SR_MSG_READ || w->sent == w->length)
		qp->sq.next++;
	return true;
}

static void sq_arm_retry(struct sr_qp *qp, uint64_t delay_ns)
{
	struct sr_sq *sq = &qp->sq;

	if (qp->state == IBV_QPS_RTS && sq->done != sq->head && !sq->retry_timer.due_ns)
		sr_timer_arm(&sq->retry_timer, delay_ns);
}

static void sq_transmit(struct sr_qp *qp)
{
	struct sr_sq *sq = &qp->sq;

	while (sq->next != sq->head && qp->state == IBV_QPS_RTS && !sq->rnr_wait && !sq->stopped) {
		struct sr_swqe *w = sq_at(qp, sq->next);

		if (!sq_may_start(qp, w))
			return;
		if (!w->on_wire)
			sq_run_local(qp, w);
		else if (!qp->conn) {
			sq_arm_retry(qp, SQ_UNCONNECTED_NS);
			return;
		} else if (qp->conn->eof || qp->conn->peer_gone) {
			sr_qp_peer_gone(qp);
			return;
		} else if (!sq_send_segment(qp, w))
			return;
	}
}

/* Sends until there is nothing to say or the socket is full; then its readiness brings us back. */
void sr_qp_transmit(struct sr_qp *qp)
{
	for (;;) {
		if (sr_resp_transmit(qp))
			sq_transmit(qp);
		if (!qp->conn || !sr_conn_pending(qp->conn))
			return;
		sr_conn_flush(qp->conn);
		if (sr_conn_pending(qp->conn))
			return;
	}
}

/* All requests before seq are done at the peer. READs are done when their data is here. */
static void sq_acked(struct sr_qp *qp, uint32_t before)
{
	for (uint32_t i = qp->sq.done; i != qp->sq.next; i++) {
		struct sr_swqe *w = sq_at(qp, i);

		if (!w->on_wire)
			continue;
		if ((int32_t)(w->seq - before) >= 0)
			break;
		if (w->wr.opcode != IBV_WR_RDMA_READ)
			w->done = true;
	}
	sq_complete(qp);
}

static bool sq_find(struct sr_qp *qp, uint32_t seq, uint32_t *ret_index)
{
	for (uint32_t i = qp->sq.done; i != qp->sq.head; i++) {
		struct sr_swqe *w = sq_at(qp, i);

		if (w->on_wire && w->seq == seq) {
			*ret_index = i;
			return w->started;
		}
	}
	return false;
}

static void sq_read_data(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	uint32_t index;
	struct sr_swqe *w;

	if (!sq_find(qp, hdr->seq, &index))
		return;
	w = sq_at(qp, index);
	if (w->wr.opcode != IBV_WR_RDMA_READ || hdr->off != w->received ||
		hdr->len > w->length - w->received) {
		sq_fail(qp, w, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (sr_sge_scatter(qp->pd, w->sge, w->wr.num_sge, w->received, payload, hdr->len)) {
		sq_fail(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
	w->received += hdr->len;
	if (w->received < w->length)
		return;
	w->done = true;
	qp->sq.reads--;
	sq_acked(qp, hdr->seq);
}

/* IBA table 45: the RNR NAK timer field in units of 10 us. */
static const uint32_t rnr_timer_10us[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96,
	128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
	32768, 49152};

static void sq_rnr_over(struct sr_timer *timer)
{
	struct sr_qp *qp = sr_container(timer, struct sr_qp, sq.rnr_timer);

	qp->sq.rnr_wait = false;
	sr_qp_transmit(qp);
}

/* Go back to the refused request; those behind it were dropped by the peer. */
static void sq_rnr(struct sr_qp *qp, const struct sr_hdr *hdr)
{
	struct sr_sq *sq = &qp->sq;
	uint32_t index;

	sq_acked(qp, hdr->seq);
	if (qp->state != IBV_QPS_RTS || !sq_find(qp, hdr->seq, &index))
		return;
	if (qp->attr.rnr_retry != 7 && sq->rnr_tries++ >= qp->attr.rnr_retry) {
		sq_fail(qp, sq_at(qp, index), IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	for (uint32_t i = index; i != sq->head; i++) {
		struct sr_swqe *w = sq_at(qp, i);

		if (!w->on_wire)
			continue;
		if (w->started && w->wr.opcode == IBV_WR_RDMA_READ)
			sq->reads--;
		w->started = false;
		w->sent = w->received = 0;
	}
	sq->next = index;
	sq->rnr_wait = true;
	sr_timer_arm(&sq->rnr_timer, rnr_timer_10us[hdr->code & 31] * 10000ull);
}

static void sq_nak(struct sr_qp *qp, const struct sr_hdr *hdr)
{
	uint32_t index;

	sq_acked(qp, hdr->seq);
	if (qp->state == IBV_QPS_RTS && sq_find(qp, hdr->seq, &index))
		sq_fail(qp, sq_at(qp, index), (enum ibv_wc_status)hdr->code);
}

static void sq_retry_over(struct sr_timer *timer)
{
	struct sr_qp *qp = sr_container(timer, struct sr_qp, sq.retry_timer);
	struct sr_sq *sq = &qp->sq;

	for (uint32_t i = sq->done; i != sq->head && qp->state == IBV_QPS_RTS; i++) {
		struct sr_swqe *w = sq_at(qp, i);

		if (w->done)
			continue;
		sq_fail(qp, w, IBV_WC_RETRY_EXC_ERR);
		return;
	}
}

/* Nothing outstanding: nothing to notice. The next request will find out. */
void sr_qp_peer_gone(struct sr_qp *qp)
{
	sq_arm_retry(qp, sr_faults.retry_ms * 1000000ull);
}

void sr_sq_init(struct sr_qp *qp)
{
	qp->sq.rnr_timer.fire = sq_rnr_over;
	qp->sq.retry_timer.fire = sq_retry_over;
}

void sr_qp_answered(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	if (qp->state != IBV_QPS_RTS)
		return;
	switch (hdr->type) {
	case SR_MSG_READ_DATA:
		sq_read_data(qp, hdr, payload);
		break;
	case SR_MSG_ACK:
		sq_acked(qp, hdr->seq + 1);
		break;
	case SR_MSG_RNR:
		sq_rnr(qp, hdr);
		break;
	case SR_MSG_NAK:
		sq_nak(qp, hdr);
		break;
	case SR_MSG_GONE:
		qp->conn->peer_gone = true;
		sr_qp_peer_gone(qp);
		break;
	default:
		break;
	}
}
