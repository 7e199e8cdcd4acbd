/* SPDX-License-Identifier: MIT */
/*
 * The RDMA transport's own structures: what transport_rdma*.c share and nobody else sees.
 */
#ifndef HAUL_TARGET_TRANSPORT_RDMA_H
#define HAUL_TARGET_TRANSPORT_RDMA_H

#include "proto/base/log.h"
#include "proto/link/rdma_ep.h"
#include "proto/link/rdma_loop.h"
#include "proto/link/rdma_srq.h"
#include "proto/nvme/rdma.h"
#include "target/conn.h"
#include "target/request.h"
#include "target/transport.h"

/* Deeper than any known host asks for (Linux: 256); each entry costs a slot of 4 KiB. */
#define TRANSPORT_RDMA_MAX_DEPTH      1024
/* Slots of one reactor, device and size, in 64 MiB taken as they come. A host alone may have half
 * of it: 64 queues of the default depth and size. */
#define TRANSPORT_RDMA_MAX_SLOTS      16384
#define TRANSPORT_RDMA_MAX_MEMORY     (64u << 20)
/* In-capsule data of I/O queues, unless the listener says otherwise: a page. Hosts 5.4 to 5.12
 * corrupt larger in-capsule writes when MSDBD is more than 1, so then it is. */
#define TRANSPORT_RDMA_IN_CAPSULE     RDMA_SLOT_PAGE
#define TRANSPORT_RDMA_MAX_IN_CAPSULE (4 * RDMA_SLOT_PAGE)

/* What a reactor keeps of RDMA: made with its first listener or connection. */
struct transport_state {
	struct rdma_loop rdma;
	struct list ports; /* of this reactor, those that ended and have connections included */
};

struct transport_port {
	struct rdma_cm_owner owner;
	struct port *port;
	struct rdma_cm *cm;
	struct rdma_cm_id *id; /* NULL after unlisten */
	struct log_limit limit;
	struct list node; /* of the reactor's ports */
};

/* A host on its way to its reactor. */
struct transport_rdma_handover {
	struct transport_handover base;
	struct rdma_cm_id *id;		   /* of the connection request, its event acknowledged */
	struct nvme_rdma_cm_params params; /* of its private data, checked */
	uint8_t initiator_depth;
	uint8_t responder_resources;
};

static inline struct transport_rdma_handover *transport_rdma_handover(
	struct transport_handover *handover)
{
	return container_of(handover, struct transport_rdma_handover, base);
}

enum transport_rdma_state {
	TRANSPORT_RDMA_ACCEPTED, /* commands are held until the host's side is up, too */
	TRANSPORT_RDMA_ESTABLISHED,
	TRANSPORT_RDMA_CLOSING,
};

struct transport_conn {
	struct conn *conn;
	struct rdma_cm_owner owner;
	struct rdma_cm_id *id;
	struct rdma_ep ep;
	enum transport_rdma_state state;
	struct rdma_srq *srq;
	uint32_t depth;		 /* what was admitted to SRQ */
	uint32_t max_reads;	 /* negotiated */
	struct rdma_memory cqes; /* one response for each request */
	struct list early;	 /* slots that came before ESTABLISHED */
	uint32_t nr_early;
	struct list slots; /* in use by requests: the backend may hold their data */
};

/* In request->transport. */
struct transport_rdma_request {
	struct rdma_op op;
	struct rdma_slot *slot; /* the command's, until the reply; NULL when given back */
};
static_assert(sizeof(struct transport_rdma_request) <= REQUEST_TRANSPORT_BYTES);

static inline struct transport_rdma_request *transport_rdma_request(struct request *request)
{
	return (struct transport_rdma_request *)(void *)request->transport;
}

/* transport_rdma_conn.c */
int transport_rdma_start(struct conn *conn, struct transport_handover *handover) must_check;
void transport_rdma_close(struct conn *conn);
void transport_rdma_free(struct conn *conn);
/* Rejects with an NVMe/RDMA status and destroys the id. */
void transport_rdma_reject(struct rdma_cm_id *id, uint16_t status);

/* transport_rdma_io.c */
void transport_rdma_received(struct rdma_ep *ep, struct rdma_slot *slot);
void transport_rdma_take_early(struct transport_conn *tc);
void transport_rdma_drop_early(struct transport_conn *tc);
void transport_rdma_pull(struct request *request);
void transport_rdma_reply(struct request *request);

/* transport_rdma.c: the reactor's state, made on first use. */
int transport_rdma_state(struct reactor *reactor, struct transport_state **ret) must_check;

#endif
