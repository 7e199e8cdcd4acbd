/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of devices. librdmacm opens a device once for the whole process, so every
 * loop that uses it shares one descriptor of events. Whoever reads it tells all others; each keeps
 * what concerns it and ignores the rest (queue pairs of other loops, of other users of the device).
 */
#ifndef HAUL_LINK_RDMA_ASYNC_H
#define HAUL_LINK_RDMA_ASYNC_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "proto/base/list.h"

#define RDMA_ASYNC_NR_NOTES 64

struct rdma_async_note {
	enum ibv_event_type type;
	uint32_t number;     /* of the queue pair or port; 0 where it has none */
	const void *element; /* the event's completion queue or SRQ: only to be compared */
};

/* One a loop and device. The registry's from join to leave; its lock guards all but EVENT_FD. */
struct rdma_async_member {
	struct ibv_context *verbs;
	int event_fd; /* readable while there are notes; the loop waits for it */
	struct list node;
	struct rdma_async_note notes[RDMA_ASYNC_NR_NOTES];
	uint32_t first, nr;
	bool lost; /* there were more than fit: everything has to be looked at */
};

/* Makes EVENT_FD. */
int rdma_async_join(struct rdma_async_member *member, struct ibv_context *verbs) must_check;
void rdma_async_leave(struct rdma_async_member *member);

/* VERBS->async_fd is readable: read what is there and tell all members. Never blocks. */
void rdma_async_read(struct ibv_context *verbs);

/* The next note for MEMBER; false when there is none. *RET_LOST: some are missing before it. */
bool rdma_async_take(struct rdma_async_member *member, struct rdma_async_note *ret, bool *ret_lost);

#endif
