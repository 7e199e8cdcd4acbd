/* SPDX-License-Identifier: MIT */
/*
 * NVMe/RDMA, the initiator's side of the transport: from resolving the address to the last flush.
 * While a queue pair lives the target may write to the caller's memory; so whatever fails, requests
 * come back only after the queue pair is drained and gone.
 */
#include "initiator/transport_rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/nvme/rdma.h"

/* Each of the two steps of resolving; queue.c's deadline for the whole connect is what counts. */
#define RDMA_QUEUE_RESOLVE_MS 10000
/* Linux looks whether an unknown neighbour has answered only when this time is over, so it is short
 * and tried again until the whole of the above is gone. */
#define RDMA_QUEUE_ADDRESS_MS 100

static void rdma_queue_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note);

/* --- the end ------------------------------------------------------------------------------- */

static void rdma_queue_free_parts(struct haul_transport_queue *tq)
{
	if (tq->dev)
		rdma_memory_put(tq->dev, &tq->memory);
	if (tq->id)
		rdma_destroy_id(tq->id);
	tq->id = NULL;
	if (tq->dev)
		rdma_dev_put(tq->dev);
	tq->dev = NULL;
}

/* Nothing of the queue is with a device any more. */
static void rdma_queue_ended(struct haul_transport_queue *tq)
{
	struct haul_queue *queue = tq->queue;
	bool failing = tq->state == RDMA_QUEUE_FAILING;

	if (tq->has_ep && tq->ep.stuck)
		rdma_mem_revoke(queue->hl, tq->dev);
	tq->has_ep = false;
	rdma_queue_free_parts(tq);
	tq->state = RDMA_QUEUE_CLOSED;
	if (failing) {
		haul_queue_connected(queue, tq->error, tq->why);
		return;
	}
	rdma_queue_end_requests(tq);
	haul_queue_quiesced(queue);
}

static void rdma_queue_ended_flush(struct loop_flush *flush)
{
	rdma_queue_ended(container_of(flush, struct haul_transport_queue, ended));
}

/* -> rdma_queue_ended(), never before this returns. */
static void rdma_queue_end(struct haul_transport_queue *tq)
{
	if (!tq->has_ep) {
		loop_flush_later(tq->queue->loop, &tq->ended);
		return;
	}
	(void)rdma_disconnect(tq->id);
	rdma_ep_drain(&tq->ep);
}

static void rdma_queue_fail_to_connect(
	struct haul_transport_queue *tq, int error, const char *step, const char *why)
{
	tq->state = RDMA_QUEUE_FAILING;
	tq->error = error;
	snprintf(tq->why, sizeof(tq->why), "%s: %s", step, why);
	rdma_queue_end(tq);
}

/* The queue is lost; what follows depends on how far it had come. */
static void rdma_queue_lost(struct haul_transport_queue *tq, int error, const char *why)
{
	switch (tq->state) {
	case RDMA_QUEUE_ADDRESS:
	case RDMA_QUEUE_ROUTE:
	case RDMA_QUEUE_CONNECTING:
		rdma_queue_fail_to_connect(tq, error, "RDMA connection", why);
		break;
	case RDMA_QUEUE_LIVE:
		haul_queue_failed(tq->queue, error, why);
		break;
	case RDMA_QUEUE_IDLE:
	case RDMA_QUEUE_FAILING:
	case RDMA_QUEUE_DISCONNECTING:
	case RDMA_QUEUE_CLOSED:
		break;
	}
}

static void rdma_queue_ep_failed(struct rdma_ep *ep, int result, const char *why)
{
	rdma_queue_lost(container_of(ep, struct haul_transport_queue, ep), result, why);
}

static void rdma_queue_flushed(struct rdma_ep *ep)
{
	rdma_windows_put(container_of(ep, struct haul_transport_queue, ep));
}

static void rdma_queue_drained(struct rdma_ep *ep)
{
	rdma_queue_ended(container_of(ep, struct haul_transport_queue, ep));
}

static const struct rdma_ep_ops rdma_queue_ep_ops = {
	.message = rdma_queue_answered,
	.failed = rdma_queue_ep_failed,
	.flushed = rdma_queue_flushed,
	.drained = rdma_queue_drained,
};

static void rdma_queue_disconnect(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;

	tq->state = RDMA_QUEUE_DISCONNECTING;
	rdma_queue_end(tq);
}

/* --- connecting ---------------------------------------------------------------------------- */

