/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: which RDMA device, port and address lead to a host, as the connection manager
 * resolves it; nothing is connected.
 */
#include "initiator/cli/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#define DOCTOR_ROUTE_MS 3000

/* The next event of the channel: 0 if it is of TYPE, else a negative errno. */
static int doctor_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct pollfd poll_fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	int error = 0;

	if (poll(&poll_fd, 1, 2 * DOCTOR_ROUTE_MS) <= 0)
		return errno == EINTR ? -EINTR : -ETIMEDOUT;
	if (rdma_get_cm_event(channel, &event))
		return -errno;
	if (event->event != type)
		error = event->status < 0 ? event->status : -EHOSTUNREACH;
	rdma_ack_cm_event(event);
	return error;
}

static int doctor_resolve_rdma(
	struct rdma_event_channel *channel, struct rdma_cm_id *id, struct sockaddr *address)
{
	int error;

	if (rdma_resolve_addr(id, NULL, address, DOCTOR_ROUTE_MS))
		return -errno;
	error = doctor_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (error)
		return error;
	if (rdma_resolve_route(id, DOCTOR_ROUTE_MS))
		return -errno;
	return doctor_expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void doctor_tell_route(struct doctor *doctor, struct rdma_cm_id *id)
{
	const struct rdma_addr *address = &id->route.addr;
	char gid[INET6_ADDRSTRLEN] = "", from[NI_MAXHOST] = "?";
	struct ibv_port_attr port;
	unsigned mtu = 0;

	(void)inet_ntop(AF_INET6, &address->addr.ibaddr.sgid, gid, sizeof(gid));
	(void)getnameinfo(&id->route.addr.src_addr, sizeof(id->route.addr.src_storage), from,
		sizeof(from), NULL, 0, NI_NUMERICHOST);
	if (!ibv_query_port(id->verbs, id->port_num, &port))
		mtu = 128u << port.active_mtu; /* IBV_MTU_256 is 1 */
	doctor_tell(doctor, DOCTOR_OK, "route", NULL, "through %s/%u, from %s (GID %s), MTU %u",
		ibv_get_device_name(id->verbs->device), id->port_num, from, gid, mtu);
}

static const char *doctor_route_cure(int error)
{
	switch (-error) {
	case ENODEV:
	case EADDRNOTAVAIL:
		return "rdma link show    # the device at the address that ip route get names";
	case EHOSTUNREACH:
	case ETIMEDOUT:
		return "ping HOST    # then ip route get HOST";
	default:
		return NULL;
	}
}

static void doctor_route_by(struct doctor *doctor, struct rdma_event_channel *channel,
	const char *host, struct sockaddr *address)
{
	struct rdma_cm_id *id;
	int error;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		doctor_tell(doctor, DOCTOR_PROBLEM, "route", NULL, "the connection manager: %s",
			strerror(errno));
		return;
	}
	error = doctor_resolve_rdma(channel, id, address);
	if (error)
		doctor_tell(doctor, DOCTOR_PROBLEM, "route", doctor_route_cure(error),
			"no RDMA device leads to %s: %s", host, strerror(-error));
	else
		doctor_tell_route(doctor, id);
	rdma_destroy_id(id);
}

void doctor_route(struct doctor *doctor, const char *host, uint16_t port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	struct rdma_event_channel *channel;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(host, service, &hints, &found))
		return; /* which has been told */
	channel = rdma_create_event_channel();
	if (channel) {
		doctor_route_by(doctor, channel, host, found->ai_addr);
		rdma_destroy_event_channel(channel);
	} else {
		doctor_tell(doctor, DOCTOR_PROBLEM, "route", NULL, "the connection manager: %s",
			strerror(errno));
	}
	freeaddrinfo(found);
}
