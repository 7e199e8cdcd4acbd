/* SPDX-License-Identifier: MIT */
/*
 * Reads "allow" from the tree, for a schema cannot say what it is.
 */
#include "target/config_allow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "target/config_source.h"
#include "target/subsys.h"

#define CONFIG_ALLOW_PATH (CONFIG_PATH_BYTES + 32)

/* The name at PATH, of a host; NULL: it is none, and that has been told. */
static const char *config_allow_name(
	struct config_source *source, const char *path, const yaml_node_t *node)
{
	const char *fault = NULL;
	const char *nqn;

	if (node->type != YAML_SCALAR_NODE) {
		(void)config_source_wrong(source, path,
			"is not the name of a host, such as nqn.2024-01.com.example:host");
		return NULL;
	}
	nqn = (const char *)node->data.scalar.value;
	if (!strcmp(nqn, "any")) {
		(void)config_source_wrong(source, path,
			"would be a host of that name: for all hosts it is 'allow: any'");
		return NULL;
	}
	if (nvme_nqn_check(nqn, node->data.scalar.length, NVME_NQN_PEERS, &fault)) {
		(void)config_source_wrong(source, path, "'%s': %s", nqn, fault);
		return NULL;
	}
	return nqn;
}

static int config_allow_add(
	struct config_source *source, const char *path, const char *nqn, struct host_list *hosts)
{
	int error = host_list_add(hosts, nqn);

	if (error == -ENOSPC)
		return config_source_wrong(
			source, path, "one host too many: %u are possible", HOST_LIST_MAX);
	return error;
}

/* What a namespace's list says can only narrow the subsystem's. */
static int config_allow_narrow(
	struct config_source *source, const char *path, const char *nqn, struct subsys *subsys)
{
	int error;

	if (!subsys_host_allowed(subsys, nqn))
		return config_source_wrong(source, path,
			"'%s' may not use the subsystem: its own 'allow' must have the host, too",
			nqn);
	error = host_list_add(&subsys->named, nqn);
	if (error == -ENOSPC)
		return config_source_wrong(source, path,
			"one host too many: the namespaces of a subsystem may name %u",
			HOST_LIST_MAX);
	return error;
}

/* NARROWS: the subsystem that the list is a namespace's of; NULL: it is the subsystem's own. */
static int config_allow_list(struct config_source *source, const char *path,
	const yaml_node_t *node, struct subsys *narrows, struct host_list *hosts)
{
	const yaml_node_item_t *first = node->data.sequence.items.start;
	int error = 0;

	for (const yaml_node_item_t *item = first; !error && item < node->data.sequence.items.top;
		item++) {
		char at[CONFIG_ALLOW_PATH];
		const char *nqn;

		snprintf(at, sizeof(at), "%s.%u", path, (unsigned)(item - first));
		nqn = config_allow_name(source, at, config_source_node(source, *item));
		error = nqn ? config_allow_add(source, at, nqn, hosts) : -EINVAL;
		if (!error && narrows)
			error = config_allow_narrow(source, at, nqn, narrows);
	}
	return error;
}

/* Absent, it is "any". */
static int config_allow(struct config_source *source, const char *path, struct subsys *narrows,
	struct host_list *hosts, bool *ret_any)
{
	const yaml_node_t *node = config_source_at(source, path);
	const char *word = node && node->type == YAML_SCALAR_NODE
				   ? (const char *)node->data.scalar.value
				   : NULL;

	*ret_any = !node || (word && !strcmp(word, "any"));
	if (*ret_any)
		return 0;
	if (word)
		return config_source_wrong(
			source, path, "'%s' is neither 'any' nor a list of host NQNs", word);
	if (node->type != YAML_SEQUENCE_NODE)
		return config_source_wrong(
			source, path, "is neither 'any' nor a list of host NQNs");
	return config_allow_list(source, path, node, narrows, hosts);
}

int config_allow_subsys(struct config_source *source, const char *path, struct subsys *subsys)
{
	char at[CONFIG_ALLOW_PATH];

	snprintf(at, sizeof(at), "%s.allow", path);
	return config_allow(source, at, NULL, &subsys->hosts, &subsys->allow_any);
}

int config_allow_hosts(struct config_source *source, const char *path, struct subsys *subsys,
	struct host_list *hosts, const struct host_list **ret)
{
	char at[CONFIG_ALLOW_PATH];
	bool any;
	int error;

	snprintf(at, sizeof(at), "%s.allow", path);
	error = config_allow(source, at, subsys, hosts, &any);
	if (!error)
		*ret = any ? NULL : hosts;
	return error;
}
