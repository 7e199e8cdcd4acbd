/* SPDX-License-Identifier: MIT */
/*
 * Addresses: which are ours, which device has them, and under what name a listener can be found.
 */
#include "tests/softrdma/cm.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

static const struct sockaddr_in *addr_v4(const struct sockaddr *addr)
{
	return (const struct sockaddr_in *)addr;
}

static const struct sockaddr_in6 *addr_v6(const struct sockaddr *addr)
{
	return (const struct sockaddr_in6 *)addr;
}

bool cm_addr_known_family(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

socklen_t cm_addr_len(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in);
}

/* 16 bytes in both families: IPv4 as mapped. */
void cm_addr_to_body(const struct sockaddr *addr, uint8_t to[16], uint16_t *port)
{
	*port = cm_addr_port(addr);
	if (addr->sa_family == AF_INET6) {
		memcpy(to, &addr_v6(addr)->sin6_addr, 16);
		return;
	}
	memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	memcpy(to + 12, &addr_v4(addr)->sin_addr, 4);
}

void cm_addr_from_body(const uint8_t from[16], uint16_t port, int family, struct sockaddr *addr)
{
	memset(addr, 0, sizeof(struct sockaddr_in6));
	addr->sa_family = (sa_family_t)family;
	if (family == AF_INET6)
		memcpy(&((struct sockaddr_in6 *)addr)->sin6_addr, from, 16);
	else
		memcpy(&((struct sockaddr_in *)addr)->sin_addr, from + 12, 4);
	cm_addr_set_port(addr, port);
}

uint16_t cm_addr_port(const struct sockaddr *addr)
{
	return ntohs(
		addr->sa_family == AF_INET6 ? addr_v6(addr)->sin6_port : addr_v4(addr)->sin_port);
}

void cm_addr_set_port(struct sockaddr *addr, uint16_t port)
{
	if (addr->sa_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)addr)->sin_port = htons(port);
}

static bool addr_v4_bytes(const struct sockaddr *addr, uint8_t ret_v4[4])
{
	uint8_t all[16];
	uint16_t port;

	cm_addr_to_body(addr, all, &port);
	memcpy(ret_v4, all + 12, 4);
	return addr->sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&addr_v6(addr)->sin6_addr);
}

bool cm_addr_is_any(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&addr_v6(addr)->sin6_addr);
	return addr_v4(addr)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool addr_is_loopback(const struct sockaddr *addr)
{
	uint8_t v4[4];

	if (addr_v4_bytes(addr, v4))
		return v4[0] == 127;
	return IN6_IS_ADDR_LOOPBACK(&addr_v6(addr)->sin6_addr);
}

static bool addr_same(const struct sockaddr *a, const struct sockaddr *b)
{
	uint8_t ba[16], bb[16];
	uint16_t port;

	cm_addr_to_body(a, ba, &port);
	cm_addr_to_body(b, bb, &port);
	return !memcmp(ba, bb, sizeof(ba));
}

bool cm_addr_is_local(const struct sockaddr *addr)
{
	struct ifaddrs *list, *i;
	bool found = false;

	if (addr_is_loopback(addr) || cm_addr_is_any(addr))
		return true;
	if (getifaddrs(&list))
		return false;
	for (i = list; i && !found; i = i->ifa_next)
		found = i->ifa_addr && cm_addr_known_family(i->ifa_addr) &&
			addr_same(i->ifa_addr, addr);
	freeifaddrs(list);
	return found;
}

/* The documentation networks (RFC 5737, RFC 3849) resolve, but nobody answers a request there. */
bool cm_addr_is_black_hole(const struct sockaddr *addr)
{
	static const uint8_t v6[4] = {0x20, 0x01, 0x0d, 0xb8};
	uint8_t v4[4];

	if (addr_v4_bytes(addr, v4))
		return v4[0] == 192 && v4[1] == 0 && v4[2] == 2;
	return !memcmp(&addr_v6(addr)->sin6_addr, v6, sizeof(v6));
}

/* 127.0.0.N+1 is on device N; all others are on the first. */
int cm_addr_device(const struct sockaddr *addr)
{
	uint8_t v4[4];

	if (addr_v4_bytes(addr, v4) && v4[0] == 127 && v4[3] > 0 && v4[3] <= sr_device_count())
		return v4[3] - 1;
	return 0;
}

/* As routing does: loopback talks to loopback, an own address to itself. Keeps the port of src. */
void cm_addr_default_source(const struct sockaddr *dst, struct sockaddr *src)
{
	uint16_t port = src->sa_family ? cm_addr_port(src) : 0;

	memcpy(src, dst, cm_addr_len(dst));
	if (dst->sa_family == AF_INET && addr_is_loopback(dst) && cm_addr_device(dst) == 0)
		((struct sockaddr_in *)src)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (dst->sa_family == AF_INET && cm_addr_is_black_hole(dst))
		((struct sockaddr_in *)src)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	cm_addr_set_port(src, port);
}

void cm_addr_name(const struct sockaddr *addr, bool any, uint16_t port, char *name, size_t size)
{
	char text[INET6_ADDRSTRLEN];
	uint8_t v4[4];
	bool is_v4 = addr_v4_bytes(addr, v4);

	if (any)
		snprintf(text, sizeof(text), "any");
	else if (is_v4)
		inet_ntop(AF_INET, v4, text, sizeof(text));
	else
		inet_ntop(AF_INET6, &addr_v6(addr)->sin6_addr, text, sizeof(text));
	snprintf(name, size, "%u/%c/%s", port, is_v4 ? '4' : '6', text);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(cm_addr_port(&id->route.addr.src_addr));
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return htons(cm_addr_port(&id->route.addr.dst_addr));
}
