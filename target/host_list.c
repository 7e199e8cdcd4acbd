/* SPDX-License-Identifier: MIT */
/*
 * Lists of hosts.
 */
#include "target/host_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool host_list_has(const struct host_list *list, const char *hostnqn)
{
	for (uint32_t i = 0; i < list->nr; i++)
		if (!strcmp(list->nqn[i], hostnqn))
			return true;
	return false;
}

bool host_list_is_same(const struct host_list *one, const struct host_list *other)
{
	for (uint32_t i = 0; i < one->nr && i < other->nr; i++)
		if (strcmp(one->nqn[i], other->nqn[i]))
			return false;
	return one->nr == other->nr;
}

int host_list_add(struct host_list *list, const char *hostnqn)
{
	void *nqn;

	if (host_list_has(list, hostnqn))
		return 0;
	if (list->nr >= HOST_LIST_MAX)
		return -ENOSPC;
	nqn = reallocarray(list->nqn, list->nr + 1, sizeof(*list->nqn));
	if (!nqn)
		return -ENOMEM;
	list->nqn = nqn;
	snprintf(list->nqn[list->nr++], sizeof(*list->nqn), "%s", hostnqn);
	return 0;
}

int host_list_copy(struct host_list *list, const struct host_list *from)
{
	if (!from->nr)
		return 0;
	list->nqn = reallocarray(NULL, from->nr, sizeof(*list->nqn));
	if (!list->nqn)
		return -ENOMEM;
	memcpy(list->nqn, from->nqn, from->nr * sizeof(*list->nqn));
	list->nr = from->nr;
	return 0;
}

void host_list_free(struct host_list *list)
{
	free(list->nqn);
	*list = (struct host_list){0};
}
