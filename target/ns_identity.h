/* SPDX-License-Identifier: MIT */
/*
 * What hosts tell namespaces by: UUID, NGUID, EUI-64. Given by the configuration, or derived from
 * the disk, so that they stay over restarts; that of a disk in memory is its place.
 */
#ifndef HAUL_TARGET_NS_IDENTITY_H
#define HAUL_TARGET_NS_IDENTITY_H

#include <stdint.h>

struct backend;
struct catalog;
struct ns;
struct ns_options;

/* All three; NS has its disk. */
void ns_identity_set(struct ns *ns, const struct ns_options *options);

/* For a disk in memory that was just opened: as namespace NSID of a subsystem... */
void ns_identity_of_memory(
	const struct ns_options *options, const char *nqn, uint32_t nsid, struct backend *backend);
/* ... or as the next disk of CATALOG whose subsystem is to be named after it: behind these
 * listeners, in this order, which no other hauld can be. With a port number that is chosen at the
 * start another one can, and the identity stays a new one each time. */
void ns_identity_of_nameless_memory(
	const struct ns_options *options, const struct catalog *catalog, struct backend *backend);

#endif
