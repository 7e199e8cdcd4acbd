/* SPDX-License-Identifier: MIT */
/*
 * Event queue: one unit of the eventfd stands for one entry of the list.
 * An entry is put before its unit, so who has read a unit finds an entry, unless it was purged.
 */
#include "tests/softrdma/evq.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int sr_evq_init(struct sr_evq *q)
{
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (q->fd < 0)
		return errno;
	pthread_mutex_init(&q->lock, NULL);
	TAILQ_INIT(&q->list);
	TAILQ_INIT(&q->spare);
	return 0;
}

static void evq_free_list(struct sr_evq_list *list)
{
	struct sr_evq_entry *e;

	while ((e = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, e, link);
		free(e);
	}
}

void sr_evq_destroy(struct sr_evq *q)
{
	evq_free_list(&q->list);
	evq_free_list(&q->spare);
	close(q->fd);
	q->fd = -1;
	pthread_mutex_destroy(&q->lock);
}

/* With the queue's lock. */
static struct sr_evq_entry *evq_new_entry(struct sr_evq *q)
{
	struct sr_evq_entry *e = TAILQ_FIRST(&q->spare);

	if (e)
		TAILQ_REMOVE(&q->spare, e, link);
	else
		e = calloc(1, sizeof(*e));
	if (!e)
		abort();
	return e;
}

void sr_evq_add(struct sr_evq *q, uint32_t type, void *object)
{
	struct sr_evq_entry *e;
	uint64_t one = 1;

	pthread_mutex_lock(&q->lock);
	e = evq_new_entry(q);
	e->type = type;
	e->object = object;
	TAILQ_INSERT_TAIL(&q->list, e, link);
	pthread_mutex_unlock(&q->lock);
	while (write(q->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

int sr_evq_take(
	struct sr_evq *q, uint32_t *type, void **object, void (*taken)(uint32_t type, void *object))
{
	for (;;) {
		struct sr_evq_entry *e;
		uint64_t unit;

		if (read(q->fd, &unit, sizeof(unit)) < 0)
			return errno;
		pthread_mutex_lock(&q->lock);
		e = TAILQ_FIRST(&q->list);
		if (e) {
			TAILQ_REMOVE(&q->list, e, link);
			*type = e->type;
			*object = e->object;
			if (taken)
				taken(e->type, e->object);
			TAILQ_INSERT_HEAD(&q->spare, e, link);
		}
		pthread_mutex_unlock(&q->lock);
		if (e)
			return 0;
	}
}

/* Takes back the units of purged entries; a reader that was faster only looks again. */
static void evq_unget(struct sr_evq *q, unsigned int n)
{
	struct pollfd p = {.fd = q->fd, .events = POLLIN};
	uint64_t unit;
	struct iovec iov = {&unit, sizeof(unit)};

	while (n-- > 0) {
		if (preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) > 0)
			continue;
		/* valgrind knows no RWF_NOWAIT; whoever polls on another thread then loses the
		 * race. */
		if (errno == EAGAIN || poll(&p, 1, 0) != 1 || read(q->fd, &unit, sizeof(unit)) < 0)
			return;
	}
}

static unsigned int evq_pick(struct sr_evq *from, struct sr_evq *to, const void *object)
{
	struct sr_evq_entry *e, *next;
	unsigned int n = 0;

	pthread_mutex_lock(&from->lock);
	for (e = TAILQ_FIRST(&from->list); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->object != object)
			continue;
		TAILQ_REMOVE(&from->list, e, link);
		TAILQ_INSERT_HEAD(&from->spare, e, link);
		n++;
		if (to)
			sr_evq_add(to, e->type, e->object);
	}
	evq_unget(from, n);
	pthread_mutex_unlock(&from->lock);
	return n;
}

unsigned int sr_evq_purge(struct sr_evq *q, const void *object)
{
	return evq_pick(q, NULL, object);
}

void sr_evq_move(struct sr_evq *from, struct sr_evq *to, const void *object)
{
	if (from != to)
		evq_pick(from, to, object);
}
