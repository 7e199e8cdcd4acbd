/* SPDX-License-Identifier: MIT */
/*
 * Connections: accepted on the port's reactor, made, run and ended on their own.
 */
#include "target/conn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/base/log.h"
#include "proto/link/address.h"
#include "proto/nvme/identify.h"
#include "target/catalog.h"
#include "target/ctrl.h"
#include "target/error_log.h"
#include "target/fused.h"
#include "target/member.h"
#include "target/reactor.h"
#include "target/share.h"
#include "target/target.h"
#include "target/view.h"

/* A host that has not completed Connect by then is gone or hostile; Linux needs milliseconds. */
#define CONN_HANDSHAKE_NS 10000000000ull

#define CONN_TEXT_SIZE 128
#define CONN_NR_TIMERS 2u /* of the handshake and of transfers */

/* Slots for a queue of DEPTH: the host may reuse a capsule before its response is seen to be sent.
 */
static uint32_t conn_nr_slots(uint32_t depth)
{
	return 2 * depth;
}

static size_t conn_requests_bytes(const struct conn *conn)
{
	return (size_t)conn_nr_slots(conn->max_depth) * sizeof(struct request);
}

/* "connection 12 (tcp 10.0.0.7:51234, queue 1)", for the log. */
static void conn_describe(const struct conn *conn, char ret_text[CONN_TEXT_SIZE])
{
	char peer[ADDRESS_TEXT];

	address_format(&conn->peer, peer);
	snprintf(ret_text, CONN_TEXT_SIZE, "connection %llu (%s %s, queue %u)",
		(unsigned long long)conn->number, conn->ops->name, peer, conn->qid);
}

void conn_log(struct conn *conn, const char *format, ...)
{
	char what[256];
	char who[CONN_TEXT_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	conn_describe(conn, who);
	log_line_limited(share_log_limit(conn->share), loop_now_ns(conn->reactor->loop),
		LOG_LEVEL_INFO, "%s: %s", who, what);
}

/* --- the end --------------------------------------------------------------------------------- */

/* On the port's reactor: whether the host may have one connection more, which is then counted. */
static bool conn_admit(struct transport_handover *handover)
{
	struct reactor *reactor = handover->port->reactor;
	uint32_t left = reactor->target->max_conns - reactor->target->nr_conns_all;
	struct share *share = share_get(&reactor->shares, &handover->peer);

	if (!share)
		return false;
	if (!share_may_take(share->nr_conns, 1, left)) {
		share_log_refusal(share, "connections", share->nr_conns, left);
		share_put(share);
		return false;
	}
	share->nr_conns++;
	handover->share = share;
	return true;
}

static void conn_discharge(struct share *share)
{
	share->nr_conns--;
	share_put(share);
}

/* On the port's reactor. */
static void conn_admin_told(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, is_admin);

	conn->load = TARGET_LOAD_ADMIN;
	target_conn_is_admin(conn->reactor);
}

void conn_is_admin(struct conn *conn)
{
	conn->is_admin.fn = conn_admin_told;
	loop_send(conn->port->reactor->loop, &conn->is_admin);
}

/* On the port's reactor, which counts the connections. */
static void conn_gone(struct loop_message *message)
{
	struct conn *conn = container_of(message, struct conn, gone);

	conn_discharge(conn->conns_share);
	target_conn_gone(conn->port, conn->reactor, conn->load);
	free(conn);
}

static void conn_unreserve_timers(struct conn *conn)
{
	struct loop *loop = conn->reactor->loop;

	loop_timer_cancel(loop, &conn->handshake);
	loop_timer_cancel(loop, &conn->transfer);
	loop_timers_unreserve(loop, CONN_NR_TIMERS);
}

static void conn_destroy(struct conn *conn)
{
	conn->state = CONN_CLOSED;
	error_log_free_report(conn);
	auth_forget(conn);
	loop_flush_cancel(&conn->finish);
	conn_unreserve_timers(conn);
	share_put(conn->share);
	list_remove(&conn->node);
	munmap(conn->requests, conn_requests_bytes(conn));
	slots_destroy(&conn->slots);
	conn->gone.fn = conn_gone;
	loop_send(conn->port->reactor->loop, &conn->gone);
}

static bool conn_is_idle(const struct conn *conn)
{
	return conn->state == CONN_CLOSING && conn->transport_quiesced && conn->nr_out == 0;
}

