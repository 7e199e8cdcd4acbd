/* SPDX-License-Identifier: MIT */
/*
 * One RDMA device on one loop: protection domain, one completion queue (polled by the loop, with a
 * completion channel to be woken by when the loop sleeps), the registration of the loop's pool, the
 * table of queue pairs by number, and what the device can do. It knows no endpoint's business.
 */
#ifndef HAUL_LINK_RDMA_DEV_H
#define HAUL_LINK_RDMA_DEV_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "proto/base/bufpool.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/link/rdma_async.h"

struct rdma_dev;
struct rdma_ep;

/*
 * What every work request's wr_id points to. FN may look at more than wr_id and status only when
 * the status is IBV_WC_SUCCESS: the rest is undefined otherwise, the opcode included.
 */
struct wc_done {
	void (*fn)(struct wc_done *done, const struct ibv_wc *wc);
};

/* The devices of one loop. */
struct rdma_devs {
	struct loop *loop;
	struct bufpool *pool;
	struct list list;
	int pool_access;	/* how the pool's memory is registered ... */
	int iwarp_access;	/* ... and what iWARP needs beside it */
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

#define RDMA_CHAIN_WRS	   64 /* work requests of one ibv_post_send() */
#define RDMA_WR_SGES	   5  /* pieces one SEND gathers: a capsule and four of in-capsule data */
#define RDMA_DEV_EP_ROWS   256
#define RDMA_DRAIN_NS	   5000000000ull /* a device that has not flushed by then never will */
#define RDMA_CQ_FIRST_SIZE 1024		 /* grows from here with what is admitted */

struct rdma_dev {
	struct rdma_devs *devs;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	bool iwarp;
	bool can_invalidate; /* SEND with invalidate works */
	bool failed;	     /* removed or broken: no new user */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t cq_size;
	uint32_t cq_used; /* completions that may be there at once: the sum of what was admitted */
	bool armed;	  /* a notification was asked for and has not come */
	uint32_t nr_users;
	struct list srqs; /* of a target; owned here */
	struct list node; /* devs' */
	struct loop_poller poller;
	struct loop_poll channel_poll;
	struct rdma_async_member async;
	struct loop_poll async_poll;	   /* verbs->async_fd */
	struct loop_poll async_notes_poll; /* async.event_fd */
	struct loop_flush cleanup;
	uint32_t nr_polls; /* of the three above, not yet deleted */
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

/*
 * Room for NR more completions: the queue grows or -ENOSPC is returned, so that it never overruns.
 */
int rdma_dev_admit(struct rdma_dev *dev, uint32_t nr) must_check;
void rdma_dev_release(struct rdma_dev *dev, uint32_t nr);

/* Handles completions until there is none. Not from within a completion. */
void rdma_dev_poll_all(struct rdma_dev *dev);

/* The endpoint of a queue pair number, or NULL. */
struct rdma_ep *rdma_dev_find(struct rdma_dev *dev, uint32_t qp_num);

/* ibv_reg_mr; -ENOMEM and -EPERM say in the log how much locked memory is needed and where to
 * allow it. */
int rdma_dev_register(struct rdma_dev *dev, void *base, size_t length, int access,
	struct ibv_mr **ret) must_check;

/* Memory for messages, registered with one device. Apart from the pool, so that a queue can be made
 * while data waits for buffers there. */
struct rdma_memory {
	void *bytes; /* page-aligned; NULL: there is none */
	size_t length;
	struct ibv_mr *mr;
};
int rdma_memory_get(struct rdma_dev *dev, size_t length, struct rdma_memory *ret) must_check;
/* Where the device keeps its registration the memory stays mapped: it may write there. */
void rdma_memory_put(struct rdma_dev *dev, struct rdma_memory *memory);

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
