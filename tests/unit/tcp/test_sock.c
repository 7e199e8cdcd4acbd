/* SPDX-License-Identifier: MIT */
/*
 * TCP sockets: how what is sent on them is to be treated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "proto/link/address.h"
#include "proto/link/sock.h"

static int option_of(int fd, int level, int name)
{
	socklen_t size = sizeof(int);
	int value = -1;

	assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
	return value;
}

/* The accepted end of a connection to a listener at AT, from a host that uses ADDRESS. */
static int accepted(const char *at, const char *address, const struct sock_traffic *traffic)
{
	const struct sock_traffic plain = {0};
	struct sockaddr_storage listener, host, peer;
	int listen_fd, host_fd, fd = -1;
	bool v6only;

	assert_int_equal(address_resolve(at, 0, 0, &listener), 0);
	assert_int_equal(sock_listen(&listener, &listen_fd, &v6only), 0);
	assert_int_equal(address_resolve(address, address_port(&listener), 0, &host), 0);
	assert_int_equal(sock_create(host.ss_family, &plain, &host_fd), 0);
	(void)!connect(host_fd, (struct sockaddr *)&host, address_len(host.ss_family));
	assert_int_equal(sock_accept(listen_fd, traffic, &peer, &fd), 0);
	close(host_fd);
	close(listen_fd);
	return fd;
}

static void what_is_sent_has_type_of_service_and_priority(void **state)
{
	static const struct {
		const char *at, *from;
		struct sock_traffic traffic;
		int tos, priority;
	} cases[] = {
		{"127.0.0.1", "127.0.0.1", {0}, 0, 0},
		{"127.0.0.1", "127.0.0.1", {.tos = 0x20}, 0x20, -1},
		{"127.0.0.1", "127.0.0.1", {.priority = SOCK_MAX_PRIORITY}, 0, SOCK_MAX_PRIORITY},
		{"127.0.0.1", "127.0.0.1", {.tos = 0x08, .priority = 5}, 0x08, 5},
		{"::", "127.0.0.1", {.tos = 0x48, .priority = 3}, 0x48, 3},
		{"::1", "::1", {.tos = 0x48, .priority = 3}, -1, 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = accepted(cases[i].at, cases[i].from, &cases[i].traffic);

		if (cases[i].tos >= 0)
			assert_int_equal(option_of(fd, IPPROTO_IP, IP_TOS), cases[i].tos);
		if (strchr(cases[i].at, ':'))
			assert_int_equal(
				option_of(fd, IPPROTO_IPV6, IPV6_TCLASS), cases[i].traffic.tos);
		if (cases[i].priority >= 0)
			assert_int_equal(option_of(fd, SOL_SOCKET, SO_PRIORITY), cases[i].priority);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sent_has_type_of_service_and_priority),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
