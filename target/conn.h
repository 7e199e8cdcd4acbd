/* SPDX-License-Identifier: MIT */
/*
 * One connection is one NVMe queue. It lives on one reactor from its start to its end and is LIVE,
 * CLOSING or CLOSED; it is CLOSED, and freed, when it is CLOSING, its transport has called
 * conn_quiesced(), no request is out and its controller has let go of it.
 */
#ifndef HAUL_TARGET_CONN_H
#define HAUL_TARGET_CONN_H

#include <sys/socket.h>

#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "proto/base/slots.h"
#include "target/request.h"

struct port;
struct reactor;
struct ctrl;
struct transport_conn; /* defined by each transport for itself */

enum conn_state { CONN_LIVE, CONN_CLOSING, CONN_CLOSED };

struct conn {
	struct reactor *reactor;
	struct port *port;
	const struct transport_ops *ops;
	struct transport_conn *transport; /* the transport's, from start() to free() */
	enum conn_state state;
	struct list node; /* the reactor's */
	uint64_t number;  /* unique for the process's life: what the log calls it */

	struct sockaddr_storage local;	/* set by the transport in start() */
	struct sockaddr_storage peer;

	/* Known to the transport before Connect (RDMA private data), else CONN_QID_UNKNOWN / 0. */
	uint32_t expected_qid;
	uint32_t expected_depth; /* HSQSIZE + 1: Connect must ask for the same */

	uint32_t depth;		  /* entries of the submission queue; 1 before Connect on TCP */
	struct slots slots;	  /* of requests: 2 x depth, for the host may reuse a capsule early */
	struct request *requests; /* owned; zero pages until first used */
	uint32_t nr_out;	  /* requests that are not FREE */
	uint32_t sq_head;
	bool flow_control_disabled; /* Connect CATTR bit 2 */
	bool transport_quiesced;
};

#define CONN_QID_UNKNOWN UINT32_MAX

/* --- called by transports -------------------------------------------------------------------- */

/*
 * A host has come to PORT; on the port's reactor. Picks a reactor for it and carries HANDOVER (a
 * descriptor, or the transport's own message content) there, where conn is made and ops->start()
 * called. The transport's ops->refuse() takes HANDOVER back when no connection can be made.
 */
struct transport_handover {
	struct loop_message message;
	struct port *port;
	struct reactor *reactor;
	int fd;		/* TCP: the accepted socket */
	void *cm_id;	/* RDMA: struct rdma_cm_id * of the connection request, its event acknowledged */
	uint32_t private_len;
	uint8_t private_data[256]; /* RDMA: a copy of the CM private data */
	uint8_t initiator_depth;   /* RDMA: of the connection request */
	uint8_t responder_resources;
};
void conn_accept(struct port *port, struct transport_handover *handover);

/* Allocates the requests for a submission queue of DEPTH entries (before any is in use, or while only Connect is). */
int conn_set_depth(struct conn *conn, uint32_t depth) must_check;

/* Starts the end, from any cause, any number of times. WHY is for the log. */
void conn_close(struct conn *conn, const char *why);

/* The transport's answer to ops->close(): it holds no request of this connection any more (all
 * given back with request_flushed) and no hardware or kernel can touch its buffers. */
void conn_quiesced(struct conn *conn);

#endif
