/* SPDX-License-Identifier: MIT */
/*
 * Two keyed hashes over the same bytes.
 */
#include "target/identity.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/nvme/siphash.h"

void identity_init(struct identity_hash *hash, const char *kind)
{
	*hash = (struct identity_hash){.state = {0x6c756168, 0x65676174}};
	identity_add(hash, kind, strlen(kind));
}

/* What has come so far is the key for what comes next, so the length of each part counts. */
void identity_add(struct identity_hash *hash, const void *bytes, size_t length)
{
	/* The second half is the same with another key. */
	const uint64_t other[2] = {hash->state[0] ^ 0xee, hash->state[1]};
	uint64_t first = nvme_siphash(hash->state, bytes, length);

	hash->state[1] = nvme_siphash(other, bytes, length);
	hash->state[0] = first;
}

/* The machine id is not to be seen on the network (machine-id(5)): it goes in as a key. */
static void identity_add_key(struct identity_hash *hash, uint64_t high, uint64_t low)
{
	static const char use[] = "haul namespace";

	hash->state[0] ^= high;
	hash->state[1] ^= low;
	identity_add(hash, use, sizeof(use));
}

void identity_add_machine(struct identity_hash *hash)
{
	unsigned long long high, low;
	char text[128] = "";
	FILE *file = fopen("/etc/machine-id", "re");

	if (file && !fgets(text, sizeof(text), file))
		text[0] = '\0';
	if (file)
		fclose(file);
	if (sscanf(text, "%16llx%16llx", &high, &low) == 2) {
		identity_add_key(hash, high, low);
		return;
	}
	if (gethostname(text, sizeof(text) - 1))
		text[0] = '\0';
	identity_add(hash, text, strlen(text));
}

void identity_end(struct identity_hash *hash, uint8_t ret[16])
{
	memcpy(ret, hash->state, sizeof(hash->state));
}

void identity_random(uint8_t ret[16])
{
	/* Never fails nor blocks for 16 bytes once the machine is up. */
	if (getrandom(ret, 16, 0) != 16)
		abort();
}

static uint8_t identity_digit(char digit)
{
	return (uint8_t)(isdigit((unsigned char)digit) ? digit - '0'
						       : tolower((unsigned char)digit) - 'a' + 10);
}

int identity_parse(const char *text, uint8_t *ret, size_t size)
{
	uint8_t bytes[16] = {0};
	uint8_t any = 0;

	assert(size <= sizeof(bytes));
	if (strlen(text) != 2 * size || strspn(text, "0123456789abcdefABCDEF") != 2 * size)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		bytes[i] = (uint8_t)(identity_digit(text[2 * i]) << 4 |
				     identity_digit(text[2 * i + 1]));
		any |= bytes[i];
	}
	if (!any)
		return -EINVAL;
	memcpy(ret, bytes, size);
	return 0;
}
