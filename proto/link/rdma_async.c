/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of devices, read by whichever loop comes first and told to all.
 */
#include "proto/link/rdma_async.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/fd.h"

#define RDMA_ASYNC_EVENTS_PER_TURN 64

/* Taken when a device comes or goes and for rare events, never for I/O. */
static pthread_mutex_t rdma_async_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list rdma_async_members = {&rdma_async_members, &rdma_async_members};

int rdma_async_join(struct rdma_async_member *member, struct ibv_context *verbs)
{
	int result = fd_set_nonblocking(verbs->async_fd);

	if (result)
		return result;
	member->verbs = verbs;
	member->first = 0;
	member->nr = 0;
	member->lost = false;
	member->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (member->event_fd < 0)
		return -errno;
	list_init(&member->node);
	pthread_mutex_lock(&rdma_async_lock);
	list_push_back(&rdma_async_members, &member->node);
	pthread_mutex_unlock(&rdma_async_lock);
	return 0;
}

void rdma_async_leave(struct rdma_async_member *member)
{
	pthread_mutex_lock(&rdma_async_lock);
	list_remove(&member->node);
	pthread_mutex_unlock(&rdma_async_lock);
	close(member->event_fd);
}

static void rdma_async_tell(struct rdma_async_member *member, const struct rdma_async_note *note)
{
	const uint64_t one = 1;
	ssize_t written;

	if (member->nr == RDMA_ASYNC_NR_NOTES)
		member->lost = true;
	else
		member->notes[(member->first + member->nr++) % RDMA_ASYNC_NR_NOTES] = *note;
	written = write(member->event_fd, &one, sizeof(one));
	(void)written; /* it fails only when the counter is full: then it is readable anyway */
}

static struct rdma_async_note rdma_async_note_of(const struct ibv_async_event *event)
{
	struct rdma_async_note note = {.type = event->event_type};

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		note.number = event->element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		note.element = event->element.cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		note.element = event->element.srq;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		note.number = (uint32_t)event->element.port_num;
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	return note;
}

void rdma_async_read(struct ibv_context *verbs)
{
	struct rdma_async_member *member;
	struct ibv_async_event event;
	struct rdma_async_note note;
	unsigned i;

	for (i = 0; i < RDMA_ASYNC_EVENTS_PER_TURN; i++) {
		if (ibv_get_async_event(verbs, &event))
			return;
		/* The object lives until the acknowledgement: its destroyer waits for that. */
		note = rdma_async_note_of(&event);
		ibv_ack_async_event(&event);
		pthread_mutex_lock(&rdma_async_lock);
		list_for_each_entry (member, &rdma_async_members, node) {
			if (member->verbs == verbs)
				rdma_async_tell(member, &note);
		}
		pthread_mutex_unlock(&rdma_async_lock);
	}
}

bool rdma_async_take(struct rdma_async_member *member, struct rdma_async_note *ret, bool *ret_lost)
{
	uint64_t count;
	bool found;
	ssize_t nr;

	pthread_mutex_lock(&rdma_async_lock);
	found = member->nr > 0;
	if (found) {
		*ret = member->notes[member->first];
		member->first = (member->first + 1) % RDMA_ASYNC_NR_NOTES;
		member->nr--;
	} else {
		nr = read(member->event_fd, &count, sizeof(count));
		(void)nr; /* empty already: nothing to take back */
	}
	*ret_lost = member->lost;
	member->lost = false;
	pthread_mutex_unlock(&rdma_async_lock);
	return found;
}