static void conn_finish(struct loop_flush *flush)
{
	struct conn *conn = container_of(flush, struct conn, finish);

	if (!conn_is_idle(conn) || !member_leave(conn))
		return;
	assert(list_empty(&conn->moving) && conn->nr_commands == 0);
	conn->ops->free(conn);
	conn_destroy(conn);
}

void conn_try_finish(struct conn *conn)
{
	if (conn_is_idle(conn))
		loop_flush_later(conn->reactor->loop, &conn->finish);
}

static void conn_drop_all(struct list *list)
{
	while (!list_empty(list))
		request_drop(container_of(list->next, struct request, node));
}

void conn_close(struct conn *conn, const char *why)
{
	char who[CONN_TEXT_SIZE];

	if (conn->state != CONN_LIVE)
		return;
	conn->state = CONN_CLOSING;
	conn_describe(conn, who);
	log_debug("%s: closing: %s", who, why);
	loop_timer_cancel(conn->reactor->loop, &conn->handshake);
	loop_timer_cancel(conn->reactor->loop, &conn->transfer);
	conn_drop_all(&conn->waiting);
	conn_drop_all(&conn->held);
	if (conn->member.state == CONN_MEMBER_ADMIN)
		/* After a shutdown in order an end needs no reason. */
		ctrl_end(conn->member.ctrl, NVME_CC_SHN(conn->member.ctrl->cc) ? NULL : why);
	else
		member_closing(conn);
	conn->ops->close(conn);
	conn_try_finish(conn);
}

void conn_close_for_mistake(struct conn *conn, const char *why)
{
	char who[CONN_TEXT_SIZE];

	if (conn->state != CONN_LIVE)
		return;
	conn_describe(conn, who);
	log_line_limited(share_log_limit(conn->share), loop_now_ns(conn->reactor->loop),
		LOG_LEVEL_WARNING, "%s: mistake of the host: %s", who, why);
	conn_close(conn, why);
}

bool conn_has_commands(const struct conn *conn)
{
	const struct request *request;
	uint32_t nr_held = 0;

	if (conn->state != CONN_LIVE)
		return false;
	list_for_each_entry (request, &conn->held, node)
		nr_held++;
	return conn->nr_out > nr_held;
}

void conn_quiesced(struct conn *conn)
{
	assert(conn->state == CONN_CLOSING);
	conn->transport_quiesced = true;
	conn_try_finish(conn);
}

static void conn_handshake_expired(struct loop_timer *timer)
{
	struct conn *conn = container_of(timer, struct conn, handshake);

	if (conn->connected) {
		fused_expired(conn);
		return;
	}
	conn_log(conn, "no Connect within %llu s", CONN_HANDSHAKE_NS / 1000000000);
	conn_close(conn, "no Connect in time");
}

/* The first deadline of what moves; UINT64_MAX: nothing does. The list is in the order of
 * beginnings, and whatever began after the first deadline has a later one. */
static uint64_t conn_first_deadline_ns(const struct conn *conn)
{
	uint64_t first_ns = UINT64_MAX;
	struct request *request;

	list_for_each_entry (request, &conn->moving, moving) {
		if (request->moving_since_ns + conn->reactor->patience_ns >= first_ns)
			break;
		first_ns = min_of(first_ns, request_deadline_ns(request));
	}
	return first_ns;
}

/* Not set anew by each request: it may ring early. */
static void conn_transfer_expired(struct loop_timer *timer)
{
	struct conn *conn = container_of(timer, struct conn, transfer);
	uint64_t first_ns = conn_first_deadline_ns(conn);

	if (first_ns > loop_now_ns(conn->reactor->loop)) {
		if (first_ns != UINT64_MAX)
			loop_timer_set(conn->reactor->loop, timer, first_ns);
		return;
	}
	conn_log(conn, "the host is too slow to take or send what belongs to a command");
	conn_close(conn, "too slow to take or send what belongs to a command");
}

/* --- the beginning --------------------------------------------------------------------------- */

int conn_set_depth(struct conn *conn, uint32_t depth)
{
	int error;

	if (depth < conn->depth || depth > conn->max_depth)
		return -EINVAL;
	error = slots_grow(&conn->slots, conn_nr_slots(depth));
	if (!error)
		conn->depth = depth;
	return error;
}

