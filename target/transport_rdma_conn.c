/* SPDX-License-Identifier: MIT */
/*
 * NVMe/RDMA, the target's connections: from the connection request to the last flush.
 */
#include "target/transport_rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/nvme/rdma.h"
#include "target/reactor.h"
#include "target/share.h"

static void transport_rdma_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note);

void transport_rdma_reject(struct rdma_cm_id *id, uint16_t status)
{
	struct nvme_rdma_cm_reject reject = {
		.recfmt = le16(NVME_RDMA_CM_RECFMT), .sts = le16(status)};

	/* A host that is gone already needs no answer. */
	(void)rdma_reject(id, &reject, sizeof(reject));
	rdma_destroy_id(id);
}

/* --- the endpoint's events ----------------------------------------------------------------- */

static void transport_rdma_ep_failed(struct rdma_ep *ep, int result, const char *why)
{
	struct transport_conn *tc = container_of(ep, struct transport_conn, ep);

	if (result == -EPROTO)
		conn_close_for_mistake(tc->conn, why);
	else
		conn_close(tc->conn, why);
}

static void transport_rdma_drained(struct rdma_ep *ep)
{
	struct transport_conn *tc = container_of(ep, struct transport_conn, ep);

	conn_quiesced(tc->conn);
}

static const struct rdma_ep_ops transport_rdma_ep_ops = {
	.received = transport_rdma_received,
	.failed = transport_rdma_ep_failed,
	.drained = transport_rdma_drained,
};

/* --- the beginning ------------------------------------------------------------------------- */

/* Of what is out at once most has one or two work requests; what does not fit waits its turn. */
static int transport_rdma_ep_make(struct transport_conn *tc, struct rdma_dev *dev)
{
	const struct rdma_ep_params params = {
		.nr_sends = tc->depth + tc->max_reads + RDMA_EP_MIN_SENDS,
		.srq = tc->srq,
		.nr_sges = 1,
		.inline_bytes = sizeof(struct nvme_cqe),
	};

	return rdma_ep_create(&tc->ep, &transport_rdma_ep_ops, dev, tc->id, &params);
}

static int transport_rdma_accept(
	struct transport_conn *tc, const struct transport_rdma_handover *handover)
{
	const struct nvme_rdma_cm_accept accept = {
		.recfmt = le16(NVME_RDMA_CM_RECFMT), .crqsize = le16((uint16_t)tc->depth)};
	struct rdma_conn_param param = {
		.private_data = &accept,
		.private_data_len = sizeof(accept),
		.initiator_depth = (uint8_t)tc->max_reads,
		.flow_control = 1,
		.retry_count = 7,
		/* For ever, so that a host may be late; who never posts a receive is ended by
		 * the core, for whom the reply is still on its way. */
		.rnr_retry_count = 7,
	};

	/* We serve no READs; what the host asks for is granted as far as the device can. */
	param.responder_resources = (uint8_t)min_of(
		(int)handover->responder_resources, tc->ep.dev->attr.max_qp_rd_atom);
	return rdma_accept(tc->id, &param) ? -errno : 0;
}

/* How many READs we may have out: what the host serves and what the device can. */
static uint32_t transport_rdma_max_reads(
	const struct rdma_dev *dev, const struct transport_rdma_handover *handover)
{
	uint32_t device = (uint32_t)max_of(dev->attr.max_qp_init_rd_atom, 0);

	return min_of(device, (uint32_t)handover->initiator_depth);
}

/* Of slots with room for what the listener lets capsules bring. */
static int transport_rdma_choose_srq(struct transport_conn *tc, struct rdma_dev *dev)
{
	uint32_t in_capsule = tc->conn->port->option[TRANSPORT_IN_CAPSULE];
	uint32_t max_slots =
		TRANSPORT_RDMA_MAX_MEMORY / max_of(in_capsule, (uint32_t)RDMA_SLOT_PAGE);
	int result;

	max_slots = min_of(max_slots, (uint32_t)TRANSPORT_RDMA_MAX_SLOTS);
	result = rdma_srq_get(dev, in_capsule, max_slots, &tc->srq);
	if (result)
		log_line_limited(&dev->devs->limit, loop_now_ns(tc->conn->reactor->loop),
			LOG_LEVEL_ERROR, "rdma: %s has no shared receive queue for us: %s",
			rdma_dev_name(dev), strerror(-result));
	return result;
}

/* The receives are the host's as far as its share goes. */
static int transport_rdma_admit(struct transport_conn *tc)
{
	struct share *share = tc->conn->share;
	uint32_t left = rdma_srq_left(tc->srq);
	int result;

	if (!share_may_take(share->nr_receives, tc->depth, left)) {
		share_log_refusal(share, "RDMA receives", share->nr_receives, left);
		return -ENOSPC;
	}
	result = rdma_srq_admit(tc->srq, tc->depth);
	if (!result)
		share->nr_receives += tc->depth;
	return result;
}

static void transport_rdma_release(struct transport_conn *tc)
{
	rdma_srq_release(tc->srq, tc->depth);
	tc->conn->share->nr_receives -= tc->depth;
}

