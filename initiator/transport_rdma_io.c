/* SPDX-License-Identifier: MIT */
/*
 * NVMe/RDMA, the initiator's I/O: commands in registered capsules, data described by keyed
 * descriptors or sent in the capsule, responses in receives. The target moves the data itself; a
 * request is done when both its SEND and its response are in, in either order.
 */
#include <errno.h>
#include <string.h>

#include "initiator/transport_rdma.h"

static struct haul_request *rdma_request_owner(struct rdma_request *rr)
{
	return (struct haul_request *)((uintptr_t)rr - offsetof(struct haul_request, transport));
}

/* --- data ---------------------------------------------------------------------------------- */

/* One more stretch; what continues the last one is merged with it, as far as the 24-bit length of a
 * descriptor goes. False when there are more than MAX. */
static bool rdma_map_add(
	struct rdma_map *map, uintptr_t addr, size_t len, struct ibv_mr *mr, uint32_t max)
{
	uint32_t room, step;

	while (len) {
		room = 0;
		if (map->nr && map->piece[map->nr - 1].mr == mr &&
			map->piece[map->nr - 1].addr + map->piece[map->nr - 1].len == addr)
			room = NVME_SGL_KEYED_LEN_MAX - map->piece[map->nr - 1].len;
		if (!room) {
			if (map->nr == max)
				return false;
			map->piece[map->nr].addr = addr;
			map->piece[map->nr].len = 0;
			map->piece[map->nr].mr = mr;
			map->nr++;
			room = NVME_SGL_KEYED_LEN_MAX;
		}
		step = (uint32_t)min_of(len, (size_t)room);
		map->piece[map->nr - 1].len += step;
		addr += step;
		len -= step;
	}
	return true;
}

/* False when some of it is not registered, or it takes more than MAX stretches. */
static bool rdma_map_request(const struct haul_transport_queue *tq,
	const struct haul_request *request, uint32_t max, struct rdma_map *ret)
{
	const struct iovec *iov;
	struct haul_mem *mem;
	struct ibv_mr *mr;

	ret->nr = 0;
	for (iov = request->iov; iov < request->iov + request->nr_iov; iov++) {
		mem = haul_mem_find(tq->queue->hl, iov->iov_base, iov->iov_len);
		mr = mem ? rdma_mem_mr(mem, tq->ep.dev) : NULL;
		if (!mr || !rdma_map_add(ret, (uintptr_t)iov->iov_base, iov->iov_len, mr, max))
			return false;
	}
	return true;
}

static void rdma_bounce_fill(const struct haul_request *request, unsigned char *bytes)
{
	const struct iovec *iov;

	for (iov = request->iov; iov < request->iov + request->nr_iov; iov++) {
		memcpy(bytes, iov->iov_base, iov->iov_len);
		bytes += iov->iov_len;
	}
}

static void rdma_bounce_drain(const struct haul_request *request, const unsigned char *bytes)
{
	const struct iovec *iov;

	for (iov = request->iov; iov < request->iov + request->nr_iov; iov++) {
		memcpy(iov->iov_base, bytes, iov->iov_len);
		bytes += iov->iov_len;
	}
}

static void rdma_bounce_put(struct haul_request *request)
{
	struct rdma_request *rr = rdma_request(request);

	if (rr->waiting)
		bufpool_wait_cancel(request->queue->pool, &rr->wait);
	rr->waiting = false;
	if (rr->bounce && request->queue->transport->ep.stuck)
		bufpool_abandon(request->queue->pool, rr->bounce);
	else if (rr->bounce)
		bufpool_put(request->queue->pool, rr->bounce);
	rr->bounce = NULL;
}

/* --- the end of a request ------------------------------------------------------------------ */

static void rdma_request_finish(struct haul_request *request)
{
	struct rdma_request *rr = rdma_request(request);

	if (rr->nr_lent)
		rdma_windows_give_back(request->queue->transport, rr);
	if (rr->bounce && request->to_host)
		rdma_bounce_drain(request, rr->bounce->bytes);
	rdma_bounce_put(request);
	haul_request_done(request, 0, &rr->cqe);
}

static void rdma_request_invalidated(struct rdma_op *op, int result)
{
	struct rdma_request *rr = container_of(op, struct rdma_request, op);

	/* A failed one comes back when the endpoint is drained. */
	if (!result)
		rdma_request_finish(rdma_request_owner(rr));
}

/* Both the SEND and the response are in. Keys that the target left valid are taken back first. */
static void rdma_request_ended(struct haul_request *request)
{
	struct rdma_request *rr = rdma_request(request);
	struct haul_transport_queue *tq = request->queue->transport;

	if (rr->nr_valid == 0) {
		rdma_request_finish(request);
		return;
	}
	tq->queue->hl->stats.nr_keys_taken_back += rr->nr_valid;
	rr->op.kind = RDMA_OP_INVALIDATE;
	rr->op.ended = rdma_request_invalidated;
	rr->op.nr_sges = 0;
	rr->op.nr_binds = rr->nr_valid;
	rdma_ep_post(&tq->ep, &rr->op);
}

