/* SPDX-License-Identifier: MIT */
/*
 * TCP sockets as both sides want them: created, listening, accepted, tuned, named. Knows no PDU and
 * no loop; whoever gets a descriptor closes it.
 */
#ifndef HAUL_LINK_SOCK_H
#define HAUL_LINK_SOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/base/compiler.h"

/* How long a peer may leave data or probes unacknowledged until the connection counts as dead. A
 * pulled cable is noticed after this, with I/O or without. */
#define SOCK_DEAD_PEER_MS 30000

/* How the kernel and the network are to treat what is sent. 0 is what they do by themselves. */
struct sock_traffic {
	uint8_t tos;	  /* IP_TOS, IPV6_TCLASS */
	uint8_t priority; /* SO_PRIORITY: more than SOCK_MAX_PRIORITY is for CAP_NET_ADMIN */
};
#define SOCK_MAX_PRIORITY 6

/*
 * A listening socket at *ADDRESS, into which the real port number is put. [::] takes IPv4 hosts
 * too, unless another listener has the IPv4 port already (then *RET_V6ONLY).
 */
int sock_listen(struct sockaddr_storage *address, int *ret_fd, bool *ret_v6only) must_check;
/* The next host in line, tuned; -EAGAIN when there is none. */
int sock_accept(int listen_fd, const struct sock_traffic *traffic,
	struct sockaddr_storage *ret_peer, int *ret_fd) must_check;
/* A tuned socket for an outgoing connection. */
int sock_create(int family, const struct sock_traffic *traffic, int *ret_fd) must_check;
/* Both ends of a connected socket; an end that cannot be told is zeroed. */
void sock_names(int fd, struct sockaddr_storage *ret_local, struct sockaddr_storage *ret_peer);

#endif
