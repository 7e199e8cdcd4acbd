/* SPDX-License-Identifier: MIT */
/*
 * Identities that stay the same over restarts and differ between disks and machines: 128 bits of a
 * keyed hash over what is known of a disk. Hosts see them, but not the machine id that is in them.
 */
#ifndef HAUL_TARGET_IDENTITY_H
#define HAUL_TARGET_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"

struct identity_hash {
	uint64_t state[2];
};

/* KIND separates hashes of equal content for different uses. */
void identity_init(struct identity_hash *hash, const char *kind);
/* "ab" + "c" differs from "a" + "bc". */
void identity_add(struct identity_hash *hash, const void *bytes, size_t length);
/* What tells this machine from others: /etc/machine-id, or the host's name. */
void identity_add_machine(struct identity_hash *hash);
void identity_end(struct identity_hash *hash, uint8_t ret[16]);

/* For what does not outlive the process. */
void identity_random(uint8_t ret[16]);

/* Of an EUI-64 or NGUID: 2 x SIZE hexadecimal digits, not all 0, which would be none. -EINVAL. */
int identity_parse(const char *text, uint8_t *ret, size_t size) must_check;

#endif
