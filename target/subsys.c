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
#include "target/view.h"

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
	subsys->max_io_queues = SUBSYS_MAX_IO_QUEUES;
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
		ns_free(subsys->ns[nsid]);
	}
	list_remove(&subsys->node);
	view_free_all(subsys);
	ana_free(subsys);
	free(subsys->ns);
	host_list_free(&subsys->hosts);
	host_list_free(&subsys->named);
	host_auth_list_free(&subsys->auth);
	free(subsys);
}

/* --- hosts ----------------------------------------------------------------------------------- */

int subsys_allow_host(struct subsys *subsys, const char *hostnqn)
{
	return host_list_add(&subsys->hosts, hostnqn);
}

bool subsys_host_allowed(const struct subsys *subsys, const char *hostnqn)
{
	return subsys->allow_any || host_list_has(&subsys->hosts, hostnqn);
}

/* --- namespaces ------------------------------------------------------------------------------ */

void ns_free(struct ns *ns)
{
	if (ns && ns->hosts) {
		host_list_free(ns->hosts);
		free(ns->hosts);
	}
	free(ns);
}

int subsys_show_ns(struct subsys *subsys, struct ns *ns, const struct host_list *hosts)
{
	int error = 0;

	ns->hosts = calloc(1, sizeof(*ns->hosts));
	if (!ns->hosts)
		return -ENOMEM;
	for (uint32_t i = 0; i < hosts->nr && !error; i++)
		error = host_list_add(&subsys->named, hosts->nqn[i]);
	return error ? error : host_list_copy(ns->hosts, hosts);
}

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
