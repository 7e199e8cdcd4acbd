/* SPDX-License-Identifier: MIT */
/*
 * The kinds of values of hauld.conf, and what to say when one is of another kind.
 */
#include "target/config_shape.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"
#include "target/config_schema.h"
#include "target/config_source.h"

enum config_kind {
	CONFIG_TEXT,
	CONFIG_NUMBER,
	CONFIG_FLAG,
	CONFIG_LIST,
	CONFIG_ALLOW, /* a word or a list: config_allow.h */
};

/* Of a path; a key of the file may be of any length. */
#define CONFIG_SHAPE_PATH  (CONFIG_PATH_BYTES + CONFIG_KEY_SHOWN)
#define CONFIG_KEY_SHOWN   64
#define CONFIG_VALUE_SHOWN 100

/* A key. Of a list: MIN to MAX entries, each a mapping of ENTRY's keys, or without ENTRY a text, or
 * one of both; else MAX is of bytes, 0: 64. */
struct config_shape {
	const char *key;
	enum config_kind kind;
	bool required;
	bool or_text;
	unsigned min, max;
	const struct config_shape *entry;
	const char *right;
};

static const struct config_shape config_shape_ns[] = {
	{"path", CONFIG_TEXT, .max = 4096, .right = "the path of a file or a block device is"},
	{"ram", CONFIG_TEXT, .right = "a size such as 1G is"},
	{"null", CONFIG_TEXT, .right = "a size such as 1G is"},
	{"nsid", CONFIG_NUMBER, .right = "a number from 1 to 1024 is"},
	{"uuid", CONFIG_TEXT,
		.right = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, of hexadecimal digits, is"},
	{"nguid", CONFIG_TEXT, .right = "32 hexadecimal digits are"},
	{"eui64", CONFIG_TEXT, .right = "16 hexadecimal digits are"},
	{"ana_group", CONFIG_NUMBER, .right = "a number from 1 to 128 is"},
	{"allow", CONFIG_ALLOW},
	{"readonly", CONFIG_FLAG, .right = "true or false is"},
	{"block", CONFIG_NUMBER, .right = "512 or 4096 is"},
	{0},
};

static const struct config_shape config_shape_ana[] = {
	{"group", CONFIG_NUMBER, .required = true, .right = "a number from 1 to 128 is"},
	{"state", CONFIG_TEXT, .required = true, .right = "one of " ANA_STATE_NAMES " is"},
	{"listeners", CONFIG_LIST, .min = 1, .max = CATALOG_MAX_PORTS,
		.right = "a list of addresses that 'listen' has, or no such key, is"},
	{0},
};

static const struct config_shape config_shape_host[] = {
	{"nqn", CONFIG_TEXT, .required = true, .max = 4096,
		.right = "the name of a host that 'allow' has is"},
	{"dhchap_key", CONFIG_TEXT, .required = true, .max = 4096,
		.right = "the path of a file that has a secret, or a secret, DHHC-1:..., is"},
	{"dhchap_ctrl_key", CONFIG_TEXT, .max = 4096,
		.right = "the path of a file that has a secret, or a secret, DHHC-1:..., is"},
	{"dhchap_hashes", CONFIG_LIST, .min = 1, .max = CONFIG_MAX_AUTH_NAMES,
		.right = "a list of some of sha256, sha384 and sha512 is"},
	{"dhchap_groups", CONFIG_LIST, .min = 1, .max = CONFIG_MAX_AUTH_NAMES,
		.right = "a list of some of null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 and "
			 "ffdhe8192 is"},
	{0},
};

static const struct config_shape config_shape_subsys[] = {
	{"nqn", CONFIG_TEXT, .required = true, .max = 4096,
		.right = "a name such as nqn.2024-01.com.example:disks is"},
	{"serial", CONFIG_TEXT, .max = 4096, .right = "at most 20 ASCII characters are"},
	{"admin_label", CONFIG_TEXT, .max = 4096, .right = "a text of at most 256 bytes is"},
	{"max_io_queues", CONFIG_NUMBER, .right = "a number from 1 to 128 is"},
	{"duplicate_hosts", CONFIG_TEXT, .right = "allow or refuse is"},
	{"subsystem_reset", CONFIG_FLAG, .right = "true or false is"},
	{"allow", CONFIG_ALLOW},
	{"hosts", CONFIG_LIST, .max = HOST_LIST_MAX, .entry = config_shape_host,
		.right = "a list with 'nqn' and 'dhchap_key' each is"},
	{"ana", CONFIG_LIST, .max = ANA_MAX_GROUPS * (CATALOG_MAX_PORTS + 1),
		.entry = config_shape_ana, .right = "a list with 'group' and 'state' each is"},
	{"namespaces", CONFIG_LIST, .max = SUBSYS_MAX_NSID, .entry = config_shape_ns,
		.right = "a list with one of 'path', 'ram' and 'null' each is"},
	{0},
};

static const struct config_shape config_shape_referral[] = {
	{"address", CONFIG_TEXT, .required = true, .max = 4096,
		.right = "an address such as tcp://10.0.0.2:8009 is"},
	{"allow", CONFIG_ALLOW},
	{0},
};

static const struct config_shape config_shape_file[] = {
	{"listen", CONFIG_LIST, .required = true, .min = 1, .max = CATALOG_MAX_PORTS,
		.right = "a list of at most 64 addresses, such as "
			 "[tcp://0.0.0.0, rdma://10.0.0.1] is"},
	{"referrals", CONFIG_LIST, .max = CATALOG_MAX_REFERRALS, .entry = config_shape_referral,
		.or_text = true,
		.right = "a list of at most 64 addresses, such as [tcp://10.0.0.2:8009] is"},
	{"subsystems", CONFIG_LIST, .max = CATALOG_MAX_SUBSYSTEMS, .entry = config_shape_subsys,
		.right = "a list with 'nqn', 'allow' and 'namespaces' each is"},
	{"threads", CONFIG_NUMBER, .right = "a number from 1 to 64 is"},
	{"engine", CONFIG_TEXT, .right = "io_uring, epoll or auto is"},
	{"memory", CONFIG_TEXT, .right = "a size such as 512M is"},
	{"spin_us", CONFIG_NUMBER, .right = "a number from 0 to 1000000 is"},
	{"patience_s", CONFIG_NUMBER, .right = "a number from 1 to 3600 is"},
	{"kas_s", CONFIG_NUMBER, .right = "a number from 1 to 600 is"},
	{"cntlid_min", CONFIG_NUMBER, .right = "a number from 1 to 65519 is"},
	{"cntlid_max", CONFIG_NUMBER, .right = "a number from 1 to 65519 is"},
	{"discovery_nqn", CONFIG_TEXT, .max = 4096,
		.right = "a name such as nqn.2024-01.com.example:discovery is"},
	{"control", CONFIG_TEXT, .max = 4096, .right = "the path of a socket, or none, is"},
	{"state", CONFIG_TEXT, .max = 4096, .right = "the path of a directory, or none, is"},
	{0},
};

/* --- values ---------------------------------------------------------------------------------- */

static int config_shape_wrong(struct config_source *source, const char *path,
	const yaml_node_t *node, const char *what, const struct config_shape *shape)
{
	if (node->type == YAML_SCALAR_NODE && node->data.scalar.length)
		return config_source_wrong(source, path, "'%.*s' %s: %s right", CONFIG_VALUE_SHOWN,
			(const char *)node->data.scalar.value, what, shape->right);
	return config_source_wrong(source, path, "%s: %s right",
		node->type == YAML_SCALAR_NODE ? "is empty" : what, shape->right);
}

/* libcyaml would take what follows the digits for nothing, and a 0 in front for octal digits. */
static int config_shape_number(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shape)
{
	const char *text =
		node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
	size_t digits = strspn(text, "0123456789");

	if (!digits || digits != node->data.scalar.length)
		return config_shape_wrong(source, path, node, "is not a number", shape);
	if (text[0] == '0' && digits > 1)
		return config_shape_wrong(source, path, node, "has a 0 in front", shape);
	if (digits > 10 || strtoull(text, NULL, 10) > UINT32_MAX)
		return config_shape_wrong(source, path, node, "is too large", shape);
	return 0;
}

static int config_shape_text(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shape, size_t max)
{
	size_t length;

	if (node->type != YAML_SCALAR_NODE)
		return config_shape_wrong(source, path, node, "is not a plain value", shape);
	length = node->data.scalar.length;
	if (!length)
		return config_shape_wrong(source, path, node, "is empty", shape);
	if (strlen((const char *)node->data.scalar.value) != length)
		return config_shape_wrong(source, path, node, "has a zero byte", shape);
	return length <= max ? 0 : config_shape_wrong(source, path, node, "is too long", shape);
}

/* libcyaml takes any word it does not know for true. */
static int config_shape_flag(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shape)
{
	const char *text =
		node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";

	if (!strcmp(text, "true") || !strcmp(text, "false"))
		return 0;
	return config_shape_wrong(source, path, node, "is neither true nor false", shape);
}

/* --- lists and mappings ---------------------------------------------------------------------- */

static int config_shape_mapping(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shapes);

static int config_shape_list(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shape)
{
	const yaml_node_item_t *first, *top;
	int error = 0;

	if (node->type != YAML_SEQUENCE_NODE)
		return config_shape_wrong(source, path, node, "is not a list", shape);
	first = node->data.sequence.items.start;
	top = node->data.sequence.items.top;
	if (top - first < (ptrdiff_t)shape->min)
		return config_shape_wrong(source, path, node, "is empty", shape);
	if (top - first > (ptrdiff_t)shape->max)
		return config_shape_wrong(source, path, node, "is too long", shape);
	for (const yaml_node_item_t *item = first; item < top && !error; item++) {
		const yaml_node_t *entry = config_source_node(source, *item);
		char at[CONFIG_SHAPE_PATH];

		snprintf(at, sizeof(at), "%.*s.%u", CONFIG_PATH_BYTES, path,
			(unsigned)(item - first));
		if (!shape->entry || (shape->or_text && entry->type == YAML_SCALAR_NODE))
			error = config_shape_text(source, at, entry, shape, 4096);
		else if (entry->type != YAML_MAPPING_NODE)
			error = config_shape_wrong(
				source, at, entry, "is not a mapping of keys to values", shape);
		else
			error = config_shape_mapping(source, at, entry, shape->entry);
	}
	return error;
}

static int config_shape_value(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shape)
{
	switch (shape->kind) {
	case CONFIG_TEXT:
		return config_shape_text(source, path, node, shape, shape->max ? shape->max : 64);
	case CONFIG_NUMBER:
		return config_shape_number(source, path, node, shape);
	case CONFIG_FLAG:
		return config_shape_flag(source, path, node, shape);
	case CONFIG_LIST:
		return config_shape_list(source, path, node, shape);
	case CONFIG_ALLOW:
		break;
	}
	return 0;
}

static int config_shape_unknown(struct config_source *source, const char *path,
	const yaml_node_t *key, const struct config_shape *shapes)
{
	char known[256] = "";
	char what[sizeof(known) + 64];

	for (const struct config_shape *shape = shapes; shape->key; shape++) {
		size_t used = strlen(known);
		const char *before = shape == shapes ? "" : shape[1].key ? ", " : " and ";

		snprintf(known + used, sizeof(known) - used, "%s%s", before, shape->key);
	}
	snprintf(what, sizeof(what), "no such key here: %s are known", known);
	return config_source_wrong_key(source, key, path, what);
}

static int config_shape_twice(struct config_source *source, const char *path,
	const yaml_node_t *node, const yaml_node_pair_t *pair)
{
	const yaml_node_t *key = config_source_node(source, pair->key);
	char what[64];

	for (const yaml_node_pair_t *other = node->data.mapping.pairs.start; other < pair;
		other++) {
		const yaml_node_t *first = config_source_node(source, other->key);

		if (strcmp((const char *)first->data.scalar.value,
			    (const char *)key->data.scalar.value) != 0)
			continue;
		snprintf(what, sizeof(what), "is here twice (before in line %zu): keep one",
			first->start_mark.line + 1);
		return config_source_wrong_key(source, key, path, what);
	}
	return 0;
}

/* PATH is "" for the file. */
static int config_shape_mapping(struct config_source *source, const char *path,
	const yaml_node_t *node, const struct config_shape *shapes)
{
	const char *dot = path[0] ? "." : "";
	char at[CONFIG_SHAPE_PATH];
	const struct config_shape *shape;

	for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
		pair < node->data.mapping.pairs.top; pair++) {
		const yaml_node_t *key = config_source_node(source, pair->key);
		const char *name = (const char *)key->data.scalar.value;

		for (shape = shapes; shape->key && strcmp(shape->key, name) != 0;)
			shape++;
		snprintf(at, sizeof(at), "%.*s%s%.*s", CONFIG_PATH_BYTES, path, dot,
			CONFIG_KEY_SHOWN - 2, name);
		if (!shape->key)
			return config_shape_unknown(source, at, key, shapes);
		if (config_shape_twice(source, at, node, pair))
			return -EINVAL;
		if (config_shape_value(source, at, config_source_node(source, pair->value), shape))
			return -EINVAL;
	}
	for (shape = shapes; shape->key; shape++) {
		snprintf(at, sizeof(at), "%s%s%s", path, dot, shape->key);
		if (shape->required && !config_source_at(source, at))
			return config_source_wrong(
				source, at, "is missing: %s right", shape->right);
	}
	return 0;
}

int config_shape_check(struct config_source *source)
{
	const yaml_node_t *root = yaml_document_get_root_node(&source->document);

	if (root->type == YAML_MAPPING_NODE)
		return config_shape_mapping(source, "", root, config_shape_file);
	return config_source_wrong(
		source, "file", "is not a mapping of keys to values: see hauld.conf(5)");
}
