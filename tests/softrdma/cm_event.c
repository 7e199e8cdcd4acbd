/* SPDX-License-Identifier: MIT */
/*
 * CM events: an id's events are a list of its own; the channel's queue says only whose turn it is.
 * So an id can take its waiting events along (migrate) or have them dropped (destroy).
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *ch;
	int ret;

	if (cm_init())
		return NULL;
	ch = calloc(1, sizeof(*ch));
	ret = ch ? sr_evq_init(&ch->evq) : ENOMEM;
	if (ret) {
		free(ch);
		errno = ret;
		return NULL;
	}
	ch->channel.fd = ch->evq.fd;
	sr_count(SR_CM_CHANNEL, 1);
	return &ch->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *ch = sr_container(channel, struct cm_channel, channel);

	sr_evq_destroy(&ch->evq);
	free(ch);
	sr_count(SR_CM_CHANNEL, -1);
}

struct cm_event *cm_event_new(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct cm_event *event = calloc(1, sizeof(*event));

	if (!event)
		abort();
	event->owner = id;
	event->ev.id = &id->id;
	event->ev.event = type;
	event->ev.status = status;
	return event;
}

void cm_event_post(struct cm_event *event)
{
	struct cm_id *id = event->owner;
	struct cm_channel *ch = sr_container(id->id.channel, struct cm_channel, channel);

	event->queued = true;
	TAILQ_INSERT_TAIL(&id->events, event, link);
	sr_evq_add(&ch->evq, 0, id);
}

void cm_event_simple(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	cm_event_post(cm_event_new(id, type, status));
}

/* InfiniBand's CM hands out the whole area, padded; iWARP the bytes that were sent. */
void cm_event_set_private(struct cm_event *event, const struct sr_cm_body *body, uint8_t padded)
{
	event->body = *body;
	memset(event->body.private_data + body->private_data_len, 0,
		sizeof(body->private_data) - body->private_data_len);
	event->ev.param.conn.private_data_len = cm_padded(body->private_data_len, padded);
	event->ev.param.conn.private_data =
		event->ev.param.conn.private_data_len ? event->body.private_data : NULL;
}

static void event_free(struct cm_event *event)
{
	if (event->conn) {
		cm_reject_conn(event->conn, CM_REJ_CONSUMER_DEFINED);
		event->conn = NULL;
	}
	free(event);
}

void cm_events_drop(struct cm_id *id)
{
	struct cm_event *event;

	while ((event = TAILQ_FIRST(&id->events))) {
		TAILQ_REMOVE(&id->events, event, link);
		event_free(event);
	}
	while ((event = TAILQ_FIRST(&id->requests))) {
		TAILQ_REMOVE(&id->requests, event, link);
		event_free(event);
	}
}

static void event_taken(uint32_t type, void *object)
{
	(void)type;
	((struct cm_id *)object)->reported++;
}

static void event_complete(struct cm_id *id)
{
	pthread_mutex_lock(&id->mutex);
	id->completed++;
	pthread_cond_signal(&id->cond);
	pthread_mutex_unlock(&id->mutex);
}

static void event_bind_device(struct cm_id *id)
{
	id->id.verbs = cm_device_context(id->device);
	id->id.port_num = 1;
}

/* A path record, because programs look into it. */
static void event_set_route(struct cm_id *id)
{
	struct rdma_route *route = &id->id.route;

	if (route->num_paths)
		return;
	route->path_rec = calloc(1, sizeof(*route->path_rec));
	if (!route->path_rec)
		return;
	route->num_paths = 1;
	route->path_rec->mtu = IBV_MTU_4096;
	route->path_rec->pkey = 0xffff;
	route->path_rec->hop_limit = 64;
}

static int event_new_request(struct cm_event *event)
{
	struct cm_id *listener = event->owner;
	struct cm_id *id = cm_id_new(listener->sync ? NULL : listener->id.channel,
		listener->id.context, listener->id.ps);

	if (!id)
		return ENOMEM;
	sr_lock();
	listener->pending--;
	cm_request_taken(id, event);
	sr_unlock();
	event_bind_device(id);
	event_set_route(id);
	event->ev.id = &id->id;
	event->ev.listen_id = &listener->id;
	return 0;
}

/* What the real library does when the program takes the event. 0, or an errno: the event is
 * dropped. */
static int event_process(struct cm_event *event)
{
	struct cm_id *id = event->owner;
	int ret;

	switch (event->ev.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		event_bind_device(id);
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		event_set_route(id);
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return event_new_request(event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (!id->id.qp)
			return 0;
		ret = cm_reply_taken(id);
		event->ev.event = ret ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
		event->ev.status = -ret;
		return 0;
	default:
		return 0;
	}
}

static struct cm_event *event_pop(struct cm_id *id)
{
	struct cm_event *event;

	sr_lock();
	event = TAILQ_FIRST(&id->events);
	if (event)
		TAILQ_REMOVE(&id->events, event, link);
	sr_unlock();
	return event;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event)
{
	struct cm_channel *ch = sr_container(channel, struct cm_channel, channel);

	for (;;) {
		struct cm_event *event;
		uint32_t type;
		void *object;
		int ret = sr_evq_take(&ch->evq, &type, &object, event_taken);

		if (ret)
			return cm_errno(ret);
		event = event_pop(object);
		ret = event ? event_process(event) : 0;
		if (event && !ret) {
			*ret_event = &event->ev;
			return 0;
		}
		/* Dropped, or the id is being destroyed by another thread. */
		if (event) {
			sr_lock();
			event_free(event);
			sr_unlock();
		}
		event_complete(object);
	}
}

int rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	struct cm_event *event;

	if (!ev)
		return cm_errno(EINVAL);
	event = sr_container(ev, struct cm_event, ev);
	event_complete(event->owner);
	free(event);
	return 0;
}

int cm_sync(struct cm_id *id)
{
	int status;

	if (!id->sync)
		return 0;
	if (id->id.event) {
		rdma_ack_cm_event(id->id.event);
		id->id.event = NULL;
	}
	if (rdma_get_cm_event(id->id.channel, &id->id.event))
		return -1;
	status = id->id.event->status;
	if (!status)
		return 0;
	if (id->id.event->event == RDMA_CM_EVENT_REJECTED)
		return cm_errno(ECONNREFUSED);
	return cm_errno(status < 0 ? -status : status);
}

const char *rdma_event_str(enum rdma_cm_event_type type)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};
	size_t n = sizeof(names) / sizeof(names[0]);

	return (size_t)type < n ? names[type] : "UNKNOWN EVENT";
}
