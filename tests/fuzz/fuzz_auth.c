/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes in-band authentication: the same bytes as each message of a host, and as a secret. The
 * first byte says which hash function and group have been chosen.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/auth.h"
#include "tests/fuzz/fuzz.h"

static void check_negotiate(const uint8_t *bytes, size_t size)
{
	struct nvme_auth_offer offer;

	if (nvme_auth_negotiate_check(bytes, size, &offer))
		return;
	assert(size >= 72 && (size - 8) % 64 == 0);
	assert(!(offer.hashes & ~NVME_AUTH_ALL_HASHES));
	assert(!(offer.groups & ~NVME_AUTH_ALL_GROUPS));
}

/* All that it points to is in the message. */
static void check_reply(uint8_t chosen, const uint8_t *bytes, size_t size)
{
	uint8_t hash = chosen & 15, group = chosen >> 4;
	uint32_t hash_bytes = nvme_auth_hash_bytes(hash);
	struct nvme_auth_answer answer;

	if (!hash_bytes || !nvme_auth_group_name(group) ||
		nvme_auth_reply_check(bytes, size, hash, group, &answer))
		return;
	assert(size <= NVME_AUTH_MAX_MESSAGE);
	assert(answer.response >= bytes && answer.response + hash_bytes <= bytes + size);
	assert(answer.challenge + hash_bytes <= bytes + size);
	assert(!answer.dh || answer.dh + nvme_auth_group_bytes(group) == bytes + size);
	assert(!answer.challenges || answer.seqnum);
}

static void check_secret(const uint8_t *bytes, size_t size)
{
	struct nvme_auth_secret secret;
	const char *why = NULL;

	if (nvme_auth_secret_parse((const char *)bytes, size, &secret, &why)) {
		assert(why && why[0]);
		return;
	}
	assert(secret.len == 32 || secret.len == 48 || secret.len == 64);
	assert(secret.hash <= NVME_AUTH_SHA512);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct nvme_auth_header header;
	uint8_t fault;
	uint8_t *exact;

	if (!size)
		return 0;
	exact = malloc(
		max_of(size - 1, (size_t)1)); /* so that a sanitizer sees what is behind it */
	if (!exact)
		return 0;
	memcpy(exact, input + 1, size - 1);
	(void)!nvme_auth_header_get(exact, size - 1, &header);
	check_negotiate(exact, size - 1);
	check_reply(input[0], exact, size - 1);
	(void)!nvme_auth_success2_check(exact, size - 1);
	(void)!nvme_auth_failure2_check(exact, size - 1, &fault);
	check_secret(exact, size - 1);
	free(exact);
	return 0;
}
