/* SPDX-License-Identifier: MIT */
/*
 * The one completion queue of a device on a loop: the loop polls it, and is woken by its channel
 * when it sleeps. Whoever posts has been admitted before, so that it never overruns.
 */
#ifndef HAUL_LINK_RDMA_CQ_H
#define HAUL_LINK_RDMA_CQ_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "proto/base/loop.h"

/*
 * What every work request's wr_id points to. FN may look at more than wr_id and status only when
 * the status is IBV_WC_SUCCESS: the rest is undefined otherwise, the opcode included.
 */
struct wc_done {
	void (*fn)(struct wc_done *done, const struct ibv_wc *wc);
};

/* Part of its device: rdma_dev.cq. */
struct rdma_cq {
	struct ibv_comp_channel *channel;
	struct ibv_cq *verbs;
	uint32_t size;
	uint32_t used; /* completions that may be there at once: the sum of what was admitted */
	bool armed;    /* a notification was asked for and has not come */
	struct loop_poller poller;     /* on the loop and off it by the device */
	struct loop_poll channel_poll; /* likewise */
};

/* The device's context, attributes and loop are set. On failure nothing is left. */
int rdma_cq_create(struct rdma_cq *cq) must_check;
void rdma_cq_destroy(struct rdma_cq *cq);

/* Room for NR more completions: the queue grows or -ENOSPC is returned. */
int rdma_cq_admit(struct rdma_cq *cq, uint32_t nr) must_check;
void rdma_cq_release(struct rdma_cq *cq, uint32_t nr);

/* Handles completions until there is none. Not from within a completion. */
void rdma_cq_poll_all(struct rdma_cq *cq);

#endif
