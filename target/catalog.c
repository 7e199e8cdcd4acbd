/* SPDX-License-Identifier: MIT */
/*
 * Makes catalogs: from nothing, or from the one before.
 */
#include "target/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "target/ns_identity.h"
#include "target/port.h"
#include "target/write_protect.h"

/* Places taken, of all catalogs that come from one another. */
struct catalog_places {
	uint32_t nr_refs;
	struct ns_place *place[CATALOG_MAX_NAMESPACES];
};

/* Two catalogs have as many numbers of listeners, each the lowest free one. */
static_assert(ANA_MAX_PORTID >= 2 * CATALOG_MAX_PORTS + 1);

/* --- life ------------------------------------------------------------------------------------ */

static struct catalog_places *catalog_places_get(const struct catalog *previous)
{
	struct catalog_places *places =
		previous ? previous->places : calloc(1, sizeof(struct catalog_places));

	if (places)
		places->nr_refs++;
	return places;
}

uint32_t catalog_nr_places(const struct catalog *catalog)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++)
		nr += catalog->places->place[i] != NULL;
	return nr;
}

struct catalog *catalog_create(const struct catalog *previous)
{
	struct catalog *catalog = calloc(1, sizeof(*catalog));

	if (!catalog)
		return NULL;
	list_init(&catalog->subsystems);
	catalog->previous = previous;
	catalog->generation = previous ? previous->generation + 1 : 0;
	catalog->places = catalog_places_get(previous);
	if (catalog->places)
		return catalog;
	free(catalog);
	return NULL;
}

void catalog_free(struct catalog *catalog)
{
	if (!catalog)
		return;
	while (!list_empty(&catalog->subsystems))
		subsys_free(container_of(catalog->subsystems.next, struct subsys, node));
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		port_put(catalog->port[i]);
	free(catalog->referrals);
	if (!--catalog->places->nr_refs)
		free(catalog->places);
	free(catalog);
}

static int catalog_clone_ns(struct subsys *subsys, const struct ns *from)
{
	struct ns *ns = malloc(sizeof(*ns));
	int error;

	if (!ns)
		return -ENOMEM;
	*ns = *from;
	error = subsys_put_ns(subsys, ns);
	if (error)
		free(ns);
	else
		ns_place_get(ns->place);
	return error;
}

static int catalog_clone_subsys(struct catalog *catalog, const struct subsys *from)
{
	struct subsys *subsys;
	int error = catalog_add_subsys(catalog, from->nqn, &subsys);

	if (error)
		return error;
	memcpy(subsys->serial, from->serial, sizeof(subsys->serial));
	subsys->allow_any = from->allow_any;
	for (uint32_t i = 0; !error && i < from->nr_hosts; i++)
		error = subsys_allow_host(subsys, from->hosts[i]);
	for (uint32_t nsid = 0; !error && nsid < from->ns_limit; nsid++)
		if (from->ns[nsid])
			error = catalog_clone_ns(subsys, from->ns[nsid]);
	return error ? error : ana_clone(subsys, from);
}

static int catalog_put_referral(struct catalog *catalog, const struct referral *referral)
{
	struct referral *referrals =
		reallocarray(catalog->referrals, catalog->nr_referrals + 1, sizeof(*referrals));

	if (!referrals)
		return -ENOMEM;
	catalog->referrals = referrals;
	referrals[catalog->nr_referrals++] = *referral;
	return 0;
}

struct catalog *catalog_clone(const struct catalog *from)
{
	struct catalog *catalog = catalog_create(from);
	const struct subsys *subsys;

	if (!catalog)
		return NULL;
	list_for_each_entry (subsys, &from->subsystems, node) {
		if (catalog_clone_subsys(catalog, subsys)) {
			catalog_free(catalog);
			return NULL;
		}
	}
	for (uint32_t i = 0; i < from->nr_referrals; i++) {
		if (catalog_put_referral(catalog, &from->referrals[i])) {
			catalog_free(catalog);
			return NULL;
		}
	}
	for (uint32_t i = 0; i < from->nr_ports; i++)
		catalog->port[catalog->nr_ports++] = port_get(from->port[i]);
	return catalog;
}

/* --- listeners ------------------------------------------------------------------------------- */

bool catalog_has_port(const struct catalog *catalog, const struct port *port)
{
	for (uint32_t i = 0; catalog && i < catalog->nr_ports; i++)
		if (catalog->port[i] == port)
			return true;
	return false;
}

/* The same listener, if there was one. Of port 0 there may be several. */
static struct port *catalog_take_over_port(const struct catalog *catalog, const struct port *port)
{
	const struct catalog *previous = catalog->previous;

	for (uint32_t i = 0; previous && i < previous->nr_ports; i++)
		if (port_is_same(previous->port[i], port) &&
			!catalog_has_port(catalog, previous->port[i]))
			return port_get(previous->port[i]);
	return NULL;
}

