/* SPDX-License-Identifier: MIT */
/*
 * What a controller tells its host of the groups: the log page (NVMe base 2.0 5.16.1.13), with the
 * groups that have namespaces this host sees, in the state they have at its listener, and whether
 * that has changed.
 */
#ifndef HAUL_TARGET_ANA_LOG_H
#define HAUL_TARGET_ANA_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "target/ana.h"

struct ctrl;
struct log_window;
struct request;
struct subsys;

/* Since the last reset of the controller. */
struct ana_counts {
	uint64_t changes; /* of the page */
	uint64_t changes_of[ANA_MAX_GROUPS + 1];
};

struct ana_change {
	bool tell; /* the host, by an event of its own */
	/* A group has come back from Persistent Loss, which it cannot for a controller that has
	 * told of it (8.1.3.4). */
	bool ends;
};

/* Another catalog counts: counts what that changes. */
struct ana_change ana_log_follow(
	struct ctrl *ctrl, const struct subsys *before, const struct subsys *now);

/* Controller Level Reset. */
void ana_log_reset(struct ctrl *ctrl);

uint64_t ana_log_length(const struct request *request);
void ana_log_write(struct request *request, const struct log_window *window);

#endif
