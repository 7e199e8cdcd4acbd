/* SPDX-License-Identifier: MIT */
/*
 * A queue's life, above its transport: connection, requests with their deadlines, the end.
 * Each request that was sent comes back exactly once, and memory is the caller's again only then.
 */
#include "initiator/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/io.h"

static void queue_deadline_expired(struct loop_timer *timer);
static void queue_end_flushed(struct loop_flush *flush);

/* --- made and freed ------------------------------------------------------------------------ */

static void queue_init(struct haul_queue *queue, struct haul_ctrl *ctrl, uint16_t qid)
{
	queue->ctrl = ctrl;
	queue->hl = ctrl->hl;
	queue->loop = ctrl->hl->loop;
	queue->pool = ctrl->hl->pool;
	queue->ops = ctrl->ops;
	queue->qid = qid;
	queue->address = ctrl->address;
	queue->header_digest = ctrl->options.header_digest;
	queue->data_digest = ctrl->options.data_digest;
	queue->tos = ctrl->options.tos;
	queue->key_per_io = ctrl->options.keys == HAUL_KEYS_IO;
	queue->max_segments = qid ? ctrl->limits.max_segments : 1;
	queue->in_capsule_bytes = qid ? ctrl->limits.in_capsule_bytes : 0;
	if (!qid && ctrl->ops->trtype == NVME_TRTYPE_TCP)
		queue->in_capsule_bytes = CTRL_ADMIN_TCP_INLINE;
	list_init(&queue->out);
	list_init(&queue->node);
	list_init(&queue->starved);
	list_init(&queue->create.node);
	list_init(&queue->close.node);
	loop_timer_init(&queue->timeout_timer, queue_deadline_expired);
	loop_flush_init(&queue->end_flush, queue_end_flushed);
}

static int queue_alloc_requests(struct haul_queue *queue, uint32_t depth)
{
	queue->requests = calloc(depth, sizeof(*queue->requests));
	queue->connect_data = calloc(1, sizeof(*queue->connect_data));
	if (!queue->requests || !queue->connect_data || slots_init(&queue->slots, depth))
		return -ENOMEM;
	queue->depth = depth;
	queue->cid_index_mask = 1;
	while (queue->cid_index_mask < depth)
		queue->cid_index_mask <<= 1;
	queue->cid_index_mask--;
	for (uint32_t i = 0; i < depth; i++) {
		struct haul_request *request = &queue->requests[i];

		request->queue = queue;
		request->index = i;
		request->cid = (uint16_t)i;
		list_init(&request->node);
	}
	return 0;
}

int queue_alloc(struct haul_ctrl *ctrl, uint16_t qid, uint32_t depth, struct haul_queue **ret)
{
	struct haul_queue *queue = calloc(1, sizeof(*queue));
	int error;

	if (!queue)
		return -ENOMEM;
	queue_init(queue, ctrl, qid);
	error = queue_alloc_requests(queue, depth);
	if (!error && qid)
		error = io_alloc(queue);
	if (error)
		goto free_queue;
	error = loop_timers_reserve(queue->loop, 1);
	if (error)
		goto free_queue;
	error = queue->ops->alloc(queue);
	if (error)
		goto unreserve;
	*ret = queue;
	return 0;

unreserve:
	loop_timers_unreserve(queue->loop, 1);
free_queue:
	io_free(queue);
	slots_destroy(&queue->slots);
	free(queue->connect_data);
	free(queue->requests);
	free(queue);
	return error;
}

void queue_free(struct haul_queue *queue)
{
	if (!queue)
		return;
	assert(queue_is_quiet(queue) && list_empty(&queue->out));
	loop_flush_cancel(&queue->end_flush);
	loop_timer_cancel(queue->loop, &queue->timeout_timer);
	loop_timers_unreserve(queue->loop, 1);
	queue->ops->free(queue);
	io_free(queue);
	slots_destroy(&queue->slots);
	free(queue->connect_data);
	free(queue->requests);
	free(queue);
}

/* --- requests ------------------------------------------------------------------------------ */

struct haul_request *queue_request_get(struct haul_queue *queue)
{
	uint32_t index = slots_get(&queue->slots);
	struct haul_request *request;

	if (index == SLOTS_NONE)
		return NULL;
	request = &queue->requests[index];
	assert(request->state == HAUL_REQUEST_FREE);
	request->state = HAUL_REQUEST_PREPARED;
	request->cmd = (struct nvme_cmd){.flags = NVME_CMD_PSDT_SGL};
	return request;
}

/*
 * The next generation of this slot's CID: a late response to the last command of the slot must not
 * find this one. FFFFh is not to be used (NVMe base 2.0 3.3.3.1, error log).
 */
