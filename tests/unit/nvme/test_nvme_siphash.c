/* SPDX-License-Identifier: MIT */
/*
 * SipHash-2-4 against the vectors of its authors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/compiler.h"
#include "proto/nvme/siphash.h"

/* Key 00 01 .. 0f, message 00 01 .. LENGTH-1. */
static void vectors_of_the_authors(void **state)
{
	static const struct {
		size_t length;
		uint64_t hash;
	} cases[] = {
		{0, 0x726fdb47dd0e0e31},
		{1, 0x74f839c593dc67fd},
		{7, 0xab0200f58b01d137},
		{8, 0x93f5f5799a932462},
		{15, 0xa129ca6149be45e5},
	};
	static const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
	uint8_t message[16];

	(void)state;
	for (uint8_t i = 0; i < sizeof(message); i++)
		message[i] = i;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(nvme_siphash(key, message, cases[i].length), cases[i].hash);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(vectors_of_the_authors)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
