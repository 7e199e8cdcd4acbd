/* SPDX-License-Identifier: MIT */
/*
 * PDUs of NVMe/TCP (NVMe TCP 1.0c 3.6.2) and the one check of their common header, which both sides
 * make before they use any length in it.
 */
#ifndef HAUL_PROTO_NVME_TCP_H
#define HAUL_PROTO_NVME_TCP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/endian.h"
#include "proto/nvme/nvme.h"

enum nvme_tcp_pdu_type {
	NVME_TCP_IC_REQ = 0x00,
	NVME_TCP_IC_RESP = 0x01,
	NVME_TCP_H2C_TERM_REQ = 0x02,
	NVME_TCP_C2H_TERM_REQ = 0x03,
	NVME_TCP_CAPSULE_CMD = 0x04,
	NVME_TCP_CAPSULE_RESP = 0x05,
	NVME_TCP_H2C_DATA = 0x06,
	NVME_TCP_C2H_DATA = 0x07,
	NVME_TCP_R2T = 0x09,
};

#define NVME_TCP_HDGSTF	  0x01 /* a header digest follows the header */
#define NVME_TCP_DDGSTF	  0x02 /* a data digest follows the data */
#define NVME_TCP_LAST_PDU 0x04 /* H2CData, C2HData: last of this R2T or command */
#define NVME_TCP_SUCCESS  0x08 /* C2HData: no response capsule will follow */

#define NVME_TCP_DIGEST_SIZE 4
#define NVME_TCP_HLEN_MAX    128 /* of ICReq and ICResp */
#define NVME_TCP_PDA_MAX     31	 /* HPDA and CPDA: data starts at a multiple of (n + 1) * 4 */
#define NVME_TCP_PFV	     0
#define NVME_TCP_ADMIN_IN_CAPSULE \
	8192 /* each target takes this on admin queues (NVMe TCP 1.0c 3.3.2.1) */
#define NVME_TCP_MAXH2CDATA_MIN 4096 /* and a multiple of 4 (3.6.2.3) */

struct nvme_tcp_ch {
	uint8_t type;
	uint8_t flags;
	uint8_t hlen;
	uint8_t pdo;
	le32_t plen;
};
static_assert(sizeof(struct nvme_tcp_ch) == 8);
static_assert(offsetof(struct nvme_tcp_ch, plen) == 4);

/* DGST of ICReq (asked for) and ICResp (enabled). */
#define NVME_TCP_DGST_HEADER 0x01
#define NVME_TCP_DGST_DATA   0x02

static inline uint8_t nvme_tcp_dgst(bool header, bool data)
{
	return (uint8_t)((header ? NVME_TCP_DGST_HEADER : 0) | (data ? NVME_TCP_DGST_DATA : 0));
}

struct nvme_tcp_ic_req {
	struct nvme_tcp_ch ch;
	le16_t pfv;
	uint8_t hpda;
	uint8_t dgst;
	le32_t maxr2t; /* 0's based */
	uint8_t rsvd16[112];
};
static_assert(sizeof(struct nvme_tcp_ic_req) == 128);
static_assert(offsetof(struct nvme_tcp_ic_req, hpda) == 10);
static_assert(offsetof(struct nvme_tcp_ic_req, maxr2t) == 12);

struct nvme_tcp_ic_resp {
	struct nvme_tcp_ch ch;
	le16_t pfv;
	uint8_t cpda;
	uint8_t dgst;
	le32_t maxh2cdata;
	uint8_t rsvd16[112];
};
static_assert(sizeof(struct nvme_tcp_ic_resp) == 128);
static_assert(offsetof(struct nvme_tcp_ic_resp, maxh2cdata) == 12);

