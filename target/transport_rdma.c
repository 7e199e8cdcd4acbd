/* SPDX-License-Identifier: MIT */
/*
 * NVMe/RDMA, the target's side of the transport: listeners, what a reactor keeps, the table.
 */
#include "target/transport_rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/rdma.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/target.h"

#define TRANSPORT_RDMA_BACKLOG	       128
/* Admin queues: the least a target must take (NVMe-oF 1.1 5.3: 32 entries), and all Linux asks. */
#define TRANSPORT_RDMA_MAX_ADMIN_DEPTH 128

/* Of a listener's URI. */
enum transport_rdma_option {
	TRANSPORT_RDMA_OPTION_TOS = NR_TRANSPORT_LIMITS,
	NR_TRANSPORT_RDMA_OPTIONS
};
static_assert((int)NR_TRANSPORT_RDMA_OPTIONS <= PORT_MAX_OPTIONS);

/* --- what a reactor keeps ------------------------------------------------------------------ */

int transport_rdma_state(struct reactor *reactor, struct transport_state **ret)
{
	struct transport_state *state = reactor->transport_state[TRANSPORT_RDMA];
	int result;

	if (state) {
		*ret = state;
		return 0;
	}
	state = calloc(1, sizeof(*state));
	if (!state)
		return -ENOMEM;
	/* The pool is written by our own READs only. */
	result = rdma_loop_init(&state->rdma, reactor->loop, reactor->pool, IBV_ACCESS_LOCAL_WRITE);
	if (result) {
		free(state);
		return result;
	}
	state->rdma.devs.comp_vector = reactor->index;
	list_init(&state->ports);
	reactor->transport_state[TRANSPORT_RDMA] = state;
	*ret = state;
	return 0;
}

static uint32_t transport_rdma_receives_left(const struct reactor *reactor)
{
	const struct transport_state *state = reactor->transport_state[TRANSPORT_RDMA];
	const struct rdma_dev *dev;
	uint32_t left = 0;

	if (!state)
		return 0;
	list_for_each_entry (dev, &state->rdma.devs.list, node)
		left = max_of(left, rdma_srq_most_left(dev));
	return left;
}

static void transport_rdma_free_state(struct reactor *reactor)
{
	struct transport_state *state = reactor->transport_state[TRANSPORT_RDMA];
	struct transport_port *tp;
	struct list *node;

	if (!state)
		return;
	while ((node = list_pop_front(&state->ports))) {
		tp = container_of(node, struct transport_port, node);
		rdma_cm_destroy(tp->cm, &state->rdma.devs.nr_closing);
		free(tp);
	}
	rdma_loop_destroy(&state->rdma);
	free(state);
	reactor->transport_state[TRANSPORT_RDMA] = NULL;
}

/* --- listeners ----------------------------------------------------------------------------- */

static void transport_rdma_refuse(struct transport_handover *handover)
{
	struct transport_rdma_handover *rh = transport_rdma_handover(handover);

	transport_rdma_reject(rh->id, NVME_RDMA_CM_NO_RESOURCES);
	free(rh);
}

static void transport_rdma_requested(struct transport_port *tp, const struct rdma_cm_note *note)
{
	const struct nvme_rdma_cm_limits limits = {.max_qid = CTRL_MAX_IO_QUEUES,
		.max_admin_depth = TRANSPORT_RDMA_MAX_ADMIN_DEPTH,
		.max_io_depth = tp->port->option[TRANSPORT_MAX_QUEUE_SIZE]};
	struct transport_rdma_handover *rh;
	struct nvme_rdma_cm_params params;
	uint16_t status;

	status = (uint16_t)nvme_rdma_cm_req_check(
		note->private_data, note->private_len, &limits, &params);
	rh = status ? NULL : calloc(1, sizeof(*rh));
	if (!rh) {
		status = status ? status : NVME_RDMA_CM_NO_RESOURCES;
		log_line_limited(&tp->limit, loop_now_ns(tp->port->reactor->loop),
			LOG_LEVEL_WARNING, "rdma: a connection request is rejected: %s",
			nvme_rdma_cm_status_str(status));
		transport_rdma_reject(note->id, status);
		return;
	}
	memcpy(&rh->base.peer, rdma_get_peer_addr(note->id), sizeof(rh->base.peer));
	rh->id = note->id;
	rh->params = params;
	rh->initiator_depth = note->initiator_depth;
	rh->responder_resources = note->responder_resources;
	conn_accept(tp->port, &rh->base);
}

