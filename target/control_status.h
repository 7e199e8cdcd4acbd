/* SPDX-License-Identifier: MIT */
/*
 * What reactors tell of themselves when a client asks for the status: plain copies, made by each on
 * its own thread.
 */
#ifndef HAUL_TARGET_CONTROL_STATUS_H
#define HAUL_TARGET_CONTROL_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/bufpool.h"
#include "proto/nvme/name.h"
#include "target/conn.h"
#include "target/share.h"

struct control;
struct json_object;

struct status_ctrl {
	char hostnqn[NVME_NQN_MAX + 1];
	char subnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];
	uint16_t cntlid;
	uint32_t reactor;
	uint32_t kato_ms;
	bool ready;
};

struct status_queue {
	uint16_t cntlid; /* 0: not connected yet, or on its way out */
	uint16_t qid;
	uint32_t reactor;
	uint32_t depth;
	uint32_t nr_in_flight;
	uint64_t nr_commands;
	bool proof_due;	     /* the host has yet to authenticate */
	bool both_ways;	     /* ... has, and so has hauld */
	uint8_t hash, group; /* ... with these; hash 0: it need not */
	const char *transport;
	struct sockaddr_storage peer, local;
	uint64_t number;
};

/* A host's share of a reactor: what it holds, and how far it could go if nobody else took more. */
struct status_held {
	uint64_t held, limit;
};

struct status_share {
	char address[SHARE_TEXT];
	struct status_held data, reserve; /* bytes of buffers; of those for admin commands */
	struct status_held ctrls, receives;
	struct status_held conns; /* of all reactors: on the first one only */
	uint32_t nr_waiting;	  /* commands */
};

struct status_reactor {
	const char *engine;
	uint32_t nr_conns, nr_ctrls, nr_queues;
	uint32_t nr_namespaces;	 /* open here */
	uint64_t nr_requests;	 /* not free */
	uint64_t nr_ns_requests; /* that refer to a namespace */
	uint32_t nr_shares;	 /* hosts that hold anything: target/share.h */
	uint32_t nr_fences;	 /* hosts that wait for their past: target/fence.h */
	struct bufpool_stats pool;
	struct status_share *shares; /* NR_SHARES, or NULL */
	struct status_ctrl *ctrls;
	struct status_queue *queues;
};

/* The object a client sees; NR_REACTORS parts. */
struct json_object *control_status_describe(
	const struct control *control, const struct status_reactor *reactors, uint32_t nr_reactors);

#endif
