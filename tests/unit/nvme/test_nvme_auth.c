/* SPDX-License-Identifier: MIT */
/*
 * Messages of in-band authentication, whole and wrong in each place, and secrets as nvme
 * gen-dhchap-key prints them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/base/compiler.h"
#include "proto/nvme/auth.h"

/* --- secrets --------------------------------------------------------------------------------- */

/* Printed by nvme-cli 2.3. */
static void secrets_of_nvme_cli_are_read(void **state)
{
	static const struct {
		const char *text;
		uint8_t hash, len, first, last;
	} cases[] = {
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", 0, 32, 0xe3, 0xbf},
		{"DHHC-1:01:K5mO3V9CS6u3LUE6uDZ2QXpD17DgTXqcvYUwFHQlOJq9eYUo:", 1, 32, 0x2b, 0x9a},
		{"DHHC-1:02:azHfFpuORcGd5ZRu1CdQa00fSP6KU+ge0DkfbFn1xKo0q6V4tYm2CtCcbR34u3vc7c38vQ"
		 "==:",
			2, 48, 0x6b, 0xdc},
		{"DHHC-1:03:w5YwMZgLaFu8bvocpTh3mr+ZlIrhT2zKqhcER2CQ7W2B2PPrcPYaqfrMh8Qz9HkrKqOBLl"
		 "9LhW9q7WEyoKgoa/+S4B8=:",
			3, 64, 0xc3, 0x6b},
		{"DHHC-1:00:FscCnOUmB2PKhlVRWBqwRw/gkG0XbRH1X5we6z+rxBqNT7pWbbXEN3K/Y6NprIRW29wN5w"
		 "==:",
			0, 48, 0x16, 0x56},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_auth_secret secret;

		assert_int_equal(
			nvme_auth_secret_parse(cases[i].text, strlen(cases[i].text), &secret, NULL),
			0);
		assert_int_equal(secret.hash, cases[i].hash);
		assert_int_equal(secret.len, cases[i].len);
		assert_int_equal(secret.bytes[0], cases[i].first);
		assert_int_equal(secret.bytes[secret.len - 1], cases[i].last);
	}
}

