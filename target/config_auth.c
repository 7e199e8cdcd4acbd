/* SPDX-License-Identifier: MIT */
/*
 * What a schema cannot say of hosts that authenticate: that they are allowed, and their secrets.
 */
#include "target/config_auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"
#include "target/config_schema.h"
#include "target/config_source.h"
#include "target/config_text.h"
#include "target/host_auth.h"
#include "target/subsys.h"

#define CONFIG_AUTH_PATH (CONFIG_PATH_BYTES + 32)

static int config_auth_file(struct config_source *source, const char *path, const char *value,
	const char *directory, struct host_auth_key *key)
{
	char why[CONFIG_WHY_BYTES];
	char *file;
	int error;

	if (!directory)
		return 0;
	file = config_text_resolve(directory, value);
	if (!file)
		return -ENOMEM;
	error = host_auth_key_read(key, file, why, sizeof(why));
	free(file);
	/* Then it may be no name at all, but a secret that somebody has put there in another form.
	 */
	if (error == -ENOENT || error == -ENAMETOOLONG)
		return config_source_wrong(source, path,
			"is neither a secret, DHHC-1:..., nor the path of a file that is there");
	return error ? config_source_wrong(source, path, "%s %s", value, why) : 0;
}

/* A secret, or the file that has it. Nothing that may be a secret is told. */
static int config_auth_key(struct config_source *source, const char *path, const char *value,
	const char *directory, struct host_auth_key *key)
{
	const char *fault = NULL;

	if (!value)
		return 0;
	if (strncmp(value, "DHHC-", 5))
		return config_auth_file(source, path, value, directory, key);
	if (nvme_auth_secret_parse(value, strlen(value), &key->secret, &fault))
		return config_source_wrong(source, path, "%s", fault);
	return 0;
}

struct config_auth_names {
	char **names;
	unsigned nr;
	int (*find)(const char *name, uint8_t *ret);
	const char *known;
};

static int config_auth_set(struct config_source *source, const char *path,
	const struct config_auth_names *names, uint32_t *set)
{
	char at[CONFIG_AUTH_PATH + 16];
	uint8_t id;

	if (names->nr)
		*set = 0;
	for (unsigned i = 0; i < names->nr; i++) {
		snprintf(at, sizeof(at), "%s.%u", path, i);
		if (names->find(names->names[i], &id))
			return config_source_wrong(source, at, "'%s' is not known: %s are",
				names->names[i], names->known);
		*set |= 1u << id;
	}
	return 0;
}

static int config_auth_fill(struct config_source *source, const char *path,
	const struct config_host *from, const char *directory, struct host_auth *host)
{
	const struct config_auth_names hashes = {from->dhchap_hashes, from->dhchap_hashes_count,
		nvme_auth_hash_by_name, "sha256, sha384 and sha512"};
	const struct config_auth_names groups = {from->dhchap_groups, from->dhchap_groups_count,
		nvme_auth_group_by_name,
		"null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 and ffdhe8192"};
	char at[CONFIG_AUTH_PATH];
	int error;

	snprintf(at, sizeof(at), "%s.dhchap_key", path);
	error = config_auth_key(source, at, from->dhchap_key, directory, &host->host);
	snprintf(at, sizeof(at), "%s.dhchap_ctrl_key", path);
	if (!error)
		error = config_auth_key(source, at, from->dhchap_ctrl_key, directory, &host->ctrl);
	snprintf(at, sizeof(at), "%s.dhchap_hashes", path);
	if (!error)
		error = config_auth_set(source, at, &hashes, &host->hashes);
	snprintf(at, sizeof(at), "%s.dhchap_groups", path);
	if (!error)
		error = config_auth_set(source, at, &groups, &host->groups);
	return error;
}

static int config_auth_name(struct config_source *source, const char *path, const char *nqn,
	const struct subsys *subsys)
{
	char at[CONFIG_AUTH_PATH];
	const char *fault = NULL;

	snprintf(at, sizeof(at), "%s.nqn", path);
	if (nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_PEERS, &fault))
		return config_source_wrong(source, at, "'%s': %s", nqn, fault);
	if (subsys->allow_any)
		return config_source_wrong(source, at,
			"any host may use the subsystem under a name without a key: 'allow' must "
			"list those that may");
	if (!subsys_host_allowed(subsys, nqn))
		return config_source_wrong(
			source, at, "'%s' may not use the subsystem: 'allow' must have it", nqn);
	if (host_auth_find(&subsys->auth, nqn))
		return config_source_wrong(source, at, "'%s' is there twice", nqn);
	return 0;
}

/* What has been counted of that host. */
static void config_auth_take_over(
	const struct catalog *catalog, const struct subsys *subsys, struct host_auth *host)
{
	const struct subsys *then =
		catalog->previous ? catalog_find(catalog->previous, subsys->nqn) : NULL;
	const struct host_auth *before = then ? host_auth_find(&then->auth, host->nqn) : NULL;

	if (!before)
		return;
	host->nr_done = before->nr_done;
	host->nr_refused = before->nr_refused;
}

int config_auth_add(struct config_source *source, const struct config_file *config, unsigned i,
	const struct catalog *catalog, struct subsys *subsys, const char *directory)
{
	const struct config_subsys *from = &config->subsystems[i];
	char path[CONFIG_PATH_BYTES];
	struct host_auth *host;
	int error = 0;

	for (unsigned j = 0; j < from->hosts_count && !error; j++) {
		snprintf(path, sizeof(path), "subsystems.%u.hosts.%u", i, j);
		error = config_auth_name(source, path, from->hosts[j].nqn, subsys);
		if (error)
			return error;
		host = host_auth_create(from->hosts[j].nqn);
		if (!host)
			return -ENOMEM;
		error = config_auth_fill(source, path, &from->hosts[j], directory, host);
		config_auth_take_over(catalog, subsys, host);
		if (error)
			host_auth_put(host);
		else
			error = host_auth_list_add(&subsys->auth, host);
	}
	return error;
}
