/* SPDX-License-Identifier: MIT */
/*
 * The io_uring engine. Operations become ring entries in the submit step only, so that one that
 * is cancelled before it costs nothing and a full ring is met in one place. An entry's user_data
 * is its operation; that of a request to cancel is marked with URING_CANCEL.
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/base/loop_engine.h"
#include "proto/base/slots.h"

/* Submission entries live only until the end of the turn. */
#define URING_SQ_ENTRIES 256
/* Descriptors beyond are used unregistered: slower, not wrong. */
#define URING_FILES	 4096
/* 8 GiB of buffer pool regions. */
#define URING_BUFFERS	 4096

/* In an entry's user_data, beside the operation to be cancelled. */
#define URING_CANCEL 1u

struct uring_loop {
	struct loop loop;
	struct io_uring ring;
	struct list cancels;	/* operations in flight that are to be cancelled */
	struct list cancelling; /* ... the kernel has been asked, and may have missed them */
	struct slots files;	/* nr 0: the kernel has no table */
	struct slots buffers;	/* nr 0: the kernel has no table */
	bool enabled;		/* the ring belongs to the thread that turned the loop first */
	bool armed;		/* EVENT_FD tells of completions */
	struct loop_op watch;	/* the loop's epoll set is polled, always */
	int event_fd;		/* both -1 until somebody asks for the descriptor */
	int outer_fd;		/* epoll set of EVENT_FD and the loop's */
	struct log_limit enter_log;
};

static struct uring_loop *uring_of(struct loop *loop)
{
	return container_of(loop, struct uring_loop, loop);
}

/* --- creation ------------------------------------------------------------------------------- */

