/* SPDX-License-Identifier: MIT */
/*
 * Files of the state directory that are there or not.
 */
#include "target/write_protect_store.h"

#include "target/state_dir.h"

#define WRITE_PROTECT_SUFFIX ".write-protect"

int write_protect_store_save(
	const struct state_dir *dir, const struct nvme_uuid *uuid, bool protect)
{
	char name[STATE_NAME_BYTES];

	state_dir_name(uuid, WRITE_PROTECT_SUFFIX, name);
	return protect ? state_dir_write(dir, name, "", 0) : state_dir_remove(dir, name);
}

int write_protect_store_load(const struct state_dir *dir, const struct nvme_uuid *uuid)
{
	char name[STATE_NAME_BYTES];

	state_dir_name(uuid, WRITE_PROTECT_SUFFIX, name);
	return state_dir_has(dir, name);
}
