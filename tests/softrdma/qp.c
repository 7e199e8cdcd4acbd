/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: creation, the state table, destruction, and the change to the error state.
 * Flushing is done later, by the engine: a program must not find the flush completions at once.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void (*sr_disconnect_hook)(struct sr_conn *conn);
void (*sr_cm_event_hook)(struct sr_conn *conn, uint32_t type);

static void qp_flush(struct sr_work *work)
{
	struct sr_qp *qp = sr_container(work, struct sr_qp, flush_work);

	if (qp->state != IBV_QPS_ERR || sr_faults.no_flush)
		return;
	sr_sq_flush(qp);
	sr_rq_flush(qp);
}

void sr_qp_error(struct sr_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	qp->state = IBV_QPS_ERR;
	sr_work_queue(&qp->flush_work);
	if (qp->srq && sr_faults.last_wqe && !sr_faults.iwarp)
		sr_async_raise(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
}

void sr_qp_attach(struct sr_qp *qp, struct sr_conn *conn)
{
	qp->conn = conn;
	conn->qp = qp;
	sr_timer_cancel(&qp->sq.retry_timer);
	sr_conn_resume(conn);
}

/* Faults that strike after so many completions of the process. */
void sr_qp_count_completion(struct sr_qp *qp)
{
	static uint32_t flushes, disconnects, removals, bounces, events, strays;
	struct sr_conn *conn = qp ? qp->conn : NULL;

	if (qp && sr_fault_hit(sr_faults.flush_at, &flushes))
		sr_qp_error(qp);
	if (conn && sr_disconnect_hook && sr_fault_hit(sr_faults.disconnect_at, &disconnects))
		sr_disconnect_hook(conn);
	if (conn && sr_cm_event_hook && sr_fault_hit(sr_faults.cm_event != SR_NO_EVENT, &strays))
		sr_cm_event_hook(conn, sr_faults.cm_event);
	if (sr_fault_hit(sr_faults.remove_at, &removals))
		sr_device_remove();
	if (sr_fault_hit(sr_faults.port_bounce_at, &bounces))
		sr_port_bounce();
	if (sr_faults.port_events && ++events % sr_faults.port_events == 0)
		sr_port_events();
}

static int qp_check_init(const struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (attr->qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq)
		return EINVAL;
	if (cap->max_send_wr > sr_faults.max_send_wr || cap->max_recv_wr > sr_faults.max_send_wr)
		return EINVAL;
	if (cap->max_send_sge > sr_faults.max_sge || cap->max_recv_sge > sr_faults.max_sge)
		return EINVAL;
	if (cap->max_send_sge > SR_MAX_SGE || cap->max_recv_sge > SR_MAX_SGE)
		return EINVAL;
	return cap->max_inline_data > sr_faults.max_inline ? EINVAL : 0;
}

static int qp_alloc_queues(struct sr_qp *qp, const struct ibv_qp_cap *cap)
{
	struct sr_sq *sq = &qp->sq;
	uint32_t n = cap->max_send_wr ? cap->max_send_wr : 1;

	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data;
	sq->ring = calloc(n, sizeof(*sq->ring));
	sq->inline_mem = calloc(n, cap->max_inline_data ? cap->max_inline_data : 1);
	if (!sq->ring || !sq->inline_mem)
		return ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		sq->ring[i].data = sq->inline_mem + (size_t)i * cap->max_inline_data;
	if (qp->srq)
		return sr_rq_init(&qp->rq, 0, 0);
	return sr_rq_init(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
}

static void qp_free_queues(struct sr_qp *qp)
{
	free(qp->sq.ring);
	free(qp->sq.inline_mem);
	free(qp->rq.ring);
	free(qp->resp.ring);
}

static bool qp_num_taken(struct sr_context *ctx, uint32_t num)
{
	struct sr_qp *qp;

	LIST_FOREACH(qp, &ctx->qps, link)
	{
		if (qp->qp.qp_num == num)
			return true;
	}
	return false;
}

/* 24 bits, random, so that two processes hardly ever have the same. */
static uint32_t qp_new_num(struct sr_context *ctx)
{
	uint32_t num;

	do {
		if (getrandom(&num, sizeof(num), 0) != sizeof(num))
			num = sr_random();
		num &= 0xffffff;
	} while (num < 2 || qp_num_taken(ctx, num));
	return num;
}

static void qp_link(struct sr_qp *qp)
{
	sr_lock();
	qp->qp.qp_num = qp_new_num(qp->ctx);
	qp->qp.handle = qp->qp.qp_num;
	qp->pd->users++;
	qp->scq->users++;
	qp->rcq->users++;
	if (qp->srq)
		qp->srq->users++;
	LIST_INSERT_HEAD(&qp->ctx->qps, qp, link);
	sr_unlock();
	sr_count(SR_QP, 1);
}

static void qp_set_public(struct sr_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	qp->qp.context = pd->context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct sr_context *ctx = sr_context_of(pd->context);
	struct sr_qp *qp = NULL;
	int ret = sr_context_removed(ctx) ? EIO : sr_fault_call(SR_CALL_CREATE_QP);

	if (!ret)
		ret = qp_check_init(attr);
	if (!ret && sr_counted(SR_QP) >= sr_faults.max_qp)
		ret = ENOMEM;
	if (!ret) {
		qp = calloc(1, sizeof(*qp));
		ret = qp ? 0 : ENOMEM;
	}
	if (qp) {
		qp->srq = attr->srq ? sr_container(attr->srq, struct sr_srq, srq) : NULL;
		ret = qp_alloc_queues(qp, &attr->cap);
	}
	if (ret) {
		if (qp)
			qp_free_queues(qp);
		free(qp);
		errno = ret;
		return NULL;
	}
	qp->ctx = ctx;
	qp->pd = sr_container(pd, struct sr_pd, pd);
	qp->scq = sr_container(attr->send_cq, struct sr_cq, cq);
	qp->rcq = sr_container(attr->recv_cq, struct sr_cq, cq);
	qp->sig_all = attr->sq_sig_all;
	sr_sq_init(qp);
	qp->init = *attr;
	qp->flush_work.run = qp_flush;
	qp->raw_listen.fd = -1;
	qp_set_public(qp, pd, attr);
	qp_link(qp);
	return &qp->qp;
}

struct ibv_qp *sr_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	(void)context;
	if ((attr->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr);
}

static const struct {
	enum ibv_qp_state from, to;
	int need;
	int may;
} qp_steps[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
	{IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
			IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
		IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
			IBV_QP_PATH_MIG_STATE},
};

static bool qp_step_ok(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
		return (mask & ~IBV_QP_CUR_STATE) == 0;
	for (size_t i = 0; i < sizeof(qp_steps) / sizeof(qp_steps[0]); i++) {
		if (qp_steps[i].from == from && qp_steps[i].to == to)
			return (mask & qp_steps[i].need) == qp_steps[i].need &&
			       !(mask & ~(qp_steps[i].need | qp_steps[i].may));
	}
	return false;
}

static void qp_take_attr(struct sr_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

	if (mask & IBV_QP_PKEY_INDEX)
		own->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		own->port_num = attr->port_num;
	if (mask & IBV_QP_ACCESS_FLAGS)
		own->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_AV)
		own->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		own->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		own->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		own->rq_psn = attr->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		own->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		own->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		own->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		own->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		own->rnr_retry = attr->rnr_retry;
}

static int qp_check_attr(const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > sr_faults.max_qp_rd_atom)
		return EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
		attr->max_dest_rd_atomic > sr_faults.max_qp_rd_atom)
		return EINVAL;
	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7)
		return EINVAL;
	return (mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31 ? EINVAL : 0;
}

