/* SPDX-License-Identifier: MIT */
/*
 * What SMART's totals keep of namespaces that are gone, or that a host does not see any more: they
 * are over the life of the subsystem and never go back (NVMe base 2.0 5.16.1.3). It is kept for the
 * hosts that saw the namespace while it was counted, so that nobody is told of what was hidden. A
 * reactor's own, as what is counted.
 */
#ifndef HAUL_TARGET_SMART_PAST_H
#define HAUL_TARGET_SMART_PAST_H

#include <stdint.h>

#include "target/reactor_ns.h"

struct host_list;
struct reactor;
struct smart_past;

/* What NS has counted and nothing has kept yet is kept for HOSTS (NULL: all) of subsystem NQN.
 * Returns where; NULL: there was no memory, and it is lost. */
struct smart_past *smart_past_keep(struct reactor *reactor, const char *nqn,
	const struct host_list *hosts, struct reactor_ns *ns);
/* The same with what it has counted since, to the same place. NULL is good. */
void smart_past_keep_rest(struct smart_past *past, struct reactor_ns *ns);

void smart_past_sum_add(struct ns_sum *sum, const struct ns_sum *more);
/* Adds to SUM what was kept for a host of subsystem NQN. */
void smart_past_add(
	const struct reactor *reactor, const char *nqn, const char *hostnqn, struct ns_sum *sum);
/* ... and what NS has counted since it was kept last. */
void smart_past_add_since(const struct reactor_ns *ns, struct ns_sum *sum);

void smart_past_free_all(struct reactor *reactor);

#endif
