/* SPDX-License-Identifier: MIT */
/*
 * What a controller's host is told of reservations: Reservation Notification log pages (NVMe base
 * 2.0 5.16.1.24), the event that says there is one, and the mask by namespace (feature 82h). On the
 * controller's reactor.
 */
#ifndef HAUL_TARGET_RESERVATION_LOG_H
#define HAUL_TARGET_RESERVATION_LOG_H

#include <stdint.h>

#include "proto/nvme/log.h"

struct ctrl;
struct request;

/* It has happened to namespace NSID. Nothing when the host has masked it. */
void reservation_log_add(struct ctrl *ctrl, enum nvme_reservation_notice notice, uint32_t nsid);

/* The page that a read finds: the oldest one. */
void reservation_log_show(struct request *request, void *page);
/* It was read without RAE: the next one comes. */
void reservation_log_clear(struct ctrl *ctrl);

/* Controller Level Reset, or its end. */
void reservation_log_reset(struct ctrl *ctrl);

/* Feature 82h. */
uint32_t reservation_mask_get(const struct ctrl *ctrl, uint32_t nsid);
/* NVME_NSID_ALL: of all. A status. */
uint16_t reservation_mask_set(struct ctrl *ctrl, uint32_t nsid, uint32_t mask);

#endif
