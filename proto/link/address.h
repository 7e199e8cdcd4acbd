/* SPDX-License-Identifier: MIT */
/*
 * Socket addresses, the same for both sides and all transports: looked up, and as text. IPv4
 * addresses that come mapped into IPv6 are shown as IPv4.
 */
#ifndef HAUL_LINK_ADDRESS_H
#define HAUL_LINK_ADDRESS_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* An IPv6 address with its scope's name. */
#define ADDRESS_HOST_TEXT (INET6_ADDRSTRLEN + 17)

/* The first address of HOST, a number or a name; FLAGS as getaddrinfo()'s. May block, unless they
 * have AI_NUMERICHOST. 0, or an error of getaddrinfo(). */
int address_resolve(const char *host, uint16_t port, int flags, struct sockaddr_storage *ret);

/* Bytes of the address of FAMILY (AF_INET or AF_INET6); 0 for any other. */
socklen_t address_len(int family);

/* ADDRESS without an IPv4 mapping, so that one host has one address however it came. */
struct sockaddr_storage address_plain(const struct sockaddr_storage *address);
/* The host's number without brackets; "?" for an address of another family. */
void address_host(const struct sockaddr_storage *address, char ret_text[ADDRESS_HOST_TEXT]);
uint16_t address_port(const struct sockaddr_storage *address);
bool address_is_wildcard(const struct sockaddr_storage *address);

/* "127.0.0.1:4420", "[fe80::1%eth0]:4420". */
#define ADDRESS_TEXT (ADDRESS_HOST_TEXT + 8)
void address_format(const struct sockaddr_storage *address, char ret_text[ADDRESS_TEXT]);

#endif
