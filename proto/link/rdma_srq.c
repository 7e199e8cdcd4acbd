/* SPDX-License-Identifier: MIT */
/*
 * Shared receive queues of a device on a loop and their slots.
 */
#include "proto/link/rdma_srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/link/rdma_ep.h"

#define RDMA_SRQ_CHUNK_SLOTS 128 /* the default depth of one queue; 0.5 MiB with 4 KiB of data */

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
	struct list node; /* the device's */
	uint32_t data_bytes;
	uint32_t nr_sges;   /* 2, or 1 without data or on a device that cannot scatter */
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
		.addr = (uintptr_t)slot->data, .length = srq->data_bytes, .lkey = lkey};
	if (srq->nr_sges == 1)
		sge[0].length += srq->data_bytes;
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

/* The device takes only one piece: the command ends where the page of its data begins. */
static bool rdma_srq_is_joined(const struct rdma_srq *srq)
{
	return srq->data_bytes && srq->nr_sges == 1;
}

static size_t rdma_srq_slot_bytes(const struct rdma_srq *srq)
{
	return (rdma_srq_is_joined(srq) ? RDMA_SLOT_PAGE : RDMA_SLOT_CAPSULE_BYTES) +
	       (size_t)srq->data_bytes;
}

/* Apart, commands are behind all data. */
static void rdma_srq_chunk_layout(struct rdma_srq_chunk *chunk)
{
	const struct rdma_srq *srq = chunk->srq;
	unsigned char *memory = chunk->memory.bytes;
	unsigned char *commands = memory + (size_t)RDMA_SRQ_CHUNK_SLOTS * srq->data_bytes;
	size_t i;

	for (i = 0; i < RDMA_SRQ_CHUNK_SLOTS; i++) {
		struct rdma_slot *slot = &chunk->slots[i];
		unsigned char *data;

		slot->chunk = chunk;
		slot->done.fn = rdma_srq_received;
		list_init(&slot->node);
		if (rdma_srq_is_joined(srq)) {
			data = memory + i * rdma_srq_slot_bytes(srq) + RDMA_SLOT_PAGE;
			slot->capsule = data - RDMA_SLOT_CAPSULE_BYTES;
		} else {
			data = memory + i * srq->data_bytes;
			slot->capsule = commands + i * RDMA_SLOT_CAPSULE_BYTES;
		}
		slot->data = srq->data_bytes ? data : NULL;
	}
}

static int rdma_srq_chunk_add(struct rdma_srq *srq)
{
	struct rdma_srq_chunk *chunk = calloc(1, sizeof(*chunk));
	uint32_t i;
	int result;

	if (!chunk)
		return -ENOMEM;
	chunk->srq = srq;
	result = rdma_memory_get(
		srq->dev, RDMA_SRQ_CHUNK_SLOTS * rdma_srq_slot_bytes(srq), &chunk->memory);
	if (result)
		goto free_chunk;
	/* Whatever a host does, not more receives than slots can complete at once. */
	result = rdma_cq_admit(&srq->dev->cq, RDMA_SRQ_CHUNK_SLOTS);
	if (result)
		goto put_memory;
	chunk->loop_buffer = loop_buffer_register(
		srq->dev->devs->loop, chunk->memory.bytes, chunk->memory.length);
	rdma_srq_chunk_layout(chunk);
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
	rdma_cq_release(&srq->dev->cq, RDMA_SRQ_CHUNK_SLOTS);
	if (chunk->loop_buffer != LOOP_BUFFER_NONE)
		loop_buffer_unregister(srq->dev->devs->loop, chunk->loop_buffer);
	rdma_memory_put(srq->dev, &chunk->memory);
	free(chunk);
}

/* --- life ---------------------------------------------------------------------------------- */

static int rdma_srq_create(
	struct rdma_dev *dev, uint32_t data_bytes, uint32_t max_slots, struct rdma_srq **ret)
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
	srq->data_bytes = data_bytes;
	srq->nr_sges = data_bytes ? min_of(2, dev->attr.max_srq_sge) : 1;
	srq->max_slots = min_of(max_slots, (uint32_t)dev->attr.max_srq_wr);
	list_init(&srq->node);
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
	list_push_back(&dev->srqs, &srq->node);
	*ret = srq;
	return 0;
}

int rdma_srq_get(
	struct rdma_dev *dev, uint32_t data_bytes, uint32_t max_slots, struct rdma_srq **ret)
{
	struct rdma_srq *srq;

	assert(data_bytes % RDMA_SLOT_PAGE == 0);
	list_for_each_entry (srq, &dev->srqs, node) {
		if (srq->data_bytes != data_bytes)
			continue;
		*ret = srq;
		return 0;
	}
	return rdma_srq_create(dev, data_bytes, max_slots, ret);
}

static void rdma_srq_destroy(struct rdma_srq *srq)
{
	struct rdma_srq_chunk *chunk, *after;

	list_remove(&srq->node);
	loop_flush_cancel(&srq->flush);
	rdma_dev_check_destroy(srq->dev, "shared receive queue", ibv_destroy_srq(srq->verbs));
	list_for_each_entry_safe (chunk, after, &srq->chunks, node)
		rdma_srq_chunk_free(srq, chunk);
	free(srq);
}

void rdma_srq_destroy_all(struct rdma_dev *dev)
{
	struct rdma_srq *srq, *after;

	list_for_each_entry_safe (srq, after, &dev->srqs, node)
		rdma_srq_destroy(srq);
}

bool rdma_srq_is_of(const struct rdma_dev *dev, const void *element)
{
	const struct rdma_srq *srq;

	list_for_each_entry (srq, &dev->srqs, node)
		if (srq->verbs == element)
			return true;
	return false;
}

uint32_t rdma_srq_most_left(const struct rdma_dev *dev)
{
	const struct rdma_srq *srq;
	uint32_t left = 0;

	list_for_each_entry (srq, &dev->srqs, node)
		left = max_of(left, rdma_srq_left(srq));
	return left;
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
