/* SPDX-License-Identifier: MIT */
/*
 * libhaul: attach namespaces of NVMe over Fabrics targets (RDMA and TCP) from user space.
 *
 * The library has no threads of its own that call you, no callbacks and no locks. A struct
 * haul_loop and everything made from it belong to one thread at a time. Operations are started with
 * a call that returns at once: 0, or a negative errno when nothing was started and no event will
 * come. What was started ends exactly once, as a struct haul_event that haul_loop_poll() or
 * haul_loop_wait() hands out, in the order in which things ended. As nothing is called back, every
 * function may be called while events are being handled: submit, close, disconnect, free, connect
 * anew.
 *
 * Time passes only while the loop is turned (haul_loop_poll, haul_loop_wait): keep-alives are
 * sent and deadlines are checked there and nowhere else.
 *
 * Sizes and offsets are in bytes, times in the unit of their name. Errors are negative errno
 * values; the NVMe status, where there is one, is beside it in the event. Paragraphs are those of
 * NVMe base 2.0.
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

/* "0.1.0". Any thread. */
const char *haul_version(void);

/* --- the loop -------------------------------------------------------------------------------- */

struct haul_loop_options {
	size_t size;	    /* sizeof(struct haul_loop_options): fields may be added at the end */
	const char *engine; /* NULL or "auto", "io_uring", "epoll" */
	uint32_t spin_us;   /* how long haul_loop_wait() polls before it sleeps; 0: not at all */
};

struct haul_event {
	uint64_t user_data; /* as given to the call that started it */
	int result;	    /* 0 or a negative errno */
	uint16_t status;    /* NVMe status without phase bit (SC, SCT, CRD, M, DNR); 0: none came */
	uint64_t value;	    /* dwords 0 and 1 of the completion (haul_admin()), otherwise 0 */
};

/*
 * Makes a loop; *RET is the caller's, with haul_loop_destroy(). OPTIONS may be NULL (engine "auto",
 * 20 us). It may be made on one thread and used on another; after a fork it is the parent's alone
 * (libhaul(3) tells more).
 * -EINVAL: unknown engine or option size. -ENOSYS, -EPERM: the engine asked for is refused here.
 * -ENOMEM, -EMFILE.
 */
int haul_loop_create(const struct haul_loop_options *options, struct haul_loop **ret);

/*
 * Frees the loop; NULL is allowed. All controllers and memory regions have been freed before. May
 * wait for a name look-up that is still under way.
 */
void haul_loop_destroy(struct haul_loop *loop);

/* "io_uring" or "epoll". The text lives as long as the loop. */
const char *haul_loop_engine(const struct haul_loop *loop);

/*
 * A descriptor for an outer event loop (poll, epoll): readable when there is something to do, once
 * haul_loop_arm() has returned 0. It stays the loop's. Negative errno: none is left (-EMFILE).
 */
int haul_loop_fd(struct haul_loop *loop);

/*
 * To be called before the outer loop sleeps. 1: there are events, work, or commands whose doorbell
 * has not been rung: call haul_loop_poll() instead of sleeping. 0: the descriptor will tell.
 * Negative errno: it cannot be armed.
 */
int haul_loop_arm(struct haul_loop *loop);

/*
 * One turn: sends what was started since the last (one doorbell for all of it), looks for what has
 * ended and moves up to NR of it into EVENTS. Never blocks. NR may be 0: then it only sends and
 * looks. Returns the number of events (0 to NR); what did not fit is handed out next time.
 */
int haul_loop_poll(struct haul_loop *loop, struct haul_event *events, unsigned nr);

/*
 * Turns until there is at least one event or TIMEOUT_NS nanoseconds have passed (negative: no
 * limit, 0: as haul_loop_poll()). Sleeps when there is nothing to do. Returns the number of events,
 * 0 after the timeout, or -EINTR when a signal handler called haul_loop_interrupt().
 */
int haul_loop_wait(
	struct haul_loop *loop, struct haul_event *events, unsigned nr, int64_t timeout_ns);

/*
 * Makes the present or next haul_loop_wait() return -EINTR. The one function that any thread and
 * any signal handler may call while the loop exists.
 */
void haul_loop_interrupt(struct haul_loop *loop);

/*
 * Why the last haul_connect() on this loop that failed did so, in one line: URI, step, reason, what
 * to try. "" when none has. The text lives until the next failure.
 */
const char *haul_loop_error(const struct haul_loop *loop);

