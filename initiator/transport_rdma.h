/* SPDX-License-Identifier: MIT */
/*
 * The RDMA transport's own structures: what transport_rdma*.c share and nobody else sees.
 */
#ifndef HAUL_INITIATOR_TRANSPORT_RDMA_H
#define HAUL_INITIATOR_TRANSPORT_RDMA_H

#include "initiator/loop_private.h"
#include "initiator/transport.h"
#include "proto/link/rdma_ep.h"
#include "proto/link/rdma_loop.h"

enum rdma_queue_state {
	RDMA_QUEUE_IDLE,
	RDMA_QUEUE_ADDRESS,    /* is being resolved */
	RDMA_QUEUE_ROUTE,      /* is being resolved */
	RDMA_QUEUE_CONNECTING, /* the connection request is out */
	RDMA_QUEUE_LIVE,
	RDMA_QUEUE_FAILING,	  /* drains; then haul_queue_connected() with an error */
	RDMA_QUEUE_DISCONNECTING, /* drains; then haul_queue_quiesced() */
	RDMA_QUEUE_CLOSED,
};

#define RDMA_QUEUE_WHY_BYTES 200

/* A command and, behind it, the list of its descriptors. */
#define RDMA_CAPSULE_BYTES \
	(sizeof(struct nvme_cmd) + NVME_SGL_MAX_PIECES * sizeof(struct nvme_sgl_desc))

/* Of a queue with keys=io; all zero without. */
struct rdma_windows {
	struct ibv_mw **all;
	uint32_t nr;
	struct ibv_mw **spare; /* NR_SPARE of them: nobody's */
	uint32_t nr_spare;
	uint32_t depth;		 /* commands that may be out */
	uint32_t nr_holders;	 /* ... and have windows */
	struct rdma_bind *binds; /* NVME_SGL_MAX_PIECES for each command */
};

struct haul_transport_queue {
	struct haul_queue *queue;
	enum rdma_queue_state state;
	unsigned nr_late; /* times that the address was not resolved in time */
	struct rdma_cm_owner owner;
	struct rdma_cm_id *id;
	struct rdma_dev *dev;
	bool has_ep; /* it has to be drained */
	struct rdma_ep ep;
	struct rdma_memory memory; /* DEPTH capsules, then DEPTH + 1 responses */
	struct rdma_windows windows;
	struct rdma_recv *recvs;
	struct loop_flush ended; /* for what has nothing to be drained */
	int error;		 /* why it is FAILING */
	char why[RDMA_QUEUE_WHY_BYTES];
};

/* In request->transport. */
struct rdma_request {
	struct rdma_op op; /* the SEND of the command; then keys are taken back */
	struct buf *bounce;
	struct bufpool_wait wait; /* for BOUNCE */
	bool waiting;		  /* in the pool's FIFO: not sent yet */
	bool sent;		  /* the SEND has completed */
	bool answered;		  /* CQE is here */
	uint32_t nr_lent;	  /* windows, in OP.binds */
	uint32_t nr_valid;	  /* ... whose keys are still good, the first of them */
	struct nvme_cqe cqe;
};
static_assert(sizeof(struct rdma_request) <= HAUL_REQUEST_TRANSPORT_BYTES);

static inline struct rdma_request *rdma_request(struct haul_request *request)
{
	return (struct rdma_request *)(void *)request->transport;
}

/* What a loop keeps of RDMA. */
struct haul_transport_loop {
	struct haul_loop *hl;
	bool key_per_io; /* of all queues: memory is registered once, in one way or the other */
	struct rdma_loop rdma;
};

/* The data of a command as stretches of registered memory. */
struct rdma_map {
	uint32_t nr;
	struct {
		uintptr_t addr;
		uint32_t len;
		struct ibv_mr *mr;
	} piece[NVME_SGL_MAX_PIECES];
};

/* transport_rdma_io.c */
void rdma_queue_submit(struct haul_queue *queue, struct haul_request *request);
void rdma_queue_answered(struct rdma_ep *ep, struct rdma_recv *recv);
/* The endpoint is drained, or there never was one: every request that is out comes back. */
void rdma_queue_end_requests(struct haul_transport_queue *tq);

/* transport_rdma_window.c: nothing happens without keys=io */
/* -EOPNOTSUPP: the device has none. -ENOSPC: it has not enough. */
int rdma_windows_get(struct haul_transport_queue *tq) must_check;
/* The queue pair is in error, and has to be there still; regions cannot go before their windows. */
void rdma_windows_put(struct haul_transport_queue *tq);
/* One may always be taken by a command that has none. */
bool rdma_windows_may_take(const struct haul_transport_queue *tq, uint32_t nr);
/* For the memory of MAP: sets OP's binds. */
void rdma_windows_take(struct haul_transport_queue *tq, const struct haul_request *request,
	const struct rdma_map *map, struct rdma_op *op);
/* Their keys are invalid. */
void rdma_windows_give_back(struct haul_transport_queue *tq, struct rdma_request *rr);

/* transport_rdma_mem.c */
/* How memory is registered, the caller's and the pool's. */
int rdma_mem_access(bool key_per_io);
int rdma_mem_register(struct haul_loop *hl, struct haul_mem *mem) must_check;
void rdma_mem_unregister(struct haul_loop *hl, struct haul_mem *mem);
/* DEV keeps a queue pair that must not touch the caller's memory any more: takes all keys of it
 * back. I/O on DEV goes through buffers of the pool from now on. */
void rdma_mem_revoke(struct haul_loop *hl, struct rdma_dev *dev);
int rdma_mem_dev_added(struct rdma_devs *devs, struct rdma_dev *dev) must_check;
void rdma_mem_dev_removed(struct rdma_devs *devs, struct rdma_dev *dev);
static inline struct ibv_mr *rdma_mem_mr(const struct haul_mem *mem, const struct rdma_dev *dev)
{
	return mem->keys[dev->registrar.index];
}

#endif
