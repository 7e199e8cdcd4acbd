/* SPDX-License-Identifier: MIT */
/*
 * Brings events and the host's requests for them together.
 */
#include "target/event.h"

#include <string.h>

#include "proto/nvme/log.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/request.h"

static bool event_is_masked(const struct events *events, uint8_t lid)
{
	return events->masked[lid / 64] & 1ull << lid % 64;
}

static void event_set_masked(struct events *events, uint8_t lid, bool masked)
{
	uint64_t bit = 1ull << lid % 64;

	events->masked[lid / 64] =
		masked ? events->masked[lid / 64] | bit : events->masked[lid / 64] & ~bit;
}

/* The bits of the configuration that let an event through (NVMe base 2.0 5.27.1.8); 0: it has none.
 */
static uint32_t event_config_bits(enum nvme_aer_type type, uint8_t info)
{
	/* Of what makes media unreliable, only READ_ONLY happens here. */
	if (type == NVME_AER_SMART)
		return info == NVME_AER_SMART_TEMPERATURE ? NVME_SMART_TEMPERATURE
							  : NVME_SMART_READ_ONLY;
	if (type != NVME_AER_NOTICE)
		return 0;
	switch (info) {
	case NVME_AER_NOTICE_NS_CHANGED:
		return NVME_AEC_NS;
	case NVME_AER_NOTICE_FW_ACTIVATION:
		return NVME_AEC_FW;
	case NVME_AER_NOTICE_ANA:
		return NVME_AEC_ANA;
	case NVME_AER_NOTICE_DISCOVERY:
		return NVME_AEC_DISCOVERY;
	default:
		return 0;
	}
}

static bool event_is_enabled(const struct events *events, enum nvme_aer_type type, uint8_t info)
{
	uint32_t bits = event_config_bits(type, info);

	return !bits || (events->configured & bits);
}

static void event_forget(struct events *events, uint32_t index)
{
	events->nr_pending--;
	memmove(&events->pending[index], &events->pending[index + 1],
		(events->nr_pending - index) * sizeof(events->pending[0]));
}

/* --- requests -------------------------------------------------------------------------------- */

static void event_complete_request(struct ctrl *ctrl, struct request *request, uint16_t status)
{
	ctrl->events.nr_aers--;
	list_remove(&request->node);
	request_complete(request, status);
}

static void event_tell(struct ctrl *ctrl, const struct event *event)
{
	struct request *request = container_of(ctrl->admin->held.next, struct request, node);

	request->cqe.dw0 = le32(NVME_AER(event->type, event->info, event->lid));
	event_complete_request(ctrl, request, 0);
}

/* Tells what may be told, in order, as far as the host's requests reach. */
static void event_tell_all(struct ctrl *ctrl)
{
	struct events *events = &ctrl->events;
	uint32_t index = 0;

	/* When the target sends its hosts away, commands are held that came too late. */
	if (ctrl->reactor->stage >= REACTOR_DRAINS)
		return;
	while (!ctrl->ending && index < events->nr_pending && events->nr_aers) {
		struct event event = events->pending[index];

		if (event_is_masked(events, event.lid)) {
			index++;
			continue;
		}
		event_forget(events, index);
		event_set_masked(events, event.lid, true);
		event_tell(ctrl, &event);
	}
}

void event_hold_request(struct ctrl *ctrl, struct request *request)
{
	if (ctrl->events.nr_aers >= CTRL_MAX_AERS) {
		request_complete(request, NVME_SC_AER_LIMIT | NVME_STATUS_DNR);
		return;
	}
	ctrl->events.nr_aers++;
	request_hand_to(request, REQUEST_HELD);
	list_push_back(&request->conn->held, &request->node);
	event_tell_all(ctrl);
}

bool event_abort_request(struct ctrl *ctrl, uint16_t cid)
{
	struct request *request;

	list_for_each_entry (request, &ctrl->admin->held, node) {
		if (le16_get(request->cmd.cid) != cid)
			continue;
		event_complete_request(ctrl, request, NVME_SC_ABORT_REQUESTED);
		return true;
	}
	return false;
}

void event_reset(struct ctrl *ctrl)
{
	while (!list_empty(&ctrl->admin->held))
		event_complete_request(ctrl,
			container_of(ctrl->admin->held.next, struct request, node),
			NVME_SC_ABORT_REQUESTED);
	ctrl->events = (struct events){0};
}

/* --- events ---------------------------------------------------------------------------------- */

static struct event *event_find(
	struct events *events, enum nvme_aer_type type, uint8_t info, uint8_t lid)
{
	for (uint32_t i = 0; i < events->nr_pending; i++) {
		struct event *event = &events->pending[i];

		if (event->type == type && event->info == info && event->lid == lid)
			return event;
	}
	return NULL;
}

void event_raise(struct ctrl *ctrl, enum nvme_aer_type type, uint8_t info, uint8_t lid)
{
	struct events *events = &ctrl->events;
	struct event *event;

	if (!event_is_enabled(events, type, info))
		return;
	event = event_find(events, type, info, lid);
	if (event) {
		event->seen = false;
		return;
	}
	assert(events->nr_pending < EVENT_MAX_PENDING);
	events->pending[events->nr_pending++] =
		(struct event){.type = type, .info = info, .lid = lid};
	event_tell_all(ctrl);
}

/* NVMe base 2.0 5.2: reading clears the event, and what was cleared before it was told is not told.
 * A log page that is read in pieces is read at its first one: what happens after that is told
 * although the last piece, without RAE, comes later still. */
void event_log_read(struct ctrl *ctrl, uint8_t lid, uint64_t offset, bool retain)
{
	struct events *events = &ctrl->events;
	uint32_t index = 0;

	while (index < events->nr_pending) {
		struct event *event = &events->pending[index];

		if (event->lid == lid && offset == 0)
			event->seen = true;
		if (event->lid == lid && event->seen && !retain)
			event_forget(events, index);
		else
			index++;
	}
	if (retain)
		return;
	event_set_masked(events, lid, false);
	event_tell_all(ctrl);
}

void event_configure(struct ctrl *ctrl, uint32_t configured)
{
	struct events *events = &ctrl->events;
	uint32_t index = 0;

	events->configured = configured;
	while (index < events->nr_pending) {
		const struct event *event = &events->pending[index];

		if (event_is_enabled(events, event->type, event->info))
			index++;
		else
			event_forget(events, index);
	}
}