struct haul_loop_stats {
	uint64_t nr_commands; /* sent on I/O queues */
	uint64_t nr_bytes_read, nr_bytes_written;
	uint64_t nr_bounced; /* commands whose data was copied since its memory is not registered */
	uint64_t nr_errors;  /* commands that ended with an error */
	uint64_t nr_timeouts;
	uint64_t nr_syscalls;			  /* of the loop */
	uint64_t nr_doorbells;			  /* RDMA: posts of work requests; TCP: sends */
	uint64_t nr_registered, registered_bytes; /* regions that are registered now */
	uint64_t nr_keys;			  /* keys=io: keys that targets were given */
	uint64_t nr_keys_taken_back;		  /* ... that they left to us to invalidate */
};
/* Counters since the loop was made; *RET is filled whole. */
void haul_loop_stats(const struct haul_loop *loop, struct haul_loop_stats *ret);

/* --- controllers ------------------------------------------------------------------------------ */

/* To be filled by haul_ctrl_options_init() with the defaults, in brackets here, and then changed.
 * Texts are copied. NULL as text is the default, too. */
struct haul_ctrl_options {
	size_t size;		/* sizeof(struct haul_ctrl_options) */
	const char *host_nqn;	/* [/etc/nvme/hostnqn, else one derived from the machine id] */
	const char *host_id;	/* UUID text [/etc/nvme/hostid, else the UUID in the host's NQN] */
	uint32_t keep_alive_ms; /* KATO; 0: none [15000] */
	uint32_t connect_timeout_ms; /* for the whole connect [10000] */
	uint32_t command_timeout_ms; /* for each command; 0: none [30000] */
	uint32_t header_digest;	     /* 1: with it, or -EOPNOTSUPP; TCP only [0] */
	uint32_t data_digest;	     /* likewise [0] */
	uint32_t tos;		     /* IP traffic class, 1 to 255; 0: the system's [0] */
	uint32_t max_queues;	     /* I/O queues to ask for, 1 to 128 [128] */
	uint32_t keys;		     /* enum haul_keys; RDMA only [HAUL_KEYS_REGION] */
};

/*
 * Under which keys an RDMA target reaches the caller's memory. HAUL_KEYS_REGION: each registered
 * region has one, for as long as it is registered: fast, and the target is trusted with the region.
 * HAUL_KEYS_IO: each command has its own, good for just its range and direction (a memory window of
 * type 2, NVMe RDMA 1.0 2.3.2) and invalid before the command's event. All RDMA controllers of a
 * loop have the same, the first decides (others: -EBUSY).
 */
enum haul_keys { HAUL_KEYS_REGION, HAUL_KEYS_IO };

/* Fills OPTIONS, size included. */
void haul_ctrl_options_init(struct haul_ctrl_options *options);

/*
 * Connects to the controller that URI names (rdma:// or tcp://, see haul(1)): admin queue, Connect
 * (NVMe-oF 6.3), enabling (3.5.1), Identify, number of queues, namespaces. OPTIONS may be NULL; the
 * URI's own options override it. Without an NQN it asks discovery at that address and takes the
 * only subsystem there is.
 *
 * On 0, *RET is valid at once and is to be freed with haul_ctrl_free() whatever the event says. It
 * ends as an event; haul_ctrl_error() has the words. Results: -EINVAL (URI or option; then at once
 * and only haul_loop_error() has the words), -ENOTUNIQ (several subsystems: they are listed in the
 * text), -ENOENT (no subsystem, or no namespace with the URI's NSID), -ETIMEDOUT, -ECONNREFUSED,
 * -EACCES (host not allowed), -EPROTO (the target breaks the specification), -EOPNOTSUPP (what it
 * offers cannot be used), -ECANCELED (haul_disconnect() came first), or another errno of the
 * transport or of the status of the command that failed.
 */
int haul_connect(struct haul_loop *loop, const char *uri, const struct haul_ctrl_options *options,
	uint64_t user_data, struct haul_ctrl **ret);

/*
 * Ends the association: I/O still out ends with -ECANCELED, queues are closed (their handles remain
 * to be closed by haul_queue_close()), then the controller is shut down (3.6.1) and the
 * connection is closed. Ends as an event with result 0, the last of this controller; also when the
 * association was lost before. A connect that is under way ends with -ECANCELED first. -EALREADY:
 * asked for already.
 */
int haul_disconnect(struct haul_ctrl *ctrl, uint64_t user_data);

/*
 * Frees CTRL, its queues and all their handles; NULL is allowed. After the disconnect's event it
 * returns at once; otherwise it cuts the connections, turns the loop until nothing can touch the
 * caller's memory any more (milliseconds; bounded) and drops the events of this controller.
 */
void haul_ctrl_free(struct haul_ctrl *ctrl);

/*
 * What went wrong last on this controller, in one line; "" when nothing has. After a connect
 * without an NQN that worked: which referrals were passed over. Lives as long as CTRL.
 */
const char *haul_ctrl_error(const struct haul_ctrl *ctrl);

/* 1 from the connect's event until the association is lost or ended: a command may be started. */
int haul_ctrl_is_live(const struct haul_ctrl *ctrl);

