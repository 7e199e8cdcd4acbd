/* SPDX-License-Identifier: MIT */
/*
 * A block device or a regular file. Reads, writes and flushes go through the loop; discarding and
 * zeroing, which block, through its helper threads.
 */
#include "target/backend_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A short completion goes on with the rest; one that brings nothing is tried this often. */
#define DISK_MAX_TRIES_WITHOUT_PROGRESS 3
/* Zeros that are written where nothing better is possible; on the helper thread. */
#define DISK_ZERO_BYTES			(1u << 20)

struct disk_queue {
	struct backend_queue base;
	struct loop_file file;
	/* Found out by use: the way is not tried again. */
	bool no_discard;
	bool no_zero_range;
};

static struct disk *disk_of(const struct backend_queue *queue)
{
	return container_of(queue->backend, struct disk, base);
}

/* A device that has been taken away has no size any more, and the kernel calls that no space. */
static bool disk_is_gone(const struct disk *disk)
{
	uint64_t size;

	return disk->is_device && !ioctl(disk->fd, BLKGETSIZE64, &size) &&
	       size < disk->base.geometry.size_bytes;
}

static void disk_complete(struct backend_io *io, int res)
{
	if (unlikely(res == -ENOSPC) && disk_is_gone(disk_of(io->queue)))
		res = -EIO;
	io->done.fn(&io->done, res, 0);
}

/* --- read and write -------------------------------------------------------------------------- */

static void disk_transfer(struct disk_queue *queue, struct backend_io *io)
{
	struct loop *loop = queue->base.loop;

	io->iov.iov_base = (char *)io->bytes + io->nr_done_bytes;
	io->iov.iov_len = io->length - io->nr_done_bytes;
	if (io->op == BACKEND_READ)
		loop_read(loop, &io->loop_op, &queue->file, &io->iov, 1,
			io->offset + io->nr_done_bytes, io->loop_buffer);
	else
		loop_write(loop, &io->loop_op, &queue->file, &io->iov, 1,
			io->offset + io->nr_done_bytes, io->loop_buffer, io->fua);
}

static void disk_transferred(struct done *done, int res, unsigned flags)
{
	struct backend_io *io = container_of(done, struct backend_io, loop_op.done);
	struct disk_queue *queue = container_of(io->queue, struct disk_queue, base);
	uint32_t block = io->queue->backend->geometry.block_bytes;

	(void)flags;
	if (likely(res >= 0 && (uint32_t)res == io->length - io->nr_done_bytes)) {
		disk_complete(io, 0);
		return;
	}
	if (res < 0) {
		disk_complete(io, res);
		return;
	}
	/* Direct I/O can go on at a whole block only. */
	io->nr_done_bytes += (uint32_t)res - (uint32_t)res % block;
	io->nr_tries = (uint32_t)res >= block ? 0 : io->nr_tries + 1;
	/* At the end of a file that somebody has cut, nothing comes any more. */
	if (res == 0 || io->nr_tries >= DISK_MAX_TRIES_WITHOUT_PROGRESS)
		disk_complete(io, -EIO);
	else
		disk_transfer(queue, io);
}

/* --- flush ----------------------------------------------------------------------------------- */

static void disk_flushed(struct done *done, int res, unsigned flags)
{
	(void)flags;
	disk_complete(container_of(done, struct backend_io, loop_op.done), res);
}

/* --- discard and zeroes: the helper thread's part -------------------------------------------- */

static int disk_punch(const struct disk *disk, const struct backend_io *io)
{
	int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	uint64_t range[2] = {io->offset, io->extent};

	if (disk->is_device)
		return ioctl(disk->fd, BLKDISCARD, range) ? -errno : 0;
	return fallocate(disk->fd, mode, (off_t)io->offset, (off_t)io->extent) ? -errno : 0;
}

static int disk_zero_range(const struct disk *disk, const struct backend_io *io)
{
	int mode = io->deallocate ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
				  : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
	uint64_t range[2] = {io->offset, io->extent};

	if (disk->is_device)
		return ioctl(disk->fd, BLKZEROOUT, range) ? -errno : 0;
	return fallocate(disk->fd, mode, (off_t)io->offset, (off_t)io->extent) ? -errno : 0;
}

static int disk_write_zeros(const struct disk *disk, const struct backend_io *io)
{
	uint64_t done = 0;
	void *zeros;
	int error = 0;

	if (posix_memalign(&zeros, 4096, DISK_ZERO_BYTES))
		return -ENOMEM;
	__builtin_memset(zeros, 0, DISK_ZERO_BYTES);
	while (done < io->extent && !error) {
		size_t length = min_of(io->extent - done, (uint64_t)DISK_ZERO_BYTES);
		ssize_t wrote = pwrite(disk->fd, zeros, length, (off_t)(io->offset + done));

		if (wrote > 0)
			done += (uint64_t)wrote;
		else if (wrote == 0 || errno != EINTR)
			error = wrote == 0 ? -EIO : -errno;
	}
	free(zeros);
	return error;
}

