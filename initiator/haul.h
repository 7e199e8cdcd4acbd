/* SPDX-License-Identifier: MIT */
/*
 * libhaul: attach namespaces of NVMe over Fabrics targets (RDMA and TCP) from user space.
 *
 * The library has no threads, no locks and calls nothing back. A struct haul_loop and everything
 * made from it belong to one thread at a time. Operations are started with a call that returns at
 * once (0, or a negative errno when nothing was started) and end exactly once as a struct
 * haul_event that haul_loop_poll() or haul_loop_wait() hands out.
 *
 * Sizes are in bytes, block addresses and counts in logical blocks of the namespace. Errors are negative errno
 * values; the NVMe status, where there is one, is beside it in the event.
 */
#ifndef HAUL_H
#define HAUL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct haul_loop;
struct haul_ctrl;
struct haul_queue;
struct haul_mem;

/* --- the loop -------------------------------------------------------------------------------- */

struct haul_loop_options {
	size_t size;		/* sizeof(struct haul_loop_options): fields may be added at the end */
	const char *engine;	/* "auto" (NULL), "io_uring" or "epoll" */
	uint32_t spin_us;	/* how long haul_loop_wait() polls before it sleeps; default 20 */
};

struct haul_event {
	uint64_t user_data;	/* as given to the call that started it */
	int result;		/* 0 or a negative errno */
	uint16_t status;	/* NVMe status field without phase bit (SCT, SC, CRD, M, DNR), 0 when there was none */
	uint64_t value;		/* command dwords 0 and 1 of the completion, where they have a meaning */
};

int haul_loop_create(const struct haul_loop_options *options, struct haul_loop **ret);
/* Every controller has been freed. */
void haul_loop_destroy(struct haul_loop *loop);
/* A descriptor that becomes readable when there is something to do, after haul_loop_arm() returned 0. */
int haul_loop_fd(const struct haul_loop *loop);
/* 1: events are there (or work is): call haul_loop_poll() before sleeping. */
int haul_loop_arm(struct haul_loop *loop);
/* Never blocks. Rings doorbells for what was started before it. Returns the number of events (0..NR). */
int haul_loop_poll(struct haul_loop *loop, struct haul_event *events, unsigned nr);
/* Blocks until there is at least one event or the time is over (negative: no limit). */
int haul_loop_wait(struct haul_loop *loop, struct haul_event *events, unsigned nr, int64_t timeout_ns);

/* The message that explains the last failure of CTRL's or the loop's connect in words (which URI, which step, why, what to try). */
const char *haul_loop_error(const struct haul_loop *loop);

/* --- controllers ------------------------------------------------------------------------------ */

struct haul_ctrl_options {
	size_t size;
	const char *host_nqn;	/* NULL: /etc/nvme/hostnqn, else one derived from the machine id */
	const char *host_id;	/* NULL: /etc/nvme/hostid, else derived likewise; UUID text */
	uint32_t keep_alive_ms; /* default 15000; 0: none */
	uint32_t connect_timeout_ms; /* default 10000; for the whole connect */
	uint32_t command_timeout_ms; /* default 30000; for each command, admin and I/O; 0: none */
	uint32_t header_digest;	/* TCP: ask for it */
	uint32_t data_digest;	/* TCP */
	uint32_t tos;		/* traffic class */
};

/*
 * Connects to the controller that URI names (rdma:// or tcp://, see haul(1)); its options override OPTIONS.
 * Without an NQN it asks discovery and takes the only subsystem there is; fails with -ENOTUNIQ and a list in haul_ctrl_error().
 * Ends as an event; *RET is valid at once and must be freed with haul_ctrl_free() in any case.
 */
int haul_connect(struct haul_loop *loop, const char *uri, const struct haul_ctrl_options *options,
	uint64_t user_data, struct haul_ctrl **ret);
/* Closes all queues (their commands end first, with -ECANCELED where they were not done), then the association. Ends as an event. */
int haul_disconnect(struct haul_ctrl *ctrl, uint64_t user_data);
/* After the disconnect's event, or a failed connect's; otherwise it cuts the connection and drops all events. */
void haul_ctrl_free(struct haul_ctrl *ctrl);
/* What went wrong last on this controller, in words; "" when nothing has. */
const char *haul_ctrl_error(const struct haul_ctrl *ctrl);

struct haul_ctrl_info {
	uint16_t cntlid;
	char subsystem_nqn[224];
	char host_nqn[224];
	char transport[8];
	char address[64];
	char serial[21], model[41], firmware[9];
	uint32_t version;	     /* VS */
	uint32_t max_transfer_bytes; /* of one command; larger I/O is split by the library */
	uint32_t max_queue_depth;
	uint32_t max_queues;
	uint32_t in_capsule_bytes;
	uint32_t keep_alive_ms;
	uint32_t max_segments;	     /* data descriptors a command may hold */
};
int haul_ctrl_info(const struct haul_ctrl *ctrl, struct haul_ctrl_info *ret);

