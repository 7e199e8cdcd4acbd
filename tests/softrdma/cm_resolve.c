/* SPDX-License-Identifier: MIT */
/*
 * The active side up to a route: source address, device, path.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define RESOLVE_FIRST_PORT 32768u
#define RESOLVE_NR_PORTS   28000u

/* Sources need no reservation: nobody connects to them. */
static uint16_t resolve_source_port(void)
{
	uint32_t r = 0;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		r = sr_random();
	return (uint16_t)(RESOLVE_FIRST_PORT + r % RESOLVE_NR_PORTS);
}

/* Nobody answers for that address: the neighbour is not found in time. */
static void resolve_timed_out(struct sr_timer *timer)
{
	struct cm_id *id = sr_container(timer, struct cm_id, timer);

	id->state = CM_BOUND;
	cm_event_simple(id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
}

static int resolve_set_source(
	struct cm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct sockaddr *own = &id->id.route.addr.src_addr;
	int ret;

	if (src && id->state == CM_IDLE && !cm_addr_is_any(src)) {
		ret = cm_bind(id, src);
		if (ret)
			return ret;
	} else if (id->state == CM_IDLE || id->bound_any) {
		cm_addr_default_source(dst, own);
	}
	if (own->sa_family != dst->sa_family)
		return EINVAL;
	if (!cm_addr_port(own))
		cm_addr_set_port(own, resolve_source_port());
	return 0;
}

static int resolve_addr(
	struct cm_id *id, const struct sockaddr *src, const struct sockaddr *dst, int timeout_ms)
{
	struct sockaddr *peer = &id->id.route.addr.dst_addr;
	int ret;

	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return EINVAL;
	if (!cm_addr_known_family(dst))
		return EAFNOSUPPORT;
	memcpy(peer, dst, cm_addr_len(dst));
	if (cm_addr_is_any(dst)) {
		struct sockaddr_in6 loop = {
			.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

		if (dst->sa_family == AF_INET)
			((struct sockaddr_in *)peer)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else
			((struct sockaddr_in6 *)peer)->sin6_addr = loop.sin6_addr;
	}
	ret = resolve_set_source(id, src, peer);
	if (ret)
		return ret;
	id->device = cm_addr_device(peer);
	if (!cm_addr_is_local(peer) && !cm_addr_is_black_hole(peer)) {
		id->state = CM_ADDR_QUERY;
		id->timer.fire = resolve_timed_out;
		sr_timer_arm(&id->timer, (uint64_t)(timeout_ms > 0 ? timeout_ms : 1) * 1000000u);
		return 0;
	}
	id->state = CM_ADDR_RESOLVED;
	cm_event_simple(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

int rdma_resolve_addr(
	struct rdma_cm_id *ibid, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct cm_id *id = cm_of(ibid);
	int ret = sr_fault_call(SR_CALL_RESOLVE_ADDR);

	if (ret)
		return cm_errno(ret);
	sr_lock();
	ret = resolve_addr(id, src, dst, timeout_ms);
	sr_unlock();
	return ret ? cm_errno(ret) : cm_sync(id);
}

int rdma_resolve_route(struct rdma_cm_id *ibid, int timeout_ms)
{
	struct cm_id *id = cm_of(ibid);
	int ret = 0;

	(void)timeout_ms;
	sr_lock();
	if (id->state != CM_ADDR_RESOLVED) {
		ret = EINVAL;
	} else {
		id->state = CM_ROUTE_RESOLVED;
		cm_event_simple(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	sr_unlock();
	return ret ? cm_errno(ret) : cm_sync(id);
}