/* Registered memory for capsules and responses, and a receive for each response that can come. */
static int rdma_queue_get_memory(struct haul_transport_queue *tq)
{
	struct haul_queue *queue = tq->queue;
	size_t capsules = (size_t)queue->depth * RDMA_CAPSULE_BYTES;
	size_t bytes = capsules + (queue->depth + (size_t)1) * sizeof(struct nvme_cqe);
	int result = rdma_memory_get(tq->ep.dev, bytes, &tq->memory);
	uint32_t i;

	if (result)
		return result;
	for (i = 0; i <= queue->depth; i++) {
		tq->recvs[i].bytes =
			(unsigned char *)tq->memory.bytes + capsules + i * sizeof(struct nvme_cqe);
		tq->recvs[i].length = sizeof(struct nvme_cqe);
		tq->recvs[i].lkey = tq->memory.mr->lkey;
		rdma_ep_receive(&tq->ep, &tq->recvs[i]);
	}
	return 0;
}

/* As deep as asked for, or as the device can. */
static void rdma_queue_limit_depth(struct haul_queue *queue, const struct rdma_dev *dev)
{
	uint32_t max_wr = (uint32_t)max_of(dev->attr.max_qp_wr, RDMA_EP_MIN_SENDS + 1);

	queue->depth = min_of(queue->depth, max_wr - 1);
}

static int rdma_queue_make_ep(struct haul_transport_queue *tq)
{
	struct rdma_ep_params params = {
		.nr_sges = RDMA_WR_SGES,
		.inline_bytes = sizeof(struct nvme_cmd),
	};
	int result;

	rdma_queue_limit_depth(tq->queue, tq->dev);
	/* With a key per command: bind, send, invalidate. What does not fit waits its turn. */
	params.nr_sends = tq->queue->depth * (tq->queue->key_per_io ? 3 : 1) + RDMA_EP_MIN_SENDS;
	params.nr_recvs = tq->queue->depth + 1;
	result = rdma_ep_create(&tq->ep, &rdma_queue_ep_ops, tq->dev, tq->id, &params);
	if (result)
		return result;
	tq->has_ep = true;
	result = rdma_windows_get(tq);
	return result ? result : rdma_queue_get_memory(tq);
}

static int rdma_queue_send_request(struct haul_transport_queue *tq)
{
	const struct haul_queue *queue = tq->queue;
	/* HSQSIZE is 0's based, HRQSIZE is a count (NVMe RDMA 1.0 3.3.1). */
	struct nvme_rdma_cm_req req = {
		.recfmt = le16(NVME_RDMA_CM_RECFMT),
		.qid = le16(queue->qid),
		.hrqsize = le16((uint16_t)(queue->depth + 1)),
		.hsqsize = le16((uint16_t)queue->depth),
	};
	struct rdma_conn_param param = {
		.private_data = &req,
		.private_data_len = sizeof(req),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	/* The READs the target may have out: as many as the device serves. */
	param.responder_resources = (uint8_t)min_of(tq->ep.dev->attr.max_qp_rd_atom, UINT8_MAX);
	return rdma_connect(tq->id, &param) ? -errno : 0;
}

/* A region of the pool, and some queues' capsules. */
#define RDMA_QUEUE_LOCKED_MIB 4u
#define RDMA_QUEUE_HINT_BYTES 160

/* TEXT may be used for it. */
static const char *rdma_queue_hint(int error, char text[RDMA_QUEUE_HINT_BYTES])
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	if (error == -EOPNOTSUPP)
		return "the device has no memory windows of type 2: keys=io cannot be had";
	if (error == -ENOSPC)
		return "the device has no room for another queue of this depth";
	if (error != -ENOMEM && error != -EPERM)
		return strerror(-error);
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		return "out of memory";
	snprintf(text, RDMA_QUEUE_HINT_BYTES,
		"out of memory; locked memory is limited to %llu KiB, %u MiB beside your own are "
		"needed: raise it with ulimit -l or memlock in limits.conf",
		(unsigned long long)limit.rlim_cur >> 10, RDMA_QUEUE_LOCKED_MIB);
	return text;
}

