/* SPDX-License-Identifier: MIT */
/*
 * Connecting, accepting, refusing and disconnecting, in the order of InfiniBand's CM (IBA 12.9):
 * REQ, REP, RTU; REJ; DREQ, DREP. They travel on the stream that then carries the data.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_RETRY_NS      20000000u
#define CONNECT_TRIES	      500
#define CONNECT_UNANSWERED_NS 20000000000u
#define DISCONNECT_NS	      1000000000u

uint8_t cm_padded(uint8_t len, uint8_t area)
{
	return sr_faults.iwarp ? len : area;
}

void cm_send(struct sr_conn *conn, enum sr_msg type, const struct sr_cm_body *body)
{
	struct sr_hdr hdr = {.type = (uint8_t)type, .len = body ? sizeof(*body) : 0};
	void *to = sr_conn_put(conn, &hdr);

	if (to && body)
		memcpy(to, body, sizeof(*body));
	sr_conn_flush(conn);
}

static uint8_t connect_max_reads(void)
{
	return sr_faults.max_qp_rd_atom > 255 ? 255 : (uint8_t)sr_faults.max_qp_rd_atom;
}

/* Reads of the program's parameters; defaults without any. 0 or EINVAL. */
static int connect_params(struct cm_id *id, const struct rdma_conn_param *param,
	uint8_t max_private, struct sr_cm_body *ret_body)
{
	struct sr_cm_body body = {
		.responder_resources = id->responder_resources,
		.initiator_depth = id->initiator_depth,
		.rnr_retry_count = 7,
		.retry_count = 7,
	};

	if (param) {
		if (param->responder_resources != RDMA_MAX_RESP_RES)
			body.responder_resources = param->responder_resources;
		if (param->initiator_depth != RDMA_MAX_INIT_DEPTH)
			body.initiator_depth = param->initiator_depth;
		body.rnr_retry_count = param->rnr_retry_count > 7 ? 7 : param->rnr_retry_count;
		body.retry_count = param->retry_count > 7 ? 7 : param->retry_count;
		body.flow_control = param->flow_control;
		body.srq = param->srq;
		body.qp_num = param->qp_num;
		body.private_data_len = param->private_data_len;
	}
	if (body.responder_resources > connect_max_reads() ||
		body.initiator_depth > connect_max_reads())
		return EINVAL;
	if (body.private_data_len > max_private)
		return EINVAL;
	if (body.private_data_len)
		memcpy(body.private_data, param->private_data, body.private_data_len);
	if (id->id.qp) {
		body.qp_num = id->id.qp->qp_num;
		body.srq = id->id.qp->srq != NULL;
	}
	*ret_body = body;
	return 0;
}

static void id_close(struct cm_id *id)
{
	struct sr_conn *conn = id->conn;

	id->conn = NULL;
	sr_timer_cancel(&id->timer);
	if (conn)
		sr_conn_detach_cm(conn);
}

static void id_enter_timewait(struct cm_id *id)
{
	id->state = CM_CLOSED;
	sr_timer_cancel(&id->timer);
	if (!sr_faults.iwarp)
		sr_timer_arm(&id->timewait, sr_faults.timewait_ms * 1000000ull);
}

static void id_rejected(struct cm_id *id, const struct sr_cm_body *body)
{
	struct cm_event *event = cm_event_new(
		id, RDMA_CM_EVENT_REJECTED, sr_faults.iwarp ? -ECONNREFUSED : body->reason);

	cm_event_set_private(event, body, CM_REJ_PRIVATE);
	id->state = CM_CLOSED;
	id_close(id);
	cm_event_post(event);
}

static void id_got_rej(struct cm_id *id, const struct sr_cm_body *body)
{
	switch (id->state) {
	case CM_CONNECTING:
	case CM_ACCEPTED:
		id_rejected(id, body);
		break;
	default:
		/* Before accept the program hears nothing: the accept fails. */
		id->state = CM_CLOSED;
		break;
	}
}

static void id_got_rep(struct cm_id *id, const struct sr_cm_body *body)
{
	struct cm_event *event;

	if (id->state != CM_CONNECTING)
		return;
	id->state = CM_REPLIED;
	id->peer = *body;
	id->conn->remote_qp_num = body->qp_num;
	id->responder_resources = body->initiator_depth;
	id->initiator_depth = body->responder_resources;
	sr_timer_cancel(&id->timer);
	/* Data may follow at once; it waits until the queue pair is ready. */
	sr_conn_pause(id->conn);
	event = cm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	cm_event_set_private(event, body, CM_REP_PRIVATE);
	event->ev.param.conn.responder_resources = body->initiator_depth;
	event->ev.param.conn.initiator_depth = body->responder_resources;
	event->ev.param.conn.flow_control = body->flow_control;
	event->ev.param.conn.rnr_retry_count = body->rnr_retry_count;
	event->ev.param.conn.srq = body->srq;
	event->ev.param.conn.qp_num = body->qp_num;
	cm_event_post(event);
}

