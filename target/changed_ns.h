/* SPDX-License-Identifier: MIT */
/*
 * Which namespaces have changed since the host of a controller has looked: the Changed Namespace
 * List (NVMe base 2.0 5.16.1.5) and the event that goes with it.
 */
#ifndef HAUL_TARGET_CHANGED_NS_H
#define HAUL_TARGET_CHANGED_NS_H

#include <stdbool.h>
#include <stdint.h>

#include "target/subsys.h"

struct ctrl;
struct nvme_log_changed_ns;

#define CHANGED_NS_WORDS (SUBSYS_MAX_NSID / 64 + 1)

struct changed_ns {
	uint64_t since[CHANGED_NS_WORDS]; /* by namespace id; not yet shown */
	uint64_t shown[CHANGED_NS_WORDS]; /* what the list says until it is read without RAE */
	bool reading;			  /* it has been shown, and was not cleared */
};

/* Another catalog counts. True when something has changed for the host. */
bool changed_ns_compare(struct ctrl *ctrl, const struct subsys *before, const struct subsys *now);

/* A read from OFFSET begins: fills in the list. */
void changed_ns_show(struct ctrl *ctrl, uint64_t offset, struct nvme_log_changed_ns *list);
/* It was read without RAE: what was shown is known. */
void changed_ns_clear(struct ctrl *ctrl);

#endif
