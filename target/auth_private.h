/* SPDX-License-Identifier: MIT */
/*
 * A transaction of authentication. It is its connection's, on that reactor, but while it is on an
 * errand of a request: then it is the control thread's, which has the keys, and where an
 * exponentiation holds up no I/O. Hosts take turns there.
 */
#ifndef HAUL_TARGET_AUTH_PRIVATE_H
#define HAUL_TARGET_AUTH_PRIVATE_H

#include "proto/auth/dhchap.h"
#include "proto/nvme/name.h"
#include "target/host_turns.h"
#include "target/request_errand.h"

struct conn;
struct target;

enum auth_state {
	AUTH_IDLE,	 /* Negotiate is due */
	AUTH_OFFERED,	 /* it has come: Receive is due, for the challenge */
	AUTH_CHALLENGED, /* Reply is due */
	AUTH_VERIFIED,	 /* it was right: Receive is due, for Success1 */
	AUTH_ANSWERED,	 /* that had our response: Success2 is due */
	AUTH_FAILED,	 /* Receive is due, for Failure1 */
};

struct auth {
	struct conn *conn; /* its reactor's, as what follows */
	enum auth_state state;
	bool is_away; /* on an errand */
	struct loop_timer deadline;
	uint64_t left_ns; /* of the host's time, while it is away */

	/* Whoever's it is. */
	struct request_errand errand;
	struct host_turn turn;
	struct loop_message step;
	void (*work)(struct auth *auth);
	struct target *target;
	char subnqn[NVME_NQN_MAX + 1];
	char hostnqn[NVME_NQN_MAX + 1];
	enum nvme_auth_fault fault;
	uint16_t t_id;
	struct nvme_auth_offer offer;
	uint8_t hash;
	uint8_t group;
	bool challenges; /* the host wants our response, too */
	uint32_t seqnum; /* S1 */
	uint32_t host_seqnum;
	uint8_t challenge[NVME_AUTH_HASH_MAX_BYTES];
	uint8_t host_challenge[NVME_AUTH_HASH_MAX_BYTES];
	uint8_t response[NVME_AUTH_HASH_MAX_BYTES]; /* the host's, then ours */
	uint8_t value[NVME_AUTH_GROUP_MAX_BYTES];   /* of DH: ours, then the host's */
	struct dhchap_dh *dh;			    /* NULL: none, or over */
};

/* At home: both take AUTH, which is in the state that its name says, on an errand of REQUEST; BACK
 * is called at home with AUTH's fault set, or everything for the next message. */

/* Chooses of what is offered, and makes a challenge. */
void auth_choose(
	struct auth *auth, struct request *request, void (*back)(struct request_errand *errand));
/* Compares the host's response, and makes ours if it is wanted. */
void auth_verify(
	struct auth *auth, struct request *request, void (*back)(struct request_errand *errand));

#endif
