/* SPDX-License-Identifier: MIT */
/*
 * The connection manager's objects. All guarded by the engine's lock; what a program's thread
 * changes in the public struct (verbs, port_num, qp ...) changes when that thread takes the event,
 * as in the real library.
 */
#ifndef SOFTRDMA_CM_H
#define SOFTRDMA_CM_H

#include <rdma/rdma_cma.h>

#include "tests/softrdma/softrdma.h"

/* Private data as InfiniBand's CM carries it: fixed areas, padded with zeros. */
#define CM_REQ_PRIVATE 56
#define CM_REP_PRIVATE 196
#define CM_REJ_PRIVATE 148

/* ib_cm's reject reasons, which are the status of a REJECTED event. */
enum cm_reject {
	CM_REJ_TIMEOUT = 4,
	CM_REJ_INVALID_SERVICE_ID = 8,
	CM_REJ_CONSUMER_DEFINED = 28,
};

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTENING,
	CM_ADDR_QUERY,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_CONNECTING,
	CM_REPLIED,   /* active: the reply is here, the program has not taken it */
	CM_REQUESTED, /* passive: before accept */
	CM_ACCEPTED,  /* passive: reply sent, ready-to-use not here */
	CM_CONNECTED,
	CM_DISCONNECTING, /* we asked */
	CM_DISCONNECTED,  /* the peer asked, the program has not answered */
	CM_CLOSED,
};

struct cm_channel {
	struct rdma_event_channel channel;
	struct sr_evq evq;
};

struct cm_id;

struct cm_event {
	struct rdma_cm_event ev;
	struct cm_id *owner;  /* whose count of acknowledgements this belongs to */
	struct sr_conn *conn; /* of a connect request not yet taken */
	bool queued;
	struct sr_cm_body body;
	TAILQ_ENTRY(cm_event) link;
};

#define CM_MAX_LISTENERS 3

struct cm_id {
	struct rdma_cm_id id;
	enum cm_state state;
	bool sync;
	bool reuse_addr, af_only;
	bool bound_any;
	int device;				    /* index, -1 while not bound to one */
	TAILQ_HEAD(cm_event_list, cm_event) events; /* in the channel's queue */
	struct cm_event_list requests;		    /* of a listener: not yet complete */
	uint32_t reported, completed;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	struct sr_source listeners[CM_MAX_LISTENERS];
	int nr_listeners;
	int backlog, pending;
	struct sr_conn *conn;
	struct sr_cm_body peer;	 /* of the request or the reply */
	struct sr_cm_body local; /* what we sent */
	uint8_t responder_resources, initiator_depth;
	struct sr_timer timer; /* of the step under way: address, connect, disconnect */
	struct sr_timer timewait;
	struct ibv_qp_init_attr *ep_qp_attr; /* of rdma_create_ep on a listener */
	struct ibv_pd *ep_pd;
	struct sr_garbage garbage;
	LIST_ENTRY(cm_id) link;
};

#define cm_of(ptr) sr_container(ptr, struct cm_id, id)

/* cm_device.c */
int cm_init(void);
struct ibv_context *cm_device_context(int device);
struct ibv_pd *cm_device_pd(int device);
int cm_errno(int error); /* sets errno, returns -1; 0 stays 0 */

/* cm_id.c */
struct cm_id *cm_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
struct cm_id *cm_id_first(void);
void cm_wait_acked(struct cm_id *id);

/* cm_event.c; lock held, except cm_sync. */
struct cm_event *cm_event_new(struct cm_id *id, enum rdma_cm_event_type type, int status);
void cm_event_post(struct cm_event *event);
void cm_event_simple(struct cm_id *id, enum rdma_cm_event_type type, int status);
void cm_event_set_private(struct cm_event *event, const struct sr_cm_body *body, uint8_t padded);
/* For an id without a channel: waits for the step to end. */
int cm_sync(struct cm_id *id);
void cm_events_drop(struct cm_id *id);

/* cm_addr.c */
bool cm_addr_known_family(const struct sockaddr *addr);
socklen_t cm_addr_len(const struct sockaddr *addr);
bool cm_addr_is_any(const struct sockaddr *addr);
bool cm_addr_is_local(const struct sockaddr *addr);
bool cm_addr_is_black_hole(const struct sockaddr *addr);
uint16_t cm_addr_port(const struct sockaddr *addr);
void cm_addr_set_port(struct sockaddr *addr, uint16_t port);
int cm_addr_device(const struct sockaddr *addr);
void cm_addr_default_source(const struct sockaddr *dst, struct sockaddr *src);
/* Name of a listener on this address and port; any: on all addresses of the family. */
void cm_addr_name(const struct sockaddr *addr, bool any, uint16_t port, char *name, size_t size);
void cm_addr_to_body(const struct sockaddr *addr, uint8_t to[16], uint16_t *port);
void cm_addr_from_body(const uint8_t from[16], uint16_t port, int family, struct sockaddr *addr);

/* cm_listen.c */
int cm_bind(struct cm_id *id, const struct sockaddr *addr);
void cm_listen_close(struct cm_id *id);

/* cm_connect.c */
void cm_request_taken(struct cm_id *id, struct cm_event *event);
int cm_reply_taken(struct cm_id *id);
void cm_reject_conn(struct sr_conn *conn, uint16_t reason);
void cm_abandon(struct cm_id *id);
uint8_t cm_padded(uint8_t len, uint8_t area);
void cm_send(struct sr_conn *conn, enum sr_msg type, const struct sr_cm_body *body);
extern const struct sr_cm_ops cm_id_ops;
void cm_force_disconnect(struct sr_conn *conn);
void cm_stray_event(struct sr_conn *conn, uint32_t type);

/* cm_qp.c; lock held */
int cm_qp_init(struct cm_id *id, struct ibv_qp *qp);
int cm_qp_ready(struct cm_id *id);
void cm_qp_error(struct cm_id *id);

#endif