struct haul_ctrl_info {
	uint16_t cntlid;
	char subsystem_nqn[224];
	char host_nqn[224];
	char transport[8]; /* "rdma" or "tcp" */
	char address[64];  /* numeric, with the port: 192.0.2.1:4420, [2001:db8::1]:4420 */
	char serial[21], model[41], firmware[9];
	uint32_t version;	     /* VS */
	uint32_t max_transfer_bytes; /* of one command; larger I/O is split by the library */
	uint32_t max_queue_depth;    /* commands out at once on an I/O queue */
	uint32_t max_queues;	     /* I/O queues granted; 0: discovery controller */
	uint32_t in_capsule_bytes;   /* data an I/O command may carry in its capsule */
	uint32_t keep_alive_ms;	     /* 0: none */
	uint32_t max_segments;	     /* data descriptors a command may hold (MSDBD) */
};
/* After a connect that succeeded. -ENOTCONN: there was none. *RET is filled whole. */
int haul_ctrl_info(const struct haul_ctrl *ctrl, struct haul_ctrl_info *ret);

/*
 * Any admin command (5): OPCODE and its command dwords 10 to 15 in CDW; DATA_LEN bytes from BYTES
 * (TO_HOST 0) or to it, which are the library's until the event. The event has the status and, in
 * value, dwords 0 and 1. -EAGAIN: 24 commands are out. -EINVAL: DATA_LEN is no multiple of 4, is
 * more than a command may move, or the opcode is one the library needs for itself (Keep Alive,
 * Asynchronous Event Request, Fabrics). -ENOTCONN.
 */
int haul_admin(struct haul_ctrl *ctrl, uint8_t opcode, uint32_t nsid, const uint32_t cdw[6],
	void *bytes, uint32_t data_len, int to_host, uint64_t user_data);

/* --- namespaces ------------------------------------------------------------------------------- */

struct haul_ns_info {
	uint32_t nsid;
	uint32_t block_bytes;
	uint64_t nr_blocks;
	uint64_t capacity_blocks, used_blocks;
	uint8_t uuid[16], nguid[16], eui64[8]; /* zero where there is none */
	int read_only;			       /* write protected now (NSATTR) */
	int can_discard, can_write_zeroes, volatile_cache;
	uint32_t max_discard_blocks; /* of one command, as write zeroes; larger ones are split */
	uint32_t max_write_zeroes_blocks;
};

/* The ids of active namespaces read at connect, ascending: up to NR into NSIDS. Returns how many
 * there are. */
int haul_ns_list(const struct haul_ctrl *ctrl, uint32_t *nsids, unsigned nr);

/*
 * The NSID of the URI, or of the only active namespace. It is known to the queues as of the
 * connect; others are after haul_ns_info(). -ENOTUNIQ: several, haul_ns_list() has them. -ENOENT:
 * none. -ENOTCONN.
 */
int64_t haul_ns_default(const struct haul_ctrl *ctrl);

/*
 * Reads size, format and identifiers of a namespace (5.17.2.1, 5.17.2.3) and makes it known to all
 * queues of CTRL. Ends as an event; *RET is the library's until then and is filled only when the
 * result is 0. -ENOENT: not an active one. -EOPNOTSUPP: a format that cannot be used (metadata,
 * block size below 512 or above 64 KiB). -EPROTO: nonsense. -EAGAIN, -ENOMEM, -ENOTCONN.
 */
int haul_ns_info(
	struct haul_ctrl *ctrl, uint32_t nsid, struct haul_ns_info *ret, uint64_t user_data);

/* --- discovery -------------------------------------------------------------------------------- */

struct haul_discovery_entry {
	char transport[8]; /* "rdma", "tcp", "fc", "loop" or the number */
	char address[257], service[33];
	char subsystem_nqn[224];
	uint8_t subtype;	/* 1 referral, 2 NVM subsystem, 3 the discovery subsystem asked */
	uint8_t address_family; /* 1 IPv4, 2 IPv6 */
	uint8_t treq;
	uint16_t eflags;
	uint16_t portid, cntlid;
	uint8_t tsas[256]; /* as on the wire */
};
struct haul_discovery_log {
	uint64_t generation;
	uint32_t nr;
	struct haul_discovery_entry entries[];
};
/*
 * Reads the discovery log (5.16.1.23) in pieces until generation and number of entries are the same
 * before and after, at most 8 times. CTRL is connected to a discovery subsystem. Ends as an event;
 * *RET is the library's until then, and when the result is 0 it points to a log that is the
 * caller's, with free(). Addresses are printable text, names, too, or as sent when they are UTF-8
 * without control characters. Referrals are listed, not followed. -EAGAIN: it changed each time, or
 * too many commands are out (at once). -EMSGSIZE: more than 4096 entries. -EPROTO. -EINVAL: not a
 * discovery controller. -ENOMEM, -ENOTCONN.
 */
