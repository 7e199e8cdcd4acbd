/* SPDX-License-Identifier: MIT */
/*
 * Sizes as people write them.
 */
#include "target/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_PARSE_MAX (1ull << 62)

int size_parse(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGTP";
	unsigned long long number;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (!number || number > SIZE_PARSE_MAX >> shift)
		return -ERANGE;
	*ret = number << shift;
	return 0;
}

void size_format(uint64_t size, char ret_text[SIZE_TEXT])
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P"};
	unsigned unit = 0;

	while (size && size % 1024 == 0 && unit + 1 < ARRAY_SIZE(units)) {
		size /= 1024;
		unit++;
	}
	snprintf(ret_text, SIZE_TEXT, "%" PRIu64 "%s", size, units[unit]);
}
