/* SPDX-License-Identifier: MIT */
/*
 * What an endpoint moves: operations and receives become chains of work requests, and their
 * completions the ends of operations. See rdma_ep.c for its life.
 */
#include "proto/link/rdma_ep.h"

#include <errno.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/link/rdma_ep_private.h"

/* --- completions --------------------------------------------------------------------------- */

static void rdma_ep_note_error(struct rdma_ep *ep, enum ibv_wc_status status)
{
	/* A flush says only that something else went wrong before. */
	rdma_ep_fail(ep, status == IBV_WC_WR_FLUSH_ERR ? -ECONNRESET : -EIO,
		status == IBV_WC_WR_FLUSH_ERR ? "the connection was lost"
					      : ibv_wc_status_str(status));
}

static void rdma_ep_draining(struct rdma_ep *ep)
{
	if (ep->state == RDMA_EP_DRAINING)
		rdma_ep_flush_later(ep);
}

static void rdma_op_part_done(struct wc_done *done, const struct ibv_wc *wc)
{
	struct rdma_op *op = container_of(done, struct rdma_op, part);

	if (wc->status == IBV_WC_SUCCESS)
		return; /* a provider that signals all */
	op->result = -EIO;
	rdma_ep_note_error(op->ep, wc->status);
}

/* The work requests up to the oldest signalled one are over. */
static void rdma_op_complete(struct rdma_op *op)
{
	uint32_t end = (uint32_t)__builtin_ctz(op->signalled) + 1;
	uint32_t nr = end - op->nr_completed;

	op->signalled &= op->signalled - 1;
	op->nr_completed = end;
	op->ep->nr_signalled_out--;
	op->ep->sq_used -= nr;
	if (op->kind == RDMA_OP_READ)
		op->ep->nr_reads -= nr;
}

static bool rdma_op_has_ended(const struct rdma_op *op)
{
	if (op->signalled || op->broken)
		return false;
	return op->result || op->done_len == op->data_len;
}

static void rdma_op_last_done(struct wc_done *done, const struct ibv_wc *wc)
{
	struct rdma_op *op = container_of(done, struct rdma_op, last);
	struct rdma_ep *ep = op->ep;

	rdma_op_complete(op);
	if (wc->status != IBV_WC_SUCCESS) {
		op->result = op->result ? op->result : -EIO;
		rdma_ep_note_error(ep, wc->status);
	}
	if (ep->state == RDMA_EP_DRAINING || !list_empty(&ep->reads) || !list_empty(&ep->messages))
		rdma_ep_flush_later(ep);
	if (!rdma_op_has_ended(op))
		return;
	list_remove(&op->node);
	op->ended(op, op->result);
}

static void rdma_ep_recv_done(struct wc_done *done, const struct ibv_wc *wc)
{
	struct rdma_recv *recv = container_of(done, struct rdma_recv, done);
	struct rdma_ep *ep = recv->ep;

	ep->nr_recvs_out--;
	if (wc->status != IBV_WC_SUCCESS) {
		rdma_ep_note_error(ep, wc->status);
		rdma_ep_draining(ep);
		return;
	}
	recv->received_len = wc->byte_len;
	recv->invalidated = wc->wc_flags & (IBV_WC_WITH_INV | ep->dev->quirks.invalidated_flag);
	recv->invalidated_key = recv->invalidated ? wc->invalidated_rkey : 0;
	rdma_ep_draining(ep);
	ep->ops->message(ep, recv);
}

void rdma_ep_received(struct rdma_ep *ep, struct rdma_slot *slot)
{
	ep->ops->received(ep, slot);
}

/* --- posting ------------------------------------------------------------------------------- */

/* A chain in the device's scratch while it is being built. */
struct rdma_ep_chain {
	uint32_t nr;
	struct rdma_op *op[RDMA_CHAIN_WRS]; /* whose work request each is */
};

static struct ibv_send_wr *rdma_ep_wr(
	struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	struct ibv_send_wr *wr = &ep->dev->send_wr[chain->nr];

	wr->wr_id = (uintptr_t)&op->part;
	wr->next = wr + 1;
	wr->sg_list = ep->dev->send_sge[chain->nr];
	wr->send_flags = 0;
	chain->op[chain->nr++] = op;
	op->nr_posted++;
	ep->sq_used++;
	return wr;
}