/* All that the queue needs of DEV, and DEV, or nothing. *RET_STATUS is the reject's. */
static int transport_rdma_make(struct transport_conn *tc, struct rdma_dev *dev,
	struct transport_state *state, const struct transport_rdma_handover *handover,
	uint16_t *ret_status)
{
	int result;

	*ret_status = NVME_RDMA_CM_NO_RESOURCES;
	tc->max_reads = transport_rdma_max_reads(dev, handover);
	if (tc->max_reads == 0) {
		*ret_status = NVME_RDMA_CM_INVALID_IRD;
		result = -EINVAL;
		goto put_dev;
	}
	result = transport_rdma_choose_srq(tc, dev);
	if (!result)
		result = transport_rdma_admit(tc);
	if (result)
		goto put_dev;
	/* Request slots are twice the depth. */
	result = rdma_memory_get(dev, 2 * tc->depth * sizeof(struct nvme_cqe), &tc->cqes);
	if (result)
		goto release;
	result = rdma_cm_adopt(state->rdma.cm, tc->id, &tc->owner);
	if (result)
		goto put_cqes;
	result = transport_rdma_ep_make(tc, dev);
	if (result)
		goto put_cqes;
	result = conn_set_depth(tc->conn, tc->depth);
	if (!result)
		result = transport_rdma_accept(tc, handover);
	if (result)
		goto abort_ep;
	return 0;

abort_ep:
	rdma_ep_abort(&tc->ep);
put_cqes:
	rdma_memory_put(dev, &tc->cqes);
release:
	transport_rdma_release(tc);
put_dev:
	rdma_dev_put(dev);
	return result;
}

static struct transport_conn *transport_rdma_conn_alloc(
	struct conn *conn, const struct transport_rdma_handover *handover)
{
	struct transport_conn *tc = calloc(1, sizeof(*tc));

	if (!tc)
		return NULL;
	tc->conn = conn;
	tc->id = handover->id;
	tc->owner.event = transport_rdma_event;
	tc->depth = (uint32_t)handover->params.sqsize + 1;
	list_init(&tc->early);
	list_init(&tc->slots);
	conn->expected_qid = handover->params.qid;
	conn->expected_depth = tc->depth;
	return tc;
}

/* What is there before the id belongs to anybody. */
static int transport_rdma_prepare(struct conn *conn, const struct transport_rdma_handover *handover,
	struct transport_state **ret_state, struct rdma_dev **ret_dev)
{
	struct rdma_cm_id *id = handover->id;
	int result = transport_rdma_state(conn->reactor, ret_state);

	if (result)
		return result;
	memcpy(&conn->local, rdma_get_local_addr(id), sizeof(conn->local));
	result = rdma_dev_get(&(*ret_state)->rdma.devs, id->verbs, ret_dev);
	if (result)
		return result;
	conn->transport = transport_rdma_conn_alloc(conn, handover);
	if (conn->transport)
		return 0;
	rdma_dev_put(*ret_dev);
	return -ENOMEM;
}

int transport_rdma_start(struct conn *conn, struct transport_handover *handover)
{
	struct transport_rdma_handover *rh = transport_rdma_handover(handover);
	uint16_t status = NVME_RDMA_CM_NO_RESOURCES;
	struct transport_state *state;
	struct rdma_dev *dev;
	int result = transport_rdma_prepare(conn, rh, &state, &dev);

	if (!result)
		result = transport_rdma_make(conn->transport, dev, state, rh, &status);
	if (result) {
		log_line_limited(share_log_limit(conn->share), loop_now_ns(conn->reactor->loop),
			LOG_LEVEL_WARNING, "rdma: connection %llu is refused (%s): %s",
			(unsigned long long)conn->number, nvme_rdma_cm_status_str(status),
			strerror(-result));
		free(conn->transport);
		conn->transport = NULL;
		transport_rdma_reject(rh->id, status);
	}
	free(rh);
	return result;
}

static void transport_rdma_established(struct transport_conn *tc)
{
	if (tc->state != TRANSPORT_RDMA_ACCEPTED)
		return;
	tc->state = TRANSPORT_RDMA_ESTABLISHED;
	rdma_ep_established(&tc->ep, tc->max_reads);
	transport_rdma_take_early(tc);
}

/* --- the connection manager's events ------------------------------------------------------- */

static void transport_rdma_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note)
{
	struct transport_conn *tc = container_of(owner, struct transport_conn, owner);

	switch (note->type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		transport_rdma_established(tc);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		conn_close(tc->conn, "the host has disconnected");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn_close(tc->conn, "the RDMA device is being removed");
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		conn_close(tc->conn, "the host did not finish connecting");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		log_debug("rdma: connection %llu: %s", (unsigned long long)tc->conn->number,
			rdma_event_str(note->type));
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		conn_close(tc->conn, "an event of the connection manager that has no place here");
		break;
	}
}

/* --- the end ------------------------------------------------------------------------------- */

void transport_rdma_close(struct conn *conn)
{
	struct transport_conn *tc = conn->transport;

	tc->state = TRANSPORT_RDMA_CLOSING;
	transport_rdma_drop_early(tc);
	/* Says good-bye, where there is somebody to hear it; the drain does not depend on it. */
	(void)rdma_disconnect(tc->id);
	rdma_ep_drain(&tc->ep);
}

void transport_rdma_free(struct conn *conn)
{
	struct transport_conn *tc = conn->transport;
	struct list *node;

	/* Of requests that a backend held to the end. */
	while ((node = list_pop_front(&tc->slots)))
		rdma_slot_put(container_of(node, struct rdma_slot, node));
	rdma_memory_put(tc->ep.dev, &tc->cqes);
	transport_rdma_release(tc);
	rdma_dev_put(tc->ep.dev);
	rdma_destroy_id(tc->id);
	free(tc);
	conn->transport = NULL;
}
