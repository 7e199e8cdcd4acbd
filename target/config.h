/* SPDX-License-Identifier: MIT */
/*
 * The configuration file (hauld.conf(5)): YAML, one schema. Mistakes are told in one line,
 * "FILE:LINE: key: what is wrong and what would be right".
 */
#ifndef HAUL_TARGET_CONFIG_H
#define HAUL_TARGET_CONFIG_H

#include "proto/base/compiler.h"
#include "target/catalog.h"
#include "target/config_source.h"

struct config_text;
struct target_settings;

struct config_report {
	char mistake[CONFIG_MISTAKE_BYTES];
	unsigned port_line[CATALOG_MAX_PORTS]; /* of each of the catalog's, in its order */
};

/* Makes in CATALOG what TEXT describes, or takes it over from the catalog before, and opens its
 * disks. Changes those of SETTINGS that are in it. RUNNING: the name that the discovery service has
 * now, NULL: none runs. */
int config_load_text(const struct config_text *text, struct target_settings *settings,
	const char *running, struct catalog *catalog, struct config_report *ret_report) must_check;

/* The same for a file; a mistake is told on stderr. */
int config_load(
	const char *file, struct target_settings *settings, struct catalog *catalog) must_check;

/* Looks at TEXT without opening any disk or looking up any name. */
int config_check_text(const struct config_text *text, struct config_report *ret_report) must_check;
/* The same for a file; tells "FILE is right" on stdout, or the mistake on stderr. */
int config_check(const char *file) must_check;

#endif
