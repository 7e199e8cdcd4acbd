/* SPDX-License-Identifier: MIT */
/*
 * Hosts that must prove who they are (NVMe base 2.0 8.13), each with its secrets. A subsystem's
 * list of them is constant, and reactors only look whether a host is in it. The secrets are the
 * control thread's alone: it takes them from here when one is needed, and they are wiped when the
 * last catalog that has them is freed.
 */
#ifndef HAUL_TARGET_HOST_AUTH_H
#define HAUL_TARGET_HOST_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/auth.h"
#include "proto/nvme/name.h"

struct host_auth_key {
	struct nvme_auth_secret secret; /* of length 0: there is none */
	char *file;			/* where it is from; NULL: it was given in place */
};

struct host_auth {
	uint32_t nr_refs; /* the control thread's, as what follows but the name */
	char nqn[NVME_NQN_MAX + 1];
	struct host_auth_key host; /* proves the host's name ... */
	struct host_auth_key ctrl; /* ... and the subsystem's, to this host */
	uint32_t hashes;	   /* that are good enough: bits, as in proto/nvme/auth.h */
	uint32_t groups;
	/* Since it was named first. */
	uint64_t nr_done;
	uint64_t nr_refused;
};

struct host_auth_list {
	uint32_t nr;
	struct host_auth **hosts; /* one reference each */
};

/* With all hash functions and groups; NULL: no memory. */
struct host_auth *host_auth_create(const char *nqn);
struct host_auth *host_auth_get(struct host_auth *host);
void host_auth_put(struct host_auth *host);

/* Takes the reference, even on failure. */
int host_auth_list_add(struct host_auth_list *list, struct host_auth *host) must_check;
/* The same entries into an empty one. */
int host_auth_list_copy(struct host_auth_list *list, const struct host_auth_list *from) must_check;
void host_auth_list_free(struct host_auth_list *list);
/* NULL: it need not prove anything. */
struct host_auth *host_auth_find(const struct host_auth_list *list, const char *nqn);

bool host_auth_key_is_same(const struct host_auth_key *one, const struct host_auth_key *other);

/* Reads the secret that is the first line of FILE, an absolute path, into KEY. On failure WHY has
 * what is wrong with it, never a part of it. -ENOENT: there is no such file. */
int host_auth_key_read(
	struct host_auth_key *key, const char *file, char *why, size_t why_size) must_check;

#endif
