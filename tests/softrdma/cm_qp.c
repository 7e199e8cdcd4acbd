/* SPDX-License-Identifier: MIT */
/*
 * The queue pair of an id: creation, and the steps to ready-to-send with the values the two sides
 * agreed on.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void qp_init_attr_of(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	attr->qp_state = IBV_QPS_INIT;
	attr->port_num = 1;
	attr->pkey_index = 0;
	attr->qp_access_flags = 0;
	*mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
}

/* The kernel's CM allows remote writes, and reads if there may be any. */
static void qp_rtr_attr_of(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->qp_state = IBV_QPS_RTR;
	attr->qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | (id->responder_resources ? IBV_ACCESS_REMOTE_READ : 0u);
	attr->path_mtu = IBV_MTU_4096;
	attr->dest_qp_num = id->peer.qp_num;
	attr->max_dest_rd_atomic = id->responder_resources;
	attr->min_rnr_timer = 0;
	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = 1;
	*mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

/* How often a side may be told "not ready" is for the other side to say. */
static void qp_rts_attr_of(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->qp_state = IBV_QPS_RTS;
	attr->timeout = 18;
	attr->retry_cnt = 7;
	attr->rnr_retry = id->peer.rnr_retry_count;
	attr->max_rd_atomic = id->initiator_depth;
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

int cm_qp_init(struct cm_id *id, struct ibv_qp *ibqp)
{
	struct ibv_qp_attr attr = {0};
	int mask;

	qp_init_attr_of(id, &attr, &mask);
	return sr_qp_modify(sr_container(ibqp, struct sr_qp, qp), &attr, mask);
}

int cm_qp_ready(struct cm_id *id)
{
	struct sr_qp *qp = sr_container(id->id.qp, struct sr_qp, qp);
	struct ibv_qp_attr attr = {0};
	int mask, ret;

	if (qp->state == IBV_QPS_INIT && !qp->conn)
		sr_qp_attach(qp, id->conn);
	qp_rtr_attr_of(id, &attr, &mask);
	ret = sr_qp_modify(qp, &attr, mask);
	if (ret)
		return ret;
	qp_rts_attr_of(id, &attr, &mask);
	return sr_qp_modify(qp, &attr, mask);
}

void cm_qp_error(struct cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (id->id.qp)
		sr_qp_modify(sr_container(id->id.qp, struct sr_qp, qp), &attr, IBV_QP_STATE);
}

int rdma_init_qp_attr(struct rdma_cm_id *ibid, struct ibv_qp_attr *attr, int *mask)
{
	struct cm_id *id = cm_of(ibid);
	int ret = 0;

	sr_lock();
	if (attr->qp_state == IBV_QPS_INIT)
		qp_init_attr_of(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTR)
		qp_rtr_attr_of(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS)
		qp_rts_attr_of(id, attr, mask);
	else
		ret = EINVAL;
	sr_unlock();
	return cm_errno(ret);
}

static int qp_make_cq(
	struct rdma_cm_id *id, uint32_t cqe, struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(id->verbs, (int)cqe, id, *channel, 0);
	return *cq ? 0 : -1;
}

static void qp_destroy_cqs(struct rdma_cm_id *id)
{
	if (id->send_cq && id->send_cq_channel)
		ibv_destroy_cq(id->send_cq);
	if (id->send_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq && id->recv_cq_channel)
		ibv_destroy_cq(id->recv_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static int qp_make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr)
{
	uint32_t sends = attr->cap.max_send_wr ? attr->cap.max_send_wr : 1;
	uint32_t recvs = attr->cap.max_recv_wr ? attr->cap.max_recv_wr : 1;

	if (!attr->recv_cq && qp_make_cq(id, recvs, &id->recv_cq_channel, &id->recv_cq))
		return -1;
	if (!attr->send_cq && qp_make_cq(id, sends, &id->send_cq_channel, &id->send_cq))
		return -1;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	return 0;
}

static int qp_create(struct cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;
	int ret;

	if (qp_make_cqs(&id->id, attr))
		goto destroy_cqs;
	qp = ibv_create_qp(pd, attr);
	if (!qp)
		goto destroy_cqs;
	sr_lock();
	ret = cm_qp_init(id, qp);
	sr_unlock();
	if (ret) {
		ibv_destroy_qp(qp);
		errno = ret;
		goto destroy_cqs;
	}
	id->id.qp = qp;
	id->id.pd = pd;
	if (!id->id.send_cq)
		id->id.send_cq = qp->send_cq;
	if (!id->id.recv_cq)
		id->id.recv_cq = qp->recv_cq;
	if (qp->srq)
		id->id.srq = qp->srq;
	return 0;
destroy_cqs:
	ret = errno;
	qp_destroy_cqs(&id->id);
	return cm_errno(ret);
}

int rdma_create_qp(struct rdma_cm_id *ibid, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct cm_id *id = cm_of(ibid);

	if (ibid->qp || !ibid->verbs || (pd && pd->context != ibid->verbs))
		return cm_errno(EINVAL);
	if (!pd)
		pd = cm_device_pd(id->device);
	if (!pd)
		return -1;
	if (!attr->srq && ibid->srq)
		attr->srq = ibid->srq;
	return qp_create(id, pd, attr);
}

int rdma_create_qp_ex(struct rdma_cm_id *ibid, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD)
		return cm_errno(EOPNOTSUPP);
	return rdma_create_qp(ibid, attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL,
		(struct ibv_qp_init_attr *)attr);
}

void rdma_destroy_qp(struct rdma_cm_id *ibid)
{
	struct ibv_qp *qp = ibid->qp;

	if (!qp)
		return;
	sr_lock();
	ibid->qp = NULL;
	sr_unlock();
	ibv_destroy_qp(qp);
	qp_destroy_cqs(ibid);
}
