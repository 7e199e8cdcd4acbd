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

/* Namespace NS_INDEX of the file's subsystem SUBSYS_INDEX, which is to be one of SUBSYS. */
struct config_ns_place {
	struct config_file *file;
	unsigned subsys_index, ns_index;
	struct catalog *catalog;
	struct subsys *subsys;
	const char *directory; /* where its path starts; NULL: it is checked only */
};

/* Namespaces are added in the order of the file. */
int config_ns_add(struct config_source *source, const struct config_ns_place *place) must_check;

#endif
