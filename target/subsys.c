/* SPDX-License-Identifier: MIT */
/*
 * Subsystems, namespaces and the hosts that may use them.
 */
#include "target/subsys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "target/identity.h"

const struct subsys subsys_discovery = {
	.nqn = NVME_DISCOVERY_NQN,
	.serial = "discovery",
	.discovery = true,
	.allow_any = true,
};

const struct subsys subsys_removed = {.nqn = "", .serial = "removed"};

/* The default serial number: stable, and different for each name. */
static void subsys_default_serial(struct subsys *subsys)
{
	struct identity_hash hash;
	uint8_t bytes[16];

	identity_init(&hash, "serial");
	identity_add(&hash, subsys->nqn, strlen(subsys->nqn));
	identity_end(&hash, bytes);
	for (unsigned i = 0; i < SUBSYS_SERIAL_MAX / 2; i++)
		snprintf(subsys->serial + 2 * i, 3, "%02X", bytes[i]);
}

struct subsys *subsys_create(const char *nqn)
{
	struct subsys *subsys = calloc(1, sizeof(*subsys));

	if (!subsys)
		return NULL;
	snprintf(subsys->nqn, sizeof(subsys->nqn), "%s", nqn);
	subsys_default_serial(subsys);
	list_init(&subsys->node);
	return subsys;
}

void subsys_free(struct subsys *subsys)
{
	if (!subsys)
		return;
	for (uint32_t nsid = 0; nsid < subsys->ns_limit; nsid++) {
		if (!subsys->ns[nsid])
			continue;
		ns_place_put(subsys->ns[nsid]->place);
		free(subsys->ns[nsid]);
	}
	list_remove(&subsys->node);
	ana_free(subsys);
	free(subsys->ns);
	free(subsys->hosts);
	free(subsys);
}

/* --- hosts ----------------------------------------------------------------------------------- */

int subsys_allow_host(struct subsys *subsys, const char *hostnqn)
{
	void *hosts;

	for (uint32_t i = 0; i < subsys->nr_hosts; i++)
		if (!strcmp(subsys->hosts[i], hostnqn))
			return 0;
	if (subsys->nr_hosts >= SUBSYS_MAX_HOSTS)
		return -ENOSPC;
	hosts = reallocarray(subsys->hosts, subsys->nr_hosts + 1, sizeof(*subsys->hosts));
	if (!hosts)
		return -ENOMEM;
	subsys->hosts = hosts;
	snprintf(subsys->hosts[subsys->nr_hosts++], sizeof(*subsys->hosts), "%s", hostnqn);
	return 0;
}

bool subsys_host_allowed(const struct subsys *subsys, const char *hostnqn)
{
	if (subsys->allow_any)
		return true;
	for (uint32_t i = 0; i < subsys->nr_hosts; i++)
		if (!strcmp(subsys->hosts[i], hostnqn))
			return true;
	return false;
}

/* --- namespaces ------------------------------------------------------------------------------ */

/* Room for NSID in the subsystem's table. */
static int subsys_grow(struct subsys *subsys, uint32_t nsid)
{
	struct ns **table;

	if (nsid < subsys->ns_limit)
		return 0;
	table = reallocarray(subsys->ns, nsid + 1, sizeof(*table));
	if (!table)
		return -ENOMEM;
	memset(table + subsys->ns_limit, 0, (nsid + 1 - subsys->ns_limit) * sizeof(*table));
	subsys->ns = table;
	subsys->ns_limit = nsid + 1;
	return 0;
}

uint32_t subsys_free_nsid(const struct subsys *subsys)
{
	uint32_t nsid = 1;

	while (subsys_ns(subsys, nsid))
		nsid++;
	return nsid;
}

int subsys_put_ns(struct subsys *subsys, struct ns *ns)
{
	int error = subsys_grow(subsys, ns->nsid);

	if (error)
		return error;
	assert(!subsys->ns[ns->nsid]);
	subsys->ns[ns->nsid] = ns;
	subsys->volatile_cache |= ns->place->backend->geometry.volatile_cache;
	return 0;
}
