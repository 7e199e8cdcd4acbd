/* SPDX-License-Identifier: MIT */
/*
 * The configuration file (hauld.conf(5)): YAML, one schema. Mistakes are told on stderr as
 * "FILE:LINE: key: what is wrong and what would be right".
 */
#ifndef HAUL_TARGET_CONFIG_H
#define HAUL_TARGET_CONFIG_H

#include "proto/base/compiler.h"

struct target;

/* Makes in TARGET what FILE describes and opens its disks. Changes those of TARGET's settings that
 * are in the file. */
int config_load(struct target *target, const char *file) must_check;

/* Looks at FILE without opening any disk; tells "FILE is right" on stdout. */
int config_check(const char *file) must_check;

#endif
