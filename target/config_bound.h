/* SPDX-License-Identifier: MIT */
/*
 * Bounds of a YAML text, looked at before it is made a tree: how deep it is, and how large its
 * aliases make it. Either could take hours and all memory in a few kilobytes of text.
 */
#ifndef HAUL_TARGET_CONFIG_BOUND_H
#define HAUL_TARGET_CONFIG_BOUND_H

#include <stddef.h>

#include "proto/base/compiler.h"

/* -EINVAL: RET_LINE is where it goes too far, WHY says how. What is not YAML is not told here. */
int config_bound_check(
	const char *text, size_t length, size_t *ret_line, const char **ret_why) must_check;

#endif
