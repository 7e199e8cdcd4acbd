/* SPDX-License-Identifier: MIT */
/*
 * Whether a configuration file has the keys that there are, and at each the kind of value that
 * belongs there: told with line, path and what would be right.
 */
#ifndef HAUL_TARGET_CONFIG_SHAPE_H
#define HAUL_TARGET_CONFIG_SHAPE_H

#include "proto/base/compiler.h"

struct config_source;

/* What passes libcyaml reads without a word. On failure the mistake is the source's. */
int config_shape_check(struct config_source *source) must_check;

#endif