/* Address space for the deepest queue; pages come with use. */
static int conn_alloc_requests(struct conn *conn)
{
	int error = slots_init(&conn->slots, conn_nr_slots(1));

	if (error)
		return error;
	conn->depth = 1;
	conn->requests = mmap(NULL, conn_requests_bytes(conn), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (conn->requests == MAP_FAILED) {
		slots_destroy(&conn->slots);
		return -ENOMEM;
	}
	return 0;
}

/* Until Connect says that it is an I/O queue it may be an admin queue. */
static void conn_take_limits(struct conn *conn)
{
	const struct transport_ops *ops = conn->ops;
	const uint32_t *limit = conn->port->option;

	conn->max_depth = max_of(limit[TRANSPORT_MAX_QUEUE_SIZE], ops->max_admin_depth);
	conn->in_capsule_max = max_of(limit[TRANSPORT_IN_CAPSULE], ops->admin_in_capsule);
	conn->transfer_max = limit[TRANSPORT_MDTS];
	conn->msdbd = limit[TRANSPORT_IN_CAPSULE] > ops->msdbd_in_capsule ? 1 : ops->msdbd;
}

static struct conn *conn_create(const struct transport_handover *handover)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	struct reactor *reactor = handover->reactor;

	if (!conn)
		return NULL;
	conn->reactor = reactor;
	conn->port = handover->port;
	conn->ops = conn->port->ops;
	conn_take_limits(conn);
	conn->peer = handover->peer;
	conn->conns_share = handover->share;
	conn->load = TARGET_LOAD_IO;
	conn->number = reactor->next_conn_number;
	conn->expected_qid = CONN_QID_UNKNOWN;
	list_init(&conn->node);
	list_init(&conn->held);
	list_init(&conn->waiting);
	list_init(&conn->moving);
	loop_flush_init(&conn->finish, conn_finish);
	loop_timer_init(&conn->handshake, conn_handshake_expired);
	loop_timer_init(&conn->transfer, conn_transfer_expired);
	if (loop_timers_reserve(conn->reactor->loop, CONN_NR_TIMERS))
		goto free_conn;
	conn->share = share_get(&reactor->shares, &conn->peer);
	if (!conn->share || conn_alloc_requests(conn))
		goto put_share;
	reactor->next_conn_number += reactor->target->nr_reactors;
	list_push_back(&reactor->conns, &conn->node);
	return conn;

put_share:
	share_put(conn->share);
	conn_unreserve_timers(conn);
free_conn:
	free(conn);
	return NULL;
}

/* Back on the port's reactor. */
static void conn_refused(struct loop_message *message)
{
	struct transport_handover *handover =
		container_of(message, struct transport_handover, message);

	struct port *port = handover->port;
	struct reactor *reactor = handover->reactor;

	conn_discharge(handover->share);
	port->ops->refuse(handover);
	target_conn_gone(port, reactor, TARGET_LOAD_IO);
}

/* On the connection's reactor. */
static void conn_start(struct loop_message *message)
{
	struct transport_handover *handover =
		container_of(message, struct transport_handover, message);
	struct reactor *reactor = handover->reactor;
	struct port *port = handover->port;
	struct conn *conn = reactor->stage == REACTOR_SERVES ? conn_create(handover) : NULL;

	if (!conn) {
		handover->message.fn = conn_refused;
		loop_send(port->reactor->loop, &handover->message);
		return;
	}
	if (conn->ops->start(conn, handover)) {
		conn_destroy(conn);
		return;
	}
	if (conn->state == CONN_LIVE)
		loop_timer_set(reactor->loop, &conn->handshake,
			loop_now_ns(reactor->loop) + CONN_HANDSHAKE_NS);
}

void conn_accept(struct port *port, struct transport_handover *handover)
{
	struct target *target = port->reactor->target;

	handover->port = port;
	if (!port->open && port_keep(port, handover))
		return;
	if (!port->open || target->stopping || !conn_admit(handover)) {
		port->ops->refuse(handover);
		return;
	}
	handover->reactor = target_pick_reactor(port);
	handover->message.fn = conn_start;
	loop_send(handover->reactor->loop, &handover->message);
}

void conn_follow(struct conn *conn, const struct catalog *catalog)
{
	const struct subsys *now;

	if (conn->subsys && !conn->subsys->discovery) {
		now = view_find(catalog, conn->subsys->nqn, conn->hostnqn);
		conn->subsys = now ? now : &subsys_removed;
	}
	if (!catalog_has_port(catalog, conn->port))
		conn_close(conn, "its listener has been removed");
}