/* One READ or WRITE of the next piece, as far as there is data left. */
static void rdma_ep_build_piece(struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	const struct nvme_sgl_piece *piece = &op->pieces[op->next_piece++];
	struct ibv_send_wr *wr = rdma_ep_wr(ep, chain, op);

	assert(op->next_piece <= op->nr_pieces);
	wr->opcode = op->kind == RDMA_OP_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->num_sge = 1;
	wr->sg_list[0].addr = (uintptr_t)op->bytes + op->done_len;
	wr->sg_list[0].length = min_of(piece->len, op->data_len - op->done_len);
	wr->sg_list[0].lkey = op->lkey;
	wr->wr.rdma.remote_addr = piece->addr;
	wr->wr.rdma.rkey = piece->key;
	op->done_len += wr->sg_list[0].length;
}

static void rdma_ep_build_message(
	struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	struct ibv_send_wr *wr = rdma_ep_wr(ep, chain, op);

	wr->opcode = op->invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
	wr->invalidate_rkey = op->invalidate ? op->invalidate_key : 0;
	wr->num_sge = (int)op->nr_sges;
	memcpy(wr->sg_list, op->sge, op->nr_sges * sizeof(op->sge[0]));
	if (op->inline_message)
		wr->send_flags |= IBV_SEND_INLINE;
}

static void rdma_ep_build_binds(struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	const struct rdma_bind *bind;
	struct ibv_send_wr *wr;

	for (bind = op->binds; bind < op->binds + op->nr_binds; bind++) {
		wr = rdma_ep_wr(ep, chain, op);
		wr->opcode = IBV_WR_BIND_MW;
		wr->imm_data = 0; /* there is none, which soft-RoCE's library insists on */
		wr->num_sge = 0;
		wr->bind_mw.mw = bind->mw;
		wr->bind_mw.rkey = bind->key;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = bind->mr,
			.addr = bind->addr,
			.length = bind->len,
			.mw_access_flags = bind->access};
	}
}

static void rdma_ep_build_invalidations(
	struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	const struct rdma_bind *bind;
	struct ibv_send_wr *wr;

	for (bind = op->binds; bind < op->binds + op->nr_binds; bind++) {
		wr = rdma_ep_wr(ep, chain, op);
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->num_sge = 0;
		wr->invalidate_rkey = bind->key;
	}
}

/* The last work request of OP in this chain: its completion stands for all of them. */
static void rdma_ep_build_end(struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	struct ibv_send_wr *wr = &ep->dev->send_wr[chain->nr - 1];

	wr->wr_id = (uintptr_t)&op->last;
	wr->send_flags |= IBV_SEND_SIGNALED;
	op->signalled |= 1u << (op->nr_posted - 1);
	ep->nr_signalled_out++;
}

static void rdma_ep_posted(struct rdma_ep *ep, struct rdma_op *op)
{
	list_remove(&op->node);
	list_push_back(&ep->posted, &op->node);
}

static uint32_t rdma_ep_room(const struct rdma_ep *ep, const struct rdma_ep_chain *chain)
{
	return min_of(ep->sq_size - ep->sq_used, RDMA_CHAIN_WRS - chain->nr);
}

/* Windows, then data, then the message. */
static void rdma_ep_build_send(struct rdma_ep *ep, struct rdma_ep_chain *chain, struct rdma_op *op)
{
	rdma_ep_build_binds(ep, chain, op);
	while (op->done_len < op->data_len && op->next_piece < op->nr_pieces)
		rdma_ep_build_piece(ep, chain, op);
	rdma_ep_build_message(ep, chain, op);
}

static void rdma_ep_build_messages(struct rdma_ep *ep, struct rdma_ep_chain *chain)
{
	struct rdma_op *op, *after;

	list_for_each_entry_safe (op, after, &ep->messages, node) {
		if (rdma_ep_room(ep, chain) < op->nr_pieces + op->nr_binds + 1)
			return;
		if (op->kind == RDMA_OP_INVALIDATE)
			rdma_ep_build_invalidations(ep, chain, op);
		else
			rdma_ep_build_send(ep, chain, op);
		rdma_ep_build_end(ep, chain, op);
		rdma_ep_posted(ep, op);
	}
}

/* As many READs as are allowed now. An operation of which some are left stays the first. */
static void rdma_ep_build_reads(struct rdma_ep *ep, struct rdma_ep_chain *chain)
{
	struct rdma_op *op, *after;
	uint32_t room;

	list_for_each_entry_safe (op, after, &ep->reads, node) {
		room = min_of(rdma_ep_room(ep, chain), ep->max_reads - ep->nr_reads);
		if (room == 0)
			return;
		for (; room && op->done_len < op->data_len; room--) {
			rdma_ep_build_piece(ep, chain, op);
			ep->nr_reads++;
		}
		rdma_ep_build_end(ep, chain, op);
		if (op->done_len < op->data_len)
			return;
		rdma_ep_posted(ep, op);
	}
}

