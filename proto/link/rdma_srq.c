/* SPDX-License-Identifier: MIT */
/*
 * The shared receive queue of a device on a loop and its slots.
 */
#include "proto/link/rdma_srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/link/rdma_ep.h"

#define RDMA_SRQ_CHUNK_SLOTS 128 /* 0.5 MiB: the default depth of one queue */

struct rdma_srq_chunk {
	struct rdma_srq *srq;
	struct list node;
	struct rdma_memory memory;
	int loop_buffer;
	struct rdma_slot slots[RDMA_SRQ_CHUNK_SLOTS];
};

struct rdma_srq {
	struct rdma_dev *dev;
	struct ibv_srq *verbs;
	uint32_t nr_sges;   /* 2, or 1 on a device that cannot scatter */
	uint32_t max_slots; /* the queue's size */
	uint32_t nr_slots;
	uint32_t nr_admitted;
	struct list chunks;
	struct list free; /* slots to be posted */
	struct loop_flush flush;
};

struct ibv_srq *rdma_srq_verbs(const struct rdma_srq *srq)
{
	return srq->verbs;
}

int rdma_slot_loop_buffer(const struct rdma_slot *slot)
{
	return slot->chunk->loop_buffer;
}

void rdma_slot_put(struct rdma_slot *slot)
{
	struct rdma_srq *srq = slot->chunk->srq;

	list_push_back(&srq->free, &slot->node);
	loop_flush_later(srq->dev->devs->loop, &srq->flush);
}

/* One receive's bytes: command and data apart; in one piece where the device takes only one. */
static uint32_t rdma_srq_sges(
	const struct rdma_srq *srq, const struct rdma_slot *slot, struct ibv_sge sge[2])
{
	uint32_t lkey = slot->chunk->memory.mr->lkey;

	sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)slot->capsule, .length = RDMA_SLOT_CAPSULE_BYTES, .lkey = lkey};
	sge[1] = (struct ibv_sge){
		.addr = (uintptr_t)slot->data, .length = RDMA_SLOT_DATA_BYTES, .lkey = lkey};
	if (srq->nr_sges == 1)
		sge[0].length += RDMA_SLOT_DATA_BYTES;
	return srq->nr_sges;
}

/* Posts up to a chain of free slots; the number posted, or a negative errno. */
static int rdma_srq_post(struct rdma_srq *srq)
{
	struct rdma_dev *dev = srq->dev;
	struct ibv_recv_wr *wr = dev->recv_wr, *bad = NULL;
	struct rdma_slot *slot;
	uint32_t nr = 0, i;
	int error;

	list_for_each_entry (slot, &srq->free, node) {
		wr[nr].wr_id = (uintptr_t)&slot->done;
		wr[nr].sg_list = dev->recv_sge[nr];
		wr[nr].num_sge = (int)rdma_srq_sges(srq, slot, dev->recv_sge[nr]);
		wr[nr].next = &wr[nr + 1];
		if (++nr == RDMA_CHAIN_WRS)
			break;
	}
	wr[nr - 1].next = NULL;
	error = ibv_post_srq_recv(srq->verbs, wr, &bad);
	rdma_dev_count_doorbell(dev);
	if (error)
		nr = bad ? (uint32_t)(bad - wr) : 0;
	for (i = 0; i < nr; i++)
		list_pop_front(&srq->free);
	return error ? -error : (int)nr;
}

void rdma_srq_flush(struct rdma_srq *srq)
{
	int result;

	while (!list_empty(&srq->free)) {
		result = rdma_srq_post(srq);
		if (result >= 0)
			continue;
		/* The slots stay free and are tried again with the next one that comes back. */
		log_line_limited(&srq->dev->devs->limit, loop_now_ns(srq->dev->devs->loop),
			LOG_LEVEL_ERROR, "rdma: %s: cannot post receives: %s",
			rdma_dev_name(srq->dev), strerror(-result));
		return;
	}
}

static void rdma_srq_flush_later(struct loop_flush *flush)
{
	rdma_srq_flush(container_of(flush, struct rdma_srq, flush));
}

static void rdma_srq_received(struct wc_done *done, const struct ibv_wc *wc)
{
	struct rdma_slot *slot = container_of(done, struct rdma_slot, done);
	struct rdma_dev *dev = slot->chunk->srq->dev;
	struct rdma_ep *ep = rdma_dev_find(dev, wc->qp_num);

	list_init(&slot->node);
	/* The queue pair's number is valid with an error too (ibv_poll_cq(3)). A message after the
	 * end of its endpoint is nobody's. */
	if (wc->status == IBV_WC_SUCCESS && ep && wc->byte_len >= RDMA_SLOT_CAPSULE_BYTES) {
		slot->data_len = wc->byte_len - RDMA_SLOT_CAPSULE_BYTES;
		rdma_ep_received(ep, slot);
		return;
	}
	if (ep)
		rdma_ep_fail(ep, -EPROTO,
			wc->status == IBV_WC_SUCCESS ? "a capsule is shorter than a command"
						     : ibv_wc_status_str(wc->status));
	rdma_slot_put(slot);
}

/* --- chunks -------------------------------------------------------------------------------- */

