/* SPDX-License-Identifier: MIT */
/*
 * The caller's I/O on a queue, as the queue sees it.
 */
#ifndef HAUL_INITIATOR_IO_H
#define HAUL_INITIATOR_IO_H

#include "initiator/queue.h"

/* Requests have become free; the queue has ended. */
void io_feed(struct haul_queue *queue);
void io_cancel_starved(struct haul_queue *queue);
int io_alloc(struct haul_queue *queue) must_check;
void io_free(struct haul_queue *queue);
void io_drop_events(struct haul_queue *queue);

#endif
