/* SPDX-License-Identifier: MIT */
/*
 * I/O queues join and leave their controllers by messages between reactors.
 */
#include "target/member.h"

#include "proto/nvme/fabrics.h"
#include "target/cmd_connect.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/keep_alive.h"
#include "target/reactor.h"
#include "target/subsys.h"
#include "target/target.h"

/* --- on the owner ---------------------------------------------------------------------------- */

static void member_answer(struct request *request, uint16_t status);

static bool member_may_join(const struct ctrl *ctrl)
{
	return ctrl_ready(ctrl) && !NVME_CC_SHN(ctrl->cc);
}

static uint16_t member_check_join(const struct ctrl *ctrl, struct request *request)
{
	const struct nvme_connect_data *data = request->bytes;

	/* An association is with one port of the subsystem, over one transport (NVMe base 2.0
	 * 3.1.2): on another one the controller is none. */
	if (!ctrl || ctrl->admin->port != request->conn->port)
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, cntlid));
	if (strncmp(data->subnqn, ctrl->subsys->nqn, sizeof(data->subnqn)))
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, subnqn));
	if (strncmp(data->hostnqn, ctrl->hostnqn, sizeof(data->hostnqn)))
		return cmd_connect_refuse_data(
			request, offsetof(struct nvme_connect_data, hostnqn));
	if (memcmp(data->hostid, ctrl->hostid, sizeof(data->hostid)))
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, hostid));
	/* A discovery controller has no I/O queues at all. */
	if (ctrl->subsys->discovery || request->conn->qid > ctrl->nr_io_queues)
		return cmd_connect_refuse_cmd(request, offsetof(struct nvme_connect, qid));
	return member_may_join(ctrl) ? 0 : NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
}

static void member_admit(struct ctrl *ctrl, struct request *request)
{
	struct conn *conn = request->conn;
	struct ctrl_queue *queue = &ctrl->queues[conn->qid];

	queue->conn = conn;
	queue->closing = false;
	if (!conn->auth.required)
		ctrl_alive(ctrl);
	conn->member.ctrl = ctrl;
	conn->settings = ctrl->settings;
	if (ctrl->nr_members++ == 0)
		keep_alive_arm(ctrl);
	member_answer(request, 0);
}

/* Another queue has this id: it may be about to go (B002). */
static void member_park(struct ctrl *ctrl, struct request *request)
{
	struct ctrl_queue *queue = &ctrl->queues[request->conn->qid];
	uint64_t now_ns = loop_now_ns(ctrl->reactor->loop);

	if (queue->waiting) {
		member_answer(request, NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
		return;
	}
	queue->waiting = request;
	queue->waiting_until_ns =
		now_ns + (queue->closing ? CTRL_REPLACE_CLOSING_NS : CTRL_REPLACE_ALIVE_NS);
	ctrl->nr_waiting++;
	ctrl_arm_replace(ctrl);
}

static void member_join_at_owner(struct loop_message *message)
{
	struct request *request = container_of(message, struct request, message);
	struct ctrl *ctrl = ctrl_find(request->conn->member.owner, request->conn->cntlid);
	uint16_t status = member_check_join(ctrl, request);

	if (status)
		member_answer(request, status);
	else if (ctrl->queues[request->conn->qid].conn)
		member_park(ctrl, request);
	else
		member_admit(ctrl, request);
}

void member_stop_waiting(struct ctrl *ctrl, struct ctrl_queue *queue)
{
	struct request *request = queue->waiting;

	queue->waiting = NULL;
	ctrl->nr_waiting--;
	member_answer(request, NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
}

static void member_closing_at_owner(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.closing);
	struct ctrl *ctrl = conn->member.ctrl;
	struct ctrl_queue *queue = &ctrl->queues[conn->qid];

	queue->closing = true;
	if (conn->member.heard_last)
		ctrl_alive(ctrl);
	if (queue->waiting)
		queue->waiting_until_ns =
			loop_now_ns(ctrl->reactor->loop) + CTRL_REPLACE_CLOSING_NS;
}

static void member_left(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.leave);

	conn->member.state = CONN_MEMBER_NONE;
	conn_try_finish(conn);
}