static int disk_sync_if(const struct disk *disk, const struct backend_io *io, int error)
{
	if (error || !io->fua)
		return error;
	return fdatasync(disk->fd) ? -errno : 0;
}

static int disk_discard_work(void *arg)
{
	struct backend_io *io = arg;

	return disk_punch(disk_of(io->queue), io);
}

static int disk_zero_work(void *arg)
{
	struct backend_io *io = arg;
	const struct disk *disk = disk_of(io->queue);

	return disk_sync_if(disk, io, disk_zero_range(disk, io));
}

static int disk_write_zeros_work(void *arg)
{
	struct backend_io *io = arg;
	const struct disk *disk = disk_of(io->queue);

	return disk_sync_if(disk, io, disk_write_zeros(disk, io));
}

/* --- discard and zeroes: the loop's part ----------------------------------------------------- */

/* Kernels and file systems say in different ways that they cannot. */
static bool disk_is_unsupported(int error)
{
	return error == -EOPNOTSUPP || error == -ENOSYS || error == -ENOTTY || error == -EINVAL ||
	       error == -ENODEV;
}

static void disk_discarded(struct done *done, int res, unsigned flags)
{
	struct backend_io *io = container_of(done, struct backend_io, loop_op.done);
	struct disk_queue *queue = container_of(io->queue, struct disk_queue, base);

	(void)flags;
	if (disk_is_unsupported(res)) {
		queue->no_discard = true;
		res = -EOPNOTSUPP;
	}
	disk_complete(io, res);
}

static void disk_zeroed(struct done *done, int res, unsigned flags)
{
	struct backend_io *io = container_of(done, struct backend_io, loop_op.done);
	struct disk_queue *queue = container_of(io->queue, struct disk_queue, base);

	(void)flags;
	if (!disk_is_unsupported(res) || queue->no_zero_range) {
		disk_complete(io, res);
		return;
	}
	queue->no_zero_range = true;
	loop_offload(queue->base.loop, &io->loop_op, disk_write_zeros_work, io);
}

static int disk_nothing_work(void *arg)
{
	(void)arg;
	return -EOPNOTSUPP;
}

static void disk_submit(struct backend_queue *base, struct backend_io *io)
{
	struct disk_queue *queue = container_of(base, struct disk_queue, base);

	io->queue = base;
	io->nr_done_bytes = 0;
	io->nr_tries = 0;
	switch (io->op) {
	case BACKEND_READ:
	case BACKEND_WRITE:
		io->loop_op.done.fn = disk_transferred;
		disk_transfer(queue, io);
		break;
	case BACKEND_FLUSH:
		io->loop_op.done.fn = disk_flushed;
		loop_fsync(base->loop, &io->loop_op, &queue->file, true);
		break;
	case BACKEND_DISCARD:
		io->loop_op.done.fn = disk_discarded;
		loop_offload(base->loop, &io->loop_op,
			queue->no_discard ? disk_nothing_work : disk_discard_work, io);
		break;
	case BACKEND_WRITE_ZEROES:
		io->loop_op.done.fn = disk_zeroed;
		loop_offload(base->loop, &io->loop_op,
			queue->no_zero_range ? disk_write_zeros_work : disk_zero_work, io);
		break;
	}
}

/* --- life ------------------------------------------------------------------------------------ */

static int disk_attach(struct backend *backend, struct loop *loop, struct backend_queue **ret)
{
	struct disk *disk = container_of(backend, struct disk, base);
	struct disk_queue *queue = calloc(1, sizeof(*queue));
	int error = queue ? 0 : -ENOMEM;

	if (!error)
		error = loop_file_add(loop, &queue->file, disk->fd, LOOP_FILE_DISK);
	if (error) {
		free(queue);
		return error;
	}
	queue->base = (struct backend_queue){.ops = backend->ops, .backend = backend, .loop = loop};
	*ret = &queue->base;
	return 0;
}

static void disk_detach(struct backend_queue *base)
{
	struct disk_queue *queue = container_of(base, struct disk_queue, base);

	loop_file_del(base->loop, &queue->file);
	free(queue);
}

static int disk_backend_open(const char *spec, bool read_only, uint32_t block_bytes,
	struct backend **ret, char *why, size_t why_size)
{
	struct disk *disk;
	int error = disk_open(spec, read_only, block_bytes, &disk, why, why_size);

	if (!error)
		*ret = &disk->base;
	return error;
}

const struct backend_ops backend_disk_ops = {
	.name = "disk",
	.open = disk_backend_open,
	.close = disk_close,
	.attach = disk_attach,
	.detach = disk_detach,
	.submit = disk_submit,
	.size = disk_size,
	.is_named = disk_is_named,
};
