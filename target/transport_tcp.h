/* SPDX-License-Identifier: MIT */
/*
 * What the files of the target's TCP transport share: transport_tcp.c holds connections,
 * transport_tcp_data.c moves the data of their commands, transport_tcp_listen.c accepts.
 */
#ifndef HAUL_TARGET_TRANSPORT_TCP_H
#define HAUL_TARGET_TRANSPORT_TCP_H

#include "proto/link/tcp_stream.h"
#include "target/conn.h"
#include "target/transport.h"

/*
 * In-capsule data of I/O queues, unless the listener says otherwise. The admin queue must take
 * 8 KiB (NVMe TCP 1.0c 3.3.2.1), so that one bound serves all queues. More seldom pays: a write of
 * more than 8 KiB waits for the disk longer than for an R2T, and what is in the stream already
 * cannot be told to wait for a buffer.
 */
#define TCP_IN_CAPSULE	   NVME_TCP_ADMIN_IN_CAPSULE
/* Each command of a queue may have as much aside (transport_tcp_data.c). */
#define TCP_MAX_IN_CAPSULE (64u << 10)

/* Each entry costs address space for two requests, and pages when it is used. */
#define TCP_MAX_QUEUE_SIZE 1024

/* Data of one H2CData PDU: a command of the largest MDTS comes in eight, so that other commands of
 * the queue get their turn between. */
#define TCP_MAXH2CDATA (128u << 10)

/* Of a listener's URI. The digests are on where the host asks for them, too. */
enum tcp_option {
	TCP_OPTION_HDGST = NR_TRANSPORT_LIMITS,
	TCP_OPTION_DDGST,
	TCP_OPTION_TOS,
	TCP_OPTION_PRIORITY,
	NR_TCP_OPTIONS
};
static_assert((int)NR_TCP_OPTIONS <= PORT_MAX_OPTIONS);

/* A host on its way to its reactor. */
struct tcp_handover {
	struct transport_handover base;
	int fd; /* the accepted socket */
};

static inline struct tcp_handover *tcp_handover(struct transport_handover *handover)
{
	return container_of(handover, struct tcp_handover, base);
}

/* Where the data that is passing through the stream goes. */
enum tcp_fill {
	TCP_FILL_NONE,	  /* nowhere, or there is none */
	TCP_FILL_ASKING,  /* in-capsule data of a command the core has not decided about */
	TCP_FILL_CAPSULE, /* the same, into the request's buffer */
	TCP_FILL_SIDE,	  /* the same, aside */
	TCP_FILL_H2C,	  /* H2CData, into the request's buffer */
};

struct transport_conn {
	struct tcp_stream stream;
	struct conn *conn;
	enum tcp_fill fill;
	struct request *filling; /* whose data that is; NULL for NONE */
	struct list pulling;	 /* requests in PULL */
	struct list sides;	 /* of tcp_side */
	struct tcp_side *side_filling;
	struct tcp_item icresp;
	uint8_t digests; /* DGST of ICResp */
};

enum tcp_send { TCP_SEND_R2T, TCP_SEND_REPLY };

/* The transport's part of a request. */
struct tcp_request {
	struct tcp_item item;
	enum tcp_send send;
	bool r2t_sent;
	uint16_t status; /* of what has been received */
	uint32_t received;
	struct iovec iov; /* the request's bytes */
	struct tcp_side *side;
};
static_assert(sizeof(struct tcp_request) <= REQUEST_TRANSPORT_BYTES);

static inline struct tcp_request *tcp_request(struct request *request)
{
	return (struct tcp_request *)request->transport;
}

/* transport_tcp_listen.c */
int tcp_listen(struct port *port, char *why, size_t why_size);
void tcp_unlisten(struct port *port);
void tcp_refuse(struct transport_handover *handover);

/* transport_tcp_data.c */
void tcp_data_init(struct transport_conn *tc);
/* The command has been received and handed to the core; its in-capsule data is still to come. */
void tcp_data_decide(struct transport_conn *tc, struct request *request);
void tcp_data_h2c(struct transport_conn *tc, const struct nvme_tcp_data *data, uint32_t data_len);
void tcp_data_received(struct transport_conn *tc, bool intact);
void tcp_data_pull(struct request *request);
/* The core wants no data (any more) that came with REQUEST. */
void tcp_data_forget(struct transport_conn *tc, struct request *request);
void tcp_data_destroy(struct transport_conn *tc);

#endif
