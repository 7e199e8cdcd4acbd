/* SPDX-License-Identifier: MIT */
/*
 * NVMe/RDMA, the target's I/O: commands out of receive slots, data by RDMA READ and WRITE between
 * the host's memory and the pool, responses by SEND.
 */
#include "target/transport_rdma.h"

#include <errno.h>
#include <string.h>

#include "proto/nvme/status.h"
#include "target/reactor.h"

/* --- commands ------------------------------------------------------------------------------ */

static void transport_rdma_command(struct transport_conn *tc, struct rdma_slot *slot)
{
	struct request *request = request_get(tc->conn);
	struct transport_rdma_request *rr;

	if (!request) {
		rdma_slot_put(slot);
		conn_close_for_mistake(tc->conn, "more commands than the queue holds");
		return;
	}
	rr = transport_rdma_request(request);
	rr->slot = slot;
	list_push_back(&tc->slots, &slot->node);
	memcpy(&request->cmd, slot->capsule, sizeof(request->cmd));
	request->inline_len = slot->data_len;
	request->inline_bytes = slot->data_len ? slot->data : NULL;
	request->inline_loop_buffer = rdma_slot_loop_buffer(slot);
	request_received(request);
}

void transport_rdma_received(struct rdma_ep *ep, struct rdma_slot *slot)
{
	struct transport_conn *tc = container_of(ep, struct transport_conn, ep);

	switch (tc->state) {
	case TRANSPORT_RDMA_ACCEPTED:
		/* The host is up before we are told: its commands wait. InfiniBand's connection
		 * manager is glad to hear of it: the last message of the handshake may be lost. */
		if (tc->nr_early == 0)
			(void)rdma_notify(tc->id, IBV_EVENT_COMM_EST);
		if (tc->nr_early == tc->depth) {
			rdma_slot_put(slot);
			conn_close_for_mistake(tc->conn, "more commands than the queue holds");
			return;
		}
		tc->nr_early++;
		list_push_back(&tc->early, &slot->node);
		break;
	case TRANSPORT_RDMA_ESTABLISHED:
		transport_rdma_command(tc, slot);
		break;
	case TRANSPORT_RDMA_CLOSING:
		rdma_slot_put(slot);
		break;
	}
}

void transport_rdma_take_early(struct transport_conn *tc)
{
	struct list *node;

	/* A command may close the connection, which drops those behind it. */
	while ((node = list_pop_front(&tc->early)))
		transport_rdma_command(tc, container_of(node, struct rdma_slot, node));
}

void transport_rdma_drop_early(struct transport_conn *tc)
{
	struct list *node;

	while ((node = list_pop_front(&tc->early)))
		rdma_slot_put(container_of(node, struct rdma_slot, node));
}

/* --- data ---------------------------------------------------------------------------------- */

static struct request *transport_rdma_request_of(struct rdma_op *op)
{
	struct transport_rdma_request *rr = container_of(op, struct transport_rdma_request, op);

	return (struct request *)((uintptr_t)rr - offsetof(struct request, transport));
}

/* An operation that failed is the end of its connection; the request comes back in its course. */
static void transport_rdma_failed(struct request *request)
{
	struct transport_conn *tc = request->conn->transport;

	conn_close(request->conn, "an RDMA operation failed");
	if (tc->ep.stuck)
		request_abandon_buffer(request);
	request_flushed(request);
}

static void transport_rdma_pull_ended(struct rdma_op *op, int result)
{
	struct request *request = transport_rdma_request_of(op);

	if (result)
		transport_rdma_failed(request);
	else
		request_pulled(request, 0);
}

static void transport_rdma_reply_ended(struct rdma_op *op, int result)
{
	struct request *request = transport_rdma_request_of(op);

	if (result)
		transport_rdma_failed(request);
	else
		request_sent(request);
}

static void transport_rdma_data(struct rdma_op *op, const struct request *request)
{
	struct transport_conn *tc = request->conn->transport;

	assert(request->buf && request->sgl.place == NVME_SGL_KEYED &&
		request->sgl.len >= request->data_len);
	op->pieces = request->sgl.piece;
	op->nr_pieces = request->sgl.nr;
	op->bytes = request->bytes;
	op->data_len = request->data_len;
	op->lkey = rdma_dev_buf_mr(tc->ep.dev, request->buf)->lkey;
}

void transport_rdma_pull(struct request *request)
{
	struct transport_conn *tc = request->conn->transport;
	struct rdma_op *op = &transport_rdma_request(request)->op;

	op->kind = RDMA_OP_READ;
	op->ended = transport_rdma_pull_ended;
	op->nr_sges = 0;
	transport_rdma_data(op, request);
	rdma_ep_post(&tc->ep, op);
}

/* The response lies in registered memory until its SEND completes: request slots are twice the
 * depth because the host may send the next command before that. */
static void transport_rdma_response(struct rdma_op *op, struct request *request)
{
	struct transport_conn *tc = request->conn->transport;
	struct nvme_cqe *cqe = (struct nvme_cqe *)tc->cqes.bytes + request->index;

	*cqe = request->cqe;
	op->nr_sges = 1;
	op->sge[0].addr = (uintptr_t)cqe;
	op->sge[0].length = sizeof(*cqe);
	op->sge[0].lkey = tc->cqes.mr->lkey;
	op->inline_message = tc->ep.max_inline >= sizeof(*cqe);
}

void transport_rdma_reply(struct request *request)
{
	struct transport_conn *tc = request->conn->transport;
	struct transport_rdma_request *rr = transport_rdma_request(request);
	struct rdma_op *op = &rr->op;
	bool keyed = request->data_len && request->sgl.place == NVME_SGL_KEYED;

	/* Posted before this turn's SENDs, so that the host's next command finds it. */
	list_remove(&rr->slot->node);
	rdma_slot_put(rr->slot);
	rr->slot = NULL;
	op->kind = RDMA_OP_SEND;
	op->ended = transport_rdma_reply_ended;
	op->nr_pieces = 0;
	op->data_len = 0;
	if (keyed && request->direction == REQUEST_TO_HOST && nvme_cqe_status(&request->cqe) == 0)
		transport_rdma_data(op, request);
	/* Where the device cannot, the host finds no invalidation in its completion and does it
	 * itself (NVMe RDMA 1.0 2.3.2). */
	op->invalidate = keyed && request->sgl.invalidate && rdma_dev_can_invalidate(tc->ep.dev);
	op->invalidate_key = request->sgl.invalidate_key;
	transport_rdma_response(op, request);
	rdma_ep_post(&tc->ep, op);
}
