/* SPDX-License-Identifier: MIT */
/*
 * A transport moves capsules and data; it knows no controller, namespace or command beyond the
 * SGL. One table a transport; a new one is its files (transport_NAME*.c) and a row in transport.c.
 */
#ifndef HAUL_TARGET_TRANSPORT_H
#define HAUL_TARGET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "target/conn.h"
#include "target/port.h"

struct reactor;
struct transport_state; /* what a transport keeps per reactor (RDMA: its devices) */

enum transport_option_kind {
	TRANSPORT_SWITCH, /* "on" or "off" */
	TRANSPORT_NUMBER,
	TRANSPORT_SIZE, /* in bytes, with a unit if one likes: "128K" */
};

/* An option of a listener's URI; its value is in port->option, at its place among all. */
struct transport_option {
	const char *key;
	enum transport_option_kind kind;
	uint32_t unless_given;
	uint32_t min, max;
	uint32_t step;	   /* it is a multiple of that; 0: of 1 */
	bool power_of_two; /* it is one */
	const char *right; /* such values, for people */
};

/* The first options of every transport. What a controller announces of them its queues keep to:
 * all are of one listener. */
enum transport_limit {
	TRANSPORT_MAX_QUEUE_SIZE, /* entries of an I/O queue: CAP.MQES */
	TRANSPORT_IN_CAPSULE,	  /* bytes of data in a capsule of an I/O queue: IOCCSZ */
	TRANSPORT_MDTS,		  /* bytes of data of a command */
	NR_TRANSPORT_LIMITS
};

/* One that all have. The least is what MDTS can say (0 is no limit); the most a buffer of the
 * pool. */
#define TRANSPORT_OPTION_MDTS                                                                  \
	{                                                                                      \
		.key = "mdts", .kind = TRANSPORT_SIZE, .unless_given = 1u << 20, .min = 8192,  \
		.max = 1u << 20, .power_of_two = true, .right = "a power of two from 8K to 1M" \
	}

struct transport_ops {
	const char *name;	   /* "rdma", "tcp": the URI's scheme */
	uint8_t trtype;		   /* discovery log */
	uint32_t admin_in_capsule; /* in-capsule bytes that an admin queue takes in any case */
	uint32_t sgls;		   /* Identify Controller SGLS */
	uint8_t msdbd;		   /* data block descriptors a command may hold, or 1 ... */
	uint32_t msdbd_in_capsule; /* ... where there may be more in-capsule data than that */
	uint32_t max_admin_depth;  /* entries of an admin submission queue */
	const struct transport_option *options; /* the limits first */
	uint32_t nr_options;			/* up to PORT_MAX_OPTIONS */

	int (*listen)(struct port *port, char *why, size_t why_size);
	void (*unlisten)(struct port *port);
	/* It does not listen and no connection that came in there is left: frees what was kept for
	 * those. NULL: there is nothing. */
	void (*forget)(struct port *port);
	/* Closes or rejects (RDMA: "no resources"). */
	void (*refuse)(struct transport_handover *handover);

	/* All below: on the connection's reactor. start() takes HANDOVER apart, even if it fails.
	 */
	int (*start)(struct conn *conn, struct transport_handover *handover);
	/* Bring data_len bytes from the host (in-capsule or by R2T / RDMA READ) to request->bytes
	 * -> request_pulled(), maybe before this returns. */
	void (*pull)(struct request *request);
	/* Data (TO_HOST and status 0: data_len bytes from request->bytes), then request->cqe ->
	 * request_sent(), never before this returns. In-capsule data not pulled is discarded. */
	void (*reply)(struct request *request);
	/* No more events; every request in PULL or REPLY comes back -> conn_quiesced(), maybe
	 * before this returns. */
	void (*close)(struct conn *conn);
	void (*free)(struct conn *conn);
	/* The most receives that a device of the reactor has left for queues to come; NULL: it has
	 * no devices. */
	uint32_t (*receives_left)(const struct reactor *reactor);
	/* At the end of a reactor that it has put transport_state on; no connection is left. */
	void (*free_state)(struct reactor *reactor);
};

extern const struct transport_ops transport_tcp_ops;
extern const struct transport_ops transport_rdma_ops;

enum transport_kind { TRANSPORT_RDMA, TRANSPORT_TCP, NR_TRANSPORTS };
extern const struct transport_ops *const transports[NR_TRANSPORTS];

/* By the type of an address that has been parsed; NULL: there is none. */
const struct transport_ops *transport_find(uint8_t trtype);

#endif