/* The key that the response has invalidated must be the one that was asked for, the last. */
static bool rdma_request_check_key(struct rdma_request *rr, const struct rdma_recv *recv)
{
	if (!recv->invalidated)
		return true;
	if (rr->nr_valid == 0 || rr->op.binds[rr->nr_valid - 1].key != recv->invalidated_key)
		return false;
	rr->nr_valid--;
	return true;
}

static void rdma_request_sent(struct rdma_op *op, int result)
{
	struct rdma_request *rr = container_of(op, struct rdma_request, op);

	/* A failed one comes back when the endpoint is drained: the target may have the command. */
	if (result)
		return;
	rr->sent = true;
	if (rr->answered)
		rdma_request_ended(rdma_request_owner(rr));
}

void rdma_queue_answered(struct rdma_ep *ep, struct rdma_recv *recv)
{
	struct haul_transport_queue *tq = container_of(ep, struct haul_transport_queue, ep);
	const struct nvme_cqe *cqe = recv->bytes;
	struct haul_request *request = NULL;
	struct rdma_request *rr;

	if (recv->received_len == sizeof(*cqe))
		request = haul_queue_request_by_cid(tq->queue, le16_get(cqe->cid));
	rr = request ? rdma_request(request) : NULL;
	if (!rr || rr->answered || rr->waiting) {
		rdma_ep_fail(ep, -EPROTO, "the target answered a command that was not sent");
		return;
	}
	if (!rdma_request_check_key(rr, recv)) {
		rdma_ep_fail(ep, -EPROTO, "the target invalidated a key that it was not asked to");
		return;
	}
	rr->cqe = *cqe;
	rr->answered = true;
	/* Before the request can be sent again: the target never finds no receive. */
	rdma_ep_receive(ep, recv);
	if (rr->sent)
		rdma_request_ended(request);
}

void rdma_queue_end_requests(struct haul_transport_queue *tq)
{
	struct haul_queue *queue = tq->queue;
	struct haul_request *request;
	uint32_t i;

	for (i = 0; i < queue->depth; i++) {
		request = &queue->requests[i];
		if (request->state != HAUL_REQUEST_OUT)
			continue;
		rdma_bounce_put(request);
		haul_request_done(request, -ECANCELED, NULL);
	}
}

/* --- sending ------------------------------------------------------------------------------- */

static struct nvme_cmd *rdma_capsule(
	const struct haul_transport_queue *tq, const struct haul_request *request)
{
	return (struct nvme_cmd *)((unsigned char *)tq->memory.bytes +
				   request->index * RDMA_CAPSULE_BYTES);
}

static void rdma_message_add(struct rdma_op *op, uintptr_t addr, uint32_t len, uint32_t lkey)
{
	op->sge[op->nr_sges++] = (struct ibv_sge){.addr = addr, .length = len, .lkey = lkey};
}

/* Of a stretch: the region's key, or its window's, of which the response can invalidate one. */
static struct nvme_sgl_desc rdma_descriptor(
	const struct rdma_op *op, const struct rdma_map *map, uint32_t i)
{
	uint32_t key = op->nr_binds ? op->binds[i].key : map->piece[i].mr->rkey;

	return nvme_sgl_keyed(
		map->piece[i].addr, map->piece[i].len, key, op->nr_binds && i == map->nr - 1);
}

/* Keyed descriptors: the target reads or writes the memory. Returns their bytes behind the
 * command: one goes into it, several into a list. */
static uint32_t rdma_describe(
	struct nvme_cmd *cmd, const struct rdma_op *op, const struct rdma_map *map)
{
	struct nvme_sgl_desc *list = (struct nvme_sgl_desc *)(cmd + 1);
	uint32_t i;

	if (map->nr == 1) {
		cmd->sgl = rdma_descriptor(op, map, 0);
		return 0;
	}
	for (i = 0; i < map->nr; i++)
		list[i] = rdma_descriptor(op, map, i);
	cmd->sgl = nvme_sgl_last_segment(0, map->nr);
	return map->nr * (uint32_t)sizeof(*list);
}

/* False: more windows than there are just now. A buffer takes one, which there is. */
static bool rdma_may_lend(const struct haul_transport_queue *tq, const struct rdma_map *map)
{
	return !tq->queue->key_per_io || rdma_windows_may_take(tq, map->nr);
}

/* Windows for what MAP says, where keys are each command's own. */
static void rdma_request_lend(
	struct haul_transport_queue *tq, struct haul_request *request, const struct rdma_map *map)
{
	struct rdma_request *rr = rdma_request(request);

