/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of a controller (NVMe base 2.0 5.2): those that have happened wait here, in
 * order, for an event request of the host; those requests wait here for an event. On the
 * controller's reactor only.
 *
 * An event that was told is masked until the host reads its log page without RAE. The mask is one
 * log page's, not its whole event type's: a host whose scan waits for a path to become usable
 * must hear of the ANA change although it has not yet read what the scan was about.
 */
#ifndef HAUL_TARGET_EVENT_H
#define HAUL_TARGET_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/nvme/nvme.h"

struct ctrl;
struct request;

/* Kinds that can wait at a time: more than there are. */
#define EVENT_MAX_PENDING 16

struct event {
	enum nvme_aer_type type;
	uint8_t info;
	uint8_t lid; /* log page to read, which clears it */
	/* The host has begun to read the log page since: the end of reading clears it, too. */
	bool seen;
};

struct events {
	uint32_t configured; /* by the feature, NVME_AEC_* */
	uint32_t nr_aers;    /* requests held */
	uint32_t nr_pending;
	struct event pending[EVENT_MAX_PENDING]; /* the oldest first, each kind once */
	uint64_t masked[256 / 64];		 /* by log page: told and not yet read */
};

/* It has happened. Nothing when the host has not enabled this kind; an event that waits already
 * stays one. Kinds without a bit in the configuration are the caller's to filter. */
void event_raise(struct ctrl *ctrl, enum nvme_aer_type type, uint8_t info, uint8_t lid);

/* Get Log Page has read LID from OFFSET. RETAIN: with RAE. */
void event_log_read(struct ctrl *ctrl, uint8_t lid, uint64_t offset, bool retain);

/* The host's Asynchronous Event Configuration. */
void event_configure(struct ctrl *ctrl, uint32_t configured);

/* Takes an asynchronous event request in CORE. */
void event_hold_request(struct ctrl *ctrl, struct request *request);
/* Completes the held request CID as aborted; false: none such. */
bool event_abort_request(struct ctrl *ctrl, uint16_t cid);

/* Controller Level Reset: requests are aborted, events and configuration forgotten. */
void event_reset(struct ctrl *ctrl);

#endif
