/* SPDX-License-Identifier: MIT */
/*
 * A subsystem of the configuration file: checked, then added to the catalog with its hosts, ANA
 * groups and namespaces.
 */
#ifndef HAUL_TARGET_CONFIG_SUBSYS_H
#define HAUL_TARGET_CONFIG_SUBSYS_H

#include "proto/base/compiler.h"

struct catalog;
struct config_file;
struct config_source;

/* Subsystem I of the file, after those before it. The catalog has the file's listeners. DIRECTORY:
 * where paths of disks start; NULL: they are not opened. */
int config_subsys_add(struct config_source *source, struct config_file *file, unsigned i,
	struct catalog *catalog, const char *directory) must_check;

#endif