static void wrong_secrets_are_told_apart(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} cases[] = {
		{"", "is not a secret"},
		{"DHHC-1", "is not a secret"},
		{"DHHC-2:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "is not a secret"},
		{"DHHC-1:0:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "is not a secret"},
		{"DHHC-1:04:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "transformation"},
		{"DHHC-1:10:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "transformation"},
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X", "no ':'"},
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8Y:", "checksum"},
		{"DHHC-1:00:5/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "checksum"},
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8:", "base64"},
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8!:", "base64"},
		{"DHHC-1:00:4/UtwwjF03rixk=j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:", "base64"},
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8XAAAA:", "base64"},
		{"DHHC-1:00::", "base64"},
		{"DHHC-1:03:w5YwMZgLaFu8bvocpTh3mr+ZlIrhT2zKqhcER2CQ7W2B2PPrcPYaqfrMh8Qz9HkrKqOBLl"
		 "9LhW9q7WEyoKgoa/+S4B9=:",
			"base64"}, /* a bit is left over */
		{"DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X4/UtwwjF03rixk/j7gmIHL"
		 "OKHvpFx+7qv5cXXGtuc7+Ast8X4/UtwwjF:",
			"base64"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_auth_secret secret;
		const char *why = "";

		assert_int_equal(
			nvme_auth_secret_parse(cases[i].text, strlen(cases[i].text), &secret, &why),
			-EINVAL);
		assert_non_null(strstr(why, cases[i].why));
		assert_int_equal(secret.len, 0);
	}
}

/* --- Negotiate ------------------------------------------------------------------------------- */

struct negotiate {
	struct nvme_auth_negotiate message;
	struct nvme_auth_protocol protocol[2];
};
#define ONE_PROTOCOL (sizeof(struct nvme_auth_negotiate) + sizeof(struct nvme_auth_protocol))

static struct negotiate as_linux_sends_it(void)
{
	struct negotiate whole = {0};

	whole.message.napd = 1;
	whole.protocol[0] = (struct nvme_auth_protocol){
		.authid = 1,
		.halen = 3,
		.dhlen = 6,
		.hash = {1, 2, 3},
		.group = {0, 1, 2, 3, 4, 5},
	};
	return whole;
}

static void what_linux_offers_is_all(void **state)
{
	struct negotiate whole = as_linux_sends_it();
	struct nvme_auth_offer offer;

	(void)state;
	assert_int_equal(nvme_auth_negotiate_check(&whole, ONE_PROTOCOL, &offer), 0);
	assert_int_equal(offer.hashes, NVME_AUTH_ALL_HASHES);
	assert_int_equal(offer.groups, NVME_AUTH_ALL_GROUPS);
	assert_int_equal(nvme_auth_strongest(offer.groups), NVME_AUTH_FFDHE8192);
	assert_int_equal(nvme_auth_strongest(offer.hashes), NVME_AUTH_SHA512);
	assert_int_equal(nvme_auth_strongest(1), NVME_AUTH_GROUP_NULL);
}

static void unknown_numbers_are_no_offer(void **state)
{
	struct negotiate whole = as_linux_sends_it();
	struct nvme_auth_offer offer;

	(void)state;
	memcpy(whole.protocol[0].hash, "\x00\x04\xff", 3);
	memcpy(whole.protocol[0].group, "\x06\x1f\x20\xff\x02\x80", 6);
	assert_int_equal(nvme_auth_negotiate_check(&whole, ONE_PROTOCOL, &offer), 0);
	assert_int_equal(offer.hashes, 0);
	assert_int_equal(offer.groups, 1u << NVME_AUTH_FFDHE3072);
}

static void another_protocol_before_ours_is_skipped(void **state)
{
	struct negotiate whole = as_linux_sends_it();
	struct nvme_auth_offer offer;

	(void)state;
	whole.message.napd = 2;
	whole.protocol[1] = whole.protocol[0];
	memset(&whole.protocol[0], 0xff, sizeof(whole.protocol[0]));
	assert_int_equal(nvme_auth_negotiate_check(&whole, sizeof(whole), &offer), 0);
	assert_int_equal(offer.hashes, NVME_AUTH_ALL_HASHES);
}

static void wrong_negotiate_is_answered_with_its_reason(void **state)
{
	static const struct {
		size_t len;    /* 0: the right one */
		size_t offset; /* of a byte ... */
		uint8_t value; /* ... that is this */
		uint8_t fault;
	} cases[] = {
		{.len = 6, .fault = NVME_AUTH_PAYLOAD},
		{.len = 7, .fault = NVME_AUTH_PAYLOAD},
		{.len = 8, .fault = NVME_AUTH_PAYLOAD},
		{.len = ONE_PROTOCOL - 1, .fault = NVME_AUTH_PAYLOAD},
		{.len = ONE_PROTOCOL + 1, .fault = NVME_AUTH_PAYLOAD},
		{.len = sizeof(struct negotiate), .fault = NVME_AUTH_PAYLOAD},
		{.offset = 7, .value = 0, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 7, .value = 2, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 7, .value = 255, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 6, .value = 1, .fault = NVME_AUTH_CONCAT_MISMATCH},
		{.offset = 6, .value = 255, .fault = NVME_AUTH_CONCAT_MISMATCH},
		{.offset = 8, .value = 2, .fault = NVME_AUTH_PROTOCOL_UNUSABLE},
		{.offset = 10, .value = 0, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 10, .value = 31, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 11, .value = 0, .fault = NVME_AUTH_PAYLOAD},
		{.offset = 11, .value = 31, .fault = NVME_AUTH_PAYLOAD},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct negotiate whole = as_linux_sends_it();
		struct nvme_auth_offer offer;
		size_t len = cases[i].len ? cases[i].len : ONE_PROTOCOL;

		if (cases[i].offset)
			((uint8_t *)&whole)[cases[i].offset] = cases[i].value;
		assert_int_equal(nvme_auth_negotiate_check(&whole, len, &offer), cases[i].fault);
	}
}

/* --- Reply ----------------------------------------------------------------------------------- */

#define REPLY_BYTES (16 + 2 * 48 + 384)

static void reply_of_sha384_ffdhe3072(uint8_t bytes[NVME_AUTH_MAX_MESSAGE + 1])
{
	struct nvme_auth_reply *reply = (struct nvme_auth_reply *)bytes;

	memset(bytes, 0, NVME_AUTH_MAX_MESSAGE + 1);
	reply->hl = 48;
	reply->cvalid = 1;
	reply->dhvlen = le16(384);
	reply->seqnum = le32(7);
}

static void parts_of_a_reply_are_found(void **state)
{
	uint8_t bytes[NVME_AUTH_MAX_MESSAGE + 1];
	struct nvme_auth_answer answer;

	(void)state;
	reply_of_sha384_ffdhe3072(bytes);
	assert_int_equal(nvme_auth_reply_check(bytes, REPLY_BYTES, 2, 2, &answer), 0);
	assert_true(answer.challenges);
	assert_int_equal(answer.seqnum, 7);
	assert_ptr_equal(answer.response, bytes + 16);
	assert_ptr_equal(answer.challenge, bytes + 16 + 48);
	assert_ptr_equal(answer.dh, bytes + 16 + 96);
}

static void longest_reply_fits_the_bound(void **state)
{
	uint8_t bytes[NVME_AUTH_MAX_MESSAGE + 1];
	struct nvme_auth_reply *reply = (struct nvme_auth_reply *)bytes;
	struct nvme_auth_answer answer;

	(void)state;
	reply_of_sha384_ffdhe3072(bytes);
	reply->hl = 64;
	reply->dhvlen = le16(1024);
	assert_int_equal(nvme_auth_reply_check(bytes, NVME_AUTH_MAX_MESSAGE, 3, 5, &answer), 0);
	reply->hl = 32;
	reply->dhvlen = le16(0);
	assert_int_equal(nvme_auth_reply_check(bytes, 16 + 64, 1, 0, &answer), 0);
	assert_null(answer.dh);
}

static void wrong_reply_is_an_incorrect_payload(void **state)
{
	static const struct {
		size_t len, offset;
		uint8_t value;
	} cases[] = {
		{.len = 1}, {.len = 15}, {.len = 16}, {.len = REPLY_BYTES - 384},
		{.len = REPLY_BYTES - 1}, {.len = REPLY_BYTES + 1}, {.offset = 6, .value = 32},
		{.offset = 6, .value = 0}, {.offset = 6, .value = 255}, {.offset = 8, .value = 2},
		{.offset = 10, .value = 0x7f}, {.offset = 11, .value = 0},
		{.offset = 11, .value = 0xff},
		{.offset = 12, .value = 0}, /* C2 with S2 0 is for a secure channel */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t bytes[NVME_AUTH_MAX_MESSAGE + 1];
		struct nvme_auth_answer answer;
		size_t len = cases[i].len ? cases[i].len : REPLY_BYTES;

		reply_of_sha384_ffdhe3072(bytes);
		if (cases[i].offset)
			bytes[cases[i].offset] = cases[i].value;
		assert_int_equal(
			nvme_auth_reply_check(bytes, len, 2, 2, &answer), NVME_AUTH_PAYLOAD);
	}
}

static void unidirectional_reply_may_have_any_number(void **state)
{
	uint8_t bytes[NVME_AUTH_MAX_MESSAGE + 1];
	struct nvme_auth_answer answer;

	(void)state;
	reply_of_sha384_ffdhe3072(bytes);
	bytes[8] = 0;
	bytes[12] = 0;
	assert_int_equal(nvme_auth_reply_check(bytes, REPLY_BYTES, 2, 2, &answer), 0);
	assert_false(answer.challenges);
}

/* --- the short ones -------------------------------------------------------------------------- */

static void short_messages_have_one_length(void **state)
{
	static const uint8_t failure[9] = {0, 0xf0, 0, 0, 1, 0, 1, 4};
	struct nvme_auth_header header;
	uint8_t bytes[17] = {0};
	uint8_t fault = 0;

	(void)state;
	assert_int_equal(nvme_auth_header_get(failure, 5, &header), -EINVAL);
	assert_int_equal(nvme_auth_header_get(failure, 6, &header), 0);
	assert_int_equal(header.id, NVME_AUTH_FAILURE2);
	assert_int_equal(le16_get(header.t_id), 1);
	for (size_t len = 6; len <= 17; len++)
		assert_int_equal(nvme_auth_success2_check(bytes, len) == NVME_AUTH_OK, len == 16);
	for (size_t len = 6; len <= 9; len++)
		assert_int_equal(
			nvme_auth_failure2_check(failure, len, &fault) == NVME_AUTH_OK, len == 8);
	assert_int_equal(fault, NVME_AUTH_HASH_UNUSABLE);
}

static void names_and_numbers_are_each_others(void **state)
{
	uint8_t id;

	(void)state;
	for (unsigned i = 0; i < 256; i++) {
		const char *hash = nvme_auth_hash_name((uint8_t)i);
		const char *group = nvme_auth_group_name((uint8_t)i);

		assert_int_equal(hash != NULL, i < 32 && NVME_AUTH_ALL_HASHES >> i & 1);
		assert_int_equal(group != NULL, i < 32 && NVME_AUTH_ALL_GROUPS >> i & 1);
		assert_int_equal(nvme_auth_hash_bytes((uint8_t)i) != 0, hash != NULL);
		assert_int_equal(nvme_auth_group_bytes((uint8_t)i) != 0, group && i);
		assert_true(!hash || (!nvme_auth_hash_by_name(hash, &id) && id == i));
		assert_true(!group || (!nvme_auth_group_by_name(group, &id) && id == i));
		assert_non_null(nvme_auth_fault_str((uint8_t)i));
	}
	assert_int_equal(nvme_auth_hash_by_name("md5", &id), -EINVAL);
	assert_int_equal(nvme_auth_group_by_name("ffdhe1024", &id), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(secrets_of_nvme_cli_are_read),
		cmocka_unit_test(wrong_secrets_are_told_apart),
		cmocka_unit_test(what_linux_offers_is_all),
		cmocka_unit_test(unknown_numbers_are_no_offer),
		cmocka_unit_test(another_protocol_before_ours_is_skipped),
		cmocka_unit_test(wrong_negotiate_is_answered_with_its_reason),
		cmocka_unit_test(parts_of_a_reply_are_found),
		cmocka_unit_test(longest_reply_fits_the_bound),
		cmocka_unit_test(wrong_reply_is_an_incorrect_payload),
		cmocka_unit_test(unidirectional_reply_may_have_any_number),
		cmocka_unit_test(short_messages_have_one_length),
		cmocka_unit_test(names_and_numbers_are_each_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
