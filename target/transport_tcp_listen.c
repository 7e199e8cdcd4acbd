/* SPDX-License-Identifier: MIT */
/*
 * Listeners of the TCP transport: accept what comes and hand it over. When descriptors run out the
 * listener rests for a moment, for its socket stays readable and the loop would spin.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "proto/link/address.h"
#include "proto/link/sock.h"
#include "target/reactor.h"
#include "target/transport_tcp.h"

/* At once; others of the turn want to work, too. */
#define TCP_ACCEPT_BUDGET  64
#define TCP_ACCEPT_REST_NS 100000000ull

struct transport_port {
	struct port *port; /* NULL after unlisten */
	struct loop *loop;
	int fd;
	struct loop_poll poll;
	struct loop_timer rest;
	struct log_limit log;
};

static void tcp_port_ready(struct loop_poll *poll, uint32_t events);

/* The poll's memory is free again: by unlisten, or because the listener rests. */
static void tcp_port_deleted(struct loop_poll *poll)
{
	struct transport_port *tp = container_of(poll, struct transport_port, poll);

	if (!tp->port) {
		loop_timers_unreserve(tp->loop, 1);
		free(tp);
		return;
	}
	loop_timer_set(tp->loop, &tp->rest, loop_now_ns(tp->loop) + TCP_ACCEPT_REST_NS);
}

static void tcp_port_rest(struct transport_port *tp, int error)
{
	log_line_limited(&tp->log, loop_now_ns(tp->loop), LOG_LEVEL_WARNING,
		"tcp: cannot accept a connection: %s", strerror(-error));
	loop_poll_del(tp->loop, &tp->poll, tcp_port_deleted);
}

static void tcp_port_rested(struct loop_timer *timer)
{
	struct transport_port *tp = container_of(timer, struct transport_port, rest);

	if (loop_poll_add(tp->loop, &tp->poll, tp->fd, POLLIN))
		loop_timer_set(tp->loop, &tp->rest, loop_now_ns(tp->loop) + TCP_ACCEPT_REST_NS);
}

static void tcp_port_hand_over(
	struct transport_port *tp, const struct sockaddr_storage *peer, int fd)
{
	struct tcp_handover *handover = calloc(1, sizeof(*handover));

	if (!handover) {
		close(fd);
		return;
	}
	handover->base.peer = *peer;
	handover->fd = fd;
	conn_accept(tp->port, &handover->base);
}

static void tcp_port_ready(struct loop_poll *poll, uint32_t events)
{
	struct transport_port *tp = container_of(poll, struct transport_port, poll);
	const struct sock_traffic traffic = {
		.tos = (uint8_t)tp->port->option[TCP_OPTION_TOS],
		.priority = (uint8_t)tp->port->option[TCP_OPTION_PRIORITY],
	};

	(void)events;
	for (uint32_t i = 0; i < TCP_ACCEPT_BUDGET && tp->port; i++) {
		struct sockaddr_storage peer;
		int fd, ret = sock_accept(tp->fd, &traffic, &peer, &fd);

		if (!ret) {
			tcp_port_hand_over(tp, &peer, fd);
			continue;
		}
		if (ret == -EMFILE || ret == -ENFILE || ret == -ENOBUFS || ret == -ENOMEM)
			tcp_port_rest(tp, ret);
		/* Any other error is that of one connection that died in the queue (accept(2)); the
		 * poll calls again when there are more. */
		return;
	}
}

int tcp_listen(struct port *port, char *why, size_t why_size)
{
	struct transport_port *tp = calloc(1, sizeof(*tp));
	char text[ADDRESS_TEXT];
	int ret = -ENOMEM;

	if (!tp)
		goto tell;
	tp->port = port;
	tp->loop = port->reactor->loop;
	loop_timer_init(&tp->rest, tcp_port_rested);
	ret = loop_timers_reserve(tp->loop, 1);
	if (ret)
		goto free_port;
	ret = sock_listen(&port->address, &tp->fd, &port->ipv6_only);
	if (ret)
		goto unreserve_timer;
	tp->poll.ready = tcp_port_ready;
	ret = loop_poll_add(tp->loop, &tp->poll, tp->fd, POLLIN);
	if (ret)
		goto close_fd;
	port->transport = tp;
	return 0;

close_fd:
	close(tp->fd);
unreserve_timer:
	loop_timers_unreserve(tp->loop, 1);
free_port:
	free(tp);
tell:
	address_format(&port->address, text);
	snprintf(why, why_size, "cannot listen at tcp://%s: %s", text, strerror(-ret));
	return ret;
}

void tcp_unlisten(struct port *port)
{
	struct transport_port *tp = port->transport;
	bool resting;

	if (!tp)
		return;
	port->transport = NULL;
	tp->port = NULL;
	resting = loop_timer_is_set(&tp->rest);
	loop_timer_cancel(tp->loop, &tp->rest);
	close(tp->fd);
	if (resting)
		tcp_port_deleted(&tp->poll);
	else
		loop_poll_del(tp->loop, &tp->poll, tcp_port_deleted);
}

void tcp_refuse(struct transport_handover *handover)
{
	struct tcp_handover *th = tcp_handover(handover);

	close(th->fd);
	free(th);
}
