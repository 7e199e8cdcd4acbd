/* SPDX-License-Identifier: MIT */
/*
 * Counts live objects so that a test can see what a program left behind.
 * At exit one line goes to the file $SOFTRDMA_STATS; LeakSanitizer cannot tell, as the library
 * keeps pointers.
 */
#include "tests/softrdma/softrdma.h"

#include <stdio.h>
#include <stdlib.h>

static _Atomic long counts[SR_NR_KINDS];

static const char *const kind_names[SR_NR_KINDS] = {
	[SR_PD] = "pd",
	[SR_MR] = "mr",
	[SR_MW] = "mw",
	[SR_CHANNEL] = "comp_channel",
	[SR_CQ] = "cq",
	[SR_SRQ] = "srq",
	[SR_QP] = "qp",
	[SR_AH] = "ah",
	[SR_CM_ID] = "cm_id",
	[SR_CM_CHANNEL] = "cm_channel",
};

void sr_count(enum sr_kind kind, int delta)
{
	counts[kind] += delta;
}

long sr_counted(enum sr_kind kind)
{
	return counts[kind];
}

static __attribute__((destructor)) void stats_write(void)
{
	const char *path = getenv("SOFTRDMA_STATS");
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (!f)
		return;
	for (int i = 0; i < SR_NR_KINDS; i++)
		fprintf(f, "%s=%ld%c", kind_names[i], (long)counts[i],
			i + 1 < SR_NR_KINDS ? ' ' : '\n');
	fclose(f);
}
