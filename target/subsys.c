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
#include "target/target.h"

const struct subsys subsys_discovery = {
	.nqn = NVME_DISCOVERY_NQN,
	.serial = "discovery",
	.discovery = true,
	.allow_any = true,
};

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

int subsys_add(struct target *target, const char *nqn, struct subsys **ret)
{
	struct subsys *subsys;

	if (subsys_find(target, nqn) || !strcmp(nqn, NVME_DISCOVERY_NQN))
		return -EEXIST;
	subsys = calloc(1, sizeof(*subsys));
	if (!subsys)
		return -ENOMEM;
	snprintf(subsys->nqn, sizeof(subsys->nqn), "%s", nqn);
	subsys_default_serial(subsys);
	list_init(&subsys->node);
	list_push_back(&target->subsystems, &subsys->node);
	*ret = subsys;
	return 0;
}

struct subsys *subsys_find(const struct target *target, const char *nqn)
{
	struct subsys *subsys;

	list_for_each_entry (subsys, &target->subsystems, node)
		if (!strcmp(subsys->nqn, nqn))
			return subsys;
	return NULL;
}

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

void subsys_free(struct subsys *subsys)
{
	if (!subsys)
		return;
	for (uint32_t nsid = 0; nsid < subsys->ns_limit; nsid++) {
		if (!subsys->ns[nsid])
			continue;
		subsys->ns[nsid]->backend->ops->close(subsys->ns[nsid]->backend);
		free(subsys->ns[nsid]);
	}
	list_remove(&subsys->node);
	free(subsys->ns);
	free(subsys->hosts);
	free(subsys);
}

/* --- namespaces ------------------------------------------------------------------------------ */

static int subsys_open_backend(
	const struct ns_options *options, struct backend **ret, char *why, size_t why_size)
{
	static const struct backend_ops *const by_prefix[] = {&backend_ram_ops, &backend_null_ops};

	for (size_t i = 0; i < ARRAY_SIZE(by_prefix); i++) {
		size_t length = strlen(by_prefix[i]->name);

		if (!strncmp(options->path, by_prefix[i]->name, length) &&
			options->path[length] == ':')
			return by_prefix[i]->open(options->path + length + 1, options->read_only,
				options->block_bytes, ret, why, why_size);
	}
	return backend_disk_ops.open(
		options->path, options->read_only, options->block_bytes, ret, why, why_size);
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

static uint32_t subsys_free_nsid(const struct subsys *subsys)
{
	uint32_t nsid = 1;

	while (subsys_ns(subsys, nsid))
		nsid++;
	return nsid;
}

/* Takes BACKEND on success. */
static int subsys_attach_ns(struct target *target, struct subsys *subsys,
	const struct ns_options *options, struct backend *backend, char *why, size_t why_size)
{
	uint32_t nsid = options->nsid ? options->nsid : subsys_free_nsid(subsys);
	struct ns *ns;

	if (!nsid_valid(nsid)) {
		snprintf(why, why_size, "namespace id %u is too large: 1 to %u are possible", nsid,
			SUBSYS_MAX_NSID);
		return -EINVAL;
	}
	if (subsys_ns(subsys, nsid)) {
		snprintf(why, why_size, "namespace id %u is used twice in %s: give each its own",
			nsid, subsys->nqn);
		return -EINVAL;
	}
	ns = calloc(1, sizeof(*ns));
	if (!ns || subsys_grow(subsys, nsid)) {
		free(ns);
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	ns->subsys = subsys;
	ns->nsid = nsid;
	ns->index = target->nr_namespaces++;
	ns->backend = backend;
	ns->read_only = backend->geometry.read_only;
	ns->lba_shift = (uint8_t)__builtin_ctz(backend->geometry.block_bytes);
	ns->nr_lbas = backend->geometry.size_bytes >> ns->lba_shift;
	ns->uuid = options->uuid ? *options->uuid : nvme_uuid_from_hash(backend->geometry.identity);
	subsys->ns[nsid] = ns;
	subsys->volatile_cache |= backend->geometry.volatile_cache;
	return 0;
}

static bool subsys_uuid_used(const struct target *target, const struct nvme_uuid *uuid)
{
	const struct subsys *subsys;

	list_for_each_entry (subsys, &target->subsystems, node)
		for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
			if (subsys->ns[nsid] &&
				!memcmp(&subsys->ns[nsid]->uuid, uuid, sizeof(*uuid)))
				return true;
	return false;
}

/* Hosts take namespaces with one UUID for one disk. */
static int subsys_check_uuid(
	const struct target *target, const struct ns_options *options, char *why, size_t why_size)
{
	if (!options->uuid || !subsys_uuid_used(target, options->uuid))
		return 0;
	snprintf(why, why_size, "uuid= is another namespace's already: give each its own");
	return -EINVAL;
}

int subsys_add_ns(struct target *target, struct subsys *subsys, const struct ns_options *options,
	char *why, size_t why_size)
{
	struct backend *backend;
	int error = subsys_check_uuid(target, options, why, why_size);

	if (!error)
		error = subsys_open_backend(options, &backend, why, why_size);
	if (error)
		return error;
	error = subsys_attach_ns(target, subsys, options, backend, why, why_size);
	if (error)
		backend->ops->close(backend);
	return error;
}

int subsys_add_for_disk(
	struct target *target, const struct ns_options *options, char *why, size_t why_size)
{
	char nqn[NVME_NQN_MAX + 1];
	char text[NVME_UUID_TEXT];
	struct nvme_uuid uuid;
	struct backend *backend;
	struct subsys *subsys = NULL;
	int error = subsys_check_uuid(target, options, why, why_size);

	if (!error)
		error = subsys_open_backend(options, &backend, why, why_size);
	if (error)
		return error;
	uuid = options->uuid ? *options->uuid : nvme_uuid_from_hash(backend->geometry.identity);
	nvme_uuid_format(&uuid, text);
	snprintf(nqn, sizeof(nqn), "nqn.2014-08.org.nvmexpress:uuid:%s", text);
	error = subsys_add(target, nqn, &subsys);
	if (error) {
		snprintf(why, why_size, "%s cannot be made: %s", nqn,
			error == -EEXIST ? "it is there already: give a name of its own with nqn="
					 : strerror(-error));
		error = error == -EEXIST ? -EINVAL : error;
		goto close_backend;
	}
	subsys->allow_any = true;
	error = subsys_attach_ns(target, subsys, options, backend, why, why_size);
	if (error)
		goto free_subsys;
	return 0;

free_subsys:
	subsys_free(subsys);
close_backend:
	backend->ops->close(backend);
	return error;
}