static void transport_rdma_port_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note)
{
	struct transport_port *tp = container_of(owner, struct transport_port, owner);

	if (note->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		transport_rdma_requested(tp, note);
	else if (note->id != tp->id)
		/* Of a connection on its way to its reactor, which has its own deadline. */
		log_debug("rdma: a new connection: %s", rdma_event_str(note->type));
	else if (note->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		log_error("rdma: the device of a listener is being removed");
	else
		log_debug("rdma: listener: %s", rdma_event_str(note->type));
}

static int transport_rdma_bind(struct rdma_cm_id *id, const struct port *port)
{
	struct sockaddr_storage address = port->address;
	uint8_t tos = (uint8_t)port->option[TRANSPORT_RDMA_OPTION_TOS];
	int on = 1;

	(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
	if (port->ipv6_only)
		(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on));
	if (tos)
		(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	if (rdma_bind_addr(id, (struct sockaddr *)&address))
		return -errno;
	return rdma_listen(id, TRANSPORT_RDMA_BACKLOG) ? -errno : 0;
}

static void transport_rdma_port_number(struct port *port, struct rdma_cm_id *id)
{
	if (port->address.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&port->address)->sin6_port = rdma_get_src_port(id);
	else
		((struct sockaddr_in *)&port->address)->sin_port = rdma_get_src_port(id);
}

static const char *transport_rdma_listen_hint(int error)
{
	switch (error) {
	case ENODEV:
	case EADDRNOTAVAIL:
		return ": no RDMA device has this address; see rdma link show";
	case EADDRINUSE:
		return ": another listener has this address and port";
	case ENOENT:
		return ": the kernel's RDMA connection manager is missing; try modprobe rdma_ucm";
	default:
		return "";
	}
}

static int transport_rdma_try_listen(struct transport_port *tp)
{
	int result;

	if (rdma_create_id(tp->cm->channel, &tp->id, &tp->owner, RDMA_PS_TCP))
		return -errno;
	result = transport_rdma_bind(tp->id, tp->port);
	if (result) {
		rdma_destroy_id(tp->id);
		tp->id = NULL;
	}
	return result;
}

/* A wildcard of IPv6 takes IPv4, too, unless that has a listener of its own. */
static int transport_rdma_listen_id(struct transport_port *tp)
{
	int result = transport_rdma_try_listen(tp);

	if (tp->port->address.ss_family != AF_INET6 ||
		(result != -EADDRINUSE && result != -EADDRNOTAVAIL))
		return result;
	tp->port->ipv6_only = true;
	return transport_rdma_try_listen(tp);
}

/* One that has listened before may have its channel still. */
static int transport_rdma_make_port(struct port *port)
{
	struct transport_state *state;
	struct transport_port *tp;
	int result;

	if (port->transport)
		return 0;
	result = transport_rdma_state(port->reactor, &state);
	if (result)
		return result;
	tp = calloc(1, sizeof(*tp));
	if (!tp)
		return -ENOMEM;
	result = rdma_cm_create(port->reactor->loop, &tp->cm);
	if (result) {
		free(tp);
		return result;
	}
	tp->port = port;
	tp->owner.event = transport_rdma_port_event;
	list_init(&tp->node);
	list_push_back(&state->ports, &tp->node);
	port->transport = tp;
	return 0;
}

static int transport_rdma_listen(struct port *port, char *why, size_t why_size)
{
	int result = transport_rdma_make_port(port);
	char text[PORT_TEXT];

	if (!result)
		result = transport_rdma_listen_id(port->transport);
	if (!result) {
		transport_rdma_port_number(port, port->transport->id);
		return 0;
	}
	port_describe(port, text);
	snprintf(why, why_size, "cannot listen at %s: %s%s", text, strerror(-result),
		transport_rdma_listen_hint(-result));
	return result;
}

/* New ids may be on their way to other reactors and still need the channel they came from: it stays
 * until no connection is left. */
static void transport_rdma_unlisten(struct port *port)
{
	struct transport_port *tp = port->transport;

	if (!tp || !tp->id)
		return;
	rdma_destroy_id(tp->id);
	tp->id = NULL;
}

static void transport_rdma_forget(struct port *port)
{
	struct transport_port *tp = port->transport;
	struct transport_state *state;

	if (!tp)
		return;
	state = port->reactor->transport_state[TRANSPORT_RDMA];
	port->transport = NULL;
	list_remove(&tp->node);
	rdma_cm_destroy(tp->cm, &state->rdma.devs.nr_closing);
	free(tp);
}

static const struct transport_option transport_rdma_options[NR_TRANSPORT_RDMA_OPTIONS] = {
	[TRANSPORT_MAX_QUEUE_SIZE] = {.key = "max_queue_size",
		.kind = TRANSPORT_NUMBER,
		.unless_given = TRANSPORT_RDMA_MAX_DEPTH,
		.min = 2,
		.max = TRANSPORT_RDMA_MAX_DEPTH,
		.right = "a number from 2 to 1024"},
	[TRANSPORT_IN_CAPSULE] = {.key = "in_capsule",
		.kind = TRANSPORT_SIZE,
		.unless_given = TRANSPORT_RDMA_IN_CAPSULE,
		.max = TRANSPORT_RDMA_MAX_IN_CAPSULE,
		.step = RDMA_SLOT_PAGE,
		.right = "0, 4K, 8K, 12K or 16K"},
	[TRANSPORT_MDTS] = TRANSPORT_OPTION_MDTS,
	[TRANSPORT_RDMA_OPTION_TOS] = {.key = "tos",
		.kind = TRANSPORT_NUMBER,
		.max = UINT8_MAX,
		.right = "a number from 0 to 255"},
};

const struct transport_ops transport_rdma_ops = {
	.name = "rdma",
	.trtype = NVME_TRTYPE_RDMA,
	.sgls = NVME_ID_SGLS_SUPPORTED | NVME_ID_SGLS_KEYED | NVME_ID_SGLS_OFFSET,
	.msdbd = NVME_SGL_MAX_PIECES,
	.msdbd_in_capsule = TRANSPORT_RDMA_IN_CAPSULE,
	.max_admin_depth = TRANSPORT_RDMA_MAX_ADMIN_DEPTH,
	.options = transport_rdma_options,
	.nr_options = NR_TRANSPORT_RDMA_OPTIONS,
	.listen = transport_rdma_listen,
	.unlisten = transport_rdma_unlisten,
	.forget = transport_rdma_forget,
	.refuse = transport_rdma_refuse,
	.start = transport_rdma_start,
	.pull = transport_rdma_pull,
	.reply = transport_rdma_reply,
	.close = transport_rdma_close,
	.free = transport_rdma_free,
	.receives_left = transport_rdma_receives_left,
	.free_state = transport_rdma_free_state,
};
