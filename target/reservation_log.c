/* SPDX-License-Identifier: MIT */
/*
 * Notification pages that wait to be read, and what is masked.
 */
#include "target/reservation_log.h"

#include <stdlib.h>
#include <string.h>

#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/event.h"
#include "target/subsys.h"

/* Pages that wait; then the oldest are lost, which the count of the next one shows. */
#define RESERVATION_LOG_PAGES 64

struct reservation_log {
	uint64_t count; /* of pages, ever */
	uint32_t first;
	uint32_t nr;
	struct nvme_log_reservation pages[RESERVATION_LOG_PAGES];
	uint8_t masks[SUBSYS_MAX_NSID + 1]; /* by namespace id */
};

static struct reservation_log *reservation_log_get(struct ctrl *ctrl)
{
	if (!ctrl->reservation_log)
		ctrl->reservation_log = calloc(1, sizeof(*ctrl->reservation_log));
	return ctrl->reservation_log;
}

void reservation_log_reset(struct ctrl *ctrl)
{
	free(ctrl->reservation_log);
	ctrl->reservation_log = NULL;
}

/* --- pages ----------------------------------------------------------------------------------- */

static void reservation_log_drop(struct reservation_log *log)
{
	log->first = (log->first + 1) % RESERVATION_LOG_PAGES;
	log->nr--;
}

void reservation_log_add(struct ctrl *ctrl, enum nvme_reservation_notice notice, uint32_t nsid)
{
	struct reservation_log *log = reservation_log_get(ctrl);

	/* Its bit in the mask is that of its number. */
	if (!log || (log->masks[nsid] & 1u << notice))
		return;
	if (log->nr == RESERVATION_LOG_PAGES)
		reservation_log_drop(log);
	log->count++;
	log->pages[(log->first + log->nr++) % RESERVATION_LOG_PAGES] =
		(struct nvme_log_reservation){
			.count = le64(log->count), .type = (uint8_t)notice, .nsid = le32(nsid)};
	event_raise(ctrl, NVME_AER_IO_SPECIFIC, NVME_AER_IO_RESERVATION_LOG, NVME_LOG_RESERVATION);
}

void reservation_log_show(struct request *request, void *page)
{
	const struct reservation_log *log = request->conn->member.ctrl->reservation_log;
	struct nvme_log_reservation *shown = page;

	if (!log || !log->nr)
		return;
	*shown = log->pages[log->first];
	shown->nr_pages = (uint8_t)(log->nr - 1);
}

void reservation_log_clear(struct ctrl *ctrl)
{
	if (ctrl->reservation_log && ctrl->reservation_log->nr)
		reservation_log_drop(ctrl->reservation_log);
}

/* --- the mask -------------------------------------------------------------------------------- */

uint32_t reservation_mask_get(const struct ctrl *ctrl, uint32_t nsid)
{
	return ctrl->reservation_log ? ctrl->reservation_log->masks[nsid] : 0;
}

uint16_t reservation_mask_set(struct ctrl *ctrl, uint32_t nsid, uint32_t mask)
{
	const uint32_t bits = 1u << NVME_RESERVATION_NOTICE_REGISTRATION_PREEMPTED |
			      1u << NVME_RESERVATION_NOTICE_RELEASED |
			      1u << NVME_RESERVATION_NOTICE_PREEMPTED;
	struct reservation_log *log;

	if (mask & ~bits)
		return CMD_INVALID_FIELD;
	log = reservation_log_get(ctrl);
	if (!log)
		return NVME_SC_INTERNAL;
	if (nsid == NVME_NSID_ALL)
		memset(log->masks, (int)mask, sizeof(log->masks));
	else
		log->masks[nsid] = (uint8_t)mask;
	return 0;
}
