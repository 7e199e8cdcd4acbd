/* SPDX-License-Identifier: MIT */
/*
 * Distinct types for integers on the wire. They are byte arrays, hence have alignment 1: a
 * structure made of them has no padding and may lie at any address of a received stream. Swapped
 * once, here, when read or written.
 */
#ifndef HAUL_PROTO_NVME_ENDIAN_H
#define HAUL_PROTO_NVME_ENDIAN_H

#include <stdint.h>
#include <string.h>

typedef struct {
	uint8_t b[2];
} le16_t;

typedef struct {
	uint8_t b[3];
} le24_t;

typedef struct {
	uint8_t b[4];
} le32_t;

typedef struct {
	uint8_t b[8];
} le64_t;

typedef struct {
	uint8_t b[16];
} le128_t;

/* Only what some structure needs: the big-endian fields of NVMe are the IEEE identifiers. */
typedef struct {
	uint8_t b[8];
} be64_t;

/*
 * By memcpy, not byte by byte: the compilers make one load or store of it, where a store in bytes
 * that is soon loaded as a whole would stall.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ENDIAN_LITTLE(bits, v) (v)
#define ENDIAN_BIG(bits, v)    __builtin_bswap##bits(v)
#else
#define ENDIAN_LITTLE(bits, v) __builtin_bswap##bits(v)
#define ENDIAN_BIG(bits, v)    (v)
#endif

static inline uint16_t le16_get(le16_t x)
{
	uint16_t v;

	memcpy(&v, x.b, sizeof(v));
	return ENDIAN_LITTLE(16, v);
}

static inline uint32_t le24_get(le24_t x)
{
	return x.b[0] | (uint32_t)x.b[1] << 8 | (uint32_t)x.b[2] << 16;
}

static inline uint32_t le32_get(le32_t x)
{
	uint32_t v;

	memcpy(&v, x.b, sizeof(v));
	return ENDIAN_LITTLE(32, v);
}

static inline uint64_t le64_get(le64_t x)
{
	uint64_t v;

	memcpy(&v, x.b, sizeof(v));
	return ENDIAN_LITTLE(64, v);
}

static inline uint64_t be64_get(be64_t x)
{
	uint64_t v;

	memcpy(&v, x.b, sizeof(v));
	return ENDIAN_BIG(64, v);
}

static inline le16_t le16(uint16_t v)
{
	uint16_t wire = ENDIAN_LITTLE(16, v);
	le16_t x;

	memcpy(x.b, &wire, sizeof(wire));
	return x;
}

/* The value must fit in 24 bits: the upper byte is dropped. */
static inline le24_t le24(uint32_t v)
{
	return (le24_t){{(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)}};
}

static inline le32_t le32(uint32_t v)
{
	uint32_t wire = ENDIAN_LITTLE(32, v);
	le32_t x;

	memcpy(x.b, &wire, sizeof(wire));
	return x;
}

static inline le64_t le64(uint64_t v)
{
	uint64_t wire = ENDIAN_LITTLE(64, v);
	le64_t x;

	memcpy(x.b, &wire, sizeof(wire));
	return x;
}

static inline be64_t be64(uint64_t v)
{
	uint64_t wire = ENDIAN_BIG(64, v);
	be64_t x;

	memcpy(x.b, &wire, sizeof(wire));
	return x;
}

/* The 128-bit counters (capacity, SMART) never need more than 64 bits here. */
static inline le128_t le128(uint64_t v)
{
	le128_t x = {0};
	le64_t low = le64(v);

	memcpy(x.b, low.b, sizeof(low));
	return x;
}

static inline void le16_set(le16_t *x, uint16_t v)
{
	*x = le16(v);
}

static inline void le32_set(le32_t *x, uint32_t v)
{
	*x = le32(v);
}

static inline void le64_set(le64_t *x, uint64_t v)
{
	*x = le64(v);
}

#endif
