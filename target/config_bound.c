/* SPDX-License-Identifier: MIT */
/*
 * Counts the nodes of a YAML text as its reader will see them.
 */
#include "target/config_bound.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <yaml.h>

/* The deepest value is that of a host or a namespace: 6. */
#define CONFIG_BOUND_DEPTH   16
#define CONFIG_BOUND_ANCHORS 64
#define CONFIG_BOUND_NAME    64
/* A list of hosts for each subsystem. */
#define CONFIG_BOUND_NODES   (1u << 20)

struct config_anchor {
	char name[CONFIG_BOUND_NAME];
	uint64_t nr_nodes; /* in it; at first those before it */
};

struct config_bound {
	uint64_t nr_nodes; /* so far, each alias with all that it stands for */
	uint32_t depth;
	uint32_t nr_anchors;
	struct config_anchor anchors[CONFIG_BOUND_ANCHORS];
	/* Of what is open; NULL: it has none. */
	struct config_anchor *open[CONFIG_BOUND_DEPTH];
};

static struct config_anchor *config_bound_find(struct config_bound *bound, const yaml_char_t *name)
{
	for (uint32_t i = 0; i < bound->nr_anchors; i++)
		if (!strcmp(bound->anchors[i].name, (const char *)name))
			return &bound->anchors[i];
	return NULL;
}

static const char *config_bound_anchor(
	struct config_bound *bound, const yaml_char_t *name, struct config_anchor **ret)
{
	*ret = NULL;
	if (!name)
		return NULL;
	if (strlen((const char *)name) >= CONFIG_BOUND_NAME)
		return "the name of the anchor is too long";
	*ret = config_bound_find(bound, name);
	if (!*ret && bound->nr_anchors == CONFIG_BOUND_ANCHORS)
		return "an anchor too many: 64 are possible";
	if (!*ret)
		*ret = &bound->anchors[bound->nr_anchors++];
	snprintf((*ret)->name, sizeof((*ret)->name), "%s", (const char *)name);
	(*ret)->nr_nodes = bound->nr_nodes;
	return NULL;
}

static const char *config_bound_open(struct config_bound *bound, const yaml_char_t *name)
{
	if (bound->depth == CONFIG_BOUND_DEPTH)
		return "too deep";
	bound->nr_nodes++;
	return config_bound_anchor(bound, name, &bound->open[bound->depth++]);
}

static void config_bound_close(struct config_bound *bound)
{
	struct config_anchor *anchor = bound->open[--bound->depth];

	if (anchor)
		anchor->nr_nodes = bound->nr_nodes - anchor->nr_nodes;
}

static const char *config_bound_scalar(struct config_bound *bound, const yaml_char_t *name)
{
	struct config_anchor *anchor;
	const char *why = config_bound_anchor(bound, name, &anchor);

	bound->nr_nodes++;
	if (anchor)
		anchor->nr_nodes = 1;
	return why;
}

static void config_bound_alias(struct config_bound *bound, const yaml_char_t *name)
{
	const struct config_anchor *anchor = config_bound_find(bound, name);

	bound->nr_nodes += anchor ? anchor->nr_nodes + 1 : 1;
}

static const char *config_bound_take(struct config_bound *bound, const yaml_event_t *event)
{
	const char *why = NULL;

	if (event->type == YAML_SEQUENCE_START_EVENT)
		why = config_bound_open(bound, event->data.sequence_start.anchor);
	else if (event->type == YAML_MAPPING_START_EVENT)
		why = config_bound_open(bound, event->data.mapping_start.anchor);
	else if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
		config_bound_close(bound);
	else if (event->type == YAML_SCALAR_EVENT)
		why = config_bound_scalar(bound, event->data.scalar.anchor);
	else if (event->type == YAML_ALIAS_EVENT)
		config_bound_alias(bound, event->data.alias.anchor);
	return bound->nr_nodes > CONFIG_BOUND_NODES ? "too large with all its aliases" : why;
}

int config_bound_check(const char *text, size_t length, size_t *ret_line, const char **ret_why)
{
	struct config_bound bound = {0};
	const char *why = NULL;
	yaml_parser_t parser;
	yaml_event_t event;
	bool over = false;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	while (!why && !over && yaml_parser_parse(&parser, &event)) {
		why = config_bound_take(&bound, &event);
		over = event.type == YAML_STREAM_END_EVENT;
		*ret_line = event.start_mark.line + 1;
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	*ret_why = why;
	return why ? -EINVAL : 0;
}
