/* SPDX-License-Identifier: MIT */
/*
 * A shared receive queue of a device on a loop, and the slots commands arrive in: 64 bytes for the
 * command and, page-aligned for direct I/O, room for in-capsule data, which is the same for all
 * slots of the queue; a device has a queue for each size that is in use. Slots come in chunks,
 * as many as the admitted queues can fill at once, registered once with the device and once with
 * the loop: in-capsule data goes to disk from where it arrived. As no more commands are admitted
 * than there are slots, and a slot is posted again before the response that lets the host send
 * the next command, a receiver is never not ready.
 */
#ifndef HAUL_LINK_RDMA_SRQ_H
#define HAUL_LINK_RDMA_SRQ_H

#include "proto/link/rdma_dev.h"

#define RDMA_SLOT_CAPSULE_BYTES 64
#define RDMA_SLOT_PAGE		4096 /* what room for data is a multiple of */

struct rdma_srq;

struct rdma_slot {
	struct wc_done done; /* the receive's wr_id */
	struct rdma_srq_chunk *chunk;
	void *capsule;
	void *data;	   /* NULL: the queue has no room for any */
	uint32_t data_len; /* how much of DATA was filled */
	struct list node;  /* of its user; the queue's while it is free */
};

/* The device's queue for DATA_BYTES, which is made at the first call, with at most MAX_SLOTS: the
 * device's as long as it is there. */
int rdma_srq_get(struct rdma_dev *dev, uint32_t data_bytes, uint32_t max_slots,
	struct rdma_srq **ret) must_check;
/* All of the device's: no endpoint uses them and no slot is out. */
void rdma_srq_destroy_all(struct rdma_dev *dev);
/* ELEMENT is one of the device's, as its events say. */
bool rdma_srq_is_of(const struct rdma_dev *dev, const void *element);
/* The most that rdma_srq_left() says of any. */
uint32_t rdma_srq_most_left(const struct rdma_dev *dev);
struct ibv_srq *rdma_srq_verbs(const struct rdma_srq *srq);

/* Room for a queue of NR commands, or -ENOSPC (-ENOMEM). */
int rdma_srq_admit(struct rdma_srq *srq, uint32_t nr) must_check;
void rdma_srq_release(struct rdma_srq *srq, uint32_t nr);
/* Commands that could still be admitted, if there is memory. */
uint32_t rdma_srq_left(const struct rdma_srq *srq);

/* Gives a slot back; it is posted by the next rdma_srq_flush(): before any SEND of this turn. */
void rdma_slot_put(struct rdma_slot *slot);
void rdma_srq_flush(struct rdma_srq *srq);

/* The loop's registration of the memory of SLOT->data. */
int rdma_slot_loop_buffer(const struct rdma_slot *slot);

#endif
