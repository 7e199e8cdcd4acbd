/* SPDX-License-Identifier: MIT */
/*
 * Binding, listening, and connect requests on their way to the program.
 * A bound address is an abstract Unix name; a wildcard is one name a family, tried after the exact
 * address.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_MAX_BACKLOG 1024
#define LISTEN_FIRST_PORT  32768u
#define LISTEN_NR_PORTS	   28000u
#define LISTEN_PORT_TRIES  200

/* The column St of /proc/net/unix: bound or listening; a stream it accepted bears its name, too. */
#define LISTEN_UNCONNECTED 1u

/* Is any name in use that begins like this? A wildcard must not hide an exact address, nor the
 * reverse. */
static bool listen_name_used(const char *prefix)
{
	char line[512];
	struct sockaddr_un un;
	bool used = false;
	FILE *f;

	sr_address(&un, "cm", prefix);
	f = fopen("/proc/net/unix", "re");
	while (f && !used && fgets(line, sizeof(line), f)) {
		const char *name = strstr(line, " @");
		unsigned int st;

		if (!name || sscanf(line, "%*s %*s %*s %*s %*s %x", &st) != 1 ||
			st != LISTEN_UNCONNECTED)
			continue;
		used = !strncmp(name + 2, un.sun_path + 1, strlen(un.sun_path + 1));
	}
	if (f)
		fclose(f);
	return used;
}