/* Ready to receive: room for what the peer may ask at once, and the stream to it. */
static int qp_enter_rtr(struct sr_qp *qp)
{
	struct sr_conn *conn;

	qp->resp.size = 2u * qp->attr.max_dest_rd_atomic + 8;
	free(qp->resp.ring);
	qp->resp.ring = calloc(qp->resp.size, sizeof(*qp->resp.ring));
	if (!qp->resp.ring)
		return ENOMEM;
	if (qp->conn) {
		sr_conn_resume(qp->conn);
		return 0;
	}
	conn = sr_conn_find(qp->attr.dest_qp_num);
	if (!conn)
		return sr_raw_connect(qp);
	sr_raw_stop(qp);
	sr_qp_attach(qp, conn);
	return 0;
}

static void qp_reset(struct sr_qp *qp)
{
	sr_work_cancel(&qp->flush_work);
	sr_raw_stop(qp);
	sr_sq_reset(qp);
	sr_resp_reset(qp);
	qp->rq.head = qp->rq.tail;
	qp->rq.polled = qp->rq.tail;
	if (qp->conn)
		sr_conn_detach_qp(qp->conn);
	qp->conn = NULL;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

int sr_qp_modify(struct sr_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	int ret = qp_check_attr(attr, mask);

	if (ret)
		return ret;
	if (!qp_step_ok(qp->state, to, mask))
		return EINVAL;
	if (to == IBV_QPS_ERR) {
		sr_qp_error(qp);
		qp->qp.state = IBV_QPS_ERR;
		return 0;
	}
	if (to == IBV_QPS_RESET)
		qp_reset(qp);
	qp_take_attr(qp, attr, mask);
	if (to == IBV_QPS_RTR)
		ret = qp_enter_rtr(qp);
	if (ret)
		return ret;
	qp->state = to;
	qp->qp.state = to;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct sr_qp *qp = sr_container(ibqp, struct sr_qp, qp);
	int ret = sr_context_removed(qp->ctx) ? EIO : sr_fault_call(SR_CALL_MODIFY_QP);

	if (ret)
		return ret;
	sr_lock();
	ret = sr_qp_modify(qp, attr, mask);
	if (!ret && qp->state == IBV_QPS_INIT && !qp->conn)
		sr_raw_listen(qp);
	sr_unlock();
	return ret;
}

int ibv_query_qp(
	struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct sr_qp *qp = sr_container(ibqp, struct sr_qp, qp);

	(void)mask;
	sr_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->init.cap;
	*init = qp->init;
	sr_unlock();
	return 0;
}

static void qp_unlink(struct sr_qp *qp)
{
	LIST_REMOVE(qp, link);
	qp_reset(qp);
	sr_mw_forget_qp(qp);
	sr_cq_forget_qp(qp->scq, qp);
	if (qp->rcq != qp->scq)
		sr_cq_forget_qp(qp->rcq, qp);
	sr_async_purge(qp->ctx, qp);
	qp->pd->users--;
	qp->scq->users--;
	qp->rcq->users--;
	if (qp->srq)
		qp->srq->users--;
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct sr_qp *qp = sr_container(ibqp, struct sr_qp, qp);
	int ret = sr_fault_call(SR_CALL_DESTROY_QP);

	if (ret)
		return ret;
	sr_lock();
	qp_unlink(qp);
	sr_unlock();
	pthread_mutex_lock(&ibqp->mutex);
	while (ibqp->events_completed != qp->async_reported)
		pthread_cond_wait(&ibqp->cond, &ibqp->mutex);
	pthread_mutex_unlock(&ibqp->mutex);
	pthread_mutex_destroy(&ibqp->mutex);
	pthread_cond_destroy(&ibqp->cond);
	qp_free_queues(qp);
	sr_lock();
	sr_garbage_add(&qp->garbage, qp);
	sr_unlock();
	sr_count(SR_QP, -1);
	return 0;
}
