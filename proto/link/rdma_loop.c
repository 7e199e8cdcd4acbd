/* SPDX-License-Identifier: MIT */
/*
 * The beginning and the end of a loop's RDMA.
 */
#include "proto/link/rdma_loop.h"

int rdma_loop_init(struct rdma_loop *rl, struct loop *loop, struct bufpool *pool, int pool_access)
{
	rdma_devs_init(&rl->devs, loop, pool, pool_access);
	return rdma_cm_create(loop, &rl->cm);
}

void rdma_loop_destroy(struct rdma_loop *rl)
{
	rdma_cm_destroy(rl->cm, &rl->devs.nr_closing);
	rdma_devs_destroy(&rl->devs);
}
