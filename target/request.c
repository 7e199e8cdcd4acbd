/* SPDX-License-Identifier: MIT */
/*
 * A command's way through the target: received, checked, given a buffer, its data brought, run,
 * answered. What a command does is in cmd_*.c.
 */
#include "target/request.h"

#include <errno.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "target/abort.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/error_log.h"
#include "target/fused.h"
#include "target/range_lock.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/reservation_visit.h"
#include "target/smart.h"

#define BIT(state) (1u << (state))

/* The host has a second for so many bytes, besides the time that it has for any command. Whoever is
 * slower than that is cut off: its buffers are others' too. A quarter of a wire of 2 Mbit/s. */
#define REQUEST_LEAST_BYTES_PER_S (64u << 10)

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

uint64_t request_deadline_ns(const struct request *request)
{
	return request->moving_since_ns + request->conn->reactor->patience_ns +
	       (uint64_t)request->data_len * 1000000000 / REQUEST_LEAST_BYTES_PER_S;
}

/* From here on the host has to do something: take, send or make room. */
static void request_begin_move(struct request *request)
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

/* Inlined where STATE is a constant: half of what it would ask is known there. */
static inline_always void request_step(struct request *request, enum request_state state)
{
	enum request_state old = request->state;

	assert(request_steps[old] & BIT(state));
	request->state = state;
	switch (state) {
	case REQUEST_CORE:
		if (old == REQUEST_FREE)
			request->conn->nr_commands++;
		else if (old == REQUEST_PULL)
			list_remove(&request->moving);
		break;
	case REQUEST_REPLY:
		request->conn->nr_commands--;
		request_begin_move(request);
		break;
	case REQUEST_PULL:
		request_begin_move(request);
		break;
	case REQUEST_FREE:
		if (old != REQUEST_REPLY)
			request->conn->nr_commands--;
		if (old == REQUEST_REPLY || old == REQUEST_PULL)
			list_remove(&request->moving);
		break;
	case REQUEST_HELD:
	case REQUEST_WAIT_BUF:
	case REQUEST_EXEC:
		break;
	}
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

/* Whoever has held it has let go of it. */
static void request_free(struct request *request)
{
	struct conn *conn = request->conn;

	assert(list_empty(&request->node));
	if (unlikely(request->partner))
		fused_part(request);
	if (unlikely(conn->state != CONN_LIVE) && request->awaited_by)
		reservation_request_over(request);
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

/* NVMe base 2.0 3.3.1.1: PRPs do not occur here. 3.4.2: fused are only commands that can be. */
static uint16_t request_check_flags(const struct request *request)
{
	uint8_t flags = request->cmd.flags;
	bool sgl = (flags & NVME_CMD_PSDT_MASK) == NVME_CMD_PSDT_SGL;

	return sgl && (flags & NVME_CMD_FUSE_MASK) == request->command->fuse ? 0
									     : CMD_INVALID_FIELD;
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
		status = request_check_flags(request);
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

/* A reservation is in its way: it has ended. */
static bool request_conflicts(struct request *request)
{
	uint16_t status = reservation_check(request);

	if (status)
		request_complete(request, status);
	return status;
}

static void request_run(struct request *request)
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

/* The second of a pair has a part of the first's buffer. */
static void request_begin_second(struct request *second)
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

static void request_buffer_ready(struct bufpool_wait *wait, struct buf *buf)
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

/* --- transports ------------------------------------------------------------------------------ */

/* The target ends: its connection's close drops it. */
static void request_hold_late(struct request *request)
{
	request_step(request, REQUEST_HELD);
	list_push_back(&request->conn->held, &request->node);
}

static inline_always void request_begin(struct request *request, uint16_t status)
{
	if (status)
		request_complete(request, status);
	else if (!request->data_len && !request->scratch_len)
		request_run(request);
	else if (request_is_here(request))
		request_run_here(request);
	else
		request_want_buffer(request);
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
		request_begin(request, status);
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
		request_begin(request, status);
}

void request_pulled(struct request *request, uint16_t status)
{
	assert(request->state == REQUEST_PULL);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return;
	}
	request_step(request, REQUEST_CORE);
	if (status) {
		request_complete(request, status);
		abort_pull_failed(request->conn, request);
	} else {
		request_run(request);
	}
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
	if (unlikely(request->awaited_by))
		reservation_request_over(request);
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
	status = request_note(request, status);
	request_advance_sq_head(request);
	request->cqe.sqid = le16(conn->qid);
	request->cqe.cid = request->cmd.cid;
	nvme_cqe_set_status(&request->cqe, status);
	request_step(request, REQUEST_REPLY);
	conn->ops->reply(request);
}

static out_of_line void request_start_gated(struct request *request)
{
	struct reactor_ns *ns = request->ns;

	if (range_lock_holds_back(request))
		return;
	/* It was prepared before, and its data has come since. */
	if ((ns->gate & REACTOR_NS_WRITE_PROTECTED) && backend_io_changes(&request->io)) {
		request->io.done.fn(&request->io.done, -EROFS, 0);
		return;
	}
	list_push_back(&ns->out, &request->node);
	ns->queue->ops->submit(ns->queue, &request->io);
}

/* In EXEC: the I/O begins, unless it meets a locked range. */
static inline_always void request_start_io(struct request *request)
{
	struct reactor_ns *ns = request->ns;

	if (unlikely(ns->gate)) {
		request_start_gated(request);
		return;
	}
	list_push_back(&ns->out, &request->node);
	ns->queue->ops->submit(ns->queue, &request->io);
}

void request_submit(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags))
{
	request_step(request, REQUEST_EXEC);
	request->io.done.fn = done;
	request_start_io(request);
}

/* Whoever wants it done sees to its end in any case, for it may have memory of its own. */
void request_resume_io(struct request *request)
{
	if (request->conn->state == CONN_LIVE)
		request_start_io(request);
	else
		request->io.done.fn(&request->io.done, -ECANCELED, 0);
}

/* It is not the disk's any more, if it was. */
static void request_end_io(struct request *request)
{
	if (list_empty(&request->node))
		return;
	list_remove(&request->node);
	if (unlikely(request->ns->gate))
		range_lock_io_ended(request);
}

bool request_executed(struct request *request)
{
	assert(request->state == REQUEST_EXEC);
	request_end_io(request);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return false;
	}
	request_step(request, REQUEST_CORE);
	return true;
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
