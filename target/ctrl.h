/* SPDX-License-Identifier: MIT */
/*
 * A controller: one host's association with one subsystem. It lives on the reactor of its admin
 * queue, ends with it, and is freed when its last queue has left. It reaches I/O queues of other
 * reactors by messages only.
 */
#ifndef HAUL_TARGET_CTRL_H
#define HAUL_TARGET_CTRL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "proto/nvme/name.h"
#include "target/ana_log.h"
#include "target/changed_ns.h"
#include "target/conn.h"
#include "target/event.h"
#include "target/ctrl_features.h"
#include "target/subsys.h"

struct association;
struct catalog;
struct error_log;
struct reservation_log;
struct reactor;
struct subsys;

#define CTRL_MAX_IO_QUEUES	SUBSYS_MAX_IO_QUEUES
/* Asynchronous event requests a controller holds; AERL and ACL say the same 0's based. */
#define CTRL_MAX_AERS		4
#define CTRL_MAX_ABORTS		4
/* A discovery controller without keep-alive ends after two idle minutes (NVMe base 2.0 3.1.2.3). */
#define CTRL_DISCOVERY_IDLE_MS	120000
/* CAP.TO, in units of 500 ms: enabling may wait for commands of an earlier controller
 * (FENCE_DEADLINE_NS), a reset for those of its queues. */
#define CTRL_CAP_TO		20
#define CTRL_VERSION		NVME_VERSION(2, 0, 0)
/* How long Connect waits for an older queue of the same id to go (B002): one that has begun to
 * close has until the host's patience ends, one that lives only as long as its end may be under
 * way. */
#define CTRL_REPLACE_CLOSING_NS 8000000000ull
#define CTRL_REPLACE_ALIVE_NS	500000000ull

enum ctrl_stage {
	CTRL_DISABLED,
	CTRL_RESETTING, /* CC.EN is 0 (or again 1): the I/O queues go, then CSTS.RDY */
	CTRL_ENABLING,	/* CC.EN is 1: CSTS.RDY is to come */
	CTRL_READY,
	CTRL_FAILED, /* CSTS.CFS, until CC.EN is 0 */
};

/* What a write of CC has begun. */
enum ctrl_task {
	CTRL_TASK_NONE,
	CTRL_TASK_ENABLE,    /* ctrl_enabled() is due */
	CTRL_TASK_SHUT_DOWN, /* ctrl_shutdown_done() is due */
};

struct ctrl_queue {
	struct conn *conn; /* NULL: free. Not looked into but for its member messages */
	bool closing;
	bool asked;		 /* whether its host lives; the answer is to come */
	struct request *waiting; /* a Connect that waits for CONN to leave */
	uint64_t waiting_until_ns;
};

struct ctrl {
	struct reactor *reactor;
	const struct subsys *subsys; /* as the host sees it: target/view.h */
	uint16_t cntlid;
	uint16_t portid; /* of the listener that it came in by */
	uint32_t slot;
	bool ending;
	struct share *share;		 /* the host's */
	struct association *association; /* NULL: it has claimed none, or given it back */
	struct conn *admin;		 /* NULL once it is gone */
	char hostnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];

	uint32_t cc;
	enum ctrl_stage stage;
	uint32_t shst;	      /* NVME_CSTS_SHST_* */
	bool nssro;	      /* CSTS.NSSRO: its subsystem has been reset */
	uint32_t nr_resets;   /* of its subsystem, that it has seen */
	uint32_t nr_enabling; /* ctrl_enabled() that are due */
	struct list parked;   /* Property Set requests in EXEC that wait for all queues to leave */
	uint32_t kato_ms;     /* 0: none */
	uint64_t alive_ns;
	struct loop_timer keep_alive;
	uint32_t nr_asked;     /* queues, whether the host lives */
	bool keep_alive_heard; /* one has said so */
	bool overdue_asked;    /* by a new controller of its host: ends if it is overdue */

	uint32_t max_io_queues; /* as its subsystem had it when it was made */
	uint32_t nr_io_queues;	/* granted */
	struct features features;
	struct ctrl_settings settings; /* what its queues know of them */
	struct events events;
	struct changed_ns changed_ns;
	struct ana_counts ana_counts;
	struct error_log *errors;		 /* NULL before the first */
	struct reservation_log *reservation_log; /* likewise */
	uint32_t announce;  /* NVME_AEC_* of what the catalog has changed: ctrl_announce() */
	uint32_t nr_aborts; /* out */
	uint32_t nr_members;
	uint32_t nr_waiting;
	struct loop_timer replace;
	struct ctrl_queue queues[CTRL_MAX_IO_QUEUES + 1]; /* by queue id; 0 is not used */
};

/* For the admin queue CONN of a host that is allowed. -EMFILE: no controller id is free, or
 * none for this host. */
int ctrl_create(struct conn *conn, const struct subsys *subsys, const char *hostnqn,
	const uint8_t hostid[16], uint32_t kato_ms, struct ctrl **ret) must_check;

/* Any cause, any number of times: all its queues close. */
void ctrl_end(struct ctrl *ctrl, const char *why);

/* Another catalog counts. Ends it when its subsystem is gone or its host may not use it any more.
 */
void ctrl_follow(struct ctrl *ctrl, const struct catalog *catalog);
/* All reactors follow: the host may hear of what concerns it, and finds it so on each queue. */
void ctrl_announce(struct ctrl *ctrl);

/* The admin queue is about to be freed. */
void ctrl_admin_gone(struct ctrl *ctrl);

/* Frees it when it has ended and its last queue has left. */
void ctrl_try_free(struct ctrl *ctrl);

/* A controller of this reactor by its id, or NULL; none that has ended. */
struct ctrl *ctrl_find(struct reactor *reactor, uint16_t cntlid);
/* Controllers that REACTOR could have yet. */
uint32_t ctrl_nr_left(const struct reactor *reactor);
/* The index of the reactor that owns CNTLID; any value is answered. */
uint32_t ctrl_owner(const struct reactor *reactor, uint16_t cntlid);

/* Some Connect waits for an id in use: sees to its deadline. */
void ctrl_arm_replace(struct ctrl *ctrl);

/* Its hosts may reset its subsystem. */
bool ctrl_may_reset_subsys(const struct ctrl *ctrl);
uint64_t ctrl_cap(const struct ctrl *ctrl);
uint32_t ctrl_csts(const struct ctrl *ctrl);
/* A write of CC: enable, reset, shutdown. */
enum ctrl_task ctrl_set_cc(struct ctrl *ctrl, uint32_t cc);
/* LATE: commands of an earlier controller are not over. Unless the host has changed its mind. */
void ctrl_enabled(struct ctrl *ctrl, bool late);
void ctrl_shutdown_done(struct ctrl *ctrl);
/* The last I/O queue has left. */
void ctrl_queues_gone(struct ctrl *ctrl);
bool ctrl_ready(const struct ctrl *ctrl);
/* Its I/O queues are to go: it has ended, is reset or shut down. */
bool ctrl_expels(const struct ctrl *ctrl);

/* The host has shown life. */
void ctrl_alive(struct ctrl *ctrl);
void ctrl_set_kato(struct ctrl *ctrl, uint32_t kato_ms);
/* KATO rounded up to the granularity (KAS) that hosts are told: 0 stays 0, that is, no timer. */
uint32_t ctrl_round_kato(const struct ctrl *ctrl, uint32_t kato_ms);

#endif
