/* SPDX-License-Identifier: MIT */
/*
 * For backends that are done at once: their completions are held until the end of the turn, for a
 * backend never completes inside submit().
 */
#ifndef HAUL_TARGET_BACKEND_LATER_H
#define HAUL_TARGET_BACKEND_LATER_H

#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "target/backend.h"

/* First member of such a backend's queue. */
struct backend_later {
	struct backend_queue base;
	struct list done; /* of backend_io, by loop_op.node */
	struct loop_flush flush;
};

/* attach and detach of the ops table. */
int backend_later_attach(struct backend *backend, struct loop *loop, struct backend_queue **ret);
void backend_later_detach(struct backend_queue *queue);

/* IO is over, with RES. */
void backend_later_complete(struct backend_queue *queue, struct backend_io *io, int res);

/* Size and block size of memory that stands for a disk, checked; RET is filled but for identity. */
int backend_memory_geometry(const char *kind, const char *spec, bool read_only,
	uint32_t block_bytes, struct backend_geometry *ret, char *why, size_t why_size) must_check;

#endif
