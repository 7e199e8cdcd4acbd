/* SPDX-License-Identifier: MIT */
/*
 * Socket addresses as text, and from it.
 */
#include "tests/unit/base/engines.h"

#include <netdb.h>

#include "proto/link/address.h"

static void addresses_become_text_and_come_from_it(void **state)
{
	static const struct {
		const char *host; /* as given */
		const char *shown;
		const char *text; /* with the port */
		bool is_wildcard;
	} cases[] = {
		{"127.0.0.1", "127.0.0.1", "127.0.0.1:4420", false},
		{"0.0.0.0", "0.0.0.0", "0.0.0.0:4420", true},
		{"::", "::", "[::]:4420", true},
		{"::1", "::1", "[::1]:4420", false},
		{"::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1:4420", false},
		{"2001:db8::1", "2001:db8::1", "[2001:db8::1]:4420", false},
		{"fe80::1%lo", "fe80::1%lo", "[fe80::1%lo]:4420", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char host[ADDRESS_HOST_TEXT], text[ADDRESS_TEXT];
		struct sockaddr_storage address, plain;

		assert_int_equal(address_resolve(cases[i].host, 4420, AI_NUMERICHOST, &address), 0);
		assert_int_not_equal(address_len(address.ss_family), 0);
		assert_int_equal(address_is_wildcard(&address), cases[i].is_wildcard);
		assert_int_equal(address_port(&address), 4420);
		address_host(&address, host);
		assert_string_equal(host, cases[i].shown);
		address_format(&address, text);
		assert_string_equal(text, cases[i].text);
		plain = address_plain(&address);
		assert_int_equal(plain.ss_family, strchr(cases[i].shown, ':') ? AF_INET6 : AF_INET);
		assert_int_equal(address_port(&plain), 4420);
	}
}

static void what_is_no_address_is_told(void **state)
{
	const struct sockaddr_storage local = {.ss_family = AF_UNIX};
	struct sockaddr_storage address;
	char text[ADDRESS_TEXT];

	(void)state;
	assert_int_equal(address_resolve("example.org", 1, AI_NUMERICHOST, &address), EAI_NONAME);
	address_format(&local, text);
	assert_string_equal(text, "?:0");
	assert_int_equal(address_len(AF_UNIX), 0);
	assert_false(address_is_wildcard(&local));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_become_text_and_come_from_it),
		cmocka_unit_test(what_is_no_address_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
