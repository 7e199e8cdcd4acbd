/* SPDX-License-Identifier: MIT */
/*
 * The one background thread of a process ("the hardware") and the one lock all objects share.
 * Every callback here runs on that thread with the lock held.
 */
#ifndef SOFTRDMA_ENGINE_H
#define SOFTRDMA_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#define sr_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* A descriptor the engine watches. fd is -1 once it was given back. */
struct sr_source {
	int fd;
	uint32_t events;
	void (*ready)(struct sr_source *src, uint32_t events);
	LIST_ENTRY(sr_source) link;
};

struct sr_timer {
	uint64_t due_ns; /* 0: not armed */
	void (*fire)(struct sr_timer *timer);
	TAILQ_ENTRY(sr_timer) link;
};

/* Something to do on the engine's thread, once, soon. */
struct sr_work {
	bool queued;
	void (*run)(struct sr_work *work);
	TAILQ_ENTRY(sr_work) link;
};

/* Memory that an event already taken from epoll may still point to; freed after that turn. */
struct sr_garbage {
	struct sr_garbage *next;
	void *mem;
};

void sr_lock(void);
void sr_unlock(void);
uint64_t sr_now_ns(void);

/* Starts the thread if this process has none yet. 0 or an errno. Any thread. */
int sr_engine_start(void);

/* For a program that polls in vain: looks at the sockets on its thread. */
void sr_engine_help(void);

/* All of the following with the lock held, on any thread. */
int sr_source_add(struct sr_source *src, uint32_t events);
void sr_source_want(struct sr_source *src, uint32_t events);
/* Stops watching until the next sr_source_add(). */
void sr_source_ignore(struct sr_source *src);
/* Stops watching and closes the descriptor. */
void sr_source_close(struct sr_source *src);
void sr_timer_arm(struct sr_timer *timer, uint64_t delay_ns);
void sr_timer_cancel(struct sr_timer *timer);
void sr_work_queue(struct sr_work *work);
void sr_work_cancel(struct sr_work *work);
void sr_garbage_add(struct sr_garbage *garbage, void *mem);
bool sr_on_engine(void);

#endif
