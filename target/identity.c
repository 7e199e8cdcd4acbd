/* SPDX-License-Identifier: MIT */
/*
 * Two multiply-and-rotate hashes over the same bytes, mixed at the end.
 */
#include "target/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t identity_mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

static void identity_byte(struct identity_hash *hash, uint8_t byte)
{
	hash->a = (hash->a ^ byte) * 0x100000001b3ull;
	hash->b = ((hash->b << 7 | hash->b >> 57) ^ byte) * 0x9e3779b97f4a7c15ull;
}

void identity_init(struct identity_hash *hash, const char *kind)
{
	*hash = (struct identity_hash){.a = 0xcbf29ce484222325ull, .b = 0x6a09e667f3bcc909ull};
	identity_add(hash, kind, strlen(kind));
}

void identity_add(struct identity_hash *hash, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < length; i++)
		identity_byte(hash, at[i]);
	for (unsigned i = 0; i < 8; i++)
		identity_byte(hash, (uint8_t)((uint64_t)length >> 8 * i));
}

void identity_add_machine(struct identity_hash *hash)
{
	char text[128] = "";
	FILE *file = fopen("/etc/machine-id", "re");

	if (file && !fgets(text, sizeof(text), file))
		text[0] = '\0';
	if (file)
		fclose(file);
	if (!text[0] && gethostname(text, sizeof(text) - 1))
		text[0] = '\0';
	identity_add(hash, text, strlen(text));
}

void identity_end(struct identity_hash *hash, uint8_t ret[16])
{
	uint64_t a = identity_mix(hash->a ^ hash->b >> 1);
	uint64_t b = identity_mix(hash->b + a);

	memcpy(ret, &a, sizeof(a));
	memcpy(ret + sizeof(a), &b, sizeof(b));
}

void identity_random(uint8_t ret[16])
{
	/* Never fails nor blocks for 16 bytes once the machine is up. */
	if (getrandom(ret, 16, 0) != 16)
		abort();
}
