/* SPDX-License-Identifier: MIT */
/*
 * What the backends without a disk have in common.
 */
#include "target/backend_later.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/identity.h"
#include "target/size.h"

#define BACKEND_DEFAULT_BLOCK 512

static void backend_later_run(struct loop_flush *flush)
{
	struct backend_later *later = container_of(flush, struct backend_later, flush);
	struct list batch;
	struct list *node;

	list_init(&batch);
	list_splice_back(&batch, &later->done);
	while ((node = list_pop_front(&batch))) {
		struct backend_io *io = container_of(node, struct backend_io, loop_op.node);

		io->done.fn(&io->done, io->loop_op.res, 0);
	}
}

int backend_later_attach(struct backend *backend, struct loop *loop, struct backend_queue **ret)
{
	struct backend_later *later = calloc(1, sizeof(*later));

	if (!later)
		return -ENOMEM;
	later->base = (struct backend_queue){.ops = backend->ops, .backend = backend, .loop = loop};
	list_init(&later->done);
	loop_flush_init(&later->flush, backend_later_run);
	*ret = &later->base;
	return 0;
}

void backend_later_detach(struct backend_queue *queue)
{
	struct backend_later *later = container_of(queue, struct backend_later, base);

	assert(list_empty(&later->done));
	loop_flush_cancel(&later->flush);
	free(later);
}

void backend_later_complete(struct backend_queue *queue, struct backend_io *io, int res)
{
	struct backend_later *later = container_of(queue, struct backend_later, base);

	io->loop_op.res = res;
	list_init(&io->loop_op.node);
	list_push_back(&later->done, &io->loop_op.node);
	loop_flush_later(queue->loop, &later->flush);
}

int backend_memory_geometry(const char *kind, const char *spec, bool read_only,
	uint32_t block_bytes, struct backend_geometry *ret, char *why, size_t why_size)
{
	uint32_t block = block_bytes ? block_bytes : BACKEND_DEFAULT_BLOCK;
	uint64_t size;
	int error = size_parse(spec, &size);

	if (!error && size % block)
		error = -ERANGE;
	if (error) {
		snprintf(why, why_size,
			"size '%s' of %s:%s is not valid: a multiple of %u bytes such as 1G or 512M is",
			spec, kind, spec, block);
		return error;
	}
	*ret = (struct backend_geometry){
		.size_bytes = size,
		.block_bytes = block,
		.read_only = read_only,
		.can_discard = true,
		.discard_zeroes = true,
	};
	identity_random(ret->identity);
	return 0;
}