static void rdma_queue_route_resolved(struct haul_transport_queue *tq)
{
	struct haul_transport_loop *tl = tq->queue->hl->transport_loop[HAUL_TRANSPORT_RDMA];
	char hint[RDMA_QUEUE_HINT_BYTES];
	int result = rdma_dev_get(&tl->rdma.devs, tq->id->verbs, &tq->dev);

	if (result)
		tq->dev = NULL;
	else
		result = rdma_queue_make_ep(tq);
	if (!result)
		result = rdma_queue_send_request(tq);
	if (result) {
		rdma_queue_fail_to_connect(
			tq, result, "RDMA queue pair", rdma_queue_hint(result, hint));
		return;
	}
	tq->state = RDMA_QUEUE_CONNECTING;
}

static void rdma_queue_address_resolved(struct haul_transport_queue *tq)
{
	uint8_t tos = (uint8_t)tq->queue->tos;

	tq->state = RDMA_QUEUE_ROUTE;
	if (tos)
		(void)rdma_set_option(
			tq->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	if (rdma_resolve_route(tq->id, RDMA_QUEUE_RESOLVE_MS))
		rdma_queue_fail_to_connect(tq, -errno, "RDMA route", strerror(errno));
}

static void rdma_queue_established(struct haul_transport_queue *tq, const struct rdma_cm_note *note)
{
	const struct nvme_rdma_cm_accept *accept = (const void *)note->private_data;

	if (note->private_len < sizeof(*accept) ||
		le16_get(accept->recfmt) != NVME_RDMA_CM_RECFMT) {
		rdma_queue_fail_to_connect(tq, -EPROTO, "RDMA connection",
			"the answer's private data are not those of an NVMe/RDMA target");
		return;
	}
	/* Connect's SQSIZE must stay what HSQSIZE said. A target with fewer receives than that
	 * makes the device retry until there is one. */
	tq->state = RDMA_QUEUE_LIVE;
	rdma_ep_established(&tq->ep, 0);
	haul_queue_connected(tq->queue, 0, NULL);
}

/* An NVMe/RDMA target says why; otherwise the fabric does: there is nobody who listens. */
static void rdma_queue_rejected(struct haul_transport_queue *tq, const struct rdma_cm_note *note)
{
	const struct nvme_rdma_cm_reject *reject = (const void *)note->private_data;

	if (note->private_len >= sizeof(*reject) && le16_get(reject->sts) != NVME_RDMA_CM_OK &&
		le16_get(reject->recfmt) == NVME_RDMA_CM_RECFMT)
		rdma_queue_fail_to_connect(tq, -ECONNREFUSED, "the target rejects the connection",
			nvme_rdma_cm_status_str(le16_get(reject->sts)));
	else
		rdma_queue_fail_to_connect(tq, -ECONNREFUSED, "RDMA connection",
			"refused; does an NVMe/RDMA target listen at this address and port?");
}

static void rdma_queue_note_error(struct haul_transport_queue *tq, const struct rdma_cm_note *note,
	int error, const char *why)
{
	/* Status is a negative errno, or a number of the fabric's own. */
	if (note->status < 0 && note->status > -4096)
		error = note->status;
	rdma_queue_lost(tq, error, why);
}

static const char rdma_queue_no_device[] =
	"no RDMA device leads to this address; see rdma link show";

static void rdma_queue_resolve_address(struct haul_transport_queue *tq)
{
	if (rdma_resolve_addr(
		    tq->id, NULL, (struct sockaddr *)&tq->queue->address, RDMA_QUEUE_ADDRESS_MS))
		rdma_queue_fail_to_connect(tq, -errno, "RDMA address",
			errno == ENODEV ? rdma_queue_no_device : strerror(errno));
}

/* True if the neighbour may still answer: the address is asked for again. */
static bool rdma_queue_address_late(
	struct haul_transport_queue *tq, const struct rdma_cm_note *note)
{
	if (tq->state != RDMA_QUEUE_ADDRESS || note->status != -ETIMEDOUT ||
		++tq->nr_late * RDMA_QUEUE_ADDRESS_MS >= RDMA_QUEUE_RESOLVE_MS)
		return false;
	rdma_queue_resolve_address(tq);
	return true;
}

static void rdma_queue_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note)
{
	struct haul_transport_queue *tq = container_of(owner, struct haul_transport_queue, owner);

	switch (note->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (tq->state == RDMA_QUEUE_ADDRESS)
			rdma_queue_address_resolved(tq);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (tq->state == RDMA_QUEUE_ROUTE)
			rdma_queue_route_resolved(tq);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (tq->state == RDMA_QUEUE_CONNECTING)
			rdma_queue_established(tq, note);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (tq->state == RDMA_QUEUE_CONNECTING)
			rdma_queue_rejected(tq, note);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		if (rdma_queue_address_late(tq, note))
			break;
		rdma_queue_note_error(tq, note, -EHOSTUNREACH, rdma_queue_no_device);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		rdma_queue_note_error(tq, note, -EHOSTUNREACH, "no route to this address");
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		rdma_queue_note_error(tq, note, -EHOSTUNREACH, "the target does not answer");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_queue_lost(tq, -ECONNRESET, "the target has disconnected");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		rdma_queue_lost(tq, -ENODEV, "the RDMA device is being removed");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		rdma_queue_lost(tq, -EPROTO, "an unexpected event of the connection manager");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		break;
	}
}

