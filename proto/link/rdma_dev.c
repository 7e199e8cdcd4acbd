/* SPDX-License-Identifier: MIT */
/*
 * One RDMA device on one loop: its resources, its completion queue and its events.
 */
#include "proto/link/rdma_dev.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "proto/base/fd.h"
#include "proto/base/log.h"
#include "proto/link/rdma_ep.h"
#include "proto/link/rdma_srq.h"

#define RDMA_DEV_POLL_BATCH	 32
#define RDMA_DEV_SOFTROCE_VENDOR 0xffffff

/* --- memory -------------------------------------------------------------------------------- */

static void rdma_dev_explain_memlock(struct rdma_dev *dev, size_t length, int error)
{
	struct rlimit limit = {0};

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	log_line_limited(&dev->devs->limit, loop_now_ns(dev->devs->loop), LOG_LEVEL_ERROR,
		"rdma: %s: cannot register %zu bytes: %s; locked memory is limited to %llu bytes: "
		"raise it (LimitMEMLOCK= of the unit, memlock in limits.conf, or ulimit -l)",
		rdma_dev_name(dev), length, strerror(error), (unsigned long long)limit.rlim_cur);
}

int rdma_dev_register(
	struct rdma_dev *dev, void *base, size_t length, int access, struct ibv_mr **ret)
{
	struct ibv_mr *mr = ibv_reg_mr(dev->pd, base, length, access);
	int error = errno;

	if (!mr) {
		if (error == ENOMEM || error == EPERM)
			rdma_dev_explain_memlock(dev, length, error);
		else
			log_line_limited(&dev->devs->limit, loop_now_ns(dev->devs->loop),
				LOG_LEVEL_ERROR, "rdma: %s: cannot register %zu bytes: %s",
				rdma_dev_name(dev), length, strerror(error));
		return error ? -error : -ENOMEM;
	}
	*ret = mr;
	return 0;
}

static int rdma_dev_pool_add(
	struct bufpool_registrar *registrar, struct bufpool_region *region, void **ret_key)
{
	struct rdma_dev *dev = container_of(registrar, struct rdma_dev, registrar);
	int access = dev->devs->pool_access | (dev->iwarp ? dev->devs->iwarp_access : 0);
	struct ibv_mr *mr;
	int result = rdma_dev_register(dev, region->base, BUFPOOL_REGION_BYTES, access, &mr);

	if (!result)
		*ret_key = mr;
	return result;
}

/* A device that is gone has let go of everything; its library then says EIO. */
static bool rdma_dev_destroyed(const struct rdma_dev *dev, int error)
{
	return error == 0 || (error == EIO && dev->failed);
}

static int rdma_dev_pool_del(
	struct bufpool_registrar *registrar, struct bufpool_region *region, void *key)
{
	struct rdma_dev *dev = container_of(registrar, struct rdma_dev, registrar);
	int error = ibv_dereg_mr(key);

	(void)region;
	if (rdma_dev_destroyed(dev, error))
		return 0;
	log_error("rdma: %s: cannot deregister memory: %s", rdma_dev_name(dev), strerror(error));
	return -error;
}

int rdma_memory_get(struct rdma_dev *dev, size_t length, struct rdma_memory *ret)
{
	int result;

	ret->length = length;
	ret->bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	result = ret->bytes == MAP_FAILED ? -errno : 0;
	if (result) {
		ret->bytes = NULL;
		return result;
	}
	result = rdma_dev_register(dev, ret->bytes, length, IBV_ACCESS_LOCAL_WRITE, &ret->mr);
	if (result) {
		munmap(ret->bytes, length);
		ret->bytes = NULL;
	}
	return result;
}

void rdma_memory_put(struct rdma_dev *dev, struct rdma_memory *memory)
{
	int error;

	if (!memory->bytes)
		return;
	error = ibv_dereg_mr(memory->mr);
	if (rdma_dev_destroyed(dev, error))
		munmap(memory->bytes, memory->length);
	else
		log_error("rdma: %s: cannot deregister memory: %s", rdma_dev_name(dev),
			strerror(error));
	memory->bytes = NULL;
}

/* --- completions --------------------------------------------------------------------------- */

static void rdma_dev_broken(struct rdma_dev *dev, const char *why)
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

