/* SPDX-License-Identifier: MIT */
/*
 * An endpoint's life: its queue pair, what makes it fail, the drain. rdma_ep_post.c moves things.
 */
#include "proto/link/rdma_ep.h"

#include <errno.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/link/rdma_ep_private.h"

/* 0.64 ms between retries of a SEND that found no receive. 0 would mean 655 ms. */
#define RDMA_EP_RNR_TIMER 12

/* --- failure ------------------------------------------------------------------------------- */

void rdma_ep_fail(struct rdma_ep *ep, int result, const char *why)
{
	if (ep->state != RDMA_EP_IDLE && ep->state != RDMA_EP_LIVE)
		return;
	ep->state = RDMA_EP_FAILED;
	ep->failure = result;
	ep->failure_why = why;
	rdma_ep_flush_later(ep);
}

void rdma_ep_check(struct rdma_ep *ep, const char *why)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ep->state != RDMA_EP_IDLE && ep->state != RDMA_EP_LIVE)
		return;
	if (ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init) || attr.qp_state == IBV_QPS_ERR)
		rdma_ep_fail(ep, -EIO, why);
}

/* --- the end ------------------------------------------------------------------------------- */

static void rdma_ep_end_all(struct list *list, int result)
{
	struct list ended, *node;
	struct rdma_op *op;

	list_init(&ended);
	list_splice_back(&ended, list);
	while ((node = list_pop_front(&ended))) {
		op = container_of(node, struct rdma_op, node);
		op->ended(op, op->result ? op->result : result);
	}
}

/* Makes the device let go of all memory. */
static void rdma_ep_qp_destroy(struct rdma_ep *ep)
{
	struct rdma_dev *dev = ep->dev;
	int error = ibv_destroy_qp(ep->qp);

	if (!rdma_dev_let_go(dev, error)) {
		log_error("rdma: %s: cannot destroy a queue pair: %s", rdma_dev_name(dev),
			strerror(error));
		ep->stuck = ep->expired;
	}
	ep->id->qp = NULL;
}

/* Off the device and the loop; counterpart of rdma_ep_create(). */
static void rdma_ep_detach(struct rdma_ep *ep)
{
	struct rdma_dev *dev = ep->dev;

	ep->state = RDMA_EP_DRAINED;
	loop_flush_cancel(&ep->flush);
	loop_timer_cancel(dev->devs->loop, &ep->drain_deadline);
	loop_timers_unreserve(dev->devs->loop, 1);
	list_remove(&ep->node);
	rdma_cq_release(&dev->cq, ep->sq_size + 1 + ep->nr_recvs);
}

/* Nothing is with the device any more, or the deadline is over. What completed before the queue
 * pair goes must be seen first (and after it, where the device was late), for wr_ids point into
 * memory that goes away, and providers drop completions of a queue pair that is destroyed. */
static void rdma_ep_finish(struct rdma_ep *ep)
{
	rdma_cq_poll_all(&ep->dev->cq);
	if (ep->ops->flushed)
		ep->ops->flushed(ep);
	rdma_ep_qp_destroy(ep);
	if (ep->expired)
		rdma_cq_poll_all(&ep->dev->cq);
	rdma_ep_detach(ep);
	rdma_ep_end_all(&ep->posted, -ETIMEDOUT);
	rdma_ep_end_all(&ep->broken, -ECANCELED);
	rdma_ep_end_all(&ep->reads, -ECANCELED);
	rdma_ep_end_all(&ep->messages, -ECANCELED);
	ep->ops->drained(ep);
}

void rdma_ep_abort(struct rdma_ep *ep)
{
	assert(ep->sq_used == 0 && ep->nr_recvs_out == 0);
	rdma_ep_qp_destroy(ep);
	rdma_ep_detach(ep);
}

static bool rdma_ep_is_drained(const struct rdma_ep *ep)
{
	return !ep->sentinel_out && ep->nr_recvs_out == 0 && ep->nr_signalled_out == 0;
}

static void rdma_ep_flush(struct loop_flush *flush)
{
	struct rdma_ep *ep = container_of(flush, struct rdma_ep, flush);

	/* Receives first: a response may let the peer send into a slot that is given back now. */
	if (ep->srq)
		rdma_srq_flush(ep->srq);
	if (ep->state == RDMA_EP_IDLE || ep->state == RDMA_EP_LIVE)
		while (rdma_ep_flush_recvs(ep))
			;
	if (ep->state == RDMA_EP_LIVE)
		while (rdma_ep_flush_sends(ep))
			;
	if (ep->state == RDMA_EP_FAILED && !ep->failure_told) {
		ep->failure_told = true;
		ep->ops->failed(ep, ep->failure, ep->failure_why);
	}
	if (ep->state == RDMA_EP_DRAINING && (ep->expired || rdma_ep_is_drained(ep)))
		rdma_ep_finish(ep);
}

static void rdma_ep_drain_expired(struct loop_timer *timer)
{
	struct rdma_ep *ep = container_of(timer, struct rdma_ep, drain_deadline);

	log_warning("rdma: %s: queue pair %u was not flushed in time", rdma_dev_name(ep->dev),
		ep->qp_num);
	ep->expired = true;
	rdma_ep_flush_later(ep);
}

static void rdma_ep_sentinel_done(struct wc_done *done, const struct ibv_wc *wc)
{
	struct rdma_ep *ep = container_of(done, struct rdma_ep, sentinel);

	(void)wc;
	ep->sentinel_out = false;
	rdma_ep_flush_later(ep);
}

