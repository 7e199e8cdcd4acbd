/* SPDX-License-Identifier: MIT */
/*
 * An orderly end: the I/O queues first, then the controller is shut down, then we hang up.
 */
#include "initiator/ctrl.h"

#include <errno.h>

#include "initiator/admin.h"
#include "initiator/queue.h"

#define CTRL_SHUTDOWN_MS      1000 /* how long it may take before we just hang up */
#define CTRL_SHUTDOWN_POLL_MS 5

static void ctrl_hang_up(struct haul_ctrl *ctrl)
{
	ctrl_fail(ctrl, -ECANCELED, NULL);
}

static void ctrl_shutdown_status_answered(struct haul_request *request)
{
	struct haul_ctrl *ctrl = request->context;
	uint32_t csts = (uint32_t)le64_get(request->cqe.property);
	uint64_t now_ns = loop_now_ns(ctrl->hl->loop);
	uint16_t status;

	if (ctrl->state != CTRL_SHUTTING)
		return;
	if (request_result(request, &status) || now_ns >= ctrl->shutdown_deadline_ns ||
		(csts & NVME_CSTS_SHST_MASK) == NVME_CSTS_SHST_COMPLETE) {
		ctrl_hang_up(ctrl);
		return;
	}
	loop_timer_set(
		ctrl->hl->loop, &ctrl->step_timer, now_ns + CTRL_SHUTDOWN_POLL_MS * NS_PER_MS);
}

static void ctrl_shutdown_poll(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_property_get(NVME_PROPERTY_CSTS, false);

	if (admin_send(ctrl, &cmd, NULL, 0, 0, 0, ctrl_shutdown_status_answered, ctrl))
		ctrl_hang_up(ctrl);
}

static void ctrl_shutdown_expired(struct loop_timer *timer)
{
	ctrl_shutdown_poll(container_of(timer, struct haul_ctrl, step_timer));
}

static void ctrl_shutdown_deadline(struct loop_timer *timer)
{
	ctrl_hang_up(container_of(timer, struct haul_ctrl, deadline_timer));
}

static void ctrl_shutdown_answered(struct haul_request *request)
{
	struct haul_ctrl *ctrl = request->context;
	uint16_t status;

	if (ctrl->state != CTRL_SHUTTING)
		return;
	if (request_result(request, &status))
		ctrl_hang_up(ctrl);
	else
		ctrl_shutdown_poll(ctrl);
}

/* Once the I/O queues are gone: CC.SHN, CSTS.SHST (NVMe base 2.0 3.6.1), both under one deadline.
 */
void ctrl_shutdown_next(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd;
	struct haul_queue *queue;

	list_for_each_entry (queue, &ctrl->queues, node)
		if (!queue_is_quiet(queue))
			return;
	if (ctrl->shutdown_sent)
		return;
	ctrl->shutdown_sent = true;
	ctrl->shutdown_deadline_ns = haul_loop_now_ns(ctrl->hl) + CTRL_SHUTDOWN_MS * NS_PER_MS;
	loop_timer_init(&ctrl->step_timer, ctrl_shutdown_expired);
	loop_timer_init(&ctrl->deadline_timer, ctrl_shutdown_deadline);
	loop_timer_set(ctrl->hl->loop, &ctrl->deadline_timer, ctrl->shutdown_deadline_ns);
	cmd = admin_cmd_property_set(
		NVME_PROPERTY_CC, ctrl->cc | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT);
	if (admin_send(ctrl, &cmd, NULL, 0, 0, 0, ctrl_shutdown_answered, ctrl))
		ctrl_hang_up(ctrl);
}

void ctrl_shutdown_start(struct haul_ctrl *ctrl)
{
	struct haul_queue *queue;

	ctrl->state = CTRL_SHUTTING;
	loop_timer_cancel(ctrl->hl->loop, &ctrl->keep_alive_timer);
	list_for_each_entry (queue, &ctrl->queues, node)
		queue_end(queue, -ECANCELED);
	ctrl_shutdown_next(ctrl);
}
