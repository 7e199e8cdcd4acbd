/* SPDX-License-Identifier: MIT */
/*
 * Messages of DH-HMAC-CHAP and secrets: read and checked.
 */
#include "proto/nvme/auth.h"

#include <errno.h>
#include <string.h>

/* --- names ----------------------------------------------------------------------------------- */

struct nvme_auth_kind {
	const char *name;
	uint32_t bytes;
};

static const struct nvme_auth_kind nvme_auth_hashes[] = {
	[NVME_AUTH_SHA256] = {"sha256", 32},
	[NVME_AUTH_SHA384] = {"sha384", 48},
	[NVME_AUTH_SHA512] = {"sha512", 64},
};

static const struct nvme_auth_kind nvme_auth_groups[] = {
	[NVME_AUTH_GROUP_NULL] = {"null", 0},
	[NVME_AUTH_FFDHE2048] = {"ffdhe2048", 256},
	[NVME_AUTH_FFDHE3072] = {"ffdhe3072", 384},
	[NVME_AUTH_FFDHE4096] = {"ffdhe4096", 512},
	[NVME_AUTH_FFDHE6144] = {"ffdhe6144", 768},
	[NVME_AUTH_FFDHE8192] = {"ffdhe8192", 1024},
};

uint32_t nvme_auth_hash_bytes(uint8_t hash)
{
	return hash < ARRAY_SIZE(nvme_auth_hashes) ? nvme_auth_hashes[hash].bytes : 0;
}

uint32_t nvme_auth_group_bytes(uint8_t group)
{
	return group < ARRAY_SIZE(nvme_auth_groups) ? nvme_auth_groups[group].bytes : 0;
}

const char *nvme_auth_hash_name(uint8_t hash)
{
	return hash < ARRAY_SIZE(nvme_auth_hashes) ? nvme_auth_hashes[hash].name : NULL;
}

const char *nvme_auth_group_name(uint8_t group)
{
	return group < ARRAY_SIZE(nvme_auth_groups) ? nvme_auth_groups[group].name : NULL;
}

static int nvme_auth_kind_find(
	const struct nvme_auth_kind *kinds, size_t nr, const char *name, uint8_t *ret)
{
	for (size_t i = 0; i < nr; i++) {
		if (!kinds[i].name || strcmp(kinds[i].name, name))
			continue;
		*ret = (uint8_t)i;
		return 0;
	}
	return -EINVAL;
}

int nvme_auth_hash_by_name(const char *name, uint8_t *ret)
{
	return nvme_auth_kind_find(nvme_auth_hashes, ARRAY_SIZE(nvme_auth_hashes), name, ret);
}

int nvme_auth_group_by_name(const char *name, uint8_t *ret)
{
	return nvme_auth_kind_find(nvme_auth_groups, ARRAY_SIZE(nvme_auth_groups), name, ret);
}

uint8_t nvme_auth_strongest(uint32_t set)
{
	assert(set);
	return (uint8_t)(31 - __builtin_clz(set));
}

const char *nvme_auth_fault_str(uint8_t fault)
{
	static const char *const texts[] = {
		[NVME_AUTH_OK] = "none",
		[NVME_AUTH_FAILED] = "authentication failed",
		[NVME_AUTH_PROTOCOL_UNUSABLE] = "protocol not usable",
		[NVME_AUTH_CONCAT_MISMATCH] = "secure channel concatenation mismatch",
		[NVME_AUTH_HASH_UNUSABLE] = "hash function not usable",
		[NVME_AUTH_GROUP_UNUSABLE] = "DH group not usable",
		[NVME_AUTH_PAYLOAD] = "incorrect payload",
		[NVME_AUTH_MESSAGE] = "incorrect protocol message",
	};

	return fault < ARRAY_SIZE(texts) ? texts[fault] : "unknown reason";
}

/* --- messages -------------------------------------------------------------------------------- */

int nvme_auth_header_get(const void *bytes, size_t len, struct nvme_auth_header *ret)
{
	if (len < sizeof(*ret))
		return -EINVAL;
	memcpy(ret, bytes, sizeof(*ret));
	return 0;
}

