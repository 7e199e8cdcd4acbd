/* SPDX-License-Identifier: MIT */
/*
 * A queue's life and its requests, for the library's own files. What transports call is in
 * transport.h.
 */
#ifndef HAUL_INITIATOR_QUEUE_H
#define HAUL_INITIATOR_QUEUE_H

#include "initiator/ctrl.h"

#define QUEUE_MAX_DEPTH	    4096
#define QUEUE_DEFAULT_DEPTH 128

/* Allocates the queue with room for DEPTH requests; QID 0 has no I/Os of the caller. */
int queue_alloc(
	struct haul_ctrl *ctrl, uint16_t qid, uint32_t depth, struct haul_queue **ret) must_check;
/* Opens the connection and sends Connect: ctrl_queue_live() or ctrl_queue_closed() comes. */
int queue_start(struct haul_queue *queue) must_check;
/* Ends it: RESULT is what its requests get. ctrl_queue_closed() comes from a later turn, unless it
 * was never started. */
void queue_end(struct haul_queue *queue, int result);
/* IDLE or CLOSED. NULL is allowed. */
void queue_free(struct haul_queue *queue);
static inline bool queue_is_quiet(const struct haul_queue *queue)
{
	return queue->state == HAUL_QUEUE_IDLE || queue->state == HAUL_QUEUE_CLOSED;
}

/* queue_connect.c's: the connection is there, send Connect. ctrl_queue_live() comes, or
 * ctrl_queue_lost(). */
void queue_send_connect(struct haul_queue *queue);

/* A request in state PREPARED with a cleared command, or NULL. */
struct haul_request *queue_request_get(struct haul_queue *queue);
/* Hands it to the transport. TIMEOUT_NS 0: no deadline. */
void queue_request_send(struct haul_request *request, uint64_t timeout_ns);

#endif
