/* SPDX-License-Identifier: MIT */
/*
 * The epoll engine, for where io_uring is refused: sockets are tried first and watched
 * edge-triggered when they are not ready; direct disk I/O goes through Linux AIO (loop_aio.c),
 * which would block on buffered files: they are read and written at once if that does not block,
 * by a helper thread otherwise.
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/loop_aio.h"
#include "proto/base/loop_engine.h"

/* loop_file.state */
#define EPOLL_FILE_READABLE 0x1u /* receiving is worth a try */
#define EPOLL_FILE_WRITABLE 0x2u
#define EPOLL_FILE_HUNG_UP  0x4u  /* the end of the stream, or an error, waits to be received */
#define EPOLL_FILE_WATCHED  0x8u  /* in the epoll set */
#define EPOLL_FILE_BUFFERED 0x10u /* a disk file without O_DIRECT */
#define EPOLL_FILE_BLOCKS   0x20u /* it cannot be written without blocking */

/* The tag of a file differs from a poll's in this bit; LOOP_AIO's is only that. */
#define EPOLL_TAG_FILE 1u
#define EPOLL_TAG_AIO  1u

struct epoll_loop {
	struct loop loop;
	struct loop_aio aio;
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
	err = loop_init(&epoll->loop, &loop_epoll_ops, options);
	if (err) {
		free(epoll);
		return err;
	}
	loop_aio_init(&epoll->aio, &epoll->loop, options->nr_ops);
	*ret = &epoll->loop;
	return 0;
}

static void epoll_destroy_loop(struct loop *loop)
{
	struct epoll_loop *epoll = epoll_of(loop);

	loop_exit(loop);
	loop_aio_exit(&epoll->aio);
	free(epoll);
}

/* --- files and buffers ---------------------------------------------------------------------- */

static int epoll_setup_aio(struct epoll_loop *epoll)
{
	int err = loop_aio_setup(&epoll->aio);

	if (err)
		return err;
	/* Edge-triggered: it need not be read. */
	err = loop_watch_add(&epoll->loop, epoll->aio.event_fd, EPOLLIN | EPOLLET, EPOLL_TAG_AIO);
	if (err)
		loop_aio_exit(&epoll->aio);
	return err;
}

static int epoll_file_add(struct loop *loop, struct loop_file *file, enum loop_file_kind kind)
{
	struct epoll_loop *epoll = epoll_of(loop);
	int flags = fcntl(file->fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if (kind == LOOP_FILE_SOCKET) {
		if (!(flags & O_NONBLOCK) && fcntl(file->fd, F_SETFL, flags | O_NONBLOCK))
			return -errno;
		file->state = EPOLL_FILE_READABLE | EPOLL_FILE_WRITABLE;
		return 0;
	}
	file->state = flags & O_DIRECT ? 0 : EPOLL_FILE_BUFFERED;
	return epoll->aio.event_fd >= 0 ? 0 : epoll_setup_aio(epoll);
}

static void epoll_file_del(struct loop *loop, struct loop_file *file)
{
	if (file->state & EPOLL_FILE_WATCHED)
		loop_watch_del(loop, file->fd, (uintptr_t)file | EPOLL_TAG_FILE);
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
	res = loop_watch_add(&epoll->loop, file->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
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

/* --- buffered files ------------------------------------------------------------------------- */

static int epoll_buffered_io(const struct loop_op *op, int flags)
{
	ssize_t ret;

	if (op->flags & LOOP_OP_DATA_ONLY)
		flags |= RWF_DSYNC;
	do
		ret = op->kind == LOOP_OP_READ ? preadv2(op->file->fd, op->iov, (int)op->nr_iov,
							 (off_t)op->offset, flags)
					       : pwritev2(op->file->fd, op->iov, (int)op->nr_iov,
							 (off_t)op->offset, flags);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : (int)ret;
}

static int epoll_buffered_helper(void *arg)
{
	return epoll_buffered_io(arg, 0);
}

static void epoll_submit_buffered(struct epoll_loop *epoll, struct loop_op *op)
{
	bool is_write = op->kind == LOOP_OP_WRITE;
	int res = -EAGAIN;

	if (!is_write || !(op->file->state & EPOLL_FILE_BLOCKS)) {
		epoll->loop.stats.nr_syscalls++;
		res = epoll_buffered_io(op, RWF_NOWAIT);
	}
	/* Most file systems read, but few write, without blocking. */
	if (res == -EOPNOTSUPP && is_write)
		op->file->state |= EPOLL_FILE_BLOCKS;
	if (res == -EAGAIN || res == -EOPNOTSUPP)
		loop_offload_op(&epoll->loop, op, epoll_buffered_helper, op);
	else
		loop_op_complete(&epoll->loop, op, res);
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
		if (loop_op_is_disk(op) && op->kind != LOOP_OP_FSYNC &&
			op->file->state & EPOLL_FILE_BUFFERED)
			epoll_submit_buffered(epoll, op);
		else if (loop_op_is_disk(op))
			loop_aio_queue(&epoll->aio, op);
		else if (epoll_try(epoll, op, &res))
			loop_op_complete(loop, op, res);
	}
	loop_aio_submit(&epoll->aio);
	return nr;
}

static uint32_t epoll_complete(struct loop *loop, uint32_t budget)
{
	struct epoll_loop *epoll = epoll_of(loop);
	struct loop_poll *poll;
	uint32_t events;
	uintptr_t tag;
	uint32_t nr;

	nr = loop_aio_reap(&epoll->aio, budget);
	for (loop_watch_fetch(loop, 0); loop_watch_next(loop, &tag, &events);) {
		/* It only ends a sleep: the ring was looked at above and will be again. */
		if (tag == EPOLL_TAG_AIO)
			continue;
		nr++;
		if (tag & EPOLL_TAG_FILE) {
			tag -= EPOLL_TAG_FILE;
			epoll_file_ready(epoll, (struct loop_file *)tag, events);
		} else {
			poll = (struct loop_poll *)tag;
			poll->ready(poll, events);
		}
	}
	return nr;
}

static bool epoll_arm(struct loop *loop)
{
	struct epoll_loop *epoll = epoll_of(loop);

	epoll_submit(loop);
	return list_empty(&loop->completed) && !loop_watch_has_next(&loop->watch) &&
	       !loop_aio_is_ready(&epoll->aio);
}

static void epoll_sleep(struct loop *loop, int64_t timeout_ns)
{
	/* Any edge since the last look is in the epoll set and ends the wait at once. */
	loop_watch_fetch(loop, epoll_arm(loop) ? timeout_ns : 0);
}

static int epoll_fd_of(struct loop *loop)
{
	return loop->watch.epoll_fd;
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
	.cancel = epoll_cancel,
	.submit = epoll_submit,
	.complete = epoll_complete,
	.sleep = epoll_sleep,
	.fd = epoll_fd_of,
	.arm = epoll_arm,
};
