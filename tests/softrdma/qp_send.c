/* SPDX-License-Identifier: MIT */
/*
 * Posting to a send queue: what the device checks before it takes a work request.
 * A chain is taken up to the first one that is refused; one write to the stream serves the chain.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <string.h>

static bool send_opcode_ok(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
	case IBV_WR_RDMA_READ:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return true;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		return !sr_faults.iwarp;
	case IBV_WR_SEND_WITH_INV:
		return !sr_faults.no_inv;
	default:
		return false;
	}
}

static bool send_is_local(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

/* 0, and the length of the data; or the errno of ibv_post_send. */
static int send_check(const struct sr_qp *qp, const struct ibv_send_wr *wr, uint32_t *ret_length)
{
	uint64_t length = 0;

	if (!send_opcode_ok(wr->opcode))
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return EINVAL;
	/* As soft-RoCE's library has it. */
	if (wr->opcode == IBV_WR_BIND_MW && (wr->num_sge || wr->imm_data))
		return EINVAL;
	if (qp->sq.head - qp->sq.polled >= qp->sq.max_wr)
		return ENOMEM;
	for (int i = 0; i < wr->num_sge && !send_is_local(wr->opcode); i++)
		length += wr->sg_list[i].length;
	if (length > SR_MAX_MSG)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (length > qp->sq.max_inline || wr->opcode == IBV_WR_RDMA_READ)
			return EINVAL;
	}
	*ret_length = (uint32_t)length;
	return 0;
}

static void send_copy_inline(struct sr_swqe *w, const struct ibv_send_wr *wr)
{
	uint8_t *to = w->data;

	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length)
			memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr,
				wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
}

static int send_post_one(struct sr_qp *qp, const struct ibv_send_wr *wr)
{
	struct sr_sq *sq = &qp->sq;
	struct sr_swqe *w;
	uint32_t length;
	int ret = sr_fault_call(SR_CALL_POST_SEND);

	if (!ret)
		ret = send_check(qp, wr, &length);
	if (ret)
		return ret;
	w = &sq->ring[sq->head % sq->max_wr];
	w->wr = *wr;
	w->wr.next = NULL;
	w->wr.sg_list = NULL;
	w->length = length;
	w->sent = w->received = 0;
	w->started = w->done = false;
	w->status = IBV_WC_SUCCESS;
	w->on_wire = !send_is_local(wr->opcode);
	w->seq = sq->seq;
	sq->seq += w->on_wire;
	if (wr->send_flags & IBV_SEND_INLINE)
		send_copy_inline(w, wr);
	else if (wr->num_sge)
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
	sq->head++;
	return 0;
}

int sr_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct sr_qp *qp = sr_container(ibqp, struct sr_qp, qp);
	int ret = 0;

	sr_lock();
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
		ret = EINVAL;
	for (; wr && !ret; wr = wr->next) {
		ret = send_post_one(qp, wr);
		if (ret)
			break;
	}
	if (ret)
		*bad = wr;
	if (qp->state == IBV_QPS_RTS)
		sr_qp_transmit(qp);
	else if (qp->state == IBV_QPS_ERR)
		sr_work_queue(&qp->flush_work);
	sr_unlock();
	return ret;
}

/* Windows of type 1 are bound through this call, which posts for the program. */
int sr_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {
					 .wr_id = bind->wr_id,
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = bind->send_flags,
					 .bind_mw = {mw, ibv_inc_rkey(mw->rkey), bind->bind_info},
				 };
	int ret = sr_post_send(ibqp, &wr, &bad);

	if (!ret)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}
