/* SPDX-License-Identifier: MIT */
/*
 * The log page is made from the catalog whenever it is read.
 */
#include "target/ana_log.h"

#include "target/conn.h"
#include "target/ctrl.h"
#include "target/log_pages.h"
#include "target/subsys.h"

/* 0: the host does not see it. */
static uint32_t ana_log_group(const struct subsys *subsys, uint32_t nsid)
{
	const struct ns *ns = subsys_ns(subsys, nsid);

	return ns ? ns->ana_group : 0;
}

/* --- changes --------------------------------------------------------------------------------- */

struct ana_compare {
	bool before[ANA_MAX_GROUPS + 1]; /* had namespaces; 0 is for those that have no group */
	bool now[ANA_MAX_GROUPS + 1];
	bool changed[ANA_MAX_GROUPS + 1];
	struct ana_change change;
};

/* One that has come or gone the host hears of as of any namespace, hence not by this event
 * (5.2.1). */
static void ana_compare_members(
	struct ana_compare *compare, const struct subsys *before, const struct subsys *now)
{
	for (uint32_t nsid = 1; nsid <= SUBSYS_MAX_NSID; nsid++) {
		uint32_t one = ana_log_group(before, nsid), other = ana_log_group(now, nsid);

		compare->before[one] = true;
		compare->now[other] = true;
		if (one == other)
			continue;
		compare->changed[one] = compare->changed[other] = true;
		compare->change.tell |= one && other;
	}
}

static void ana_compare_states(struct ana_compare *compare, uint16_t portid,
	const struct subsys *before, const struct subsys *now)
{
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		enum nvme_ana_state one = ana_state(before, group, portid);

		if (!compare->before[group] || !compare->now[group] ||
			one == ana_state(now, group, portid))
			continue;
		compare->changed[group] = true;
		compare->change.tell = true;
		compare->change.ends |= one == NVME_ANA_PERSISTENT_LOSS;
	}
}

struct ana_change ana_log_follow(
	struct ctrl *ctrl, const struct subsys *before, const struct subsys *now)
{
	struct ana_compare compare = {0};
	bool any = false;

	ana_compare_members(&compare, before, now);
	ana_compare_states(&compare, ctrl->portid, before, now);
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		if (!compare.changed[group])
			continue;
		ctrl->ana_counts.changes_of[group]++;
		any = true;
	}
	ctrl->ana_counts.changes += any;
	return compare.change;
}

void ana_log_reset(struct ctrl *ctrl)
{
	ctrl->ana_counts = (struct ana_counts){0};
}

/* --- the page -------------------------------------------------------------------------------- */

struct ana_layout {
	uint32_t nr_groups;
	uint32_t members[ANA_MAX_GROUPS + 1];
	bool groups_only;
};

static void ana_log_lay_out(const struct request *request, struct ana_layout *layout)
{
	const struct subsys *subsys = request->conn->subsys;

	*layout = (struct ana_layout){
		.groups_only = request->cmd.get_log.lsp & NVME_LOG_ANA_RGO,
	};
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++) {
		uint32_t group = ana_log_group(subsys, nsid);

		if (!group)
			continue;
		layout->nr_groups += !layout->members[group]++;
	}
}

/* As much as Identify says there can be: nvme-cli reads that in pieces, whatever the first one
 * says. Behind what there is are zeros. */
uint64_t ana_log_length(const struct request *request)
{
	bool groups_only = request->cmd.get_log.lsp & NVME_LOG_ANA_RGO;

	return sizeof(struct nvme_log_ana) + ANA_MAX_GROUPS * sizeof(struct nvme_log_ana_group) +
	       (groups_only ? 0 : SUBSYS_MAX_NSID * sizeof(le32_t));
}

/* Returns where its namespace ids begin. */
static uint64_t ana_log_write_group(const struct ctrl *ctrl, const struct ana_layout *layout,
	uint32_t group, uint64_t at, const struct log_window *window)
{
	const struct nvme_log_ana_group entry = {
		.grpid = le32(group),
		.nnsids = le32(layout->groups_only ? 0 : layout->members[group]),
		/* Starts at 1, for 0 says that it is not counted. */
		.chgcnt = le64(ctrl->ana_counts.changes_of[group] + 1),
		.state = (uint8_t)ana_state(ctrl->subsys, group, ctrl->portid),
	};

	log_window_copy(window, at, &entry, sizeof(entry));
	return at + sizeof(entry);
}

void ana_log_write(struct request *request, const struct log_window *window)
{
	const struct ctrl *ctrl = request->conn->member.ctrl;
	struct nvme_log_ana header = {.chgcnt = le64(ctrl->ana_counts.changes)};
	uint64_t next[ANA_MAX_GROUPS + 1]; /* where the next namespace id of a group goes */
	uint64_t at = sizeof(header);
	struct ana_layout layout;

	ana_log_lay_out(request, &layout);
	header.ngrps = le16((uint16_t)layout.nr_groups);
	log_window_copy(window, 0, &header, sizeof(header));
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		if (!layout.members[group])
			continue;
		next[group] = ana_log_write_group(ctrl, &layout, group, at, window);
		at = next[group];
		if (!layout.groups_only)
			at += layout.members[group] * sizeof(le32_t);
	}
	for (uint32_t nsid = 1; nsid < ctrl->subsys->ns_limit && !layout.groups_only; nsid++) {
		uint32_t group = ana_log_group(ctrl->subsys, nsid);
		le32_t id = le32(nsid);

		if (!group)
			continue;
		log_window_copy(window, next[group], &id, sizeof(id));
		next[group] += sizeof(id);
	}
}
