/* SPDX-License-Identifier: MIT */
/*
 * What two softrdma processes say to each other: framed messages on one Unix stream a connection.
 * Both ends are the same build on the same machine, so the layout is the compiler's.
 */
#ifndef SOFTRDMA_WIRE_H
#define SOFTRDMA_WIRE_H

#include <assert.h>
#include <stdint.h>

/* Largest payload of one message; a work request is cut into segments of this size, like packets.
 */
#define SR_SEGMENT 32768u

enum sr_msg {
	/* Requests: requester to responder, in order of seq. */
	SR_MSG_SEND = 1,
	SR_MSG_WRITE,
	SR_MSG_READ,
	/* Responses. */
	SR_MSG_READ_DATA,
	SR_MSG_ACK,  /* all requests up to and with seq are done */
	SR_MSG_RNR,  /* no receive for seq: send again from there after code (RNR timer) */
	SR_MSG_NAK,  /* seq failed at the responder: code is the requester's ibv_wc_status */
	SR_MSG_GONE, /* nobody will ever answer: what a real requester learns by its retry timer */
	/* Connection management. */
	SR_MSG_CM_REQ,
	SR_MSG_CM_REP,
	SR_MSG_CM_RTU,
	SR_MSG_CM_REJ,
	SR_MSG_CM_DREQ,
	SR_MSG_CM_DREP,
};

enum sr_msg_flags {
	SR_FLAG_SOLICITED = 1 << 0,
	SR_FLAG_IMM = 1 << 1,
	SR_FLAG_INV = 1 << 2,
};

struct sr_hdr {
	uint8_t type;
	uint8_t flags;
	uint16_t code;
	uint32_t len;	/* payload bytes behind this header */
	uint32_t seq;	/* number of the request */
	uint32_t off;	/* of this segment in the request's data */
	uint32_t total; /* bytes of the request's data */
	uint32_t rkey;
	uint32_t imm; /* immediate data, or the key to invalidate */
	uint32_t qp_num;
	uint64_t addr;
};

static_assert(sizeof(struct sr_hdr) == 40, "header layout");

/* Payload of the CM messages. */
struct sr_cm_body {
	uint8_t src[16], dst[16]; /* IPv6, or IPv4-mapped */
	uint16_t src_port, dst_port;
	uint16_t family;
	uint16_t reason;
	uint32_t qp_num;
	uint8_t responder_resources, initiator_depth;
	uint8_t rnr_retry_count, retry_count;
	uint8_t flow_control, srq;
	uint8_t private_data_len;
	uint8_t pad;
	uint8_t private_data[256];
};

#endif