/* Those of the NR numbers at IDS that are in KNOWN. */
static uint32_t nvme_auth_set(const uint8_t *ids, uint8_t nr, uint32_t known)
{
	uint32_t set = 0;

	for (uint8_t i = 0; i < nr; i++)
		if (ids[i] < 32)
			set |= 1u << ids[i];
	return set & known;
}

enum nvme_auth_fault nvme_auth_negotiate_check(
	const void *bytes, size_t len, struct nvme_auth_offer *ret)
{
	const struct nvme_auth_negotiate *message = bytes;
	const struct nvme_auth_protocol *protocol = NULL;

	if (len < sizeof(*message) || !message->napd ||
		len != sizeof(*message) + message->napd * sizeof(message->protocol[0]))
		return NVME_AUTH_PAYLOAD;
	if (message->sc_c)
		return NVME_AUTH_CONCAT_MISMATCH;
	for (uint8_t i = 0; i < message->napd && !protocol; i++)
		if (message->protocol[i].authid == NVME_AUTH_DHCHAP)
			protocol = &message->protocol[i];
	if (!protocol)
		return NVME_AUTH_PROTOCOL_UNUSABLE;
	if (!protocol->halen || protocol->halen > NVME_AUTH_MAX_IDS || !protocol->dhlen ||
		protocol->dhlen > NVME_AUTH_MAX_IDS)
		return NVME_AUTH_PAYLOAD;
	ret->hashes = nvme_auth_set(protocol->hash, protocol->halen, NVME_AUTH_ALL_HASHES);
	ret->groups = nvme_auth_set(protocol->group, protocol->dhlen, NVME_AUTH_ALL_GROUPS);
	return NVME_AUTH_OK;
}

enum nvme_auth_fault nvme_auth_reply_check(
	const void *bytes, size_t len, uint8_t hash, uint8_t group, struct nvme_auth_answer *ret)
{
	const struct nvme_auth_reply *message = bytes;
	uint32_t hash_bytes = nvme_auth_hash_bytes(hash);
	uint32_t dh_bytes = nvme_auth_group_bytes(group);

	if (len != sizeof(*message) + 2 * hash_bytes + dh_bytes || message->hl != hash_bytes ||
		le16_get(message->dhvlen) != dh_bytes || message->cvalid > 1)
		return NVME_AUTH_PAYLOAD;
	/* S2 is 0 only with secure channel concatenation (NVMe base 2.0 8.13.5.4). */
	if (message->cvalid && !le32_get(message->seqnum))
		return NVME_AUTH_PAYLOAD;
	ret->challenges = message->cvalid;
	ret->seqnum = le32_get(message->seqnum);
	ret->response = message->values;
	ret->challenge = message->values + hash_bytes;
	ret->dh = dh_bytes ? message->values + 2 * hash_bytes : NULL;
	return NVME_AUTH_OK;
}

enum nvme_auth_fault nvme_auth_success2_check(const void *bytes, size_t len)
{
	(void)bytes;
	return len == sizeof(struct nvme_auth_success2) ? NVME_AUTH_OK : NVME_AUTH_PAYLOAD;
}

enum nvme_auth_fault nvme_auth_failure2_check(const void *bytes, size_t len, uint8_t *ret_fault)
{
	const struct nvme_auth_failure *message = bytes;

	if (len != sizeof(*message))
		return NVME_AUTH_PAYLOAD;
	*ret_fault = message->rcodeex;
	return NVME_AUTH_OK;
}

/* --- secrets --------------------------------------------------------------------------------- */

#define NVME_AUTH_CRC_BYTES    4u
#define NVME_AUTH_SECRET_START 10u /* behind "DHHC-1:00:" */

