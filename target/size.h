/* SPDX-License-Identifier: MIT */
/*
 * Sizes as people write them: of disks in memory, of the data buffers.
 */
#ifndef HAUL_TARGET_SIZE_H
#define HAUL_TARGET_SIZE_H

#include <stdint.h>

#include "proto/base/compiler.h"

/* "1G", "512M", "64k", "4096": binary units. -EINVAL; -ERANGE: 0 or beyond 2^62. */
int size_parse(const char *text, uint64_t *ret) must_check;

/* As size_parse() takes it, in the largest unit that says it exactly. */
#define SIZE_TEXT 32
void size_format(uint64_t size, char ret_text[SIZE_TEXT]);

#endif