static int uring_setup(struct io_uring *ring, uint32_t nr_ops)
{
	/* From the newest kernel's to what all have: each needs what stands with it. */
	static const unsigned flag_sets[] = {
		/* 6.1 */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		/* 5.19 */
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	/* 5.11: no time-out entries, no lost completions, nothing of ours read after submission. */
	const unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP |
				IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL;
	uint32_t sq_entries = min_of(nr_ops, (uint32_t)URING_SQ_ENTRIES);
	struct io_uring_params params;
	int err = -EINVAL;

	for (unsigned i = 0; err == -EINVAL && i < ARRAY_SIZE(flag_sets); i++) {
		params = (struct io_uring_params){};
		params.flags = flag_sets[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE |
			       IORING_SETUP_CLAMP;
		params.cq_entries = 2 * nr_ops;
		err = io_uring_queue_init_params(sq_entries, ring, &params);
	}
	if (err)
		return err;
	if ((params.features & needed) == needed)
		return 0;
	io_uring_queue_exit(ring);
	return -ENOSYS;
}

/* Kernels before 5.19 have no sparse tables but take an array of -1. */
static int uring_register_files_full(struct io_uring *ring, uint32_t nr)
{
	int *none = malloc(nr * sizeof(*none));
	int err;

	if (!none)
		return -ENOMEM;
	memset(none, 0xff, nr * sizeof(*none));
	err = io_uring_register_files(ring, none, nr);
	free(none);
	return err;
}

/* Tables only make things faster: without them (locked memory, old kernel) all works. */
static void uring_register_tables(struct uring_loop *uring)
{
	struct rlimit limit;
	uint32_t nr_files = URING_FILES;
	int err;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < nr_files)
		nr_files = (uint32_t)limit.rlim_cur;
	err = io_uring_register_files_sparse(&uring->ring, nr_files);
	if (err == -EINVAL)
		err = uring_register_files_full(&uring->ring, nr_files);
	if (err || slots_init(&uring->files, nr_files))
		uring->files = (struct slots){};
	err = io_uring_register_buffers_sparse(&uring->ring, URING_BUFFERS);
	if (err || slots_init(&uring->buffers, URING_BUFFERS))
		uring->buffers = (struct slots){};
}

static void uring_watch_ready(struct done *done, int res, unsigned flags)
{
	struct uring_loop *uring = container_of(done, struct uring_loop, watch.done);
	struct loop_poll *poll;
	uint32_t events;
	uintptr_t tag;

	(void)res;
	(void)flags;
	loop_watch_fetch(&uring->loop, 0);
	while (loop_watch_next(&uring->loop, &tag, &events)) {
		poll = (struct loop_poll *)tag;
		poll->ready(poll, events);
	}
	/* One shot: what is still ready ends the next one at once. */
	loop_op_submit(&uring->loop, &uring->watch, LOOP_OP_POLL);
}

static int uring_create(const struct loop_options *options, struct loop **ret)
{
	struct uring_loop *uring = aligned_alloc(_Alignof(struct uring_loop), sizeof(*uring));
	int err;

	if (!uring)
		return -ENOMEM;
	memset(uring, 0, sizeof(*uring));
	list_init(&uring->cancels);
	list_init(&uring->cancelling);
	uring->event_fd = -1;
	uring->outer_fd = -1;
	err = uring_setup(&uring->ring, options->nr_ops);
	if (err)
		goto free_loop;
	err = loop_init(&uring->loop, &loop_uring_ops, options);
	if (err)
		goto exit_ring;
	uring_register_tables(uring);
	uring->watch.done.fn = uring_watch_ready;
	uring->watch.offset = (uint64_t)uring->loop.watch.epoll_fd;
	loop_op_submit(&uring->loop, &uring->watch, LOOP_OP_POLL);
	*ret = &uring->loop;
	return 0;

exit_ring:
	io_uring_queue_exit(&uring->ring);
free_loop:
	free(uring);
	return err;
}

static void uring_destroy(struct loop *loop)
{
	struct uring_loop *uring = uring_of(loop);

	loop_exit(loop);
	io_uring_queue_exit(&uring->ring);
	if (uring->event_fd >= 0)
		close(uring->event_fd);
	if (uring->outer_fd >= 0)
		close(uring->outer_fd);
	slots_destroy(&uring->files);
	slots_destroy(&uring->buffers);
	free(uring);
}

/* --- files and buffers ---------------------------------------------------------------------- */

static int uring_file_add(struct loop *loop, struct loop_file *file, enum loop_file_kind kind)
{
	struct uring_loop *uring = uring_of(loop);
	uint32_t slot;
	int flags;

	if (kind == LOOP_FILE_SOCKET) {
		/* Otherwise the ring says EAGAIN instead of waiting for the socket. */
		flags = fcntl(file->fd, F_GETFL);
		if (flags < 0)
			return -errno;
		if ((flags & O_NONBLOCK) && fcntl(file->fd, F_SETFL, flags & ~O_NONBLOCK))
			return -errno;
	}
	slot = slots_get(&uring->files);
	if (slot == SLOTS_NONE)
		return 0;
	if (io_uring_register_files_update(&uring->ring, slot, &file->fd, 1) == 1)
		file->slot = (int)slot;
	else
		slots_put(&uring->files, slot);
	return 0;
}

static void uring_file_del(struct loop *loop, struct loop_file *file)
{
	struct uring_loop *uring = uring_of(loop);
	int none = -1;

	if (file->slot < 0)
		return;
	/* A slot that could not be cleared keeps the file open; it must not be used for another. */
	if (io_uring_register_files_update(&uring->ring, (unsigned)file->slot, &none, 1) == 1)
		slots_put(&uring->files, (uint32_t)file->slot);
	file->slot = -1;
}

static void uring_log_no_buffers(int err)
{
	static atomic_flag was_said = ATOMIC_FLAG_INIT;
	struct rlimit limit = {};

	if (atomic_flag_test_and_set(&was_said))
		return;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	log_warning("disk buffers cannot be registered with io_uring (%s; locked memory is limited "
		    "to %llu KiB, see RLIMIT_MEMLOCK): I/O goes on without, a little slower",
		strerror(-err), (unsigned long long)limit.rlim_cur / 1024);
}

static int uring_buffer_update(struct uring_loop *uring, uint32_t slot, void *base, size_t length)
{
	struct iovec iov = {.iov_base = base, .iov_len = length};
	__u64 tag = 0;
	int ret;

	ret = io_uring_register_buffers_update_tag(&uring->ring, slot, &iov, &tag, 1);
	if (ret < 0)
		return ret;
	return ret == 1 ? 0 : -EIO;
}

static int uring_buffer_register(struct loop *loop, void *base, size_t length)
{
	struct uring_loop *uring = uring_of(loop);
	uint32_t slot = slots_get(&uring->buffers);
	int err;

	if (slot == SLOTS_NONE)
		return LOOP_BUFFER_NONE;
	err = uring_buffer_update(uring, slot, base, length);
	if (!err)
		return (int)slot;
	slots_put(&uring->buffers, slot);
	uring_log_no_buffers(err);
	return LOOP_BUFFER_NONE;
}

static void uring_buffer_unregister(struct loop *loop, int buffer)
{
	struct uring_loop *uring = uring_of(loop);

	/* Fails on another thread than the loop's; the ring's end releases the memory then. */
	if (!uring_buffer_update(uring, (uint32_t)buffer, NULL, 0))
		slots_put(&uring->buffers, (uint32_t)buffer);
}

/* --- submission ----------------------------------------------------------------------------- */

static void uring_enable(struct uring_loop *uring)
{
	/* liburing 2.3 declares io_uring_enable_rings() but does not export it. */
	int err = io_uring_register(
		(unsigned)uring->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);

	uring->enabled = true;
	if (err)
		log_error("io_uring: the ring cannot be enabled: %s", strerror(-err));
}

/* What cannot be submitted now stays in the ring and is offered again in the next turn. */
static void uring_entered(struct uring_loop *uring, int ret)
{
	uring->loop.stats.nr_syscalls++;
	if (ret >= 0 || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY || ret == -ETIME)
		return;
	log_line_limited(&uring->enter_log, uring->loop.now_ns, LOG_LEVEL_ERROR,
		"io_uring: submission failed: %s",
		ret == -EEXIST ? "the loop is used by another thread than its own"
			       : strerror(-ret));
}

static struct io_uring_sqe *uring_get_sqe(struct uring_loop *uring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

	if (likely(sqe))
		return sqe;
	uring_entered(uring, io_uring_submit_and_get_events(&uring->ring));
	return io_uring_get_sqe(&uring->ring);
}

static void uring_prepare_disk(struct io_uring_sqe *sqe, struct loop_op *op, int fd)
{
	const struct iovec *iov = op->iov;
	bool is_read = op->kind == LOOP_OP_READ;

	if (op->nr_iov != 1)
		io_uring_prep_rw(is_read ? IORING_OP_READV : IORING_OP_WRITEV, sqe, fd, iov,
			op->nr_iov, op->offset);
	else if (op->buffer == LOOP_BUFFER_NONE)
		io_uring_prep_rw(is_read ? IORING_OP_READ : IORING_OP_WRITE, sqe, fd, iov->iov_base,
			(unsigned)iov->iov_len, op->offset);
	else
		io_uring_prep_rw(is_read ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED, sqe, fd,
			iov->iov_base, (unsigned)iov->iov_len, op->offset);
	if (op->buffer != LOOP_BUFFER_NONE)
		sqe->buf_index = (__u16)op->buffer;
	if (op->flags & LOOP_OP_DATA_ONLY)
		sqe->rw_flags = RWF_DSYNC;
}

static void uring_prepare_socket(struct io_uring_sqe *sqe, struct loop_op *op, int fd)
{
	const struct iovec *iov = op->iov;
	bool is_send = op->kind == LOOP_OP_TRANSMIT;

	if (op->nr_iov == 1) {
		io_uring_prep_rw(is_send ? IORING_OP_SEND : IORING_OP_RECV, sqe, fd, iov->iov_base,
			(unsigned)iov->iov_len, 0);
	} else {
		op->message = (struct msghdr){
			.msg_iov = (struct iovec *)op->iov, .msg_iovlen = op->nr_iov};
		io_uring_prep_rw(is_send ? IORING_OP_SENDMSG : IORING_OP_RECVMSG, sqe, fd,
			&op->message, 1, 0);
	}
	sqe->msg_flags = is_send ? MSG_NOSIGNAL : 0;
}

static void uring_prepare(struct io_uring_sqe *sqe, struct loop_op *op)
{
	const struct loop_file *file = op->file;
	int fd = -1;

	if (op->kind != LOOP_OP_POLL)
		fd = file->slot >= 0 ? file->slot : file->fd;
	switch ((enum loop_op_kind)op->kind) {
	case LOOP_OP_READ:
	case LOOP_OP_WRITE:
		uring_prepare_disk(sqe, op, fd);
		break;
	case LOOP_OP_FSYNC:
		io_uring_prep_fsync(
			sqe, fd, op->flags & LOOP_OP_DATA_ONLY ? IORING_FSYNC_DATASYNC : 0);
		break;
	case LOOP_OP_RECEIVE:
	case LOOP_OP_TRANSMIT:
		uring_prepare_socket(sqe, op, fd);
		break;
	case LOOP_OP_CONNECT:
		io_uring_prep_connect(
			sqe, fd, (struct sockaddr *)op->address, (socklen_t)op->offset);
		break;
	case LOOP_OP_POLL:
		io_uring_prep_poll_add(sqe, (int)op->offset, POLLIN);
		break;
	case LOOP_OP_OFFLOAD:
		assert(!"an offloaded operation is no ring entry");
	}
	if (op->kind != LOOP_OP_POLL && file->slot >= 0)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, op);
	op->state = LOOP_OP_FLIGHT;
}

