/* SPDX-License-Identifier: MIT */
/*
 * A disk that forgets what is written and reads as zeros: to measure everything but a disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/backend.h"
#include "target/backend_later.h"

static int null_open(const char *spec, bool read_only, uint32_t block_bytes, struct backend **ret,
	char *why, size_t why_size)
{
	struct backend *backend = calloc(1, sizeof(*backend));
	int error = -ENOMEM;

	if (backend)
		error = backend_memory_geometry(
			"null", spec, read_only, block_bytes, &backend->geometry, why, why_size);
	if (error) {
		free(backend);
		return error;
	}
	backend->ops = &backend_null_ops;
	*ret = backend;
	return 0;
}

static void null_close(struct backend *backend)
{
	free(backend);
}

static void null_submit(struct backend_queue *queue, struct backend_io *io)
{
	if (io->op == BACKEND_READ)
		memset(io->bytes, 0, io->length);
	backend_later_complete(queue, io, 0);
}

const struct backend_ops backend_null_ops = {
	.name = "null",
	.open = null_open,
	.close = null_close,
	.attach = backend_later_attach,
	.detach = backend_later_detach,
	.submit = null_submit,
};
