/* SPDX-License-Identifier: MIT */
/*
 * What a device's asynchronous events mean for its endpoints and for itself.
 */
#include "proto/link/rdma_events.h"

#include "proto/base/log.h"
#include "proto/link/rdma_dev.h"
#include "proto/link/rdma_ep.h"

/* Notes were missed: ask each queue pair how it is. */
static void rdma_events_lost(struct rdma_dev *dev)
{
	struct rdma_ep *ep;
	unsigned row;

	for (row = 0; row < RDMA_DEV_EP_ROWS; row++) {
		list_for_each_entry (ep, &dev->eps[row], node)
			rdma_ep_check(ep, "the queue pair is in error");
	}
}

static void rdma_events_qp(struct rdma_dev *dev, const struct rdma_async_note *note)
{
	struct rdma_ep *ep = rdma_dev_find(dev, note->number);

	/* Not ours, or gone: other loops and other users of the device have queue pairs too. A
	 * number may have been given out again, hence the queue pair is asked, not the event. */
	if (ep)
		rdma_ep_check(ep, ibv_event_type_str(note->type));
}

static void rdma_events_handle(struct rdma_dev *dev, const struct rdma_async_note *note)
{
	switch (note->type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		rdma_events_qp(dev, note);
		break;
	case IBV_EVENT_CQ_ERR:
		if (note->element == dev->cq.verbs)
			rdma_dev_fail(dev, "the completion queue overran");
		break;
	case IBV_EVENT_SRQ_ERR:
		if (rdma_srq_is_of(dev, note->element))
			rdma_dev_fail(dev, "a shared receive queue failed");
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_WQ_FATAL:
		rdma_dev_fail(dev, "the device failed or was removed");
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

void rdma_events_ready(struct loop_poll *poll, uint32_t events)
{
	(void)events;
	rdma_async_read(container_of(poll, struct rdma_dev, async_poll)->verbs);
}

void rdma_events_notes_ready(struct loop_poll *poll, uint32_t events)
{
	struct rdma_dev *dev = container_of(poll, struct rdma_dev, async_notes_poll);
	struct rdma_async_note note;
	bool lost, found;

	(void)events;
	do {
		found = rdma_async_take(&dev->async, &note, &lost);
		if (lost)
			rdma_events_lost(dev);
		if (found)
			rdma_events_handle(dev, &note);
	} while (found);
}
