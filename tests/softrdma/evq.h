/* SPDX-License-Identifier: MIT */
/*
 * A queue of events behind a descriptor: completion channels, asynchronous events, CM event
 * channels. The descriptor is a counting eventfd, so poll(), O_NONBLOCK and blocking reads work as
 * on the real ones.
 */
#ifndef SOFTRDMA_EVQ_H
#define SOFTRDMA_EVQ_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

struct sr_evq_entry {
	void *object;
	uint32_t type;
	TAILQ_ENTRY(sr_evq_entry) link;
};

struct sr_evq {
	int fd;
	pthread_mutex_t lock;
	TAILQ_HEAD(sr_evq_list, sr_evq_entry) list;
	struct sr_evq_list spare; /* so that an event a batch of I/O costs no allocation */
};

int sr_evq_init(struct sr_evq *q);
void sr_evq_destroy(struct sr_evq *q);
/* Any thread. */
void sr_evq_add(struct sr_evq *q, uint32_t type, void *object);
/* Waits as the descriptor's flags say. taken runs under the queue's lock for the event taken out. 0
 * or errno. */
int sr_evq_take(struct sr_evq *q, uint32_t *type, void **object,
	void (*taken)(uint32_t type, void *object));
/* Forgets the queued events of object and returns how many there were. */
unsigned int sr_evq_purge(struct sr_evq *q, const void *object);
/* Moves the queued events that belong to object to another queue. */
void sr_evq_move(struct sr_evq *from, struct sr_evq *to, const void *object);

#endif
