/* SPDX-License-Identifier: MIT */
/*
 * A command's way through the target: it is received, led on, answered, and free again. What a
 * command does is in cmd_*.c.
 */
#include "target/request.h"

#include "target/cmd.h"
#include "target/conn.h"
#include "target/error_log.h"
#include "target/fence.h"
#include "target/fused.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request_steps.h"
#include "target/revoke.h"
#include "target/smart.h"

/* The host has a second for so many bytes, besides the time that it has for any command. Whoever is
 * slower than that is cut off: its buffers are others' too. A quarter of a wire of 2 Mbit/s. */
#define REQUEST_LEAST_BYTES_PER_S (64u << 10)

uint64_t request_deadline_ns(const struct request *request)
{
	return request->moving_since_ns + request->conn->reactor->patience_ns +
	       (uint64_t)request->data_len * 1000000000 / REQUEST_LEAST_BYTES_PER_S;
}

void request_begin_move(struct request *request)
{
	struct conn *conn = request->conn;
	struct loop *loop = conn->reactor->loop;

	request->moving_since_ns = loop_now_ns(loop);
	list_push_back(&conn->moving, &request->moving);
	/* It finds out by itself when the first one is due. */
	if (unlikely(!loop_timer_is_set(&conn->transfer)))
		loop_timer_set(loop, &conn->transfer,
			request->moving_since_ns + conn->reactor->patience_ns);
}

void request_hand_to(struct request *request, enum request_state state)
{
	request_step(request, state);
}

struct request *request_get(struct conn *conn)
{
	struct request *request;
	uint32_t index;

	if (conn->state != CONN_LIVE || conn->nr_commands >= conn->depth)
		return NULL;
	index = slots_get(&conn->slots);
	if (index == SLOTS_NONE)
		return NULL;
	request = &conn->requests[index];
	if (!request->conn) {
		request->conn = conn;
		request->index = index;
		list_init(&request->node);
		list_init(&request->moving);
		list_init(&request->fenced);
		list_init(&request->claim.pool_wait.node);
		request->claim.pool_wait.ready = request_buffer_ready;
	}
	conn->nr_out++;
	conn->nr_received++;
	request_step(request, REQUEST_CORE);
	request->inline_len = 0;
	request->inline_bytes = NULL;
	request->inline_loop_buffer = LOOP_BUFFER_NONE;
	return request;
}

void request_set_ns(struct request *request, struct reactor_ns *ns)
{
	if (ns)
		reactor_ns_get(ns);
	if (request->ns)
		reactor_ns_put(request->ns);
	request->ns = ns;
}

void request_abandon_buffer(struct request *request)
{
	struct request *partner = request->partner;

	if (!request->buf)
		return;
	bufpool_abandon(request->conn->reactor->pool, request->buf);
	if (partner && partner->buf == request->buf)
		partner->buf = NULL;
	request->buf = NULL;
}

out_of_line void request_over(struct request *request)
{
	request->awaited = false;
	if (request->awaited_by)
		revoke_request_over(request);
	if (!list_empty(&request->fenced))
		fence_request_over(request);
}

void request_free(struct request *request)
{
	struct conn *conn = request->conn;

	assert(list_empty(&request->node));
	if (unlikely(request->partner))
		fused_part(request);
	if (unlikely(conn->state != CONN_LIVE) && request->awaited)
		request_over(request);
	share_buf_put(conn->share, &request->claim, request->buf);
	request->buf = NULL;
	request->bytes = NULL;
	if (request->ns)
		reactor_ns_put(request->ns);
	request->ns = NULL;
	request_step(request, REQUEST_FREE);
	slots_put(&conn->slots, request->index);
	conn->nr_out--;
	if (unlikely(conn->reactor->stage == REACTOR_DRAINS))
		loop_flush_later(conn->reactor->loop, &conn->reactor->drain_check);
	if (conn->state != CONN_LIVE)
		conn_try_finish(conn);
}

/* --- transports ------------------------------------------------------------------------------ */

/* The target ends: its connection's close drops it. */
static void request_hold_late(struct request *request)
{
	request_step(request, REQUEST_HELD);
	list_push_back(&request->conn->held, &request->node);
}

static inline_always void request_answer_or_begin(struct request *request, uint16_t status)
{
	if (status)
		request_complete(request, status);
	else
		request_begin(request);
}

static out_of_line void request_received_fused(struct request *request, uint16_t status)
{
	status = fused_received(request, status);
	/* Answering a first one that stands alone may have ended the connection. */
	if (request->conn->state != CONN_LIVE)
		request_free(request);
	else if (!status && request->partner)
		request_begin_second(request);
	else
		request_answer_or_begin(request, status);
}

