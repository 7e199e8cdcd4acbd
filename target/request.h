/* SPDX-License-Identifier: MIT */
/*
 * One command of a host on its way through the target. Its state names the one party that holds
 * it; request_hand_to() is the only place that changes it and checks the step against a table.
 */
#ifndef HAUL_TARGET_REQUEST_H
#define HAUL_TARGET_REQUEST_H

#include "proto/base/bufpool.h"
#include "proto/base/list.h"
#include "proto/nvme/nvme.h"
#include "proto/nvme/sgl.h"
#include "proto/nvme/status.h"
#include "target/backend.h"
#include "target/share.h"

struct conn;
struct cmd;
struct reactor_ns;
struct revoke;

enum request_state {
	REQUEST_FREE,	  /* the connection's slots */
	REQUEST_CORE,	  /* code running now; never across a turn */
	REQUEST_HELD,	  /* the controller: an asynchronous event request; the connection: one
			     of a fused pair that waits for the other, or a command that came when
			     the target was about to end */
	REQUEST_WAIT_BUF, /* its host's share, then the pool; the second of a
			     fused pair: the first, which has a buffer for both */
	REQUEST_PULL,	  /* the transport fetches data from the host */
	REQUEST_EXEC,	  /* a backend, the lock of a range, or a message to another reactor */
	REQUEST_REPLY,	  /* the transport sends data and response */
};
#define REQUEST_NR_STATES (REQUEST_REPLY + 1)

enum request_direction { REQUEST_NO_DATA, REQUEST_FROM_HOST, REQUEST_TO_HOST };

/* Room for the transport's own state of a request, so that one slot is one allocation. */
#define REQUEST_TRANSPORT_BYTES 256

struct request {
	struct conn *conn;
	enum request_state state;
	uint32_t index;	  /* of the connection's slots */
	struct list node; /* in the list of whoever holds it */

	/* Filled by the transport before request_received(). */
	struct nvme_cmd cmd; /* a copy: the capsule's memory may be reused early */
	uint32_t inline_len; /* bytes of in-capsule data that came with it */
	void *inline_bytes;  /* RDMA: they are here already, aligned for direct I/O, until reply();
				TCP: NULL, still in the stream */
	int inline_loop_buffer; /* loop's registration of inline_bytes, or LOOP_BUFFER_NONE */

	/* Set by the core. */
	enum request_direction direction;
	uint32_t data_len;    /* bytes that move between host and BYTES */
	uint32_t scratch_len; /* bytes in BUF behind them that the command itself needs */
	void *bytes;	      /* in BUF or, without a copy, inline_bytes */
	int loop_buffer;      /* of BYTES */
	struct buf *buf;      /* owned here when not NULL */
	struct nvme_cqe cqe;  /* the response */

	const struct cmd *command; /* row of the command table; NULL: none such */
	struct reactor_ns *ns;	   /* the namespace of an I/O command: request_set_ns() */
	bool awaited;		   /* somebody waits for its end while EXEC: request_over() */
	struct revoke *awaited_by; /* ... such a one; mostly NULL */
	struct list fenced;	   /* ... of a struct fence: target/fence.h */
	uint32_t nr_parts;	   /* of a command made of several I/Os: the next one */
	/* Of an I/O that is to be the last of its command: target/abort.c. */
	void (*part_done)(struct done *done, int res, unsigned flags);
	struct share_claim claim; /* of BUF */
	struct list moving;	  /* while PULL or REPLY: the connection's */
	uint64_t moving_since_ns;
	struct request *partner; /* of a fused pair: the other one, see target/fused.h */
	uint16_t fused_status;	 /* ... 0, or what it ends with when its data is here */
	struct revoke *awaited_by_too;

	struct backend_io io;	     /* while EXEC */
	struct loop_message message; /* while EXEC on another reactor */

	/* The transport's, never the core's. */
	_Alignas(16) unsigned char transport[REQUEST_TRANSPORT_BYTES];

	/* The core's: the host's memory, bounds-checked. Long, and most commands use its start
	 * only. */
	struct nvme_sgl sgl;
};

/* --- called by transports, on the connection's reactor ------------------------------------- */

/* A free request in state CORE, or NULL: the host has more commands out than its queue is deep. */
struct request *request_get(struct conn *conn);
/* cmd and inline_* are set: the core takes it from here. It may call ops->pull() or ops->reply()
 * before this returns. */
void request_received(struct request *request);
/* The answer to ops->pull(): all data_len bytes are at BYTES (STATUS 0), or an NVMe status without
 * effect on the connection (e.g. a data digest error). */
void request_pulled(struct request *request, uint16_t status);
/* The answer to ops->reply(): the response has left, the request is free again. */
void request_sent(struct request *request);
/* Gives back a request that the transport still holds (PULL or REPLY) while the connection closes.
 */
void request_flushed(struct request *request);

/* --- called by the core and its commands --------------------------------------------------- */

/* Changes a request's state; nothing else does. */
void request_hand_to(struct request *request, enum request_state state);

/* The command is for NS, or for another one than before; NULL: for none. */
void request_set_ns(struct request *request, struct reactor_ns *ns);

/* Ends the command with STATUS (0, or with DNR where a retry is no use): response to the host, or,
 * on a connection that closes, nothing. From CORE, HELD or EXEC. */
void request_complete(struct request *request, uint16_t status);

/* CORE to EXEC: the backend has request->io (op, offset, extent or length, flags are set). DONE
 * runs on this reactor; it takes the request back with request_executed(). */
void request_submit(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags));

/* Where the scratch_len bytes begin: at a multiple of the namespace's block size. */
void *request_scratch(const struct request *request);

/* EXEC to CORE. False when the connection is closing: the request is gone. */
bool request_executed(struct request *request) must_check;

/* When the host must have done its part of a request in PULL or REPLY. */
uint64_t request_deadline_ns(const struct request *request);
/* In EXEC: an I/O that a locked range has held back begins; it may be that nobody wants it any
 * more. */
void request_resume_io(struct request *request);
/* In EXEC: ends with -ECANCELED what a locked range holds back. False: nothing does. */
bool request_cancel_io(struct request *request);

void request_set_buffer(struct request *request, struct buf *buf);
/* In CORE, with a buffer: the data is brought, then the command runs. */
void request_bring(struct request *request);
/* Takes a HELD or WAIT_BUF request out of every list it is in. */
void request_unlist(struct request *request);

/* The transport's device may write to the request's buffer for ever. */
void request_abandon_buffer(struct request *request);

/* Completes command CID of the connection as aborted if it waits for a buffer; false: it does not.
 */
bool request_abort_waiting(struct conn *conn, uint16_t cid);

/* Ends a command in WAIT_BUF or HELD with STATUS. */
void request_abort(struct request *request, uint16_t status);

/* Takes a HELD or WAIT_BUF request back and frees it: the connection is closing. */
void request_drop(struct request *request);

#endif
