/* SPDX-License-Identifier: MIT */
/*
 * TCP sockets as both sides want them: created, listening, accepted, tuned, named. Knows no PDU and
 * no loop; whoever gets a descriptor closes it.
 */
#ifndef HAUL_LINK_SOCK_H
#define HAUL_LINK_SOCK_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/base/compiler.h"

/* How long a peer may leave data or probes unacknowledged until the connection counts as dead. A
 * pulled cable is noticed after this, with I/O or without. */
#define SOCK_DEAD_PEER_MS 30000

/* Bytes of the address of FAMILY (AF_INET or AF_INET6); 0 for any other. */
socklen_t sock_address_len(int family);
bool sock_is_wildcard(const struct sockaddr_storage *address);
/* ::ffff:a.b.c.d becomes a.b.c.d, so that one host has one address however it came. */
void sock_unmap(struct sockaddr_storage *address);

/* "192.0.2.1:4420", "[fe80::1%eth0]:4420"; never fails: "?" for what has no name. */
#define SOCK_TEXT_BYTES (NI_MAXHOST + NI_MAXSERV + 4)
const char *sock_text(const struct sockaddr_storage *address, char text[SOCK_TEXT_BYTES]);

/*
 * A listening socket at *ADDRESS, into which the real port number is put. [::] takes IPv4 hosts
 * too, unless another listener has the IPv4 port already.
 */
int sock_listen(struct sockaddr_storage *address, int *ret_fd) must_check;
/* The next host in line, tuned; -EAGAIN when there is none. */
int sock_accept(int listen_fd, uint8_t tos, int *ret_fd) must_check;
/* A tuned socket for an outgoing connection. */
int sock_create(int family, uint8_t tos, int *ret_fd) must_check;
/* Both ends of a connected socket; an end that cannot be told is zeroed. */
void sock_names(int fd, struct sockaddr_storage *ret_local, struct sockaddr_storage *ret_peer);

#endif
