/* SPDX-License-Identifier: MIT */
/*
 * Lines and mistakes of configuration files.
 */
#include "target/config_source.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/config_bound.h"

/* No mapping has as many that are known; each is compared with all others. */
#define CONFIG_MAX_KEYS 64

/* --- the tree -------------------------------------------------------------------------------- */

yaml_node_t *config_source_node(struct config_source *source, int id)
{
	return yaml_document_get_node(&source->document, id);
}

static const char *config_scalar(const yaml_node_t *node)
{
	return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
}

static unsigned config_line(const yaml_node_t *node)
{
	return node ? (unsigned)node->start_mark.line + 1 : 1;
}

/* One step down: an index of a list or a key of a mapping. */
static yaml_node_t *config_source_child(
	struct config_source *source, yaml_node_t *node, const char *name)
{
	if (node->type == YAML_SEQUENCE_NODE) {
		yaml_node_item_t *item = node->data.sequence.items.start + strtoul(name, NULL, 10);

		return item < node->data.sequence.items.top ? config_source_node(source, *item)
							    : NULL;
	}
	if (node->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
		pair < node->data.mapping.pairs.top; pair++)
		if (!strcmp(config_scalar(config_source_node(source, pair->key)), name))
			return config_source_node(source, pair->value);
	return NULL;
}

/* As far down PATH as there is something. */
static yaml_node_t *config_source_walk(
	struct config_source *source, const char *path, bool *ret_whole)
{
	yaml_node_t *node = yaml_document_get_root_node(&source->document);
	char copy[CONFIG_PATH_BYTES];
	char *rest = copy;
	char *name;

	snprintf(copy, sizeof(copy), "%s", path);
	*ret_whole = node != NULL;
	while (node && (name = strsep(&rest, "."))) {
		yaml_node_t *child = config_source_child(source, node, name);

		if (!child) {
			*ret_whole = false;
			break;
		}
		node = child;
	}
	return node;
}

yaml_node_t *config_source_at(struct config_source *source, const char *path)
{
	bool whole;
	yaml_node_t *node = config_source_walk(source, path, &whole);

	return whole ? node : NULL;
}

/* --- mistakes -------------------------------------------------------------------------------- */

static void config_source_tell(struct config_source *source, const char *format, ...)
	printf_like(2, 3);