static void id_established(struct cm_id *id)
{
	id->state = CM_CONNECTED;
	cm_event_simple(id, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void id_established_late(struct sr_timer *timer)
{
	id_established(sr_container(timer, struct cm_id, timer));
}

static void id_got_rtu(struct cm_id *id)
{
	if (id->state != CM_ACCEPTED)
		return;
	if (!sr_faults.delay_established_ms) {
		id_established(id);
		return;
	}
	id->timer.fire = id_established_late;
	sr_timer_arm(&id->timer, sr_faults.delay_established_ms * 1000000ull);
}

static void id_got_dreq(struct cm_id *id)
{
	switch (id->state) {
	case CM_CONNECTED:
	case CM_ACCEPTED:
	case CM_REPLIED:
		id->state = CM_DISCONNECTED;
		sr_timer_cancel(&id->timer);
		cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	case CM_DISCONNECTING:
		/* Both asked at the same time. */
		cm_send(id->conn, SR_MSG_CM_DREP, NULL);
		cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		id_enter_timewait(id);
		break;
	default:
		break;
	}
}

static void id_got_drep(struct cm_id *id)
{
	if (id->state != CM_DISCONNECTING)
		return;
	cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	id_enter_timewait(id);
}

static void id_message(struct sr_conn *conn, const struct sr_hdr *hdr, const void *payload)
{
	struct cm_id *id = conn->cm;
	struct sr_cm_body body = {0};

	if (hdr->len == sizeof(body))
		memcpy(&body, payload, sizeof(body));
	switch (hdr->type) {
	case SR_MSG_CM_REP:
		id_got_rep(id, &body);
		break;
	case SR_MSG_CM_RTU:
		id_got_rtu(id);
		break;
	case SR_MSG_CM_REJ:
		id_got_rej(id, &body);
		break;
	case SR_MSG_CM_DREQ:
		id_got_dreq(id);
		break;
	case SR_MSG_CM_DREP:
		id_got_drep(id);
		break;
	default:
		break;
	}
}

/* The peer's process ended: the kernel would have said good-bye for it. */
static void id_conn_closed(struct sr_conn *conn)
{
	struct cm_id *id = conn->cm;
	struct sr_cm_body body = {.reason = CM_REJ_CONSUMER_DEFINED};

	switch (id->state) {
	case CM_CONNECTING:
	case CM_ACCEPTED:
		id_rejected(id, &body);
		break;
	case CM_REPLIED:
	case CM_CONNECTED:
	case CM_DISCONNECTING:
		cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		id_enter_timewait(id);
		break;
	case CM_DISCONNECTED:
		break;
	default:
		id->state = CM_CLOSED;
		break;
	}
}

const struct sr_cm_ops cm_id_ops = {.message = id_message, .closed = id_conn_closed};

void cm_reject_conn(struct sr_conn *conn, uint16_t reason)
{
	struct sr_cm_body body = {.reason = reason};

	cm_send(conn, SR_MSG_CM_REJ, &body);
	sr_conn_detach_cm(conn);
}

/* Called when the program takes a connect request: the new id gets the stream. */
void cm_request_taken(struct cm_id *id, struct cm_event *event)
{
	struct rdma_addr *addr = &id->id.route.addr;
	const struct sr_cm_body *body = &event->body;

	id->conn = event->conn;
	event->conn = NULL;
	id->conn->cm = id;
	id->conn->cm_ops = &cm_id_ops;
	id->peer = *body;
	id->responder_resources = event->ev.param.conn.responder_resources;
	id->initiator_depth = event->ev.param.conn.initiator_depth;
	id->state = id->conn->eof ? CM_CLOSED : CM_REQUESTED;
	cm_addr_from_body(body->dst, body->dst_port, body->family, &addr->src_addr);
	cm_addr_from_body(body->src, body->src_port, body->family, &addr->dst_addr);
	id->device = cm_addr_device(&addr->src_addr);
}

/* Called when the program takes the reply and has a queue pair: ready, and tell the peer. */
int cm_reply_taken(struct cm_id *id)
{
	int ret = ECONNRESET;

	sr_lock();
	if (id->state == CM_REPLIED)
		ret = cm_qp_ready(id);
	if (!ret) {
		id->state = CM_CONNECTED;
		cm_send(id->conn, SR_MSG_CM_RTU, NULL);
	} else if (id->conn) {
		struct sr_conn *conn = id->conn;

		id->conn = NULL;
		id->state = CM_CLOSED;
		cm_reject_conn(conn, CM_REJ_CONSUMER_DEFINED);
	}
	sr_unlock();
	return ret;
}

/* The id goes away in whatever state: the peer hears of it. */
void cm_abandon(struct cm_id *id)
{
	struct sr_conn *conn = id->conn;

	if (!conn)
		return;
	switch (id->state) {
	case CM_CONNECTING:
	case CM_REQUESTED:
	case CM_REPLIED:
		id->conn = NULL;
		cm_reject_conn(conn,
			id->state == CM_CONNECTING ? CM_REJ_TIMEOUT : CM_REJ_CONSUMER_DEFINED);
		return;
	case CM_ACCEPTED:
	case CM_CONNECTED:
		cm_send(conn, SR_MSG_CM_DREQ, NULL);
		break;
	case CM_DISCONNECTED:
		cm_send(conn, SR_MSG_CM_DREP, NULL);
		break;
	default:
		break;
	}
	id_close(id);
}

static void connect_unanswered(struct sr_timer *timer)
{
	struct cm_id *id = sr_container(timer, struct cm_id, timer);

	id->state = CM_CLOSED;
	id_close(id);
	cm_event_simple(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static int connect_name(const struct sockaddr *dst, bool any, int *ret_fd)
{
	struct sockaddr_un un;
	char name[80];
	uint32_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return errno;
	cm_addr_name(dst, any, cm_addr_port(dst), name, sizeof(name));
	len = sr_address(&un, "cm", name);
	if (connect(fd, (struct sockaddr *)&un, len)) {
		int ret = errno;

		close(fd);
		return ret;
	}
	*ret_fd = fd;
	return 0;
}

static void connect_send_request(struct cm_id *id, int fd)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct sr_conn *conn = sr_conn_new(fd);

	if (!conn) {
		connect_unanswered(&id->timer);
		return;
	}
	id->conn = conn;
	conn->cm = id;
	conn->cm_ops = &cm_id_ops;
	cm_addr_to_body(&addr->src_addr, id->local.src, &id->local.src_port);
	cm_addr_to_body(&addr->dst_addr, id->local.dst, &id->local.dst_port);
	id->local.family = addr->dst_addr.sa_family;
	cm_send(conn, SR_MSG_CM_REQ, &id->local);
	sr_conn_start(conn);
}

/* Tries the exact address, then the wildcard. A full backlog is tried again, as the CM repeats a
 * REQ. */
static void connect_try(struct sr_timer *timer)
{
	struct cm_id *id = sr_container(timer, struct cm_id, timer);
	struct sr_cm_body body = {.reason = CM_REJ_INVALID_SERVICE_ID};
	const struct sockaddr *dst = &id->id.route.addr.dst_addr;
	int fd, ret;

	ret = connect_name(dst, false, &fd);
	if (ret == ECONNREFUSED)
		ret = connect_name(dst, true, &fd);
	if (!ret)
		connect_send_request(id, fd);
	else if (ret == EAGAIN && id->pending++ < CONNECT_TRIES)
		sr_timer_arm(&id->timer, CONNECT_RETRY_NS);
	else
		id_rejected(id, &body);
}

static int connect_start(struct cm_id *id, const struct rdma_conn_param *param)
{
	int ret;

	if (id->state != CM_ROUTE_RESOLVED)
		return EINVAL;
	id->responder_resources = id->initiator_depth = connect_max_reads();
	ret = connect_params(id, param, sr_faults.iwarp ? 255 : CM_REQ_PRIVATE, &id->local);
	if (ret)
		return ret;
	id->state = CM_CONNECTING;
	if (cm_addr_is_black_hole(&id->id.route.addr.dst_addr)) {
		id->timer.fire = connect_unanswered;
		sr_timer_arm(&id->timer, CONNECT_UNANSWERED_NS);
		return 0;
	}
	/* On the engine: the event must not come before this call has returned to a slow program.
	 */
	id->timer.fire = connect_try;
	sr_timer_arm(&id->timer, 1);
	return 0;
}

int rdma_connect(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_of(ibid);
	int ret = sr_fault_call(SR_CALL_CONNECT);

	if (ret)
		return cm_errno(ret);
	sr_lock();
	ret = connect_start(id, param);
	sr_unlock();
	return ret ? cm_errno(ret) : cm_sync(id);
}

static int accept_request(struct cm_id *id, const struct rdma_conn_param *param)
{
	int ret;

	if (id->state != CM_REQUESTED)
		return EINVAL;
	ret = connect_params(id, param, sr_faults.iwarp ? 255 : CM_REP_PRIVATE, &id->local);
	if (ret)
		return ret;
	id->responder_resources = id->local.responder_resources;
	id->initiator_depth = id->local.initiator_depth;
	if (id->id.qp)
		ret = cm_qp_ready(id);
	if (ret)
		return ret;
	id->state = CM_ACCEPTED;
	cm_send(id->conn, SR_MSG_CM_REP, &id->local);
	return 0;
}

int rdma_accept(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_of(ibid);
	int ret = sr_fault_call(SR_CALL_ACCEPT);

	if (ret)
		return cm_errno(ret);
	sr_lock();
	ret = accept_request(id, param);
	sr_unlock();
	return ret ? cm_errno(ret) : cm_sync(id);
}

/* After CONNECT_RESPONSE, by programs that keep the queue pair to themselves. */
int rdma_establish(struct rdma_cm_id *ibid)
{
	struct cm_id *id = cm_of(ibid);
	int ret = EINVAL;

	sr_lock();
	if (!ibid->qp && id->state == CM_REPLIED) {
		ret = 0;
		id->state = CM_CONNECTED;
		cm_send(id->conn, SR_MSG_CM_RTU, NULL);
	}
	sr_unlock();
	return cm_errno(ret);
}

/* Data came before the ready-to-use message: the program tells us that the connection works. */
int rdma_notify(struct rdma_cm_id *ibid, enum ibv_event_type event)
{
	struct cm_id *id = cm_of(ibid);
	int ret = sr_fault_call(SR_CALL_NOTIFY);

	if (ret)
		return cm_errno(ret);
	sr_lock();
	if (event != IBV_EVENT_COMM_EST)
		ret = event == IBV_EVENT_PATH_MIG ? 0 : EINVAL;
	else if (id->state == CM_ACCEPTED)
		id_established(id);
	else
		ret = EISCONN;
	if (!ret)
		sr_timer_cancel(&id->timer);
	sr_unlock();
	return cm_errno(ret);
}

int rdma_reject(struct rdma_cm_id *ibid, const void *private_data, uint8_t len)
{
	struct cm_id *id = cm_of(ibid);
	struct sr_cm_body body = {.reason = CM_REJ_CONSUMER_DEFINED, .private_data_len = len};
	int ret = EINVAL;

	if (!sr_faults.iwarp && len > CM_REJ_PRIVATE)
		return cm_errno(EINVAL);
	if (len)
		memcpy(body.private_data, private_data, len);
	sr_lock();
	if (id->state == CM_REQUESTED || id->state == CM_REPLIED) {
		id->state = CM_CLOSED;
		cm_send(id->conn, SR_MSG_CM_REJ, &body);
		id_close(id);
		ret = 0;
	}
	sr_unlock();
	return cm_errno(ret);
}

static void disconnect_unanswered(struct sr_timer *timer)
{
	struct cm_id *id = sr_container(timer, struct cm_id, timer);

	cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	id_enter_timewait(id);
}

/* Once there was an attempt to connect this moves the queue pair to error, connected or not. */
static int disconnect_start(struct cm_id *id)
{
	if (id->state < CM_CONNECTING)
		return EINVAL;
	cm_qp_error(id);
	switch (id->state) {
	case CM_ACCEPTED:
	case CM_CONNECTED:
		id->state = CM_DISCONNECTING;
		cm_send(id->conn, SR_MSG_CM_DREQ, NULL);
		id->timer.fire = disconnect_unanswered;
		sr_timer_arm(&id->timer, DISCONNECT_NS);
		return 0;
	case CM_DISCONNECTED:
		cm_send(id->conn, SR_MSG_CM_DREP, NULL);
		id_enter_timewait(id);
		return 0;
	default:
		return sr_faults.iwarp ? EINVAL : 0;
	}
}

int rdma_disconnect(struct rdma_cm_id *ibid)
{
	struct cm_id *id = cm_of(ibid);
	int ret;

	sr_lock();
	ret = disconnect_start(id);
	sr_unlock();
	return ret ? cm_errno(ret) : cm_sync(id);
}

/* The hooks for events that a living connection must survive. */
void cm_stray_event(struct sr_conn *conn, uint32_t type)
{
	for (uint32_t i = 0; conn->cm_ops == &cm_id_ops && i < sr_faults.cm_event_times; i++)
		cm_event_simple(conn->cm, (enum rdma_cm_event_type)type, 0);
}

/* The disconnect hook: as if both kernels had ended the connection. */
void cm_force_disconnect(struct sr_conn *conn)
{
	struct cm_id *id = conn->cm;

	if (conn->cm_ops != &cm_id_ops || id->state != CM_CONNECTED)
		return;
	cm_send(conn, SR_MSG_CM_DREQ, NULL);
	id->state = CM_DISCONNECTED;
	cm_event_simple(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}
