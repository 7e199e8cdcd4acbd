/* SPDX-License-Identifier: MIT */
/*
 * The completion queue of a device on a loop: polled, armed, resized.
 */
#include "proto/link/rdma_cq.h"

#include <errno.h>

#include "proto/base/fd.h"
#include "proto/link/rdma_dev.h"

#define RDMA_CQ_POLL_BATCH 32
#define RDMA_CQ_FIRST_SIZE 1024 /* grows from here with what is admitted */

static struct rdma_dev *rdma_cq_dev(struct rdma_cq *cq)
{
	return container_of(cq, struct rdma_dev, cq);
}

static uint32_t rdma_cq_poll(struct loop_poller *poller, uint32_t budget)
{
	struct rdma_cq *cq = container_of(poller, struct rdma_cq, poller);
	struct ibv_wc wc[RDMA_CQ_POLL_BATCH];
	struct wc_done *done;
	uint32_t total = 0, want;
	int nr, i;

	do {
		want = min_of(budget - total, (uint32_t)RDMA_CQ_POLL_BATCH);
		nr = ibv_poll_cq(cq->verbs, (int)want, wc);
		if (nr < 0) {
			rdma_dev_fail(rdma_cq_dev(cq), "the completion queue cannot be read");
			break;
		}
		for (i = 0; i < nr; i++) {
			done = (struct wc_done *)(uintptr_t)wc[i].wr_id;
			done->fn(done, &wc[i]);
		}
		total += (uint32_t)nr;
	} while ((uint32_t)nr == want && total < budget);
	return total;
}

void rdma_cq_poll_all(struct rdma_cq *cq)
{
	while (rdma_cq_poll(&cq->poller, cq->size) == cq->size)
		;
}

/* Ask for a notification, then have the queue looked at once more: what came before the request
 * notifies nobody. */
static int rdma_cq_arm(struct loop_poller *poller)
{
	struct rdma_cq *cq = container_of(poller, struct rdma_cq, poller);

	if (cq->armed || rdma_cq_dev(cq)->failed)
		return 0;
	if (ibv_req_notify_cq(cq->verbs, 0)) {
		rdma_dev_fail(rdma_cq_dev(cq), "the completion queue cannot be armed");
		return 0;
	}
	cq->armed = true;
	return 1;
}

static void rdma_cq_channel_ready(struct loop_poll *poll, uint32_t events)
{
	struct rdma_cq *cq = container_of(poll, struct rdma_cq, channel_poll);
	struct ibv_cq *verbs;
	void *context;

	(void)events;
	if (ibv_get_cq_event(cq->channel, &verbs, &context))
		return;
	ibv_ack_cq_events(verbs, 1);
	cq->armed = false;
}

int rdma_cq_admit(struct rdma_cq *cq, uint32_t nr)
{
	struct rdma_dev *dev = rdma_cq_dev(cq);
	uint64_t need = (uint64_t)cq->used + nr;
	uint64_t size = cq->size;

	if (dev->failed)
		return -ENODEV;
	if (need > size) {
		while (size < need)
			size *= 2;
		size = min_of(size, (uint64_t)dev->attr.max_cqe);
		if (size < need || ibv_resize_cq(cq->verbs, (int)size))
			return -ENOSPC;
		cq->size = (uint32_t)cq->verbs->cqe;
		if (cq->size < need)
			return -ENOSPC;
	}
	cq->used += nr;
	return 0;
}

void rdma_cq_release(struct rdma_cq *cq, uint32_t nr)
{
	assert(cq->used >= nr);
	cq->used -= nr;
}

int rdma_cq_create(struct rdma_cq *cq)
{
	struct rdma_dev *dev = rdma_cq_dev(cq);
	struct ibv_context *verbs = dev->verbs;
	uint32_t vector = dev->devs->comp_vector % (uint32_t)max_of(verbs->num_comp_vectors, 1);
	int result;

	cq->poller.poll = rdma_cq_poll;
	cq->poller.arm = rdma_cq_arm;
	list_init(&cq->poller.node);
	cq->channel_poll.ready = rdma_cq_channel_ready;
	cq->channel = ibv_create_comp_channel(verbs);
	if (!cq->channel)
		return -errno;
	result = fd_set_nonblocking(cq->channel->fd);
	if (result)
		goto destroy_channel;
	cq->verbs = ibv_create_cq(verbs, min_of(RDMA_CQ_FIRST_SIZE, dev->attr.max_cqe), dev,
		cq->channel, (int)vector);
	if (!cq->verbs) {
		result = -errno;
		goto destroy_channel;
	}
	cq->size = (uint32_t)cq->verbs->cqe;
	return 0;

destroy_channel:
	ibv_destroy_comp_channel(cq->channel);
	return result;
}

void rdma_cq_destroy(struct rdma_cq *cq)
{
	struct rdma_dev *dev = rdma_cq_dev(cq);

	rdma_dev_check_destroy(dev, "completion queue", ibv_destroy_cq(cq->verbs));
	rdma_dev_check_destroy(dev, "completion channel", ibv_destroy_comp_channel(cq->channel));
}
