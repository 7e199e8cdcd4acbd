/* SPDX-License-Identifier: MIT */
/*
 * The parser of addresses, and its reverse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/nvme/uri.h"

#define NQN "nqn.2020-12.org.example:disk1"
#define NAME_56                        \
	"0123456789012345678901234567" \
	"0123456789012345678901234567"
#define NAME_224 NAME_56 NAME_56 NAME_56 NAME_56

static const struct {
	const char *text;
	unsigned flags;
	enum nvme_trtype trtype;
	const char *host;
	uint16_t port;
	const char *nqn;
	uint32_t nsid;
	const char *again; /* as formatted */
} good[] = {
	{"rdma://10.9.0.1", 0, NVME_TRTYPE_RDMA, "10.9.0.1", 4420, "", 0, "rdma://10.9.0.1:4420"},
	{"tcp://10.9.0.1/", 0, NVME_TRTYPE_TCP, "10.9.0.1", 4420, "", 0, "tcp://10.9.0.1:4420"},
	{"tcp://storage-1.example.org:1", 0, NVME_TRTYPE_TCP, "storage-1.example.org", 1, "", 0,
		"tcp://storage-1.example.org:1"},
	{"rdma://localhost:65535/" NQN "/1", 0, NVME_TRTYPE_RDMA, "localhost", 65535, NQN, 1,
		"rdma://localhost:65535/" NQN "/1"},
	{"rdma://[::1]:4421/" NQN, 0, NVME_TRTYPE_RDMA, "::1", 4421, NQN, 0,
		"rdma://[::1]:4421/" NQN},
	{"tcp://[::]", 0, NVME_TRTYPE_TCP, "::", 4420, "", 0, "tcp://[::]:4420"},
	{"tcp://[fe80::1%eth0]:4420", 0, NVME_TRTYPE_TCP, "fe80::1%eth0", 4420, "", 0,
		"tcp://[fe80::1%eth0]:4420"},
	{"tcp://[fe80::1%25eth0]", 0, NVME_TRTYPE_TCP, "fe80::1%eth0", 4420, "", 0,
		"tcp://[fe80::1%eth0]:4420"},
	{"tcp://[fe80::1%2525]", 0, NVME_TRTYPE_TCP, "fe80::1%25", 4420, "", 0,
		"tcp://[fe80::1%2525]:4420"},
	{"tcp://[fe80::1%25]", 0, NVME_TRTYPE_TCP, "fe80::1%25", 4420, "", 0,
		"tcp://[fe80::1%2525]:4420"},
	{"tcp://[::ffff:1.2.3.4]", 0, NVME_TRTYPE_TCP, "::ffff:1.2.3.4", 4420, "", 0,
		"tcp://[::ffff:1.2.3.4]:4420"},
	{"tcp://h/nqn.2020-12.org.example:a%2Fb%20c%C3%a4/4294967294", 0, NVME_TRTYPE_TCP, "h",
		4420, "nqn.2020-12.org.example:a/b c\xc3\xa4", 4294967294,
		"tcp://h:4420/nqn.2020-12.org.example:a%2Fb%20c%C3%A4/4294967294"},
	{"tcp://h/testnqn/3", 0, NVME_TRTYPE_TCP, "h", 4420, "testnqn", 3,
		"tcp://h:4420/testnqn/3"},
	{"tcp://h/%2Fdev%2fdisk%3f%23%25", 0, NVME_TRTYPE_TCP, "h", 4420, "/dev/disk?#%", 0,
		"tcp://h:4420/%2Fdev%2Fdisk%3F%23%25"},
	{"tcp://h/1", 0, NVME_TRTYPE_TCP, "h", 4420, "1", 0, "tcp://h:4420/1"},
	{"tcp://h/nqn.2014-08.org.nvmexpress.discovery", 0, NVME_TRTYPE_TCP, "h", 4420,
		"nqn.2014-08.org.nvmexpress.discovery", 0,
		"tcp://h:4420/nqn.2014-08.org.nvmexpress.discovery"},
	{"rdma://0.0.0.0:0", NVME_URI_LISTENER, NVME_TRTYPE_RDMA, "0.0.0.0", 0, "", 0,
		"rdma://0.0.0.0:0"},
	{"tcp://[::]:4420", NVME_URI_LISTENER, NVME_TRTYPE_TCP, "::", 4420, "", 0,
		"tcp://[::]:4420"},
};