static void rdma_queue_connect(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;
	struct haul_transport_loop *tl = queue->hl->transport_loop[HAUL_TRANSPORT_RDMA];

	tq->state = RDMA_QUEUE_ADDRESS;
	tq->nr_late = 0;
	if (tl->key_per_io != queue->key_per_io) {
		rdma_queue_fail_to_connect(tq, -EBUSY, "RDMA memory",
			tl->key_per_io ? "this loop has it registered for keys=io"
				       : "this loop has it registered for keys=region");
		return;
	}
	if (rdma_create_id(tl->rdma.cm->channel, &tq->id, &tq->owner, RDMA_PS_TCP)) {
		tq->id = NULL;
		rdma_queue_fail_to_connect(tq, -errno, "RDMA connection manager", strerror(errno));
		return;
	}
	rdma_queue_resolve_address(tq);
}

/* --- life ---------------------------------------------------------------------------------- */

/* The first queue decides on the keys, for as long as the loop lives. */
static int rdma_queue_loop_get(struct haul_loop *hl, bool key_per_io)
{
	struct haul_transport_loop *tl;
	int result;

	if (hl->transport_loop[HAUL_TRANSPORT_RDMA])
		return 0;
	tl = calloc(1, sizeof(*tl));
	if (!tl)
		return -ENOMEM;
	result = rdma_loop_init(&tl->rdma, hl->loop, hl->pool, rdma_mem_access(key_per_io));
	if (result) {
		free(tl);
		return result;
	}
	tl->hl = hl;
	tl->key_per_io = key_per_io;
	tl->rdma.devs.added = rdma_mem_dev_added;
	tl->rdma.devs.removed = rdma_mem_dev_removed;
	tl->rdma.devs.nr_doorbells = &hl->stats.nr_doorbells;
	hl->transport_loop[HAUL_TRANSPORT_RDMA] = tl;
	return 0;
}

static void rdma_queue_loop_free(struct haul_loop *hl)
{
	struct haul_transport_loop *tl = hl->transport_loop[HAUL_TRANSPORT_RDMA];

	if (!tl)
		return;
	rdma_loop_destroy(&tl->rdma);
	free(tl);
	hl->transport_loop[HAUL_TRANSPORT_RDMA] = NULL;
}

static int rdma_queue_alloc(struct haul_queue *queue)
{
	struct haul_transport_queue *tq;
	int result = rdma_queue_loop_get(queue->hl, queue->key_per_io);

	if (result)
		return result;
	tq = calloc(1, sizeof(*tq));
	if (!tq)
		return -ENOMEM;
	tq->recvs = calloc(queue->depth + 1, sizeof(*tq->recvs));
	if (!tq->recvs) {
		free(tq);
		return -ENOMEM;
	}
	tq->queue = queue;
	tq->owner.event = rdma_queue_event;
	loop_flush_init(&tq->ended, rdma_queue_ended_flush);
	queue->transport = tq;
	return 0;
}

static void rdma_queue_free(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;

	if (!tq)
		return;
	assert(!tq->has_ep && !tq->id);
	loop_flush_cancel(&tq->ended);
	free(tq->recvs);
	free(tq);
	queue->transport = NULL;
}

const struct haul_transport_ops haul_transport_rdma_ops = {
	.name = "rdma",
	.trtype = NVME_TRTYPE_RDMA,
	.alloc = rdma_queue_alloc,
	.connect = rdma_queue_connect,
	.submit = rdma_queue_submit,
	.disconnect = rdma_queue_disconnect,
	.free = rdma_queue_free,
	.mem_register = rdma_mem_register,
	.mem_unregister = rdma_mem_unregister,
	.free_loop = rdma_queue_loop_free,
};
