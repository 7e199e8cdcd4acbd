/* SPDX-License-Identifier: MIT */
/*
 * Compares our sizes, offsets and values with libnvme's, line by line.
 */
#include <stdio.h>

#include "tests/unit/nvme/layout.h"

#define EXIT_SKIP 77

int main(void)
{
	int differences = 0;

	if (layout_nr_libnvme == 0) {
		printf("skipped: libnvme's headers (Debian: libnvme-dev) are not installed\n");
		return EXIT_SKIP;
	}
	if (layout_nr_libnvme != layout_nr_ours)
		return 1;
	for (size_t i = 0; i < layout_nr_ours; i++) {
		const struct layout_item *ours = &layout_ours[i], *theirs = &layout_libnvme[i];

		if (ours->value == theirs->value)
			continue;
		printf("%s: %llu, %s: %llu\n", ours->name, ours->value, theirs->name,
			theirs->value);
		differences++;
	}
	printf("%zu compared, %d differ\n", layout_nr_ours, differences);
	return differences ? 1 : 0;
}
