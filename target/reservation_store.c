/* SPDX-License-Identifier: MIT */
/*
 * A namespace's file in the state directory, and what is wrong with it.
 */
#include "target/reservation_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/reservation.h"
#include "target/state_dir.h"

#define RESERVATION_STORE_SUFFIX ".reservation"

static void reservation_store_say_why(const struct state_dir *dir, const char *name, int error,
	const char *fault, char *why, size_t why_size)
{
	if (error == -EBADMSG)
		snprintf(why, why_size,
			"%s/%s, which has a namespace's reservation, is damaged: %s. Restore it, or "
			"remove it and have the hosts register again",
			dir->path, name, fault);
	else
		snprintf(why, why_size, "%s/%s, which has a namespace's reservation: %s", dir->path,
			name, strerror(-error));
}

int reservation_store_load(const struct state_dir *dir, const struct nvme_uuid *uuid,
	struct reservation **ret, char *why, size_t why_size)
{
	const char *fault = "it is no regular file of its size";
	char name[STATE_NAME_BYTES];
	size_t length;
	char *text;
	int error;

	*ret = NULL;
	state_dir_name(uuid, RESERVATION_STORE_SUFFIX, name);
	error = state_dir_read(dir, name, &text, &length);
	if (!error && text)
		error = reservation_store_parse(uuid, text, length, ret, &fault);
	if (error)
		reservation_store_say_why(dir, name, error, fault, why, why_size);
	free(text);
	return error;
}

int reservation_store_save(
	const struct state_dir *dir, const struct nvme_uuid *uuid, const struct reservation *state)
{
	char name[STATE_NAME_BYTES];
	size_t length = 0;
	char *text = NULL;
	int error;

	state_dir_name(uuid, RESERVATION_STORE_SUFFIX, name);
	if (!state->ptpl)
		return state_dir_remove(dir, name);
	error = reservation_store_format(uuid, state, &text, &length);
	if (!error)
		error = state_dir_write(dir, name, text, length);
	free(text);
	return error;
}
