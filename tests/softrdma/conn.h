/* SPDX-License-Identifier: MIT */
/*
 * One stream to one peer: frames out through a bounded buffer, frames in to the queue pair or the
 * CM. It lives until both the queue pair and the CM id have let go of it. All calls with the lock
 * held.
 */
#ifndef SOFTRDMA_CONN_H
#define SOFTRDMA_CONN_H

#include "tests/softrdma/engine.h"
#include "tests/softrdma/wire.h"

struct sr_qp;
struct sr_conn;

struct sr_cm_ops {
	void (*message)(struct sr_conn *conn, const struct sr_hdr *hdr, const void *payload);
	void (*closed)(struct sr_conn *conn);
};

struct sr_conn {
	struct sr_source src;
	struct sr_qp *qp;
	void *cm; /* the CM's object; cm_ops is NULL when it has let go */
	const struct sr_cm_ops *cm_ops;
	uint32_t remote_qp_num;
	bool eof;
	bool paused;
	bool gone_sent; /* we told the peer, or */
	bool peer_gone; /* it told us, that requests stay unanswered */
	uint8_t *out;
	uint32_t out_head, out_tail;
	uint8_t *in; /* an incomplete frame */
	uint32_t in_len, in_size;
	struct sr_work resume;
	struct sr_garbage garbage;
	LIST_ENTRY(sr_conn) link;
};

/* Takes fd over. NULL when memory or epoll fails; fd is closed then. */
struct sr_conn *sr_conn_new(int fd);
/* Starts to read. Frames before this call wait in the socket. */
int sr_conn_start(struct sr_conn *conn);
/* Holds frames back until the queue pair can take them: between the CM's reply and
 * ready-to-receive. */
void sr_conn_pause(struct sr_conn *conn);
void sr_conn_resume(struct sr_conn *conn);
void sr_conn_detach_qp(struct sr_conn *conn);
void sr_conn_detach_cm(struct sr_conn *conn);

/* Room for a frame with len bytes of payload? Data leaves the reserve for control frames alone. */
bool sr_conn_room(const struct sr_conn *conn, uint32_t len);
/* Appends a header and returns where its hdr->len bytes of payload go; NULL when nobody listens any
 * more. */
void *sr_conn_put(struct sr_conn *conn, const struct sr_hdr *hdr);
void sr_conn_flush(struct sr_conn *conn);
/* Is there anything the socket has not taken yet? */
bool sr_conn_pending(const struct sr_conn *conn);
/* Tells the requester, once, that its requests will stay without answer. */
void sr_conn_gone(struct sr_conn *conn);

/* A connection of this process that the CM made, has no queue pair yet, and leads to qp_num. */
struct sr_conn *sr_conn_find(uint32_t remote_qp_num);

/* Abstract Unix address: "softrdma/$SOFTRDMA_DIR/KIND/NAME". Abstract names belong to the network
 * namespace and vanish with their owner, however it dies. Returns the length, 0 if too long. */
struct sockaddr_un;
uint32_t sr_address(struct sockaddr_un *un, const char *kind, const char *name);

#endif
