/* SPDX-License-Identifier: MIT */
/*
 * The responder half of a queue pair: executes the peer's requests in order and answers in order.
 * A request that finds no receive is refused, and all behind it dropped, until the peer sends it
 * again.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <string.h>

static void resp_answer(struct sr_qp *qp, const struct sr_answer *answer)
{
	struct sr_resp *r = &qp->resp;
	struct sr_answer *last = &r->ring[(r->tail - 1) % r->size];

	/* One acknowledgement covers those before it. */
	if (answer->type == SR_MSG_ACK && r->head != r->tail && last->type == SR_MSG_ACK) {
		last->seq = answer->seq;
		return;
	}
	r->ring[r->tail++ % r->size] = *answer;
}

static void resp_ack(struct sr_qp *qp)
{
	struct sr_answer answer = {.type = SR_MSG_ACK, .seq = qp->resp.seq};

	qp->resp.seq++;
	qp->resp.off = 0;
	qp->resp.skip_rnr = false;
	resp_answer(qp, &answer);
}

/* The peer's request fails with status; this queue pair follows once the answer is on its way. */
static void resp_nak(struct sr_qp *qp, enum ibv_wc_status status)
{
	struct sr_answer answer = {
		.type = SR_MSG_NAK, .seq = qp->resp.seq, .code = (uint16_t)status};

	qp->resp.dead = true;
	resp_answer(qp, &answer);
	sr_async_raise(qp->ctx,
		status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
		qp);
}

static void resp_push(struct sr_qp *qp, const struct sr_rwqe *rwqe, enum ibv_wc_status status,
	const struct sr_hdr *hdr)
{
	struct sr_cqe cqe = {
		.wc = {.wr_id = rwqe->wr_id, .status = status, .qp_num = qp->qp.qp_num},
		.qp = qp,
	};

	if (status != IBV_WC_SUCCESS) {
		cqe.wc.opcode = (enum ibv_wc_opcode)(sr_random() & 0x87);
		cqe.wc.byte_len = sr_random();
		cqe.wc.wc_flags = sr_random();
		cqe.wc.imm_data = sr_random();
		cqe.wc.vendor_err = 0x80u + (uint32_t)status;
	} else {
		bool write = hdr->type == SR_MSG_WRITE;

		cqe.wc.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
		cqe.wc.byte_len = hdr->total;
		cqe.wc.src_qp = qp->attr.dest_qp_num;
		if (hdr->flags & SR_FLAG_IMM)
			cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		if (hdr->flags & SR_FLAG_INV)
			cqe.wc.wc_flags |= IBV_WC_WITH_INV;
		if (hdr->flags & (SR_FLAG_IMM | SR_FLAG_INV))
			cqe.wc.imm_data = hdr->imm;
		cqe.solicited = hdr->flags & SR_FLAG_SOLICITED;
	}
	sr_cq_push(qp->rcq, &cqe);
}

static bool resp_take_rwqe(struct sr_qp *qp)
{
	struct sr_rq *rq = &qp->rq;

	if (qp->srq) {
		qp->resp.has_rwqe = sr_srq_take(qp->srq, &qp->resp.rwqe);
	} else if (rq->head != rq->tail) {
		qp->resp.rwqe = rq->ring[rq->head++ % rq->max_wr];
		qp->resp.has_rwqe = true;
	}
	return qp->resp.has_rwqe;
}

/* The rnr hook: every N-th request that needs a receive is refused once although there is one. */
static bool resp_rnr_wanted(struct sr_qp *qp)
{
	static uint32_t count;

	if (!sr_faults.rnr || qp->resp.skip_rnr)
		return false;
	qp->resp.skip_rnr = true;
	return ++count % sr_faults.rnr == 0;
}

/* The withhold hook: from the N-th request that needs a receive on there is none, for so long. */
static bool resp_withheld(void)
{
	static uint32_t count;
	static uint64_t until_ns;

	if (sr_fault_hit(sr_faults.withhold_at, &count))
		until_ns = sr_now_ns() + sr_faults.withhold_ms * 1000000ull;
	return until_ns && sr_now_ns() < until_ns;
}

