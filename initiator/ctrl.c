/* SPDX-License-Identifier: MIT */
/*
 * The life of a controller: made, live, failed or disconnected, freed. The steps of the connect are
 * in connect.c, those of an orderly end in ctrl_shutdown.c.
 */
#include "initiator/ctrl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/identify.h"
#include "initiator/connect.h"
#include "initiator/io.h"
#include "initiator/lookup.h"
#include "initiator/namespace.h"
#include "initiator/options.h"
#include "initiator/queue.h"
#include "initiator/resolve.h"

static void ctrl_check_quiet(struct haul_ctrl *ctrl);

/* --- texts ---------------------------------------------------------------------------------- */

void ctrl_vset_error(struct haul_ctrl *ctrl, const char *format, va_list args)
{
	vsnprintf(ctrl->error, sizeof(ctrl->error), format, args);
}

void ctrl_set_error(struct haul_ctrl *ctrl, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	ctrl_vset_error(ctrl, format, args);
	va_end(args);
}

const char *haul_ctrl_error(const struct haul_ctrl *ctrl)
{
	return ctrl->error;
}

/* --- made ----------------------------------------------------------------------------------- */

void haul_ctrl_options_init(struct haul_ctrl_options *options)
{
	*options = (struct haul_ctrl_options){
		.size = sizeof(*options),
		.keep_alive_ms = 15000,
		.connect_timeout_ms = 10000,
		.command_timeout_ms = 30000,
		.max_queues = CTRL_MAX_IO_QUEUES,
	};
}

static void ctrl_pending_taken(struct haul_pending *pending)
{
	(void)pending; /* inside the controller, which outlives it */
}

#define CTRL_NR_TIMERS 3

static void ctrl_destroy(struct haul_ctrl *ctrl)
{
	struct haul_queue *queue, *after;

	loop_timer_cancel(ctrl->hl->loop, &ctrl->step_timer);
	loop_timer_cancel(ctrl->hl->loop, &ctrl->deadline_timer);
	loop_timer_cancel(ctrl->hl->loop, &ctrl->keep_alive_timer);
	loop_timers_unreserve(ctrl->hl->loop, CTRL_NR_TIMERS);
	list_for_each_entry_safe (queue, after, &ctrl->queues, node) {
		list_remove(&queue->node);
		queue_free(queue);
	}
	queue_free(ctrl->admin);
	lookup_free(ctrl);
	ns_free_all(ctrl);
	slots_destroy(&ctrl->op_slots);
	list_remove(&ctrl->node);
	free(ctrl->page);
	free(ctrl->uri_text);
	free(ctrl);
}

static void ctrl_init(struct haul_ctrl *ctrl, struct haul_loop *hl)
{
	ctrl->hl = hl;
	list_init(&ctrl->node);
	list_init(&ctrl->queues);
	list_init(&ctrl->connect.node);
	list_init(&ctrl->disconnect.node);
	loop_timer_init(&ctrl->step_timer, connect_step_expired);
	loop_timer_init(&ctrl->deadline_timer, connect_deadline_expired);
	loop_timer_init(&ctrl->keep_alive_timer, ctrl_keep_alive_expired);
	for (unsigned i = 0; i < CTRL_ADMIN_OPS; i++) {
		ctrl->ops_pool[i].ctrl = ctrl;
		list_init(&ctrl->ops_pool[i].pending.node);
	}
	list_push_back(&hl->ctrls, &ctrl->node);
}

static const struct haul_transport_ops *ctrl_transport(const struct nvme_uri *uri)
{
	for (unsigned i = 0; i < HAUL_NR_TRANSPORTS; i++)
		if (haul_transports[i] && haul_transports[i]->trtype == uri->trtype)
			return haul_transports[i];
	return NULL;
}

/* Everything about the address and the options that can be known to be wrong at once. */
static int ctrl_read_arguments(struct haul_ctrl *ctrl, const char *uri,
	const struct haul_ctrl_options *options, char *why, size_t why_size)
{
	int error = nvme_uri_parse(uri, 0, &ctrl->uri, why, why_size);

	if (error)
		return error;
	ctrl->ops = ctrl_transport(&ctrl->uri);
	if (!ctrl->ops) {
		snprintf(why, why_size, "this libhaul was built without that transport");
		return -EPROTONOSUPPORT;
	}
	error = options_read(ctrl, options, why, why_size);
	if (error)
		return error;
	strcpy(ctrl->nqn, ctrl->uri.nqn);
	return 0;
}

