/* SPDX-License-Identifier: MIT */
/*
 * Subsystems, their namespaces and who may use them, as the configuration describes them. They are
 * made by the control thread as parts of a catalog (target/catalog.h) and are constant once it is
 * published; a change is another catalog.
 */
#ifndef HAUL_TARGET_SUBSYS_H
#define HAUL_TARGET_SUBSYS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "proto/nvme/name.h"
#include "target/ana.h"
#include "target/host_auth.h"
#include "target/host_list.h"
#include "target/ns_place.h"

/* NN: the largest namespace id, announced so that later ones need no new value. */
#define SUBSYS_MAX_NSID	     1024u
#define SUBSYS_SERIAL_MAX    20 /* Identify Controller SN */
/* I/O queues of one controller: what Set Features 07h grants at most. */
#define SUBSYS_MAX_IO_QUEUES 128u

#define SUBSYS_LABEL_MAX 256 /* NVMe base 2.1 figure 499 */

#define NS_NGUID_BYTES 16
#define NS_EUI64_BYTES 8

struct reservation_owner;

struct ns {
	uint32_t nsid;
	struct ns_place *place;	  /* one reference */
	bool read_only;		  /* for whatever reason */
	bool always_read_only;	  /* the disk, or the configuration */
	bool write_protected;	  /* by a host */
	bool write_protect_known; /* it is what was before, or what is stored */
	uint8_t ana_group;
	uint8_t lba_shift;
	uint64_t nr_lbas;
	struct nvme_uuid uuid;
	uint8_t nguid[NS_NGUID_BYTES];
	uint8_t eui64[NS_EUI64_BYTES];
	/* Of those that may use the subsystem, who sees it (target/view.h); NULL: all. Owned here;
	 * reactors have none. */
	struct host_list *hosts;
	bool narrows; /* some that saw it when the catalog before counted do not see it any more */
	/* Set when its catalog is about to be published. */
	struct reservation_owner *reservation; /* the control thread's, for the process's life */
	bool may_persist;		       /* its reservation, through power loss */
};

struct subsys {
	char nqn[NVME_NQN_MAX + 1];
	char serial[SUBSYS_SERIAL_MAX + 1];
	char admin_label[SUBSYS_LABEL_MAX + 1]; /* UTF-8, for discovery; "": none */
	bool discovery; /* the well-known one: in no catalog, on every port */
	bool allow_any;
	bool one_association;	    /* of each host and address: target/association.h */
	uint32_t max_io_queues;	    /* of each of its controllers to come */
	struct host_list hosts;	    /* that may use it */
	struct host_auth_list auth; /* of these, who must prove to be it */
	struct host_list named;	    /* all that namespaces name, and maybe more */
	uint32_t ns_limit;	    /* entries of ns */
	struct ns **ns;		    /* by namespace id; holes are NULL */
	struct ana_group *ana[ANA_MAX_GROUPS + 1]; /* by id; NULL: optimized everywhere */
	bool volatile_cache;			   /* of any namespace */
	bool reset_offered;			   /* to its hosts: target/subsys_reset.h */
	uint32_t nr_resets;			   /* since hauld has it */
	struct list node;			   /* catalog->subsystems */

	/* Made when its catalog is about to be published, if hosts see different namespaces. */
	uint32_t nr_views;
	struct subsys **views;	    /* of hosts that are named, in their order */
	struct subsys *others_view; /* of all others; NULL: all see all */
	const char *view_host;	    /* of a view: whose, as in NAMED; NULL: of others */
};

/* The discovery subsystem. */
extern const struct subsys subsys_discovery;
/* What connections have whose subsystem has been removed, until they are closed. */
extern const struct subsys subsys_removed;

/* With the default serial number; NULL: no memory. NQN has been checked. */
struct subsys *subsys_create(const char *nqn);
/* Its namespaces, too. */
void subsys_free(struct subsys *subsys);

int subsys_allow_host(struct subsys *subsys, const char *hostnqn) must_check;
bool subsys_host_allowed(const struct subsys *subsys, const char *hostnqn);

void ns_free(struct ns *ns);
/* Only these hosts are to see it; -ENOSPC: namespaces of SUBSYS name too many. */
int subsys_show_ns(struct subsys *subsys, struct ns *ns, const struct host_list *hosts) must_check;
/* Puts NS there and owns it from then on; its id is free. */
int subsys_put_ns(struct subsys *subsys, struct ns *ns) must_check;
uint32_t subsys_free_nsid(const struct subsys *subsys);

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