/* A work request that the device flushes after all others. Where it is refused, counting those
 * that are signalled has to do. */
static void rdma_ep_post_sentinel(struct rdma_ep *ep)
{
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&ep->sentinel,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	ep->sentinel_out = ibv_post_send(ep->qp, &wr, &bad) == 0;
}

void rdma_ep_drain(struct rdma_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error;

	if (ep->state == RDMA_EP_DRAINING || ep->state == RDMA_EP_DRAINED)
		return;
	ep->state = RDMA_EP_DRAINING;
	error = ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
	if (error)
		log_debug("rdma: %s: queue pair to error: %s", rdma_dev_name(ep->dev),
			strerror(error));
	if (ep->sq_used)
		rdma_ep_post_sentinel(ep);
	loop_timer_set(ep->dev->devs->loop, &ep->drain_deadline,
		loop_now_ns(ep->dev->devs->loop) + ep->dev->devs->drain_ns);
	rdma_ep_flush_later(ep);
}

/* --- the beginning ------------------------------------------------------------------------- */

/* The device grants what it can: a deep send queue with inline data and gathering may be more than
 * it has, so ask for less until it agrees. */
static int rdma_ep_qp_create(struct rdma_ep *ep, const struct rdma_ep_params *params)
{
	struct rdma_dev *dev = ep->dev;
	uint32_t nr_sends = min_of(params->nr_sends, (uint32_t)dev->attr.max_qp_wr);
	uint32_t inline_bytes = params->inline_bytes;
	struct ibv_qp_init_attr attr;
	int error;

	for (;;) {
		attr = (struct ibv_qp_init_attr){.qp_context = ep,
			.send_cq = dev->cq.verbs,
			.recv_cq = dev->cq.verbs,
			.srq = ep->srq ? rdma_srq_verbs(ep->srq) : NULL,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = nr_sends,
				.max_recv_wr = params->nr_recvs,
				.max_send_sge = ep->max_sges,
				.max_recv_sge = params->nr_recvs ? 1 : 0,
				.max_inline_data = inline_bytes}};
		if (rdma_create_qp(ep->id, dev->pd, &attr) == 0)
			break;
		error = errno;
		if (inline_bytes)
			inline_bytes = 0;
		else if (nr_sends / 2 >= RDMA_EP_MIN_SENDS)
			nr_sends /= 2;
		else
			return -error;
	}
	ep->qp = ep->id->qp;
	ep->qp_num = ep->qp->qp_num;
	ep->sq_size = nr_sends - 1; /* one is the sentinel's */
	ep->max_inline = inline_bytes ? min_of(inline_bytes, attr.cap.max_inline_data) : 0;
	return 0;
}

static void rdma_ep_init(struct rdma_ep *ep, const struct rdma_ep_ops *ops, struct rdma_dev *dev,
	struct rdma_cm_id *id)
{
	memset(ep, 0, sizeof(*ep));
	ep->ops = ops;
	ep->dev = dev;
	ep->id = id;
	list_init(&ep->node);
	list_init(&ep->messages);
	list_init(&ep->reads);
	list_init(&ep->posted);
	list_init(&ep->broken);
	list_init(&ep->recvs);
	loop_flush_init(&ep->flush, rdma_ep_flush);
	loop_timer_init(&ep->drain_deadline, rdma_ep_drain_expired);
	ep->sentinel.fn = rdma_ep_sentinel_done;
}

int rdma_ep_create(struct rdma_ep *ep, const struct rdma_ep_ops *ops, struct rdma_dev *dev,
	struct rdma_cm_id *id, const struct rdma_ep_params *params)
{
	uint32_t nr_sends = min_of(params->nr_sends, (uint32_t)dev->attr.max_qp_wr);
	int result;

	assert(params->nr_sends >= RDMA_EP_MIN_SENDS);
	if (nr_sends < RDMA_EP_MIN_SENDS || params->nr_recvs > (uint32_t)dev->attr.max_qp_wr)
		return -ENOSPC;
	rdma_ep_init(ep, ops, dev, id);
	ep->nr_recvs = params->nr_recvs;
	ep->srq = params->nr_recvs ? NULL : params->srq;
	ep->max_sges = min_of(params->nr_sges, (uint32_t)dev->attr.max_sge);
	ep->max_sges = min_of(ep->max_sges, (uint32_t)RDMA_WR_SGES);
	result = rdma_cq_admit(&dev->cq, nr_sends + params->nr_recvs);
	if (result)
		return result;
	result = loop_timers_reserve(dev->devs->loop, 1);
	if (result)
		goto release;
	result = rdma_ep_qp_create(ep, params);
	if (result)
		goto unreserve;
	rdma_cq_release(&dev->cq, nr_sends - 1 - ep->sq_size);
	list_push_back(&dev->eps[ep->qp_num % RDMA_DEV_EP_ROWS], &ep->node);
	return 0;

unreserve:
	loop_timers_unreserve(dev->devs->loop, 1);
release:
	rdma_cq_release(&dev->cq, nr_sends + params->nr_recvs);
	return result;
}

void rdma_ep_established(struct rdma_ep *ep, uint32_t max_reads)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = RDMA_EP_RNR_TIMER};

	if (ep->state != RDMA_EP_IDLE)
		return;
	ep->state = RDMA_EP_LIVE;
	ep->max_reads = max_reads;
	if (!ep->dev->quirks.no_rnr_timer &&
		ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER))
		log_debug("rdma: %s: the receiver-not-ready timer cannot be set",
			rdma_dev_name(ep->dev));
	rdma_ep_flush_later(ep);
}
