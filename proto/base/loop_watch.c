/* SPDX-License-Identifier: MIT */
/*
 * Polls of a loop and the epoll set they are in: see loop.h and loop_watch.h. io_uring's own polls
 * are not used for them: they are not level-triggered, outlive the descriptor, and an event
 * descriptor polled by a ring does not reliably wake who sleeps on the ring's event descriptor
 * (seen with Linux 6.18: late, then never).
 */
#include "proto/base/loop_watch.h"

#include <errno.h>
#include <unistd.h>

#include "proto/base/loop_engine.h"

int loop_watch_init(struct loop_watch *watch)
{
	watch->next = 0;
	watch->nr = 0;
	watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return watch->epoll_fd < 0 ? -errno : 0;
}

void loop_watch_exit(struct loop_watch *watch)
{
	close(watch->epoll_fd);
}

int loop_watch_add(struct loop *loop, int fd, uint32_t events, uintptr_t tag)
{
	struct epoll_event event = {.events = events, .data.u64 = tag};

	loop->stats.nr_syscalls++;
	return epoll_ctl(loop->watch.epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void loop_watch_del(struct loop *loop, int fd, uintptr_t tag)
{
	struct loop_watch *watch = &loop->watch;

	loop->stats.nr_syscalls++;
	epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	for (int i = watch->next; i < watch->nr; i++)
		if (watch->events[i].data.u64 == tag)
			watch->events[i].data.u64 = 0;
}

static int loop_watch_wait(struct loop_watch *watch, int64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = timeout_ns / 1000000000,
		.tv_nsec = timeout_ns % 1000000000,
	};
	const int64_t day_ms = 86400000;
	int timeout_ms = -1;
	int nr;

	if (timeout_ns > 0 && !watch->lacks_pwait2) {
		nr = epoll_pwait2(
			watch->epoll_fd, watch->events, LOOP_WATCH_EVENTS, &timeout, NULL);
		/* Before 5.11, or behind a filter that does not know it. */
		if (nr >= 0 || (errno != ENOSYS && errno != EPERM))
			return nr;
		watch->lacks_pwait2 = true;
	}
	if (timeout_ns >= 0)
		timeout_ms = (int)min_of((timeout_ns + 999999) / 1000000, day_ms);
	return epoll_wait(watch->epoll_fd, watch->events, LOOP_WATCH_EVENTS, timeout_ms);
}

void loop_watch_fetch(struct loop *loop, int64_t timeout_ns)
{
	struct loop_watch *watch = &loop->watch;

	if (loop_watch_has_next(watch))
		return;
	loop->stats.nr_syscalls++;
	watch->next = 0;
	/* A signal is as good as an event: the caller looks again. */
	watch->nr = loop_watch_wait(watch, timeout_ns);
}

bool loop_watch_next(struct loop *loop, uintptr_t *ret_tag, uint32_t *ret_events)
{
	struct loop_watch *watch = &loop->watch;
	const struct epoll_event *event;

	while (loop_watch_has_next(watch)) {
		event = &watch->events[watch->next++];
		if (!event->data.u64)
			continue;
		*ret_tag = (uintptr_t)event->data.u64;
		*ret_events = event->events;
		return true;
	}
	return false;
}

/* --- polls ---------------------------------------------------------------------------------- */

/* The operation of a poll only carries the news of its deletion to a later turn. */
static void loop_poll_deleted(struct done *done, int res, unsigned flags)
{
	struct loop_poll *poll = container_of(done, struct loop_poll, op.done);

	(void)res;
	(void)flags;
	if (poll->deleted)
		poll->deleted(poll);
}

int loop_poll_add(struct loop *loop, struct loop_poll *poll, int fd, uint32_t events)
{
	int err;

	poll->fd = fd;
	poll->events = events;
	poll->loop = loop;
	/* poll(2)'s and epoll's bits are the same. */
	err = loop_watch_add(loop, fd, events, (uintptr_t)poll);
	poll->active = !err;
	return err;
}

void loop_poll_del(
	struct loop *loop, struct loop_poll *poll, void (*deleted)(struct loop_poll *poll))
{
	if (!poll->active)
		return;
	poll->active = false;
	poll->deleted = deleted;
	loop_watch_del(loop, poll->fd, (uintptr_t)poll);
	poll->op.done.fn = loop_poll_deleted;
	poll->op.kind = LOOP_OP_POLL;
	poll->op.flags = 0;
	list_init(&poll->op.node);
	loop_op_complete(loop, &poll->op, 0);
}
