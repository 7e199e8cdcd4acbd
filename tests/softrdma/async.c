/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events: raised by the engine, read by the program from context->async_fd.
 * Destroying the object an event is about waits until the program has acknowledged it, as the real
 * library does.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>

enum async_kind { ASYNC_QP, ASYNC_CQ, ASYNC_SRQ, ASYNC_PORT };

static enum async_kind async_kind_of(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ASYNC_CQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ASYNC_SRQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ASYNC_QP;
	default:
		return ASYNC_PORT;
	}
}

void sr_async_raise(struct sr_context *ctx, enum ibv_event_type type, void *object)
{
	sr_evq_add(&ctx->async, type, object);
}

void sr_async_purge(struct sr_context *ctx, void *object)
{
	sr_evq_purge(&ctx->async, object);
}

static void async_taken(uint32_t type, void *object)
{
	switch (async_kind_of(type)) {
	case ASYNC_QP:
		((struct sr_qp *)object)->async_reported++;
		break;
	case ASYNC_CQ:
		((struct sr_cq *)object)->async_reported++;
		break;
	case ASYNC_SRQ:
		((struct sr_srq *)object)->async_reported++;
		break;
	case ASYNC_PORT:
		break;
	}
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sr_context *ctx = sr_context_of(context);
	uint32_t type;
	void *object;
	int ret = sr_evq_take(&ctx->async, &type, &object, async_taken);

	if (ret) {
		errno = ret;
		return -1;
	}
	event->event_type = (enum ibv_event_type)type;
	switch (async_kind_of(type)) {
	case ASYNC_QP:
		event->element.qp = object;
		break;
	case ASYNC_CQ:
		event->element.cq = object;
		break;
	case ASYNC_SRQ:
		event->element.srq = object;
		break;
	case ASYNC_PORT:
		event->element.port_num = 1;
		break;
	}
	return 0;
}

static void async_ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;

	switch (async_kind_of(event->event_type)) {
	case ASYNC_QP:
		async_ack(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case ASYNC_CQ:
		async_ack(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case ASYNC_SRQ:
		async_ack(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case ASYNC_PORT:
		break;
	}
}
