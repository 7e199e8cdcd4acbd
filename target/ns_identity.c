/* SPDX-License-Identifier: MIT */
/*
 * Derives identities of namespaces.
 */
#include "target/ns_identity.h"

#include <netinet/in.h>
#include <string.h>

#include "target/catalog.h"
#include "target/identity.h"
#include "target/port.h"
#include "target/transport.h"

/* An EUI-64 that no manufacturer has given (IEEE 802 8.2.2: locally administered), as a disk cannot
 * ask for one. */
static void ns_identity_default_eui64(struct ns *ns)
{
	struct identity_hash hash;
	uint8_t bytes[16];

	identity_init(&hash, "eui64");
	identity_add(&hash, ns->uuid.b, sizeof(ns->uuid.b));
	identity_end(&hash, bytes);
	memcpy(ns->eui64, bytes, sizeof(ns->eui64));
	ns->eui64[0] = (uint8_t)((ns->eui64[0] & ~0x1) | 0x2);
}

void ns_identity_set(struct ns *ns, const struct ns_options *options)
{
	const struct backend_geometry *geometry = &ns->place->backend->geometry;

	ns->uuid = options->uuid ? *options->uuid : nvme_uuid_from_hash(geometry->identity);
	memcpy(ns->nguid, options->nguid ? options->nguid : ns->uuid.b, sizeof(ns->nguid));
	if (options->eui64)
		memcpy(ns->eui64, options->eui64, sizeof(ns->eui64));
	else
		ns_identity_default_eui64(ns);
}

/* --- disks in memory ------------------------------------------------------------------------- */

/* A disk of another size or kind in its place is another. */
static void ns_identity_end(
	struct identity_hash *hash, const struct ns_options *options, struct backend *backend)
{
	struct backend_geometry *geometry = &backend->geometry;

	identity_add(hash, options->path, strlen(options->path));
	identity_add(hash, &geometry->block_bytes, sizeof(geometry->block_bytes));
	identity_end(hash, geometry->identity);
}

void ns_identity_of_memory(
	const struct ns_options *options, const char *nqn, uint32_t nsid, struct backend *backend)
{
	struct identity_hash hash;

	identity_init(&hash, "memory");
	identity_add_machine(&hash);
	identity_add(&hash, nqn, strlen(nqn));
	identity_add(&hash, &nsid, sizeof(nsid));
	ns_identity_end(&hash, options, backend);
}

static bool ns_identity_has_port_number(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	return ((const struct sockaddr_in *)address)->sin_port;
}

void ns_identity_of_nameless_memory(
	const struct ns_options *options, const struct catalog *catalog, struct backend *backend)
{
	struct identity_hash hash;
	const struct list *node;
	uint32_t position = 0;

	identity_init(&hash, "nameless memory");
	identity_add_machine(&hash);
	for (uint32_t i = 0; i < catalog->nr_ports; i++) {
		const struct port *port = catalog->port[i];

		if (!ns_identity_has_port_number(&port->configured))
			return;
		identity_add(&hash, port->ops->name, strlen(port->ops->name));
		identity_add(&hash, &port->configured, sizeof(port->configured));
	}
	for (node = catalog->subsystems.next; node != &catalog->subsystems; node = node->next)
		position++;
	identity_add(&hash, &position, sizeof(position));
	ns_identity_end(&hash, options, backend);
}
