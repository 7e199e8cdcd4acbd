/* SPDX-License-Identifier: MIT */
/*
 * The identity of this host.
 */
#ifndef HAUL_INITIATOR_HOST_H
#define HAUL_INITIATOR_HOST_H

#include <stddef.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

/* Who we are. NQN and ID may be NULL. -EINVAL with a text in WHY. */
int host_identity(const char *nqn, const char *id, char ret_nqn[NVME_NQN_MAX + 1],
	struct nvme_uuid *ret_id, char *why, size_t why_size) must_check;

#endif
