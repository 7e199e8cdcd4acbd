/* SPDX-License-Identifier: MIT */
/*
 * What the two files of the disk backend share: backend_disk.c does I/O, backend_disk_open.c finds
 * out what a path is.
 */
#ifndef HAUL_TARGET_BACKEND_DISK_H
#define HAUL_TARGET_BACKEND_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "target/backend.h"

struct disk {
	struct backend base;
	int fd;
	bool is_device;
	bool direct; /* O_DIRECT */
};

/* Size, block size, cache, identity of what is open; and the file's claim. */
int disk_open(const char *path, bool read_only, uint32_t block_bytes, struct disk **ret, char *why,
	size_t why_size) must_check;
void disk_close(struct backend *backend);
/* How large it is now. */
int disk_size(const struct backend *backend, uint64_t *ret_bytes);
bool disk_is_named(const struct backend *backend);

#endif
