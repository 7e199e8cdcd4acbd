/* SPDX-License-Identifier: MIT */
/*
 * A disk in memory that all reactors share, as they would share a disk: two commands on the same
 * blocks at the same time have no order, but a block is whole, always (NVM command set 1.0 2.1.4.1:
 * AWUN is a block at least). What a device does for that is done here by locks, one for each page
 * of a window. Memory is taken when it is written.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target/backend.h"
#include "target/backend_later.h"

#define RAM_PAGE_BYTES	 4096u /* as large as the largest block */
#define RAM_LOCKS	 64u
#define RAM_WINDOW_BYTES (RAM_LOCKS * RAM_PAGE_BYTES)

struct ram_lock {
	_Alignas(64) atomic_flag taken; /* by any reactor, or a helper thread of its */
};

struct ram {
	struct backend base;
	char *memory;
	size_t page;
	struct ram_lock locks[RAM_LOCKS]; /* by number of a page, modulo their number */
};

/* --- pages ----------------------------------------------------------------------------------- */

static atomic_flag *ram_lock_of(struct ram *ram, uint64_t offset)
{
	return &ram->locks[offset / RAM_PAGE_BYTES % RAM_LOCKS].taken;
}

/* Held for as long as it takes to copy a page or to give a window back. */
static void ram_lock(atomic_flag *lock)
{
	while (unlikely(atomic_flag_test_and_set_explicit(lock, memory_order_acquire)))
		sched_yield();
}

static void ram_unlock(atomic_flag *lock)
{
	atomic_flag_clear_explicit(lock, memory_order_release);
}

static void ram_copy(struct ram *ram, const struct backend_io *io)
{
	uint32_t done = 0;

	while (done < io->length) {
		uint64_t offset = io->offset + done;
		uint32_t in_page = RAM_PAGE_BYTES - (uint32_t)(offset % RAM_PAGE_BYTES);
		uint32_t length = min_of(in_page, io->length - done);
		char *bytes = (char *)io->bytes + done;
		atomic_flag *lock = ram_lock_of(ram, offset);

		ram_lock(lock);
		if (io->op == BACKEND_READ)
			memcpy(bytes, ram->memory + offset, length);
		else
			memcpy(ram->memory + offset, bytes, length);
		ram_unlock(lock);
		done += length;
	}
}

/* Whole pages go back to the system and read as zeros; the edges are cleared. */
static void ram_zero_locked(const struct ram *ram, uint64_t offset, uint64_t extent)
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

/* Window by window, in which each page has a lock of its own and all take them in one order. */
static void ram_zero(struct ram *ram, uint64_t offset, uint64_t extent)
{
	while (extent) {
		uint64_t length = min_of(extent, RAM_WINDOW_BYTES - offset % RAM_WINDOW_BYTES);
		uint64_t first = offset - offset % RAM_PAGE_BYTES;

		for (uint64_t at = first; at < offset + length; at += RAM_PAGE_BYTES)
			ram_lock(ram_lock_of(ram, at));
		ram_zero_locked(ram, offset, length);
		for (uint64_t at = first; at < offset + length; at += RAM_PAGE_BYTES)
			ram_unlock(ram_lock_of(ram, at));
		offset += length;
		extent -= length;
	}
}

/* --- life ------------------------------------------------------------------------------------ */

static int ram_open(const char *spec, bool read_only, uint32_t block_bytes, struct backend **ret,
	char *why, size_t why_size)
{
	struct ram *ram = aligned_alloc(_Alignof(struct ram), sizeof(*ram));
	int error = -ENOMEM;

	if (ram) {
		*ram = (struct ram){0};
		error = backend_memory_geometry(
			"ram", spec, read_only, block_bytes, &ram->base.geometry, why, why_size);
	}
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

/* --- I/O ------------------------------------------------------------------------------------- */

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
	case BACKEND_WRITE:
		ram_copy(ram, io);
		break;
	case BACKEND_FLUSH:
		break;
	case BACKEND_DISCARD:
	case BACKEND_WRITE_ZEROES:
		/* Longer, giving memory back takes long enough to go to a helper thread. */
		if (io->extent > RAM_WINDOW_BYTES) {
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
