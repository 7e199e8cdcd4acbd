/* SPDX-License-Identifier: MIT */
/*
 * Keep-alive: asks the reactors of a controller's queues whether their host lives.
 */
#include "target/keep_alive.h"

#include "target/conn.h"
#include "target/ctrl.h"
#include "target/fence.h"
#include "target/reactor.h"
#include "target/subsys.h"

/* Beyond KATO, so that a Keep Alive sent in time but held up in the network still counts. */
#define KEEP_ALIVE_GRACE_NS (500 * NS_PER_MS)
/* How often queues are asked in the time that a host has. */
#define KEEP_ALIVE_ASKS	    4

static uint64_t keep_alive_patience_ns(const struct ctrl *ctrl)
{
	if (ctrl->kato_ms)
		return ctrl->kato_ms * NS_PER_MS + KEEP_ALIVE_GRACE_NS;
	return ctrl->subsys->discovery ? CTRL_DISCOVERY_IDLE_MS * NS_PER_MS : 0;
}

void keep_alive_arm(struct ctrl *ctrl)
{
	struct loop *loop = ctrl->reactor->loop;
	uint64_t patience_ns = keep_alive_patience_ns(ctrl);
	uint64_t due_ns = ctrl->alive_ns + patience_ns;

	if (!patience_ns || ctrl->ending) {
		loop_timer_cancel(loop, &ctrl->keep_alive);
		return;
	}
	if (ctrl->nr_members)
		due_ns = min_of(due_ns, loop_now_ns(loop) + patience_ns / KEEP_ALIVE_ASKS);
	loop_timer_set(loop, &ctrl->keep_alive, due_ns);
}

void keep_alive_stop(struct ctrl *ctrl)
{
	loop_timer_cancel(ctrl->reactor->loop, &ctrl->keep_alive);
}

/* While the host waits for CSTS.RDY or for the end of its shutdown it need not say anything (NVMe
 * base 2.0 3.9). */
static bool keep_alive_pauses(const struct ctrl *ctrl)
{
	return ctrl->nr_enabling || ctrl->shst == NVME_CSTS_SHST_OCCURRING;
}

static void keep_alive_judge_overdue(struct ctrl *ctrl)
{
	uint64_t silent_ns = loop_now_ns(ctrl->reactor->loop) - ctrl->alive_ns;

	if (!ctrl->overdue_asked)
		return;
	ctrl->overdue_asked = false;
	if (!ctrl->ending && ctrl->kato_ms && silent_ns >= ctrl->kato_ms * NS_PER_MS / 4 * 3)
		ctrl_end(ctrl, "silent, and its host has a new controller");
	fence_look_again(ctrl->reactor);
}

/* All queues have answered. */
static void keep_alive_judge(struct ctrl *ctrl)
{
	uint64_t patience_ns = keep_alive_patience_ns(ctrl);

	if (!ctrl->ending && (ctrl->keep_alive_heard || keep_alive_pauses(ctrl)))
		ctrl_alive(ctrl);
	ctrl->keep_alive_heard = false;
	keep_alive_judge_overdue(ctrl);
	if (ctrl->ending)
		return;
	/* The timer is not moved at each command: it may ring early. */
	if (patience_ns && loop_now_ns(ctrl->reactor->loop) >= ctrl->alive_ns + patience_ns)
		ctrl_end(ctrl, "keep-alive timer expired");
	else
		keep_alive_arm(ctrl);
}

static void keep_alive_answer(struct ctrl *ctrl, struct ctrl_queue *queue)
{
	queue->asked = false;
	if (--ctrl->nr_asked == 0)
		keep_alive_judge(ctrl);
}

void keep_alive_left(struct ctrl *ctrl, struct ctrl_queue *queue)
{
	if (queue->asked)
		keep_alive_answer(ctrl, queue);
}

static void keep_alive_answered(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.ask);
	struct ctrl *ctrl = conn->member.ctrl;

	ctrl->keep_alive_heard |= conn->member.heard;
	keep_alive_answer(ctrl, &ctrl->queues[conn->qid]);
}

/* --- on the queue's reactor ------------------------------------------------------------------ */

static bool keep_alive_count(struct conn *conn)
{
	/* Who has not proved to be the host does not show that it lives. */
	bool heard = conn->connected && conn->nr_received != conn->member.nr_heard;

	conn->member.nr_heard = conn->nr_received;
	return heard;
}

static void keep_alive_asked(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, member.ask);

	/* Its leave is on the way to the controller already and answers for it; when that comes
	 * back the connection is freed, and this message with it. */
	if (conn->member.state == CONN_MEMBER_LEAVING)
		return;
	conn->member.heard = keep_alive_count(conn);
	message->fn = keep_alive_answered;
	loop_send(conn->member.owner->loop, message);
}

void keep_alive_closing(struct conn *conn)
{
	conn->member.heard_last = keep_alive_count(conn);
}

/* --- the timer ------------------------------------------------------------------------------- */

static void keep_alive_ask(struct ctrl *ctrl, struct ctrl_queue *queue)
{
	struct conn *conn = queue->conn;

	queue->asked = true;
	ctrl->nr_asked++;
	conn->member.ask.fn = keep_alive_asked;
	loop_send(conn->reactor->loop, &conn->member.ask);
}

static void keep_alive_expired(struct loop_timer *timer)
{
	struct ctrl *ctrl = container_of(timer, struct ctrl, keep_alive);

	/* The answers see to it. */
	if (ctrl->nr_asked)
		return;
	for (uint32_t qid = 1; qid <= CTRL_MAX_IO_QUEUES && ctrl->nr_members; qid++)
		if (ctrl->queues[qid].conn)
			keep_alive_ask(ctrl, &ctrl->queues[qid]);
	if (!ctrl->nr_asked)
		keep_alive_judge(ctrl);
}

void keep_alive_end_if_overdue(struct ctrl *ctrl)
{
	if (ctrl->ending || !ctrl->kato_ms)
		return;
	ctrl->overdue_asked = true;
	keep_alive_expired(&ctrl->keep_alive);
}

void keep_alive_init(struct ctrl *ctrl)
{
	loop_timer_init(&ctrl->keep_alive, keep_alive_expired);
}
