/* SPDX-License-Identifier: MIT */
/*
 * Subsystems, their namespaces and who may use them: what configuration makes and reactors read.
 * Constant while reactors run.
 */
#ifndef HAUL_TARGET_SUBSYS_H
#define HAUL_TARGET_SUBSYS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "proto/nvme/name.h"
#include "target/backend.h"

struct target;

/* NN: the largest namespace id, announced so that later ones need no new value. */
#define SUBSYS_MAX_NSID	  1024u
#define SUBSYS_SERIAL_MAX 20 /* Identify Controller SN */
#define SUBSYS_MAX_HOSTS  1024

struct ns {
	struct subsys *subsys;
	uint32_t nsid;
	uint32_t index; /* of reactor->ns_queues */
	struct backend *backend;
	bool read_only;
	uint8_t lba_shift;
	uint64_t nr_lbas;
	struct nvme_uuid uuid; /* also NGUID */
};

struct subsys {
	char nqn[NVME_NQN_MAX + 1];
	char serial[SUBSYS_SERIAL_MAX + 1];
	bool discovery; /* the well-known one: in no list, on every port */
	bool allow_any;
	uint32_t nr_hosts;
	char (*hosts)[NVME_NQN_MAX + 1];
	uint32_t ns_limit;   /* entries of ns */
	struct ns **ns;	     /* by namespace id; holes are NULL */
	bool volatile_cache; /* of any namespace */
	struct list node;    /* target->subsystems */
};

/* The discovery subsystem. */
extern const struct subsys subsys_discovery;

/* -EEXIST: there is one of that name. NQN has been checked. */
int subsys_add(struct target *target, const char *nqn, struct subsys **ret) must_check;
struct subsys *subsys_find(const struct target *target, const char *nqn);
/* Adding one twice is once (B015). */
int subsys_allow_host(struct subsys *subsys, const char *hostnqn) must_check;
bool subsys_host_allowed(const struct subsys *subsys, const char *hostnqn);
void subsys_free(struct subsys *subsys);

struct ns_options {
	const char *path; /* a file or device, "ram:SIZE" or "null:SIZE" */
	uint32_t nsid;	  /* 0: the lowest free one */
	bool read_only;
	uint32_t block_bytes;	      /* 0: the device's own */
	const struct nvme_uuid *uuid; /* NULL: from the disk's identity */
};
/* Opens the backend; owned by SUBSYS from then on, as the backend is. */
int subsys_add_ns(struct target *target, struct subsys *subsys, const struct ns_options *options,
	char *why, size_t why_size) must_check;
/* For a namespace whose subsystem is named after it: opens, then makes the subsystem. */
int subsys_add_for_disk(struct target *target, const struct ns_options *options, char *why,
	size_t why_size) must_check;

/* NULL: there is none. */
static inline const struct ns *subsys_ns(const struct subsys *subsys, uint32_t nsid)
{
	return nsid < subsys->ns_limit ? subsys->ns[nsid] : NULL;
}

static inline bool nsid_valid(uint32_t nsid)
{
	return nsid >= 1 && nsid <= SUBSYS_MAX_NSID;
}

#endif
