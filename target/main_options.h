/* SPDX-License-Identifier: MIT */
/*
 * hauld's command line as settings and lists. What is wrong with it is told on stderr.
 */
#ifndef HAUL_TARGET_MAIN_OPTIONS_H
#define HAUL_TARGET_MAIN_OPTIONS_H

#include "proto/base/compiler.h"
#include "target/target.h"

#define MAIN_MAX_LIST 256

struct main_arguments {
	int argc;
	char **argv;
	struct target_settings settings;
	const char *config;
	const char *check;
	const char *listens[MAIN_MAX_LIST];
	unsigned nr_listens;
	const char *exports[MAIN_MAX_LIST];
	unsigned nr_exports;
	int last; /* the option before this one: words without a name go on with a list */
};

/* 0, 1: all is said (help, version), or -EINVAL. */
int main_parse(struct main_arguments *arguments) must_check;
/* Without the checks of the whole: the settings again, over those of a file. */
int main_parse_options(struct main_arguments *arguments) must_check;

#endif
