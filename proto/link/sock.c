/* SPDX-License-Identifier: MIT */
/*
 * TCP sockets as both sides want them. All options that have an effect on latency or on noticing a
 * dead peer are set here and nowhere else.
 */
#include "proto/link/sock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "proto/link/address.h"

/* Hosts connect all their queues at once, and every core is a queue. */
#define SOCK_BACKLOG 1024

/* Probes start after a third of SOCK_DEAD_PEER_MS of silence. */
#define SOCK_KEEPALIVE_IDLE_S	  10
#define SOCK_KEEPALIVE_INTERVAL_S 5
#define SOCK_KEEPALIVE_PROBES	  4

static int sock_set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

/* Only make packets better treated: no reason to refuse. */
static void sock_mark(int fd, int family, const struct sock_traffic *traffic)
{
	/* A dual-stack socket takes both. */
	if (traffic->tos)
		(void)sock_set(fd, IPPROTO_IP, IP_TOS, traffic->tos);
	if (traffic->tos && family == AF_INET6)
		(void)sock_set(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic->tos);
	/* The type of service has set the priority, too (ip(7)). */
	if (traffic->priority)
		(void)sock_set(fd, SOL_SOCKET, SO_PRIORITY, traffic->priority);
}

/*
 * Responses must not wait for more to come: what belongs together is gathered into one send by the
 * stream, which knows; Nagle's algorithm guesses.
 */
static int sock_tune(int fd, int family, const struct sock_traffic *traffic)
{
	int ret = sock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);

	if (ret)
		return ret;
	/* Only make a dead peer noticed sooner: no reason to refuse. */
	(void)sock_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	(void)sock_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, SOCK_KEEPALIVE_IDLE_S);
	(void)sock_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, SOCK_KEEPALIVE_INTERVAL_S);
	(void)sock_set(fd, IPPROTO_TCP, TCP_KEEPCNT, SOCK_KEEPALIVE_PROBES);
	(void)sock_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SOCK_DEAD_PEER_MS);
	sock_mark(fd, family, traffic);
	return 0;
}

int sock_create(int family, const struct sock_traffic *traffic, int *ret_fd)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int ret;

	if (fd < 0)
		return -errno;
	ret = sock_tune(fd, family, traffic);
	if (ret) {
		close(fd);
		return ret;
	}
	*ret_fd = fd;
	return 0;
}

static int sock_listen_as(const struct sockaddr_storage *address, bool v6only, int *ret_fd)
{
	int fd =
		socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int ret;

	if (fd < 0)
		return -errno;
	ret = sock_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!ret && address->ss_family == AF_INET6)
		ret = sock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only);
	if (!ret && bind(fd, (const struct sockaddr *)address, address_len(address->ss_family)))
		ret = -errno;
	if (!ret && listen(fd, SOCK_BACKLOG))
		ret = -errno;
	if (ret) {
		close(fd);
		return ret;
	}
	*ret_fd = fd;
	return 0;
}

int sock_listen(struct sockaddr_storage *address, int *ret_fd, bool *ret_v6only)
{
	socklen_t len = sizeof(*address);
	bool v6only = false;
	int fd = -1, ret;

	if (!address_len(address->ss_family))
		return -EAFNOSUPPORT;
	ret = sock_listen_as(address, false, &fd);
	if (ret == -EADDRINUSE && address->ss_family == AF_INET6 && address_is_wildcard(address)) {
		v6only = true;
		ret = sock_listen_as(address, true, &fd);
	}
	if (ret)
		return ret;
	if (getsockname(fd, (struct sockaddr *)address, &len)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	*ret_fd = fd;
	*ret_v6only = v6only;
	return 0;
}

int sock_accept(int listen_fd, const struct sock_traffic *traffic,
	struct sockaddr_storage *ret_peer, int *ret_fd)
{
	struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof(peer);
	int fd = accept4(listen_fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = sock_tune(fd, peer.ss_family, traffic);
	if (ret) {
		close(fd);
		return ret;
	}
	*ret_peer = address_plain(&peer);
	*ret_fd = fd;
	return 0;
}

void sock_names(int fd, struct sockaddr_storage *ret_local, struct sockaddr_storage *ret_peer)
{
	socklen_t len = sizeof(*ret_local);

	memset(ret_local, 0, sizeof(*ret_local));
	memset(ret_peer, 0, sizeof(*ret_peer));
	(void)getsockname(fd, (struct sockaddr *)ret_local, &len);
	len = sizeof(*ret_peer);
	(void)getpeername(fd, (struct sockaddr *)ret_peer, &len);
	*ret_local = address_plain(ret_local);
	*ret_peer = address_plain(ret_peer);
}
