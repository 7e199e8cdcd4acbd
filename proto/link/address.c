/* SPDX-License-Identifier: MIT */
/*
 * Socket addresses: look-up and text.
 */
#include "proto/link/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

int address_resolve(const char *host, uint16_t port, int flags, struct sockaddr_storage *ret)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = flags | AI_NUMERICSERV};
	struct addrinfo *found;
	char service[8];
	int error;

	snprintf(service, sizeof(service), "%u", port);
	error = getaddrinfo(host, service, &hints, &found);
	if (error)
		return error;
	/* The system has sorted them by what it would use (RFC 6724). */
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

socklen_t address_len(int family)
{
	switch (family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

static const struct sockaddr_in *address_in(const struct sockaddr_storage *address)
{
	return (const struct sockaddr_in *)address;
}

static const struct sockaddr_in6 *address_in6(const struct sockaddr_storage *address)
{
	return (const struct sockaddr_in6 *)address;
}

struct sockaddr_storage address_plain(const struct sockaddr_storage *address)
{
	struct sockaddr_storage plain = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&plain;

	if (address->ss_family != AF_INET6 ||
		!IN6_IS_ADDR_V4MAPPED(&address_in6(address)->sin6_addr))
		return *address;
	in->sin_family = AF_INET;
	in->sin_port = address_in6(address)->sin6_port;
	memcpy(&in->sin_addr, &address_in6(address)->sin6_addr.s6_addr[12], sizeof(in->sin_addr));
	return plain;
}

void address_host(const struct sockaddr_storage *address, char ret_text[ADDRESS_HOST_TEXT])
{
	struct sockaddr_storage plain = address_plain(address);
	char scope[IF_NAMESIZE];
	size_t length;

	snprintf(ret_text, ADDRESS_HOST_TEXT, "?");
	if (plain.ss_family == AF_INET)
		inet_ntop(AF_INET, &address_in(&plain)->sin_addr, ret_text, ADDRESS_HOST_TEXT);
	if (plain.ss_family != AF_INET6)
		return;
	inet_ntop(AF_INET6, &address_in6(&plain)->sin6_addr, ret_text, ADDRESS_HOST_TEXT);
	length = strlen(ret_text);
	if (address_in6(&plain)->sin6_scope_id &&
		if_indextoname(address_in6(&plain)->sin6_scope_id, scope))
		snprintf(ret_text + length, ADDRESS_HOST_TEXT - length, "%%%s", scope);
}

uint16_t address_port(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ntohs(address_in(address)->sin_port);
	return address->ss_family == AF_INET6 ? ntohs(address_in6(address)->sin6_port) : 0;
}

bool address_is_wildcard(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return address_in(address)->sin_addr.s_addr == htonl(INADDR_ANY);
	return address->ss_family == AF_INET6 &&
	       IN6_IS_ADDR_UNSPECIFIED(&address_in6(address)->sin6_addr);
}

void address_format(const struct sockaddr_storage *address, char ret_text[ADDRESS_TEXT])
{
	char host[ADDRESS_HOST_TEXT];
	unsigned port = address_port(address);

	address_host(address, host);
	if (strchr(host, ':'))
		snprintf(ret_text, ADDRESS_TEXT, "[%s]:%u", host, port);
	else
		snprintf(ret_text, ADDRESS_TEXT, "%s:%u", host, port);
}
