/* SPDX-License-Identifier: MIT */
/*
 * Discovery controllers that refer to others: which of them are still to be asked. Each is asked
 * once, and not for ever: what a log says is not to be believed. It connects to nothing itself.
 */
#ifndef HAUL_INITIATOR_REFERRAL_H
#define HAUL_INITIATOR_REFERRAL_H

#include "initiator/haul.h"
#include "proto/nvme/uri.h"

#define REFERRAL_MAX_DEPTH 4  /* steps from the controller that was named: sites have one or two */
#define REFERRAL_MAX_CTRLS 16 /* that one included: each costs a connect */

struct referral {
	enum nvme_trtype trtype;
	bool ipv6;
	char host[NVME_URI_HOST_MAX + 1];
	uint16_t port;
	char nqn[NVME_NQN_MAX + 1]; /* of the discovery subsystem */
	unsigned depth;		    /* 0: the one that was named */
};

struct referrals {
	struct referral list[REFERRAL_MAX_CTRLS];
	unsigned nr, nr_asked;
	unsigned nr_left_out; /* beyond the bounds */
};

/* FIRST without an NQN means the well-known discovery subsystem. */
void referrals_init(struct referrals *referrals, const struct nvme_uri *first);
/* The next one to ask; NULL: all were. It lives as long as REFERRALS. */
const struct referral *referrals_next(struct referrals *referrals);
/* The one asked last was found at ADDRESS, as haul_ctrl_info() writes it: it may be referred to by
 * that instead of by its name. */
void referrals_found(struct referrals *referrals, const char *address);
/* To ask: what LOG of the one asked last refers to. TRTYPE: over this transport only; 0: any that
 * haul has. */
void referrals_add(
	struct referrals *referrals, const struct haul_discovery_log *log, uint8_t trtype);
/* The address of REFERRAL instead of that in URI, whose options stay as far as they fit. */
void referral_apply(const struct referral *referral, struct nvme_uri *uri);

#endif