static bool resp_need_rwqe(struct sr_qp *qp)
{
	struct sr_answer answer = {
		.type = SR_MSG_RNR, .seq = qp->resp.seq, .code = qp->attr.min_rnr_timer};

	if (qp->resp.has_rwqe)
		return true;
	if (!resp_rnr_wanted(qp) && !resp_withheld() && resp_take_rwqe(qp))
		return true;
	qp->resp.off = 0;
	if (sr_faults.iwarp) /* there is no "not ready" in iWARP: the stream is terminated */
		resp_nak(qp, IBV_WC_REM_OP_ERR);
	else
		resp_answer(qp, &answer);
	return false;
}

/* The receive itself is at fault (length, key): it completes with an error of its own. */
static void resp_rwqe_fail(struct sr_qp *qp, enum ibv_wc_status own, enum ibv_wc_status peers)
{
	qp->resp.has_rwqe = false;
	resp_push(qp, &qp->resp.rwqe, own, NULL);
	resp_nak(qp, peers);
}

static void resp_finish_recv(struct sr_qp *qp, const struct sr_hdr *hdr)
{
	if ((hdr->flags & SR_FLAG_INV) && sr_key_invalidate(qp, hdr->imm)) {
		resp_nak(qp, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	qp->resp.has_rwqe = false;
	resp_push(qp, &qp->resp.rwqe, IBV_WC_SUCCESS, hdr);
	resp_ack(qp);
}

static struct sr_pd *resp_recv_pd(struct sr_qp *qp)
{
	return qp->srq ? qp->srq->pd : qp->pd;
}

static void resp_send(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	struct sr_rwqe *w = &qp->resp.rwqe;

	if (hdr->off == 0) {
		if (!resp_need_rwqe(qp))
			return;
		if (hdr->total > w->length) {
			resp_rwqe_fail(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
			return;
		}
	}
	if (sr_sge_scatter(resp_recv_pd(qp), w->sge, w->num_sge, hdr->off, payload, hdr->len)) {
		resp_rwqe_fail(qp, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	qp->resp.off += hdr->len;
	if (qp->resp.off == hdr->total)
		resp_finish_recv(qp, hdr);
}

static void resp_write(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	uint8_t *to = NULL;

	if (hdr->total) {
		to = sr_rkey_check(qp, hdr->rkey, hdr->addr, hdr->total, IBV_ACCESS_REMOTE_WRITE);
		if (!to) {
			resp_nak(qp, IBV_WC_REM_ACCESS_ERR);
			return;
		}
		memcpy(to + hdr->off, payload, hdr->len);
	}
	if (qp->resp.off + hdr->len == hdr->total && (hdr->flags & SR_FLAG_IMM)) {
		if (!resp_need_rwqe(qp))
			return;
		resp_finish_recv(qp, hdr);
		return;
	}
	qp->resp.off += hdr->len;
	if (qp->resp.off == hdr->total)
		resp_ack(qp);
}

static void resp_read(struct sr_qp *qp, const struct sr_hdr *hdr)
{
	struct sr_answer answer = {
		.type = SR_MSG_READ_DATA,
		.seq = hdr->seq,
		.rkey = hdr->rkey,
		.addr = hdr->addr,
		.total = hdr->total,
	};

	/* More READs than we said we take at once (IBA 9.7.4.1.2). */
	if (qp->resp.reads >= qp->attr.max_dest_rd_atomic) {
		resp_nak(qp, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	if (hdr->total &&
		!sr_rkey_check(qp, hdr->rkey, hdr->addr, hdr->total, IBV_ACCESS_REMOTE_READ)) {
		resp_nak(qp, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	qp->resp.reads++;
	qp->resp.seq++;
	resp_answer(qp, &answer);
}

static void resp_request(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	struct sr_resp *r = &qp->resp;

	if (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS) {
		sr_conn_gone(qp->conn);
		return;
	}
	if (r->dead || hdr->seq != r->seq || hdr->off != r->off)
		return;
	if (hdr->type == SR_MSG_SEND)
		resp_send(qp, hdr, payload);
	else if (hdr->type == SR_MSG_WRITE)
		resp_write(qp, hdr, payload);
	else
		resp_read(qp, hdr);
}

void sr_qp_message(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload)
{
	if (hdr->type <= SR_MSG_READ)
		resp_request(qp, hdr, payload);
	else
		sr_qp_answered(qp, hdr, payload);
}

/* One segment of READ data. 1: sent the last, 0: no room or more to come, negative: key gone. */
static int resp_send_read(struct sr_qp *qp, struct sr_answer *a)
{
	uint32_t left = a->total - a->sent;
	struct sr_hdr hdr = {
		.type = SR_MSG_READ_DATA,
		.seq = a->seq,
		.off = a->sent,
		.total = a->total,
		.len = left < SR_SEGMENT ? left : SR_SEGMENT,
	};
	uint8_t *from = NULL, *to;

	if (a->total) {
		from = sr_rkey_check(qp, a->rkey, a->addr, a->total, IBV_ACCESS_REMOTE_READ);
		if (!from)
			return -EFAULT;
	}
	to = sr_conn_put(qp->conn, &hdr);
	if (!to)
		return 0;
	if (hdr.len)
		memcpy(to, from + a->sent, hdr.len);
	a->sent += hdr.len;
	return a->sent == a->total;
}

/* Sends the oldest answer, or a piece of it. False: no room. */
static bool resp_send_answer(struct sr_qp *qp, struct sr_answer *a)
{
	struct sr_hdr hdr = {.type = (uint8_t)a->type, .seq = a->seq, .code = a->code};
	int ret = 1;

	if (!sr_conn_room(qp->conn, a->type == SR_MSG_READ_DATA ? SR_SEGMENT : 0))
		return false;
	if (a->type == SR_MSG_READ_DATA) {
		ret = resp_send_read(qp, a);
		if (ret == 1)
			qp->resp.reads--;
	} else {
		sr_conn_put(qp->conn, &hdr);
	}
	if (ret < 0) {
		qp->resp.dead = true;
		*a = (struct sr_answer){
			.type = SR_MSG_NAK, .seq = a->seq, .code = IBV_WC_REM_ACCESS_ERR};
		qp->resp.tail = qp->resp.head + 1;
		sr_async_raise(qp->ctx, IBV_EVENT_QP_ACCESS_ERR, qp);
		return true;
	}
	qp->resp.head += (uint32_t)ret;
	if (a->type == SR_MSG_NAK)
		sr_qp_error(qp);
	return true;
}

/* Answers first. True when all are out, so that requests may follow. */
bool sr_resp_transmit(struct sr_qp *qp)
{
	struct sr_resp *r = &qp->resp;

	while (r->head != r->tail) {
		if (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS)
			return false;
		if (!qp->conn || qp->conn->src.fd < 0)
			return true;
		if (!resp_send_answer(qp, &r->ring[r->head % r->size]))
			return false;
	}
	return true;
}

void sr_rq_flush(struct sr_qp *qp)
{
	struct sr_rq *rq = &qp->rq;

	if (qp->resp.has_rwqe) {
		qp->resp.has_rwqe = false;
		resp_push(qp, &qp->resp.rwqe, IBV_WC_WR_FLUSH_ERR, NULL);
	}
	while (rq->head != rq->tail)
		resp_push(qp, &rq->ring[rq->head++ % rq->max_wr], IBV_WC_WR_FLUSH_ERR, NULL);
}

void sr_resp_reset(struct sr_qp *qp)
{
	struct sr_resp *r = &qp->resp;

	r->seq = r->off = r->head = r->tail = r->reads = 0;
	r->dead = r->has_rwqe = r->skip_rnr = false;
}

int sr_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sr_qp *qp = sr_container(ibqp, struct sr_qp, qp);
	int ret = 0;

	sr_lock();
	if (qp->state == IBV_QPS_RESET || qp->srq)
		ret = EINVAL;
	for (; wr && !ret; wr = wr->next) {
		ret = sr_fault_call(SR_CALL_POST_RECV);
		if (!ret)
			ret = sr_rq_post(&qp->rq, wr);
		if (ret)
			break;
	}
	if (ret)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR)
		sr_work_queue(&qp->flush_work);
	sr_unlock();
	return ret;
}
