/* SPDX-License-Identifier: MIT */
/*
 * A configuration file's text as a tree that knows its lines, so that every mistake can be told
 * with the line and the key it is at.
 */
#ifndef HAUL_TARGET_CONFIG_SOURCE_H
#define HAUL_TARGET_CONFIG_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include <yaml.h>

#include "proto/base/compiler.h"

#define CONFIG_PATH_BYTES 96

/* One line about a mistake. */
#define CONFIG_MISTAKE_BYTES 1536
/* The part of it that says why. */
#define CONFIG_WHY_BYTES     512

struct config_source {
	const char *file; /* its name, for mistakes */
	yaml_document_t document;
	bool loaded;
	char mistake[CONFIG_MISTAKE_BYTES]; /* the first one; empty: none yet */
};

/* Parses TEXT and checks what YAML itself demands, that it is one document, and that keys are
 * words, and not too many. */
int config_source_load(
	struct config_source *source, const char *name, const char *text, size_t length) must_check;
void config_source_free(struct config_source *source);

/* The value at a path such as "subsystems.0.nqn"; NULL: there is none. */
yaml_node_t *config_source_at(struct config_source *source, const char *path);
yaml_node_t *config_source_node(struct config_source *source, int id);

/* The line of PATH, or of what there is of it. */
unsigned config_source_line(struct config_source *source, const char *path);

/* Keeps "FILE:LINE: PATH: ..." as the mistake. Returns -EINVAL. */
int config_source_wrong(struct config_source *source, const char *path, const char *format, ...)
	printf_like(3, 4);

/* The same of a key, whose value may begin elsewhere. */
int config_source_wrong_key(
	struct config_source *source, const yaml_node_t *key, const char *path, const char *what);

#endif
