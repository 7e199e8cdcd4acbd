/* SPDX-License-Identifier: MIT */
/*
 * The discovery log of one host: the discovery subsystem itself, every subsystem the host may use,
 * both on every port, and the referrals to others.
 */
#ifndef HAUL_TARGET_DISCOVERY_H
#define HAUL_TARGET_DISCOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "target/log_pages.h"

struct catalog;
struct ctrl;

/* Log specific parameters that are served. */
#define DISCOVERY_LSP (NVME_DISC_LSP_EXTDLPE | NVME_DISC_LSP_PLEO)

/* Get Log Page: the whole log as the host sees it now, in the form it asks for. */
uint16_t discovery_log_check(const struct request *request);
uint64_t discovery_log_size(const struct request *request);
void discovery_log_write(struct request *request, const struct log_window *window);

/* True: no host sees anything else in NOW than in BEFORE. Each host's own look costs as much as its
 * log is long. */
bool discovery_is_same(const struct catalog *before, const struct catalog *now);
/* Whether the host of CTRL sees anything else in NOW than in BEFORE. */
bool discovery_differs(
	const struct ctrl *ctrl, const struct catalog *before, const struct catalog *now);

#endif
