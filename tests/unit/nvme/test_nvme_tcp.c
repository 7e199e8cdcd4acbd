/* SPDX-License-Identifier: MIT */
/*
 * The check of the common header of TCP PDUs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "proto/nvme/tcp.h"

#define FIELD NVME_TCP_FES_INVALID_HEADER_FIELD

static const struct nvme_tcp_pdu_rules fresh_ctrl = {.to_ctrl = true};
static const struct nvme_tcp_pdu_rules fresh_host = {.to_ctrl = false};
static const struct nvme_tcp_pdu_rules ctrl = {
	.to_ctrl = true, .initialized = true, .capsule_data_max = 8192, .data_max = 131072};
static const struct nvme_tcp_pdu_rules ctrl_digests = {.to_ctrl = true,
	.initialized = true,
	.header_digest = true,
	.data_digest = true,
	.capsule_data_max = 8192,
	.data_max = 131072};
static const struct nvme_tcp_pdu_rules ctrl_aligned = {.to_ctrl = true,
	.initialized = true,
	.pda = 31,
	.capsule_data_max = 8192,
	.data_max = 131072};
static const struct nvme_tcp_pdu_rules host = {.initialized = true, .data_max = 1 << 20};
static const struct nvme_tcp_pdu_rules host_digests = {
	.initialized = true, .header_digest = true, .data_digest = true, .data_max = 1 << 20};

struct ch {
	uint8_t type, flags, hlen, pdo;
	uint32_t plen;
};

static const struct {
	const char *name;
	const struct nvme_tcp_pdu_rules *rules;
	struct ch ch;
	uint32_t data_offset, data_len;
	bool header_digest, data_digest;
} good[] = {
	{"ICReq", &fresh_ctrl, {0, 0, 128, 0, 128}, 128, 0, false, false},
	{"ICReq has a reserved PDO", &fresh_ctrl, {0, 0, 128, 9, 128}, 128, 0, false, false},
	{"ICResp", &fresh_host, {1, 0, 128, 0, 128}, 128, 0, false, false},
	{"H2CTermReq before ICReq", &fresh_ctrl, {2, 0, 24, 0, 24}, 24, 0, false, false},
	{"H2CTermReq", &ctrl_digests, {2, 0, 24, 0, 152}, 24, 128, false, false},
	{"C2HTermReq", &host_digests, {3, 0, 24, 0, 32}, 24, 8, false, false},
	{"CapsuleCmd", &ctrl, {4, 0, 72, 0, 72}, 72, 0, false, false},
	{"CapsuleCmd with a header digest", &ctrl_digests, {4, 1, 72, 0, 76}, 76, 0, true, false},
	{"CapsuleCmd with data", &ctrl, {4, 0, 72, 72, 72 + 8192}, 72, 8192, false, false},
	{"CapsuleCmd with data and digests", &ctrl_digests, {4, 3, 72, 76, 76 + 4096 + 4}, 76, 4096,
		true, true},
	{"CapsuleCmd with aligned data", &ctrl_aligned, {4, 0, 72, 128, 128 + 512}, 128, 512, false,
		false},
	{"CapsuleCmd with padding nobody asked for", &ctrl, {4, 0, 72, 252, 252 + 1}, 252, 1, false,
		false},
	{"CapsuleResp", &host, {5, 0, 24, 0, 24}, 24, 0, false, false},
	{"CapsuleResp with a header digest", &host_digests, {5, 1, 24, 0, 28}, 28, 0, true, false},
	{"H2CData", &ctrl, {6, 4, 24, 24, 24 + 131072}, 24, 131072, false, false},
	{"H2CData, not the last", &ctrl_digests, {6, 3, 24, 28, 28 + 4 + 4}, 28, 4, true, true},
	{"C2HData", &host, {7, 0x0c, 24, 24, 24 + 4096}, 24, 4096, false, false},
	{"C2HData with digests", &host_digests, {7, 0x07, 24, 28, 28 + 4096 + 4}, 28, 4096, true,
		true},
	{"R2T", &host, {9, 0, 24, 0, 24}, 24, 0, false, false},
	{"R2T with a header digest", &host_digests, {9, 1, 24, 0, 28}, 28, 0, true, false},
};

static const struct {
	const char *name;
	const struct nvme_tcp_pdu_rules *rules;
	struct ch ch;
	uint16_t fes;
	uint32_t fei;
} bad[] = {
	/* Type and state */
	{"type 8", &ctrl, {8, 0, 24, 0, 24}, FIELD, 0},
	{"type 10", &ctrl, {10, 0, 24, 0, 24}, FIELD, 0},
	{"type ACh", &ctrl, {0xac, 0, 24, 0, 24}, FIELD, 0},
	{"type FFh", &ctrl, {0xff, 0, 24, 0, 24}, FIELD, 0},
	{"ICResp to a controller", &fresh_ctrl, {1, 0, 128, 0, 128}, FIELD, 0},
	{"C2HTermReq to a controller", &ctrl, {3, 0, 24, 0, 24}, FIELD, 0},
	{"CapsuleResp to a controller", &ctrl, {5, 0, 24, 0, 24}, FIELD, 0},
	{"C2HData to a controller", &ctrl, {7, 4, 24, 24, 536}, FIELD, 0},
	{"R2T to a controller", &ctrl, {9, 0, 24, 0, 24}, FIELD, 0},
	{"ICReq to a host", &fresh_host, {0, 0, 128, 0, 128}, FIELD, 0},
	{"H2CTermReq to a host", &host, {2, 0, 24, 0, 24}, FIELD, 0},
	{"CapsuleCmd to a host", &host, {4, 0, 72, 0, 72}, FIELD, 0},
	{"H2CData to a host", &host, {6, 4, 24, 24, 536}, FIELD, 0},
	{"second ICReq", &ctrl, {0, 0, 128, 0, 128}, NVME_TCP_FES_SEQUENCE, 0},
	{"second ICResp", &host, {1, 0, 128, 0, 128}, NVME_TCP_FES_SEQUENCE, 0},
	{"CapsuleCmd before ICReq", &fresh_ctrl, {4, 0, 72, 0, 72}, NVME_TCP_FES_SEQUENCE, 0},
	{"H2CData before ICReq", &fresh_ctrl, {6, 4, 24, 24, 536}, NVME_TCP_FES_SEQUENCE, 0},
	{"R2T before ICResp", &fresh_host, {9, 0, 24, 0, 24}, NVME_TCP_FES_SEQUENCE, 0},
	/* Flags */
	{"ICReq with a digest", &fresh_ctrl, {0, 1, 128, 0, 132}, FIELD, 1},
	{"H2CTermReq with a digest", &ctrl_digests, {2, 1, 24, 0, 28}, FIELD, 1},
	{"CapsuleCmd, reserved flag 10h", &ctrl, {4, 0x10, 72, 0, 72}, FIELD, 1},
	{"CapsuleCmd, reserved flag 80h", &ctrl, {4, 0x80, 72, 0, 72}, FIELD, 1},
	{"CapsuleCmd, LAST_PDU", &ctrl, {4, 4, 72, 0, 72}, FIELD, 1},
	{"CapsuleCmd, header digest not negotiated", &ctrl, {4, 1, 72, 0, 76}, FIELD, 1},
	{"CapsuleCmd, header digest missing", &ctrl_digests, {4, 2, 72, 72, 588}, FIELD, 1},
	{"CapsuleCmd, data digest not negotiated", &ctrl, {4, 2, 72, 72, 588}, FIELD, 1},
	{"CapsuleCmd, data digest missing", &ctrl_digests, {4, 1, 72, 76, 588}, FIELD, 1},
	{"CapsuleCmd, data digest without data", &ctrl_digests, {4, 3, 72, 0, 76}, FIELD, 1},
	{"CapsuleResp, data digest", &host_digests, {5, 3, 24, 0, 28}, FIELD, 1},
	{"H2CData, SUCCESS", &ctrl, {6, 0x0c, 24, 24, 536}, FIELD, 1},
	{"C2HData, SUCCESS without LAST_PDU", &host, {7, 0x08, 24, 24, 536}, FIELD, 1},
	{"R2T, data digest", &host_digests, {9, 3, 24, 0, 28}, FIELD, 1},
	/* HLEN */
	{"ICReq, HLEN 127", &fresh_ctrl, {0, 0, 127, 0, 128}, FIELD, 2},
	{"ICReq, HLEN 129", &fresh_ctrl, {0, 0, 129, 0, 129}, FIELD, 2},
	{"CapsuleCmd, HLEN 0", &ctrl, {4, 0, 0, 0, 72}, FIELD, 2},
	{"CapsuleCmd, HLEN 1", &ctrl, {4, 0, 1, 0, 72}, FIELD, 2},
	{"CapsuleCmd, HLEN 71", &ctrl, {4, 0, 71, 0, 72}, FIELD, 2},
	{"CapsuleCmd, HLEN 73", &ctrl, {4, 0, 73, 0, 73}, FIELD, 2},
	{"CapsuleCmd, HLEN 255", &ctrl, {4, 0, 255, 0, 255}, FIELD, 2},
	{"H2CData, HLEN 28", &ctrl, {6, 4, 28, 28, 536}, FIELD, 2},
	{"R2T, HLEN 25", &host, {9, 0, 25, 0, 25}, FIELD, 2},
	/* PDO */
	{"CapsuleCmd, PDO 0", &ctrl, {4, 0, 72, 0, 584}, FIELD, 3},
	{"CapsuleCmd, PDO inside the header", &ctrl, {4, 0, 72, 68, 584}, FIELD, 3},
	{"CapsuleCmd, PDO inside the digest", &ctrl_digests, {4, 3, 72, 72, 588}, FIELD, 3},
	{"CapsuleCmd, PDO no multiple of 4", &ctrl, {4, 0, 72, 74, 584}, FIELD, 3},
	{"CapsuleCmd, PDO against CPDA", &ctrl_aligned, {4, 0, 72, 76, 588}, FIELD, 3},
	{"CapsuleCmd, PDO behind the end", &ctrl, {4, 0, 72, 96, 92}, FIELD, 3},
	{"H2CData, PDO 0", &ctrl, {6, 4, 24, 0, 536}, FIELD, 3},
	{"C2HData, PDO 20", &host, {7, 4, 24, 20, 536}, FIELD, 3},
	/* PLEN */
	{"ICReq, PLEN 0", &fresh_ctrl, {0, 0, 128, 0, 0}, FIELD, 4},
	{"ICReq, PLEN 127", &fresh_ctrl, {0, 0, 128, 0, 127}, FIELD, 4},
	{"ICReq, PLEN 129", &fresh_ctrl, {0, 0, 128, 0, 129}, FIELD, 4},
	{"ICReq, PLEN 2^32-1", &fresh_ctrl, {0, 0, 128, 0, UINT32_MAX}, FIELD, 4},
	{"H2CTermReq, PLEN 153", &ctrl, {2, 0, 24, 0, 153}, FIELD, 4},
	{"H2CTermReq, PLEN 23", &ctrl, {2, 0, 24, 0, 23}, FIELD, 4},
	{"CapsuleCmd, PLEN 7", &ctrl, {4, 0, 72, 0, 7}, FIELD, 4},
	{"CapsuleCmd, PLEN 71", &ctrl, {4, 0, 72, 0, 71}, FIELD, 4},
	{"CapsuleCmd, no room for the digest", &ctrl_digests, {4, 1, 72, 0, 75}, FIELD, 4},
	{"CapsuleCmd, no data behind PDO", &ctrl, {4, 0, 72, 80, 80}, FIELD, 4},
	{"CapsuleCmd, only the digest behind PDO", &ctrl_digests, {4, 3, 72, 76, 80}, FIELD, 4},
	{"CapsuleCmd, one byte over the limit", &ctrl, {4, 0, 72, 72, 72 + 8193}, FIELD, 4},
	{"CapsuleCmd, PLEN 2^32-1", &ctrl, {4, 0, 72, 72, UINT32_MAX}, FIELD, 4},
	{"CapsuleResp with data", &host, {5, 0, 24, 0, 28}, FIELD, 4},
	{"H2CData without data", &ctrl, {6, 4, 24, 24, 24}, FIELD, 4},
	{"H2CData, over MAXH2CDATA", &ctrl, {6, 4, 24, 24, 24 + 131073},
		NVME_TCP_FES_LIMIT_EXCEEDED, 0},
	{"H2CData, PLEN 2^32-1", &ctrl, {6, 4, 24, 24, UINT32_MAX}, NVME_TCP_FES_LIMIT_EXCEEDED, 0},
	{"C2HData without data", &host_digests, {7, 7, 24, 28, 28}, FIELD, 4},
	{"C2HData, too long", &host, {7, 4, 24, 24, UINT32_MAX}, NVME_TCP_FES_OUT_OF_RANGE, 0},
	{"R2T, PLEN 28", &host, {9, 0, 24, 0, 28}, FIELD, 4},
};

