/* SPDX-License-Identifier: MIT */
/*
 * Asymmetric Namespace Access (NVMe base 2.0 8.1): each namespace is in one group of its subsystem,
 * and what a host may do with a group depends on the listener that its controller came in by.
 * Groups are part of the catalog, hence constant once it is published. A state counts for commands
 * that come after it; those on their way are left alone. What a controller tells of it is in
 * target/ana_log.h.
 */
#ifndef HAUL_TARGET_ANA_H
#define HAUL_TARGET_ANA_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/log.h"

struct conn;
struct request;
struct subsys;

/* ANAGRPMAX and NANAGRPID: hosts allocate room for so many. */
#define ANA_MAX_GROUPS	  128u
#define ANA_DEFAULT_GROUP 1u
/* Listeners of two catalogs, each with the lowest free number (catalog_free_portid()). */
#define ANA_MAX_PORTID	  129u
/* ANATT, seconds: how long a change may take. Then target/control_ana_end.h ends it. */
#define ANA_TRANSITION_S  30u
/* In place of a port id: all listeners that have no state of their own. */
#define ANA_OTHER_PORTS	  0u

struct ana_group {
	uint8_t at[ANA_MAX_PORTID + 1]; /* enum nvme_ana_state by port id, or 0: none of its own */
};

/* --- on the control thread, of a subsystem that is not yet published ------------------------- */

/* It has been set, for a listener or those that have none of their own. */
bool ana_is_set(const struct subsys *subsys, uint32_t group, uint16_t portid);
int ana_set(struct subsys *subsys, uint32_t group, uint16_t portid,
	enum nvme_ana_state state) must_check;
/* At all listeners, whatever they have had. */
int ana_set_all(struct subsys *subsys, uint32_t group, enum nvme_ana_state state) must_check;
int ana_clone(struct subsys *subsys, const struct subsys *from) must_check;
void ana_free(struct subsys *subsys);

/* "optimized" and so on, as in the configuration. */
const char *ana_state_name(enum nvme_ana_state state);
#define ANA_STATE_NAMES "optimized, non-optimized, inaccessible, persistent-loss and change"
bool ana_state_parse(const char *text, enum nvme_ana_state *ret);

static inline bool ana_group_valid(uint32_t group)
{
	return group >= 1 && group <= ANA_MAX_GROUPS;
}

/* --- anywhere -------------------------------------------------------------------------------- */

enum nvme_ana_state ana_state(const struct subsys *subsys, uint32_t group, uint16_t portid);
/* At some listener commands for the group's namespaces are refused. */
bool ana_restricts(const struct subsys *subsys, uint32_t group);

/* What a command for a namespace ends with in this state; 0: it may run (8.1.3). */
uint16_t ana_status(enum nvme_ana_state state);
/* The same for namespace NSID and for all of CONN's subsystem, by the listener of CONN. A namespace
 * that is not there is no matter of ours. */
uint16_t ana_check(const struct conn *conn, uint32_t nsid);
uint16_t ana_check_all(const struct conn *conn);

#endif
