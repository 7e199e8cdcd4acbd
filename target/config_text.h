/* SPDX-License-Identifier: MIT */
/*
 * A configuration file as text: read by hauld, or by haulctl, which sends it.
 */
#ifndef HAUL_TARGET_CONFIG_TEXT_H
#define HAUL_TARGET_CONFIG_TEXT_H

#include <stddef.h>

#include "proto/base/compiler.h"

/* A line for each namespace that is possible, and as much again for comments. */
#define CONFIG_TEXT_MAX (2u << 20)

struct config_text {
	const char *name; /* what mistakes call it; not owned */
	char *directory;  /* absolute: where relative paths of disks start */
	char *bytes;	  /* LENGTH of them, and a 0 */
	size_t length;
};

/* FILE, or standard input for "-", whose paths start in the working directory. On failure there is
 * nothing to free and WHY has a line for the user: -EINVAL, -ENOMEM. */
int config_text_read(
	const char *file, struct config_text *ret, char *why, size_t why_size) must_check;
void config_text_free(struct config_text *text);

/* PATH as seen from DIRECTORY, NULL: the working directory; allocated. NULL: no memory. */
char *config_text_resolve(const char *directory, const char *path);

#endif
