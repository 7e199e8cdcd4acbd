/* SPDX-License-Identifier: MIT */
/*
 * Collects controllers, writes the report.
 */
#include "target/reservation_report.h"

#include <stdlib.h>
#include <string.h>

#include "target/ctrl.h"
#include "target/log_pages.h"
#include "target/reactor.h"
#include "target/reservation_owner.h"
#include "target/subsys.h"

/* --- on each reactor ------------------------------------------------------------------------- */

static bool reservation_report_has(const struct reservation_task *task, const struct ctrl *ctrl)
{
	const struct subsys *subsys = ctrl->subsys;

	if (ctrl->ending || subsys->discovery)
		return false;
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
		if (subsys->ns[nsid] && subsys->ns[nsid]->reservation == task->owner)
			return true;
	return false;
}

static bool reservation_report_add(struct reservation_task *task, const struct ctrl *ctrl)
{
	struct reservation_ctrl *ctrls = task->ctrls;

	if (task->nr_ctrls == task->room) {
		uint32_t room = 2 * task->room + 16;

		ctrls = reallocarray(ctrls, room, sizeof(*ctrls));
		if (!ctrls)
			return false;
		task->ctrls = ctrls;
		task->room = room;
	}
	memcpy(ctrls[task->nr_ctrls].host, ctrl->hostid, RESERVATION_HOST_BYTES);
	ctrls[task->nr_ctrls++].cntlid = ctrl->cntlid;
	return true;
}

void reservation_report_visit(struct round *round, struct reactor *reactor)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);

	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++) {
		const struct ctrl *ctrl = reactor->ctrls[slot];

		if (!ctrl || !reservation_report_has(task, ctrl))
			continue;
		if (!reservation_report_add(task, ctrl))
			task->status = NVME_SC_INTERNAL;
	}
	round_go_on(round);
}

/* --- at the owner ---------------------------------------------------------------------------- */

static int reservation_ctrl_compare(const void *a, const void *b)
{
	const struct reservation_ctrl *one = a, *other = b;
	int order = memcmp(one->host, other->host, RESERVATION_HOST_BYTES);

	return order ? order : one->cntlid - other->cntlid;
}

struct reservation_writer {
	struct log_window window;
	uint64_t at;
	uint32_t nr;
};

static void reservation_report_entry(struct reservation_writer *writer,
	const struct reservation *state, const struct registrant *registrant, uint16_t cntlid)
{
	struct nvme_registrant entry = {.cntlid = le16(cntlid),
		.rcsts = reservation_holds(state, registrant->host),
		.rkey = le64(registrant->key)};

	memcpy(entry.hostid, registrant->host, sizeof(entry.hostid));
	log_window_copy(&writer->window, writer->at, &entry, sizeof(entry));
	writer->at += sizeof(entry);
	writer->nr++;
}

void reservation_report_fill(const struct reservation *state, struct reservation_ctrl *ctrls,
	uint32_t nr_ctrls, void *bytes, size_t length)
{
	struct nvme_reservation_status head = {.gen = le32(state->generation),
		.rtype = (uint8_t)state->type,
		.ptpls = state->ptpl};
	struct reservation_writer writer = {
		.window = {.length = length, .bytes = bytes}, .at = sizeof(head)};
	uint32_t next = 0;

	if (nr_ctrls)
		qsort(ctrls, nr_ctrls, sizeof(*ctrls), reservation_ctrl_compare);
	/* Both are in the order of hosts. */
	for (uint32_t i = 0; i < state->nr; i++) {
		const struct registrant *registrant = &state->registrants[i];
		uint32_t before = writer.nr;

		for (; next < nr_ctrls; next++) {
			int order =
				memcmp(ctrls[next].host, registrant->host, RESERVATION_HOST_BYTES);

			if (order > 0)
				break;
			if (!order)
				reservation_report_entry(
					&writer, state, registrant, ctrls[next].cntlid);
		}
		if (writer.nr == before)
			reservation_report_entry(&writer, state, registrant, NVME_CNTLID_DYNAMIC);
	}
	/* More than the field can say are in the list all the same. */
	head.regctl = le16((uint16_t)min_of(writer.nr, (uint32_t)UINT16_MAX));
	log_window_copy(&writer.window, 0, &head, sizeof(head));
}
