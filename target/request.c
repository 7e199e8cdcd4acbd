/* SPDX-License-Identifier: MIT */
/*
 * A command's way through the target: received, checked, given a buffer, its data brought, run,
 * answered. What a command does is in cmd_*.c.
 */
#include "target/request.h"

#include <string.h>

#include "proto/nvme/identify.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"

#define BIT(state) (1u << (state))

static const uint32_t request_steps[REQUEST_NR_STATES] = {
	[REQUEST_FREE] = BIT(REQUEST_CORE),
	[REQUEST_CORE] = BIT(REQUEST_FREE) | BIT(REQUEST_HELD) | BIT(REQUEST_WAIT_BUF) |
			 BIT(REQUEST_PULL) | BIT(REQUEST_EXEC) | BIT(REQUEST_REPLY),
	[REQUEST_HELD] = BIT(REQUEST_CORE) | BIT(REQUEST_FREE),
	[REQUEST_WAIT_BUF] = BIT(REQUEST_CORE) | BIT(REQUEST_FREE),
	[REQUEST_PULL] = BIT(REQUEST_CORE) | BIT(REQUEST_FREE),
	[REQUEST_EXEC] = BIT(REQUEST_CORE) | BIT(REQUEST_FREE),
	[REQUEST_REPLY] = BIT(REQUEST_FREE),
};

static void request_buffer_ready(struct bufpool_wait *wait, struct buf *buf);

void request_hand_to(struct request *request, enum request_state state)
{
	assert(request_steps[request->state] & BIT(state));
	if (request->state == REQUEST_FREE)
		request->conn->nr_commands++;
	if (state == REQUEST_REPLY || (state == REQUEST_FREE && request->state != REQUEST_REPLY))
		request->conn->nr_commands--;
	request->state = state;
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
		list_init(&request->wait.node);
	}
	conn->nr_out++;
	conn->nr_received++;
	request_hand_to(request, REQUEST_CORE);
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

/* Whoever has held it has let go of it. */
static void request_free(struct request *request)
{
	struct conn *conn = request->conn;

	assert(list_empty(&request->node));
	conn->nr_buffer_bytes -= request->nr_held_bytes;
	request->nr_held_bytes = 0;
	if (request->buf)
		bufpool_put(conn->reactor->pool, request->buf);
	request->buf = NULL;
	request->bytes = NULL;
	request_set_ns(request, NULL);
	request_hand_to(request, REQUEST_FREE);
	slots_put(&conn->slots, request->index);
	conn->nr_out--;
	if (unlikely(conn->reactor->stage == REACTOR_DRAINS))
		loop_flush_later(conn->reactor->loop, &conn->reactor->drain_check);
	if (conn->state != CONN_LIVE)
		conn_try_finish(conn);
	else if (!list_empty(&conn->waiting))
		loop_flush_later(conn->reactor->loop, &conn->retry);
}

/* --- checks ---------------------------------------------------------------------------------- */

static uint16_t request_check_state(const struct request *request)
{
	const struct conn *conn = request->conn;
	const struct cmd *command = request->command;

	if (!conn->connected)
		return command && command->before_connect
			       ? 0
			       : NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	/* An I/O queue exists only while its controller is ready. */
	if (conn->qid)
		return command ? 0 : NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	ctrl_alive(conn->member.ctrl);
	if (!command)
		return NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	if (!command->before_ready && !ctrl_ready(conn->member.ctrl))
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	return 0;
}

/* NVMe base 2.0 3.3.1.1: PRPs and fused commands do not occur here. */
static uint16_t request_check_flags(const struct nvme_cmd *cmd)
{
	bool sgl = (cmd->flags & NVME_CMD_PSDT_MASK) == NVME_CMD_PSDT_SGL;

	return sgl && !(cmd->flags & NVME_CMD_FUSE_MASK) ? 0 : CMD_INVALID_FIELD;
}

static uint16_t request_check_sgl(struct request *request)
{
	const struct conn *conn = request->conn;
	const struct cmd *command = request->command;
	const struct nvme_sgl_limits limits = {
		.in_capsule_max = conn_inline_limit(conn),
		.msdbd = conn->ops->msdbd ? conn->ops->msdbd : 1u,
		.keyed = conn->ops->sgls & NVME_ID_SGLS_KEYED,
	};
	uint16_t status = nvme_sgl_parse(
		&request->cmd, request->inline_bytes, request->inline_len, &limits, &request->sgl);
	uint32_t max_len;

	if (status)
		return status;
	if (request->sgl.place == NVME_SGL_IN_CAPSULE) {
		if (command->direction != REQUEST_FROM_HOST)
			return CMD_INVALID_FIELD;
		/* Only what is in memory already can be found at an offset. */
		if (!request->inline_bytes && request->sgl.piece[0].addr)
			return NVME_SC_SGL_OFFSET_INVALID | NVME_STATUS_DNR;
	}
	max_len = max_of(request->data_len, command->max_len);
	if (request->sgl.len < request->data_len || request->sgl.len > max_len)
		return NVME_SC_SGL_DATA_LEN_INVALID | NVME_STATUS_DNR;
	request->data_len = (uint32_t)request->sgl.len;
	return 0;
}

static uint16_t request_check(struct request *request)
{
	const struct cmd *command = request->command;
	uint16_t status = request_check_state(request);

	if (!status)
		status = request_check_flags(&request->cmd);
	if (status)
		return status;
	request->direction = command->direction;
	if (command->prepare)
		status = command->prepare(request);
	if (!status && request->data_len)
		status = request_check_sgl(request);
	return status;
}

/* --- data ------------------------------------------------------------------------------------ */

