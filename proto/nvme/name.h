/* SPDX-License-Identifier: MIT */
/*
 * Names: transports, NQNs (one verdict for configuration, API and wire: ours and peers'), fixed
 * text fields of Identify, UUIDs.
 */
#ifndef HAUL_PROTO_NVME_NAME_H
#define HAUL_PROTO_NVME_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"

/* Of an enum nvme_trtype, as in addresses: "rdma", "tcp", "fc", "loop"; NULL: reserved. */
const char *nvme_trtype_name(uint8_t trtype);
/* The reverse of the LEN bytes at NAME; 0, which is reserved: it is none. */
uint8_t nvme_trtype_by_name(const char *name, size_t len);

#define NVME_NQN_MAX   223 /* bytes, without the NUL (NVMe base 2.0 4.5) */
#define NVME_NQN_FIELD 256 /* in Connect data, Identify and the discovery log */

/* The form with a UUID: this and the 36 characters of the UUID (NVMe base 2.0 4.5). */
#define NVME_NQN_UUID_PREFIX "nqn.2014-08.org.nvmexpress:uuid:"

/*
 * Whose name it is. Names that we give have one of the two forms of NVMe base 2.0 4.5. The Linux
 * kernel and other products let theirs be any text ("testnqn"): such a name must be UTF-8 of 1 to
 * 223 bytes without control characters, no more.
 */
enum nvme_nqn_owner { NVME_NQN_OURS, NVME_NQN_PEERS };

/*
 * Checks an NQN of len bytes, no NUL among them (of a field on the wire: strnlen(field,
 * NVME_NQN_FIELD)). Returns 0 or -EINVAL with ret_why, if not NULL, pointing to a constant text
 * that says what is wrong. The well-known discovery NQN is good: whether it is allowed there is for
 * the caller to say.
 */
int nvme_nqn_check(
	const char *nqn, size_t len, enum nvme_nqn_owner owner, const char **ret_why) must_check;

/*
 * Puts text in a fixed field of Identify or of the discovery log, padded with spaces. -EINVAL when
 * it does not fit or has anything but printable ASCII; the field is untouched then.
 */
int nvme_field_set(char *field, size_t size, const char *text) must_check;

/* The reverse, into text of size + 1 bytes: without trailing spaces and NULs; what is not printable
 * becomes '?'. */
void nvme_field_get(const char *field, size_t size, char *ret_text);

/*
 * Length of the UTF-8 sequence at the start of text, of at least one byte, and its code point; 0 if
 * it is none: cut, overlong, a surrogate, or beyond 10FFFFh (RFC 3629 4).
 */
size_t nvme_utf8_next(const char *text, size_t len, uint32_t *ret_code) must_check;

#define NVME_UUID_TEXT 37 /* 36 characters and the NUL */

struct nvme_uuid {
	uint8_t b[16]; /* in the order of the text, as on the wire */
};

/* The 8-4-4-4-12 form, hexadecimal of either case, and nothing behind it; otherwise -EINVAL. */
int nvme_uuid_parse(const char *text, struct nvme_uuid *ret) must_check;
void nvme_uuid_format(const struct nvme_uuid *uuid, char ret_text[NVME_UUID_TEXT]);

/* A UUID of version 8 (RFC 9562 5.8) out of the first 16 bytes of any hash. */
struct nvme_uuid nvme_uuid_from_hash(const uint8_t hash[16]);

#endif
