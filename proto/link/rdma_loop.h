/* SPDX-License-Identifier: MIT */
/*
 * What a loop keeps of RDMA, on either side: a channel of the connection manager for the ids of its
 * queues, and its devices. Made with the first listener or queue; it lives as long as the loop's
 * owner, for devices stay open between queues.
 */
#ifndef HAUL_LINK_RDMA_LOOP_H
#define HAUL_LINK_RDMA_LOOP_H

#include "proto/link/rdma_cm.h"
#include "proto/link/rdma_dev.h"

struct rdma_loop {
	struct rdma_cm *cm;
	struct rdma_devs devs; /* the hooks and limits in it are the user's to set */
};

/* POOL_ACCESS: what the other side may do with the pool's memory. On failure nothing is left. */
int rdma_loop_init(
	struct rdma_loop *rl, struct loop *loop, struct bufpool *pool, int pool_access) must_check;
/* No id and no user of a device is left. Turns the loop: not from within a turn. */
void rdma_loop_destroy(struct rdma_loop *rl);

#endif
