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
	struct rdma_recv *recvs;
	struct loop_flush ended; /* for what has nothing to be drained */
	int error;		 /* why it is FAILING */
	char why[RDMA_QUEUE_WHY_BYTES];
};

/* In request->transport. */
struct rdma_request {
	struct rdma_op op; /* the SEND of the command */
	struct buf *bounce;
	struct bufpool_wait wait; /* for BOUNCE */
	bool waiting;		  /* in the pool's FIFO: not sent yet */
	bool sent;		  /* the SEND has completed */
	bool answered;		  /* CQE is here */
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
	struct rdma_loop rdma;
};

/* transport_rdma_io.c */
void rdma_queue_submit(struct haul_queue *queue, struct haul_request *request);
void rdma_queue_answered(struct rdma_ep *ep, struct rdma_recv *recv);
/* The endpoint is drained, or there never was one: every request that is out comes back. */
void rdma_queue_end_requests(struct haul_transport_queue *tq);

/* transport_rdma_mem.c */
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
