/* SPDX-License-Identifier: MIT */
/*
 * Scatter gather lists of fabrics commands: the descriptors, and the one parser that turns them
 * into checked pieces. Knows capsules, not transports: it never looks at memory outside the
 * capsule.
 */
#ifndef HAUL_PROTO_NVME_SGL_H
#define HAUL_PROTO_NVME_SGL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/endian.h"

struct nvme_cmd;

/* Upper half of the descriptor's last byte (NVMe base 2.0 4.1.2.1). */
enum nvme_sgl_type {
	NVME_SGL_DATA_BLOCK = 0x0,
	NVME_SGL_BIT_BUCKET = 0x1,
	NVME_SGL_SEGMENT = 0x2,
	NVME_SGL_LAST_SEGMENT = 0x3,
	NVME_SGL_KEYED_DATA_BLOCK = 0x4,
	NVME_SGL_TRANSPORT_DATA_BLOCK = 0x5,
};

/* Lower half of it; Ah to Fh belong to the transport. */
enum nvme_sgl_subtype {
	NVME_SGL_ADDRESS = 0x0,
	NVME_SGL_OFFSET = 0x1,
	NVME_SGL_TRANSPORT_A = 0xa, /* TCP: data by R2T or C2HData */
	NVME_SGL_INVALIDATE = 0xf,  /* RDMA: the key is to be invalidated by the response */
};

/* The five descriptors that occur on a fabric, as the whole last byte. */
enum nvme_sgl_id {
	NVME_SGL_ID_IN_CAPSULE = NVME_SGL_DATA_BLOCK << 4 | NVME_SGL_OFFSET,
	NVME_SGL_ID_LAST_SEGMENT = NVME_SGL_LAST_SEGMENT << 4 | NVME_SGL_OFFSET,
	NVME_SGL_ID_KEYED = NVME_SGL_KEYED_DATA_BLOCK << 4 | NVME_SGL_ADDRESS,
	NVME_SGL_ID_KEYED_INVALIDATE = NVME_SGL_KEYED_DATA_BLOCK << 4 | NVME_SGL_INVALIDATE,
	NVME_SGL_ID_TRANSPORT = NVME_SGL_TRANSPORT_DATA_BLOCK << 4 | NVME_SGL_TRANSPORT_A,
};

#define NVME_SGL_KEYED_LEN_MAX 0xffffffu /* a 24-bit field */

struct nvme_sgl_desc {
	le64_t addr; /* or the offset in the capsule's data */
	union {
		struct {
			le32_t len;
			uint8_t rsvd12[3];
		};
		struct {
			le24_t len;
			le32_t key;
		} keyed;
	};
	uint8_t id; /* enum nvme_sgl_type << 4 | enum nvme_sgl_subtype */
};
static_assert(sizeof(struct nvme_sgl_desc) == 16);
static_assert(offsetof(struct nvme_sgl_desc, len) == 8);
static_assert(offsetof(struct nvme_sgl_desc, keyed.len) == 8);
static_assert(offsetof(struct nvme_sgl_desc, keyed.key) == 11);
static_assert(offsetof(struct nvme_sgl_desc, id) == 15);

/* What the command's SGL describes. */
enum nvme_sgl_place {
	NVME_SGL_NO_DATA,    /* all lengths are 0 */
	NVME_SGL_IN_CAPSULE, /* one piece; addr is its offset in the capsule's data; host to
				controller only */
	NVME_SGL_KEYED,	     /* RDMA: nr pieces of the host's memory */
	NVME_SGL_TRANSPORT,  /* TCP: one piece, moved by PDUs; addr means nothing */
};

#define NVME_SGL_MAX_PIECES 16 /* the MSDBD we offer on RDMA */

struct nvme_sgl_piece {
	uint64_t addr;
	uint32_t len; /* never 0 */
	uint32_t key;
};

struct nvme_sgl {
	uint64_t len; /* of all pieces */
	enum nvme_sgl_place place;
	uint8_t nr;
	bool invalidate; /* the host asks to have invalidate_key invalidated by the response; ... */
	uint32_t invalidate_key; /* ... the first such key: SEND with invalidate takes only one */
	struct nvme_sgl_piece piece[NVME_SGL_MAX_PIECES];
};

struct nvme_sgl_limits {
	size_t in_capsule_max; /* bytes of in-capsule data this queue accepts; 0: none */
	unsigned msdbd;	       /* data descriptors accepted: 1 to NVME_SGL_MAX_PIECES */
	bool keyed;	       /* RDMA: keyed descriptors. Otherwise TCP: transport descriptors */
};

/*
 * Parses the SGL of the command. icd and icd_len are the capsule's bytes behind the command (ICDOFF
 * is 0); icd is read only for descriptors in the capsule, so it may be NULL on TCP. Pieces of
 * length 0 are left out. Returns 0 or a status with DNR, then what is in ret has no meaning.
 * An in-capsule SGL of a command that sends data to the host is for the caller to refuse (Invalid
 * Field): only the table of commands knows the direction.
 */
uint16_t nvme_sgl_parse(const struct nvme_cmd *cmd, const void *icd, size_t icd_len,
	const struct nvme_sgl_limits *limits, struct nvme_sgl *ret) must_check;

/* Constructors for the host's side. */
static inline struct nvme_sgl_desc nvme_sgl_in_capsule(uint64_t offset, uint32_t len)
{
	return (struct nvme_sgl_desc){
		.addr = le64(offset), .len = le32(len), .id = NVME_SGL_ID_IN_CAPSULE};
}

static inline struct nvme_sgl_desc nvme_sgl_transport(uint32_t len)
{
	return (struct nvme_sgl_desc){.len = le32(len), .id = NVME_SGL_ID_TRANSPORT};
}

static inline struct nvme_sgl_desc nvme_sgl_last_segment(uint64_t offset, unsigned nr)
{
	uint32_t len = (uint32_t)(nr * sizeof(struct nvme_sgl_desc));

	return (struct nvme_sgl_desc){
		.addr = le64(offset), .len = le32(len), .id = NVME_SGL_ID_LAST_SEGMENT};
}

/*
 * len is at most NVME_SGL_KEYED_LEN_MAX. Length, key and type are stored at once: three odd stores
 * before the load that sends the descriptor on would stall on the I/O path.
 */
static inline struct nvme_sgl_desc nvme_sgl_keyed(
	uint64_t addr, uint32_t len, uint32_t key, bool invalidate)
{
	uint64_t id = invalidate ? NVME_SGL_ID_KEYED_INVALIDATE : NVME_SGL_ID_KEYED;
	le64_t tail = le64(len | (uint64_t)key << 24 | id << 56);
	struct nvme_sgl_desc desc = {.addr = le64(addr)};

	memcpy((uint8_t *)&desc + offsetof(struct nvme_sgl_desc, keyed), &tail, sizeof(tail));
	return desc;
}

#endif
