/* SPDX-License-Identifier: MIT */
/*
 * CRC32C: known answers, and the CPU's version against the portable one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "proto/base/compiler.h"
#include "proto/nvme/crc32c.h"

#define BUFFER_SIZE 16384

/* RFC 3720 B.4 gives the first five; their bytes on the wire are these values, lowest byte first.
 */
static void known_answers(void **state)
{
	uint8_t bytes[32], read_pdu[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
				   0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28,
				   0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0};

	(void)state;
	memset(bytes, 0, sizeof(bytes));
	assert_true(nvme_crc32c(0, bytes, sizeof(bytes)) == 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	assert_true(nvme_crc32c(0, bytes, sizeof(bytes)) == 0x62a8ab43);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_true(nvme_crc32c(0, bytes, sizeof(bytes)) == 0x46dd794e);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(31 - i);
	assert_true(nvme_crc32c(0, bytes, sizeof(bytes)) == 0x113fdb5c);
	assert_true(nvme_crc32c(0, read_pdu, sizeof(read_pdu)) == 0xd9963a56);
	assert_true(nvme_crc32c(0, "123456789", 9) == 0xe3069283);
	assert_true(nvme_crc32c_table(0, "123456789", 9) == 0xe3069283);
	assert_true(nvme_crc32c(0, NULL, 0) == 0);
}

static uint8_t *random_bytes(size_t size)
{
	uint8_t *bytes = malloc(size);

	assert_non_null(bytes);
	srandom(1);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)random();
	return bytes;
}

static void every_length_and_alignment_gives_the_portable_result(void **state)
{
	uint8_t *bytes = random_bytes(BUFFER_SIZE + 16);

	(void)state;
	print_message("CRC32C by %s\n", nvme_crc32c_implementation());
	for (size_t len = 0; len < 1200; len++) {
		for (size_t shift = 0; shift < 9; shift += len < 64 ? 1 : 3)
			assert_true(nvme_crc32c(0, bytes + shift, len) ==
				    nvme_crc32c_table(0, bytes + shift, len));
	}
	for (int i = 0; i < 400; i++) {
		size_t len = (size_t)random() % BUFFER_SIZE;
		size_t shift = (size_t)random() % 16;
		uint32_t crc = (uint32_t)random();

		assert_true(nvme_crc32c(crc, bytes + shift, len) ==
			    nvme_crc32c_table(crc, bytes + shift, len));
	}
	free(bytes);
}

/* A block on the heap of just that size, so that the sanitizer sees a byte too many. */
static void no_byte_behind_the_end_is_read(void **state)
{
	(void)state;
	for (size_t len = 1; len < 4200; len += len < 80 ? 1 : 97) {
		uint8_t *bytes = random_bytes(len);

		assert_true(nvme_crc32c(0, bytes, len) == nvme_crc32c_table(0, bytes, len));
		free(bytes);
	}
}

#define NR_PIECES 8

static void pieces_give_the_crc_of_the_whole(void **state)
{
	uint8_t *bytes = random_bytes(BUFFER_SIZE);
	uint32_t whole = nvme_crc32c(0, bytes, BUFFER_SIZE);

	(void)state;
	for (int round = 0; round < 100; round++) {
		uint32_t crc = 0;
		size_t at = 0;

		for (unsigned i = 0; i < NR_PIECES; i++) {
			size_t left = BUFFER_SIZE - at;
			size_t len = i + 1 < NR_PIECES ? (size_t)random() % (left + 1) : left;

			crc = nvme_crc32c(crc, bytes + at, len);
			at += len;
		}
		assert_true(crc == whole);
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(every_length_and_alignment_gives_the_portable_result),
		cmocka_unit_test(no_byte_behind_the_end_is_read),
		cmocka_unit_test(pieces_give_the_crc_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