void request_received(struct request *request)
{
	uint16_t status;

	assert(request->state == REQUEST_CORE);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	if (unlikely(request->conn->reactor->stage >= REACTOR_DRAINS)) {
		request_hold_late(request);
		return;
	}
	request->direction = REQUEST_NO_DATA;
	request->data_len = 0;
	request->scratch_len = 0;
	request->sgl.place = NVME_SGL_NO_DATA;
	request->sgl.nr = 0;
	request->sgl.invalidate = false;
	request->nr_parts = 0;
	request->cqe = (struct nvme_cqe){0};
	request->command = cmd_find(request);
	status = request_check(request);
	if (unlikely(request->conn->fused_open || (request->cmd.flags & NVME_CMD_FUSE_MASK)))
		request_received_fused(request, status);
	else
		request_answer_or_begin(request, status);
}

void request_pulled(struct request *request, uint16_t status)
{
	assert(request->state == REQUEST_PULL);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	request_step(request, REQUEST_CORE);
	if (status)
		request_complete(request, status);
	else
		request_run(request);
}

void request_sent(struct request *request)
{
	struct conn *conn = request->conn;
	bool ends_queue =
		request->command && request->command->ends_queue && !nvme_cqe_status(&request->cqe);

	assert(request->state == REQUEST_REPLY);
	request_free(request);
	/* Authentication goes on, mostly. */
	if (unlikely(ends_queue) && conn->leaves)
		conn_close(conn, "disconnected by a command");
}

void request_flushed(struct request *request)
{
	assert(request->state == REQUEST_REPLY || request->state == REQUEST_PULL);
	assert(request->conn->state != CONN_LIVE);
	request_free(request);
}

/* --- its end --------------------------------------------------------------------------------- */

static void request_advance_sq_head(struct request *request)
{
	struct conn *conn = request->conn;
	uint32_t head = conn->sq_head + 1;

	conn->sq_head = head >= conn->depth ? 0 : head;
	request->cqe.sqhd =
		le16(conn->flow_control_disabled ? NVME_SQHD_NO_FLOW : (uint16_t)conn->sq_head);
}

/* For SMART and the error log. Returns the status for the host. */
static uint16_t request_note(struct request *request, uint16_t status)
{
	if (likely(!status)) {
		if (request->ns)
			reactor_ns_count(request->ns, request->command->counts,
				le16_get(request->cmd.rw.nlb) + 1ull);
		return 0;
	}
	if (request->ns)
		reactor_ns_count_error(request->ns, status);
	return error_log_add(request, status);
}

void request_complete(struct request *request, uint16_t status)
{
	struct conn *conn = request->conn;

	if (request->state != REQUEST_CORE)
		request_step(request, REQUEST_CORE);
	if (unlikely(request->awaited))
		request_over(request);
	if (conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	if (unlikely(request->cmd.flags & NVME_CMD_FUSE_MASK)) {
		fused_ended(request);
		/* The other half's answer may have found out that the host is gone. */
		if (conn->state != CONN_LIVE) {
			request_free(request);
			return;
		}
	}
	if (unlikely(status) && request->ns && unlikely(request->ns->tell_read_only)) {
		smart_warn(request, status);
		return;
	}
	if (unlikely(status && !(status & NVME_STATUS_DNR)))
		status = ctrl_settings_retry(request, status);
	status = request_note(request, status);
	request_advance_sq_head(request);
	request->cqe.sqid = le16(conn->qid);
	request->cqe.cid = request->cmd.cid;
	nvme_cqe_set_status(&request->cqe, status);
	request_step(request, REQUEST_REPLY);
	conn->ops->reply(request);
}

void request_unlist(struct request *request)
{
	if (request->state == REQUEST_WAIT_BUF && request->command->fuse != NVME_CMD_FUSE_SECOND)
		share_buf_cancel(&request->claim);
	list_remove(&request->node);
}

void request_abort(struct request *request, uint16_t status)
{
	assert(request->state == REQUEST_HELD || request->state == REQUEST_WAIT_BUF);
	request_unlist(request);
	request_complete(request, status);
}

bool request_abort_waiting(struct conn *conn, uint16_t cid)
{
	struct request *request;

	list_for_each_entry (request, &conn->waiting, node) {
		if (le16_get(request->cmd.cid) != cid)
			continue;
		request_unlist(request);
		request_complete(request, NVME_SC_ABORT_REQUESTED);
		return true;
	}
	return false;
}

void request_drop(struct request *request)
{
	assert(request->state == REQUEST_HELD || request->state == REQUEST_WAIT_BUF);
	request_unlist(request);
	request_free(request);
}
