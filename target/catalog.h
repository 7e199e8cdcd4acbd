/* SPDX-License-Identifier: MIT */
/*
 * A catalog is all that the target offers at one time: listeners, subsystems, namespaces, hosts.
 * The control thread makes it, publishes it (target/publish.h) and never changes it afterwards:
 * every reactor reads it without a lock. Any change, at the start as well as later, is a new
 * catalog that takes over what it has in common with the one before: a listener of the same
 * address, a disk of the same path, a namespace of the same name and id.
 */
#ifndef HAUL_TARGET_CATALOG_H
#define HAUL_TARGET_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "proto/nvme/uri.h"
#include "target/referral.h"
#include "target/subsys.h"

struct port;

#define CATALOG_MAX_PORTS      64u
#define CATALOG_MAX_REFERRALS  64u
/* They are searched one by one. */
#define CATALOG_MAX_SUBSYSTEMS 1024u
/* Namespaces of all subsystems; each has a place in every reactor's table. */
#define CATALOG_MAX_NAMESPACES 4096u

/* What it has more than this is to be told by target/diff.c, too: what nobody is told is not made.
 */
struct catalog {
	/* What counted before, to take over from; NULL: nothing did, or it is gone. */
	const struct catalog *previous;
	struct ns_places *places; /* shared with those before and after */
	uint64_t generation;	  /* of catalogs: one more than the one before */
	uint64_t genctr;	  /* of what hosts see in discovery; set when it is published */
	struct list subsystems;	  /* of struct subsys */
	uint32_t nr_namespaces;
	uint32_t nr_ports;
	struct port *port[CATALOG_MAX_PORTS]; /* one reference each */
	uint32_t nr_referrals;
	struct referral *referrals;
	bool narrows;	     /* some hosts lose sight of a namespace that stays */
	bool same_discovery; /* as PREVIOUS, to any host; found out once, when it is published */
};

/* An empty one after PREVIOUS; NULL: no memory. */
struct catalog *catalog_create(const struct catalog *previous);
/* A copy of CATALOG after it, to be changed; NULL: no memory. */
struct catalog *catalog_clone(const struct catalog *catalog);
void catalog_free(struct catalog *catalog);

/* A listener for an URI that has been parsed. RESOLVE: also looks the host up, which may block;
 * without it the listener can only be checked, not started. */
int catalog_add_port(struct catalog *catalog, const struct nvme_uri *uri, bool resolve, char *why,
	size_t why_size) must_check;
bool catalog_has_port(const struct catalog *catalog, const struct port *port);

/* Another discovery service, for an URI that has been parsed, of which HOSTS are told; NULL: all.
 */
int catalog_add_referral(struct catalog *catalog, const struct nvme_uri *uri,
	const struct host_list *hosts, char *why, size_t why_size) must_check;

/* -EEXIST: there is one of that name. NQN has been checked. */
int catalog_add_subsys(struct catalog *catalog, const char *nqn, struct subsys **ret) must_check;
struct subsys *catalog_find(const struct catalog *catalog, const char *nqn);

struct ns_options {
	const char *path; /* a file or device, "ram:SIZE" or "null:SIZE" */
	uint32_t nsid;	  /* 0: the lowest free one */
	bool read_only;
	uint32_t block_bytes;	       /* 0: the device's own */
	const struct nvme_uuid *uuid;  /* NULL: from the disk's identity */
	uint32_t ana_group;	       /* 0: the default one */
	const uint8_t *nguid;	       /* NULL: the bytes of the UUID */
	const uint8_t *eui64;	       /* NULL: from the UUID */
	const struct host_list *hosts; /* that see it; NULL: all that may use the subsystem */
};
/* Opens the disk, or takes it over. */
int catalog_add_ns(struct catalog *catalog, struct subsys *subsys, const struct ns_options *options,
	char *why, size_t why_size) must_check;
/* On BACKEND, whose reference it takes, even on failure. */
int catalog_add_backend(struct catalog *catalog, struct subsys *subsys,
	const struct ns_options *options, struct backend *backend, char *why,
	size_t why_size) must_check;
/* For a namespace whose subsystem is named after it: opens, then makes the subsystem. */
int catalog_add_disk(struct catalog *catalog, const struct ns_options *options, char *why,
	size_t why_size) must_check;

/* Calls FN for each namespace; stops when it returns an error and returns that. */
int catalog_for_each_ns(const struct catalog *catalog,
	int (*fn)(void *context, struct subsys *subsys, struct ns *ns), void *context);

#endif
