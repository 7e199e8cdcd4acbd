/* SPDX-License-Identifier: MIT */
/*
 * NQNs, text fields and UUIDs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/name.h"

#define UUID_PREFIX "nqn.2014-08.org.nvmexpress:uuid:"
#define UUID	    "4c4c4544-0044-3010-8051-b4c04f4b3232"
#define LABEL_63    "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0"

static const struct {
	const char *nqn;
	const char *why; /* a part of the message; NULL: good */
} nqn_cases[] = {
	{"nqn.2014-08.org.nvmexpress.discovery", NULL},
	{UUID_PREFIX UUID, NULL},
	{UUID_PREFIX "4C4C4544-0044-3010-8051-B4C04F4B3232", NULL},
	{"nqn.2016-06.io.spdk:cnode1", NULL},
	{"nqn.1988-11.com.dell:powerstore:00:1b2c", NULL},
	{"nqn.2014-08.com.example:nvme:nvm-subsystem-sn-d78432", NULL},
	{"nqn.2021-06.com.intel:PHAB1234 with blanks  ", NULL},
	{"nqn.2020-12.a:b", NULL},
	{"nqn.2020-12.co.a-b.x1:/dev/sda?x=1", NULL},
	{"nqn.2020-12." LABEL_63 ".org:x", NULL},
	{"nqn.2020-12.org.example:\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", NULL},
	{"nqn.2014-08.org.nvmexpress:other", NULL},
	{"nqn.2014-08.org.nvmexpress.discovery:x", NULL},
	{"", "empty"},
	{"nqn", "begin"},
	{"iqn.2020-12.org.example:x", "begin"},
	{"NQN.2020-12.org.example:x", "begin"},
	{" nqn.2020-12.org.example:x", "begin"},
	{"10.0.0.1", "begin"},
	{"blktests-subsystem-1", "begin"},
	{"nqn.", "date"},
	{"nqn.2020", "date"},
	{"nqn.2020-12", "date"},
	{"nqn.2020-00.org.example:x", "date"},
	{"nqn.2020-13.org.example:x", "date"},
	{"nqn.2020-1.org.example:x", "date"},
	{"nqn.2014.08.org.nvmexpress:x", "date"},
	{"nqn.20a0-12.org.example:x", "date"},
	{"nqn.2020-12org.example:x", "date"},
	{"nqn.2020-12.", "\":\""},
	{"nqn.2020-12.org.example", "\":\""},
	{"nqn.2014-08.org.nvmexpress.discovery2", "\":\""},
	{"nqn.2020-12.:x", "domain"},
	{"nqn.2020-12..org:x", "domain"},
	{"nqn.2020-12.org.:x", "domain"},
	{"nqn.2020-12.org.-a:x", "domain"},
	{"nqn.2020-12.org.a-:x", "domain"},
	{"nqn.2020-12.org.ex_ample:x", "domain"},
	{"nqn.2020-12.org.\xc3\xa4:x", "domain"},
	{"nqn.2020-12." LABEL_63 "1.org:x", "domain"},
	{"nqn.2020-12.org.example:", "no name"},
	{UUID_PREFIX, "UUID"},
	{UUID_PREFIX "4c4c4544-0044-3010-8051-b4c04f4b323", "UUID"},
	{UUID_PREFIX UUID "0", "UUID"},
	{UUID_PREFIX "4c4c4544-0044-3010-8051-b4c04f4b323g", "UUID"},
	{UUID_PREFIX "4c4c454400443010-8051-b4c04f4b3232--", "UUID"},
	{"nqn.2020-12.org.example:a\nb", "control"},
	{"nqn.2020-12.org.example:a\x7f", "control"},
	{"nqn.2020-12.org.example:\xc2\x9b", "control"},
	{"nqn.2020-12.org.example:\xc2\xa0", NULL},
	{"nqn.2020-12.org.example:\xff", "UTF-8"},
	{"nqn.2020-12.org.example:\xc3", "UTF-8"},
	{"nqn.2020-12.org.example:\xc0\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\xe0\x80\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\xed\xa0\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\xf0\x80\x80\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\xf4\x90\x80\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\x80", "UTF-8"},
	{"nqn.2020-12.org.example:\xe2\x82g", "UTF-8"},
};

