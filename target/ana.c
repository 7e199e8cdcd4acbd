/* SPDX-License-Identifier: MIT */
/*
 * Groups and their states.
 */
#include "target/ana.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/status.h"
#include "target/conn.h"
#include "target/port.h"
#include "target/subsys.h"

static const struct {
	enum nvme_ana_state state;
	const char *name;
	uint16_t status;
} ana_states[] = {
	{NVME_ANA_OPTIMIZED, "optimized", 0},
	{NVME_ANA_NON_OPTIMIZED, "non-optimized", 0},
	{NVME_ANA_INACCESSIBLE, "inaccessible", NVME_SC_ANA_INACCESSIBLE},
	{NVME_ANA_PERSISTENT_LOSS, "persistent-loss", NVME_SC_ANA_PERSISTENT_LOSS},
	{NVME_ANA_CHANGE, "change", NVME_SC_ANA_TRANSITION},
};

const char *ana_state_name(enum nvme_ana_state state)
{
	for (size_t i = 0; i < ARRAY_SIZE(ana_states); i++)
		if (ana_states[i].state == state)
			return ana_states[i].name;
	return "unknown";
}

bool ana_state_parse(const char *text, enum nvme_ana_state *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(ana_states); i++) {
		if (strcmp(text, ana_states[i].name))
			continue;
		*ret = ana_states[i].state;
		return true;
	}
	return false;
}

/* No DNR: another controller, or this one later, may serve the command. */
uint16_t ana_status(enum nvme_ana_state state)
{
	for (size_t i = 0; i < ARRAY_SIZE(ana_states); i++)
		if (ana_states[i].state == state)
			return ana_states[i].status;
	return 0;
}

/* --- groups ---------------------------------------------------------------------------------- */

static struct ana_group *ana_group(struct subsys *subsys, uint32_t group)
{
	assert(ana_group_valid(group));
	if (!subsys->ana[group])
		subsys->ana[group] = calloc(1, sizeof(struct ana_group));
	return subsys->ana[group];
}

bool ana_is_set(const struct subsys *subsys, uint32_t group, uint16_t portid)
{
	const struct ana_group *here = subsys->ana[group];

	return here && portid <= ANA_MAX_PORTID && here->at[portid];
}

int ana_set(struct subsys *subsys, uint32_t group, uint16_t portid, enum nvme_ana_state state)
{
	struct ana_group *changed = ana_group(subsys, group);

	assert(portid <= ANA_MAX_PORTID);
	if (!changed)
		return -ENOMEM;
	changed->at[portid] = (uint8_t)state;
	return 0;
}

int ana_set_all(struct subsys *subsys, uint32_t group, enum nvme_ana_state state)
{
	struct ana_group *changed = ana_group(subsys, group);

	if (!changed)
		return -ENOMEM;
	*changed = (struct ana_group){.at[ANA_OTHER_PORTS] = (uint8_t)state};
	return 0;
}

int ana_clone(struct subsys *subsys, const struct subsys *from)
{
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		struct ana_group *copy;

		if (!from->ana[group])
			continue;
		copy = ana_group(subsys, group);
		if (!copy)
			return -ENOMEM;
		*copy = *from->ana[group];
	}
	return 0;
}

void ana_free(struct subsys *subsys)
{
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++)
		free(subsys->ana[group]);
}

/* --- what counts ----------------------------------------------------------------------------- */

enum nvme_ana_state ana_state(const struct subsys *subsys, uint32_t group, uint16_t portid)
{
	if (ana_is_set(subsys, group, portid))
		return subsys->ana[group]->at[portid];
	if (ana_is_set(subsys, group, ANA_OTHER_PORTS))
		return subsys->ana[group]->at[ANA_OTHER_PORTS];
	return NVME_ANA_OPTIMIZED;
}

bool ana_restricts(const struct subsys *subsys, uint32_t group)
{
	const struct ana_group *here = subsys->ana[group];
	bool restricts = false;

	for (uint32_t portid = 0; here && portid <= ANA_MAX_PORTID; portid++)
		restricts |= ana_status(here->at[portid]);
	return restricts;
}

uint16_t ana_check(const struct conn *conn, uint32_t nsid)
{
	const struct ns *ns = subsys_ns(conn->subsys, nsid);

	return ns ? ana_status(ana_state(conn->subsys, ns->ana_group, conn->port->portid)) : 0;
}

uint16_t ana_check_all(const struct conn *conn)
{
	uint16_t status = 0;

	for (uint32_t nsid = 1; nsid < conn->subsys->ns_limit && !status; nsid++)
		status = ana_check(conn, nsid);
	return status;
}
