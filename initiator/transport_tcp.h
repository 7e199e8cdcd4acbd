/* SPDX-License-Identifier: MIT */
/*
 * The initiator's end of an NVMe/TCP connection, which cuts and sends PDUs by
 * proto/link/tcp_stream.h: what its life and the I/O on it share.
 */
#ifndef HAUL_INITIATOR_TRANSPORT_TCP_H
#define HAUL_INITIATOR_TRANSPORT_TCP_H

#include "initiator/loop_private.h"
#include "initiator/transport.h"
#include "proto/link/tcp_stream.h"

enum tcp_queue_state {
	TCP_QUEUE_IDLE,
	TCP_QUEUE_CONNECTING,	/* the socket connects */
	TCP_QUEUE_INITIALIZING, /* ICReq is on its way, or ICResp */
	TCP_QUEUE_LIVE,
	TCP_QUEUE_FAILING,	 /* closes; then haul_queue_connected() with an error */
	TCP_QUEUE_DISCONNECTING, /* closes; then haul_queue_quiesced() */
	TCP_QUEUE_CLOSED,
};

#define TCP_QUEUE_WHY_BYTES 160

struct haul_transport_queue {
	struct haul_queue *queue;
	enum tcp_queue_state state;
	bool has_stream;
	struct tcp_stream stream;
	struct loop_op connect_op;
	struct loop_flush ended; /* where there is no stream to be closed */
	struct tcp_item icreq;
	uint32_t maxh2cdata;
	struct haul_request *filling; /* whose data passes through the stream */
	bool success;		      /* it is the last, and no response follows */
	int error;		      /* why it is FAILING */
	char why[TCP_QUEUE_WHY_BYTES];
};

enum tcp_send { TCP_SEND_COMMAND, TCP_SEND_DATA };

/* The transport's part of a request. */
struct tcp_request {
	struct tcp_item item;
	enum tcp_send send;
	bool in_capsule;     /* the data goes with the command */
	bool built;	     /* the command is sent, or in the batch that is */
	bool lent;	     /* the item and the caller's memory are in that batch */
	bool digest_failed;  /* of data received */
	bool answered;	     /* CQE is the answer; it waits for the end of LENT */
	uint16_t ttag;	     /* of the R2T being served */
	uint32_t received;   /* bytes, in C2HData */
	uint32_t asked;	     /* bytes, by R2Ts up to now */
	uint32_t r2t_left;   /* of the R2T being served */
	uint32_t r2t_offset; /* of the first of these */
	struct nvme_cqe cqe;
};
static_assert(sizeof(struct tcp_request) <= HAUL_REQUEST_TRANSPORT_BYTES);

static inline struct tcp_request *tcp_request(struct haul_request *request)
{
	return (struct tcp_request *)request->transport;
}

static inline struct haul_request *tcp_request_of_item(struct tcp_item *item)
{
	struct tcp_request *tr = container_of(item, struct tcp_request, item);

	return (struct haul_request *)((uintptr_t)tr - offsetof(struct haul_request, transport));
}

/* --- transport_tcp_io.c: the operations of haul_transport_ops and of tcp_stream_ops that are about
 * a request. */
void tcp_queue_submit(struct haul_queue *queue, struct haul_request *request);
/* The next PDUs of REQUEST, which is in the stream's queue. */
enum tcp_built tcp_queue_build(struct haul_transport_queue *tq, struct haul_request *request);
void tcp_queue_sent(struct tcp_stream *stream, struct tcp_item *item);
void tcp_queue_received_resp(
	struct haul_transport_queue *tq, const struct nvme_tcp_capsule_resp *resp);
void tcp_queue_received_r2t(struct haul_transport_queue *tq, const struct nvme_tcp_r2t *r2t);
/* C2HData, of which DATA_LEN bytes follow; then all of them are in the caller's memory. */
void tcp_queue_received_data(
	struct haul_transport_queue *tq, const struct nvme_tcp_data *data, uint32_t data_len);
void tcp_queue_data_received(struct tcp_stream *stream, bool intact);

#endif