static void transports_have_names(void **state)
{
	unsigned nr = 0;

	(void)state;
	for (unsigned trtype = 0; trtype < 256; trtype++) {
		const char *name = nvme_trtype_name((uint8_t)trtype);

		if (name)
			assert_int_equal(nvme_trtype_by_name(name, strlen(name)), trtype);
		nr += name != NULL;
	}
	assert_int_equal(nr, 4);
	assert_string_equal(nvme_trtype_name(NVME_TRTYPE_RDMA), "rdma");
	assert_string_equal(nvme_trtype_name(NVME_TRTYPE_TCP), "tcp");
	assert_int_equal(nvme_trtype_by_name("tcp4", 3), NVME_TRTYPE_TCP);
	assert_int_equal(nvme_trtype_by_name("tcp", 2), 0);
	assert_int_equal(nvme_trtype_by_name("TCP", 3), 0);
	assert_int_equal(nvme_trtype_by_name("", 0), 0);
}

static void nqns_get_their_verdict(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(nqn_cases); i++) {
		const char *nqn = nqn_cases[i].nqn, *why = "none";
		int result = nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_OURS, &why);

		if (result != (nqn_cases[i].why ? -EINVAL : 0))
			fail_msg("\"%s\": %d, %s", nqn, result, why);
		if (nqn_cases[i].why && !strstr(why, nqn_cases[i].why))
			fail_msg("\"%s\": says \"%s\"", nqn, why);
	}
}

/* The kernel's target and many products let users choose any text. */
static void names_of_peers_may_have_any_form(void **state)
{
	static const struct {
		const char *nqn;
		const char *why; /* a part of the message; NULL: good */
	} cases[] = {{"testnqn", NULL}, {"1", NULL}, {"blktests-subsystem-1", NULL},
		{"nqn.2020-13.org.example", NULL}, {UUID_PREFIX "x", NULL}, {"a b/c?d#e%f", NULL},
		{"\xc3\xa4\xe2\x82\xac", NULL}, {"", "empty"}, {"a\nb", "control"},
		{"\x1b[2J", "control"}, {"a\xc2\x9b", "control"}, {"a\xff", "UTF-8"},
		{"\xc3", "UTF-8"}};
	char longest[NVME_NQN_FIELD];
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *nqn = cases[i].nqn;
		int result;

		why = "none";
		result = nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_PEERS, &why);
		if (result != (cases[i].why ? -EINVAL : 0))
			fail_msg("\"%s\": %d, %s", nqn, result, why);
		if (cases[i].why && !strstr(why, cases[i].why))
			fail_msg("\"%s\": says \"%s\"", nqn, why);
	}
	memset(longest, 'x', sizeof(longest));
	assert_int_equal(nvme_nqn_check(longest, 223, NVME_NQN_PEERS, NULL), 0);
	assert_int_equal(nvme_nqn_check(longest, 224, NVME_NQN_PEERS, &why), -EINVAL);
	assert_non_null(strstr(why, "223"));
}

static void nqn_has_at_most_223_bytes(void **state)
{
	char field[NVME_NQN_FIELD];
	const char *why;

	(void)state;
	memset(field, 'x', sizeof(field));
	memcpy(field, "nqn.2020-12.org.example:", 24);
	assert_int_equal(nvme_nqn_check(field, 223, NVME_NQN_OURS, NULL), 0);
	assert_int_equal(nvme_nqn_check(field, 224, NVME_NQN_OURS, &why), -EINVAL);
	assert_non_null(strstr(why, "223"));
	/* A field of the wire without a NUL. */
	assert_int_equal(
		nvme_nqn_check(field, strnlen(field, sizeof(field)), NVME_NQN_OURS, NULL), -EINVAL);
	/* A sequence of UTF-8 that the length cuts. */
	memcpy(field + 222, "\xc3\xa4", 2);
	assert_int_equal(nvme_nqn_check(field, 223, NVME_NQN_OURS, &why), -EINVAL);
	assert_non_null(strstr(why, "UTF-8"));
}