	if (!tq->queue->key_per_io)
		return;
	rdma_windows_take(tq, request, map, &rr->op);
	rr->nr_lent = rr->nr_valid = map->nr;
}

/* The command with its data, as MAP says, onto the endpoint's chain. */
static void rdma_request_post(
	struct haul_transport_queue *tq, struct haul_request *request, const struct rdma_map *map)
{
	struct rdma_request *rr = rdma_request(request);
	struct nvme_cmd *cmd = rdma_capsule(tq, request);
	uint32_t lkey = tq->memory.mr->lkey;
	bool in_capsule = !request->to_host && map->nr &&
			  request->data_len <= tq->queue->in_capsule_bytes &&
			  map->nr < tq->ep.max_sges;
	uint32_t len = sizeof(*cmd), i;

	*cmd = request->cmd;
	rr->op.nr_sges = 0;
	rr->op.nr_binds = 0;
	if (map->nr == 0)
		cmd->sgl = nvme_sgl_keyed(0, 0, 0, false);
	else if (in_capsule)
		cmd->sgl = nvme_sgl_in_capsule(0, request->data_len);
	else {
		rdma_request_lend(tq, request, map);
		len += rdma_describe(cmd, &rr->op, map);
	}
	rdma_message_add(&rr->op, (uintptr_t)cmd, len, lkey);
	for (i = 0; in_capsule && i < map->nr; i++)
		rdma_message_add(
			&rr->op, map->piece[i].addr, map->piece[i].len, map->piece[i].mr->lkey);
	rr->op.kind = RDMA_OP_SEND;
	rr->op.ended = rdma_request_sent;
	rr->op.nr_pieces = 0;
	rr->op.data_len = 0;
	rr->op.invalidate = false;
	rr->op.inline_message = !in_capsule && len <= tq->ep.max_inline;
	rdma_ep_post(&tq->ep, &rr->op);
}

static void rdma_request_bounced(struct haul_request *request, struct buf *buf)
{
	struct haul_transport_queue *tq = request->queue->transport;
	struct rdma_map map = {.nr = 1};

	rdma_request(request)->bounce = buf;
	if (!request->to_host)
		rdma_bounce_fill(request, buf->bytes);
	map.piece[0].addr = (uintptr_t)buf->bytes;
	map.piece[0].len = request->data_len;
	map.piece[0].mr = rdma_dev_buf_mr(tq->ep.dev, buf);
	rdma_request_post(tq, request, &map);
}

static void rdma_bounce_ready(struct bufpool_wait *wait, struct buf *buf)
{
	struct rdma_request *rr = container_of(wait, struct rdma_request, wait);

	rr->waiting = false;
	rdma_request_bounced(rdma_request_owner(rr), buf);
}

/* Through a buffer of the pool, which devices know: the caller's memory is not registered, or in
 * more pieces than a command can describe. */
static void rdma_request_bounce(struct haul_transport_queue *tq, struct haul_request *request)
{
	struct rdma_request *rr = rdma_request(request);
	struct buf *buf;

	tq->queue->hl->stats.nr_bounced++;
	buf = bufpool_get(tq->queue->pool, bufpool_shelf_of(request->data_len));
	if (buf) {
		rdma_request_bounced(request, buf);
		return;
	}
	rr->waiting = true;
	rr->wait.ready = rdma_bounce_ready;
	rr->wait.shelf = bufpool_shelf_of(request->data_len);
	list_init(&rr->wait.node);
	bufpool_wait(tq->queue->pool, &rr->wait);
}

/* A list of descriptors travels in the capsule, so it counts against its size. */
static uint32_t rdma_max_pieces(const struct haul_queue *queue)
{
	uint32_t room = queue->in_capsule_bytes / (uint32_t)sizeof(struct nvme_sgl_desc);
	uint32_t max = min_of(queue->max_segments, (uint32_t)NVME_SGL_MAX_PIECES);

	max = min_of(max, room);
	return max_of(max, 1u);
}

void rdma_queue_submit(struct haul_queue *queue, struct haul_request *request)
{
	struct haul_transport_queue *tq = queue->transport;
	struct rdma_request *rr = rdma_request(request);
	struct rdma_map map;

	rr->bounce = NULL;
	rr->waiting = false;
	rr->sent = false;
	rr->answered = false;
	rr->nr_lent = rr->nr_valid = 0;
	/* Too late: disconnect() is coming and brings it back. */
	if (tq->state != RDMA_QUEUE_LIVE)
		return;
	map.nr = 0;
	if (request->data_len == 0 ||
		(rdma_map_request(tq, request, rdma_max_pieces(queue), &map) &&
			rdma_may_lend(tq, &map)))
		rdma_request_post(tq, request, &map);
	else
		rdma_request_bounce(tq, request);
}
