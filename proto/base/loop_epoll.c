/* SPDX-License-Identifier: MIT */
/*
 * The epoll engine, for where io_uring is refused: sockets are tried first and watched
 * edge-triggered when they are not ready; disk I/O goes through Linux AIO (loop_aio.c).
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proto/base/loop_aio.h"
#include "proto/base/loop_engine.h"

#define EPOLL_EVENTS 128

/* loop_file.state */
#define EPOLL_FILE_READABLE 0x1u /* receiving is worth a try */
#define EPOLL_FILE_WRITABLE 0x2u
#define EPOLL_FILE_HUNG_UP  0x4u /* the end of the stream, or an error, waits to be received */
#define EPOLL_FILE_WATCHED  0x8u /* in the epoll set */
#define EPOLL_FILE_DISK	    0x10u

/* Marks a file, not a poll, in an event's pointer. */
#define EPOLL_TAG_FILE 1u

struct epoll_loop {
	struct loop loop;
	struct loop_aio aio;
	int epoll_fd;
	bool lacks_pwait2;
	/* Fetched and not yet looked at: NEXT_EVENT up to NR_EVENTS. */
	int next_event;
	int nr_events;
	struct epoll_event events[EPOLL_EVENTS];
};

static struct epoll_loop *epoll_of(struct loop *loop)
{
	return container_of(loop, struct epoll_loop, loop);
}

static int epoll_create_loop(const struct loop_options *options, struct loop **ret)
{
	struct epoll_loop *epoll = aligned_alloc(_Alignof(struct epoll_loop), sizeof(*epoll));
	int err;

	if (!epoll)
		return -ENOMEM;
	memset(epoll, 0, sizeof(*epoll));
	epoll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll->epoll_fd < 0) {
		err = -errno;
		goto free_loop;
	}
	err = loop_init(&epoll->loop, &loop_epoll_ops, options);
	if (err)
		goto close_epoll;
	loop_aio_init(&epoll->aio, &epoll->loop, options->nr_ops);
	*ret = &epoll->loop;
	return 0;

close_epoll:
	close(epoll->epoll_fd);
free_loop:
	free(epoll);
	return err;
}

static void epoll_destroy_loop(struct loop *loop)
{
	struct epoll_loop *epoll = epoll_of(loop);

	loop_exit(loop);
	loop_aio_exit(&epoll->aio);
	close(epoll->epoll_fd);
	free(epoll);
}

/* --- files, buffers, polls ------------------------------------------------------------------ */

