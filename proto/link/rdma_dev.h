/* SPDX-License-Identifier: MIT */
/*
 * One RDMA device on one loop: protection domain, completion queue (rdma_cq.h), the registration of
 * the loop's pool (rdma_memory.h), its asynchronous events (rdma_events.h), the table of queue
 * pairs by number, and what the device can do. It knows no endpoint's business.
 */
#ifndef HAUL_LINK_RDMA_DEV_H
#define HAUL_LINK_RDMA_DEV_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#include "proto/base/bufpool.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/link/rdma_async.h"
#include "proto/link/rdma_cq.h"
#include "proto/link/rdma_memory.h"
#include "proto/link/rdma_quirks.h"

struct rdma_dev;
struct rdma_ep;

/* The devices of one loop. */
struct rdma_devs {
	struct loop *loop;
	struct bufpool *pool;
	struct list list;
	int pool_access;	/* how the pool's memory is registered */
	uint32_t comp_vector;	/* interrupts of different loops go to different CPUs */
	uint64_t drain_ns;	/* RDMA_DRAIN_NS */
	uint64_t *nr_doorbells; /* counts calls that post; may be NULL */
	struct log_limit limit; /* of what short devices say at each attempt */
	uint32_t nr_closing;	/* devices (and channels) that are not quite off the loop yet */
	/* A device came or goes: for who has more to register with it. May be NULL. When ADDED
	 * fails the device is not used. */
	int (*added)(struct rdma_devs *devs, struct rdma_dev *dev);
	void (*removed)(struct rdma_devs *devs, struct rdma_dev *dev);
};

#define RDMA_CHAIN_WRS	 64 /* work requests of one ibv_post_send() */
#define RDMA_WR_SGES	 5  /* pieces one SEND gathers: a capsule and four of in-capsule data */
#define RDMA_DEV_EP_ROWS 256
#define RDMA_DRAIN_NS	 5000000000ull /* a device that has not flushed by then never will */

struct rdma_dev {
	struct rdma_devs *devs;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	struct rdma_quirks quirks;
	bool failed; /* removed or broken: no new user */
	struct ibv_pd *pd;
	struct rdma_cq cq;
	uint32_t nr_users;
	struct list srqs; /* of a target; owned here */
	struct list node; /* devs' */
	struct rdma_async_member async;
	struct loop_poll async_poll;	   /* verbs->async_fd */
	struct loop_poll async_notes_poll; /* async.event_fd */
	struct loop_flush cleanup;
	uint32_t nr_polls; /* of these two and the queue's, not yet deleted */
	struct bufpool_registrar registrar;
	struct list eps[RDMA_DEV_EP_ROWS]; /* by queue pair number */

	/* Scratch of the endpoint that is posting now: providers copy work requests. */
	struct ibv_send_wr send_wr[RDMA_CHAIN_WRS];
	struct ibv_sge send_sge[RDMA_CHAIN_WRS][RDMA_WR_SGES];
	struct ibv_recv_wr recv_wr[RDMA_CHAIN_WRS];
	struct ibv_sge recv_sge[RDMA_CHAIN_WRS][2];
};

void rdma_devs_init(
	struct rdma_devs *devs, struct loop *loop, struct bufpool *pool, int pool_access);
/* No user is left. Turns the loop until nothing is left on it: not from within a turn. */
void rdma_devs_destroy(struct rdma_devs *devs);

/* The device of VERBS on this loop, opened on first use. It stays for its next user, but one that
 * failed or was removed goes with its last. */
int rdma_dev_get(
	struct rdma_devs *devs, struct ibv_context *verbs, struct rdma_dev **ret) must_check;
void rdma_dev_put(struct rdma_dev *dev);
const char *rdma_dev_name(const struct rdma_dev *dev);

/* WHY has static storage. The device and all its endpoints have failed. Any number of times. */
void rdma_dev_fail(struct rdma_dev *dev, const char *why);

/* The endpoint of a queue pair number, or NULL. */
struct rdma_ep *rdma_dev_find(struct rdma_dev *dev, uint32_t qp_num);

/* Whether an object that was destroyed with ERROR is gone. A device that is gone has let go of
 * everything; its library then says EIO. */
static inline bool rdma_dev_let_go(const struct rdma_dev *dev, int error)
{
	return error == 0 || (error == EIO && dev->failed);
}

/* Tells in the log of one that is not. */
void rdma_dev_check_destroy(const struct rdma_dev *dev, const char *what, int error);

/* SEND with invalidate may be sent. */
static inline bool rdma_dev_can_invalidate(const struct rdma_dev *dev)
{
	return dev->attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS &&
	       !dev->quirks.no_invalidate;
}

static inline void rdma_dev_count_doorbell(struct rdma_dev *dev)
{
	if (dev->devs->nr_doorbells)
		++*dev->devs->nr_doorbells;
}

static inline struct ibv_mr *rdma_dev_buf_mr(const struct rdma_dev *dev, const struct buf *buf)
{
	return buf->region->keys[dev->registrar.index];
}

#endif
