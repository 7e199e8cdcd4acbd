/* SPDX-License-Identifier: MIT */
/*
 * A request's data: the buffer that it waits for, what is brought there, and the command's run
 * when all is here.
 */
#include "target/request_steps.h"

#include <string.h>

#include "target/cmd.h"
#include "target/fused.h"
#include "target/reactor_ns.h"
#include "target/reservation_visit.h"
#include "target/share.h"
#include "target/transport.h"

/* A reservation is in its way: it has ended. */
static bool request_conflicts(struct request *request)
{
	uint16_t status = reservation_check(request);

	if (status)
		request_complete(request, status);
	return status;
}

void request_run(struct request *request)
{
	if (unlikely(request->ns && (request->ns->gate & REACTOR_NS_RESERVED)) &&
		request_conflicts(request))
		return;
	if (request->direction == REQUEST_TO_HOST && unlikely(!request->command->fills_all) &&
		request->data_len)
		memset(request->bytes, 0, request->data_len);
	request->command->run(request);
}

/* In CORE, with a buffer. */
void request_bring(struct request *request)
{
	if (request->direction != REQUEST_FROM_HOST) {
		request_run(request);
		return;
	}
	if (request->sgl.place == NVME_SGL_IN_CAPSULE && request->inline_bytes) {
		memcpy(request->bytes,
			(const char *)request->inline_bytes + request->sgl.piece[0].addr,
			request->data_len);
		request_run(request);
		return;
	}
	request_step(request, REQUEST_PULL);
	request->conn->ops->pull(request);
}

void request_set_buffer(struct request *request, struct buf *buf)
{
	request->buf = buf;
	request->bytes = buf->bytes;
	request->loop_buffer = buf->region->loop_buffer;
}

static void request_take_buffer(struct request *request, struct buf *buf)
{
	request_set_buffer(request, buf);
	request_bring(request);
}

/* With scratch there is a namespace. */
static uint32_t request_scratch_offset(const struct request *request)
{
	uint32_t block = 1u << request->ns->ns.lba_shift;

	return (request->data_len + block - 1) & ~(block - 1);
}

void *request_scratch(const struct request *request)
{
	return (char *)request->bytes + request_scratch_offset(request);
}

static uint32_t request_buffer_len(const struct request *request)
{
	if (likely(!request->scratch_len))
		return request->data_len;
	return request_scratch_offset(request) + request->scratch_len;
}

/* The reserve is for what hosts need to come and to ask what there is: small things on admin queues
 * and Connect, before which a connection is queue 0. */
static enum bufpool_shelf request_shelf(const struct request *request)
{
	uint32_t length = request_buffer_len(request);

	if (request->conn->qid == 0 && length <= BUFPOOL_SMALL_BYTES)
		return BUFPOOL_SHELF_RESERVE;
	return bufpool_shelf_of(length);
}

/* Its data came with it, to memory where it can stay. */
static bool request_is_here(const struct request *request)
{
	return request->direction == REQUEST_FROM_HOST && request->inline_bytes &&
	       request->sgl.place == NVME_SGL_IN_CAPSULE && !request->sgl.piece[0].addr &&
	       !request->scratch_len;
}

static void request_run_here(struct request *request)
{
	request->bytes = request->inline_bytes;
	request->loop_buffer = request->inline_loop_buffer;
	request_run(request);
}

void request_begin_second(struct request *second)
{
	if (request_is_here(second)) {
		request_run_here(second);
		return;
	}
	if (fused_take_buffer(second)) {
		request_bring(second);
		return;
	}
	request_step(second, REQUEST_WAIT_BUF);
	list_push_back(&second->conn->waiting, &second->node);
}

static void request_want_buffer(struct request *request)
{
	struct conn *conn = request->conn;
	struct buf *buf;

	request->claim.pool_wait.shelf = request_shelf(request);
	buf = share_buf_get(conn->share, &request->claim);
	if (likely(buf)) {
		request_take_buffer(request, buf);
		return;
	}
	request_step(request, REQUEST_WAIT_BUF);
	list_push_back(&conn->waiting, &request->node);
	share_buf_wait(&request->claim);
}

void request_buffer_ready(struct bufpool_wait *wait, struct buf *buf)
{
	struct request *request = container_of(wait, struct request, claim.pool_wait);

	list_remove(&request->node);
	request_step(request, REQUEST_CORE);
	if (unlikely(request->partner)) {
		fused_buffer_ready(request, buf);
		if (request->conn->state != CONN_LIVE) {
			request_free(request);
			return;
		}
	}
	request_take_buffer(request, buf);
}

void request_begin(struct request *request)
{
	if (!request->data_len && !request->scratch_len)
		request_run(request);
	else if (request_is_here(request))
		request_run_here(request);
	else
		request_want_buffer(request);
}
