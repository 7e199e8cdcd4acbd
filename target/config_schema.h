/* SPDX-License-Identifier: MIT */
/*
 * What may stand in a configuration file, and of which type: the schema for libcyaml, and what it
 * reads a file into. Whether the values make sense is for others to say.
 */
#ifndef HAUL_TARGET_CONFIG_SCHEMA_H
#define HAUL_TARGET_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"

struct config_source;
struct config_text;

struct config_ns {
	char *path;
	char *ram;
	char *null;
	char *uuid;
	char *nguid;
	char *eui64;
	uint32_t nsid;
	uint32_t block;
	uint32_t ana_group;
	bool readonly;
};

struct config_ana {
	uint32_t group;
	char *state;
	char **listeners;
	unsigned listeners_count;
};

/* More than there are. */
#define CONFIG_MAX_AUTH_NAMES 16

struct config_host {
	char *nqn;
	char *dhchap_key;
	char *dhchap_ctrl_key;
	char **dhchap_hashes;
	unsigned dhchap_hashes_count;
	char **dhchap_groups;
	unsigned dhchap_groups_count;
};

struct config_subsys {
	char *nqn;
	char *serial;
	char *admin_label;
	uint32_t max_io_queues;
	char *duplicate_hosts;
	bool subsystem_reset;
	struct config_host *hosts;
	unsigned hosts_count;
	struct config_ana *ana;
	unsigned ana_count;
	struct config_ns *namespaces;
	unsigned namespaces_count;
};

struct config_file {
	char **listen;
	unsigned listen_count;
	struct config_subsys *subsystems;
	unsigned subsystems_count;
	uint32_t threads;
	char *engine;
	char *memory;
	char *control;
	char *state;
	uint32_t *spin_us;
	uint32_t patience_s;
	uint32_t kas_s;
	char *discovery_nqn;
	uint32_t cntlid_min;
	uint32_t cntlid_max;
};

/* On failure the mistake is the source's, and there is nothing to free. */
int config_schema_read(struct config_source *source, const struct config_text *text,
	struct config_file **ret) must_check;
/* Secrets are wiped. */
void config_schema_free(struct config_file *file);

#endif