int haul_connect(struct haul_loop *hl, const char *uri, const struct haul_ctrl_options *options,
	uint64_t user_data, struct haul_ctrl **ret)
{
	struct haul_ctrl *ctrl = calloc(1, sizeof(*ctrl));
	char why[256] = "out of memory";
	int error = -ENOMEM;

	if (!ctrl)
		return -ENOMEM;
	ctrl_init(ctrl, hl);
	if (loop_timers_reserve(ctrl->hl->loop, CTRL_NR_TIMERS)) {
		list_remove(&ctrl->node);
		free(ctrl);
		return -ENOMEM;
	}
	ctrl->page = aligned_alloc(NVME_IDENTIFY_SIZE, NVME_IDENTIFY_SIZE);
	ctrl->uri_text = strdup(uri);
	if (ctrl->page && ctrl->uri_text && !slots_init(&ctrl->op_slots, CTRL_ADMIN_OPS))
		error = ctrl_read_arguments(ctrl, uri, options, why, sizeof(why));
	if (error) {
		snprintf(hl->error, sizeof(hl->error), "%.300s: %s", uri, why);
		ctrl_destroy(ctrl);
		return error;
	}
	pending_init(&ctrl->connect, user_data, ctrl_pending_taken);
	ctrl->connect_pending = true;
	*ret = ctrl;
	hl->unsent = true;
	connect_start(ctrl);
	return 0;
}

/* --- live ----------------------------------------------------------------------------------- */

void ctrl_connected(struct haul_ctrl *ctrl)
{
	loop_timer_cancel(ctrl->hl->loop, &ctrl->deadline_timer);
	ctrl->state = CTRL_LIVE;
	ctrl->was_live = true;
	ctrl->connect_pending = false;
	pending_end(ctrl->hl, &ctrl->connect, 0, 0, 0);
}

void ctrl_queue_live(struct haul_queue *queue)
{
	struct haul_ctrl *ctrl = queue->ctrl;

	if (queue == ctrl->admin) {
		if (!ctrl->lookup)
			ctrl->limits.has_keep_alive = true; /* until Identify says otherwise */
		ctrl_keep_alive_set(ctrl);
		connect_step_done(ctrl);
		return;
	}
	queue->create_pending = 0;
	pending_end(ctrl->hl, &queue->create, 0, 0, 0);
}

int haul_ctrl_is_live(const struct haul_ctrl *ctrl)
{
	return ctrl->state == CTRL_LIVE;
}

/* --- lost ----------------------------------------------------------------------------------- */

void ctrl_fail(struct haul_ctrl *ctrl, int result, const char *why)
{
	struct haul_queue *queue;

	if (ctrl->state == CTRL_FAILED || ctrl->state == CTRL_CLOSED)
		return;
	if (ctrl->state == CTRL_CONNECTING)
		ctrl->connect_result = result;
	if (why)
		ctrl_set_error(ctrl, "%.300s: %s", ctrl->uri_text, why);
	ctrl->state = CTRL_FAILED;
	ctrl->hl->unsent = true;
	loop_timer_cancel(ctrl->hl->loop, &ctrl->step_timer);
	loop_timer_cancel(ctrl->hl->loop, &ctrl->deadline_timer);
	loop_timer_cancel(ctrl->hl->loop, &ctrl->keep_alive_timer);
	if (ctrl->resolve) {
		resolve_abandon(ctrl->resolve);
		ctrl->resolve = NULL;
	}
	list_for_each_entry (queue, &ctrl->queues, node)
		queue_end(queue, result);
	if (ctrl->admin)
		queue_end(ctrl->admin, result);
	ctrl_check_quiet(ctrl);
}

void ctrl_queue_lost(struct haul_queue *queue, int result, const char *why)
{
	struct haul_ctrl *ctrl = queue->ctrl;

	if (queue == ctrl->admin && ctrl->state == CTRL_CONNECTING) {
		connect_step_failed(ctrl, result, "%s", why);
		return;
	}
	if (queue != ctrl->admin && queue->create_pending) {
		/* Only this queue: the association is as good as before. */
		ctrl_set_error(ctrl, "%.300s: I/O queue %u: %s", ctrl->uri_text, queue->qid, why);
		queue_end(queue, result);
		return;
	}
	/* NVMe-oF 3.3: with a queue's connection goes the association. While shutting down the
	 * target may well be the first to hang up. */
	ctrl_fail(ctrl, result, ctrl->state == CTRL_SHUTTING ? NULL : why);
}

static bool ctrl_is_quiet(const struct haul_ctrl *ctrl)
{
	const struct haul_queue *queue;

	list_for_each_entry (queue, &ctrl->queues, node)
		if (!queue_is_quiet(queue))
			return false;
	return !ctrl->admin || queue_is_quiet(ctrl->admin);
}

static void ctrl_end_connect(struct haul_ctrl *ctrl)
{
	if (!ctrl->connect_pending)
		return;
	ctrl->connect_pending = false;
	memcpy(ctrl->hl->error, ctrl->error, sizeof(ctrl->hl->error));
	pending_end(ctrl->hl, &ctrl->connect, ctrl->connect_result, 0, 0);
}

