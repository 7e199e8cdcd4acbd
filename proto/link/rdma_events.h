/* SPDX-License-Identifier: MIT */
/*
 * What a device's asynchronous events mean: an endpoint has to be asked how it is, the device is
 * lost, or it is only worth a line in the log. How they come to each loop is rdma_async.h's.
 */
#ifndef HAUL_LINK_RDMA_EVENTS_H
#define HAUL_LINK_RDMA_EVENTS_H

#include "proto/base/loop.h"

/* For a device's ASYNC_POLL and ASYNC_NOTES_POLL. */
void rdma_events_ready(struct loop_poll *poll, uint32_t events);
void rdma_events_notes_ready(struct loop_poll *poll, uint32_t events);

#endif
