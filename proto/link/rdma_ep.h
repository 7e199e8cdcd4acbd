/* SPDX-License-Identifier: MIT */
/*
 * An endpoint is one queue pair. Its users hand it operations (fetch data; put data and send a
 * message; send a message) and receives; at the end of the turn it turns them into one chain of
 * work requests, as far as the send queue and the negotiated number of outstanding READs allow,
 * and keeps the rest in order.
 *
 * Signalling: of the work requests of an operation that go into one chain only the last is
 * signalled. Send queues complete in order, so its completion gives back the slots of all before
 * it. It always comes, as success or flushed, and nothing else ends an operation: an error of an
 * earlier work request is only noted. So each operation ends exactly once, when the device has let
 * go of all its memory.
 *
 * The end: rdma_ep_drain() moves the queue pair to error and waits until every operation and
 * receive came back and a signalled sentinel behind them was flushed. LAST_WQE_REACHED is not
 * waited for: soft-RoCE and iWARP never deliver it.
 */
#ifndef HAUL_LINK_RDMA_EP_H
#define HAUL_LINK_RDMA_EP_H

#include <rdma/rdma_cma.h>

#include "proto/link/rdma_dev.h"
#include "proto/link/rdma_srq.h"
#include "proto/nvme/sgl.h"

enum rdma_op_kind {
	RDMA_OP_READ,	    /* remote memory -> BYTES */
	RDMA_OP_SEND,	    /* BYTES -> remote memory (where there are pieces), then the message */
	RDMA_OP_INVALIDATE, /* the keys of BINDS are good for nothing any more */
};

/* A memory window of type 2 that lends the peer a stretch of memory, under a key of its own. */
struct rdma_bind {
	struct ibv_mw *mw;
	struct ibv_mr *mr; /* registered with IBV_ACCESS_MW_BIND */
	uintptr_t addr;
	uint32_t len;
	uint32_t access; /* IBV_ACCESS_REMOTE_READ or _WRITE */
	uint32_t key;	 /* the window's next one: ibv_inc_rkey() */
};

/* One operation. The user's while it is not out; embedded in what waits for it. */
struct rdma_op {
	/* Called once per rdma_ep_post(), never inside it: 0 or a negative errno. */
	void (*ended)(struct rdma_op *op, int result);

	enum rdma_op_kind kind;
	const struct nvme_sgl_piece *pieces; /* live until the end */
	uint32_t nr_pieces;
	uint32_t data_len; /* bytes to move: at most what the pieces hold */
	void *bytes;	   /* registered with the device under LKEY */
	uint32_t lkey;
	uint32_t nr_sges; /* of the message */
	struct ibv_sge sge[RDMA_WR_SGES];
	bool inline_message; /* it fits in the work request: no key needed */
	bool invalidate;     /* SEND with invalidate of INVALIDATE_KEY */
	uint32_t invalidate_key;
	const struct rdma_bind *binds; /* SEND: windows to be bound before the message */
	uint32_t nr_binds;

	/* The endpoint's while it is out. */
	struct rdma_ep *ep;
	struct wc_done last; /* wr_id of work requests that are signalled */
	struct wc_done part; /* wr_id of the others */
	struct list node;
	uint32_t next_piece;
	uint32_t done_len;     /* bytes of all work requests so far */
	uint32_t nr_posted;    /* work requests given to the device */
	uint32_t nr_completed; /* ... and known to be over */
	uint32_t signalled;    /* a bit for each that will complete, by its number */
	bool broken;	       /* the device refused some of it: it ends with the drain */
	int result;
};

struct rdma_recv {
	struct wc_done done;
	struct rdma_ep *ep;
	struct list node; /* the endpoint's until it is posted */
	void *bytes;
	uint32_t length;
	uint32_t lkey;
	uint32_t received_len;
	bool invalidated; /* the peer has invalidated INVALIDATED_KEY with the message */
	uint32_t invalidated_key;
};

