/* SPDX-License-Identifier: MIT */
/*
 * What an endpoint's life and its posting need of each other.
 */
#ifndef HAUL_LINK_RDMA_EP_PRIVATE_H
#define HAUL_LINK_RDMA_EP_PRIVATE_H

#include "proto/link/rdma_ep.h"

static inline void rdma_ep_flush_later(struct rdma_ep *ep)
{
	loop_flush_later(ep->dev->devs->loop, &ep->flush);
}

/* Post one chain of what waits; whether there may be more to post. */
bool rdma_ep_flush_sends(struct rdma_ep *ep);
bool rdma_ep_flush_recvs(struct rdma_ep *ep);

#endif