static void request_run(struct request *request)
{
	if (request->direction == REQUEST_TO_HOST && request->data_len &&
		!request->command->fills_all)
		memset(request->bytes, 0, request->data_len);
	request->command->run(request);
}

/* In CORE, with a buffer. */
static void request_bring(struct request *request)
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
	request_hand_to(request, REQUEST_PULL);
	request->conn->ops->pull(request);
}

static void request_take_buffer(struct request *request, struct buf *buf)
{
	request->buf = buf;
	request->bytes = buf->bytes;
	request->loop_buffer = buf->region->loop_buffer;
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

/* Whether the connection may hold as much more; then it is counted. One buffer is always granted.
 */
static bool request_reserve(struct request *request)
{
	struct conn *conn = request->conn;
	uint32_t length = request_buffer_len(request);

	if (conn->nr_buffer_bytes &&
		conn->nr_buffer_bytes + length > conn->reactor->conn_buffer_bytes)
		return false;
	conn->nr_buffer_bytes += length;
	request->nr_held_bytes = length;
	return true;
}

static void request_wait_in_pool(struct request *request)
{
	request->waits_in_pool = true;
	request->wait.ready = request_buffer_ready;
	request->wait.size = request_buffer_len(request);
	bufpool_wait(request->conn->reactor->pool, &request->wait);
}

static void request_want_buffer(struct request *request)
{
	struct conn *conn = request->conn;
	struct buf *buf;

	request->waits_in_pool = false;
	/* Not past others of this connection that wait already. */
	if (list_empty(&conn->waiting) && request_reserve(request)) {
		buf = bufpool_get(conn->reactor->pool, request_buffer_len(request));
		if (buf) {
			request_take_buffer(request, buf);
			return;
		}
	}
	request_hand_to(request, REQUEST_WAIT_BUF);
	list_push_back(&conn->waiting, &request->node);
	if (request->nr_held_bytes)
		request_wait_in_pool(request);
}

static void request_buffer_ready(struct bufpool_wait *wait, struct buf *buf)
{
	struct request *request = container_of(wait, struct request, wait);
	struct conn *conn = request->conn;

	list_remove(&request->node);
	request->waits_in_pool = false;
	request_hand_to(request, REQUEST_CORE);
	request_take_buffer(request, buf);
	if (!list_empty(&conn->waiting))
		loop_flush_later(conn->reactor->loop, &conn->retry);
}

void request_retry_waiting(struct conn *conn)
{
	struct request *request;

	if (conn->state != CONN_LIVE)
		return;
	/* Getting a buffer is left to the pool's FIFO, so that the order stays. */
	list_for_each_entry (request, &conn->waiting, node) {
		if (request->waits_in_pool)
			continue;
		if (!request_reserve(request))
			return;
		request_wait_in_pool(request);
	}
}

/* --- transports ------------------------------------------------------------------------------ */

/* The target ends: its connection's close drops it. */
static void request_hold_late(struct request *request)
{
	request_hand_to(request, REQUEST_HELD);
	list_push_back(&request->conn->held, &request->node);
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
	if (status) {
		request_complete(request, status);
	} else if (!request->data_len && !request->scratch_len) {
		request_run(request);
	} else if (request->direction == REQUEST_FROM_HOST && request->inline_bytes &&
		   request->sgl.place == NVME_SGL_IN_CAPSULE && !request->sgl.piece[0].addr &&
		   !request->scratch_len) {
		request->bytes = request->inline_bytes;
		request->loop_buffer = request->inline_loop_buffer;
		request_run(request);
	} else {
		request_want_buffer(request);
	}
}

void request_pulled(struct request *request, uint16_t status)
{
	assert(request->state == REQUEST_PULL);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	request_hand_to(request, REQUEST_CORE);
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
	if (unlikely(ends_queue))
		conn_close(conn, "disconnected by a command");
}

void request_flushed(struct request *request)
{
	assert(request->state == REQUEST_REPLY || request->state == REQUEST_PULL);
	assert(request->conn->state != CONN_LIVE);
	request_free(request);
}

/* --- commands -------------------------------------------------------------------------------- */

static void request_advance_sq_head(struct request *request)
{
	struct conn *conn = request->conn;
	uint32_t head = conn->sq_head + 1;

	conn->sq_head = head >= conn->depth ? 0 : head;
	request->cqe.sqhd =
		le16(conn->flow_control_disabled ? NVME_SQHD_NO_FLOW : (uint16_t)conn->sq_head);
}

void request_complete(struct request *request, uint16_t status)
{
	struct conn *conn = request->conn;

	if (request->state != REQUEST_CORE)
		request_hand_to(request, REQUEST_CORE);
	if (conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	request_advance_sq_head(request);
	request->cqe.sqid = le16(conn->qid);
	request->cqe.cid = request->cmd.cid;
	nvme_cqe_set_status(&request->cqe, status);
	request_hand_to(request, REQUEST_REPLY);
	conn->ops->reply(request);
}

void request_submit(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags))
{
	struct backend_queue *queue = request->ns->queue;

	request_hand_to(request, REQUEST_EXEC);
	request->io.done.fn = done;
	queue->ops->submit(queue, &request->io);
}

bool request_executed(struct request *request)
{
	assert(request->state == REQUEST_EXEC);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return false;
	}
	request_hand_to(request, REQUEST_CORE);
	return true;
}

/* Out of every list it is in. */
static void request_unlist(struct request *request)
{
	if (request->state == REQUEST_WAIT_BUF && request->waits_in_pool)
		bufpool_wait_cancel(request->conn->reactor->pool, &request->wait);
	request->waits_in_pool = false;
	list_remove(&request->node);
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
