/* SPDX-License-Identifier: MIT */
/*
 * The state directory: what must outlive the process and a loss of power, a small file each. A file
 * is replaced as a whole (written beside, fsync, renamed, fsync of the directory), so that whenever
 * the machine stops it is there as it was before or as it is after, never in between. A sealed text
 * says in its first line what it is, its version, and length and CRC32C of the rest.
 *
 * A failure leaves what was there, with one exception: when the fsync of the directory fails, the
 * change has been made already, and may or may not outlive the machine. It is an error all the
 * same. Whoever was to tell of the change tells that it has failed, goes on with what it had, and
 * writes that again; if that cannot be written either, nobody knows what is stored, and it is said.
 *
 * All of it may take as long as the disk does. It knows nothing of what is stored.
 */
#ifndef HAUL_TARGET_STATE_DIR_H
#define HAUL_TARGET_STATE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

struct state_dir {
	const char *path; /* for messages */
	int fd;		  /* locked against another hauld; -1: there is none */
	size_t max_bytes; /* of a file, read or written */
};

/* PATH must last as long as DIR; "": there is no directory. WHY: one line for the user. */
int state_dir_open(struct state_dir *dir, const char *path, char *why, size_t why_size) must_check;
void state_dir_close(struct state_dir *dir);

/* From any thread: it stays so. */
static inline bool state_dir_is_there(const struct state_dir *dir)
{
	return dir->fd >= 0;
}

/* The name of a namespace's file. */
#define STATE_NAME_BYTES (NVME_UUID_TEXT + 32)
void state_dir_name(
	const struct nvme_uuid *uuid, const char *suffix, char ret_name[STATE_NAME_BYTES]);

/* Returns when it is on the disk. -EFBIG: more than could be read again. -EOPNOTSUPP: there is no
 * directory. */
int state_dir_write(
	const struct state_dir *dir, const char *name, const char *text, size_t length) must_check;
/* The same; one that is not there is removed. */
int state_dir_remove(const struct state_dir *dir, const char *name) must_check;

/* *RET is allocated, ends with a 0 beyond LENGTH, and is NULL when there is no such file. -EBADMSG:
 * it is no regular file of its size. */
int state_dir_read(
	const struct state_dir *dir, const char *name, char **ret, size_t *ret_length) must_check;
/* 1: there is such a file; 0: there is none; or an error. */
int state_dir_has(const struct state_dir *dir, const char *name) must_check;

/* BODY behind its first line, allocated; KIND is one word. */
int state_text_seal(const char *kind, unsigned version, const char *body, char **ret,
	size_t *ret_length) must_check;
/* Where the body of a text of LENGTH bytes starts; it ends with the text. NULL: *RET_FAULT says
 * what is wrong. */
const char *state_text_open(const char *kind, unsigned version, const char *text, size_t length,
	const char **ret_fault) must_check;

#endif
