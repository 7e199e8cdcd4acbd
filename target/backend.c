/* SPDX-License-Identifier: MIT */
/*
 * Opens the backend that a path means, and closes it when nobody needs it any more.
 */
#include "target/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/compiler.h"
#include "proto/base/log.h"

/* Those that a path names by "NAME:SIZE"; NULL: it is that of a disk. */
static const struct backend_ops *backend_find_memory(const char *path)
{
	static const struct backend_ops *const by_prefix[] = {&backend_ram_ops, &backend_null_ops};

	for (size_t i = 0; i < ARRAY_SIZE(by_prefix); i++) {
		size_t length = strlen(by_prefix[i]->name);

		if (!strncmp(path, by_prefix[i]->name, length) && path[length] == ':')
			return by_prefix[i];
	}
	return NULL;
}

bool backend_is_memory(const char *path)
{
	return backend_find_memory(path);
}

static int backend_open_any(const char *path, bool read_only, uint32_t block_bytes,
	struct backend **ret, char *why, size_t why_size)
{
	const struct backend_ops *memory = backend_find_memory(path);

	return memory ? memory->open(path + strlen(memory->name) + 1, read_only, block_bytes, ret,
				why, why_size)
		      : backend_disk_ops.open(path, read_only, block_bytes, ret, why, why_size);
}

int backend_open(const char *path, bool read_only, uint32_t block_bytes, struct backend **ret,
	char *why, size_t why_size)
{
	char *copy = strdup(path);
	int error = copy ? 0 : -ENOMEM;

	if (!error)
		error = backend_open_any(path, read_only, block_bytes, ret, why, why_size);
	if (error) {
		free(copy);
		return error;
	}
	(*ret)->path = copy;
	(*ret)->asked_read_only = read_only;
	(*ret)->asked_block_bytes = block_bytes;
	(*ret)->nr_refs = 1;
	return 0;
}

struct backend *backend_get(struct backend *backend)
{
	backend->nr_refs++;
	return backend;
}

void backend_put(struct backend *backend)
{
	if (--backend->nr_refs)
		return;
	free(backend->path);
	backend->ops->close(backend);
}

bool backend_serves(
	const struct backend *backend, const char *path, bool read_only, uint32_t block_bytes)
{
	return !strcmp(backend->path, path) && (read_only || !backend->asked_read_only) &&
	       backend->asked_block_bytes == block_bytes;
}

void backend_take_size(struct backend *backend, int error, uint64_t bytes)
{
	int before = backend->size_error;

	bytes -= bytes % backend->geometry.block_bytes;
	backend->size_error = error || bytes ? error : -ENODEV;
	if (!backend->size_error)
		backend->geometry.size_bytes = bytes;
	else if (!before)
		log_warning("%s has no size any more: %s", backend->path,
			strerror(-backend->size_error));
}

void backend_look(struct backend *backend)
{
	uint64_t bytes = 0;
	int error;

	if (!backend->ops->size)
		return;
	error = backend->ops->size(backend, &bytes);
	backend_take_size(backend, error, bytes);
}
