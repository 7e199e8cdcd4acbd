/* SPDX-License-Identifier: MIT */
/*
 * Namespaces of a catalog: each with ids and a disk that no other has, opened or taken over from
 * the catalog before.
 */
#include "target/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/ns_identity.h"
#include "target/write_protect.h"

/* --- ids ------------------------------------------------------------------------------------- */

struct catalog_ids {
	const struct ns_options *options;
	const char *taken; /* which of them another namespace has */
};

static int catalog_has_id(void *context, struct subsys *subsys, struct ns *ns)
{
	struct catalog_ids *ids = context;
	const struct ns_options *options = ids->options;

	(void)subsys;
	if (options->uuid && !memcmp(&ns->uuid, options->uuid, sizeof(ns->uuid)))
		ids->taken = "uuid";
	else if (options->nguid && !memcmp(ns->nguid, options->nguid, sizeof(ns->nguid)))
		ids->taken = "nguid";
	else if (options->eui64 && !memcmp(ns->eui64, options->eui64, sizeof(ns->eui64)))
		ids->taken = "eui64";
	return ids->taken ? -EEXIST : 0;
}

/* Hosts take namespaces with one UUID, NGUID or EUI-64 for one disk. */
static int catalog_check_ids(
	const struct catalog *catalog, const struct ns_options *options, char *why, size_t why_size)
{
	struct catalog_ids ids = {.options = options};

	if (!catalog_for_each_ns(catalog, catalog_has_id, &ids))
		return 0;
	snprintf(why, why_size, "%s= is another namespace's already: give each its own", ids.taken);
	return -EINVAL;
}

/* --- disks ----------------------------------------------------------------------------------- */

static bool catalog_is_disk_of(const struct ns *ns, const struct ns_options *options)
{
	return backend_serves(
		ns->place->backend, options->path, options->read_only, options->block_bytes);
}

/* Two namespaces on one disk would be two disks to their hosts. */
static int catalog_has_path(void *context, struct subsys *subsys, struct ns *ns)
{
	(void)subsys;
	return strcmp(ns->place->backend->path, context) ? 0 : -EBUSY;
}

static int catalog_check_path(
	const struct catalog *catalog, const char *path, char *why, size_t why_size)
{
	char *name = (char *)(uintptr_t)path;

	if (backend_is_memory(path) || !catalog_for_each_ns(catalog, catalog_has_path, name))
		return 0;
	snprintf(why, why_size, "%s is in use already, by another namespace: export it once", path);
	return -EBUSY;
}

/* With a reference. */
static int catalog_open(const struct catalog *catalog, const struct ns_options *options,
	struct backend **ret, char *why, size_t why_size)
{
	bool memory = backend_is_memory(options->path);
	struct backend *found = memory ? NULL : ns_places_find_disk(catalog->places, options->path);
	int error = catalog_check_path(catalog, options->path, why, why_size);

	if (error)
		return error;
	if (!found)
		return backend_open(options->path, options->read_only && !memory,
			options->block_bytes, ret, why, why_size);
	if (!backend_serves(found, options->path, options->read_only, options->block_bytes)) {
		snprintf(why, why_size,
			"%s is open for reading only, or in blocks of another size: remove the "
			"namespace first, then add it again",
			options->path);
		return -EBUSY;
	}
	*ret = backend_get(found);
	return 0;
}

/* --- namespaces ------------------------------------------------------------------------------ */

static void catalog_describe_ns(
	struct ns *ns, uint32_t nsid, const struct ns_options *options, struct ns_place *place)
{
	const struct backend_geometry *geometry = &place->backend->geometry;

	ns->nsid = nsid;
	ns->place = place;
	ns->read_only = ns->always_read_only = options->read_only || geometry->read_only;
	ns->ana_group = (uint8_t)(options->ana_group ? options->ana_group : ANA_DEFAULT_GROUP);
	ns->lba_shift = (uint8_t)__builtin_ctz(geometry->block_bytes);
	ns->nr_lbas = geometry->size_bytes >> ns->lba_shift;
	ns_identity_set(ns, options);
}

/* Takes PLACE's reference, even on failure. */
static int catalog_put_ns(struct subsys *subsys, uint32_t nsid, const struct ns_options *options,
	struct ns_place *place, char *why, size_t why_size)
{
	struct ns *ns = place ? calloc(1, sizeof(*ns)) : NULL;
	int error = -ENOMEM;

