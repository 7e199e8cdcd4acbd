/* SPDX-License-Identifier: MIT */
/*
 * The devices of a loop: opened on first use, shared by its endpoints, closed when they have gone.
 */
#include "proto/link/rdma_dev.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/link/rdma_ep.h"
#include "proto/link/rdma_events.h"
#include "proto/link/rdma_srq.h"

/* --- life ---------------------------------------------------------------------------------- */

const char *rdma_dev_name(const struct rdma_dev *dev)
{
	return ibv_get_device_name(dev->verbs->device);
}

void rdma_dev_check_destroy(const struct rdma_dev *dev, const char *what, int error)
{
	if (!rdma_dev_let_go(dev, error))
		log_error("rdma: %s: cannot destroy the %s: %s", rdma_dev_name(dev), what,
			strerror(error));
}

void rdma_dev_fail(struct rdma_dev *dev, const char *why)
{
	struct rdma_ep *ep;
	unsigned row;

	if (!dev->failed)
		log_error("rdma: %s: %s", rdma_dev_name(dev), why);
	dev->failed = true;
	for (row = 0; row < RDMA_DEV_EP_ROWS; row++) {
		list_for_each_entry (ep, &dev->eps[row], node)
			rdma_ep_fail(ep, -ENODEV, why);
	}
	loop_flush_later(dev->devs->loop, &dev->cleanup);
}

struct rdma_ep *rdma_dev_find(struct rdma_dev *dev, uint32_t qp_num)
{
	struct rdma_ep *ep;

	list_for_each_entry (ep, &dev->eps[qp_num % RDMA_DEV_EP_ROWS], node) {
		if (ep->qp_num == qp_num)
			return ep;
	}
	return NULL;
}

/* --- made and ended ------------------------------------------------------------------------ */

static int rdma_dev_verbs_create(struct rdma_dev *dev)
{
	int result;

	dev->pd = ibv_alloc_pd(dev->verbs);
	if (!dev->pd)
		return -errno;
	result = rdma_cq_create(&dev->cq);
	if (result)
		ibv_dealloc_pd(dev->pd);
	return result;
}

static void rdma_dev_verbs_destroy(struct rdma_dev *dev)
{
	rdma_cq_destroy(&dev->cq);
	rdma_dev_check_destroy(dev, "protection domain", ibv_dealloc_pd(dev->pd));
}

/* The three descriptors leave the loop one by one; the last one frees the device. */
static void rdma_dev_poll_gone(struct rdma_dev *dev)
{
	if (--dev->nr_polls > 0)
		return;
	dev->devs->nr_closing--;
	free(dev);
}

static void rdma_dev_channel_deleted(struct loop_poll *poll)
{
	rdma_dev_poll_gone(container_of(poll, struct rdma_dev, cq.channel_poll));
}

static void rdma_dev_async_deleted(struct loop_poll *poll)
{
	rdma_dev_poll_gone(container_of(poll, struct rdma_dev, async_poll));
}

static void rdma_dev_async_notes_deleted(struct loop_poll *poll)
{
	rdma_dev_poll_gone(container_of(poll, struct rdma_dev, async_notes_poll));
}

/* Takes the descriptors that were added (nr_polls of them, in the order below) off the loop. */
static void rdma_dev_unwatch(struct rdma_dev *dev)
{
	struct loop *loop = dev->devs->loop;
	uint32_t nr = dev->nr_polls;

	dev->devs->nr_closing++;
	if (nr > 2)
		loop_poll_del(loop, &dev->async_notes_poll, rdma_dev_async_notes_deleted);
	if (nr > 1)
		loop_poll_del(loop, &dev->async_poll, rdma_dev_async_deleted);
	if (nr > 0) {
		loop_poll_del(loop, &dev->cq.channel_poll, rdma_dev_channel_deleted);
		return;
	}
	dev->devs->nr_closing--;
	free(dev);
}

static int rdma_dev_watch(struct rdma_dev *dev)
{
	struct loop *loop = dev->devs->loop;
	int result;

	dev->async_poll.ready = rdma_events_ready;
	dev->async_notes_poll.ready = rdma_events_notes_ready;
	result = loop_poll_add(loop, &dev->cq.channel_poll, dev->cq.channel->fd, POLLIN);
	if (result)
		return result;
	dev->nr_polls = 1;
	result = loop_poll_add(loop, &dev->async_poll, dev->verbs->async_fd, POLLIN);
	if (result)
		return result;
	dev->nr_polls = 2;
	result = loop_poll_add(loop, &dev->async_notes_poll, dev->async.event_fd, POLLIN);
	if (result)
		return result;
	dev->nr_polls = 3;
	return 0;
}

static void rdma_dev_destroy(struct rdma_dev *dev)
{
	assert(dev->nr_users == 0);
	list_remove(&dev->node);
	loop_flush_cancel(&dev->cleanup);
	loop_poller_del(dev->devs->loop, &dev->cq.poller);
	if (dev->devs->removed)
		dev->devs->removed(dev->devs, dev);
	bufpool_registrar_del(dev->devs->pool, &dev->registrar);
	rdma_srq_destroy_all(dev);
	rdma_dev_verbs_destroy(dev);
	rdma_async_leave(&dev->async);
	rdma_dev_unwatch(dev);
}