static const struct {
	const char *text;
	unsigned flags;
	const char *why; /* its beginning: the part that is wrong */
} bad[] = {
	{"", 0, "address"},
	{"10.9.0.1", 0, "address"},
	{"http://h", 0, "address"},
	{"RDMA://h", 0, "address"},
	{"tcp:/h", 0, "address"},
	{" tcp://h", 0, "address"},
	{"tcp://h/" NQN "#1", 0, "address"},
	{"tcp://", 0, "host"},
	{"tcp:///" NQN, 0, "host"},
	{"tcp://?a=b", 0, "host"},
	{"tcp://:4420", 0, "host"},
	{"tcp://a..b", 0, "host"},
	{"tcp://a.b.", 0, "host"},
	{"tcp://-a", 0, "host"},
	{"tcp://a b", 0, "host"},
	{"tcp://user@h", 0, "host"},
	{"tcp://h\n", 0, "host"},
	{"tcp://1.2.3", 0, "host"},
	{"tcp://1.2.3.256", 0, "host"},
	{"tcp://1234", 0, "host"},
	{"tcp://::1", 0, "host"},
	{"tcp://::1:4420", 0, "host"},
	{"tcp://fe80::1%eth0", 0, "host"},
	{"tcp://[::1", 0, "host"},
	{"tcp://[]", 0, "host"},
	{"tcp://[1.2.3.4]", 0, "host"},
	{"tcp://[::g]", 0, "host"},
	{"tcp://[fe80::1%]", 0, "host"},
	{"tcp://[fe80::1%eth0/x]", 0, "host"},
	{"tcp://[fe80::1%interface_of_16b]", 0, "host"},
	{"tcp://[::1%lo]", 0, "host"},
	{"tcp://[0000000000000000000000000000000000000000000000::1]", 0, "host"},
	{"tcp://[::1]4420", 0, "port"},
	{"tcp://h:", 0, "port"},
	{"tcp://h:0", 0, "port"},
	{"tcp://h:-0", 0, "port"},
	{"tcp://h:+1", 0, "port"},
	{"tcp://h: 1", 0, "port"},
	{"tcp://h:65536", 0, "port"},
	{"tcp://h:4294971716", 0, "port"},
	{"tcp://h:99999999999999999999", 0, "port"},
	{"tcp://h:4420x", 0, "port"},
	{"tcp://h:04420", 0, "port"},
	{"tcp://h:0x1144", 0, "port"},
	{"tcp://[::1]:", 0, "port"},
	{"tcp://[::1]:-1", NVME_URI_LISTENER, "port"},
	{"tcp://h:65536", NVME_URI_LISTENER, "port"},
	{"tcp://h:00", NVME_URI_LISTENER, "port"},
	{"tcp://h/" NQN, NVME_URI_LISTENER, "NQN"},
	{"tcp://h//1", 0, "NQN"},
	{"tcp://h/" NAME_224, 0, "NQN"},
	{"tcp://h/disk%1b", 0, "NQN"},
	{"tcp://h/testnqn/one", 0, "NSID"},
	{"tcp://h/nqn.2020-12.org.example:a%2", 0, "NQN"},
	{"tcp://h/nqn.2020-12.org.example:a%", 0, "NQN"},
	{"tcp://h/nqn.2020-12.org.example:a%zz", 0, "NQN"},
	{"tcp://h/nqn.2020-12.org.example:a%00", 0, "NQN"},
	{"tcp://h/nqn.2020-12.org.example:a%0a", 0, "NQN"},
	{"tcp://h/nqn.2020-12.org.example:a%ff", 0, "NQN"},
	{"tcp://h/" NQN "/", 0, "NSID"},
	{"tcp://h/" NQN "/0", 0, "NSID"},
	{"tcp://h/" NQN "/01", 0, "NSID"},
	{"tcp://h/" NQN "/1/", 0, "NSID"},
	{"tcp://h/" NQN "/4294967295", 0, "NSID"},
	{"tcp://h/" NQN "/4294967296", 0, "NSID"},
	{"tcp://h/" NQN "/one", 0, "NSID"},
	{"tcp://h?", 0, "option"},
	{"tcp://h?a", 0, "option"},
	{"tcp://h?=b", 0, "option"},
	{"tcp://h?a=b&", 0, "option"},
	{"tcp://h?a=b&&c=d", 0, "option"},
	{"tcp://h?a.b=c", 0, "option"},
	{"tcp://h?a=b&c=d&a=e", 0, "option a: is given twice"},
	{"tcp://h?a=%g0", 0, "option a"},
	{"tcp://h?a=%00", 0, "option a"},
	{"tcp://h?abcdefghijklmnopqrstuvwxyz012345=1", 0, "option"},
	{"tcp://h?a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&i=1&j=1&k=1&l=1&m=1&n=1&o=1&p=1&q=1", 0,
		"options: more than 16"},
};

static void lawful_addresses_are_taken_apart_and_put_together(void **state)
{
	static struct nvme_uri uri, again;
	static char buf[NVME_URI_TEXT_MAX];
	char why[256] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		if (nvme_uri_parse(good[i].text, good[i].flags, &uri, why, sizeof(why)))
			fail_msg("%s: %s", good[i].text, why);
		assert_int_equal(uri.trtype, good[i].trtype);
		assert_string_equal(uri.host, good[i].host);
		assert_int_equal(uri.ipv6, good[i].text[strcspn(good[i].text, "[")] == '[');
		assert_int_equal(uri.port, good[i].port);
		assert_string_equal(uri.nqn, good[i].nqn);
		assert_int_equal(uri.nsid, good[i].nsid);
		assert_int_equal(uri.nr_options, 0);

		assert_int_equal(
			nvme_uri_format(&uri, buf, sizeof(buf)), (int)strlen(good[i].again));
		assert_string_equal(buf, good[i].again);
		assert_int_equal(nvme_uri_parse(buf, good[i].flags, &again, why, sizeof(why)), 0);
		assert_memory_equal(&uri, &again, sizeof(uri));
	}
}