/*
 * The kernel does not find an operation that it is just trying again. On a socket that lasts a
 * moment, and without a second request it would wait for ever. One that the disk has is never
 * found, and ends by itself.
 */
static void uring_prepare_cancel(
	struct uring_loop *uring, struct io_uring_sqe *sqe, struct loop_op *op)
{
	io_uring_prep_cancel(sqe, op, 0);
	sqe->user_data = (uintptr_t)op | URING_CANCEL;
	if (!loop_op_is_disk(op))
		list_push_back(&uring->cancelling, &op->node);
}

/* Everything that waits becomes ring entries; what finds no room waits for the next turn. */
static uint32_t uring_fill(struct uring_loop *uring)
{
	struct loop *loop = &uring->loop;
	struct io_uring_sqe *sqe;
	struct list *node;
	uint32_t nr = 0;

	for (; !list_empty(&uring->cancels); nr++) {
		sqe = uring_get_sqe(uring);
		if (!sqe)
			return nr;
		node = list_pop_front(&uring->cancels);
		uring_prepare_cancel(uring, sqe, container_of(node, struct loop_op, node));
	}
	for (; !list_empty(&loop->submits); nr++) {
		sqe = uring_get_sqe(uring);
		if (!sqe)
			return nr;
		node = list_pop_front(&loop->submits);
		uring_prepare(sqe, container_of(node, struct loop_op, node));
	}
	return nr;
}

