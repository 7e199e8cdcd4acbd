/* SPDX-License-Identifier: MIT */
/*
 * Compares the namespaces of two catalogs.
 */
#include "target/changed_ns.h"

#include <string.h>

#include "proto/nvme/log.h"
#include "target/ctrl.h"

/* Then FFFFFFFFh, which stands for more than the list can hold, never occurs. */
static_assert(SUBSYS_MAX_NSID <= NVME_LOG_CHANGED_NS_MAX);

/* By what Identify says of it. */
static bool changed_ns_differ(const struct ns *one, const struct ns *other)
{
	const struct backend_geometry *a, *b;

	if (!one || !other)
		return one || other;
	a = &one->place->backend->geometry;
	b = &other->place->backend->geometry;
	return one->place != other->place || one->read_only != other->read_only ||
	       one->lba_shift != other->lba_shift || one->nr_lbas != other->nr_lbas ||
	       memcmp(&one->uuid, &other->uuid, sizeof(one->uuid)) ||
	       memcmp(one->nguid, other->nguid, sizeof(one->nguid)) ||
	       memcmp(one->eui64, other->eui64, sizeof(one->eui64)) ||
	       memcmp(&a->limits, &b->limits, sizeof(a->limits));
}

bool changed_ns_compare(struct ctrl *ctrl, const struct subsys *before, const struct subsys *now)
{
	bool any = false;

	for (uint32_t nsid = 1; nsid <= SUBSYS_MAX_NSID; nsid++) {
		if (!changed_ns_differ(subsys_ns(before, nsid), subsys_ns(now, nsid)))
			continue;
		ctrl->changed_ns.since[nsid / 64] |= 1ull << nsid % 64;
		any = true;
	}
	return any;
}

void changed_ns_show(struct ctrl *ctrl, uint64_t offset, struct nvme_log_changed_ns *list)
{
	struct changed_ns *changed = &ctrl->changed_ns;
	uint32_t nr = 0;

	/* The pieces of one reading belong together. */
	if (offset == 0 || !changed->reading) {
		for (uint32_t i = 0; i < CHANGED_NS_WORDS; i++)
			changed->shown[i] |= changed->since[i];
		memset(changed->since, 0, sizeof(changed->since));
	}
	changed->reading = true;
	for (uint32_t nsid = 1; nsid <= SUBSYS_MAX_NSID; nsid++)
		if (changed->shown[nsid / 64] & 1ull << nsid % 64)
			list->nsid[nr++] = le32(nsid);
}

void changed_ns_clear(struct ctrl *ctrl)
{
	memset(ctrl->changed_ns.shown, 0, sizeof(ctrl->changed_ns.shown));
	ctrl->changed_ns.reading = false;
}
