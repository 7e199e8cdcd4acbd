/* SPDX-License-Identifier: MIT */
/*
 * The key "hosts" of a subsystem in the configuration file: hosts that authenticate.
 */
#ifndef HAUL_TARGET_CONFIG_AUTH_H
#define HAUL_TARGET_CONFIG_AUTH_H

#include "proto/base/compiler.h"

struct catalog;
struct config_file;
struct config_source;
struct subsys;

/* Those of subsystem I, SUBSYS, which knows already whom it allows. DIRECTORY: where paths of
 * secrets start; NULL: the files are not opened, and the entries have no secrets. */
int config_auth_add(struct config_source *source, const struct config_file *file, unsigned i,
	const struct catalog *catalog, struct subsys *subsys, const char *directory) must_check;

#endif
