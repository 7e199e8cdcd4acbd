/* SPDX-License-Identifier: MIT */
/*
 * Which namespaces hosts have protected: an empty file in the state directory of
 * each, named after its UUID. It is there or it is not, whenever the machine stops.
 */
#ifndef HAUL_TARGET_WRITE_PROTECT_STORE_H
#define HAUL_TARGET_WRITE_PROTECT_STORE_H

#include <stdbool.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

struct state_dir;

/* Returns when it is on the disk. Failure as with state_dir_write(). */
int write_protect_store_save(
	const struct state_dir *dir, const struct nvme_uuid *uuid, bool protect) must_check;
/* 1: protected; 0: not; or an error. */
int write_protect_store_load(const struct state_dir *dir, const struct nvme_uuid *uuid) must_check;

#endif
