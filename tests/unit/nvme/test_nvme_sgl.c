/* SPDX-License-Identifier: MIT */
/*
 * The SGL parser: each form of a fabric, each bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proto/base/compiler.h"
#include "proto/nvme/nvme.h"
#include "proto/nvme/sgl.h"
#include "proto/nvme/status.h"

#define DNR(code) ((code) | NVME_STATUS_DNR)

static const struct nvme_sgl_limits rdma = {.in_capsule_max = 4096, .msdbd = 16, .keyed = true};
static const struct nvme_sgl_limits rdma_one = {.in_capsule_max = 0, .msdbd = 1, .keyed = true};
static const struct nvme_sgl_limits tcp = {.in_capsule_max = 8192, .msdbd = 1, .keyed = false};

/* A descriptor of any kind: the length is the 32-bit field. */
#define DESC(id_, addr_, len_)                        \
	{                                             \
		.addr = addr_, .len = len_, .id = id_ \
	}

struct raw {
	uint64_t addr;
	uint32_t len;
	uint8_t id;
};

static struct nvme_sgl_desc desc_of(const struct raw *raw)
{
	return (struct nvme_sgl_desc){
		.addr = le64(raw->addr), .len = le32(raw->len), .id = raw->id};
}

static const struct {
	const char *name;
	const struct nvme_sgl_limits *limits;
	struct raw raw;
	size_t icd_len;
	uint16_t status;
	enum nvme_sgl_place place;
	uint64_t len;
} single_cases[] = {
	{"in capsule", &rdma, DESC(0x01, 0, 4096), 4096, 0, NVME_SGL_IN_CAPSULE, 4096},
	{"in capsule, behind other bytes", &rdma, DESC(0x01, 512, 3584), 4096, 0,
		NVME_SGL_IN_CAPSULE, 3584},
	{"in capsule, part of it", &tcp, DESC(0x01, 0, 512), 8192, 0, NVME_SGL_IN_CAPSULE, 512},
	{"in capsule, nothing", &tcp, DESC(0x01, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"in capsule, nothing at the end", &tcp, DESC(0x01, 512, 0), 512, 0, NVME_SGL_NO_DATA, 0},
	{"in capsule, nothing behind the end", &tcp, DESC(0x01, 513, 0), 512,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"in capsule, one byte more than sent", &tcp, DESC(0x01, 0, 513), 512,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"in capsule, offset wraps", &tcp, DESC(0x01, UINT64_MAX, 512), 512,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"in capsule, offset and length wrap to 0", &tcp, DESC(0x01, UINT64_MAX - 511, 512), 512,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"in capsule, over the limit", &rdma, DESC(0x01, 0, 4097), 8192,
		DNR(NVME_SC_SGL_DATA_LEN_INVALID), 0, 0},
	{"in capsule, longest", &rdma, DESC(0x01, 0, UINT32_MAX), 4096,
		DNR(NVME_SC_SGL_DATA_LEN_INVALID), 0, 0},
	{"in capsule where there is none", &rdma_one, DESC(0x01, 0, 1), 1,
		DNR(NVME_SC_SGL_DATA_LEN_INVALID), 0, 0},
	{"transport", &tcp, DESC(0x5a, 0, 1 << 20), 0, 0, NVME_SGL_TRANSPORT, 1 << 20},
	{"transport, longest", &tcp, DESC(0x5a, 7, UINT32_MAX), 0, 0, NVME_SGL_TRANSPORT,
		UINT32_MAX},
	{"transport, nothing", &tcp, DESC(0x5a, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"transport on RDMA", &rdma, DESC(0x5a, 0, 512), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"keyed on TCP", &tcp, DESC(0x40, 0, 512), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"keyed, nothing", &rdma, DESC(0x40, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"keyed, nothing to invalidate", &rdma, DESC(0x4f, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"keyed, wraps", &rdma, DESC(0x40, UINT64_MAX - 510, 512), 0,
		DNR(NVME_SC_SGL_DATA_LEN_INVALID), 0, 0},
	{"keyed, up to the end", &rdma, DESC(0x40, UINT64_MAX - 512, 512), 0, 0, NVME_SGL_KEYED,
		512},
	{"keyed with an offset", &rdma, DESC(0x41, 0, 512), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"all zero", &rdma, DESC(0x00, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"all zero on TCP", &tcp, DESC(0x00, 0, 0), 0, 0, NVME_SGL_NO_DATA, 0},
	{"address without a key", &rdma, DESC(0x00, 4096, 512), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0,
		0},
	{"bit bucket", &rdma, DESC(0x10, 0, 512), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"segment", &rdma, DESC(0x21, 0, 32), 32, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"last segment by address", &rdma, DESC(0x30, 0, 32), 32, DNR(NVME_SC_SGL_TYPE_INVALID), 0,
		0},
	{"last segment on TCP", &tcp, DESC(0x31, 0, 16), 16, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"last segment, empty", &rdma, DESC(0x31, 0, 0), 32, DNR(NVME_SC_SGL_SEGMENT_INVALID), 0,
		0},
	{"last segment, odd", &rdma, DESC(0x31, 0, 17), 32, DNR(NVME_SC_SGL_SEGMENT_INVALID), 0, 0},
	{"last segment, behind the capsule", &rdma, DESC(0x31, 16, 32), 32,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"last segment, wraps", &rdma, DESC(0x31, UINT64_MAX - 15, 32), 32,
		DNR(NVME_SC_SGL_OFFSET_INVALID), 0, 0},
	{"last segment, 17 descriptors", &rdma, DESC(0x31, 0, 272), 4096,
		DNR(NVME_SC_SGL_COUNT_INVALID), 0, 0},
	{"last segment, more than MSDBD 1", &rdma_one, DESC(0x31, 0, 32), 32,
		DNR(NVME_SC_SGL_COUNT_INVALID), 0, 0},
	{"last segment, longest", &rdma, DESC(0x31, 0, 0xfffffff0), 4096,
		DNR(NVME_SC_SGL_COUNT_INVALID), 0, 0},
	{"vendor's", &rdma, DESC(0xf0, 0, 16), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
	{"reserved", &tcp, DESC(0x60, 0, 16), 0, DNR(NVME_SC_SGL_TYPE_INVALID), 0, 0},
};

static void single_descriptors_get_their_verdict(void **state)
{
	static const uint8_t icd[8192];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(single_cases); i++) {
		struct nvme_cmd cmd = {
			.flags = NVME_CMD_PSDT_SGL, .sgl = desc_of(&single_cases[i].raw)};
		struct nvme_sgl sgl;
		uint16_t status = nvme_sgl_parse(
			&cmd, icd, single_cases[i].icd_len, single_cases[i].limits, &sgl);

		if (status != single_cases[i].status)
			fail_msg("%s: status %x", single_cases[i].name, status);
		if (status)
			continue;
		if (sgl.place != single_cases[i].place || sgl.len != single_cases[i].len)
			fail_msg("%s: place %d, length %llu", single_cases[i].name, sgl.place,
				(unsigned long long)sgl.len);
		assert_int_equal(sgl.nr, single_cases[i].len != 0);
		assert_false(sgl.invalidate);
	}
}

static void keyed_descriptor_gives_address_length_and_key(void **state)
{
	struct nvme_cmd cmd = {.flags = NVME_CMD_PSDT_SGL,
		.sgl = nvme_sgl_keyed(0x1122334455667788, 0xabcdef, 0x01020304, true)};
	struct nvme_sgl sgl;

	(void)state;
	assert_int_equal(nvme_sgl_parse(&cmd, NULL, 0, &rdma_one, &sgl), 0);
	assert_int_equal(sgl.place, NVME_SGL_KEYED);
	assert_int_equal(sgl.nr, 1);
	assert_true(sgl.len == 0xabcdef);
	assert_true(sgl.piece[0].addr == 0x1122334455667788);
	assert_int_equal(sgl.piece[0].len, 0xabcdef);
	assert_int_equal(sgl.piece[0].key, 0x01020304);
	assert_true(sgl.invalidate);
	assert_int_equal(sgl.invalidate_key, 0x01020304);
}

static void in_capsule_piece_keeps_its_offset(void **state)
{
	struct nvme_cmd cmd = {.flags = NVME_CMD_PSDT_SGL, .sgl = nvme_sgl_in_capsule(512, 1024)};
	struct nvme_sgl sgl;

	(void)state;
	assert_int_equal(nvme_sgl_parse(&cmd, NULL, 1536, &tcp, &sgl), 0);
	assert_true(sgl.piece[0].addr == 512);
	assert_int_equal(sgl.piece[0].len, 1024);
}

static void segment_of_sixteen_longest_pieces_sums_in_64_bits(void **state)
{
	struct nvme_sgl_desc icd[16];
	struct nvme_cmd cmd = {.flags = NVME_CMD_PSDT_SGL, .sgl = nvme_sgl_last_segment(0, 16)};
	struct nvme_sgl sgl;

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		icd[i] = nvme_sgl_keyed((uint64_t)i << 32, NVME_SGL_KEYED_LEN_MAX, i, false);
	assert_int_equal(nvme_sgl_parse(&cmd, icd, sizeof(icd), &rdma, &sgl), 0);
	assert_int_equal(sgl.nr, 16);
	assert_true(sgl.len == 16ull * NVME_SGL_KEYED_LEN_MAX);
	assert_int_equal(sgl.piece[15].key, 15);
	assert_true(sgl.piece[15].addr == 15ull << 32);
	assert_false(sgl.invalidate);
}

static void segment_at_an_odd_offset_drops_empty_pieces(void **state)
{
	uint8_t icd[5 + 4 * 16] = {0};
	struct nvme_sgl_desc desc[4] = {nvme_sgl_keyed(1, 0, 1, true),
		nvme_sgl_keyed(2, 512, 2, false), nvme_sgl_keyed(3, 512, 3, true),
		nvme_sgl_keyed(4, 512, 4, true)};
	struct nvme_cmd cmd = {.flags = NVME_CMD_PSDT_SGL, .sgl = nvme_sgl_last_segment(5, 4)};
	struct nvme_sgl sgl;

	(void)state;
	memcpy(icd + 5, desc, sizeof(desc));
	assert_int_equal(nvme_sgl_parse(&cmd, icd, sizeof(icd), &rdma, &sgl), 0);
	assert_int_equal(sgl.nr, 3);
	assert_int_equal(sgl.piece[0].key, 2);
	assert_true(sgl.len == 1536);
	assert_true(sgl.invalidate);
	assert_int_equal(sgl.invalidate_key, 3);
}

static void segment_holds_keyed_descriptors_only(void **state)
{
	static const struct {
		struct raw raw;
		uint16_t status;
	} cases[] = {
		{DESC(0x01, 0, 16), DNR(NVME_SC_SGL_TYPE_INVALID)},
		{DESC(0x00, 0, 0), DNR(NVME_SC_SGL_TYPE_INVALID)},
		{DESC(0x10, 0, 16), DNR(NVME_SC_SGL_TYPE_INVALID)},
		{DESC(0x31, 0, 16), DNR(NVME_SC_SGL_SEGMENT_INVALID)},
		{DESC(0x5a, 0, 16), DNR(NVME_SC_SGL_TYPE_INVALID)},
		{DESC(0x40, UINT64_MAX, 16), DNR(NVME_SC_SGL_DATA_LEN_INVALID)},
	};
	struct nvme_cmd cmd = {.flags = NVME_CMD_PSDT_SGL, .sgl = nvme_sgl_last_segment(0, 2)};
	struct nvme_sgl sgl;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_sgl_desc icd[2] = {
			nvme_sgl_keyed(1, 512, 1, false), desc_of(&cases[i].raw)};

		assert_int_equal(
			nvme_sgl_parse(&cmd, icd, sizeof(icd), &rdma, &sgl), cases[i].status);
	}
}

static void prp_and_metadata_sgl_are_invalid_fields(void **state)
{
	static const uint8_t flags[] = {0x00, 0x80, 0xc0};
	struct nvme_sgl sgl;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		struct nvme_cmd cmd = {.flags = flags[i], .sgl = nvme_sgl_transport(512)};

		assert_int_equal(
			nvme_sgl_parse(&cmd, NULL, 0, &tcp, &sgl), DNR(NVME_SC_INVALID_FIELD));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(single_descriptors_get_their_verdict),
		cmocka_unit_test(keyed_descriptor_gives_address_length_and_key),
		cmocka_unit_test(in_capsule_piece_keeps_its_offset),
		cmocka_unit_test(segment_of_sixteen_longest_pieces_sums_in_64_bits),
		cmocka_unit_test(segment_at_an_odd_offset_drops_empty_pieces),
		cmocka_unit_test(segment_holds_keyed_descriptors_only),
		cmocka_unit_test(prp_and_metadata_sgl_are_invalid_fields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
