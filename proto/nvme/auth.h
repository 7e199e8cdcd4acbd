/* SPDX-License-Identifier: MIT */
/*
 * In-band authentication (NVMe base 2.0 8.13): the messages of DH-HMAC-CHAP, checked here once, and
 * secrets in their written form. What is computed with them is in proto/auth/.
 */
#ifndef HAUL_PROTO_NVME_AUTH_H
#define HAUL_PROTO_NVME_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/endian.h"

/* --- commands -------------------------------------------------------------------------------- */

/* Authentication Send and Receive: bytes 40 to 63. */
#define NVME_AUTH_SECP	0xe9
#define NVME_AUTH_SPSP0 0x01
#define NVME_AUTH_SPSP1 0x01

struct nvme_auth_cmd {
	uint8_t rsvd40;
	uint8_t spsp0;
	uint8_t spsp1;
	uint8_t secp;
	le32_t length; /* TL of Send, AL of Receive */
	uint8_t rsvd48[16];
};
static_assert(sizeof(struct nvme_auth_cmd) == 24);
static_assert(offsetof(struct nvme_auth_cmd, secp) == 43 - 40);
static_assert(offsetof(struct nvme_auth_cmd, length) == 44 - 40);

/* --- messages -------------------------------------------------------------------------------- */

enum nvme_auth_type { NVME_AUTH_COMMON = 0x00, NVME_AUTH_DHCHAP = 0x01 };

enum nvme_auth_id {
	NVME_AUTH_NEGOTIATE = 0x00, /* common */
	NVME_AUTH_FAILURE2 = 0xf0,
	NVME_AUTH_FAILURE1 = 0xf1,
	NVME_AUTH_CHALLENGE = 0x01, /* DH-HMAC-CHAP */
	NVME_AUTH_REPLY = 0x02,
	NVME_AUTH_SUCCESS1 = 0x03,
	NVME_AUTH_SUCCESS2 = 0x04,
};

#define NVME_AUTH_RCODE_FAILURE 0x01

/* Reason code explanations; 0 is none of them. */
enum nvme_auth_fault {
	NVME_AUTH_OK = 0,
	NVME_AUTH_FAILED = 0x01,
	NVME_AUTH_PROTOCOL_UNUSABLE = 0x02,
	NVME_AUTH_CONCAT_MISMATCH = 0x03,
	NVME_AUTH_HASH_UNUSABLE = 0x04,
	NVME_AUTH_GROUP_UNUSABLE = 0x05,
	NVME_AUTH_PAYLOAD = 0x06,
	NVME_AUTH_MESSAGE = 0x07,
};
/* In a word or two, of any number. */
const char *nvme_auth_fault_str(uint8_t fault);

struct nvme_auth_header {
	uint8_t type;
	uint8_t id;
	uint8_t rsvd2[2];
	le16_t t_id;
};
static_assert(sizeof(struct nvme_auth_header) == 6);

#define NVME_AUTH_MAX_IDS 30

struct nvme_auth_protocol {
	uint8_t authid;
	uint8_t rsvd1;
	uint8_t halen;
	uint8_t dhlen;
	uint8_t hash[NVME_AUTH_MAX_IDS];
	uint8_t group[NVME_AUTH_MAX_IDS];
};
static_assert(sizeof(struct nvme_auth_protocol) == 64);

struct nvme_auth_negotiate {
	struct nvme_auth_header header;
	uint8_t sc_c;
	uint8_t napd;
	struct nvme_auth_protocol protocol[];
};
static_assert(sizeof(struct nvme_auth_negotiate) == 8);

struct nvme_auth_challenge {
	struct nvme_auth_header header;
	uint8_t hl;
	uint8_t rsvd7;
	uint8_t hash;
	uint8_t group;
	le16_t dhvlen;
	le32_t seqnum;
	uint8_t values[]; /* C1 of HL bytes, then the DH value */
};
static_assert(sizeof(struct nvme_auth_challenge) == 16);
static_assert(offsetof(struct nvme_auth_challenge, dhvlen) == 10);
static_assert(offsetof(struct nvme_auth_challenge, seqnum) == 12);

struct nvme_auth_reply {
	struct nvme_auth_header header;
	uint8_t hl;
	uint8_t rsvd7;
	uint8_t cvalid;
	uint8_t rsvd9;
	le16_t dhvlen;
	le32_t seqnum;
	uint8_t values[]; /* R1 and C2 of HL bytes each, then the DH value */
};
static_assert(sizeof(struct nvme_auth_reply) == 16);
static_assert(offsetof(struct nvme_auth_reply, dhvlen) == 10);
static_assert(offsetof(struct nvme_auth_reply, seqnum) == 12);

