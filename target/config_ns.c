/* SPDX-License-Identifier: MIT */
/*
 * What a schema cannot say of a namespace: that it is one disk, with ids of its own.
 */
#include "target/config_ns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/backend_later.h"
#include "target/catalog.h"
#include "target/config_allow.h"
#include "target/config_schema.h"
#include "target/config_source.h"
#include "target/config_text.h"
#include "target/identity.h"

/* "ram:1M" as on the command line: here it has a key of its own. */
static int config_path_check(struct config_source *source, const char *path, const char *value)
{
	static const char *const kinds[] = {"ram", "null"};
	char at[CONFIG_PATH_BYTES + 16];

	for (size_t i = 0; value && i < ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i]);

		if (strncmp(value, kinds[i], length) || value[length] != ':')
			continue;
		snprintf(at, sizeof(at), "%s.path", path);
		return config_source_wrong(source, at,
			"'%s' is no path: write '%s: %s' for a disk in memory, './%s' for a file "
			"of that name",
			value, kinds[i], value + length + 1, value);
	}
	return 0;
}

/* What of a namespace can be judged without opening it. SPEC: room for "ram:" and a size. */
static int config_ns_check(struct config_source *source, const char *path,
	const struct config_ns *config, struct ns_options *options, char *spec, size_t spec_size)
{
	int nr = !!config->path + !!config->ram + !!config->null;
	const char *size = config->ram ? config->ram : config->null;
	const char *kind = config->ram ? "ram" : "null";
	struct backend_geometry unused;
	char why[CONFIG_WHY_BYTES];
	char at[CONFIG_PATH_BYTES + 16];

	if (nr != 1)
		return config_source_wrong(source, path,
			"has %s of 'path', 'ram' and 'null': exactly one says what the disk is",
			nr ? "more than one" : "none");
	if (config_path_check(source, path, config->path))
		return -EINVAL;
	snprintf(at, sizeof(at), "%s.nsid", path);
	if (config_source_at(source, at) && !nsid_valid(config->nsid))
		return config_source_wrong(source, at, "%u is not a number from 1 to %u",
			config->nsid, SUBSYS_MAX_NSID);
	snprintf(at, sizeof(at), "%s.block", path);
	if (config_source_at(source, at) && config->block != 512 && config->block != 4096)
		return config_source_wrong(source, at, "%u is neither 512 nor 4096", config->block);
	snprintf(at, sizeof(at), "%s.%s", path, kind);
	if (size && backend_memory_geometry(
			    kind, size, config->readonly, config->block, &unused, why, sizeof(why)))
		return config_source_wrong(source, at, "%s", why);
	snprintf(at, sizeof(at), "%s.ana_group", path);
	if (config_source_at(source, at) && !ana_group_valid(config->ana_group))
		return config_source_wrong(source, at, "%u is not a number from 1 to %u",
			config->ana_group, ANA_MAX_GROUPS);
	snprintf(spec, spec_size, "%s:%s", kind, size ? size : "");
	options->path = config->path ? config->path : spec;
	options->block_bytes = config->block;
	options->ana_group = config->ana_group;
	options->read_only = config->readonly;
	return 0;
}

static int config_uuid(
	struct config_source *source, const char *path, const char *text, struct nvme_uuid *ret)
{
	char at[CONFIG_PATH_BYTES + 16];

	snprintf(at, sizeof(at), "%s.uuid", path);
	if (nvme_uuid_parse(text, ret))
		return config_source_wrong(source, at,
			"'%s' is not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text);
	/* NVMe base 2.0 5.17.2.3: 0 says that there is none. */
	if (!memcmp(ret, &(struct nvme_uuid){0}, sizeof(*ret)))
		return config_source_wrong(source, at,
			"a UUID of zeros names nothing: leave it out, "
			"or take one from uuidgen");
	return 0;
}

struct config_ids {
	struct nvme_uuid uuid;
	uint8_t nguid[NS_NGUID_BYTES];
	uint8_t eui64[NS_EUI64_BYTES];
};

static int config_id(struct config_source *source, const char *path, const char *key,
	const char *text, uint8_t *ret, size_t size)
{
	char at[CONFIG_PATH_BYTES + 16];

	snprintf(at, sizeof(at), "%s.%s", path, key);
	if (identity_parse(text, ret, size))
		return config_source_wrong(source, at,
			"'%s' is not of %zu hexadecimal digits, one of them not 0", text, 2 * size);
	return 0;
}

static int config_ids(struct config_source *source, const char *path, const struct config_ns *ns,
	struct config_ids *ids, struct ns_options *options)
{
	int error = 0;