static uint16_t request_next_cid(const struct haul_request *request)
{
	uint16_t step = (uint16_t)(request->queue->cid_index_mask + 1);
	uint16_t cid = (uint16_t)(request->cid + step);

	return cid == 0xffff ? (uint16_t)(cid + step) : cid;
}

void queue_request_send(struct haul_request *request, uint64_t timeout_ns)
{
	struct haul_queue *queue = request->queue;

	assert(request->state == HAUL_REQUEST_PREPARED);
	request->cid = request_next_cid(request);
	le16_set(&request->cmd.cid, request->cid);
	request->state = HAUL_REQUEST_OUT;
	request->deadline_ns = timeout_ns ? haul_loop_now_ns(queue->hl) + timeout_ns : 0;
	list_push_back(&queue->out, &request->node);
	if (timeout_ns && (!loop_timer_is_set(&queue->timeout_timer) ||
				  request->deadline_ns < queue->timeout_timer.deadline_ns))
		loop_timer_set(queue->loop, &queue->timeout_timer, request->deadline_ns);
	queue->hl->unsent = true;
	queue->ops->submit(queue, request);
}

struct haul_request *haul_queue_request_by_cid(struct haul_queue *queue, uint16_t cid)
{
	uint32_t index = cid & queue->cid_index_mask;
	struct haul_request *request = &queue->requests[index];

	if (index >= queue->depth || request->cid != cid || request->state != HAUL_REQUEST_OUT)
		return NULL;
	return request;
}

/* What a request gets that the transport handed back unanswered: of a time-out only those that were
 * late. */
static int request_failure(const struct haul_request *request, int result)
{
	int failure = request->queue->failure;

	if (!failure)
		return result;
	if (failure != -ETIMEDOUT)
		return failure;
	if (request->deadline_ns && request->deadline_ns <= loop_now_ns(request->queue->loop))
		return -ETIMEDOUT;
	return -ECANCELED;
}

void haul_request_done(struct haul_request *request, int result, const struct nvme_cqe *cqe)
{
	struct haul_queue *queue = request->queue;

	assert(request->state == HAUL_REQUEST_OUT);
	list_remove(&request->node);
	request->state = HAUL_REQUEST_PREPARED;
	request->result = likely(result == 0) ? 0 : request_failure(request, result);
	if (likely(result == 0)) {
		request->cqe = *cqe;
		queue->nr_answered++;
	}
	request->completed(request);
	request->state = HAUL_REQUEST_FREE;
	slots_put(&queue->slots, request->index);
	if (unlikely(!list_empty(&queue->starved)))
		io_feed(queue);
}

/* --- deadlines ----------------------------------------------------------------------------- */

/* Commands of an I/O queue all have the same time, so the first is the next to expire; admin
 * commands differ, and are few. */
static uint64_t queue_next_deadline_ns(const struct haul_queue *queue)
{
	const struct haul_request *request;
	uint64_t next_ns = 0;

	list_for_each_entry (request, &queue->out, node) {
		if (request->deadline_ns && (!next_ns || request->deadline_ns < next_ns))
			next_ns = request->deadline_ns;
		if (queue->qid)
			break;
	}
	return next_ns;
}

static void queue_deadline_expired(struct loop_timer *timer)
{
	struct haul_queue *queue = container_of(timer, struct haul_queue, timeout_timer);
	uint64_t next_ns;

	if (queue->state == HAUL_QUEUE_CONNECTING || queue->state == HAUL_QUEUE_FABRICS) {
		ctrl_queue_lost(queue, -ETIMEDOUT, "the target does not answer");
		return;
	}
	if (queue->state != HAUL_QUEUE_LIVE)
		return;
	next_ns = queue_next_deadline_ns(queue);
	if (!next_ns)
		return;
	if (next_ns > loop_now_ns(queue->loop)) {
		loop_timer_set(queue->loop, timer, next_ns);
		return;
	}
	queue->hl->stats.nr_timeouts++;
	ctrl_queue_lost(queue, -ETIMEDOUT, "a command was not answered in time");
}

/* --- the end ------------------------------------------------------------------------------- */

/* There is a connection, or one is being made, and nobody has ended it. */
static bool queue_can_end(const struct haul_queue *queue)
{
	switch (queue->state) {
	case HAUL_QUEUE_CONNECTING:
	case HAUL_QUEUE_FABRICS:
	case HAUL_QUEUE_LIVE:
		return true;
	case HAUL_QUEUE_IDLE:
	case HAUL_QUEUE_FAILING:
	case HAUL_QUEUE_CLOSING:
	case HAUL_QUEUE_CLOSED:
		return false;
	}
	return false;
}

