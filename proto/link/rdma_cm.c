/* SPDX-License-Identifier: MIT */
/*
 * The RDMA connection manager's events on a loop.
 */
#include "proto/link/rdma_cm.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/fd.h"

#define RDMA_CM_EVENTS_PER_TURN 32 /* a storm of connects must not hold up I/O on the loop */

static void rdma_cm_note_fill(struct rdma_cm_note *note, const struct rdma_cm_event *event)
{
	note->id = event->id;
	note->type = event->event;
	note->status = event->status;
	note->initiator_depth = event->param.conn.initiator_depth;
	note->responder_resources = event->param.conn.responder_resources;
	note->private_len = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
	if (note->private_len)
		memcpy(note->private_data, event->param.conn.private_data, note->private_len);
}

static void rdma_cm_ready(struct loop_poll *poll, uint32_t events)
{
	struct rdma_cm *cm = container_of(poll, struct rdma_cm, poll);
	struct rdma_cm_note note;
	struct rdma_cm_event *event;
	struct rdma_cm_owner *owner;
	unsigned i;

	(void)events;
	for (i = 0; i < RDMA_CM_EVENTS_PER_TURN && cm->poll.active; i++) {
		if (rdma_get_cm_event(cm->channel, &event))
			return;
		rdma_cm_note_fill(&note, event);
		/* Read before the acknowledgement: after it the thread that adopts the id may go on
		 * and set another owner. */
		owner = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id->context
								      : event->id->context;
		rdma_ack_cm_event(event);
		owner->event(owner, &note);
	}
}

int rdma_cm_create(struct loop *loop, struct rdma_cm **ret)
{
	struct rdma_cm *cm;
	int result;

	cm = calloc(1, sizeof(*cm));
	if (!cm)
		return -ENOMEM;
	cm->loop = loop;
	cm->channel = rdma_create_event_channel();
	if (!cm->channel) {
		result = -errno;
		goto free_cm;
	}
	result = fd_set_nonblocking(cm->channel->fd);
	if (result)
		goto destroy_channel;
	cm->poll.ready = rdma_cm_ready;
	result = loop_poll_add(loop, &cm->poll, cm->channel->fd, POLLIN);
	if (result)
		goto destroy_channel;
	*ret = cm;
	return 0;

destroy_channel:
	rdma_destroy_event_channel(cm->channel);
free_cm:
	free(cm);
	return result;
}

static void rdma_cm_deleted(struct loop_poll *poll)
{
	struct rdma_cm *cm = container_of(poll, struct rdma_cm, poll);

	if (cm->nr_closing)
		--*cm->nr_closing;
	free(cm);
}

void rdma_cm_destroy(struct rdma_cm *cm, uint32_t *nr_closing)
{
	if (!cm)
		return;
	cm->nr_closing = nr_closing;
	if (nr_closing)
		++*nr_closing;
	loop_poll_del(cm->loop, &cm->poll, rdma_cm_deleted);
	rdma_destroy_event_channel(cm->channel);
}

int rdma_cm_adopt(struct rdma_cm *cm, struct rdma_cm_id *id, struct rdma_cm_owner *owner)
{
	if (rdma_migrate_id(id, cm->channel))
		return -errno;
	id->context = owner;
	return 0;
}
