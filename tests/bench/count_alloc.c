/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library that counts the allocations of a process and appends the number to the file
 * named by COUNT_ALLOC at exit.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counted from all threads of the process. */
static atomic_ulong nr_allocations;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t nr, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* The test RDMA libraries' own are not the program's. */
static void count_alloc_from(const void *caller)
{
	Dl_info info;

	if (dladdr(caller, &info) && strstr(info.dli_fname, "softrdma"))
		return;
	atomic_fetch_add_explicit(&nr_allocations, 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
	count_alloc_from(__builtin_return_address(0));
	return __libc_malloc(size);
}

void *calloc(size_t nr, size_t size)
{
	count_alloc_from(__builtin_return_address(0));
	return __libc_calloc(nr, size);
}

void *realloc(void *old, size_t size)
{
	count_alloc_from(__builtin_return_address(0));
	return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count_alloc_from(__builtin_return_address(0));
	return __libc_memalign(alignment, size);
}

__attribute__((destructor)) static void count_alloc_tell(void)
{
	const char *path = getenv("COUNT_ALLOC");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%lu\n", atomic_load(&nr_allocations));
	close(fd);
}