/* None of these is called inside a call of the user's; FAILED and DRAINED at the end of a turn. */
struct rdma_ep_ops {
	/* A message, in a slot of the device's SRQ: the user's until rdma_slot_put(). */
	void (*received)(struct rdma_ep *ep, struct rdma_slot *slot);
	/* A message, in a receive of rdma_ep_receive(). */
	void (*message)(struct rdma_ep *ep, struct rdma_recv *recv);
	/* Nothing moves any more; at most once; the user will call rdma_ep_drain(). */
	void (*failed)(struct rdma_ep *ep, int result, const char *why);
	/* May be NULL. Nothing moves any more, but the queue pair is there: for windows bound to
	 * it, which it cannot go before (soft-RoCE waits for them for a minute). */
	void (*flushed)(struct rdma_ep *ep);
	/* Every operation has ended and every receive is back; no hardware touches their memory.
	 * The queue pair is gone. */
	void (*drained)(struct rdma_ep *ep);
};

struct rdma_ep_params {
	uint32_t nr_sends; /* work requests wanted in the send queue; at least RDMA_EP_MIN_SENDS */
	uint32_t nr_recvs; /* receives; 0: those of SRQ */
	struct rdma_srq *srq;
	uint32_t nr_sges;      /* pieces a message may be gathered from */
	uint32_t inline_bytes; /* of a message; what is granted may be less */
};

/* The longest chain (16 WRITEs and a SEND) and the sentinel. */
#define RDMA_EP_MIN_SENDS (NVME_SGL_MAX_PIECES + 2)

enum rdma_ep_state {
	RDMA_EP_IDLE, /* made; operations wait for rdma_ep_established() */
	RDMA_EP_LIVE,
	RDMA_EP_FAILED,	  /* nothing is posted any more */
	RDMA_EP_DRAINING, /* the queue pair is in error */
	RDMA_EP_DRAINED,  /* there is no queue pair */
};

struct rdma_ep {
	const struct rdma_ep_ops *ops;
	struct rdma_dev *dev;  /* the user holds it, like ID, until the queue pair is gone */
	struct rdma_cm_id *id; /* the user's; it must outlive the queue pair */
	struct rdma_srq *srq;  /* NULL: it has receives of its own */
	struct ibv_qp *qp;
	uint32_t qp_num;
	enum rdma_ep_state state;
	struct list node; /* the device's table */

	uint32_t sq_size, sq_used; /* without the sentinel's place */
	uint32_t nr_recvs;
	uint32_t max_reads, nr_reads;
	uint32_t max_sges;
	uint32_t max_inline;
	uint32_t nr_recvs_out;
	uint32_t nr_signalled_out;

	struct list messages; /* operations that wait for room in the send queue */
	struct list reads;    /* READs that wait for room or for a READ to end */
	struct list posted;   /* operations that the device has the whole of */
	struct list broken;   /* ... of which it refused a part: they end with the drain */
	struct list recvs;    /* to be posted */
	struct loop_flush flush;
	struct loop_timer drain_deadline;
	struct wc_done sentinel;
	bool sentinel_out;
	bool failure_told;
	bool expired; /* the drain's deadline is over */
	/* The device would not let go: its memory (buffers of operations that ended with
	 * -ETIMEDOUT) must never be used again. */
	bool stuck;
	int failure;
	const char *failure_why; /* static text */
};

/*
 * Makes the queue pair on ID. Admits itself to the completion queue (-ENOSPC). Granted limits are
 * in the endpoint afterwards. On failure nothing is left.
 */
int rdma_ep_create(struct rdma_ep *ep, const struct rdma_ep_ops *ops, struct rdma_dev *dev,
	struct rdma_cm_id *id, const struct rdma_ep_params *params) must_check;
/* The connection is up, MAX_READS is what was negotiated: work requests may be posted. */
void rdma_ep_established(struct rdma_ep *ep, uint32_t max_reads);
/* OP->kind decides which fields count. Allowed in every state but DRAINED. */
void rdma_ep_post(struct rdma_ep *ep, struct rdma_op *op);
/* At most NR_RECVS are out. */
void rdma_ep_receive(struct rdma_ep *ep, struct rdma_recv *recv);
/* -> drained(), at the end of this turn or a later one. Idempotent. */
void rdma_ep_drain(struct rdma_ep *ep);

/* Instead of drain: before anything was posted or the connection could come up. No callback. */
void rdma_ep_abort(struct rdma_ep *ep);

/* WHY has static storage. -> failed() */
void rdma_ep_fail(struct rdma_ep *ep, int result, const char *why);
/* Asks the device; fails the endpoint when its queue pair is in error. */
void rdma_ep_check(struct rdma_ep *ep, const char *why);
/* For rdma_srq.c. */
void rdma_ep_received(struct rdma_ep *ep, struct rdma_slot *slot);

#endif
