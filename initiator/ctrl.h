/* SPDX-License-Identifier: MIT */
/*
 * A controller as the library's own files see it: its life (ctrl.c), the steps of its connect
 * (connect.c), admin commands (admin.c) and namespaces (namespace.c).
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

/* A namespace that queues know. */
struct haul_ns {
	struct haul_ns_info info;
	uint32_t block_shift;
};

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
	bool looking;		 /* connected to discovery to find the subsystem */
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

/* --- ctrl.c -------------------------------------------------------------------------------- */

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

/* --- connect.c ------------------------------------------------------------------------------ */

void connect_start(struct haul_ctrl *ctrl);
/* The present step has succeeded; has failed. */
void connect_step_done(struct haul_ctrl *ctrl);
void connect_step_failed(struct haul_ctrl *ctrl, int result, const char *format, ...)
	printf_like(3, 4);
void connect_step_expired(struct loop_timer *timer);
void connect_deadline_expired(struct loop_timer *timer);
void connect_admin_closed(struct haul_ctrl *ctrl);

/* --- resolve.c ------------------------------------------------------------------------------ */

/* A numeric address, IPv6 with or without scope. False: it is a name. */
bool resolve_literal(const char *host, uint16_t port, struct sockaddr_storage *ret);
/* Looks HOST up on the helper thread; ends in resolved() from a later turn. resolve_abandon(): it
 * will not be called any more; the look-up itself cannot be stopped. */
struct resolve;
int resolve_start(struct haul_loop *hl, const char *host, uint16_t port, struct haul_ctrl *ctrl,
	void (*resolved)(struct haul_ctrl *ctrl, int result, const char *why,
		const struct sockaddr_storage *address),
	struct resolve **ret) must_check;
void resolve_abandon(struct resolve *resolve);

/* --- admin.c -------------------------------------------------------------------------------- */

/*
 * Sends an admin command; COMPLETED gets the request back with CONTEXT in it, exactly once.
 * TIMEOUT_MS 0: none. -EAGAIN, -ENOTCONN.
 */
int admin_send(struct haul_ctrl *ctrl, const struct nvme_cmd *cmd, void *bytes, uint32_t len,
	int to_host, uint32_t timeout_ms, void (*completed)(struct haul_request *request),
	void *context) must_check;
/* Takes an operation of the caller; NULL: all are out. admin_op_drop(): no event will come. */
struct admin_op *admin_op_get(struct haul_ctrl *ctrl, uint64_t user_data);
void admin_op_drop(struct admin_op *op);
void admin_op_end(struct admin_op *op, int result, uint16_t status, uint64_t value);
/* The errno and the status of a request that came back. */
int request_result(const struct haul_request *request, uint16_t *ret_status);

struct nvme_cmd admin_cmd_identify(uint8_t cns, uint32_t nsid, uint8_t csi);
struct nvme_cmd admin_cmd_property_get(uint32_t offset, bool is_8_bytes);
struct nvme_cmd admin_cmd_property_set(uint32_t offset, uint64_t value);

/* --- namespace.c ---------------------------------------------------------------------------- */

/* Reads one namespace; made by the caller with malloc; DONE is called once and frees it. */
struct ns_reader {
	struct haul_ctrl *ctrl;
	uint32_t nsid;
	void (*done)(struct ns_reader *reader, int result, uint16_t status, const char *why);
	void *context;
	struct haul_ns_info info;
	_Alignas(16) uint8_t page[4096];
};
int ns_reader_start(struct ns_reader *reader) must_check;
/* Adds a page of the active list. Positive: it was full, go on after ctrl->nsids' last. */
int ns_list_add_page(struct haul_ctrl *ctrl, const void *page) must_check;
/* NULL: not known. */
struct haul_ns *ns_find(const struct haul_ctrl *ctrl, uint32_t nsid);
bool ns_is_active(const struct haul_ctrl *ctrl, uint32_t nsid);
/* A list such as "1, 2, 7" into TEXT. */
void ns_list_text(const struct haul_ctrl *ctrl, char *text, size_t size);
void ns_free_all(struct haul_ctrl *ctrl);

/* --- discovery.c ---------------------------------------------------------------------------- */

/* Reads the discovery log; made by log_reader_start(); DONE is called once, then it is freed; LOG
 * is DONE's. */
struct log_reader;
int log_reader_start(struct haul_ctrl *ctrl,
	void (*done)(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
		const char *why, struct haul_discovery_log *log),
	void *context) must_check;
/*
 * The entry to connect to of the only NVM subsystem in LOG; NULL with ret_result and a text in WHY
 * when there is none or more than one.
 */
const struct haul_discovery_entry *discovery_choose(const struct haul_discovery_log *log,
	const struct nvme_uri *uri, int *ret_result, char *why, size_t why_size);

/* Puts ENTRY's address into URI, except a wildcard one. */
void discovery_apply(const struct haul_discovery_entry *entry, struct nvme_uri *uri);

/* --- limits.c ------------------------------------------------------------------------------- */

struct nvme_id_ctrl;
struct nvme_id_ctrl_nvm;
/* Checks Identify Controller and takes what is needed into ctrl->limits. */
int limits_read(struct haul_ctrl *ctrl, const struct nvme_id_ctrl *id, char *why,
	size_t why_size) must_check;
void limits_read_nvm(struct haul_ctrl *ctrl, const struct nvme_id_ctrl_nvm *id);

/* --- host.c --------------------------------------------------------------------------------- */

/* Who we are. NQN and ID may be NULL. -EINVAL with a text in WHY. */
int host_identity(const char *nqn, const char *id, char ret_nqn[NVME_NQN_MAX + 1],
	struct nvme_uuid *ret_id, char *why, size_t why_size) must_check;

/* --- options.c ------------------------------------------------------------------------------ */

/* The URI's options on top of CTRL's. -EINVAL with a text in WHY. */
int options_read(struct haul_ctrl *ctrl, const struct haul_ctrl_options *options, char *why,
	size_t why_size) must_check;

#endif
