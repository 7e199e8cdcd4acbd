/* SPDX-License-Identifier: MIT */
/*
 * Reads "referrals" from the tree.
 */
#include "target/config_referral.h"

#include <stdio.h>

#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/config_allow.h"
#include "target/config_source.h"
#include "target/host_list.h"

static int config_referral_add(struct config_source *source, const char *path, const char *text,
	const struct host_list *hosts, struct catalog *catalog)
{
	char why[CONFIG_WHY_BYTES];
	struct nvme_uri uri;
	int error = nvme_uri_parse(text, 0, &uri, why, sizeof(why));

	if (!error)
		error = catalog_add_referral(catalog, &uri, hosts, why, sizeof(why));
	return error ? config_source_wrong(source, path, "%s: %s", text, why) : 0;
}

/* The shape has been checked: NODE is a text, or has one. */
static int config_referral(struct config_source *source, unsigned which, const yaml_node_t *node,
	struct catalog *catalog)
{
	const struct host_list *seen_by = NULL;
	struct host_list hosts = {0};
	char path[CONFIG_PATH_BYTES];
	char at[CONFIG_PATH_BYTES + 16];
	int error = 0;

	snprintf(path, sizeof(path), "referrals.%u", which);
	snprintf(at, sizeof(at), "%s", path);
	if (node->type == YAML_MAPPING_NODE) {
		error = config_allow_hosts(source, path, NULL, &hosts, &seen_by);
		snprintf(at, sizeof(at), "%s.address", path);
		node = config_source_at(source, at);
	}
	if (!error)
		error = config_referral_add(
			source, at, (const char *)node->data.scalar.value, seen_by, catalog);
	host_list_free(&hosts);
	return error;
}

int config_referrals(struct config_source *source, struct catalog *catalog)
{
	const yaml_node_t *list = config_source_at(source, "referrals");
	int error = 0;

	if (!list)
		return 0;
	for (const yaml_node_item_t *item = list->data.sequence.items.start;
		!error && item < list->data.sequence.items.top; item++)
		error = config_referral(source, (unsigned)(item - list->data.sequence.items.start),
			config_source_node(source, *item), catalog);
	return error;
}
