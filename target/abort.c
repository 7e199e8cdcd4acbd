/* SPDX-License-Identifier: MIT */
/*
 * Abort (NVMe base 2.0 5.1): from the admin queue to the queue of the command, on whatever reactor,
 * and back, by message. It is answered at once.
 *
 * What waits, for an event, a buffer, the other half of a pair or a locked range, ends now; its
 * response is with its transport before Abort's. Of anything else Abort says that it is not
 * aborted. Yet one whose data is on its way ends when that is here, for no transport can call it
 * back, and one made of several parts after the present part: a deferred abort (as NVMe
 * base 2.1 5.1.1 calls it). What a disk has whole is done.
 */
#include <errno.h>
#include <stdlib.h>

#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/event.h"
#include "target/fused.h"
#include "target/reactor.h"

struct abort {
	struct loop_message message;
	struct request
		*request; /* Abort itself, in EXEC: its connection stays, and its controller */
	struct ctrl *ctrl;
	struct conn *queue; /* alive when the message arrives: it came before leave's answer */
	uint16_t cid;
	bool aborted;
	struct fused_abort fused;
};

/* --- back on the controller's reactor -------------------------------------------------------- */

static void abort_come_home(struct loop_message *message)
{
	struct abort *abort = container_of(message, struct abort, message);
	struct request *request = abort->request;

	abort->ctrl->nr_aborts--;
	if (request_executed(request)) {
		request->cqe.dw0 = le32(abort->aborted ? 0 : NVME_ABORT_NOT_ABORTED);
		request_complete(request, 0);
	}
	free(abort);
}

/* --- on the queue's reactor ------------------------------------------------------------------ */

static void abort_leave(struct loop_message *message)
{
	struct abort *abort = container_of(message, struct abort, message);

	message->fn = abort_come_home;
	loop_send(abort->ctrl->reactor->loop, message);
}

/* In the next turn, for in this one the response of the aborted command leaves. */
static void abort_answer(struct abort *abort, bool aborted)
{
	abort->aborted = aborted;
	abort->message.fn = abort_leave;
	loop_send(abort->queue->reactor->loop, &abort->message);
}

static void abort_run(struct request *request)
{
	request_complete(request, NVME_SC_ABORT_REQUESTED);
}

/* Takes the place of a command whose data is on its way. */
static const struct cmd abort_cmd = {
	.name = "aborted",
	.direction = REQUEST_FROM_HOST,
	.run = abort_run,
};

/* In the place of a part's own function, which sees to the end of its command. */
static void abort_part_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)res;
	request->part_done(done, -ECANCELED, flags);
}

/* It ends as soon as it can, if not now. */
static void abort_defer(struct request *request)
{
	const struct cmd *command = request->command;

	if (request->state == REQUEST_PULL) {
		request->command = &abort_cmd;
		return;
	}
	if (request->state != REQUEST_EXEC || !command->more_parts || !command->more_parts(request))
		return;
	/* Maybe it is so already, for another Abort. */
	if (request->io.done.fn != abort_part_done)
		request->part_done = request->io.done.fn;
	request->io.done.fn = abort_part_done;
}

/* False: not now. */
static bool abort_end_now(struct request *request)
{
	if (request->state == REQUEST_HELD) { /* for its other half: target/fused.h */
		request_unlist(request);
		request_complete(request, NVME_SC_ABORT_REQUESTED);
		return true;
	}
	return request->state == REQUEST_EXEC && request_cancel_io(request);
}

static void abort_fused_done(struct fused_abort *fused)
{
	abort_answer(container_of(fused, struct abort, fused), true);
}

static struct request *abort_find(struct conn *conn, uint16_t cid)
{
	for (uint32_t index = 0; index < conn->slots.nr_touched; index++) {
		struct request *request = &conn->requests[index];

		if (le16_get(request->cmd.cid) == cid &&
			(request->state == REQUEST_HELD || request->state == REQUEST_PULL ||
				request->state == REQUEST_EXEC))
			return request;
	}
	return NULL;
}

static void abort_arrive(struct loop_message *message)
{
	struct abort *abort = container_of(message, struct abort, message);
	struct conn *conn = abort->queue;
	struct request *target;

	if (conn->state != CONN_LIVE) {
		abort_answer(abort, false);
		return;
	}
	if ((conn->qid == 0 && event_abort_request(abort->ctrl, abort->cid)) ||
		request_abort_waiting(conn, abort->cid)) {
		abort_answer(abort, true);
		return;
	}
	target = abort_find(conn, abort->cid);
	if (target && abort_end_now(target)) {
		abort_answer(abort, true);
		return;
	}
	abort->fused.done = abort_fused_done;
	if (target && fused_abort(target, &abort->fused))
		return;
	if (target)
		abort_defer(target);
	abort_answer(abort, false);
}

/* --- the command ----------------------------------------------------------------------------- */

static struct conn *abort_queue(const struct request *request)
{
	uint32_t sqid = le16_get(request->cmd.abort.sqid);

	if (sqid == 0)
		return request->conn;
	return sqid <= CTRL_MAX_IO_QUEUES ? request->conn->member.ctrl->queues[sqid].conn : NULL;
}

void cmd_abort_run(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	struct conn *queue = abort_queue(request);
	struct abort *abort;

	if (ctrl->nr_aborts >= CTRL_MAX_ABORTS) {
		request_complete(request, NVME_SC_ABORT_LIMIT);
		return;
	}
	abort = queue ? calloc(1, sizeof(*abort)) : NULL;
	if (!abort) {
		request->cqe.dw0 = le32(NVME_ABORT_NOT_ABORTED);
		request_complete(request, 0);
		return;
	}
	ctrl->nr_aborts++;
	abort->request = request;
	abort->ctrl = ctrl;
	abort->queue = queue;
	abort->cid = le16_get(request->cmd.abort.cid);
	abort->message.fn = abort_arrive;
	request_hand_to(request, REQUEST_EXEC);
	loop_send(queue->reactor->loop, &abort->message);
}
