/* SPDX-License-Identifier: MIT */
/*
 * A namespace on one reactor: what commands look at and count. It stays until the last command that
 * refers to it is over, also when the namespace has been removed.
 */
#ifndef HAUL_TARGET_REACTOR_NS_H
#define HAUL_TARGET_REACTOR_NS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/loop.h"
#include "target/subsys.h"

struct catalog;
struct reactor;

struct reactor_ns {
	struct ns ns; /* a copy of the catalog's */
	struct backend_queue *queue;
	uint32_t nr_requests; /* that refer to it */
	uint64_t generation;  /* of the catalog that had it last; 0: none yet */
	bool removed;
	struct reactor *reactor;
	struct loop_message gone; /* to the control thread, which then frees it */
};

/* On the reactor. Opens queues for the namespaces of CATALOG that it has not yet; on failure it has
 * what it had. */
int reactor_ns_attach(struct reactor *reactor, const struct catalog *catalog) must_check;
/* Undoes that: another reactor could not. */
void reactor_ns_abandon(struct reactor *reactor, const struct catalog *catalog);
/* Takes over what CATALOG says, and lets go of what is not in it. */
void reactor_ns_switch(struct reactor *reactor, const struct catalog *catalog);
/* The last request that refers to a removed one is free. */
void reactor_ns_unused(struct reactor_ns *ns);
/* The reactor ends. */
void reactor_ns_detach_all(struct reactor *reactor);

/* The namespace NSID of a subsystem of the reactor's catalog, or NULL. */
struct reactor_ns *reactor_ns_find(
	const struct reactor *reactor, const struct subsys *subsys, uint32_t nsid);

static inline void reactor_ns_get(struct reactor_ns *ns)
{
	ns->nr_requests++;
}

static inline void reactor_ns_put(struct reactor_ns *ns)
{
	if (unlikely(--ns->nr_requests == 0 && ns->removed))
		reactor_ns_unused(ns);
}

#endif
