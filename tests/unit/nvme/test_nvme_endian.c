/* SPDX-License-Identifier: MIT */
/*
 * The little-endian types: order of the bytes, at any alignment.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/nvme/endian.h"

static void integers_lie_in_wire_order_at_any_address(void **state)
{
	struct {
		uint8_t shift;
		le16_t a;
		le24_t b;
		le32_t c;
		le64_t d;
		be64_t e;
		le128_t f;
	} wire;
	static const uint8_t expected[] = {0, 0x02, 0x01, 0x05, 0x04, 0x03, 0x09, 0x08, 0x07, 0x06,
		0x11, 0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5,
		4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0};

	(void)state;
	assert_int_equal(sizeof(wire), sizeof(expected));
	wire.shift = 0;
	wire.a = le16(0x0102);
	wire.b = le24(0x030405);
	wire.c = le32(0x06070809);
	wire.d = le64(0x0a0b0c0d0e0f1011);
	wire.e = be64(0x0102030405060708);
	wire.f = le128(0x0102030405060708);
	assert_memory_equal(&wire, expected, sizeof(wire));
	assert_int_equal(le16_get(wire.a), 0x0102);
	assert_int_equal(le24_get(wire.b), 0x030405);
	assert_int_equal(le32_get(wire.c), 0x06070809);
	assert_true(le64_get(wire.d) == 0x0a0b0c0d0e0f1011);
	assert_true(be64_get(wire.e) == 0x0102030405060708);
}

static void highest_values_survive(void **state)
{
	(void)state;
	assert_int_equal(le16_get(le16(0xffff)), 0xffff);
	assert_int_equal(le24_get(le24(0xffffff)), 0xffffff);
	assert_true(le32_get(le32(0xffffffff)) == 0xffffffff);
	assert_true(le64_get(le64(UINT64_MAX)) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_lie_in_wire_order_at_any_address),
		cmocka_unit_test(highest_values_survive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