/*
 * Work requests from number FIRST on were not taken. An operation of which some were ends with the
 * drain, like the rest: its own last completion will not come.
 */
static void rdma_ep_post_failed(
	struct rdma_ep *ep, const struct rdma_ep_chain *chain, uint32_t first, int error)
{
	struct rdma_op *op;
	uint32_t i;

	for (i = first; i < chain->nr; i++) {
		op = chain->op[i];
		op->broken = true;
		op->result = -error;
		list_remove(&op->node);
		list_push_back(&ep->broken, &op->node);
		if (ep->dev->send_wr[i].send_flags & IBV_SEND_SIGNALED)
			ep->nr_signalled_out--;
	}
	log_line_limited(&ep->dev->devs->limit, loop_now_ns(ep->dev->devs->loop), LOG_LEVEL_ERROR,
		"rdma: %s: cannot post work requests: %s", rdma_dev_name(ep->dev), strerror(error));
	rdma_ep_fail(ep, -error, "work requests could not be posted");
}

/* One chain, one doorbell. */
bool rdma_ep_flush_sends(struct rdma_ep *ep)
{
	struct ibv_send_wr *wr = ep->dev->send_wr, *bad = NULL;
	struct rdma_ep_chain chain = {.nr = 0};
	int error;

	rdma_ep_build_messages(ep, &chain);
	rdma_ep_build_reads(ep, &chain);
	if (chain.nr == 0)
		return false;
	wr[chain.nr - 1].next = NULL;
	error = ibv_post_send(ep->qp, wr, &bad);
	rdma_dev_count_doorbell(ep->dev);
	if (error)
		rdma_ep_post_failed(ep, &chain, bad ? (uint32_t)(bad - wr) : 0, error);
	return !error;
}

bool rdma_ep_flush_recvs(struct rdma_ep *ep)
{
	struct rdma_dev *dev = ep->dev;
	struct ibv_recv_wr *wr = dev->recv_wr, *bad = NULL;
	struct rdma_recv *recv;
	uint32_t nr = 0, nr_posted;
	int error;

	if (list_empty(&ep->recvs))
		return false;
	list_for_each_entry (recv, &ep->recvs, node) {
		dev->recv_sge[nr][0] = (struct ibv_sge){
			.addr = (uintptr_t)recv->bytes, .length = recv->length, .lkey = recv->lkey};
		wr[nr] = (struct ibv_recv_wr){.wr_id = (uintptr_t)&recv->done,
			.next = &wr[nr + 1],
			.sg_list = dev->recv_sge[nr],
			.num_sge = 1};
		if (++nr == RDMA_CHAIN_WRS)
			break;
	}
	wr[nr - 1].next = NULL;
	error = ibv_post_recv(ep->qp, wr, &bad);
	rdma_dev_count_doorbell(dev);
	nr_posted = !error ? nr : bad ? (uint32_t)(bad - wr) : 0;
	ep->nr_recvs_out += nr_posted;
	for (; nr_posted; nr_posted--)
		list_pop_front(&ep->recvs);
	if (error)
		rdma_ep_fail(ep, -error, "receives could not be posted");
	return !error;
}

void rdma_ep_post(struct rdma_ep *ep, struct rdma_op *op)
{
	assert(ep->state != RDMA_EP_DRAINED);
	assert(op->nr_sges <= RDMA_WR_SGES && op->nr_pieces <= NVME_SGL_MAX_PIECES);
	assert(op->data_len > 0 || op->kind != RDMA_OP_READ);
	assert(op->nr_binds > 0 || op->kind != RDMA_OP_INVALIDATE);
	assert(op->nr_pieces + op->nr_binds <= NVME_SGL_MAX_PIECES);
	op->ep = ep;
	op->last.fn = rdma_op_last_done;
	op->part.fn = rdma_op_part_done;
	op->next_piece = 0;
	op->done_len = 0;
	op->nr_posted = 0;
	op->nr_completed = 0;
	op->signalled = 0;
	op->broken = false;
	op->result = 0;
	list_init(&op->node);
	list_push_back(op->kind == RDMA_OP_READ ? &ep->reads : &ep->messages, &op->node);
	rdma_ep_flush_later(ep);
}

void rdma_ep_receive(struct rdma_ep *ep, struct rdma_recv *recv)
{
	recv->ep = ep;
	recv->done.fn = rdma_ep_recv_done;
	list_init(&recv->node);
	list_push_back(&ep->recvs, &recv->node);
	rdma_ep_flush_later(ep);
}