/* Fatal error status. */
enum nvme_tcp_fes {
	NVME_TCP_FES_INVALID_HEADER_FIELD = 1,
	NVME_TCP_FES_SEQUENCE = 2,
	NVME_TCP_FES_HEADER_DIGEST = 3,
	NVME_TCP_FES_OUT_OF_RANGE = 4,
	NVME_TCP_FES_LIMIT_EXCEEDED =
		5, /* sent by the host: R2Ts; by the controller: data of a PDU */
	NVME_TCP_FES_UNSUPPORTED_PARAMETER = 6,
};

/* At most this many bytes of the offending PDU's header follow a termination request. */
#define NVME_TCP_TERM_DATA_MAX 128

struct nvme_tcp_term_req {
	struct nvme_tcp_ch ch;
	le16_t fes;
	le32_t fei; /* 1 and 6: offset of the field; 3: the digest that was received */
	uint8_t rsvd14[10];
};
static_assert(sizeof(struct nvme_tcp_term_req) == 24);
static_assert(offsetof(struct nvme_tcp_term_req, fei) == 10);

struct nvme_tcp_capsule_cmd {
	struct nvme_tcp_ch ch;
	struct nvme_cmd cmd;
};
static_assert(sizeof(struct nvme_tcp_capsule_cmd) == 72);

struct nvme_tcp_capsule_resp {
	struct nvme_tcp_ch ch;
	struct nvme_cqe cqe;
};
static_assert(sizeof(struct nvme_tcp_capsule_resp) == 24);

/* H2CData and C2HData (which has no TTAG). */
struct nvme_tcp_data {
	struct nvme_tcp_ch ch;
	le16_t cccid;
	le16_t ttag;
	le32_t datao;
	le32_t datal;
	uint8_t rsvd20[4];
};
static_assert(sizeof(struct nvme_tcp_data) == 24);
static_assert(offsetof(struct nvme_tcp_data, datao) == 12);
static_assert(offsetof(struct nvme_tcp_data, datal) == 16);

struct nvme_tcp_r2t {
	struct nvme_tcp_ch ch;
	le16_t cccid;
	le16_t ttag;
	le32_t r2to;
	le32_t r2tl;
	uint8_t rsvd20[4];
};
static_assert(sizeof(struct nvme_tcp_r2t) == 24);
static_assert(offsetof(struct nvme_tcp_r2t, r2tl) == 16);

/* What a receiver accepts. Kept by the connection; changes once, after the exchange of ICReq and
 * ICResp. */
struct nvme_tcp_pdu_rules {
	bool to_ctrl;	  /* the receiver is a controller */
	bool initialized; /* ICReq and ICResp have been exchanged: before, only these; after, never
			   */
	bool header_digest; /* as negotiated */
	bool data_digest;
	uint8_t pda;		   /* the receiver's: CPDA for a controller, HPDA for a host */
	uint32_t capsule_data_max; /* controller: in-capsule data of one command */
	uint32_t data_max;	   /* data of one H2CData (the announced MAXH2CDATA) or C2HData */
};

struct nvme_tcp_pdu {
	uint8_t type;
	uint8_t flags;
	uint32_t header_len;  /* HLEN */
	uint32_t data_offset; /* from the start of the PDU; with data_len 0: where the PDU ends */
	uint32_t data_len;    /* digest and padding not counted */
	bool header_digest;   /* 4 bytes follow the header */
	bool data_digest;     /* 4 bytes follow the data */
};

struct nvme_tcp_fatal {
	uint16_t fes; /* enum nvme_tcp_fes */
	uint32_t fei;
};

/*
 * Checks the common header against the rules. Whatever passes has a header of exactly its type's
 * size, and its lengths add up: header_len, digest, padding up to data_offset, data_len, digest,
 * end. Fields behind the common header (DATAL must equal data_len, for example) are for the
 * receiver. Returns 0 and fills ret, or -EPROTO and fills ret_fatal with what a termination request
 * has to say; the other one is untouched.
 */
int nvme_tcp_pdu_check(const struct nvme_tcp_pdu_rules *rules, const struct nvme_tcp_ch *ch,
	struct nvme_tcp_pdu *ret, struct nvme_tcp_fatal *ret_fatal) must_check;

#endif