	if (ns) {
		catalog_describe_ns(ns, nsid, options, place);
		error = options->hosts ? subsys_show_ns(subsys, ns, options->hosts) : 0;
		if (!error)
			error = subsys_put_ns(subsys, ns);
	}
	if (!error)
		return 0;
	if (place)
		ns_place_put(place);
	ns_free(ns);
	snprintf(why, why_size,
		"out of memory, or of places for namespaces (%u, those that go counted, too)",
		CATALOG_MAX_NAMESPACES);
	return error;
}

static int catalog_check_nsid(
	const struct subsys *subsys, uint32_t nsid, char *why, size_t why_size)
{
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
	return 0;
}

/* The namespace that had this name and id, if its disk and identity are what is asked for. */
static const struct ns *catalog_same_ns(const struct catalog *catalog, const struct subsys *subsys,
	uint32_t nsid, const struct ns_options *options)
{
	const struct subsys *before =
		catalog->previous ? catalog_find(catalog->previous, subsys->nqn) : NULL;
	const struct ns *ns = before ? subsys_ns(before, nsid) : NULL;

	if (!ns || !catalog_is_disk_of(ns, options))
		return NULL;
	return !options->uuid || !memcmp(options->uuid, &ns->uuid, sizeof(ns->uuid)) ? ns : NULL;
}

int catalog_add_backend(struct catalog *catalog, struct subsys *subsys,
	const struct ns_options *options, struct backend *backend, char *why, size_t why_size)
{
	uint32_t nsid = options->nsid ? options->nsid : subsys_free_nsid(subsys);
	int error = catalog_check_nsid(subsys, nsid, why, why_size);

	if (error) {
		backend_put(backend);
		return error;
	}
	return catalog_put_ns(
		subsys, nsid, options, ns_place_create(catalog->places, backend), why, why_size);
}

int catalog_add_ns(struct catalog *catalog, struct subsys *subsys, const struct ns_options *options,
	char *why, size_t why_size)
{
	uint32_t nsid = options->nsid ? options->nsid : subsys_free_nsid(subsys);
	const struct ns *same;
	struct backend *backend;
	int error = catalog_check_nsid(subsys, nsid, why, why_size);

	if (!error)
		error = catalog_check_ids(catalog, options, why, why_size);
	if (error)
		return error;
	same = catalog_same_ns(catalog, subsys, nsid, options);
	if (same && !catalog_check_path(catalog, options->path, why, why_size)) {
		error = catalog_put_ns(
			subsys, nsid, options, ns_place_get(same->place), why, why_size);
		if (!error)
			write_protect_take_over(subsys->ns[nsid], same);
		return error;
	}
	error = catalog_open(catalog, options, &backend, why, why_size);
	if (error)
		return error;
	if (backend_is_memory(options->path))
		ns_identity_of_memory(options, subsys->nqn, nsid, backend);
	return catalog_add_backend(catalog, subsys, options, backend, why, why_size);
}

int catalog_add_disk(
	struct catalog *catalog, const struct ns_options *options, char *why, size_t why_size)
{
	char nqn[NVME_NQN_MAX + 1];
	char text[NVME_UUID_TEXT];
	struct nvme_uuid uuid;
	struct backend *backend;
	struct subsys *subsys = NULL;
	int error = catalog_check_ids(catalog, options, why, why_size);

	if (!error)
		error = catalog_open(catalog, options, &backend, why, why_size);
	if (error)
		return error;
	if (backend_is_memory(options->path))
		ns_identity_of_nameless_memory(options, catalog, backend);
	uuid = options->uuid ? *options->uuid : nvme_uuid_from_hash(backend->geometry.identity);
	nvme_uuid_format(&uuid, text);
	snprintf(nqn, sizeof(nqn), NVME_NQN_UUID_PREFIX "%s", text);
	error = catalog_add_subsys(catalog, nqn, &subsys);
	if (error) {
		snprintf(why, why_size, "%s cannot be made: %s", nqn,
			error == -EEXIST ? "it is there already: give a name of its own with nqn="
					 : strerror(-error));
		backend_put(backend);
		return error == -EEXIST ? -EINVAL : error;
	}
	subsys->allow_any = true;
	error = catalog_add_backend(catalog, subsys, options, backend, why, why_size);
	if (error)
		subsys_free(subsys);
	return error;
}
