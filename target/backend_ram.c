/* SPDX-License-Identifier: MIT */
/*
 * A disk in memory that all reactors share, as they would share a disk: two commands on the same
 * blocks at the same time have no order. Memory is taken when it is written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target/backend.h"
#include "target/backend_later.h"

/* Above, giving memory back takes long enough to go to a helper thread. */
#define RAM_INLINE_ZERO_BYTES (256u << 10)

struct ram {
	struct backend base;
	char *memory;
	size_t page;
};

static int ram_open(const char *spec, bool read_only, uint32_t block_bytes, struct backend **ret,
	char *why, size_t why_size)
{
	struct ram *ram = calloc(1, sizeof(*ram));
	int error = -ENOMEM;

	if (ram)
		error = backend_memory_geometry(
			"ram", spec, read_only, block_bytes, &ram->base.geometry, why, why_size);
	if (error)
		goto free_ram;
	ram->base.ops = &backend_ram_ops;
	ram->page = (size_t)sysconf(_SC_PAGESIZE);
	ram->memory = mmap(NULL, ram->base.geometry.size_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ram->memory == MAP_FAILED) {
		error = -errno;
		snprintf(why, why_size, "ram:%s does not fit in the address space: %s", spec,
			strerror(errno));
		goto free_ram;
	}
	*ret = &ram->base;
	return 0;

free_ram:
	free(ram);
	return error;
}

static void ram_close(struct backend *backend)
{
	struct ram *ram = container_of(backend, struct ram, base);

	munmap(ram->memory, ram->base.geometry.size_bytes);
	free(ram);
}

/* Whole pages go back to the system and read as zeros; the edges are cleared. */
static void ram_zero(const struct ram *ram, uint64_t offset, uint64_t extent)
{
	char *start = ram->memory + offset;
	char *end = start + extent;
	char *first = (char *)(((uintptr_t)start + ram->page - 1) & ~(uintptr_t)(ram->page - 1));
	char *last = (char *)((uintptr_t)end & ~(uintptr_t)(ram->page - 1));

	if (first >= last || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
		memset(start, 0, extent);
		return;
	}
	memset(start, 0, (size_t)(first - start));
	memset(last, 0, (size_t)(end - last));
}

static int ram_zero_offloaded(void *arg)
{
	struct backend_io *io = arg;

	ram_zero(container_of(io->queue->backend, struct ram, base), io->offset, io->extent);
	return 0;
}

static void ram_offload_done(struct done *done, int res, unsigned flags)
{
	struct backend_io *io = container_of(done, struct backend_io, loop_op.done);

	io->done.fn(&io->done, res, flags);
}

static void ram_submit(struct backend_queue *queue, struct backend_io *io)
{
	struct ram *ram = container_of(queue->backend, struct ram, base);

	switch (io->op) {
	case BACKEND_READ:
		memcpy(io->bytes, ram->memory + io->offset, io->length);
		break;
	case BACKEND_WRITE:
		memcpy(ram->memory + io->offset, io->bytes, io->length);
		break;
	case BACKEND_FLUSH:
		break;
	case BACKEND_DISCARD:
	case BACKEND_WRITE_ZEROES:
		if (io->extent > RAM_INLINE_ZERO_BYTES) {
			io->queue = queue;
			io->loop_op.done.fn = ram_offload_done;
			loop_offload(queue->loop, &io->loop_op, ram_zero_offloaded, io);
			return;
		}
		ram_zero(ram, io->offset, io->extent);
		break;
	}
	backend_later_complete(queue, io, 0);
}

const struct backend_ops backend_ram_ops = {
	.name = "ram",
	.open = ram_open,
	.close = ram_close,
	.attach = backend_later_attach,
	.detach = backend_later_detach,
	.submit = ram_submit,
};
