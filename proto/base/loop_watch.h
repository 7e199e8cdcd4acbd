/* SPDX-License-Identifier: MIT */
/*
 * The epoll set of a loop, with either engine: all polls are in it, level-triggered; the epoll
 * engine's sockets, too. Only parts of the loop include this.
 */
#ifndef HAUL_BASE_LOOP_WATCH_H
#define HAUL_BASE_LOOP_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "proto/base/compiler.h"

#define LOOP_WATCH_EVENTS 128

struct loop;

struct loop_watch {
	int epoll_fd;
	bool lacks_pwait2;
	/* Fetched and not yet looked at: NEXT up to NR. */
	int next;
	int nr;
	struct epoll_event events[LOOP_WATCH_EVENTS];
};

int loop_watch_init(struct loop_watch *watch) must_check;
void loop_watch_exit(struct loop_watch *watch);

/* TAG names who is told: a struct loop_poll, or what the epoll engine makes of it. Not 0. */
int loop_watch_add(struct loop *loop, int fd, uint32_t events, uintptr_t tag) must_check;
/* TAG is not told any more, not even of events fetched already. */
void loop_watch_del(struct loop *loop, int fd, uintptr_t tag);

/* Fetches events unless some are left; sleeps up to TIMEOUT_NS (negative: no limit). */
void loop_watch_fetch(struct loop *loop, int64_t timeout_ns);
/* The next event fetched; false when none is left. */
bool loop_watch_next(struct loop *loop, uintptr_t *ret_tag, uint32_t *ret_events);

static inline bool loop_watch_has_next(const struct loop_watch *watch)
{
	return watch->next < watch->nr;
}

#endif
