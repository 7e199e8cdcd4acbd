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
#include "proto/nvme/name.h"
#include "target/auth.h"
#include "target/ctrl_settings.h"
#include "target/request.h"

struct catalog;
struct port;
struct reactor;
struct ctrl;
struct share;
struct subsys;
struct error_report;
struct transport_conn; /* defined by each transport for itself */

enum conn_state { CONN_LIVE, CONN_CLOSING, CONN_CLOSED };

/*
 * What a connection is to a controller. An admin queue's controller is on the same reactor; an I/O
 * queue's may be elsewhere and is reached by messages only (target/member.h).
 */
enum conn_member_state {
	CONN_MEMBER_NONE,
	CONN_MEMBER_ADMIN,   /* ctrl is set */
	CONN_MEMBER_JOINING, /* a Connect request is with the controller, or it claims one
				(target/association.h) */
	CONN_MEMBER_JOINED,
	CONN_MEMBER_LEAVING,
};

struct conn_member {
	enum conn_member_state state;
	struct ctrl
		*ctrl; /* admin queue: the controller. I/O queue: the owner's, never looked into */
	struct reactor *owner;	     /* I/O queue: where the controller lives */
	struct loop_message closing; /* to the owner: the queue has begun to close */
	struct loop_message leave;   /* to the owner and back: the queue is gone */
	struct loop_message expel;   /* from the owner: close it. Always before LEAVE's answer */
	bool expelled;		     /* the owner's: EXPEL has been sent */
	struct loop_message ask;     /* from the owner and back: have commands come (HEARD) */
	bool heard;
	bool heard_last;   /* the same, told with CLOSING */
	uint64_t nr_heard; /* of nr_received, told already */
};

struct conn {
	struct reactor *reactor;
	struct port *port;
	const struct transport_ops *ops;
	struct transport_conn *transport; /* the transport's, from start() to free() */
	enum conn_state state;
	struct list node; /* the reactor's */
	uint64_t number;  /* unique for the process's life: what the log calls it */

	struct sockaddr_storage local; /* set by the transport in start() */
	struct sockaddr_storage peer;
	struct share *share;	   /* the host's, which PEER belongs to */
	struct share *conns_share; /* the same host's on the port's reactor, for its connections */

	/* Known to the transport before Connect (RDMA private data), else CONN_QID_UNKNOWN / 0. */
	uint32_t expected_qid;
	uint32_t expected_depth; /* HSQSIZE + 1: Connect must ask for the same */

	/* Of its listener's limits (enum transport_limit), where commands look. */
	uint32_t max_depth;	 /* the most that DEPTH may be, whichever queue it is */
	uint32_t in_capsule_max; /* bytes of data that a command may bring with it */
	uint32_t transfer_max;	 /* bytes of data of a command */
	uint32_t msdbd;

	uint32_t depth;	    /* entries of the submission queue; 1 before Connect on TCP */
	struct slots slots; /* of requests: 2 x depth, for the host may reuse a capsule early */
	struct request *requests; /* owned; zero pages until first used */
	uint32_t nr_out;	  /* requests that are not FREE */
	uint32_t nr_commands;	  /* of these, not in REPLY: what the host's queue holds */
	uint64_t nr_received;	  /* commands, ever: a sign of life */
	uint32_t sq_head;
	bool flow_control_disabled; /* Connect CATTR bit 2 */
	bool transport_quiesced;

	/* The core's. */
	bool connected; /* Connect has succeeded, and the host has proved who it is if it must */
	bool leaves;	/* ... and is over: closes when the command that ended it is answered */
	uint16_t qid;
	uint16_t cntlid;
	uint8_t hostid[16];	     /* of Connect */
	const struct subsys *subsys; /* as the host sees it: target/view.h */
	struct conn_member member;
	struct conn_auth auth;	       /* target/auth.h */
	struct ctrl_settings settings; /* its controller's: target/ctrl_settings.h */
	uint64_t fence_began_ns;       /* of the last fence that has looked here ... */
	uint64_t fence_received;       /* ... and NR_RECEIVED then */
	struct list held;	       /* requests in HELD */
	struct list waiting;	       /* requests in WAIT_BUF */
	struct list moving;	       /* requests in PULL or REPLY, that began first the first */
	struct loop_timer transfer;    /* of these, the host must get some done */
	struct error_report *errors;   /* of an I/O queue, on their way; NULL before the first */
	struct loop_timer handshake;   /* Connect must come; later: the second of a pair */
	bool fused_open;	       /* the next command should be the second of a pair */
	struct request *fused_first;   /* ... which waits for it; NULL: it has failed */
	struct loop_flush finish;      /* frees at the end of the turn, outside of anyone's call */
	struct loop_message is_admin;  /* to the port's reactor: it is an admin queue */
	uint32_t load;		       /* that reactor's: TARGET_LOAD_* */
	struct loop_message gone;      /* to the port's reactor, which frees the memory */

	char hostnqn[NVME_NQN_MAX + 1]; /* of Connect */
};

#define CONN_QID_UNKNOWN UINT32_MAX

/* --- called by transports -------------------------------------------------------------------- */

/*
 * A host has come to PORT; on the port's reactor. Picks a reactor for it and carries HANDOVER
 * there, where conn is made and ops->start() called. HANDOVER is part of the transport's
 * allocation, which holds what the transport knows of the host: start() or refuse() takes it apart.
 * refuse() is called on the port's reactor when no connection can be made, maybe inside
 * conn_accept().
 */
struct transport_handover {
	struct loop_message message;
	struct list node; /* port->early */
	struct port *port;
	struct reactor *reactor;
	struct sockaddr_storage peer; /* the host, whose share on the port's reactor is */
	struct share *share;
};
void conn_accept(struct port *port, struct transport_handover *handover);

/* Opens the requests for a submission queue of DEPTH entries. It is 1 when start() is called, which
 * may know better; Connect sets it for good. -EINVAL: less than before, or deeper than MAX_DEPTH.
 */
int conn_set_depth(struct conn *conn, uint32_t depth) must_check;

/* Starts the end, from any cause, any number of times. WHY is for the log. The connection is not
 * freed before the end of the turn. */
void conn_close(struct conn *conn, const char *why);

/* The same for what no host may do: a line for the administrator, limited per reactor. */
void conn_close_for_mistake(struct conn *conn, const char *why);

/* The transport's answer to ops->close(): it holds no request of this connection any more (all
 * given back with request_flushed) and no hardware or kernel can touch its buffers. */
void conn_quiesced(struct conn *conn);

/* --- the core's --------------------------------------------------------------------------------
 */

/* Frees it at the end of the turn if nothing holds it any more. */
void conn_try_finish(struct conn *conn);

/* Connect has made it an admin queue. */
void conn_is_admin(struct conn *conn);

/* It lives and has commands in flight, other than those that wait for an event or have come too
 * late. */
bool conn_has_commands(const struct conn *conn);

/* Another catalog counts: its subsystem, or its listener, may be gone. */
void conn_follow(struct conn *conn, const struct catalog *catalog);

/* A line about something a peer can cause again and again: limited per reactor. */
void conn_log(struct conn *conn, const char *format, ...) printf_like(2, 3);

#endif
