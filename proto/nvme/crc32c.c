/* SPDX-License-Identifier: MIT */
/*
 * CRC32C three ways: slicing by 8, SSE4.2 with PCLMULQDQ, ARMv8. Chosen once, before main().
 */
#include "proto/nvme/crc32c.h"

#include "proto/base/compiler.h"
#include "proto/nvme/endian.h"

#define CRC32C_POLY 0x82f63b78u /* 1EDC6F41h, reflected */

/* A polynomial of degree below 32, reflected, so that bit 31 is x^0; times x, modulo the CRC's. */
static uint32_t crc32c_times_x(uint32_t p)
{
	return p >> 1 ^ (p & 1 ? CRC32C_POLY : 0);
}

/* Row n has the CRCs of a byte followed by n zero bytes. Written before main() only. */
static uint32_t crc32c_tables[8][256];

static void crc32c_make_tables(void)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc32c_times_x(crc);
		crc32c_tables[0][byte] = crc;
	}
	for (unsigned row = 1; row < 8; row++) {
		for (unsigned byte = 0; byte < 256; byte++) {
			uint32_t crc = crc32c_tables[row - 1][byte];

			crc32c_tables[row][byte] = crc >> 8 ^ crc32c_tables[0][crc & 0xff];
		}
	}
}

static uint32_t crc32c_load32(const uint8_t *p)
{
	le32_t x;

	memcpy(&x, p, sizeof(x));
	return le32_get(x);
}

uint32_t nvme_crc32c_table(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t low = crc32c_load32(p) ^ crc;
		uint32_t high = crc32c_load32(p + 4);

		crc = crc32c_tables[7][low & 0xff] ^ crc32c_tables[6][low >> 8 & 0xff] ^
		      crc32c_tables[5][low >> 16 & 0xff] ^ crc32c_tables[4][low >> 24] ^
		      crc32c_tables[3][high & 0xff] ^ crc32c_tables[2][high >> 8 & 0xff] ^
		      crc32c_tables[1][high >> 16 & 0xff] ^ crc32c_tables[0][high >> 24];
	}
	for (; len > 0; len--)
		crc = crc >> 8 ^ crc32c_tables[0][(crc ^ *p++) & 0xff];
	return ~crc;
}

typedef uint32_t crc32c_fn(uint32_t crc, const void *bytes, size_t len);

struct crc32c_choice {
	crc32c_fn *fn;
	const char *name;
};

#if defined(__x86_64__)
#include <immintrin.h>

#define CRC32C_SSE __attribute__((target("sse4.2,pclmul")))

/*
 * The instruction has a latency of three cycles and can start each cycle, hence three streams. Long
 * stretches make joining them cheap, short ones serve what is left.
 */
#define CRC32C_LONG  1024
#define CRC32C_SHORT 128

struct crc32c_stretch {
	size_t len;    /* of one stream */
	uint32_t once; /* x^(8 len - 33): what moves a CRC over one stream */
	uint32_t twice;
};

static struct crc32c_stretch crc32c_stretches[] = {{.len = CRC32C_LONG}, {.len = CRC32C_SHORT}};

static uint32_t crc32c_x_to(size_t exponent)
{
	uint32_t p = 0x80000000u;

	while (exponent-- > 0)
		p = crc32c_times_x(p);
	return p;
}

/*
 * The product of two reflected polynomials of 32 bits, taken as a reflected one of 64 bits, is
 * their product times x; the CRC instruction multiplies by x^32 and reduces. Together x^33, for
 * which the constants make up.
 */
CRC32C_SSE static uint64_t crc32c_sse_move(uint64_t crc, uint32_t constant)
{
	__m128i product = _mm_clmulepi64_si128(
		_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)constant), 0);

	return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static inline uint64_t crc32c_load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

CRC32C_SSE static uint64_t crc32c_sse_stretch(
	uint64_t crc, const uint8_t *p, const struct crc32c_stretch *stretch)
{
	const uint8_t *end = p + stretch->len;
	const size_t len = stretch->len;
	uint64_t second = 0, third = 0;

	for (; p < end; p += 8) {
		crc = _mm_crc32_u64(crc, crc32c_load64(p));
		second = _mm_crc32_u64(second, crc32c_load64(p + len));
		third = _mm_crc32_u64(third, crc32c_load64(p + 2 * len));
	}
	return crc32c_sse_move(crc, stretch->twice) ^ crc32c_sse_move(second, stretch->once) ^
	       third;
}

CRC32C_SSE static uint32_t crc32c_sse(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	uint64_t state = ~crc;

	for (; len > 0 && ((uintptr_t)p & 7); len--)
		state = _mm_crc32_u8((uint32_t)state, *p++);
	for (size_t i = 0; i < ARRAY_SIZE(crc32c_stretches); i++) {
		const struct crc32c_stretch *stretch = &crc32c_stretches[i];

		for (; len >= 3 * stretch->len; len -= 3 * stretch->len, p += 3 * stretch->len)
			state = crc32c_sse_stretch(state, p, stretch);
	}
	for (; len >= 8; len -= 8, p += 8)
		state = _mm_crc32_u64(state, crc32c_load64(p));
	for (; len > 0; len--)
		state = _mm_crc32_u8((uint32_t)state, *p++);
	return ~(uint32_t)state;
}

static struct crc32c_choice crc32c_choose(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
		return (struct crc32c_choice){nvme_crc32c_table, "table"};
	for (size_t i = 0; i < ARRAY_SIZE(crc32c_stretches); i++) {
		struct crc32c_stretch *stretch = &crc32c_stretches[i];

		stretch->once = crc32c_x_to(8 * stretch->len - 33);
		stretch->twice = crc32c_x_to(16 * stretch->len - 33);
	}
	return (struct crc32c_choice){crc32c_sse, "sse4.2"};
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static uint32_t crc32c_arm(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		le64_t x;

		memcpy(&x, p, sizeof(x));
		crc = __crc32cd(crc, le64_get(x));
	}
	for (; len > 0; len--)
		crc = __crc32cb(crc, *p++);
	return ~crc;
}

static struct crc32c_choice crc32c_choose(void)
{
	return (struct crc32c_choice){crc32c_arm, "armv8"};
}

#else

static struct crc32c_choice crc32c_choose(void)
{
	return (struct crc32c_choice){nvme_crc32c_table, "table"};
}

#endif

static struct crc32c_choice crc32c_choice;

/* Before main() and before constructors without a priority: no thread can see it half done. */
__attribute__((constructor(101))) static void crc32c_init(void)
{
	crc32c_make_tables();
	crc32c_choice = crc32c_choose();
}

uint32_t nvme_crc32c(uint32_t crc, const void *bytes, size_t len)
{
	return crc32c_choice.fn(crc, bytes, len);
}

const char *nvme_crc32c_implementation(void)
{
	return crc32c_choice.name;
}