static uint32_t uring_submit(struct loop *loop)
{
	struct uring_loop *uring = uring_of(loop);
	uint32_t nr;

	if (unlikely(!uring->enabled))
		uring_enable(uring);
	nr = uring_fill(uring);
	if (io_uring_sq_ready(&uring->ring))
		uring_entered(uring, io_uring_submit_and_get_events(&uring->ring));
	return nr;
}

static void uring_cancel(struct loop *loop, struct loop_op *op)
{
	struct uring_loop *uring = uring_of(loop);

	if (list_empty(&op->node))
		list_push_back(&uring->cancels, &op->node);
}

/* --- completion ----------------------------------------------------------------------------- */

static bool uring_has_cqe(struct uring_loop *uring)
{
	return io_uring_cq_ready(&uring->ring) != 0;
}

/* Completions may be ready but not in the ring: work the kernel does only when it is entered, or
 * what found the ring full. */
static void uring_look(struct uring_loop *uring)
{
	const unsigned hidden = IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW;

	if (IO_URING_READ_ONCE(*uring->ring.sq.kflags) & hidden)
		uring_entered(uring, io_uring_get_events(&uring->ring));
}

static void uring_disarm(struct uring_loop *uring)
{
	uint64_t count;

	uring->armed = false;
	io_uring_cq_eventfd_toggle(&uring->ring, false);
	uring->loop.stats.nr_syscalls++;
	while (read(uring->event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* The operation with this address may be gone: it is only looked at when it is still in flight. */
static void uring_cancel_done(struct uring_loop *uring, uintptr_t address, int res)
{
	struct loop_op *op;

	if (res != -ENOENT)
		return;
	list_for_each_entry (op, &uring->cancelling, node) {
		if ((uintptr_t)op != address)
			continue;
		list_remove(&op->node);
		list_push_back(&uring->cancels, &op->node);
		return;
	}
}

static uint32_t uring_complete(struct loop *loop, uint32_t budget)
{
	struct uring_loop *uring = uring_of(loop);
	struct io_uring_cq *cq = &uring->ring.cq;
	const struct io_uring_cqe *cqe;
	struct loop_op *op;
	uintptr_t tag;
	uint32_t nr;
	int res;

	if (unlikely(uring->armed))
		uring_disarm(uring);
	if (!uring_has_cqe(uring) && likely(uring->enabled))
		uring_look(uring);
	for (nr = 0; nr < budget && uring_has_cqe(uring); nr++) {
		cqe = &cq->cqes[*cq->khead & *cq->kring_mask];
		tag = (uintptr_t)cqe->user_data;
		res = cqe->res;
		/* Before the call, which may look at the ring itself. */
		io_uring_cq_advance(&uring->ring, 1);
		if (unlikely(tag & URING_CANCEL)) {
			uring_cancel_done(uring, tag & ~(uintptr_t)URING_CANCEL, res);
			continue;
		}
		op = (struct loop_op *)tag;
		list_remove(&op->node);
		loop_op_finish(loop, op, res);
	}
	return nr;
}

static void uring_sleep(struct loop *loop, int64_t timeout_ns)
{
	struct uring_loop *uring = uring_of(loop);
	struct __kernel_timespec timeout = {
		.tv_sec = timeout_ns / 1000000000,
		.tv_nsec = timeout_ns % 1000000000,
	};
	struct io_uring_cqe *cqe;

	uring_fill(uring);
	uring_entered(uring, io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1,
				     timeout_ns < 0 ? NULL : &timeout, NULL));
}

static int uring_outer_add(struct uring_loop *uring, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(uring->outer_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Neither the ring's own descriptor nor its event descriptor tells an outer loop everything: the
 * first says nothing of deferred work, the second not always of other event descriptors. */
static int uring_open_outer(struct uring_loop *uring)
{
	int err;

	uring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (uring->event_fd < 0)
		return -errno;
	uring->outer_fd = epoll_create1(EPOLL_CLOEXEC);
	if (uring->outer_fd < 0) {
		err = -errno;
		goto close_event;
	}
	err = uring_outer_add(uring, uring->event_fd);
	if (!err)
		err = uring_outer_add(uring, uring->loop.watch.epoll_fd);
	if (!err)
		err = io_uring_register_eventfd(&uring->ring, uring->event_fd);
	if (err)
		goto close_outer;
	io_uring_cq_eventfd_toggle(&uring->ring, false);
	return 0;

close_outer:
	close(uring->outer_fd);
	uring->outer_fd = -1;
close_event:
	close(uring->event_fd);
	uring->event_fd = -1;
	return err;
}

static int uring_fd(struct loop *loop)
{
	struct uring_loop *uring = uring_of(loop);
	int err;

	if (uring->outer_fd < 0) {
		err = uring_open_outer(uring);
		if (err)
			return err;
	}
	return uring->outer_fd;
}

static bool uring_arm(struct loop *loop)
{
	struct uring_loop *uring = uring_of(loop);

	if (!uring->enabled)
		uring_enable(uring);
	uring_fill(uring);
	if (uring->event_fd >= 0) {
		uring->armed = true;
		io_uring_cq_eventfd_toggle(&uring->ring, true);
	}
	/* The kernel orders its list of deferred work and the event flag with full barriers; so do
	 * we, by entering it between the flag and the look. */
	uring_entered(uring, io_uring_submit_and_get_events(&uring->ring));
	return !uring_has_cqe(uring) && !io_uring_sq_ready(&uring->ring);
}

const struct loop_engine_ops loop_uring_ops = {
	.name = "io_uring",
	.create = uring_create,
	.destroy = uring_destroy,
	.file_add = uring_file_add,
	.file_del = uring_file_del,
	.buffer_register = uring_buffer_register,
	.buffer_unregister = uring_buffer_unregister,
	.cancel = uring_cancel,
	.submit = uring_submit,
	.complete = uring_complete,
	.sleep = uring_sleep,
	.fd = uring_fd,
	.arm = uring_arm,
};