int haul_discover(struct haul_ctrl *ctrl, struct haul_discovery_log **ret, uint64_t user_data);

/* --- queues and I/O ----------------------------------------------------------------------------
 */

struct haul_queue_options {
	size_t size;	/* sizeof(struct haul_queue_options) */
	uint32_t depth; /* I/Os out at once, 1 to 4096; default 128; less where the target or the
			   device allows less */
};

/*
 * Makes an I/O queue: connection and Connect (NVMe-oF 3.3). OPTIONS may be NULL. On 0, *RET is
 * valid at once and takes I/O after the event; close it whatever the event says. A queue that
 * cannot be made leaves the controller and its other queues alone. -EUSERS: all queues that the
 * target granted are in use. -EINVAL, -ENOMEM, -ENOTCONN.
 */
int haul_queue_create(struct haul_ctrl *ctrl, const struct haul_queue_options *options,
	uint64_t user_data, struct haul_queue **ret);

/*
 * Closes the queue: I/O still out ends with -ECANCELED (what the target had done by then is not
 * known), then the close ends as an event with result 0 and the handle is gone. -EALREADY: asked
 * for already.
 */
int haul_queue_close(struct haul_queue *queue, uint64_t user_data);

/* How many I/Os can be out at once; final after the event of haul_queue_create(). */
uint32_t haul_queue_depth(const struct haul_queue *queue);

/*
 * I/O. Each ends as one event, however many commands it takes: more than one when it is larger than
 * a command may be (MDTS and others) or has more than 16 pieces. Then parts of a failed write may
 * be on the medium; result and status are of the first part that failed.
 *
 * At once: -EAGAIN: as many I/Os as the queue's depth are out (an I/O is out until its event has
 * been handed out): take events first. -EINVAL: offset or length not in whole blocks, beyond the
 * end, zero, more than HAUL_IO_MAX_IOV pieces, or a block in more than 16 pieces. -ENODEV: the
 * namespace is not known (haul_ns_info()). -EOPNOTSUPP: the target has no such command. -ENOTCONN:
 * the queue is not live. In the event: -ETIMEDOUT, -ECANCELED, -ECONNRESET (and others of the
 * transport) when the association was lost, otherwise the status and its errno: -EIO, -ENOSPC,
 * -EROFS, -EBUSY, -EREMOTEIO, -ENODEV...
 *
 * IOV is copied; what it points at is the library's until the event: only then can nothing, the
 * remote side included, touch it any more.
 */
#define HAUL_IO_MAX_IOV 1024u
int haul_readv(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset_bytes, uint64_t user_data);

/* HAUL_FUA: on the medium, not only in a cache, when it ends. Other FLAGS: -EINVAL. */
#define HAUL_FUA 1u
int haul_writev(struct haul_queue *queue, uint32_t nsid, const struct iovec *iov, unsigned nr_iov,
	uint64_t offset_bytes, unsigned flags, uint64_t user_data);

/* What was written (with its event) before this was started is on the medium when it ends. */
int haul_flush(struct haul_queue *queue, uint32_t nsid, uint64_t user_data);

/* Tells the target that the blocks are not needed (Dataset Management, deallocate). */
int haul_discard(struct haul_queue *queue, uint32_t nsid, uint64_t offset_bytes,
	uint64_t length_bytes, uint64_t user_data);

/* HAUL_DEALLOCATE: the target may deallocate the blocks; HAUL_FUA. */
#define HAUL_DEALLOCATE 2u
int haul_write_zeroes(struct haul_queue *queue, uint32_t nsid, uint64_t offset_bytes,
	uint64_t length_bytes, unsigned flags, uint64_t user_data);

/* --- memory -------------------------------------------------------------------------------------
 */

/*
 * Registers the caller's memory for all transports of the loop, those used later included; I/O
 * finds it by address. I/O in memory that is not registered goes through a bounce buffer on RDMA
 * (nr_bounced in struct haul_loop_stats). The memory stays the caller's and must stay mapped until
 * haul_mem_unregister(). -EEXIST: overlaps a registered region. -EINVAL: empty. -ENOMEM: also when
 * locked memory is short (ulimit -l).
 */
int haul_mem_register(struct haul_loop *loop, void *base, size_t length, struct haul_mem **ret);

/* No I/O in it is out. NULL is allowed. */
void haul_mem_unregister(struct haul_mem *mem);

/* --- status --------------------------------------------------------------------------------------
 */

/* A text for an NVMe status; never NULL, constant. Any thread. */
const char *haul_status_text(uint16_t status);

#ifdef __cplusplus
}
#endif

#endif
