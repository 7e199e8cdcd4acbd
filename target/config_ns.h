/* SPDX-License-Identifier: MIT */
/*
 * A namespace of the configuration file: checked, then opened and added to the catalog.
 */
#ifndef HAUL_TARGET_CONFIG_NS_H
#define HAUL_TARGET_CONFIG_NS_H

#include "proto/base/compiler.h"

struct catalog;
struct config_file;
struct config_source;
struct subsys;

/* Namespace J of the file's subsystem I, after those before it, to SUBSYS. DIRECTORY: where its
 * path starts; NULL: it is checked only. */
int config_ns_add(struct config_source *source, struct config_file *file, unsigned i, unsigned j,
	struct catalog *catalog, struct subsys *subsys, const char *directory) must_check;

#endif