static void member_leave_at_owner(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.leave);
	struct ctrl *ctrl = conn->member.ctrl;
	struct ctrl_queue *queue = &ctrl->queues[conn->qid];
	struct request *waiting = queue->waiting;

	assert(queue->conn == conn);
	queue->conn = NULL;
	ctrl->nr_members--;
	keep_alive_left(ctrl, queue);
	conn->member.leave.fn = member_left;
	loop_send(conn->reactor->loop, &conn->member.leave);
	if (waiting && !ctrl->ending) {
		queue->waiting = NULL;
		ctrl->nr_waiting--;
		if (member_may_join(ctrl))
			member_admit(ctrl, waiting);
		else
			member_answer(waiting, NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
	}
	if (!ctrl->nr_members)
		ctrl_queues_gone(ctrl);
	ctrl_try_free(ctrl);
}

static void member_expelled(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.expel);

	conn_close(conn, "its controller has ended or was reset");
}

void member_expel_all(struct ctrl *ctrl)
{
	for (uint32_t qid = 1; qid <= CTRL_MAX_IO_QUEUES; qid++) {
		struct ctrl_queue *queue = &ctrl->queues[qid];

		if (queue->waiting)
			member_stop_waiting(ctrl, queue);
		if (!queue->conn || queue->conn->member.expelled)
			continue;
		queue->conn->member.expelled = true;
		queue->conn->member.expel.fn = member_expelled;
		loop_send(queue->conn->reactor->loop, &queue->conn->member.expel);
	}
}

/* --- on the queue's reactor ------------------------------------------------------------------ */

static void member_join_answered(struct loop_message *message)
{
	struct request *request = container_of(message, struct request, message);
	uint16_t status = nvme_cqe_status(&request->cqe);

	request->conn->member.state = status ? CONN_MEMBER_NONE : CONN_MEMBER_JOINED;
	if (request_executed(request))
		cmd_connect_joined(request, status);
}

static void member_answer(struct request *request, uint16_t status)
{
	nvme_cqe_set_status(&request->cqe, status);
	request->message.fn = member_join_answered;
	loop_send(request->conn->reactor->loop, &request->message);
}

void member_join(struct request *request, uint16_t cntlid)
{
	struct conn *conn = request->conn;
	struct target *target = conn->reactor->target;

	conn->cntlid = cntlid;
	conn->member.state = CONN_MEMBER_JOINING;
	conn->member.owner = target->reactors[ctrl_owner(conn->reactor, cntlid)];
	request_hand_to(request, REQUEST_EXEC);
	request->message.fn = member_join_at_owner;
	loop_send(conn->member.owner->loop, &request->message);
}

void member_closing(struct conn *conn)
{
	if (conn->member.state != CONN_MEMBER_JOINED)
		return;
	keep_alive_closing(conn);
	conn->member.closing.fn = member_closing_at_owner;
	loop_send(conn->member.owner->loop, &conn->member.closing);
}

bool member_leave(struct conn *conn)
{
	switch (conn->member.state) {
	case CONN_MEMBER_NONE:
		return true;
	case CONN_MEMBER_ADMIN:
		conn->member.state = CONN_MEMBER_NONE;
		ctrl_admin_gone(conn->member.ctrl);
		return true;
	case CONN_MEMBER_JOINED:
		conn->member.state = CONN_MEMBER_LEAVING;
		conn->member.leave.fn = member_leave_at_owner;
		loop_send(conn->member.owner->loop, &conn->member.leave);
		return false;
	case CONN_MEMBER_JOINING:
	case CONN_MEMBER_LEAVING:
		return false;
	}
	return false;
}