/* The first one counts: those after it may be its consequences. */
static void config_source_tell(struct config_source *source, const char *format, ...)
{
	va_list args;

	if (source->mistake[0])
		return;
	va_start(args, format);
	vsnprintf(source->mistake, sizeof(source->mistake), format, args);
	va_end(args);
	/* A line it is, whatever bytes a quoted value may hold. */
	for (char *c = source->mistake; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

unsigned config_source_line(struct config_source *source, const char *path)
{
	bool whole;

	return config_line(config_source_walk(source, path, &whole));
}

int config_source_wrong(struct config_source *source, const char *path, const char *format, ...)
{
	char what[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	config_source_tell(source, "%s:%u: %s: %s", source->file, config_source_line(source, path),
		path, what);
	return -EINVAL;
}

static int config_source_check_twice(struct config_source *source, yaml_node_t *node)
{
	if (node->data.mapping.pairs.top - node->data.mapping.pairs.start > CONFIG_MAX_KEYS) {
		config_source_tell(source, "%s:%u: more keys than there are: see hauld.conf(5)",
			source->file, config_line(node));
		return -EINVAL;
	}
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
		pair < node->data.mapping.pairs.top; pair++) {
		yaml_node_t *key = config_source_node(source, pair->key);

		for (yaml_node_pair_t *other = node->data.mapping.pairs.start; other < pair;
			other++) {
			yaml_node_t *first = config_source_node(source, other->key);

			if (strcmp(config_scalar(first), config_scalar(key)))
				continue;
			config_source_tell(source,
				"%s:%u: %s: is here twice (before in line %u): keep one",
				source->file, config_line(key), config_scalar(key),
				config_line(first));
			return -EINVAL;
		}
	}
	return 0;
}

static int config_source_check(struct config_source *source)
{
	yaml_node_t *node;

	if (!yaml_document_get_root_node(&source->document)) {
		config_source_tell(source,
			"%s:1: the file is empty: 'listen:' and 'subsystems:' are needed",
			source->file);
		return -EINVAL;
	}
	for (int id = 1; (node = config_source_node(source, id)); id++)
		if (node->type == YAML_MAPPING_NODE && config_source_check_twice(source, node))
			return -EINVAL;
	return 0;
}

static int config_source_parse(struct config_source *source, const char *text, size_t length)
{
	yaml_parser_t parser;
	int error = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	if (!yaml_parser_load(&parser, &source->document)) {
		config_source_tell(source, "%s:%zu: not YAML: %s%s%s", source->file,
			parser.problem_mark.line + 1, parser.problem ? parser.problem : "?",
			parser.context ? " " : "", parser.context ? parser.context : "");
		error = -EINVAL;
	} else {
		source->loaded = true;
	}
	yaml_parser_delete(&parser);
	return error;
}

int config_source_load(
	struct config_source *source, const char *name, const char *text, size_t length)
{
	const char *why;
	size_t line;
	int error;

	*source = (struct config_source){.file = name};
	error = config_bound_check(text, length, &line, &why);
	if (error == -EINVAL)
		config_source_tell(source, "%s:%zu: %s", name, line, why);
	if (!error)
		error = config_source_parse(source, text, length);
	return error ? error : config_source_check(source);
}

void config_source_free(struct config_source *source)
{
	if (source->loaded)
		yaml_document_delete(&source->document);
	source->loaded = false;
}

/* --- what libcyaml says ---------------------------------------------------------------------- */

static void config_complaint_field(struct config_complaint *complaint, const char *text)
{
	char *name = complaint->nr_fields ? complaint->container : complaint->key;

	if (complaint->nr_fields < 2 && sscanf(text, " in mapping field '%63[^']'", name) == 1)
		complaint->nr_fields++;
}

void config_complaint_add(struct config_complaint *complaint, const char *text)
{
	const char *at = strstr(text, "(line: ");
	unsigned line = at ? (unsigned)strtoul(at + strlen("(line: "), NULL, 10) : 0;
	static const char prefix[] = "Load: ";

	if (!strncmp(text, prefix, sizeof(prefix) - 1)) {
		if (!complaint->what[0])
			snprintf(complaint->what, sizeof(complaint->what), "%.*s",
				(int)strcspn(text + sizeof(prefix) - 1, "\n"),
				text + sizeof(prefix) - 1);
		return;
	}
	if (!line)
		return;
	if (!complaint->line)
		complaint->line = line;
	if (!complaint->entry_line && strstr(text, "sequence entry"))
		complaint->entry_line = line;
	config_complaint_field(complaint, text);
}

struct config_hint {
	const char *key;
	const char *right;
};

static const struct config_hint config_hints[] = {
	{"listen", "a list of at most 64 addresses, such as [tcp://0.0.0.0, rdma://10.0.0.1] is"},
	{"referrals", "a list of at most 64 addresses, such as [tcp://10.0.0.2:8009] is"},
	{"threads", "a number from 1 to 64 is"},
	{"engine", "io_uring, epoll or auto is"},
	{"memory", "a size such as 512M is"},
	{"spin_us", "a number from 0 to 1000000 is"},
	{"patience_s", "a number from 1 to 3600 is"},
	{"discovery_nqn", "a name such as nqn.2024-01.com.example:discovery is"},
	{"cntlid_min", "a number from 1 to 65519 is"},
	{"cntlid_max", "a number from 1 to 65519 is"},
	{"control", "the path of a socket, or none, is"},
	{"state", "the path of a directory, or none, is"},
	{"subsystems", "a list with 'nqn', 'allow' and 'namespaces' each is"},
	{"nqn", "a name such as nqn.2024-01.com.example:disks is"},
	{"serial", "at most 20 ASCII characters are"},
	{"namespaces", "a list with one of 'path', 'ram' and 'null' each is"},
	{"allow", "'any' or a list of host NQNs is"},
	{"path", "the path of a file or a block device is"},
	{"ram", "a size such as 1G is"},
	{"null", "a size such as 1G is"},
	{"nguid", "32 hexadecimal digits are"},
	{"eui64", "16 hexadecimal digits are"},
	{"uuid", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, of hexadecimal digits, is"},
	{"nsid", "a number from 1 to 1024 is"},
	{"readonly", "true or false is"},
	{"block", "512 or 4096 is"},
};

static const char *config_hint(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(config_hints); i++)
		if (!strcmp(config_hints[i].key, key))
			return config_hints[i].right;
	return "see hauld.conf(5), another kind of value is";
}

static const char *config_known_keys(const char *container)
{
	if (!strcmp(container, "subsystems"))
		return "nqn, serial, allow, ana and namespaces";
	if (!strcmp(container, "ana"))
		return "group, state and listeners";
	if (!strcmp(container, "namespaces"))
		return "path, ram, null, nsid, uuid, nguid, eui64, ana_group, allow, readonly and block";
	return "listen, referrals, subsystems, threads, engine, memory, spin_us, patience_s, "
	       "cntlid_min, cntlid_max, discovery_nqn, control and state";
}

/* libcyaml's line is that of what comes before an unknown key: the first such key from there on. */
static unsigned config_line_of_key(struct config_source *source, const char *name, unsigned line)
{
	unsigned found = 0;
	yaml_node_t *node;

	for (int id = 1; (node = config_source_node(source, id)); id++) {
		if (node->type != YAML_MAPPING_NODE)
			continue;
		for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
			pair < node->data.mapping.pairs.top; pair++) {
			yaml_node_t *key = config_source_node(source, pair->key);

			if (!strcmp(config_scalar(key), name) && config_line(key) >= line &&
				(!found || config_line(key) < found))
				found = config_line(key);
		}
	}
	return found ? found : line;
}

/* libcyaml's words for a value, in those of who wrote it. */
static void config_say(const char *what, char *ret, size_t size)
{
	const char *value = strstr(what, "value: ");

	if (!strncmp(what, "Invalid ", strlen("Invalid ")) && value)
		snprintf(ret, size, "%s is not valid", value + strlen("value: "));
	else if (!strncmp(what, "Expecting SEQUENCE", strlen("Expecting SEQUENCE")))
		snprintf(ret, size, "is not a list");
	else if (!strncmp(what, "Expecting MAPPING", strlen("Expecting MAPPING")))
		snprintf(ret, size, "is not a mapping of keys to values");
	else if (!strncmp(what, "Expecting STRING", strlen("Expecting STRING")))
		snprintf(ret, size, "is not a plain value");
	else if (!strncmp(what, "Insufficient", strlen("Insufficient")) ||
		 !strncmp(what, "STRING length <", strlen("STRING length <")))
		snprintf(ret, size, "is empty");
	else if (!strncmp(what, "Excessive", strlen("Excessive")) ||
		 !strncmp(what, "STRING length >", strlen("STRING length >")))
		snprintf(ret, size, "is too long");
	else
		snprintf(ret, size, "%s", what[0] ? what : "not understood");
}

/* In a list entry it is one of 'subsystems': no other entry has a key that it must have. */
static void config_complain_missing(
	struct config_source *source, const struct config_complaint *complaint, const char *key)
{
	yaml_node_t *list = config_source_at(source, "subsystems");
	unsigned line = max_of(complaint->entry_line, 1u);
	char in[32] = "";

	if (complaint->entry_line && list && list->type == YAML_SEQUENCE_NODE)
		for (yaml_node_item_t *item = list->data.sequence.items.start;
			item < list->data.sequence.items.top; item++)
			if (config_line(config_source_node(source, *item)) == line)
				snprintf(in, sizeof(in), "subsystems.%u.",
					(unsigned)(item - list->data.sequence.items.start));
	config_source_tell(source, "%s:%u: %s%s: is missing: %s right", source->file, line, in, key,
		config_hint(key));
}

void config_source_complain(struct config_source *source, const struct config_complaint *complaint)
{
	static const char unexpected[] = "Unexpected key: ";
	static const char missing[] = "Missing required mapping field: ";
	const char *what = complaint->what;
	char said[sizeof(complaint->what) + 32];

	if (!strncmp(what, unexpected, sizeof(unexpected) - 1)) {
		const char *key = what + sizeof(unexpected) - 1;

		config_source_tell(source, "%s:%u: %s: no such key here: %s are known",
			source->file, config_line_of_key(source, key, max_of(complaint->line, 1u)),
			key, config_known_keys(complaint->key));
		return;
	}
	if (!strncmp(what, missing, sizeof(missing) - 1)) {
		config_complain_missing(source, complaint, what + sizeof(missing) - 1);
		return;
	}
	config_say(what, said, sizeof(said));
	config_source_tell(source, "%s:%u: %s: %s: %s right", source->file,
		max_of(complaint->line, 1u), complaint->key[0] ? complaint->key : "file", said,
		config_hint(complaint->key));
}
