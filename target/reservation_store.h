/* SPDX-License-Identifier: MIT */
/*
 * Reservations that persist through power loss: one text file a namespace, named after its UUID,
 * in the state directory (target/state_dir.h). What cannot be read is an error: a host whose
 * reservation was forgotten would find another one writing.
 *
 * It is a sealed text, whose body is JSON.
 */
#ifndef HAUL_TARGET_RESERVATION_STORE_H
#define HAUL_TARGET_RESERVATION_STORE_H

#include <stddef.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

struct reservation;
struct state_dir;

/* *RET is NULL when there is no such file. */
int reservation_store_load(const struct state_dir *dir, const struct nvme_uuid *uuid,
	struct reservation **ret, char *why, size_t why_size) must_check;

/* Returns when it is on the disk. One that does not persist has no file. Failure as with
 * state_dir_write(). */
int reservation_store_save(const struct state_dir *dir, const struct nvme_uuid *uuid,
	const struct reservation *state) must_check;

/* The text of a file and back. */
int reservation_store_format(const struct nvme_uuid *uuid, const struct reservation *state,
	char **ret, size_t *ret_length) must_check;
/* -ENOMEM, or -EBADMSG and *RET_FAULT says what is wrong. */
int reservation_store_parse(const struct nvme_uuid *uuid, const char *text, size_t length,
	struct reservation **ret, const char **ret_fault) must_check;

#endif