static int listen_add_name(struct cm_id *id, const char *name)
{
	struct sockaddr_un un;
	uint32_t len = sr_address(&un, "cm", name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return errno;
	if (bind(fd, (struct sockaddr *)&un, len)) {
		int ret = errno;

		close(fd);
		return ret;
	}
	id->listeners[id->nr_listeners++].fd = fd;
	return 0;
}

/* The kernel's rule (cma_check_port): equal addresses clash, and a wildcard clashes with any of its
 * family. */
static bool listen_port_free(struct cm_id *id, const struct sockaddr *addr, uint16_t port)
{
	char prefix[64];

	if (id->reuse_addr)
		return true;
	if (!id->bound_any)
		cm_addr_name(addr, true, port, prefix, sizeof(prefix));
	else if (addr->sa_family == AF_INET)
		snprintf(prefix, sizeof(prefix), "%u/4/", port);
	else
		snprintf(prefix, sizeof(prefix), id->af_only ? "%u/6/" : "%u/", port);
	return !listen_name_used(prefix);
}

static int listen_bind_port(struct cm_id *id, const struct sockaddr *addr, uint16_t port)
{
	static const struct sockaddr_in v4 = {.sin_family = AF_INET};
	char name[80];
	int ret;

	if (!listen_port_free(id, addr, port))
		return EADDRNOTAVAIL;
	cm_addr_name(addr, id->bound_any, port, name, sizeof(name));
	ret = listen_add_name(id, name);
	if (!ret && id->bound_any && addr->sa_family == AF_INET6 && !id->af_only) {
		cm_addr_name((const struct sockaddr *)&v4, true, port, name, sizeof(name));
		ret = listen_add_name(id, name);
	}
	if (ret)
		cm_listen_close(id);
	return ret == EADDRINUSE && id->bound_any ? EADDRNOTAVAIL : ret;
}

static int listen_bind_any_port(struct cm_id *id, const struct sockaddr *addr, uint16_t *ret_port)
{
	for (int i = 0; i < LISTEN_PORT_TRIES; i++) {
		uint32_t r = 0;
		int ret;

		if (getrandom(&r, sizeof(r), 0) != sizeof(r))
			r = sr_random();
		*ret_port = (uint16_t)(LISTEN_FIRST_PORT + r % LISTEN_NR_PORTS);
		ret = listen_bind_port(id, addr, *ret_port);
		if (ret != EADDRINUSE && ret != EADDRNOTAVAIL)
			return ret;
	}
	return EADDRNOTAVAIL;
}

int cm_bind(struct cm_id *id, const struct sockaddr *addr)
{
	struct sockaddr *own = &id->id.route.addr.src_addr;
	uint16_t port;
	int ret;

	if (!cm_addr_known_family(addr))
		return EAFNOSUPPORT;
	if (!cm_addr_is_local(addr))
		return ENODEV;
	port = cm_addr_port(addr);
	id->bound_any = cm_addr_is_any(addr);
	ret = port ? listen_bind_port(id, addr, port) : listen_bind_any_port(id, addr, &port);
	if (ret)
		return ret;
	memcpy(own, addr, cm_addr_len(addr));
	cm_addr_set_port(own, port);
	if (!id->bound_any)
		id->device = cm_addr_device(addr);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *ibid, struct sockaddr *addr)
{
	struct cm_id *id = cm_of(ibid);
	int ret = EINVAL;

	sr_lock();
	if (id->state == CM_IDLE)
		ret = cm_bind(id, addr);
	if (!ret) {
		id->state = CM_BOUND;
		if (id->device >= 0) {
			ibid->verbs = cm_device_context(id->device);
			ibid->port_num = 1;
		}
	}
	sr_unlock();
	return cm_errno(ret);
}

void cm_listen_close(struct cm_id *id)
{
	for (int i = 0; i < id->nr_listeners; i++) {
		if (id->state == CM_LISTENING) {
			sr_source_close(&id->listeners[i]);
		} else {
			close(id->listeners[i].fd);
			id->listeners[i].fd = -1;
		}
	}
	id->nr_listeners = 0;
}

static void request_closed(struct sr_conn *conn)
{
	struct cm_event *event = conn->cm;

	/* One that the program can already see stays; accepting it will fail. */
	if (event->queued)
		return;
	TAILQ_REMOVE(&event->owner->requests, event, link);
	event->conn = NULL;
	sr_conn_detach_cm(conn);
	free(event);
}

static void request_refuse(struct cm_event *event)
{
	struct sr_conn *conn = event->conn;

	TAILQ_REMOVE(&event->owner->requests, event, link);
	free(event);
	cm_reject_conn(conn, CM_REJ_CONSUMER_DEFINED);
}

static void request_message(struct sr_conn *conn, const struct sr_hdr *hdr, const void *payload)
{
	static uint32_t rejects;
	struct cm_event *event = conn->cm;
	struct cm_id *id = event->owner;
	struct sr_cm_body body;

	if (event->queued || hdr->type != SR_MSG_CM_REQ || hdr->len != sizeof(body))
		return;
	memcpy(&body, payload, sizeof(body));
	if (sr_fault_hit(sr_faults.reject_at, &rejects) || id->pending >= id->backlog) {
		request_refuse(event);
		return;
	}
	id->pending++;
	TAILQ_REMOVE(&id->requests, event, link);
	conn->remote_qp_num = body.qp_num;
	cm_event_set_private(event, &body, CM_REQ_PRIVATE);
	/* Each side speaks of itself; the event speaks of the receiver. */
	event->ev.param.conn.responder_resources = body.initiator_depth;
	event->ev.param.conn.initiator_depth = body.responder_resources;
	event->ev.param.conn.flow_control = body.flow_control;
	event->ev.param.conn.retry_count = body.retry_count;
	event->ev.param.conn.rnr_retry_count = body.rnr_retry_count;
	event->ev.param.conn.srq = body.srq;
	event->ev.param.conn.qp_num = body.qp_num;
	cm_event_post(event);
}

static const struct sr_cm_ops request_ops = {
	.message = request_message,
	.closed = request_closed,
};

static void listen_accept(struct cm_id *id, int fd)
{
	struct sr_conn *conn = sr_conn_new(fd);
	struct cm_event *event;

	if (!conn)
		return;
	event = cm_event_new(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	event->conn = conn;
	conn->cm = event;
	conn->cm_ops = &request_ops;
	TAILQ_INSERT_TAIL(&id->requests, event, link);
	sr_conn_start(conn);
}

/* The sources are an array in the id, so the id is found by trying. */
static void listen_ready(struct sr_source *src, uint32_t events)
{
	(void)events;
	for (struct cm_id *id = cm_id_first(); id; id = LIST_NEXT(id, link)) {
		int fd;

		if (src < id->listeners || src >= id->listeners + CM_MAX_LISTENERS)
			continue;
		while (src->fd >= 0 &&
			(fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
			listen_accept(id, fd);
		return;
	}
}

static int listen_start(struct cm_id *id)
{
	static const struct sockaddr_in any = {.sin_family = AF_INET};
	int ret = 0;

	if (id->state == CM_IDLE)
		ret = cm_bind(id, (const struct sockaddr *)&any);
	else if (id->state != CM_BOUND)
		ret = EINVAL;
	if (ret)
		return ret;
	id->state = CM_LISTENING;
	for (int i = 0; i < id->nr_listeners; i++) {
		struct sr_source *src = &id->listeners[i];

		src->ready = listen_ready;
		if (listen(src->fd, LISTEN_MAX_BACKLOG) || sr_source_add(src, EPOLLIN))
			return errno;
	}
	return 0;
}

int rdma_listen(struct rdma_cm_id *ibid, int backlog)
{
	struct cm_id *id = cm_of(ibid);
	int ret = sr_fault_call(SR_CALL_LISTEN);

	if (ret)
		return cm_errno(ret);
	sr_lock();
	id->backlog = backlog > 0 && backlog < LISTEN_MAX_BACKLOG ? backlog : LISTEN_MAX_BACKLOG;
	ret = listen_start(id);
	sr_unlock();
	return cm_errno(ret);
}