static int epoll_watch(struct epoll_loop *epoll, int fd, uint32_t events, uintptr_t tagged)
{
	struct epoll_event event = {.events = events, .data.u64 = tagged};

	epoll->loop.stats.nr_syscalls++;
	return epoll_ctl(epoll->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Events that were fetched already must not find what is about to be freed. */
static void epoll_forget(struct epoll_loop *epoll, int fd, uintptr_t tagged)
{
	epoll->loop.stats.nr_syscalls++;
	epoll_ctl(epoll->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	for (int i = epoll->next_event; i < epoll->nr_events; i++)
		if (epoll->events[i].data.u64 == tagged)
			epoll->events[i].data.u64 = 0;
}

static int epoll_setup_aio(struct epoll_loop *epoll)
{
	int err = loop_aio_setup(&epoll->aio);

	if (err)
		return err;
	/* Edge-triggered: it need not be read. */
	err = epoll_watch(epoll, epoll->aio.event_fd, EPOLLIN | EPOLLET, 0);
	if (err)
		loop_aio_exit(&epoll->aio);
	return err;
}

static int epoll_file_add(struct loop *loop, struct loop_file *file, enum loop_file_kind kind)
{
	struct epoll_loop *epoll = epoll_of(loop);
	int flags;

	if (kind == LOOP_FILE_SOCKET) {
		flags = fcntl(file->fd, F_GETFL);
		if (flags < 0)
			return -errno;
		if (!(flags & O_NONBLOCK) && fcntl(file->fd, F_SETFL, flags | O_NONBLOCK))
			return -errno;
		file->state = EPOLL_FILE_READABLE | EPOLL_FILE_WRITABLE;
		return 0;
	}
	file->state = EPOLL_FILE_DISK;
	return epoll->aio.event_fd >= 0 ? 0 : epoll_setup_aio(epoll);
}

static void epoll_file_del(struct loop *loop, struct loop_file *file)
{
	if (file->state & EPOLL_FILE_WATCHED)
		epoll_forget(epoll_of(loop), file->fd, (uintptr_t)file | EPOLL_TAG_FILE);
	file->state = 0;
}

static int epoll_buffer_register(struct loop *loop, void *base, size_t length)
{
	(void)loop;
	(void)base;
	(void)length;
	return LOOP_BUFFER_NONE;
}

static void epoll_buffer_unregister(struct loop *loop, int buffer)
{
	(void)loop;
	(void)buffer;
}

static int epoll_poll_add(struct loop *loop, struct loop_poll *poll)
{
	/* poll(2)'s and epoll's bits are the same. */
	return epoll_watch(epoll_of(loop), poll->fd, poll->events, (uintptr_t)poll);
}

static void epoll_poll_del(struct loop *loop, struct loop_poll *poll)
{
	epoll_forget(epoll_of(loop), poll->fd, (uintptr_t)poll);
}

/* --- sockets -------------------------------------------------------------------------------- */

static bool epoll_op_reads(const struct loop_op *op)
{
	return op->kind == LOOP_OP_RECEIVE;
}

static int epoll_try_message(struct loop_op *op)
{
	struct msghdr message = {
		.msg_iov = (struct iovec *)op->iov,
		.msg_iovlen = op->nr_iov,
	};
	ssize_t ret;

	do
		ret = epoll_op_reads(op)
			      ? recvmsg(op->file->fd, &message, MSG_DONTWAIT)
			      : sendmsg(op->file->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : (int)ret;
}

static size_t epoll_op_bytes(const struct loop_op *op)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < op->nr_iov; i++)
		bytes += op->iov[i].iov_len;
	return bytes;
}

static int epoll_try_connect(struct loop_op *op)
{
	int ret = connect(op->file->fd, (struct sockaddr *)op->address, (socklen_t)op->offset);

	if (!ret || errno == EISCONN)
		return 0;
	/* Interrupted: it goes on in the background. */
	return errno == EINPROGRESS || errno == EALREADY || errno == EINTR ? -EAGAIN : -errno;
}

/* One attempt. True: *RET_RES is the result; false: OP waits in its file's list. */
static bool epoll_try(struct epoll_loop *epoll, struct loop_op *op, int *ret_res)
{
	uint32_t ready = epoll_op_reads(op) ? EPOLL_FILE_READABLE : EPOLL_FILE_WRITABLE;
	struct loop_file *file = op->file;
	int res = -EAGAIN;

	if (file->state & ready) {
		epoll->loop.stats.nr_syscalls++;
		res = op->kind == LOOP_OP_CONNECT ? epoll_try_connect(op) : epoll_try_message(op);
	}
	if (res != -EAGAIN) {
		/* Less than asked for: the socket is drained, and the next bytes make an edge. The
		 * end of the stream makes none if it was told together with these. */
		if (ready == EPOLL_FILE_READABLE && res > 0 && file->state & EPOLL_FILE_WATCHED &&
			!(file->state & EPOLL_FILE_HUNG_UP) && (size_t)res < epoll_op_bytes(op))
			file->state &= ~ready;
		*ret_res = res;
		return true;
	}
	file->state &= ~ready;
	op->state = LOOP_OP_WAIT;
	list_push_back(&file->waiting[!epoll_op_reads(op)], &op->node);
	if (file->state & EPOLL_FILE_WATCHED)
		return false;
	/* Only now: an unconnected socket would report a hang-up. What became ready since the
	 * attempt is reported at once. */
	res = epoll_watch(epoll, file->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		(uintptr_t)file | EPOLL_TAG_FILE);
	if (!res) {
		file->state |= EPOLL_FILE_WATCHED;
		return false;
	}
	list_remove(&op->node);
	*ret_res = res;
	return true;
}

static void epoll_file_ready(struct epoll_loop *epoll, struct loop_file *file, uint32_t events)
{
	static const uint32_t wanted[2] = {
		EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR, EPOLLOUT | EPOLLHUP | EPOLLERR};
	static const uint32_t ready[2] = {EPOLL_FILE_READABLE, EPOLL_FILE_WRITABLE};
	struct loop_op *op;
	struct list *node;
	int res;

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		file->state |= EPOLL_FILE_HUNG_UP;
	for (unsigned i = 0; i < 2; i++) {
		if (!(events & wanted[i]))
			continue;
		file->state |= ready[i];
		node = list_pop_front(&file->waiting[i]);
		op = node ? container_of(node, struct loop_op, node) : NULL;
		/* Not called from here: the user may free FILE as its last operation ends. */
		if (op && epoll_try(epoll, op, &res))
			loop_op_complete(&epoll->loop, op, res);
	}
}

/* --- the steps of a turn -------------------------------------------------------------------- */

static uint32_t epoll_submit(struct loop *loop)
{
	struct epoll_loop *epoll = epoll_of(loop);
	struct loop_op *op;
	struct list *node;
	uint32_t nr = 0;
	int res;

	for (; (node = list_pop_front(&loop->submits)); nr++) {
		op = container_of(node, struct loop_op, node);
		if (loop_op_is_disk(op))
			loop_aio_queue(&epoll->aio, op);
		else if (epoll_try(epoll, op, &res))
			loop_op_complete(loop, op, res);
	}
	loop_aio_submit(&epoll->aio);
	return nr;
}

static int epoll_fetch_pwait2(struct epoll_loop *epoll, int64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = timeout_ns / 1000000000,
		.tv_nsec = timeout_ns % 1000000000,
	};

	return epoll_pwait2(epoll->epoll_fd, epoll->events, EPOLL_EVENTS, &timeout, NULL);
}

/* Signals are as good as events: the caller looks again. */
static void epoll_fetch(struct epoll_loop *epoll, int64_t timeout_ns)
{
	int nr = -1;
	int timeout_ms = -1;

	if (epoll->next_event < epoll->nr_events)
		return;
	epoll->loop.stats.nr_syscalls++;
	epoll->next_event = 0;
	epoll->nr_events = 0;
	if (timeout_ns > 0 && !epoll->lacks_pwait2) {
		nr = epoll_fetch_pwait2(epoll, timeout_ns);
		/* Before 5.11, or behind a filter that does not know it. */
		epoll->lacks_pwait2 = nr < 0 && (errno == ENOSYS || errno == EPERM);
	}
	if (timeout_ns <= 0 || epoll->lacks_pwait2) {
		if (timeout_ns >= 0)
			timeout_ms =
				(int)min_of((timeout_ns + 999999) / 1000000, (int64_t)86400000);
		nr = epoll_wait(epoll->epoll_fd, epoll->events, EPOLL_EVENTS, timeout_ms);
	}
	if (nr > 0)
		epoll->nr_events = nr;
}

static uint32_t epoll_complete(struct loop *loop, uint32_t budget)
{
	struct epoll_loop *epoll = epoll_of(loop);
	const struct epoll_event *event;
	struct loop_poll *poll;
	uint64_t tagged;
	uint32_t nr;

	nr = loop_aio_reap(&epoll->aio, budget);
	epoll_fetch(epoll, 0);
	while (epoll->next_event < epoll->nr_events) {
		event = &epoll->events[epoll->next_event++];
		tagged = event->data.u64;
		if (tagged & EPOLL_TAG_FILE) {
			epoll_file_ready(epoll,
				(struct loop_file *)(uintptr_t)(tagged - EPOLL_TAG_FILE),
				event->events);
		} else if (tagged) {
			poll = (struct loop_poll *)(uintptr_t)tagged;
			poll->ready(poll, event->events);
		} else {
			continue;
		}
		nr++;
	}
	return nr;
}

static bool epoll_arm(struct loop *loop)
{
	struct epoll_loop *epoll = epoll_of(loop);

	epoll_submit(loop);
	return list_empty(&loop->completed) && epoll->next_event >= epoll->nr_events &&
	       !loop_aio_is_ready(&epoll->aio);
}

static void epoll_sleep(struct loop *loop, int64_t timeout_ns)
{
	/* Any edge since the last look is in the epoll set and ends the wait at once. */
	epoll_fetch(epoll_of(loop), epoll_arm(loop) ? timeout_ns : 0);
}

static int epoll_fd_of(struct loop *loop)
{
	return epoll_of(loop)->epoll_fd;
}

static void epoll_cancel(struct loop *loop, struct loop_op *op)
{
	/* Disk I/O that the kernel has runs to its end: io_cancel() cannot stop it. */
	(void)loop;
	(void)op;
}

const struct loop_engine_ops loop_epoll_ops = {
	.name = "epoll",
	.create = epoll_create_loop,
	.destroy = epoll_destroy_loop,
	.file_add = epoll_file_add,
	.file_del = epoll_file_del,
	.buffer_register = epoll_buffer_register,
	.buffer_unregister = epoll_buffer_unregister,
	.poll_add = epoll_poll_add,
	.poll_del = epoll_poll_del,
	.cancel = epoll_cancel,
	.submit = epoll_submit,
	.complete = epoll_complete,
	.sleep = epoll_sleep,
	.fd = epoll_fd_of,
	.arm = epoll_arm,
};
