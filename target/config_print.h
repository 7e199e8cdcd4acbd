/* SPDX-License-Identifier: MIT */
/*
 * What runs as a configuration file (hauld.conf(5)) that makes the same of an empty target, and
 * changes nothing of this one. Each key that a file may have has its place here, too.
 */
#ifndef HAUL_TARGET_CONFIG_PRINT_H
#define HAUL_TARGET_CONFIG_PRINT_H

#include <stddef.h>

#include "proto/base/compiler.h"

struct catalog;
struct target_settings;

/* The text, allocated. On failure WHY has a line for the user: -ENOMEM, or -EILSEQ for a path that
 * no YAML can hold. */
int config_print(const struct target_settings *settings, const struct catalog *catalog, char **ret,
	char *why, size_t why_size) must_check;

#endif