static uint32_t rdma_dev_poll(struct loop_poller *poller, uint32_t budget)
{
	struct rdma_dev *dev = container_of(poller, struct rdma_dev, poller);
	struct ibv_wc wc[RDMA_DEV_POLL_BATCH];
	struct wc_done *done;
	uint32_t total = 0, want;
	int nr, i;

	do {
		want = min_of(budget - total, (uint32_t)RDMA_DEV_POLL_BATCH);
		nr = ibv_poll_cq(dev->cq, (int)want, wc);
		if (nr < 0) {
			rdma_dev_broken(dev, "the completion queue cannot be read");
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

void rdma_dev_poll_all(struct rdma_dev *dev)
{
	while (rdma_dev_poll(&dev->poller, dev->cq_size) == dev->cq_size)
		;
}

/* Ask for a notification, then have the queue looked at once more: what came before the request
 * notifies nobody. */
static int rdma_dev_arm(struct loop_poller *poller)
{
	struct rdma_dev *dev = container_of(poller, struct rdma_dev, poller);

	if (dev->armed || dev->failed)
		return 0;
	if (ibv_req_notify_cq(dev->cq, 0)) {
		rdma_dev_broken(dev, "the completion queue cannot be armed");
		return 0;
	}
	dev->armed = true;
	return 1;
}

static void rdma_dev_channel_ready(struct loop_poll *poll, uint32_t events)
{
	struct rdma_dev *dev = container_of(poll, struct rdma_dev, channel_poll);
	struct ibv_cq *cq;
	void *context;

	(void)events;
	if (ibv_get_cq_event(dev->channel, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	dev->armed = false;
}

int rdma_dev_admit(struct rdma_dev *dev, uint32_t nr)
{
	uint64_t need = (uint64_t)dev->cq_used + nr;
	uint64_t size = dev->cq_size;

	if (dev->failed)
		return -ENODEV;
	if (need > size) {
		while (size < need)
			size *= 2;
		size = min_of(size, (uint64_t)dev->attr.max_cqe);
		if (size < need || ibv_resize_cq(dev->cq, (int)size))
			return -ENOSPC;
		dev->cq_size = (uint32_t)dev->cq->cqe;
		if (dev->cq_size < need)
			return -ENOSPC;
	}
	dev->cq_used += nr;
	return 0;
}

void rdma_dev_release(struct rdma_dev *dev, uint32_t nr)
{
	assert(dev->cq_used >= nr);
	dev->cq_used -= nr;
}

/* --- asynchronous events ------------------------------------------------------------------- */

struct rdma_ep *rdma_dev_find(struct rdma_dev *dev, uint32_t qp_num)
{
	struct rdma_ep *ep;

	list_for_each_entry (ep, &dev->eps[qp_num % RDMA_DEV_EP_ROWS], node) {
		if (ep->qp_num == qp_num)
			return ep;
	}
	return NULL;
}

/* Notes were missed: ask each queue pair how it is. */
static void rdma_dev_check_all(struct rdma_dev *dev)
{
	struct rdma_ep *ep;
	unsigned row;

	for (row = 0; row < RDMA_DEV_EP_ROWS; row++) {
		list_for_each_entry (ep, &dev->eps[row], node)
			rdma_ep_check(ep, "the queue pair is in error");
	}
}

static void rdma_dev_qp_event(struct rdma_dev *dev, const struct rdma_async_note *note)
{
	struct rdma_ep *ep = rdma_dev_find(dev, note->number);

	/* Not ours, or gone: other loops and other users of the device have queue pairs too. A
	 * number may have been given out again, hence the queue pair is asked, not the event. */
	if (ep)
		rdma_ep_check(ep, ibv_event_type_str(note->type));
}

static void rdma_dev_event(struct rdma_dev *dev, const struct rdma_async_note *note)
{
	switch (note->type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		rdma_dev_qp_event(dev, note);
		break;
	case IBV_EVENT_CQ_ERR:
		if (note->element == dev->cq)
			rdma_dev_broken(dev, "the completion queue overran");
		break;
	case IBV_EVENT_SRQ_ERR:
		if (rdma_srq_is_of(dev, note->element))
			rdma_dev_broken(dev, "a shared receive queue failed");
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_WQ_FATAL:
		rdma_dev_broken(dev, "the device failed or was removed");
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		log_info("rdma: %s: port %u: %s", rdma_dev_name(dev), note->number,
			ibv_event_type_str(note->type));
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		log_debug("rdma: %s: %s", rdma_dev_name(dev), ibv_event_type_str(note->type));
		break;
	}
}

static void rdma_dev_async_ready(struct loop_poll *poll, uint32_t events)
{
	(void)events;
	rdma_async_read(container_of(poll, struct rdma_dev, async_poll)->verbs);
}

static void rdma_dev_async_notes_ready(struct loop_poll *poll, uint32_t events)
{
	struct rdma_dev *dev = container_of(poll, struct rdma_dev, async_notes_poll);
	struct rdma_async_note note;
	bool lost, found;

	(void)events;
	do {
		found = rdma_async_take(&dev->async, &note, &lost);
		if (lost)
			rdma_dev_check_all(dev);
		if (found)
			rdma_dev_event(dev, &note);
	} while (found);
}

/* --- life ---------------------------------------------------------------------------------- */

const char *rdma_dev_name(const struct rdma_dev *dev)
{
	return ibv_get_device_name(dev->verbs->device);
}

/* soft-RoCE has announced memory management extensions for long and got SEND with invalidate wrong
 * for as long: hosts get a plain SEND there and invalidate the key themselves. */
static bool rdma_dev_may_invalidate(const struct rdma_dev *dev)
{
	if (!(dev->attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS))
		return false;
	return dev->attr.vendor_id != RDMA_DEV_SOFTROCE_VENDOR &&
	       strncmp(rdma_dev_name(dev), "rxe", 3) != 0;
}

static int rdma_dev_queues_create(struct rdma_dev *dev)
{
	uint32_t vector;
	int result;

	dev->pd = ibv_alloc_pd(dev->verbs);
	if (!dev->pd)
		return -errno;
	dev->channel = ibv_create_comp_channel(dev->verbs);
	if (!dev->channel) {
		result = -errno;
		goto dealloc_pd;
	}
	result = fd_set_nonblocking(dev->channel->fd);
	if (result)
		goto destroy_channel;
	vector = dev->devs->comp_vector % (uint32_t)max_of(dev->verbs->num_comp_vectors, 1);
	dev->cq = ibv_create_cq(dev->verbs, min_of(RDMA_CQ_FIRST_SIZE, dev->attr.max_cqe), dev,
		dev->channel, (int)vector);
	if (!dev->cq) {
		result = -errno;
		goto destroy_channel;
	}
	dev->cq_size = (uint32_t)dev->cq->cqe;
	return 0;

destroy_channel:
	ibv_destroy_comp_channel(dev->channel);
dealloc_pd:
	ibv_dealloc_pd(dev->pd);
	return result;
}

static void rdma_dev_check_destroy(const struct rdma_dev *dev, const char *what, int error)
{
	if (!rdma_dev_destroyed(dev, error))
		log_error("rdma: %s: cannot destroy the %s: %s", rdma_dev_name(dev), what,
			strerror(error));
}

static void rdma_dev_queues_destroy(struct rdma_dev *dev)
{
	rdma_dev_check_destroy(dev, "completion queue", ibv_destroy_cq(dev->cq));
	rdma_dev_check_destroy(dev, "completion channel", ibv_destroy_comp_channel(dev->channel));
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
	rdma_dev_poll_gone(container_of(poll, struct rdma_dev, channel_poll));
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
		loop_poll_del(loop, &dev->channel_poll, rdma_dev_channel_deleted);
		return;
	}
	dev->devs->nr_closing--;
	free(dev);
}

static int rdma_dev_watch(struct rdma_dev *dev)
{
	struct loop *loop = dev->devs->loop;
	int result;

	dev->channel_poll.ready = rdma_dev_channel_ready;
	dev->async_poll.ready = rdma_dev_async_ready;
	dev->async_notes_poll.ready = rdma_dev_async_notes_ready;
	result = loop_poll_add(loop, &dev->channel_poll, dev->channel->fd, POLLIN);
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
	loop_poller_del(dev->devs->loop, &dev->poller);
	if (dev->devs->removed)
		dev->devs->removed(dev->devs, dev);
	bufpool_registrar_del(dev->devs->pool, &dev->registrar);
	rdma_srq_destroy_all(dev);
	rdma_dev_queues_destroy(dev);
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
	dev->iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	dev->poller.poll = rdma_dev_poll;
	dev->poller.arm = rdma_dev_arm;
	list_init(&dev->poller.node);
	list_init(&dev->node);
	list_init(&dev->srqs);
	loop_flush_init(&dev->cleanup, rdma_dev_cleanup);
	dev->registrar.add = rdma_dev_pool_add;
	dev->registrar.del = rdma_dev_pool_del;
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
	dev->can_invalidate = rdma_dev_may_invalidate(dev);
	result = rdma_dev_queues_create(dev);
	if (result)
		goto free_dev;
	result = rdma_async_join(&dev->async, verbs);
	if (result)
		goto destroy_queues;
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
	loop_poller_add(devs->loop, &dev->poller);
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
destroy_queues:
	rdma_dev_queues_destroy(dev);
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
		(*ret)->iwarp ? " (iWARP)" : "", (*ret)->cq_size);
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
