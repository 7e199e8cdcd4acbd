/* SPDX-License-Identifier: MIT */
/*
 * A controller as the library's own files see it, and its life.
 *
 *   CONNECTING -> LIVE -> SHUTTING -> CLOSED        and from each of the first three -> FAILED ->
 * CLOSED
 *
 * In FAILED all queues have been told to end. CLOSED: haul_disconnect() was asked for and all
 * queues are quiesced.
 */
#ifndef HAUL_INITIATOR_CTRL_H
#define HAUL_INITIATOR_CTRL_H

#include "initiator/loop_private.h"
#include "proto/nvme/uri.h"

#define CTRL_MAX_IO_QUEUES    128u
#define CTRL_ADMIN_DEPTH      31 /* 32 entries, the least a controller must have (NVMe-oF 3.3) */
#define CTRL_ADMIN_OPS	      24 /* of the caller; the rest is for connect, keep-alive, shutdown */
#define CTRL_MAX_NAMESPACES   16384
#define CTRL_ADMIN_TCP_INLINE 8192 /* NVMe TCP 1.0c 3.3.2: admin and fabrics commands */

enum ctrl_state { CTRL_CONNECTING, CTRL_LIVE, CTRL_SHUTTING, CTRL_FAILED, CTRL_CLOSED };

/* A command (or a series of them) of the caller on the admin queue. */
struct admin_op {
	struct haul_pending pending;
	struct haul_ctrl *ctrl;
};

/* What Identify and the properties told, checked. */
struct ctrl_limits {
	uint64_t cap;
	uint32_t vs;
	uint32_t max_transfer_bytes; /* of one command */
	uint32_t max_depth;	     /* commands out on an I/O queue */
	uint32_t in_capsule_bytes;
	uint32_t max_segments;
	uint32_t nr_queues; /* granted */
	uint16_t oncs;
	uint8_t vwc;
	uint64_t max_write_zeroes_bytes; /* 0: not limited */
	uint32_t max_discard_range_blocks;
	uint64_t max_discard_blocks;
	char serial[21], model[41], firmware[9];
	bool is_discovery;
	bool has_keep_alive;
};

struct haul_ctrl {
	struct haul_loop *hl;
	struct list node; /* hl->ctrls */
	enum ctrl_state state;
	const struct haul_transport_ops *ops;
	struct nvme_uri uri;
	char *uri_text;
	struct haul_ctrl_options options; /* its texts are not used: host_nqn, host_id are below */
	char host_nqn[NVME_NQN_MAX + 1];
	struct nvme_uuid host_id;
	char nqn[NVME_NQN_MAX + 1]; /* of the subsystem being connected to */
	struct sockaddr_storage address;
	uint16_t cntlid;
	uint32_t cc; /* as set */
	struct ctrl_limits limits;

	struct haul_queue *admin;
	struct list queues;				   /* the caller's */
	struct haul_queue *by_qid[CTRL_MAX_IO_QUEUES + 1]; /* ids in use */

	/* connect.c's */
	const uint8_t *plan; /* the steps to come */
	int connect_result;
	struct lookup *lookup;	 /* not NULL: the subsystem is still to be found */
	struct resolve *resolve; /* a look-up under way */
	struct loop_timer step_timer, deadline_timer;
	uint64_t ready_deadline_ns;
	uint32_t ready_pause_ms;
	void *page; /* NVME_IDENTIFY_SIZE bytes */

	struct loop_timer keep_alive_timer;
	bool keep_alive_is_out;
	uint32_t keep_alive_nr_silent; /* halves of KATO in which nothing was answered */
	uint64_t nr_answered_then;     /* of all queues, at the last look */

	struct haul_pending connect, disconnect;
	bool connect_pending, disconnect_pending, was_live;
	bool shutdown_sent;
	uint64_t shutdown_deadline_ns;

	uint32_t *nsids;     /* active ones, ascending */
	struct haul_ns **ns; /* beside them; NULL: not read */
	uint32_t nr_ns, room_ns;
	uint32_t default_nsid;

	struct admin_op ops_pool[CTRL_ADMIN_OPS];
	struct slots op_slots;
	char error[HAUL_ERROR_BYTES];
};

/* Ends the association at once; the first reason is kept as the text. */
void ctrl_fail(struct haul_ctrl *ctrl, int result, const char *why);
void ctrl_set_error(struct haul_ctrl *ctrl, const char *format, ...) printf_like(2, 3);
void ctrl_vset_error(struct haul_ctrl *ctrl, const char *format, va_list args);
/* The connect's steps are done. */
void ctrl_connected(struct haul_ctrl *ctrl);
/* Called by queue.c: Connect has succeeded; it was connected and is lost; nothing is out any more.
 */
void ctrl_queue_live(struct haul_queue *queue);
void ctrl_queue_lost(struct haul_queue *queue, int result, const char *why);
void ctrl_queue_closed(struct haul_queue *queue);

/* --- ctrl_keep_alive.c */
/* The next one is due after half of KATO, if the controller has keep-alive. */
void ctrl_keep_alive_set(struct haul_ctrl *ctrl);
void ctrl_keep_alive_expired(struct loop_timer *timer);

/* --- ctrl_shutdown.c */
/* Of a LIVE one. It ends with ctrl_fail(), at the latest when its deadline is over. */
void ctrl_shutdown_start(struct haul_ctrl *ctrl);
/* A queue of one that is SHUTTING is quiet. */
void ctrl_shutdown_next(struct haul_ctrl *ctrl);

#endif
