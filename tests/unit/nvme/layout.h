/* SPDX-License-Identifier: MIT */
/*
 * The list of layout.inc as numbers, once by our headers and once by libnvme's. Two files, as the
 * names of both clash.
 */
#ifndef HAUL_TESTS_UNIT_NVME_LAYOUT_H
#define HAUL_TESTS_UNIT_NVME_LAYOUT_H

#include <stddef.h>

struct layout_item {
	const char *name;
	unsigned long long value;
};

extern const struct layout_item layout_ours[];
extern const size_t layout_nr_ours;
extern const struct layout_item layout_libnvme[];
extern const size_t layout_nr_libnvme; /* 0: libnvme's headers are not installed */

#endif
