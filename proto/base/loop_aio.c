/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO: one io_submit a turn, completions read from the kernel's ring without a system call.
 */
#include "proto/base/loop_aio.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What io_setup() maps and a context points to; the kernel writes TAIL, we write HEAD. */
struct loop_aio_ring {
	uint32_t id;
	uint32_t nr;
	uint32_t head;
	uint32_t tail;
	uint32_t magic;
	uint32_t compat_features;
	uint32_t incompat_features;
	uint32_t header_length;
	struct io_event events[];
};
#define LOOP_AIO_RING_MAGIC 0xa10a10a1u

void loop_aio_init(struct loop_aio *aio, struct loop *loop, uint32_t nr_ops)
{
	aio->loop = loop;
	aio->event_fd = -1;
	aio->nr_max = nr_ops;
	list_init(&aio->queue);
	for (unsigned i = 0; i < LOOP_AIO_BATCH; i++)
		aio->iocb_pointers[i] = &aio->iocbs[i];
}

void loop_aio_exit(struct loop_aio *aio)
{
	if (aio->event_fd < 0)
		return;
	io_destroy(aio->context);
	close(aio->event_fd);
	aio->event_fd = -1;
}

static unsigned long loop_aio_read_limit(const char *path)
{
	unsigned long value = 0;
	FILE *file = fopen(path, "re");

	if (!file)
		return 0;
	if (fscanf(file, "%lu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

int loop_aio_setup(struct loop_aio *aio)
{
	int err;

	err = io_setup((int)aio->nr_max, &aio->context);
	if (err == -EAGAIN)
		log_error("fs.aio-max-nr is %lu and %lu are in use: %u more are needed for disk "
			  "I/O of this thread; raise it with sysctl",
			loop_aio_read_limit("/proc/sys/fs/aio-max-nr"),
			loop_aio_read_limit("/proc/sys/fs/aio-nr"), aio->nr_max);
	if (err)
		return err;
	aio->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (aio->event_fd >= 0)
		return 0;
	err = -errno;
	io_destroy(aio->context);
	return err;
}

/* --- submission ----------------------------------------------------------------------------- */

void loop_aio_queue(struct loop_aio *aio, struct loop_op *op)
{
	list_push_back(&aio->queue, &op->node);
}

static void loop_aio_prepare(const struct loop_aio *aio, struct iocb *iocb, struct loop_op *op)
{
	static const short opcodes[][2] = {
		[LOOP_OP_READ] = {IO_CMD_PREADV, IO_CMD_PREAD},
		[LOOP_OP_WRITE] = {IO_CMD_PWRITEV, IO_CMD_PWRITE},
		[LOOP_OP_FSYNC] = {IO_CMD_FSYNC, IO_CMD_FDSYNC},
	};
	bool is_data_only = op->flags & LOOP_OP_DATA_ONLY;
	bool is_single = op->nr_iov == 1;

	memset(iocb, 0, sizeof(*iocb));
	iocb->data = op;
	iocb->aio_fildes = op->file->fd;
	io_set_eventfd(iocb, aio->event_fd);
	if (op->kind == LOOP_OP_FSYNC) {
		iocb->aio_lio_opcode = opcodes[op->kind][is_data_only];
		return;
	}
	iocb->aio_lio_opcode = opcodes[op->kind][is_single];
	iocb->u.c.buf = is_single ? op->iov->iov_base : (void *)op->iov;
	iocb->u.c.nbytes = is_single ? op->iov->iov_len : op->nr_iov;
	iocb->u.c.offset = (long long)op->offset;
	iocb->aio_rw_flags = is_data_only ? RWF_DSYNC : 0;
}

static int loop_aio_fsync(void *arg)
{
	const struct loop_op *op = arg;
	int ret;

	ret = op->flags & LOOP_OP_DATA_ONLY ? fdatasync(op->file->fd) : fsync(op->file->fd);
	return ret ? -errno : 0;
}

/* The kernel took none of the batch because of its first. */
static void loop_aio_refused(struct loop_aio *aio, struct loop_op *op, int err)
{
	aio->nr_out--;
	if (op->kind == LOOP_OP_FSYNC && err == -EINVAL)
		loop_offload_op(aio->loop, op, loop_aio_fsync, op);
	else
		loop_op_complete(aio->loop, op, err);
}

static uint32_t loop_aio_fill(struct loop_aio *aio)
{
	struct loop_op *op;
	uint32_t nr;

	for (nr = 0; nr < LOOP_AIO_BATCH && aio->nr_out < aio->nr_max; nr++) {
		if (list_empty(&aio->queue))
			break;
		op = container_of(list_pop_front(&aio->queue), struct loop_op, node);
		op->state = LOOP_OP_FLIGHT;
		loop_aio_prepare(aio, &aio->iocbs[nr], op);
		aio->nr_out++;
	}
	return nr;
}

void loop_aio_submit(struct loop_aio *aio)
{
	uint32_t nr_taken;
	uint32_t nr;
	int ret;

	while ((nr = loop_aio_fill(aio))) {
		for (nr_taken = 0; nr_taken < nr;) {
			aio->loop->stats.nr_syscalls++;
			ret = io_submit(aio->context, nr - nr_taken, &aio->iocb_pointers[nr_taken]);
			if (ret > 0)
				nr_taken += (uint32_t)ret;
			else if (ret != -EINTR)
				/* EAGAIN, too: it is tried again after a pause. */
				loop_aio_refused(aio, aio->iocbs[nr_taken++].data, ret ?: -EIO);
		}
	}
}

/* --- completion ----------------------------------------------------------------------------- */

static struct loop_aio_ring *loop_aio_ring_of(const struct loop_aio *aio)
{
	struct loop_aio_ring *ring = (struct loop_aio_ring *)aio->context;

	return ring->magic == LOOP_AIO_RING_MAGIC && !ring->incompat_features ? ring : NULL;
}

/* The next event; false when there is none. */
static bool loop_aio_next(struct loop_aio *aio, struct io_event *ret)
{
	struct loop_aio_ring *ring = loop_aio_ring_of(aio);
	struct timespec zero = {};
	uint32_t head;

	if (unlikely(!ring)) {
		aio->loop->stats.nr_syscalls++;
		return io_getevents(aio->context, 0, 1, ret, &zero) == 1;
	}
	head = ring->head;
	/* The kernel publishes an event by moving the tail. */
	if (head == __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE))
		return false;
	*ret = ring->events[head];
	__atomic_store_n(&ring->head, head + 1 < ring->nr ? head + 1 : 0, __ATOMIC_RELEASE);
	return true;
}

uint32_t loop_aio_reap(struct loop_aio *aio, uint32_t budget)
{
	struct io_event event;
	uint32_t nr;

	for (nr = 0; nr < budget && aio->nr_out && loop_aio_next(aio, &event); nr++) {
		aio->nr_out--;
		loop_op_finish(aio->loop, event.data, (int)(long)event.res);
	}
	return nr;
}

bool loop_aio_is_ready(const struct loop_aio *aio)
{
	const struct loop_aio_ring *ring;

	if (!aio->nr_out)
		return false;
	ring = loop_aio_ring_of(aio);
	/* Without the ring the edge of the event descriptor tells. */
	return ring && ring->head != __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
}