static struct nvme_tcp_ch wire_of(const struct ch *ch)
{
	return (struct nvme_tcp_ch){.type = ch->type,
		.flags = ch->flags,
		.hlen = ch->hlen,
		.pdo = ch->pdo,
		.plen = le32(ch->plen)};
}

static void lawful_headers_give_the_layout_of_the_pdu(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct nvme_tcp_ch ch = wire_of(&good[i].ch);
		struct nvme_tcp_pdu pdu;
		struct nvme_tcp_fatal fatal = {0};

		if (nvme_tcp_pdu_check(good[i].rules, &ch, &pdu, &fatal))
			fail_msg("%s: FES %u, FEI %u", good[i].name, fatal.fes, fatal.fei);
		if (pdu.data_offset != good[i].data_offset || pdu.data_len != good[i].data_len ||
			pdu.header_digest != good[i].header_digest ||
			pdu.data_digest != good[i].data_digest)
			fail_msg("%s: data %u at %u", good[i].name, pdu.data_len, pdu.data_offset);
		assert_int_equal(pdu.type, good[i].ch.type);
		assert_int_equal(pdu.flags, good[i].ch.flags);
		assert_int_equal(pdu.header_len, good[i].ch.hlen);
	}
}

static void wrong_headers_name_the_culprit(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct nvme_tcp_ch ch = wire_of(&bad[i].ch);
		struct nvme_tcp_pdu pdu = {.type = 0xee};
		struct nvme_tcp_fatal fatal = {0};

		if (nvme_tcp_pdu_check(bad[i].rules, &ch, &pdu, &fatal) != -EPROTO)
			fail_msg("%s: passed", bad[i].name);
		if (fatal.fes != bad[i].fes || fatal.fei != bad[i].fei)
			fail_msg("%s: FES %u, FEI %u", bad[i].name, fatal.fes, fatal.fei);
		assert_int_equal(pdu.type, 0xee);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lawful_headers_give_the_layout_of_the_pdu),
		cmocka_unit_test(wrong_headers_name_the_culprit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
