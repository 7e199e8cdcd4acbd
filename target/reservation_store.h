/* SPDX-License-Identifier: MIT */
/*
 * Reservations that persist through power loss: one text file a namespace, named after its UUID,
 * in the state directory. A file is replaced as a whole, so that whenever the machine stops, the
 * file is there as it was before or as it is after. What cannot be read is an error: a host whose
 * reservation was forgotten would find another one writing.
 *
 * The first line says what it is, its version, and length and CRC32C of the rest, which is JSON.
 */
#ifndef HAUL_TARGET_RESERVATION_STORE_H
#define HAUL_TARGET_RESERVATION_STORE_H

#include <stddef.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

struct reservation;

struct reservation_store {
	const char *path; /* the directory, for messages */
	int fd;		  /* of it, locked against another hauld; -1: there is none */
	size_t max_bytes; /* of a file, read or written */
};

/* PATH must last as long as the store; "": nothing persists. WHY: one line for the user. */
int reservation_store_open(
	struct reservation_store *store, const char *path, char *why, size_t why_size) must_check;
void reservation_store_close(struct reservation_store *store);

/* *RET is NULL when there is no such file. */
int reservation_store_load(const struct reservation_store *store, const struct nvme_uuid *uuid,
	struct reservation **ret, char *why, size_t why_size) must_check;

/* Returns when it is on the disk. One that does not persist has no file. -EFBIG: more than could be
 * read again; then the file is what it was. */
int reservation_store_save(const struct reservation_store *store, const struct nvme_uuid *uuid,
	const struct reservation *state) must_check;

/* The text of a file and back. */
int reservation_store_format(const struct nvme_uuid *uuid, const struct reservation *state,
	char **ret, size_t *ret_length) must_check;
/* -ENOMEM, or -EBADMSG and *RET_FAULT says what is wrong. */
int reservation_store_parse(const struct nvme_uuid *uuid, const char *text, size_t length,
	struct reservation **ret, const char **ret_fault) must_check;

#endif