static void rdma_srq_chunk_layout(struct rdma_srq_chunk *chunk, uint32_t nr_sges)
{
	unsigned char *memory = chunk->memory.bytes;
	struct rdma_slot *slot;
	uint32_t i;

	for (i = 0; i < RDMA_SRQ_CHUNK_SLOTS; i++) {
		slot = &chunk->slots[i];
		slot->chunk = chunk;
		slot->done.fn = rdma_srq_received;
		list_init(&slot->node);
		if (nr_sges == 1) {
			/* The command ends where a page of data begins. */
			slot->data = memory + (2 * i + 1) * RDMA_SLOT_DATA_BYTES;
			slot->capsule = (unsigned char *)slot->data - RDMA_SLOT_CAPSULE_BYTES;
		} else {
			slot->data = memory + i * RDMA_SLOT_DATA_BYTES;
			slot->capsule = memory + RDMA_SRQ_CHUNK_SLOTS * RDMA_SLOT_DATA_BYTES +
					i * RDMA_SLOT_CAPSULE_BYTES;
		}
	}
}

static int rdma_srq_chunk_add(struct rdma_srq *srq)
{
	struct rdma_srq_chunk *chunk = calloc(1, sizeof(*chunk));
	uint32_t i, slot_bytes = RDMA_SLOT_DATA_BYTES;
	int result;

	if (!chunk)
		return -ENOMEM;
	slot_bytes += srq->nr_sges == 1 ? RDMA_SLOT_DATA_BYTES : RDMA_SLOT_CAPSULE_BYTES;
	chunk->srq = srq;
	result = rdma_memory_get(
		srq->dev, (size_t)RDMA_SRQ_CHUNK_SLOTS * slot_bytes, &chunk->memory);
	if (result)
		goto free_chunk;
	/* Whatever a host does, not more receives than slots can complete at once. */
	result = rdma_dev_admit(srq->dev, RDMA_SRQ_CHUNK_SLOTS);
	if (result)
		goto put_memory;
	chunk->loop_buffer = loop_buffer_register(
		srq->dev->devs->loop, chunk->memory.bytes, chunk->memory.length);
	rdma_srq_chunk_layout(chunk, srq->nr_sges);
	list_init(&chunk->node);
	list_push_back(&srq->chunks, &chunk->node);
	srq->nr_slots += RDMA_SRQ_CHUNK_SLOTS;
	for (i = 0; i < RDMA_SRQ_CHUNK_SLOTS; i++)
		rdma_slot_put(&chunk->slots[i]);
	return 0;

put_memory:
	rdma_memory_put(srq->dev, &chunk->memory);
free_chunk:
	free(chunk);
	return result;
}

static void rdma_srq_chunk_free(struct rdma_srq *srq, struct rdma_srq_chunk *chunk)
{
	list_remove(&chunk->node);
	rdma_dev_release(srq->dev, RDMA_SRQ_CHUNK_SLOTS);
	if (chunk->loop_buffer != LOOP_BUFFER_NONE)
		loop_buffer_unregister(srq->dev->devs->loop, chunk->loop_buffer);
	rdma_memory_put(srq->dev, &chunk->memory);
	free(chunk);
}

/* --- life ---------------------------------------------------------------------------------- */

int rdma_srq_create(struct rdma_dev *dev, uint32_t max_slots, struct rdma_srq **ret)
{
	struct ibv_srq_init_attr attr = {0};
	struct rdma_srq *srq;
	int error;

	if (dev->attr.max_srq_wr < RDMA_SRQ_CHUNK_SLOTS)
		return -EOPNOTSUPP;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	srq->dev = dev;
	srq->nr_sges = min_of(2, dev->attr.max_srq_sge);
	srq->max_slots = min_of(max_slots, (uint32_t)dev->attr.max_srq_wr);
	list_init(&srq->chunks);
	list_init(&srq->free);
	loop_flush_init(&srq->flush, rdma_srq_flush_later);
	attr.attr.max_wr = srq->max_slots;
	attr.attr.max_sge = srq->nr_sges;
	srq->verbs = ibv_create_srq(dev->pd, &attr);
	if (!srq->verbs) {
		error = errno;
		free(srq);
		return -error;
	}
	*ret = srq;
	return 0;
}

void rdma_srq_destroy(struct rdma_srq *srq)
{
	struct rdma_srq_chunk *chunk, *after;
	int error;

	if (!srq)
		return;
	loop_flush_cancel(&srq->flush);
	error = ibv_destroy_srq(srq->verbs);
	if (error && !srq->dev->failed)
		log_error("rdma: %s: cannot destroy the shared receive queue: %s",
			rdma_dev_name(srq->dev), strerror(error));
	list_for_each_entry_safe (chunk, after, &srq->chunks, node)
		rdma_srq_chunk_free(srq, chunk);
	free(srq);
}

int rdma_srq_admit(struct rdma_srq *srq, uint32_t nr)
{
	int result;

	if ((uint64_t)srq->nr_admitted + nr > srq->max_slots)
		return -ENOSPC;
	while (srq->nr_slots < srq->nr_admitted + nr) {
		if (srq->nr_slots + RDMA_SRQ_CHUNK_SLOTS > srq->max_slots)
			return -ENOSPC;
		result = rdma_srq_chunk_add(srq);
		if (result)
			return result;
	}
	srq->nr_admitted += nr;
	return 0;
}

uint32_t rdma_srq_left(const struct rdma_srq *srq)
{
	/* Chunks are whole: the device's limit may leave a rest. */
	uint32_t max = srq->max_slots - srq->max_slots % RDMA_SRQ_CHUNK_SLOTS;

	return max - srq->nr_admitted;
}

void rdma_srq_release(struct rdma_srq *srq, uint32_t nr)
{
	assert(srq->nr_admitted >= nr);
	srq->nr_admitted -= nr;
}