/* Whatever is still to be said once nothing is out any more. */
static void ctrl_check_quiet(struct haul_ctrl *ctrl)
{
	if (ctrl->state != CTRL_FAILED || !ctrl_is_quiet(ctrl))
		return;
	ctrl_end_connect(ctrl);
	if (!ctrl->disconnect_pending)
		return;
	ctrl->disconnect_pending = false;
	ctrl->state = CTRL_CLOSED;
	pending_end(ctrl->hl, &ctrl->disconnect, 0, 0, 0);
}

void ctrl_queue_closed(struct haul_queue *queue)
{
	struct haul_ctrl *ctrl = queue->ctrl;

	if (queue == ctrl->admin) {
		if (ctrl->state == CTRL_CONNECTING)
			connect_admin_closed(ctrl);
		else
			ctrl_check_quiet(ctrl);
		return;
	}
	ctrl->by_qid[queue->qid] = NULL;
	if (queue->create_pending) {
		queue->create_pending = 0;
		pending_end(ctrl->hl, &queue->create, queue->failure, 0, 0);
	}
	if (queue->close_pending)
		pending_end(ctrl->hl, &queue->close, 0, 0, 0);
	if (ctrl->state == CTRL_SHUTTING)
		ctrl_shutdown_next(ctrl);
	else
		ctrl_check_quiet(ctrl);
}

/* --- disconnected ----------------------------------------------------------------------------- */

int haul_disconnect(struct haul_ctrl *ctrl, uint64_t user_data)
{
	if (ctrl->disconnect_pending || ctrl->state == CTRL_CLOSED)
		return -EALREADY;
	pending_init(&ctrl->disconnect, user_data, ctrl_pending_taken);
	ctrl->disconnect_pending = true;
	switch (ctrl->state) {
	case CTRL_CONNECTING:
		ctrl_fail(ctrl, -ECANCELED, "the connect was given up by the caller");
		break;
	case CTRL_LIVE:
		ctrl_shutdown_start(ctrl);
		break;
	case CTRL_FAILED:
		ctrl_check_quiet(ctrl);
		break;
	case CTRL_SHUTTING:
	case CTRL_CLOSED:
		break;
	}
	return 0;
}

/* --- freed ---------------------------------------------------------------------------------- */

static void ctrl_drop_event(struct haul_pending *pending)
{
	if (list_empty(&pending->node))
		return;
	list_remove(&pending->node);
	pending->taken(pending);
}

static void ctrl_drop_events(struct haul_ctrl *ctrl)
{
	struct haul_queue *queue, *after;

	ctrl_drop_event(&ctrl->connect);
	ctrl_drop_event(&ctrl->disconnect);
	for (unsigned i = 0; i < CTRL_ADMIN_OPS; i++)
		ctrl_drop_event(&ctrl->ops_pool[i].pending);
	list_for_each_entry_safe (queue, after, &ctrl->queues, node) {
		ctrl_drop_event(&queue->create);
		io_drop_events(queue);
		ctrl_drop_event(&queue->close);
	}
}

void haul_ctrl_free(struct haul_ctrl *ctrl)
{
	if (!ctrl)
		return;
	ctrl_fail(ctrl, -ECANCELED, NULL);
	while (!ctrl_is_quiet(ctrl))
		loop_turn_or_wait(ctrl->hl, -1);
	ctrl_drop_events(ctrl);
	ctrl_destroy(ctrl);
}

/* --- asked ---------------------------------------------------------------------------------- */

int haul_ctrl_info(const struct haul_ctrl *ctrl, struct haul_ctrl_info *ret)
{
	const struct ctrl_limits *limits = &ctrl->limits;
	char address[ADDRESS_TEXT];

	if (!ctrl->was_live)
		return -ENOTCONN;
	memset(ret, 0, sizeof(*ret));
	ret->cntlid = ctrl->cntlid;
	strcpy(ret->subsystem_nqn, ctrl->nqn);
	strcpy(ret->host_nqn, ctrl->host_nqn);
	snprintf(ret->transport, sizeof(ret->transport), "%s", ctrl->ops->name);
	address_format(&ctrl->address, address);
	snprintf(
		ret->address, sizeof(ret->address), "%.*s", (int)sizeof(ret->address) - 1, address);
	memcpy(ret->serial, limits->serial, sizeof(ret->serial));
	memcpy(ret->model, limits->model, sizeof(ret->model));
	memcpy(ret->firmware, limits->firmware, sizeof(ret->firmware));
	ret->version = limits->vs;
	ret->max_transfer_bytes = limits->max_transfer_bytes;
	ret->max_queue_depth = limits->max_depth;
	ret->max_queues = limits->nr_queues;
	ret->in_capsule_bytes = limits->in_capsule_bytes;
	ret->keep_alive_ms = limits->has_keep_alive ? ctrl->options.keep_alive_ms : 0;
	ret->max_segments = limits->max_segments;
	return 0;
}
