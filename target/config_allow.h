/* SPDX-License-Identifier: MIT */
/*
 * The key "allow" of the configuration file, of subsystems, namespaces and referrals: the word
 * "any", or a list of the NQNs of hosts.
 */
#ifndef HAUL_TARGET_CONFIG_ALLOW_H
#define HAUL_TARGET_CONFIG_ALLOW_H

#include "proto/base/compiler.h"

struct config_source;
struct host_list;
struct subsys;

/* Of the subsystem at PATH. */
int config_allow_subsys(
	struct config_source *source, const char *path, struct subsys *subsys) must_check;
/* Of the namespace of SUBSYS at PATH, or, with NULL, of a referral. *RET is NULL when all hosts see
 * it, else HOSTS, which is empty before and to be freed. */
int config_allow_hosts(struct config_source *source, const char *path, struct subsys *subsys,
	struct host_list *hosts, const struct host_list **ret) must_check;

#endif