struct haul_ns_info {
	uint32_t nsid;
	uint32_t block_bytes;
	uint64_t nr_blocks;
	uint64_t capacity_blocks, used_blocks;
	uint8_t uuid[16], nguid[16], eui64[8]; /* zero where there is none */
	int read_only;
	int can_discard, can_write_zeroes, volatile_cache;
	uint32_t max_discard_blocks, max_write_zeroes_blocks;
};
/* The active namespaces, read at connect: up to NR ids into NSIDS, returns how many there are. */
int haul_ns_list(const struct haul_ctrl *ctrl, uint32_t *nsids, unsigned nr);
/* The namespace the URI names, or the only one; negative errno: -ENOTUNIQ. */
int64_t haul_ns_default(const struct haul_ctrl *ctrl);
/* Ends as an event; *RET must live until then. */
int haul_ns_info(struct haul_ctrl *ctrl, uint32_t nsid, struct haul_ns_info *ret, uint64_t user_data);

/* Any admin command: OPCODE's command dwords 10..15 in CDW; DATA_LEN bytes from (TO_HOST 0) or to BYTES. Ends as an event. */
int haul_admin(struct haul_ctrl *ctrl, uint8_t opcode, uint32_t nsid, const uint32_t cdw[6],
	void *bytes, uint32_t data_len, int to_host, uint64_t user_data);

/* --- discovery -------------------------------------------------------------------------------- */

struct haul_discovery_entry {
	char transport[8], address[257], service[33], subsystem_nqn[224];
	uint8_t subtype, address_family, treq, eflags;
	uint16_t portid, cntlid;
	uint8_t tsas[256]; /* as on the wire */
};
struct haul_discovery_log {
	uint64_t generation;
	uint32_t nr;
	struct haul_discovery_entry entries[];
};
/* CTRL is connected to a discovery subsystem (URI with its NQN). *RET is the caller's, with free(). Ends as an event. */
int haul_discover(struct haul_ctrl *ctrl, struct haul_discovery_log **ret, uint64_t user_data);

/* --- queues and I/O ---------------------------------------------------------------------------- */

struct haul_queue_options {
	size_t size;
	uint32_t depth; /* commands out at once; default 128; less where the target or device allows less */
};
/* Ends as an event. *RET is valid at once; close it in any case (also when its creation failed). */
int haul_queue_create(struct haul_ctrl *ctrl, const struct haul_queue_options *options,
	uint64_t user_data, struct haul_queue **ret);
/* Ends as an event after the last event of the queue; the handle is gone then. */
int haul_queue_close(struct haul_queue *queue, uint64_t user_data);
uint32_t haul_queue_depth(const struct haul_queue *queue);

/*
 * I/O. -EAGAIN: the queue is full, take events first. -EINVAL: out of the rules (range, alignment to
 * blocks, iovec count). -ENOTCONN: the queue is gone. IOV is copied; what it points at is the library's until the event:
 * only then can nothing, the remote side included, touch it any more.
 */
int haul_readv(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset_bytes, uint64_t user_data);
#define HAUL_FUA 1u
int haul_writev(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset_bytes, unsigned flags, uint64_t user_data);
int haul_flush(struct haul_queue *queue, uint32_t nsid, uint64_t user_data);
int haul_discard(struct haul_queue *queue, uint32_t nsid, uint64_t offset_bytes, uint64_t length_bytes, uint64_t user_data);
#define HAUL_DEALLOCATE 2u
int haul_write_zeroes(struct haul_queue *queue, uint32_t nsid, uint64_t offset_bytes, uint64_t length_bytes,
	unsigned flags, uint64_t user_data);

/* --- memory ------------------------------------------------------------------------------------- */

/*
 * Registers the caller's memory for all transports of the loop, once; I/O finds it by address. I/O in memory
 * that is not registered goes through a bounce buffer on RDMA (haul_loop_stats tells how often). The
 * memory must stay mapped until haul_mem_unregister(), which no I/O may outlive.
 */
int haul_mem_register(struct haul_loop *loop, void *base, size_t length, struct haul_mem **ret);
void haul_mem_unregister(struct haul_mem *mem);

struct haul_loop_stats {
	uint64_t nr_commands, nr_bytes_read, nr_bytes_written;
	uint64_t nr_bounced;	/* I/Os that were copied */
	uint64_t nr_errors, nr_timeouts;
	uint64_t nr_syscalls, nr_doorbells;
	uint64_t nr_registered, registered_bytes;
};
void haul_loop_stats(const struct haul_loop *loop, struct haul_loop_stats *ret);

const char *haul_version(void);
/* Text of an NVMe status; never NULL. */
const char *haul_status_text(uint16_t status);

#ifdef __cplusplus
}
#endif

#endif
