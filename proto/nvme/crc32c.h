/* SPDX-License-Identifier: MIT */
/*
 * CRC32C (Castagnoli), the digest of NVMe/TCP (NVMe TCP 1.0c 3.3.1), by instructions where the CPU
 * has them.
 */
#ifndef HAUL_PROTO_NVME_CRC32C_H
#define HAUL_PROTO_NVME_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * The CRC of len more bytes: crc is 0 at the start, afterwards the last result, which after the
 * last piece is the digest. Reads exactly len bytes.
 */
uint32_t nvme_crc32c(uint32_t crc, const void *bytes, size_t len);

/* The portable version, and which one nvme_crc32c() uses: for the tests. */
uint32_t nvme_crc32c_table(uint32_t crc, const void *bytes, size_t len);
const char *nvme_crc32c_implementation(void);

#endif
