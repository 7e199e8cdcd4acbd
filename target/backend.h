/* SPDX-License-Identifier: MIT */
/*
 * What a namespace stands on. A backend is opened once for the process and attached once to each
 * loop; a submitted I/O belongs to the backend until its done function is called, on that loop and
 * never inside submit(). Backends know logical blocks and bytes, no NVMe.
 */
#ifndef HAUL_TARGET_BACKEND_H
#define HAUL_TARGET_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/base/loop.h"

struct backend;
struct backend_queue; /* one backend on one loop */

enum backend_op {
	BACKEND_READ,
	BACKEND_WRITE,
	BACKEND_FLUSH,
	BACKEND_DISCARD,      /* advisory: the range may read as before, as zeros, or as anything */
	BACKEND_WRITE_ZEROES, /* the range reads as zeros afterwards */
};

struct backend_io {
	enum backend_op op;
	bool fua;	  /* WRITE, WRITE_ZEROES: on stable media before it completes */
	bool deallocate;  /* WRITE_ZEROES: space may be given back */
	int loop_buffer;  /* READ, WRITE: the loop's number of the region that holds BYTES, or
			     LOOP_BUFFER_NONE */
	void *bytes;	  /* READ, WRITE */
	uint32_t length;  /* READ, WRITE: bytes; a multiple of the block size */
	uint64_t offset;  /* bytes; checked by the core against the size */
	uint64_t extent;  /* DISCARD, WRITE_ZEROES: bytes */
	struct done done; /* RES: 0 when all of it is done, else a negative errno (ENOSPC, EIO,
			     ENODEV...) */

	/* The backend's from submit() to done. */
	struct loop_op loop_op;
	struct iovec iov;
	uint32_t nr_done_bytes;
	uint32_t nr_tries;
	struct backend_queue *queue;
};

static inline bool backend_io_changes(const struct backend_io *io)
{
	return io->op == BACKEND_WRITE || io->op == BACKEND_DISCARD ||
	       io->op == BACKEND_WRITE_ZEROES;
}

/* What a disk does best, in bytes; 0: not known. */
struct backend_limits {
	uint32_t write_bytes;	 /* a write of less costs more than its share */
	uint32_t optimal_bytes;	 /* of writes that are to be fast, a multiple of that */
	uint32_t discard_bytes;	 /* a discard of less has no effect */
	uint32_t boundary_bytes; /* what crosses a multiple of it is split */
};

struct backend_geometry {
	uint64_t size_bytes;  /* the control thread's, for it may change */
	uint32_t block_bytes; /* 512 or 4096 */
	struct backend_limits limits;
	bool read_only;
	bool volatile_cache; /* writes may be lost until FLUSH */
	bool can_discard;
	bool discard_zeroes;  /* discarded blocks read as zeros */
	uint8_t identity[16]; /* stable over restarts: what default names, NGUID and UUID come from
			       */
};

struct backend_ops {
	const char *name; /* "disk", "ram", "null" */
	/* SPEC is a path or a size; may block (before threads start, or on the control thread). On
	 * failure WHY (of WHY_SIZE bytes) tells what is wrong and what would be right. */
	int (*open)(const char *spec, bool read_only, uint32_t block_bytes, struct backend **ret,
		char *why, size_t why_size);
	void (*close)(struct backend *backend);
	int (*attach)(struct backend *backend, struct loop *loop, struct backend_queue **ret);
	void (*detach)(struct backend_queue *queue); /* no I/O is out */
	void (*submit)(struct backend_queue *queue, struct backend_io *io);
	/* How large it is now, on any thread; NULL: as it was opened, always. */
	int (*size)(const struct backend *backend, uint64_t *ret_bytes);
	/* Its path still names it; NULL: always. */
	bool (*is_named)(const struct backend *backend);
};

/* First member of each implementation's own structure. */
struct backend {
	const struct backend_ops *ops;
	struct backend_geometry geometry;
	/* Of backend_open(): what it was opened as. */
	char *path;
	bool asked_read_only;
	uint32_t asked_block_bytes;
	uint32_t nr_refs; /* the control thread's */
	int size_error;	  /* of backend_look(): it is not what it was */
};
struct backend_queue {
	const struct backend_ops *ops;
	struct backend *backend;
	struct loop *loop;
};

/* PATH: a file or device, "ram:SIZE" or "null:SIZE". With one reference; the last one closes it.
 * All of this on the control thread. */
int backend_open(const char *path, bool read_only, uint32_t block_bytes, struct backend **ret,
	char *why, size_t why_size) must_check;
struct backend *backend_get(struct backend *backend);
void backend_put(struct backend *backend);
/* What was opened does for these arguments: one for writing may be read only, too. */
bool backend_serves(
	const struct backend *backend, const char *path, bool read_only, uint32_t block_bytes);
/* Memory: "ram:SIZE" or "null:SIZE". */
bool backend_is_memory(const char *path);
/* How large it is now, or why that cannot be told: then it keeps what it was. */
void backend_take_size(struct backend *backend, int error, uint64_t bytes);
/* Looks and takes it, which may block. */
void backend_look(struct backend *backend);

extern const struct backend_ops backend_disk_ops;
extern const struct backend_ops backend_ram_ops;
extern const struct backend_ops backend_null_ops;

#endif