static uint16_t catalog_free_portid(const struct catalog *catalog)
{
	const struct catalog *const both[] = {catalog, catalog->previous};
	uint16_t portid = 0;
	bool used = true;

	while (used) {
		used = false;
		portid++;
		for (size_t k = 0; k < ARRAY_SIZE(both); k++)
			for (uint32_t i = 0; both[k] && i < both[k]->nr_ports; i++)
				used |= both[k]->port[i]->portid == portid;
	}
	return portid;
}

int catalog_add_port(struct catalog *catalog, const struct nvme_uri *uri, bool resolve, char *why,
	size_t why_size)
{
	struct port *port, *same;
	int error;

	if (catalog->nr_ports >= CATALOG_MAX_PORTS) {
		snprintf(why, why_size,
			"one listener too many: %u are possible; 0.0.0.0 and [::] are all "
			"addresses in one",
			CATALOG_MAX_PORTS);
		return -EINVAL;
	}
	error = port_create(uri, resolve, &port, why, why_size);
	if (error)
		return error;
	same = catalog_take_over_port(catalog, port);
	if (same) {
		port_put(port);
		port = same;
	} else {
		port->portid = catalog_free_portid(catalog);
	}
	catalog->port[catalog->nr_ports++] = port;
	return 0;
}

/* --- referrals ------------------------------------------------------------------------------- */

int catalog_add_referral(
	struct catalog *catalog, const struct nvme_uri *uri, char *why, size_t why_size)
{
	struct referral referral;
	int error = referral_parse(uri, &referral, why, why_size);

	for (uint32_t i = 0; !error && i < catalog->nr_referrals; i++) {
		if (!referral_is_same(&catalog->referrals[i], &referral))
			continue;
		snprintf(why, why_size, "it is there twice: give each referral once");
		error = -EINVAL;
	}
	if (!error && catalog->nr_referrals >= CATALOG_MAX_REFERRALS) {
		snprintf(why, why_size, "one referral too many: %u are possible",
			CATALOG_MAX_REFERRALS);
		error = -EINVAL;
	}
	if (error)
		return error;
	error = catalog_put_referral(catalog, &referral);
	if (error)
		snprintf(why, why_size, "out of memory");
	return error;
}

/* --- subsystems ------------------------------------------------------------------------------ */

int catalog_add_subsys(struct catalog *catalog, const char *nqn, struct subsys **ret)
{
	if (catalog_find(catalog, nqn) || !strcmp(nqn, NVME_DISCOVERY_NQN))
		return -EEXIST;
	*ret = subsys_create(nqn);
	if (!*ret)
		return -ENOMEM;
	list_push_back(&catalog->subsystems, &(*ret)->node);
	return 0;
}

struct subsys *catalog_find(const struct catalog *catalog, const char *nqn)
{
	struct subsys *subsys;

	list_for_each_entry (subsys, &catalog->subsystems, node)
		if (!strcmp(subsys->nqn, nqn))
			return subsys;
	return NULL;
}

int catalog_for_each_ns(const struct catalog *catalog,
	int (*fn)(void *context, struct subsys *subsys, struct ns *ns), void *context)
{
	struct subsys *subsys;
	int error = 0;

	list_for_each_entry (subsys, &catalog->subsystems, node)
		for (uint32_t nsid = 1; !error && nsid < subsys->ns_limit; nsid++)
			if (subsys->ns[nsid])
				error = fn(context, subsys, subsys->ns[nsid]);
	return error;
}

/* --- namespaces ------------------------------------------------------------------------------ */

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

/* A disk that is open, also for a namespace that has been removed and whose last command is not
 * over. Memory is not known by its name: two of one size are two. */
static struct backend *catalog_find_disk(const struct catalog *catalog, const char *path)
{
	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++) {
		const struct ns_place *place = catalog->places->place[i];

		if (place && !strcmp(place->backend->path, path))
			return place->backend;
	}
	return NULL;
}

/* With a reference. */
static int catalog_open(const struct catalog *catalog, const struct ns_options *options,
	struct backend **ret, char *why, size_t why_size)
{
	bool memory = backend_is_memory(options->path);
	struct backend *found = memory ? NULL : catalog_find_disk(catalog, options->path);
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

/* Takes BACKEND's reference, even on failure. */
static struct ns_place *catalog_new_place(struct catalog *catalog, struct backend *backend)
{
	struct ns_place **table = catalog->places->place;
	struct ns_place *place = calloc(1, sizeof(*place));
	uint32_t index = 0;

	while (index < CATALOG_MAX_NAMESPACES && table[index])
		index++;
	if (!place || index == CATALOG_MAX_NAMESPACES) {
		free(place);
		backend_put(backend);
		return NULL;
	}
	*place =
		(struct ns_place){.index = index, .nr_refs = 1, .backend = backend, .table = table};
	table[index] = place;
	return place;
}

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
		error = subsys_put_ns(subsys, ns);
	}
	if (!error)
		return 0;
	if (place)
		ns_place_put(place);
	free(ns);
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
		subsys, nsid, options, catalog_new_place(catalog, backend), why, why_size);
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
