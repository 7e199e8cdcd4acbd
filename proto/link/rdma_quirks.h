/* SPDX-License-Identifier: MIT */
/*
 * What a kind of device does otherwise than the rest, beside what it says of itself in its
 * attributes. All of it is in one table, each row with its reason: no other file asks for a kind.
 */
#ifndef HAUL_LINK_RDMA_QUIRKS_H
#define HAUL_LINK_RDMA_QUIRKS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct rdma_quirks {
	bool no_invalidate; /* no SEND with invalidate is sent, though the device announces it */
	bool no_rnr_timer;  /* the queue pair has none that could be set */
	unsigned invalidated_flag; /* of a completion: the peer has invalidated a key; beside
				      IBV_WC_WITH_INV */
	int read_access; /* what the memory that a READ fills has to allow beside its own use */
};

/* What all rows that fit the device say together. */
struct rdma_quirks rdma_quirks_of(struct ibv_device *device, const struct ibv_device_attr *attr);

#endif
