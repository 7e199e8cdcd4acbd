/* SPDX-License-Identifier: MIT */
/*
 * The initiator's transports move capsules and data for a queue; they know no controller, no
 * keep-alive, no time-out and no retry: those exist once, above.
 */
#ifndef HAUL_INITIATOR_TRANSPORT_H
#define HAUL_INITIATOR_TRANSPORT_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "proto/base/bufpool.h"
#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/nvme.h"
#include "initiator/haul.h"

struct haul_transport_queue; /* defined by each transport for itself */
struct haul_transport_loop;  /* what a transport keeps per loop (RDMA: its devices) */

#define HAUL_MAX_IOV 16 /* pieces of one command's data; more are split by queue.c */
#define HAUL_REQUEST_TRANSPORT_BYTES 640

enum haul_request_state {
	HAUL_REQUEST_FREE,
	HAUL_REQUEST_PREPARED, /* code running now */
	HAUL_REQUEST_OUT,      /* the transport: from submit() to haul_request_done() */
	HAUL_REQUEST_DONE,     /* waits for the caller to take its event */
};

/* One command. CID = index in the low bits, generation above, so that a late response finds nobody. */
struct haul_request {
	struct haul_queue *queue;
	enum haul_request_state state;
	uint32_t index;
	uint16_t cid;
	struct nvme_cmd cmd;	/* complete but for the SGL, which submit() fills in */
	int to_host;		/* direction of the data */
	uint32_t data_len;	/* 0: none */
	struct iovec iov[HAUL_MAX_IOV];
	uint32_t nr_iov;
	uint64_t deadline_ns;	/* 0: none; queue.c's */
	struct list node;	/* queue.c's */
	void (*completed)(struct haul_request *request); /* queue.c's: what happens at done */
	uint64_t user_data;
	void *context;		/* the owner's of COMPLETED (a command made of several) */

	int result;		/* set by haul_request_done() */
	struct nvme_cqe cqe;	/* valid when result is 0: a response came */

	_Alignas(16) unsigned char transport[HAUL_REQUEST_TRANSPORT_BYTES];
};

/* What transports see of a queue. queue.c owns it. */
struct haul_queue {
	struct haul_ctrl *ctrl;
	struct haul_loop *hl;
	struct loop *loop;
	struct bufpool *pool;	 /* bounce buffers and the like */
	const struct haul_transport_ops *ops;
	struct haul_transport_queue *transport;
	uint16_t qid;
	uint32_t depth;		 /* commands out at once (entries - 1 with flow control); connect() may lower it (RDMA accept, device limits) */
	struct haul_request *requests; /* DEPTH of them */
	struct sockaddr_storage address;
	uint32_t in_capsule_bytes; /* how much data a command may carry in its capsule (IOCCSZ); admin: 8 KiB on TCP, 0 on RDMA */
	uint32_t max_segments;	   /* MSDBD */
	uint32_t keyed_sgl_invalidate; /* target supports remote invalidation */
	uint32_t header_digest, data_digest; /* asked for */
	uint32_t tos;
};

struct haul_transport_ops {
	const char *name; /* the URI's scheme */
	uint8_t trtype;
	int (*alloc)(struct haul_queue *queue);	      /* requests[] are there */
	void (*connect)(struct haul_queue *queue);    /* -> haul_queue_connected(), never before this returns */
	/* Takes REQUEST; the doorbell rings at the end of the turn. Never fails by itself: errors come
	 * through haul_request_done(), never before this returns. */
	void (*submit)(struct haul_queue *queue, struct haul_request *request);
	/* Every request OUT comes back through haul_request_done(-ECANCELED or its real end), then
	 * -> haul_queue_quiesced(), when nothing can touch the caller's memory any more. */
	void (*disconnect)(struct haul_queue *queue);
	void (*free)(struct haul_queue *queue);	      /* after quiesced, or when connect failed */
	int (*mem_register)(struct haul_loop *hl, struct haul_mem *mem); /* a new region, all devices in use */
	void (*mem_unregister)(struct haul_loop *hl, struct haul_mem *mem);
	void (*free_loop)(struct haul_loop *hl);      /* what it kept in hl->transport_loop[] */
};

extern const struct haul_transport_ops haul_transport_tcp_ops;
extern const struct haul_transport_ops haul_transport_rdma_ops;
enum haul_transport_kind { HAUL_TRANSPORT_RDMA, HAUL_TRANSPORT_TCP, HAUL_NR_TRANSPORTS };
extern const struct haul_transport_ops *const haul_transports[HAUL_NR_TRANSPORTS];

/* --- called by transports ---------------------------------------------------------------------- */

/* The transport connection is up (ICResp / CM established): Connect may be sent; or RESULT is a
 * negative errno and WHY says in words what failed (may be NULL). */
void haul_queue_connected(struct haul_queue *queue, int result, const char *why);
/* The queue's transport has failed while it was connected; queue.c will call disconnect(). */
void haul_queue_failed(struct haul_queue *queue, int result, const char *why);
void haul_queue_quiesced(struct haul_queue *queue);
/* The request with this CID if it is OUT on this queue, else NULL (a peer's mistake). */
struct haul_request *haul_queue_request_by_cid(struct haul_queue *queue, uint16_t cid);
/* RESULT 0 and CQE: the target has answered; negative errno: it never will. */
void haul_request_done(struct haul_request *request, int result, const struct nvme_cqe *cqe);

/* --- memory ------------------------------------------------------------------------------------ */

struct haul_mem {
	struct haul_loop *hl;
	void *base;
	size_t length;
	void *keys[BUFPOOL_NR_REGISTRARS]; /* per device of the loop: struct ibv_mr *, by the RDMA transport */
	struct list node;
};
/* The registered region that holds all of [ADDRESS, ADDRESS + LENGTH), or NULL. Constant or logarithmic time. */
struct haul_mem *haul_mem_find(struct haul_loop *hl, const void *address, size_t length);

#endif
