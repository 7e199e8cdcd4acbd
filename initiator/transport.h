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
#include "proto/base/slots.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/nvme.h"
#include "initiator/haul.h"

struct haul_transport_queue; /* defined by each transport for itself */
struct haul_transport_loop;  /* what a transport keeps per loop (RDMA: its devices) */

#define HAUL_MAX_IOV		     16 /* pieces of one command's data; more are split by queue.c */
#define HAUL_REQUEST_TRANSPORT_BYTES 640

enum haul_request_state {
	HAUL_REQUEST_FREE,
	HAUL_REQUEST_PREPARED, /* code running now */
	HAUL_REQUEST_OUT,      /* the transport: from submit() to haul_request_done() */
};

/* One command. CID = index in the low bits, generation above, so that a late response finds nobody.
 */
struct haul_request {
	struct haul_queue *queue;
	enum haul_request_state state;
	uint32_t index;
	uint16_t cid;
	struct nvme_cmd cmd; /* complete but for the SGL, which submit() fills in */
	int to_host;	     /* direction of the data */
	uint32_t data_len;   /* 0: none */
	struct iovec iov[HAUL_MAX_IOV];
	uint32_t nr_iov;
	uint64_t deadline_ns;				 /* 0: none; queue.c's */
	struct list node;				 /* queue.c's */
	void (*completed)(struct haul_request *request); /* queue.c's: what happens at done */
	void *context;					 /* the owner's of COMPLETED */
	struct nvme_dsm_range range;			 /* io.c's: data of a discard */

	int result;	     /* set by haul_request_done() */
	struct nvme_cqe cqe; /* valid when result is 0: a response came */

	_Alignas(16) unsigned char transport[HAUL_REQUEST_TRANSPORT_BYTES];
};

/* Something the caller started: it ends as one event. loop.c's. */
struct haul_pending {
	struct haul_event event;
	struct list node; /* in the loop's list of events from its end until it is handed out */
	void (*taken)(struct haul_pending *pending); /* handed out or dropped: may free it */
};

enum haul_queue_state {
	HAUL_QUEUE_IDLE,       /* nothing at the transport yet */
	HAUL_QUEUE_CONNECTING, /* from connect() to haul_queue_connected() */
	HAUL_QUEUE_FABRICS,    /* Connect is out */
	HAUL_QUEUE_LIVE,
	HAUL_QUEUE_FAILING, /* will be disconnected at the end of the turn */
	HAUL_QUEUE_CLOSING, /* from disconnect() to haul_queue_quiesced() */
	HAUL_QUEUE_CLOSED,  /* quiesced; the transport's part may be freed */
};

/* What transports see of a queue. queue.c owns it. */
struct haul_queue {
	struct haul_ctrl *ctrl;
	struct haul_loop *hl;
	struct loop *loop;
	struct bufpool *pool; /* bounce buffers and the like */
	const struct haul_transport_ops *ops;
	struct haul_transport_queue *transport; /* the transport's, from alloc() to free() */
	uint16_t qid;
	uint32_t depth; /* commands out at once (entries - 1 with flow control, hence Connect's
			   SQSIZE); connect() may lower it (RDMA accept, device limits) before
			   haul_queue_connected() */
	struct haul_request *requests; /* DEPTH of them */
	struct sockaddr_storage address;
	uint32_t in_capsule_bytes; /* how much data a command may carry in its capsule (IOCCSZ);
				      admin: 8 KiB on TCP, 0 on RDMA. Connect's data goes
				      in-capsule on TCP in any case (NVMe TCP 1.0c 3.3.2) */
	uint32_t max_segments;	   /* MSDBD, at least 1 */
	uint32_t header_digest, data_digest; /* asked for */
	uint32_t tos;			     /* 0: leave as it is */
	bool key_per_io;		     /* keys=io; RDMA only */

