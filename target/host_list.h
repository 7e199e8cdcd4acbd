/* SPDX-License-Identifier: MIT */
/*
 * A list of hosts, by their NQNs, in the order they were given.
 */
#ifndef HAUL_TARGET_HOST_LIST_H
#define HAUL_TARGET_HOST_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/name.h"

/* They are searched one by one. */
#define HOST_LIST_MAX 1024u

struct host_list {
	uint32_t nr;
	char (*nqn)[NVME_NQN_MAX + 1];
};

/* Adding one twice is once (B015). -ENOSPC: it is full. */
int host_list_add(struct host_list *list, const char *hostnqn) must_check;
bool host_list_has(const struct host_list *list, const char *hostnqn);
/* In the same order. */
bool host_list_is_same(const struct host_list *one, const struct host_list *other);
/* Into an empty one. On failure it has a part, to be freed. */
int host_list_copy(struct host_list *list, const struct host_list *from) must_check;
/* It is empty then. */
void host_list_free(struct host_list *list);

#endif