	options->uuid = ns->uuid ? &ids->uuid : NULL;
	options->nguid = ns->nguid ? ids->nguid : NULL;
	options->eui64 = ns->eui64 ? ids->eui64 : NULL;
	if (ns->uuid)
		error = config_uuid(source, path, ns->uuid, &ids->uuid);
	if (!error && ns->nguid)
		error = config_id(source, path, "nguid", ns->nguid, ids->nguid, sizeof(ids->nguid));
	if (!error && ns->eui64)
		error = config_id(source, path, "eui64", ns->eui64, ids->eui64, sizeof(ids->eui64));
	return error;
}

static bool config_same(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

/* In whatever case their digits are. */
static bool config_same_digits(const char *a, const char *b)
{
	return a && b && !strcasecmp(a, b);
}

/* A namespace without an id gets the lowest that those before it have left. */
static uint32_t config_nsid(const struct config_subsys *subsys, unsigned j)
{
	bool used[SUBSYS_MAX_NSID + 1] = {false};
	uint32_t nsid = 1;

	if (subsys->namespaces[j].nsid)
		return subsys->namespaces[j].nsid;
	for (unsigned k = 0; k < j; k++)
		used[subsys->namespaces[k].nsid] = true;
	while (used[nsid])
		nsid++;
	return nsid;
}

/* Twice the same id, uuid or path among namespaces, of whatever subsystem. */
static int config_ns_check_others(
	struct config_source *source, const struct config_ns_place *place, const char *path)
{
	unsigned i = place->subsys_index;
	const struct config_subsys *subsystems = place->file->subsystems;
	const struct config_ns *ns = &subsystems[i].namespaces[place->ns_index];

	for (unsigned k = 0; k <= i; k++) {
		unsigned nr = k == i ? place->ns_index : subsystems[k].namespaces_count;

		for (unsigned l = 0; l < nr; l++) {
			const struct config_ns *other = &subsystems[k].namespaces[l];
			char at[CONFIG_PATH_BYTES + 16];
			const char *what = NULL;

			if (k == i && ns->nsid == other->nsid)
				what = "nsid";
			if (config_same_digits(ns->uuid, other->uuid))
				what = "uuid";
			if (config_same_digits(ns->nguid, other->nguid))
				what = "nguid";
			if (config_same_digits(ns->eui64, other->eui64))
				what = "eui64";
			if (config_same(ns->path, other->path))
				what = "path";
			if (!what)
				continue;
			snprintf(at, sizeof(at), "%s.%s", path, what);
			return config_source_wrong(source, at,
				"is that of subsystems.%u.namespaces.%u, too: each needs its own",
				k, l);
		}
	}
	return 0;
}

int config_ns_add(struct config_source *source, const struct config_ns_place *place)
{
	struct config_subsys *from = &place->file->subsystems[place->subsys_index];
	struct config_ns *ns = &from->namespaces[place->ns_index];
	struct ns_options options = {0};
	char why[CONFIG_WHY_BYTES] = "out of memory";
	char path[CONFIG_PATH_BYTES];
	char spec[80];
	struct host_list hosts = {0};
	struct config_ids ids;
	char *resolved = NULL;
	int error;

	snprintf(path, sizeof(path), "subsystems.%u.namespaces.%u", place->subsys_index,
		place->ns_index);
	error = config_ns_check(source, path, ns, &options, spec, sizeof(spec));
	if (!error)
		error = config_ids(source, path, ns, &ids, &options);
	if (!error) {
		options.nsid = ns->nsid = config_nsid(from, place->ns_index);
		error = config_ns_check_others(source, place, path);
	}
	if (!error)
		error = config_allow_hosts(source, path, place->subsys, &hosts, &options.hosts);
	if (error || !place->directory)
		goto free_hosts;
	if (ns->path)
		options.path = resolved = config_text_resolve(place->directory, ns->path);
	error = options.path
			? catalog_add_ns(place->catalog, place->subsys, &options, why, sizeof(why))
			: -ENOMEM;
	if (error)
		config_source_wrong(source, path, "%s", why);
	free(resolved);
free_hosts:
	host_list_free(&hosts);
	return error;
}
