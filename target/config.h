/* SPDX-License-Identifier: MIT */
/*
 * The configuration file (hauld.conf(5)): YAML, one schema. Mistakes are told on stderr as
 * "FILE:LINE: key: what is wrong and what would be right".
 */
#ifndef HAUL_TARGET_CONFIG_H
#define HAUL_TARGET_CONFIG_H

#include "proto/base/compiler.h"

struct catalog;
struct target_settings;

/* Makes in CATALOG what FILE describes and opens its disks. Changes those of SETTINGS that are in
 * the file. */
int config_load(
	const char *file, struct target_settings *settings, struct catalog *catalog) must_check;

/* Looks at FILE without opening any disk; tells "FILE is right" on stdout. */
int config_check(const char *file) must_check;

#endif
