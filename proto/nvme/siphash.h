/* SPDX-License-Identifier: MIT */
/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012): a short hash that tells nothing of its key.
 * Identities that are seen on the network are made with it from what is not to be seen there.
 */
#ifndef HAUL_PROTO_NVME_SIPHASH_H
#define HAUL_PROTO_NVME_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t nvme_siphash(const uint64_t key[2], const void *bytes, size_t length);

#endif
