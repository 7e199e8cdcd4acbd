/* SPDX-License-Identifier: MIT */
/*
 * From a host's name to an address, without blocking the loop.
 */
#ifndef HAUL_INITIATOR_RESOLVE_H
#define HAUL_INITIATOR_RESOLVE_H

#include "initiator/loop_private.h"

struct haul_ctrl;
struct resolve; /* a look-up under way */

/* A numeric address, IPv6 with or without scope. False: it is a name. */
bool resolve_literal(const char *host, uint16_t port, struct sockaddr_storage *ret);
/* Looks HOST up on the helper thread; ends in resolved() from a later turn. resolve_abandon(): it
 * will not be called any more; the look-up itself cannot be stopped. */
int resolve_start(struct haul_loop *hl, const char *host, uint16_t port, struct haul_ctrl *ctrl,
	void (*resolved)(struct haul_ctrl *ctrl, int result, const char *why,
		const struct sockaddr_storage *address),
	struct resolve **ret) must_check;
void resolve_abandon(struct resolve *resolve);

#endif
