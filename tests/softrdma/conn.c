/* SPDX-License-Identifier: MIT */
/*
 * Framing on a non-blocking Unix stream. Outgoing frames are copied to a bounded buffer, so no user
 * memory is touched after a call that was to make it the user's again (deregistration,
 * destruction).
 */
#include "tests/softrdma/conn.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/softrdma/softrdma.h"

/* Data may fill the buffer up to CONN_DATA; the rest is for acknowledgements and the CM. */
#define CONN_DATA 131072u
#define CONN_OUT  (CONN_DATA + 16384u)
#define CONN_IN	  262144u

static LIST_HEAD(, sr_conn) conns = LIST_HEAD_INITIALIZER(conns);

/* Only the engine's thread reads sockets, hence one buffer for all of them. */
static uint8_t conn_scratch[CONN_IN + SR_SEGMENT + sizeof(struct sr_hdr)];

uint32_t sr_address(struct sockaddr_un *un, const char *kind, const char *name)
{
	const char *fabric = getenv("SOFTRDMA_DIR");
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "softrdma/%s/%s/%s",
		fabric ? fabric : "", kind, name);
	if (n < 0 || (size_t)n >= sizeof(un->sun_path) - 1)
		return 0;
	return (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void conn_free(struct sr_conn *conn)
{
	LIST_REMOVE(conn, link);
	sr_work_cancel(&conn->resume);
	sr_source_close(&conn->src);
	free(conn->out);
	free(conn->in);
	conn->out = conn->in = NULL;
	sr_garbage_add(&conn->garbage, conn);
}

static void conn_eof(struct sr_conn *conn)
{
	if (conn->eof)
		return;
	conn->eof = true;
	sr_source_close(&conn->src);
	if (conn->qp)
		sr_qp_peer_gone(conn->qp);
	if (conn->cm_ops)
		conn->cm_ops->closed(conn);
}

static void conn_dispatch(struct sr_conn *conn, const struct sr_hdr *hdr, const void *payload)
{
	if (hdr->type >= SR_MSG_CM_REQ) {
		if (conn->cm_ops)
			conn->cm_ops->message(conn, hdr, payload);
		return;
	}
	if (conn->qp) {
		sr_qp_message(conn->qp, hdr, payload);
		return;
	}
	/* The queue pair is gone: a requester would hear nothing. */
	if (hdr->type <= SR_MSG_READ)
		sr_conn_gone(conn);
}

static bool conn_frame_ok(const struct sr_hdr *hdr)
{
	return hdr->len <= SR_SEGMENT && hdr->type >= SR_MSG_SEND && hdr->type <= SR_MSG_CM_DREP;
}

/* Handles the whole frames in buf and returns how many bytes they were; -1: not our protocol. */
static ssize_t conn_parse(struct sr_conn *conn, const uint8_t *buf, size_t len)
{
	size_t pos = 0;

	while (len - pos >= sizeof(struct sr_hdr) && conn->src.fd >= 0 && !conn->paused) {
		struct sr_hdr hdr;

		memcpy(&hdr, buf + pos, sizeof(hdr));
		if (!conn_frame_ok(&hdr))
			return -1;
		if (len - pos < sizeof(hdr) + hdr.len)
			break;
		conn_dispatch(conn, &hdr, buf + pos + sizeof(hdr));
		pos += sizeof(hdr) + hdr.len;
	}
	return (ssize_t)pos;
}

static void conn_keep_rest(struct sr_conn *conn, const uint8_t *rest, size_t len)
{
	if (conn->src.fd < 0)
		return;
	if (len > conn->in_size) {
		free(conn->in);
		conn->in_size = (uint32_t)len;
		conn->in = malloc(len);
		if (!conn->in)
			abort();
	}
	if (len)
		memmove(conn->in, rest, len);
	conn->in_len = (uint32_t)len;
}

static void conn_parse_kept(struct sr_conn *conn)
{
	ssize_t used = conn_parse(conn, conn->in, conn->in_len);

	if (used < 0)
		conn_eof(conn);
	else if (conn->src.fd >= 0)
		conn_keep_rest(conn, conn->in + used, conn->in_len - (size_t)used);
}

static void conn_receive(struct sr_conn *conn)
{
	size_t have = conn->in_len;
	ssize_t n, used;

	if (have)
		memcpy(conn_scratch, conn->in, have);
	n = recv(conn->src.fd, conn_scratch + have, CONN_IN, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_eof(conn);
		return;
	}
	have += (size_t)n;
	used = conn_parse(conn, conn_scratch, have);
	if (used < 0)
		conn_eof(conn);
	else
		conn_keep_rest(conn, conn_scratch + used, have - (size_t)used);
}

static void conn_ready(struct sr_source *src, uint32_t events)
{
	struct sr_conn *conn = sr_container(src, struct sr_conn, src);

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		conn_receive(conn);
	if (conn->src.fd < 0)
		return;
	if (events & EPOLLOUT)
		sr_conn_flush(conn);
	if (conn->qp)
		sr_qp_transmit(conn->qp);
	else
		sr_conn_flush(conn);
}

int sr_conn_start(struct sr_conn *conn)
{
	return sr_source_add(&conn->src, EPOLLIN);
}

void sr_conn_pause(struct sr_conn *conn)
{
	conn->paused = true;
	sr_source_ignore(&conn->src);
}

static void conn_resume(struct sr_work *work)
{
	struct sr_conn *conn = sr_container(work, struct sr_conn, resume);

	conn->paused = false;
	if (conn->src.fd < 0)
		return;
	conn_parse_kept(conn);
	if (conn->src.fd < 0 || conn->paused)
		return;
	sr_source_add(&conn->src, EPOLLIN);
	if (conn->qp)
		sr_qp_transmit(conn->qp);
	else
		sr_conn_flush(conn);
}

struct sr_conn *sr_conn_new(int fd)
{
	struct sr_conn *conn = calloc(1, sizeof(*conn));

	if (conn)
		conn->out = malloc(CONN_OUT);
	if (!conn || !conn->out) {
		free(conn);
		close(fd);
		return NULL;
	}
	conn->src.fd = fd;
	conn->src.ready = conn_ready;
	conn->resume.run = conn_resume;
	LIST_INSERT_HEAD(&conns, conn, link);
	return conn;
}

void sr_conn_resume(struct sr_conn *conn)
{
	if (!conn->paused)
		return;
	sr_work_queue(&conn->resume);
}

static void conn_release(struct sr_conn *conn)
{
	if (conn->qp || conn->cm_ops)
		return;
	sr_conn_flush(conn);
	conn_free(conn);
}

void sr_conn_detach_qp(struct sr_conn *conn)
{
	conn->qp = NULL;
	conn_release(conn);
}

void sr_conn_detach_cm(struct sr_conn *conn)
{
	conn->cm = NULL;
	conn->cm_ops = NULL;
	conn_release(conn);
}

bool sr_conn_room(const struct sr_conn *conn, uint32_t len)
{
	return conn->out_tail - conn->out_head + sizeof(struct sr_hdr) + len <= CONN_DATA;
}

void *sr_conn_put(struct sr_conn *conn, const struct sr_hdr *hdr)
{
	uint32_t need = (uint32_t)sizeof(*hdr) + hdr->len;
	uint8_t *to;

	if (conn->src.fd < 0)
		return NULL;
	if (conn->out_tail + need > CONN_OUT) {
		memmove(conn->out, conn->out + conn->out_head, conn->out_tail - conn->out_head);
		conn->out_tail -= conn->out_head;
		conn->out_head = 0;
	}
	if (conn->out_tail + need > CONN_OUT)
		return NULL;
	to = conn->out + conn->out_tail;
	memcpy(to, hdr, sizeof(*hdr));
	conn->out_tail += need;
	return to + sizeof(*hdr);
}

bool sr_conn_pending(const struct sr_conn *conn)
{
	return conn->src.fd >= 0 && conn->out_head != conn->out_tail;
}

void sr_conn_flush(struct sr_conn *conn)
{
	while (conn->src.fd >= 0 && conn->out_head < conn->out_tail) {
		ssize_t n = send(conn->src.fd, conn->out + conn->out_head,
			conn->out_tail - conn->out_head, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		conn->out_head += (uint32_t)n;
	}
	if (conn->src.fd < 0)
		return;
	if (conn->out_head == conn->out_tail)
		conn->out_head = conn->out_tail = 0;
	if (conn->paused)
		return;
	sr_source_want(&conn->src, EPOLLIN | (conn->out_tail ? EPOLLOUT : 0u));
}

void sr_conn_gone(struct sr_conn *conn)
{
	struct sr_hdr hdr = {.type = SR_MSG_GONE};

	if (conn->gone_sent)
		return;
	conn->gone_sent = true;
	sr_conn_put(conn, &hdr);
}

struct sr_conn *sr_conn_find(uint32_t remote_qp_num)
{
	struct sr_conn *conn;

	LIST_FOREACH(conn, &conns, link)
	{
		if (conn->cm_ops && !conn->qp && conn->remote_qp_num == remote_qp_num)
			return conn;
	}
	return NULL;
}
