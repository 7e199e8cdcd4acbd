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

/* No mapping has as many that are known; each will be compared with all others. */
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

int config_source_wrong_key(
	struct config_source *source, const yaml_node_t *key, const char *path, const char *what)
{
	config_source_tell(source, "%s:%u: %s: %s", source->file, config_line(key), path, what);
	return -EINVAL;
}

static int config_source_check_keys(struct config_source *source, yaml_node_t *node)
{
	if (node->data.mapping.pairs.top - node->data.mapping.pairs.start > CONFIG_MAX_KEYS) {
		config_source_tell(source, "%s:%u: more keys than there are: see hauld.conf(5)",
			source->file, config_line(node));
		return -EINVAL;
	}
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
		pair < node->data.mapping.pairs.top; pair++) {
		yaml_node_t *key = config_source_node(source, pair->key);

		if (key->type != YAML_SCALAR_NODE) {
			config_source_tell(source,
				"%s:%u: a list or a mapping as a key: keys are words", source->file,
				config_line(key));
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
		if (node->type == YAML_MAPPING_NODE && config_source_check_keys(source, node))
			return -EINVAL;
	return 0;
}

static int config_source_not_yaml(struct config_source *source, const yaml_parser_t *parser)
{
	config_source_tell(source, "%s:%zu: not YAML: %s%s%s", source->file,
		parser->problem_mark.line + 1, parser->problem ? parser->problem : "?",
		parser->context ? " " : "", parser->context ? parser->context : "");
	return -EINVAL;
}

static int config_source_is_all(struct config_source *source, yaml_parser_t *parser)
{
	yaml_document_t next;
	int error = 0;

	if (!yaml_parser_load(parser, &next))
		return config_source_not_yaml(source, parser);
	if (yaml_document_get_root_node(&next)) {
		config_source_tell(source,
			"%s:%zu: a second YAML document begins here: one is all there can be",
			source->file, next.start_mark.line + 1);
		error = -EINVAL;
	}
	yaml_document_delete(&next);
	return error;
}

static int config_source_parse(struct config_source *source, const char *text, size_t length)
{
	yaml_parser_t parser;
	int error = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	if (!yaml_parser_load(&parser, &source->document)) {
		error = config_source_not_yaml(source, &parser);
	} else {
		source->loaded = true;
		if (yaml_document_get_root_node(&source->document))
			error = config_source_is_all(source, &parser);
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

/* What may be a secret. */
static void config_source_wipe(yaml_document_t *document)
{
	for (yaml_node_t *node = document->nodes.start; node < document->nodes.top; node++)
		if (node->type == YAML_SCALAR_NODE && node->data.scalar.length >= 5 &&
			!memcmp(node->data.scalar.value, "DHHC-", 5))
			explicit_bzero(node->data.scalar.value, node->data.scalar.length);
}

void config_source_free(struct config_source *source)
{
	if (source->loaded)
		config_source_wipe(&source->document);
	if (source->loaded)
		yaml_document_delete(&source->document);
	source->loaded = false;
}
