/* SPDX-License-Identifier: MIT */
/*
 * What differs between two catalogs, in lines for people: "+ namespace 3 of NQN: ...". It tells
 * what has been decided already, and decides nothing.
 */
#ifndef HAUL_TARGET_DIFF_H
#define HAUL_TARGET_DIFF_H

struct catalog;

struct diff {
	/* Once for each difference; TEXT begins with "+ ", "- " or "~ ". */
	void (*line)(struct diff *diff, const char *text);
};

/* AFTER has been made as the one that follows BEFORE. */
void diff_catalogs(struct diff *diff, const struct catalog *before, const struct catalog *after);

#endif
