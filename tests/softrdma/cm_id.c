/* SPDX-License-Identifier: MIT */
/*
 * Life of an rdma_cm_id: creation, options, migration to another channel, destruction.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static LIST_HEAD(, cm_id) cm_ids = LIST_HEAD_INITIALIZER(cm_ids);

struct cm_id *cm_id_first(void)
{
	return LIST_FIRST(&cm_ids);
}

static void id_timewait_over(struct sr_timer *timer)
{
	cm_event_simple(
		sr_container(timer, struct cm_id, timewait), RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

/* Without a channel the id gets one of its own and its calls wait for their events. */
struct cm_id *cm_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->sync = !channel;
	id->id.channel = channel ? channel : rdma_create_event_channel();
	if (!id->id.channel) {
		free(id);
		return NULL;
	}
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = IBV_QPT_RC;
	id->device = -1;
	TAILQ_INIT(&id->events);
	TAILQ_INIT(&id->requests);
	pthread_mutex_init(&id->mutex, NULL);
	pthread_cond_init(&id->cond, NULL);
	id->timewait.fire = id_timewait_over;
	sr_lock();
	LIST_INSERT_HEAD(&cm_ids, id, link);
	sr_unlock();
	sr_count(SR_CM_ID, 1);
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *context,
	enum rdma_port_space ps)
{
	struct cm_id *id;
	int ret;

	if (cm_init())
		return -1;
	ret = sr_fault_call(SR_CALL_CREATE_ID);
	if (!ret && ps != RDMA_PS_TCP && ps != RDMA_PS_IB)
		ret = EOPNOTSUPP;
	if (ret)
		return cm_errno(ret);
	id = cm_id_new(channel, context, ps);
	if (!id)
		return cm_errno(ENOMEM);
	*ret_id = &id->id;
	return 0;
}

/* Events the program holds must come back first; with the channel emptied there will be no more. */
void cm_wait_acked(struct cm_id *id)
{
	pthread_mutex_lock(&id->mutex);
	while (id->completed != id->reported)
		pthread_cond_wait(&id->cond, &id->mutex);
	pthread_mutex_unlock(&id->mutex);
}

static void id_free(struct cm_id *id)
{
	if (id->sync)
		rdma_destroy_event_channel(id->id.channel);
	pthread_mutex_destroy(&id->mutex);
	pthread_cond_destroy(&id->cond);
	free(id->id.route.path_rec);
	free(id->ep_qp_attr);
	sr_lock();
	sr_garbage_add(&id->garbage, id);
	sr_unlock();
	sr_count(SR_CM_ID, -1);
}

int rdma_destroy_id(struct rdma_cm_id *ibid)
{
	struct cm_id *id = cm_of(ibid);
	struct cm_channel *ch = sr_container(ibid->channel, struct cm_channel, channel);

	if (ibid->event) {
		rdma_ack_cm_event(ibid->event);
		ibid->event = NULL;
	}
	sr_lock();
	LIST_REMOVE(id, link);
	sr_timer_cancel(&id->timer);
	sr_timer_cancel(&id->timewait);
	cm_listen_close(id);
	cm_abandon(id);
	sr_evq_purge(&ch->evq, id);
	cm_events_drop(id);
	sr_unlock();
	cm_wait_acked(id);
	id_free(id);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *ibid, struct rdma_event_channel *channel)
{
	struct cm_id *id = cm_of(ibid);
	struct cm_channel *from = sr_container(ibid->channel, struct cm_channel, channel), *to;
	bool was_sync = id->sync;
	struct rdma_event_channel *own = NULL;

	if (!channel) {
		own = rdma_create_event_channel();
		if (!own)
			return -1;
		channel = own;
	}
	to = sr_container(channel, struct cm_channel, channel);
	if (ibid->event) {
		rdma_ack_cm_event(ibid->event);
		ibid->event = NULL;
	}
	sr_lock();
	id->sync = own != NULL;
	ibid->channel = channel;
	sr_evq_move(&from->evq, &to->evq, id);
	sr_unlock();
	cm_wait_acked(id);
	if (was_sync)
		rdma_destroy_event_channel(&from->channel);
	return 0;
}

static int id_set_flag(bool *flag, const void *val, size_t len)
{
	if (len != sizeof(int))
		return EINVAL;
	*flag = *(const int *)val != 0;
	return 0;
}

static int id_set_option(struct cm_id *id, int option, const void *val, size_t len)
{
	switch (option) {
	case RDMA_OPTION_ID_TOS:
		return len == 1 ? 0 : EINVAL;
	case RDMA_OPTION_ID_REUSEADDR:
		return id_set_flag(&id->reuse_addr, val, len);
	case RDMA_OPTION_ID_AFONLY:
		if (id->state != CM_IDLE)
			return EINVAL;
		return id_set_flag(&id->af_only, val, len);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return len == 1 && !sr_faults.iwarp ? 0 : EINVAL;
	default:
		return ENOSYS;
	}
}

int rdma_set_option(struct rdma_cm_id *ibid, int level, int option, void *val, size_t len)
{
	int ret;

	if (level != RDMA_OPTION_ID)
		return cm_errno(level == RDMA_OPTION_IB ? 0 : ENOSYS);
	sr_lock();
	ret = id_set_option(cm_of(ibid), option, val, len);
	sr_unlock();
	return cm_errno(ret);
}
