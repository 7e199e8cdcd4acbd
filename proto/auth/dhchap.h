/* SPDX-License-Identifier: MIT */
/*
 * DH-HMAC-CHAP (NVMe base 2.0 8.13.5): what both sides compute, with OpenSSL. It knows no messages
 * and keeps no secret: whoever gives one wipes it, and so does each function with what it made on
 * the way. A group's exponentiations take up to tens of milliseconds.
 */
#ifndef HAUL_PROTO_AUTH_DHCHAP_H
#define HAUL_PROTO_AUTH_DHCHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/auth.h"

/* What the responses of a transaction have in common. */
struct dhchap {
	uint8_t hash;
	uint16_t t_id;
	const char *hostnqn;
	const char *subnqn;
	const uint8_t *shared; /* of the DH exchange ... */
	size_t shared_len;     /* ... 0: there was none */
};

/* Whose answer to a challenge. */
enum dhchap_side { DHCHAP_HOST, DHCHAP_CTRL };

/* The answer of SIDE, that has SECRET, to CHALLENGE with number SEQNUM: as many bytes as the hash
 * function has. -EIO: OpenSSL cannot. */
int dhchap_response(const struct dhchap *dhchap, enum dhchap_side side,
	const struct nvme_auth_secret *secret, const uint8_t *challenge, uint32_t seqnum,
	uint8_t ret[NVME_AUTH_HASH_MAX_BYTES]) must_check;

/* One side's part of a DH exchange. */
struct dhchap_dh;

/* A new key of GROUP, which is not NULL's; its public value, which has nvme_auth_group_bytes(), is
 * written to RET_PUBLIC. -EIO: OpenSSL cannot. */
int dhchap_dh_create(uint8_t group, struct dhchap_dh **ret,
	uint8_t ret_public[NVME_AUTH_GROUP_MAX_BYTES]) must_check;
/* With the other side's public value, of as many bytes: the shared secret, likewise. -EINVAL: the
 * value is none that an honest side would send. */
int dhchap_dh_derive(const struct dhchap_dh *dh, const uint8_t *peer,
	uint8_t ret_shared[NVME_AUTH_GROUP_MAX_BYTES]) must_check;
/* Wiped and freed; NULL is fine. */
void dhchap_dh_free(struct dhchap_dh *dh);

int dhchap_random(void *bytes, size_t len) must_check;
/* In a time that does not depend on what they are. */
bool dhchap_is_same(const void *one, const void *other, size_t len);
void dhchap_wipe(void *bytes, size_t len);

#endif
