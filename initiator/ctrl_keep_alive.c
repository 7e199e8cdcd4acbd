/* SPDX-License-Identifier: MIT */
/*
 * Keep-alive: a command in each half of KATO, and the end of a target that answers nothing at all.
 */
#include "initiator/ctrl.h"

#include <errno.h>

#include "initiator/admin.h"

void ctrl_keep_alive_set(struct haul_ctrl *ctrl)
{
	uint64_t half_ns = ctrl->options.keep_alive_ms * NS_PER_MS / 2;

	if (half_ns && ctrl->limits.has_keep_alive)
		loop_timer_set(ctrl->hl->loop, &ctrl->keep_alive_timer,
			loop_now_ns(ctrl->hl->loop) + half_ns);
}

static void ctrl_keep_alive_answered(struct haul_request *request)
{
	struct haul_ctrl *ctrl = request->context;
	uint16_t status;
	int result = request_result(request, &status);

	ctrl->keep_alive_is_out = false;
	if (ctrl->state != CTRL_LIVE && ctrl->state != CTRL_CONNECTING)
		return;
	if (result && status)
		ctrl_fail(ctrl, result, "the target refuses our keep-alive");
}

static uint64_t ctrl_nr_answered(const struct haul_ctrl *ctrl)
{
	const struct haul_queue *queue;
	uint64_t nr = ctrl->admin->nr_answered;

	list_for_each_entry (queue, &ctrl->queues, node)
		nr += queue->nr_answered;
	return nr;
}

/* A target that answers anything is alive, however long load holds its answer to us up. */
static bool ctrl_keep_alive_is_lost(struct haul_ctrl *ctrl)
{
	uint64_t nr_answered = ctrl_nr_answered(ctrl);

	if (nr_answered != ctrl->nr_answered_then)
		ctrl->keep_alive_nr_silent = 0;
	ctrl->nr_answered_then = nr_answered;
	return ++ctrl->keep_alive_nr_silent > 2;
}

/* NVMe base 2.0 3.9: in time for the target to see one in each KATO, whatever the network does. */
void ctrl_keep_alive_expired(struct loop_timer *timer)
{
	struct haul_ctrl *ctrl = container_of(timer, struct haul_ctrl, keep_alive_timer);
	struct nvme_cmd cmd = {.opcode = NVME_OPC_KEEP_ALIVE};

	if (ctrl->state != CTRL_LIVE && ctrl->state != CTRL_CONNECTING)
		return;
	if (!ctrl->limits.has_keep_alive)
		return; /* Identify said so after it was armed */
	ctrl_keep_alive_set(ctrl);
	if (ctrl->keep_alive_is_out) {
		if (ctrl_keep_alive_is_lost(ctrl))
			ctrl_fail(ctrl, -ETIMEDOUT, "the target does not answer our keep-alive");
		return;
	}
	ctrl->keep_alive_nr_silent = 0;
	if (!admin_send(ctrl, &cmd, NULL, 0, 0, 0, ctrl_keep_alive_answered, ctrl))
		ctrl->keep_alive_is_out = true;
}
