/* SPDX-License-Identifier: MIT */
/*
 * Makes catalogs, from nothing or from the one before, and what is in them but namespaces.
 */
#include "target/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "target/port.h"

/* Two catalogs have as many numbers of listeners, each the lowest free one. */
static_assert(ANA_MAX_PORTID >= 2 * CATALOG_MAX_PORTS + 1);

/* --- life ------------------------------------------------------------------------------------ */

struct catalog *catalog_create(const struct catalog *previous)
{
	struct catalog *catalog = calloc(1, sizeof(*catalog));

	if (!catalog)
		return NULL;
	list_init(&catalog->subsystems);
	catalog->previous = previous;
	catalog->generation = previous ? previous->generation + 1 : 0;
	catalog->places = previous ? ns_places_get(previous->places) : ns_places_create();
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
	for (uint32_t i = 0; i < catalog->nr_referrals; i++)
		host_list_free(&catalog->referrals[i].hosts);
	free(catalog->referrals);
	ns_places_put(catalog->places);
	free(catalog);
}

static int catalog_clone_ns(struct subsys *subsys, const struct ns *from)
{
	struct ns *ns = malloc(sizeof(*ns));
	int error;

	if (!ns)
		return -ENOMEM;
	*ns = *from;
	ns->hosts = NULL;
	error = from->hosts ? subsys_show_ns(subsys, ns, from->hosts) : 0;
	if (!error)
		error = subsys_put_ns(subsys, ns);
	if (error)
		ns_free(ns);
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
	memcpy(subsys->admin_label, from->admin_label, sizeof(subsys->admin_label));
	subsys->allow_any = from->allow_any;
	subsys->max_io_queues = from->max_io_queues;
	subsys->one_association = from->one_association;
	subsys->reset_offered = from->reset_offered;
	error = host_list_copy(&subsys->hosts, &from->hosts);
	if (!error)
		error = host_auth_list_copy(&subsys->auth, &from->auth);
	for (uint32_t nsid = 0; !error && nsid < from->ns_limit; nsid++)
		if (from->ns[nsid])
			error = catalog_clone_ns(subsys, from->ns[nsid]);
	return error ? error : ana_clone(subsys, from);
}

static int catalog_put_referral(
	struct catalog *catalog, const struct referral *from, const struct host_list *hosts)
{
	struct referral *referrals =
		reallocarray(catalog->referrals, catalog->nr_referrals + 1, sizeof(*referrals));
	struct referral *referral;

	if (!referrals)
		return -ENOMEM;
	catalog->referrals = referrals;
	referral = &referrals[catalog->nr_referrals++];
	*referral = *from;
	referral->allow_any = true;
	referral->hosts = (struct host_list){0};
	return hosts ? referral_show(referral, hosts) : 0;
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
		const struct referral *referral = &from->referrals[i];

		if (catalog_put_referral(
			    catalog, referral, referral->allow_any ? NULL : &referral->hosts)) {
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

int catalog_add_referral(struct catalog *catalog, const struct nvme_uri *uri,
	const struct host_list *hosts, char *why, size_t why_size)
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
	error = catalog_put_referral(catalog, &referral, hosts);
	if (error)
		snprintf(why, why_size, "out of memory");
	return error;
}

/* --- subsystems ------------------------------------------------------------------------------ */

int catalog_add_subsys(struct catalog *catalog, const char *nqn, struct subsys **ret)
{
	const struct subsys *before = NULL;

	if (catalog_find(catalog, nqn) || !strcmp(nqn, NVME_DISCOVERY_NQN))
		return -EEXIST;
	*ret = subsys_create(nqn);
	if (!*ret)
		return -ENOMEM;
	list_push_back(&catalog->subsystems, &(*ret)->node);
	if (catalog->previous)
		before = catalog_find(catalog->previous, nqn);
	(*ret)->nr_resets = before ? before->nr_resets : 0;
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