/* End of a turn: a failed device goes with its last user. */
static void rdma_dev_cleanup(struct loop_flush *flush)
{
	struct rdma_dev *dev = container_of(flush, struct rdma_dev, cleanup);

	if (dev->failed && dev->nr_users == 0)
		rdma_dev_destroy(dev);
}

static void rdma_dev_init(struct rdma_dev *dev, struct rdma_devs *devs, struct ibv_context *verbs)
{
	unsigned row;

	dev->devs = devs;
	dev->verbs = verbs;
	list_init(&dev->node);
	list_init(&dev->srqs);
	loop_flush_init(&dev->cleanup, rdma_dev_cleanup);
	rdma_memory_registrar_init(&dev->registrar);
	for (row = 0; row < RDMA_DEV_EP_ROWS; row++)
		list_init(&dev->eps[row]);
}

/* Data would wait for ever for a buffer that cannot be registered: there must be one. */
static int rdma_dev_try_pool(struct rdma_dev *dev)
{
	struct bufpool *pool = dev->devs->pool;
	struct bufpool_stats stats;
	struct buf *buf;

	bufpool_stats_get(pool, &stats);
	if (stats.bytes_mapped)
		return 0;
	buf = bufpool_get(pool, 1);
	if (!buf)
		return -ENOMEM;
	bufpool_put(pool, buf);
	return 0;
}

static int rdma_dev_open(struct rdma_devs *devs, struct ibv_context *verbs, struct rdma_dev **ret)
{
	struct rdma_dev *dev = calloc(1, sizeof(*dev));
	int result;

	if (!dev)
		return -ENOMEM;
	rdma_dev_init(dev, devs, verbs);
	result = -ibv_query_device(verbs, &dev->attr);
	if (result)
		goto free_dev;
	dev->quirks = rdma_quirks_of(verbs->device, &dev->attr);
	result = rdma_dev_verbs_create(dev);
	if (result)
		goto free_dev;
	result = rdma_async_join(&dev->async, verbs);
	if (result)
		goto destroy_verbs;
	result = bufpool_registrar_add(devs->pool, &dev->registrar);
	if (result)
		goto leave_async;
	result = rdma_dev_try_pool(dev);
	if (!result && devs->added)
		result = devs->added(devs, dev);
	if (result)
		goto del_registrar;
	result = rdma_dev_watch(dev);
	if (result)
		goto removed;
	loop_poller_add(devs->loop, &dev->cq.poller);
	list_push_back(&devs->list, &dev->node);
	*ret = dev;
	return 0;

removed:
	if (devs->removed)
		devs->removed(devs, dev);
	rdma_srq_destroy_all(dev);
del_registrar:
	bufpool_registrar_del(devs->pool, &dev->registrar);
leave_async:
	rdma_async_leave(&dev->async);
destroy_verbs:
	rdma_dev_verbs_destroy(dev);
free_dev:
	rdma_dev_unwatch(dev);
	return result;
}

int rdma_dev_get(struct rdma_devs *devs, struct ibv_context *verbs, struct rdma_dev **ret)
{
	struct rdma_dev *dev;
	int result;

	list_for_each_entry (dev, &devs->list, node) {
		if (dev->verbs == verbs && !dev->failed) {
			dev->nr_users++;
			*ret = dev;
			return 0;
		}
	}
	result = rdma_dev_open(devs, verbs, ret);
	if (result) {
		log_line_limited(&devs->limit, loop_now_ns(devs->loop), LOG_LEVEL_ERROR,
			"rdma: cannot use %s: %s", ibv_get_device_name(verbs->device),
			strerror(-result));
		return result;
	}
	(*ret)->nr_users++;
	log_info("rdma: using %s%s, completion queue of %u", rdma_dev_name(*ret),
		verbs->device->transport_type == IBV_TRANSPORT_IWARP ? " (iWARP)" : "",
		(*ret)->cq.size);
	return 0;
}

void rdma_dev_put(struct rdma_dev *dev)
{
	assert(dev->nr_users > 0);
	if (--dev->nr_users == 0 && dev->failed)
		loop_flush_later(dev->devs->loop, &dev->cleanup);
}

void rdma_devs_init(
	struct rdma_devs *devs, struct loop *loop, struct bufpool *pool, int pool_access)
{
	devs->loop = loop;
	devs->pool = pool;
	devs->pool_access = pool_access;
	devs->drain_ns = RDMA_DRAIN_NS;
	list_init(&devs->list);
}

void rdma_devs_destroy(struct rdma_devs *devs)
{
	struct rdma_dev *dev, *after;

	list_for_each_entry_safe (dev, after, &devs->list, node)
		rdma_dev_destroy(dev);
	while (devs->nr_closing)
		loop_turn(devs->loop);
}