static void fields_are_padded_with_spaces(void **state)
{
	char field[8], text[9];

	(void)state;
	assert_int_equal(nvme_field_set(field, sizeof(field), "haul"), 0);
	assert_memory_equal(field, "haul    ", sizeof(field));
	nvme_field_get(field, sizeof(field), text);
	assert_string_equal(text, "haul");
	assert_int_equal(nvme_field_set(field, sizeof(field), "12345678"), 0);
	assert_memory_equal(field, "12345678", sizeof(field));
	nvme_field_get(field, sizeof(field), text);
	assert_string_equal(text, "12345678");
	assert_int_equal(nvme_field_set(field, sizeof(field), "123456789"), -EINVAL);
	assert_int_equal(nvme_field_set(field, sizeof(field), "a\tb"), -EINVAL);
	assert_int_equal(nvme_field_set(field, sizeof(field), "\xc3\xa4"), -EINVAL);
	assert_memory_equal(field, "12345678", sizeof(field));
	nvme_field_get("ab\0c\x1b \0 ", 8, text);
	assert_string_equal(text, "ab?c?");
	nvme_field_get("\0\0\0\0\0\0\0\0", 8, text);
	assert_string_equal(text, "");
}

static void uuids_keep_the_order_of_their_text(void **state)
{
	static const uint8_t bytes[16] = {0x4c, 0x4c, 0x45, 0x44, 0x00, 0x44, 0x30, 0x10, 0x80,
		0x51, 0xb4, 0xc0, 0x4f, 0x4b, 0x32, 0x32};
	static const char *const bad[] = {"", "4c4c4544", UUID "0",
		"4c4c4544-0044-3010-8051-b4c04f4b323x", "4c4c4544_0044-3010-8051-b4c04f4b3232",
		"{4c4c4544-0044-3010-8051-b4c04f4b323}"};
	struct nvme_uuid uuid;
	char text[NVME_UUID_TEXT];

	(void)state;
	assert_int_equal(nvme_uuid_parse("4C4c4544-0044-3010-8051-b4C04F4b3232", &uuid), 0);
	assert_memory_equal(uuid.b, bytes, sizeof(bytes));
	nvme_uuid_format(&uuid, text);
	assert_string_equal(text, UUID);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(nvme_uuid_parse(bad[i], &uuid), -EINVAL);
		assert_memory_equal(uuid.b, bytes, sizeof(bytes));
	}
}

static void uuid_of_a_hash_has_version_8(void **state)
{
	uint8_t hash[16];
	char text[NVME_UUID_TEXT];
	struct nvme_uuid uuid;

	(void)state;
	memset(hash, 0xff, sizeof(hash));
	uuid = nvme_uuid_from_hash(hash);
	nvme_uuid_format(&uuid, text);
	assert_string_equal(text, "ffffffff-ffff-8fff-bfff-ffffffffffff");
	memset(hash, 0, sizeof(hash));
	uuid = nvme_uuid_from_hash(hash);
	nvme_uuid_format(&uuid, text);
	assert_string_equal(text, "00000000-0000-8000-8000-000000000000");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transports_have_names),
		cmocka_unit_test(nqns_get_their_verdict),
		cmocka_unit_test(names_of_peers_may_have_any_form),
		cmocka_unit_test(nqn_has_at_most_223_bytes),
		cmocka_unit_test(fields_are_padded_with_spaces),
		cmocka_unit_test(uuids_keep_the_order_of_their_text),
		cmocka_unit_test(uuid_of_a_hash_has_version_8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