struct nvme_auth_success1 {
	struct nvme_auth_header header;
	uint8_t hl;
	uint8_t rsvd7;
	uint8_t rvalid;
	uint8_t rsvd9[7];
	uint8_t values[]; /* R2 of HL bytes */
};
static_assert(sizeof(struct nvme_auth_success1) == 16);

struct nvme_auth_success2 {
	struct nvme_auth_header header;
	uint8_t rsvd6[10];
};
static_assert(sizeof(struct nvme_auth_success2) == 16);

struct nvme_auth_failure {
	struct nvme_auth_header header;
	uint8_t rcode;
	uint8_t rcodeex;
};
static_assert(sizeof(struct nvme_auth_failure) == 8);

/* --- hash functions and groups --------------------------------------------------------------- */

enum nvme_auth_hash {
	NVME_AUTH_SHA256 = 1,
	NVME_AUTH_SHA384 = 2,
	NVME_AUTH_SHA512 = 3,
};
#define NVME_AUTH_HASH_MAX_BYTES 64u
#define NVME_AUTH_ALL_HASHES	 0x0eu /* a bit for each, 1 << its number; so are sets of groups */

enum nvme_auth_group {
	NVME_AUTH_GROUP_NULL = 0, /* no Diffie-Hellman */
	NVME_AUTH_FFDHE2048 = 1,
	NVME_AUTH_FFDHE3072 = 2,
	NVME_AUTH_FFDHE4096 = 3,
	NVME_AUTH_FFDHE6144 = 4,
	NVME_AUTH_FFDHE8192 = 5,
};
#define NVME_AUTH_GROUP_MAX_BYTES 1024u
#define NVME_AUTH_ALL_GROUPS	  0x3fu

/* No message of either side is longer, whatever is chosen. */
#define NVME_AUTH_MAX_MESSAGE \
	(sizeof(struct nvme_auth_reply) + 2 * NVME_AUTH_HASH_MAX_BYTES + NVME_AUTH_GROUP_MAX_BYTES)

/* Bytes of its results, or of its DH values; 0: there is none of that number, or no DH. */
uint32_t nvme_auth_hash_bytes(uint8_t hash);
uint32_t nvme_auth_group_bytes(uint8_t group);
/* "sha256", "ffdhe2048", "null"; NULL: there is none of that number. */
const char *nvme_auth_hash_name(uint8_t hash);
const char *nvme_auth_group_name(uint8_t group);
/* The reverse; -EINVAL. */
int nvme_auth_hash_by_name(const char *name, uint8_t *ret) must_check;
int nvme_auth_group_by_name(const char *name, uint8_t *ret) must_check;
/* The highest number in SET, which is not empty: the strongest. */
uint8_t nvme_auth_strongest(uint32_t set);

/* --- checks of what a host sends ------------------------------------------------------------- */

/* All of them: LEN is of the whole message, which must be exactly what it says. NVME_AUTH_OK, or
 * what to answer with; results are untouched then. */

/* -EINVAL: too short to be any message. */
int nvme_auth_header_get(const void *bytes, size_t len, struct nvme_auth_header *ret) must_check;

struct nvme_auth_offer {
	uint32_t hashes; /* that we know, too */
	uint32_t groups;
};
enum nvme_auth_fault nvme_auth_negotiate_check(
	const void *bytes, size_t len, struct nvme_auth_offer *ret) must_check;

struct nvme_auth_answer {
	bool challenges;	  /* the host wants to know who we are, too */
	uint32_t seqnum;	  /* S2 */
	const uint8_t *response;  /* R1; in the message, as the others */
	const uint8_t *challenge; /* C2 */
	const uint8_t *dh;	  /* NULL: no DH */
};
/* With the hash function and group that were chosen. */
enum nvme_auth_fault nvme_auth_reply_check(const void *bytes, size_t len, uint8_t hash,
	uint8_t group, struct nvme_auth_answer *ret) must_check;

enum nvme_auth_fault nvme_auth_success2_check(const void *bytes, size_t len) must_check;
enum nvme_auth_fault nvme_auth_failure2_check(
	const void *bytes, size_t len, uint8_t *ret_fault) must_check;

/* --- secrets --------------------------------------------------------------------------------- */

/* "DHHC-1:03:", 68 bytes in base64, ":". */
#define NVME_AUTH_SECRET_TEXT_MAX 103u
#define NVME_AUTH_SECRET_PREFIX	  "DHHC-1:"

struct nvme_auth_secret {
	uint8_t hash; /* of the transformation; 0: none */
	uint8_t len;  /* 32, 48 or 64; 0: there is no secret */
	uint8_t bytes[64];
};

/* NVMe base 2.0 8.13.5.8. 0, or -EINVAL and RET_WHY points to a constant text that says what is
 * wrong, without a part of the secret; RET may hold a part of it. */
int nvme_auth_secret_parse(const char *text, size_t len, struct nvme_auth_secret *ret,
	const char **ret_why) must_check;

#endif