	/* queue.c's and io.c's from here on */
	enum haul_queue_state state;
	int failure; /* why it ended: what requests that come back get */
	uint32_t cid_index_mask;
	struct slots slots;   /* of requests */
	uint64_t nr_answered; /* responses so far */
	struct list out;      /* requests at the transport, in the order of their deadlines */
	struct loop_timer timeout_timer;
	struct loop_flush end_flush;		/* calls disconnect() at the end of the turn */
	struct nvme_connect_data *connect_data; /* of Connect, while it is out */
	struct list node;			/* ctrl's list of I/O queues */
	struct haul_pending create, close;
	int create_pending, close_pending;
	struct haul_io *ios; /* DEPTH I/Os of the caller */
	struct slots io_slots;
	struct iovec
		*io_iov; /* HAUL_IO_MAX_IOV for each of them, touched only by those that need it */
	struct list starved;	 /* I/Os with more to send that wait for a request */
	struct haul_ns *last_ns; /* the one looked up last */
};

/*
 * Order of calls: alloc, connect, (submit)*, disconnect, free. All but free and alloc answer by a
 * call below, never before they return. connect() is answered by haul_queue_connected(); after one
 * with an error nothing is open any more and free() follows. disconnect() may be called from
 * connect() on, also while that is unanswered (then haul_queue_connected() does not come), never
 * from inside a call of the transport, and is answered by haul_queue_quiesced(). The caller may
 * change depth downwards between alloc() and connect().
 */
struct haul_transport_ops {
	const char *name; /* the URI's scheme */
	uint8_t trtype;
	int (*alloc)(struct haul_queue *queue);	   /* requests[] are there */
	void (*connect)(struct haul_queue *queue); /* -> haul_queue_connected() */
	/* Takes REQUEST; the doorbell rings at the end of the turn. Never fails by itself: errors
	 * come through haul_request_done(), never before this returns. */
	void (*submit)(struct haul_queue *queue, struct haul_request *request);
	/* Every request OUT comes back through haul_request_done(-ECANCELED or its real end), then
	 * -> haul_queue_quiesced(), when nothing can touch the caller's memory any more. */
	void (*disconnect)(struct haul_queue *queue);
	/* After quiesced, or when connect failed, or right after alloc(). */
	void (*free)(struct haul_queue *queue);
	/* A new region, all devices in use. Both may be NULL. */
	int (*mem_register)(struct haul_loop *hl, struct haul_mem *mem);
	void (*mem_unregister)(struct haul_loop *hl, struct haul_mem *mem);
	void (*free_loop)(
		struct haul_loop *hl); /* what it kept in hl->transport_loop[]; may be NULL */
};

extern const struct haul_transport_ops haul_transport_tcp_ops;
extern const struct haul_transport_ops haul_transport_rdma_ops;
enum haul_transport_kind { HAUL_TRANSPORT_RDMA, HAUL_TRANSPORT_TCP, HAUL_NR_TRANSPORTS };
extern const struct haul_transport_ops *const haul_transports[HAUL_NR_TRANSPORTS];

/* --- called by transports ----------------------------------------------------------------------
 */

/* The transport connection is up (ICResp / CM established): Connect may be sent; or RESULT is a
 * negative errno and WHY says in words what failed (may be NULL; copied). */
void haul_queue_connected(struct haul_queue *queue, int result, const char *why);
/* The queue's transport has failed after it was connected: disconnect() will be called at the end
 * of this turn. Requests may come back before or after. Calling it again changes nothing. */
void haul_queue_failed(struct haul_queue *queue, int result, const char *why);
void haul_queue_quiesced(struct haul_queue *queue);
/* The request with this CID if it is OUT on this queue, else NULL (a peer's mistake). */
struct haul_request *haul_queue_request_by_cid(struct haul_queue *queue, uint16_t cid);
/* RESULT 0 and CQE: the target has answered; negative errno: it never will. Exactly once a request;
 * REQUEST is free for the next command then. */
void haul_request_done(struct haul_request *request, int result, const struct nvme_cqe *cqe);

/* --- memory ------------------------------------------------------------------------------------
 */

struct haul_mem {
	struct haul_loop *hl;
	void *base;
	size_t length;
	void *keys[BUFPOOL_NR_REGISTRARS]; /* per device of the loop: struct ibv_mr *, by the RDMA
					      transport */
	struct list node;
};
/* The registered region that holds all of [ADDRESS, ADDRESS + LENGTH), or NULL. Constant or
 * logarithmic time. */
struct haul_mem *haul_mem_find(struct haul_loop *hl, const void *address, size_t length);

#endif