/* CRC-32 of ISO 3309, as in Ethernet. */
static uint32_t nvme_auth_crc32(const uint8_t *bytes, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

/* Its value, or 64: it is none. Without a table, whose accesses a cache would tell of. */
static uint32_t nvme_auth_base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (uint32_t)(c - 'A');
	if (c >= 'a' && c <= 'z')
		return (uint32_t)(c - 'a') + 26;
	if (c >= '0' && c <= '9')
		return (uint32_t)(c - '0') + 52;
	return c == '+' ? 62 : c == '/' ? 63 : 64;
}

/* Four characters to at most three bytes; how many, or -EINVAL. RFC 4648 3.5: no bit may be left
 * over. */
static int nvme_auth_base64_quad(const char text[4], bool last, uint8_t *out, size_t room)
{
	size_t pad = !last || text[3] != '=' ? 0 : text[2] != '=' ? 1 : 2;
	size_t nr = 3 - pad;
	uint32_t bits = 0;

	for (size_t i = 0; i < 4; i++) {
		uint32_t value = i >= 4 - pad ? 0 : nvme_auth_base64_value(text[i]);

		if (value > 63)
			return -EINVAL;
		bits = bits << 6 | value;
	}
	if (nr > room || (pad && bits & ((1u << 8 * pad) - 1)))
		return -EINVAL;
	for (size_t i = 0; i < nr; i++)
		out[i] = (uint8_t)(bits >> (16 - 8 * i));
	return (int)nr;
}

/* How many bytes there are, at most SIZE; -EINVAL. */
static int nvme_auth_base64(const char *text, size_t len, uint8_t *out, size_t size)
{
	size_t used = 0;

	if (!len || len % 4)
		return -EINVAL;
	for (size_t i = 0; i < len; i += 4) {
		int nr = nvme_auth_base64_quad(text + i, i + 4 == len, out + used, size - used);

		if (nr < 0)
			return nr;
		used += (size_t)nr;
	}
	return (int)used;
}

static const char *nvme_auth_secret_fault(
	const char *text, size_t len, struct nvme_auth_secret *ret, uint8_t *bytes, size_t size)
{
	const uint8_t *crc;
	int nr;

	if (len < NVME_AUTH_SECRET_START ||
		memcmp(text, NVME_AUTH_SECRET_PREFIX, strlen(NVME_AUTH_SECRET_PREFIX)) ||
		text[NVME_AUTH_SECRET_START - 1] != ':')
		return "is not a secret such as nvme gen-dhchap-key prints: DHHC-1:...";
	if (text[7] != '0' || text[8] < '0' || text[8] > '3')
		return "has a transformation that is not known: 00, 01, 02 and 03 are";
	if (text[len - 1] != ':')
		return "has no ':' at its end";
	nr = len > NVME_AUTH_SECRET_TEXT_MAX
		     ? -EINVAL
		     : nvme_auth_base64(text + NVME_AUTH_SECRET_START,
			       len - NVME_AUTH_SECRET_START - 1, bytes, size);
	if (nr != 32 + 4 && nr != 48 + 4 && nr != 64 + 4)
		return "is not of 32, 48 or 64 bytes and a checksum in base64";
	ret->hash = (uint8_t)(text[8] - '0');
	ret->len = (uint8_t)(nr - (int)NVME_AUTH_CRC_BYTES);
	crc = bytes + ret->len;
	if (nvme_auth_crc32(bytes, ret->len) !=
		((uint32_t)crc[0] | (uint32_t)crc[1] << 8 | (uint32_t)crc[2] << 16 |
			(uint32_t)crc[3] << 24))
		return "has another checksum: some character is wrong";
	memcpy(ret->bytes, bytes, ret->len);
	return NULL;
}

int nvme_auth_secret_parse(
	const char *text, size_t len, struct nvme_auth_secret *ret, const char **ret_why)
{
	uint8_t bytes[sizeof(ret->bytes) + NVME_AUTH_CRC_BYTES];
	const char *fault = nvme_auth_secret_fault(text, len, ret, bytes, sizeof(bytes));

	explicit_bzero(bytes, sizeof(bytes));
	if (!fault)
		return 0;
	ret->len = 0;
	if (ret_why)
		*ret_why = fault;
	return -EINVAL;
}