static void wrong_addresses_name_the_part(void **state)
{
	static struct nvme_uri uri;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char why[256] = "";

		if (nvme_uri_parse(bad[i].text, bad[i].flags, &uri, why, sizeof(why)) != -EINVAL)
			fail_msg("\"%s\" passed", bad[i].text);
		if (strncmp(why, bad[i].why, strlen(bad[i].why)) != 0)
			fail_msg("\"%s\" says \"%s\"", bad[i].text, why);
		for (const char *c = why; *c; c++)
			assert_in_range(*c, ' ', '~');
	}
}

static void options_are_decoded_in_order(void **state)
{
	static struct nvme_uri uri, again;
	char why[128], buf[128];

	(void)state;
	assert_int_equal(
		nvme_uri_parse("tcp://h/" NQN "/7?queues=4&data-digest=&x_1=a%26b=c%2f/?+%20", 0,
			&uri, why, sizeof(why)),
		0);
	assert_int_equal(uri.nsid, 7);
	assert_int_equal(uri.nr_options, 3);
	assert_string_equal(uri.option[0].key, "queues");
	assert_string_equal(uri.option[0].value, "4");
	assert_string_equal(uri.option[1].key, "data-digest");
	assert_string_equal(uri.option[1].value, "");
	assert_string_equal(uri.option[2].key, "x_1");
	assert_string_equal(uri.option[2].value, "a&b=c//?+ ");

	assert_true(nvme_uri_format(&uri, buf, sizeof(buf)) > 0);
	assert_string_equal(
		buf, "tcp://h:4420/" NQN "/7?queues=4&data-digest=&x_1=a%26b%3Dc%2F%2F%3F%2B%20");
	assert_int_equal(nvme_uri_parse(buf, 0, &again, why, sizeof(why)), 0);
	assert_memory_equal(&uri, &again, sizeof(uri));
}

static void listener_takes_options(void **state)
{
	static struct nvme_uri uri;
	char why[128];

	(void)state;
	assert_int_equal(
		nvme_uri_parse("tcp://[::]:0?tos=8", NVME_URI_LISTENER, &uri, why, sizeof(why)), 0);
	assert_int_equal(uri.nr_options, 1);
}

static void longest_parts_fit(void **state)
{
	static struct nvme_uri uri;
	static char text[2 * NVME_URI_TEXT_MAX], buf[NVME_URI_TEXT_MAX];
	char why[128];
	size_t at;

	(void)state;
	at = (size_t)sprintf(text, "rdma://");
	for (int i = 0; i < 126; i++)
		at += (size_t)sprintf(text + at, "a.");
	at += (size_t)sprintf(text + at, "a:65535/nqn.2020-12.org.example:");
	for (int i = 24; i < NVME_NQN_MAX; i++)
		at += (size_t)sprintf(text + at, "%%40");
	at += (size_t)sprintf(text + at, "/4294967294");
	for (int i = 0; i < NVME_URI_OPTIONS_MAX; i++) {
		at += (size_t)sprintf(text + at, "%c%031d=", i ? '&' : '?', i);
		for (int j = 0; j < NVME_URI_VALUE_MAX; j++)
			at += (size_t)sprintf(text + at, "%%40");
	}
	if (nvme_uri_parse(text, 0, &uri, why, sizeof(why)))
		fail_msg("%s", why);
	assert_int_equal(nvme_uri_format(&uri, buf, sizeof(buf)), (int)at);
	assert_string_equal(buf, text);

	strcat(text, "%40");
	assert_int_equal(nvme_uri_parse(text, 0, &uri, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "255"));
}

static void short_buffers_are_not_overrun(void **state)
{
	static struct nvme_uri uri;
	char why[9] = "12345678", buf[16];

	(void)state;
	assert_int_equal(nvme_uri_parse("tcp://h:x", 0, &uri, NULL, 0), -EINVAL);
	assert_int_equal(nvme_uri_parse("tcp://h:x", 0, &uri, why, 8), -EINVAL);
	assert_string_equal(why, "port \"x");
	assert_int_equal(nvme_uri_parse("tcp://h", 0, &uri, why, sizeof(why)), 0);
	assert_int_equal(nvme_uri_format(&uri, buf, 13), 12);
	assert_int_equal(nvme_uri_format(&uri, buf, 12), -ENOSPC);
	assert_int_equal(nvme_uri_format(&uri, buf, 0), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lawful_addresses_are_taken_apart_and_put_together),
		cmocka_unit_test(wrong_addresses_name_the_part),
		cmocka_unit_test(options_are_decoded_in_order),
		cmocka_unit_test(listener_takes_options),
		cmocka_unit_test(longest_parts_fit),
		cmocka_unit_test(short_buffers_are_not_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
