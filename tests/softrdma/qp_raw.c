/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that programs connect by number (ibv_modify_qp), without librdmacm.
 * Both listen under their number from INIT on; at ready-to-receive the lower number calls the
 * higher.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RAW_RETRY_NS 10000000u

static uint32_t raw_address(uint32_t qp_num, struct sockaddr_un *un)
{
	char name[16];

	snprintf(name, sizeof(name), "%06x", qp_num);
	return sr_address(un, "qp", name);
}

static void raw_take(struct sr_qp *qp, int fd)
{
	struct sr_conn *conn = sr_conn_new(fd);

	if (!conn)
		return;
	sr_raw_stop(qp);
	sr_qp_attach(qp, conn);
	sr_conn_start(conn);
	sr_qp_transmit(qp);
}

/* The peer's call is taken only when we are ready; until then it waits in the backlog. */
static void raw_ready(struct sr_source *src, uint32_t events)
{
	struct sr_qp *qp = sr_container(src, struct sr_qp, raw_listen);
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd >= 0)
		raw_take(qp, fd);
}

void sr_raw_listen(struct sr_qp *qp)
{
	struct sockaddr_un un;
	uint32_t len = raw_address(qp->qp.qp_num, &un);
	int fd;

	if (qp->raw_listen.fd >= 0)
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&un, len) || listen(fd, 4)) {
		close(fd);
		return;
	}
	qp->raw_listen.fd = fd;
	qp->raw_listen.ready = raw_ready;
}

static void raw_try(struct sr_timer *timer)
{
	struct sr_qp *qp = sr_container(timer, struct sr_qp, raw_timer);
	struct sockaddr_un un;
	uint32_t len = raw_address(qp->attr.dest_qp_num, &un);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && !connect(fd, (struct sockaddr *)&un, len)) {
		raw_take(qp, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	sr_timer_arm(timer, RAW_RETRY_NS);
}

int sr_raw_connect(struct sr_qp *qp)
{
	qp->raw_timer.fire = raw_try;
	if (qp->qp.qp_num < qp->attr.dest_qp_num) {
		sr_timer_arm(&qp->raw_timer, 1);
		return 0;
	}
	return qp->raw_listen.fd < 0 ? EINVAL : sr_source_add(&qp->raw_listen, EPOLLIN);
}

void sr_raw_stop(struct sr_qp *qp)
{
	sr_timer_cancel(&qp->raw_timer);
	sr_source_close(&qp->raw_listen);
}
