/* SPDX-License-Identifier: MIT */
/*
 * Receive queues: the ring a queue pair and a shared receive queue have in common, and the latter's
 * verbs.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sr_rq_init(struct sr_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->head = rq->tail = 0;
	rq->polled = 0;
	rq->ring = calloc(max_wr ? max_wr : 1, sizeof(*rq->ring));
	return rq->ring ? 0 : ENOMEM;
}

int sr_rq_post(struct sr_rq *rq, const struct ibv_recv_wr *wr)
{
	struct sr_rwqe *w;
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->tail - rq->polled >= rq->max_wr)
		return ENOMEM;
	w = &rq->ring[rq->tail % rq->max_wr];
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	if (length > SR_MAX_MSG)
		return EINVAL;
	w->wr_id = wr->wr_id;
	w->num_sge = wr->num_sge;
	w->length = (uint32_t)length;
	rq->tail++;
	return 0;
}

bool sr_srq_take(struct sr_srq *srq, struct sr_rwqe *rwqe)
{
	struct sr_rq *rq = &srq->rq;

	if (rq->head == rq->tail)
		return false;
	*rwqe = rq->ring[rq->head % rq->max_wr];
	rq->head++;
	rq->polled = rq->head;
	if (srq->limit && rq->tail - rq->head < srq->limit) {
		srq->limit = 0;
		sr_async_raise(sr_context_of(srq->srq.context), IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
	return true;
}

static bool srq_attr_ok(const struct ibv_srq_attr *attr)
{
	return !sr_faults.no_srq && attr->max_wr && attr->max_wr <= sr_faults.max_srq_wr &&
	       attr->max_sge <= sr_faults.max_sge && attr->max_sge <= SR_MAX_SGE;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *ibpd, struct ibv_srq_init_attr *attr)
{
	struct sr_pd *pd = sr_container(ibpd, struct sr_pd, pd);
	static uint32_t handle;
	struct sr_srq *srq = NULL;
	int ret = sr_context_removed(sr_context_of(ibpd->context))
			  ? EIO
			  : sr_fault_call(SR_CALL_CREATE_SRQ);

	if (!ret && !srq_attr_ok(&attr->attr))
		ret = sr_faults.no_srq ? EOPNOTSUPP : EINVAL;
	if (!ret) {
		srq = calloc(1, sizeof(*srq));
		ret = srq ? sr_rq_init(&srq->rq, attr->attr.max_wr, attr->attr.max_sge) : ENOMEM;
	}
	if (ret) {
		free(srq);
		errno = ret;
		return NULL;
	}
	srq->pd = pd;
	srq->srq.context = ibpd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = ibpd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	sr_lock();
	srq->srq.handle = ++handle;
	pd->users++;
	sr_unlock();
	sr_count(SR_SRQ, 1);
	return &srq->srq;
}

static int srq_resize(struct sr_srq *srq, uint32_t max_wr)
{
	struct sr_rq *rq = &srq->rq, grown;
	int ret;

	if (max_wr > sr_faults.max_srq_wr || rq->tail - rq->head > max_wr || !max_wr)
		return EINVAL;
	ret = sr_rq_init(&grown, max_wr, rq->max_sge);
	if (ret)
		return ret;
	while (rq->head != rq->tail)
		grown.ring[grown.tail++] = rq->ring[rq->head++ % rq->max_wr];
	free(rq->ring);
	rq->ring = grown.ring;
	rq->max_wr = max_wr;
	rq->head = 0;
	rq->polled = 0;
	rq->tail = grown.tail;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct sr_srq *srq = sr_container(ibsrq, struct sr_srq, srq);
	int ret = 0;

	sr_lock();
	if (mask & IBV_SRQ_MAX_WR)
		ret = srq_resize(srq, attr->max_wr);
	if (!ret && (mask & IBV_SRQ_LIMIT) && attr->srq_limit > srq->rq.max_wr)
		ret = EINVAL;
	if (!ret && (mask & IBV_SRQ_LIMIT))
		srq->limit = attr->srq_limit;
	sr_unlock();
	return ret;
}

int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct sr_srq *srq = sr_container(ibsrq, struct sr_srq, srq);

	sr_lock();
	*attr = (struct ibv_srq_attr){srq->rq.max_wr, srq->rq.max_sge, srq->limit};
	sr_unlock();
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct sr_srq *srq = sr_container(ibsrq, struct sr_srq, srq);
	bool busy;

	sr_lock();
	busy = srq->users > 0;
	if (!busy) {
		srq->pd->users--;
		sr_async_purge(sr_context_of(ibsrq->context), srq);
	}
	sr_unlock();
	if (busy)
		return EBUSY;
	pthread_mutex_lock(&ibsrq->mutex);
	while (ibsrq->events_completed != srq->async_reported)
		pthread_cond_wait(&ibsrq->cond, &ibsrq->mutex);
	pthread_mutex_unlock(&ibsrq->mutex);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	free(srq->rq.ring);
	free(srq);
	sr_count(SR_SRQ, -1);
	return 0;
}

int sr_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sr_srq *srq = sr_container(ibsrq, struct sr_srq, srq);
	int ret = 0;

	sr_lock();
	for (; wr; wr = wr->next) {
		ret = sr_fault_call(SR_CALL_POST_RECV);
		if (!ret)
			ret = sr_rq_post(&srq->rq, wr);
		if (ret) {
			*bad = wr;
			break;
		}
	}
	sr_unlock();
	return ret;
}
