/* SPDX-License-Identifier: MIT */
/*
 * Two keyed hashes over the same bytes.
 */
#include "target/identity.h"

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