void queue_end(struct haul_queue *queue, int result)
{
	if (!queue_can_end(queue))
		return;
	queue->state = HAUL_QUEUE_FAILING;
	queue->failure = result;
	loop_timer_cancel(queue->loop, &queue->timeout_timer);
	io_cancel_starved(queue);
	/* Not from here: a call of the transport may be on the stack. */
	queue->hl->unsent = true;
	loop_flush_later(queue->loop, &queue->end_flush);
}

static void queue_end_flushed(struct loop_flush *flush)
{
	struct haul_queue *queue = container_of(flush, struct haul_queue, end_flush);

	queue->state = HAUL_QUEUE_CLOSING;
	queue->ops->disconnect(queue);
}

static void queue_closed(struct haul_queue *queue)
{
	assert(list_empty(&queue->out));
	loop_timer_cancel(queue->loop, &queue->timeout_timer);
	queue->state = HAUL_QUEUE_CLOSED;
	ctrl_queue_closed(queue);
}

void haul_queue_quiesced(struct haul_queue *queue)
{
	assert(queue->state == HAUL_QUEUE_CLOSING);
	queue_closed(queue);
}

void haul_queue_failed(struct haul_queue *queue, int result, const char *why)
{
	if (queue_can_end(queue))
		ctrl_queue_lost(queue, result, why ? why : strerror(-result));
}

/* --- connecting ---------------------------------------------------------------------------- */

void haul_queue_connected(struct haul_queue *queue, int result, const char *why)
{
	if (queue->state != HAUL_QUEUE_CONNECTING)
		return; /* ended meanwhile: quiesced follows */
	if (result) {
		ctrl_queue_lost(queue, result, why ? why : strerror(-result));
		loop_flush_cancel(&queue->end_flush); /* nothing is open */
		queue_closed(queue);
		return;
	}
	assert(queue->depth > 0 && queue->depth <= queue->slots.nr);
	queue->slots.nr = queue->depth;
	if (queue->qid)
		queue->io_slots.nr = queue->depth;
	queue->state = HAUL_QUEUE_FABRICS;
	queue_send_connect(queue);
}

int queue_start(struct haul_queue *queue)
{
	uint64_t timeout_ns = queue->ctrl->options.connect_timeout_ms * NS_PER_MS;

	assert(queue->state == HAUL_QUEUE_IDLE);
	queue->state = HAUL_QUEUE_CONNECTING;
	/* The admin queue is under the deadline of the whole connect. */
	if (queue->qid && timeout_ns)
		loop_timer_set(queue->loop, &queue->timeout_timer,
			haul_loop_now_ns(queue->hl) + timeout_ns);
	queue->hl->unsent = true;
	queue->ops->connect(queue);
	return 0;
}

/* --- the caller's -------------------------------------------------------------------------- */

uint32_t haul_queue_depth(const struct haul_queue *queue)
{
	return queue->depth;
}

static void queue_create_taken(struct haul_pending *pending)
{
	(void)pending;
}

static uint16_t queue_free_qid(const struct haul_ctrl *ctrl)
{
	for (uint16_t qid = 1; qid <= ctrl->limits.nr_queues; qid++)
		if (!ctrl->by_qid[qid])
			return qid;
	return 0;
}

int haul_queue_create(struct haul_ctrl *ctrl, const struct haul_queue_options *options,
	uint64_t user_data, struct haul_queue **ret)
{
	uint32_t depth = options && options->depth ? options->depth : QUEUE_DEFAULT_DEPTH;
	struct haul_queue *queue;
	uint16_t qid;
	int error;

	if (options && options->size < sizeof(*options))
		return -EINVAL;
	if (depth > QUEUE_MAX_DEPTH)
		return -EINVAL;
	if (ctrl->state != CTRL_LIVE)
		return -ENOTCONN;
	qid = queue_free_qid(ctrl);
	if (!qid)
		return -EUSERS;
	error = queue_alloc(ctrl, qid, min_of(depth, ctrl->limits.max_depth), &queue);
	if (error)
		return error;
	pending_init(&queue->create, user_data, queue_create_taken);
	queue->create_pending = 1;
	ctrl->by_qid[qid] = queue;
	list_push_back(&ctrl->queues, &queue->node);
	*ret = queue;
	return queue_start(queue);
}

static void queue_close_taken(struct haul_pending *pending)
{
	struct haul_queue *queue = container_of(pending, struct haul_queue, close);

	list_remove(&queue->node);
	queue_free(queue);
}

int haul_queue_close(struct haul_queue *queue, uint64_t user_data)
{
	if (queue->close_pending)
		return -EALREADY;
	pending_init(&queue->close, user_data, queue_close_taken);
	queue->close_pending = 1;
	if (queue_is_quiet(queue))
		pending_end(queue->hl, &queue->close, 0, 0, 0);
	else
		queue_end(queue, -ECANCELED);
	return 0;
}
