/* SPDX-License-Identifier: MIT */
/*
 * SipHash: two rounds a word, four at the end.
 */
#include "proto/nvme/siphash.h"

static uint64_t nvme_siphash_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void nvme_siphash_rounds(uint64_t v[4], unsigned nr)
{
	while (nr-- > 0) {
		v[0] += v[1];
		v[1] = nvme_siphash_rotate(v[1], 13) ^ v[0];
		v[0] = nvme_siphash_rotate(v[0], 32);
		v[2] += v[3];
		v[3] = nvme_siphash_rotate(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = nvme_siphash_rotate(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = nvme_siphash_rotate(v[1], 17) ^ v[2];
		v[2] = nvme_siphash_rotate(v[2], 32);
	}
}

static void nvme_siphash_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	nvme_siphash_rounds(v, 2);
	v[0] ^= word;
}

/* At most eight bytes, little-endian. */
static uint64_t nvme_siphash_load(const uint8_t *bytes, size_t length)
{
	uint64_t word = 0;

	for (size_t i = 0; i < length; i++)
		word |= (uint64_t)bytes[i] << (8 * i);
	return word;
}

uint64_t nvme_siphash(const uint64_t key[2], const void *bytes, size_t length)
{
	uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
	const uint8_t *at = bytes;
	size_t left = length;

	for (; left >= 8; left -= 8, at += 8)
		nvme_siphash_word(v, nvme_siphash_load(at, 8));
	nvme_siphash_word(v, (uint64_t)length << 56 | nvme_siphash_load(at, left));
	v[2] ^= 0xff;
	nvme_siphash_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
