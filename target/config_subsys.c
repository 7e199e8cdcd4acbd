/* SPDX-License-Identifier: MIT */
/*
 * What a schema cannot say of a subsystem: names, hosts, the states of ANA groups.
 */
#include "target/config_subsys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/config_allow.h"
#include "target/config_auth.h"
#include "target/config_ns.h"
#include "target/config_schema.h"
#include "target/config_source.h"
#include "target/port.h"
#include "target/subsys.h"

/* --- plain values
 * ----------------------------------------------------------------------------------- */

static int config_serial(
	struct config_source *source, const char *path, const char *serial, struct subsys *subsys)
{
	char field[SUBSYS_SERIAL_MAX];

	if (!serial)
		return 0;
	if (nvme_field_set(field, sizeof(field), serial))
		return config_source_wrong(source, path,
			"'%s' is not of at most %u printable ASCII characters", serial,
			SUBSYS_SERIAL_MAX);
	snprintf(subsys->serial, sizeof(subsys->serial), "%s", serial);
	return 0;
}

static int config_io_queues(
	struct config_source *source, const char *path, uint32_t nr, struct subsys *subsys)
{
	if (!config_source_at(source, path))
		return 0;
	if (nr < 1 || nr > SUBSYS_MAX_IO_QUEUES)
		return config_source_wrong(
			source, path, "%u is not a number from 1 to %u", nr, SUBSYS_MAX_IO_QUEUES);
	subsys->max_io_queues = nr;
	return 0;
}

static int config_label(
	struct config_source *source, const char *path, const char *label, struct subsys *subsys)
{
	size_t length = label ? strlen(label) : 0;
	uint32_t code;

	if (length > SUBSYS_LABEL_MAX)
		return config_source_wrong(source, path, "is of %zu bytes: at most %u are possible",
			length, SUBSYS_LABEL_MAX);
	for (size_t at = 0, n; at < length; at += n) {
		n = nvme_utf8_next(label + at, length - at, &code);
		if (!n || code < 0x20 || (code >= 0x7f && code < 0xa0))
			return config_source_wrong(
				source, path, "is not UTF-8 without control characters");
	}
	if (label)
		memcpy(subsys->admin_label, label, length + 1);
	return 0;
}

static int config_duplicate_hosts(
	struct config_source *source, const char *path, const char *word, struct subsys *subsys)
{
	subsys->one_association = word && !strcmp(word, "refuse");
	if (!word || subsys->one_association || !strcmp(word, "allow"))
		return 0;
	return config_source_wrong(source, path, "'%s' is not known: allow and refuse are", word);
}

/* --- ANA groups ------------------------------------------------------------------------------ */

static int config_ana_twice(struct config_source *source, const char *path, uint32_t group)
{
	return config_source_wrong(
		source, path, "group %u has a state there already: give each one state", group);
}

/* At each listener that is described by that; of port 0 there may be several. */
static int config_ana_listener(struct config_source *source, const char *path,
	const struct config_file *config, const struct config_ana *ana, enum nvme_ana_state state,
	unsigned which, const struct catalog *catalog, struct subsys *subsys)
{
	const char *text = ana->listeners[which];
	char why[CONFIG_WHY_BYTES];
	char at[CONFIG_PATH_BYTES + 24];
	struct nvme_uri uri, other;
	bool found = false;

	snprintf(at, sizeof(at), "%s.listeners.%u", path, which);
	if (nvme_uri_parse(text, NVME_URI_LISTENER, &uri, why, sizeof(why)))
		return config_source_wrong(source, at, "%s: %s", text, why);
	for (unsigned i = 0; i < config->listen_count; i++) {
		uint16_t portid = catalog->port[i]->portid;

		if (nvme_uri_parse(
			    config->listen[i], NVME_URI_LISTENER, &other, why, sizeof(why)) ||
			uri.trtype != other.trtype || uri.port != other.port ||
			strcmp(uri.host, other.host))
			continue;
		found = true;
		if (ana_is_set(subsys, ana->group, portid))
			return config_ana_twice(source, at, ana->group);
		if (ana_set(subsys, ana->group, portid, state))
			return -ENOMEM;
	}
	return found ? 0
		     : config_source_wrong(source, at, "%s is none of those to listen at", text);
}

static int config_ana(struct config_source *source, const struct config_file *config, unsigned i,
	unsigned j, const struct catalog *catalog, struct subsys *subsys)
{
	const struct config_ana *ana = &config->subsystems[i].ana[j];
	char path[CONFIG_PATH_BYTES];
	char at[CONFIG_PATH_BYTES + 16];
	enum nvme_ana_state state;
	int error = 0;

	snprintf(path, sizeof(path), "subsystems.%u.ana.%u", i, j);
	snprintf(at, sizeof(at), "%s.group", path);
	if (!ana_group_valid(ana->group))
		return config_source_wrong(
			source, at, "%u is not a number from 1 to %u", ana->group, ANA_MAX_GROUPS);
	snprintf(at, sizeof(at), "%s.state", path);
	if (!ana_state_parse(ana->state, &state))
		return config_source_wrong(
			source, at, "'%s' is not known: " ANA_STATE_NAMES " are", ana->state);
	if (!ana->listeners_count && ana_is_set(subsys, ana->group, ANA_OTHER_PORTS))
		return config_ana_twice(source, path, ana->group);
	if (!ana->listeners_count)
		error = ana_set(subsys, ana->group, ANA_OTHER_PORTS, state);
	for (unsigned k = 0; k < ana->listeners_count && !error; k++)
		error = config_ana_listener(source, path, config, ana, state, k, catalog, subsys);
	return error;
}

/* --- all of it ------------------------------------------------------------------------------- */

int config_subsys_add(struct config_source *source, struct config_file *config, unsigned i,
	struct catalog *catalog, const char *directory)
{
	const struct config_subsys *from = &config->subsystems[i];
	char path[CONFIG_PATH_BYTES];
	const char *fault = NULL;
	struct subsys *subsys;
	int error;

	snprintf(path, sizeof(path), "subsystems.%u.nqn", i);
	if (nvme_nqn_check(from->nqn, strlen(from->nqn), NVME_NQN_OURS, &fault))
		return config_source_wrong(source, path, "'%s': %s", from->nqn, fault);
	error = catalog_add_subsys(catalog, from->nqn, &subsys);
	if (error)
		return config_source_wrong(source, path, "'%s' %s", from->nqn,
			error == -EEXIST ? "is taken: each subsystem needs a name of its own"
					 : strerror(-error));
	snprintf(path, sizeof(path), "subsystems.%u.serial", i);
	error = config_serial(source, path, from->serial, subsys);
	snprintf(path, sizeof(path), "subsystems.%u.admin_label", i);
	if (!error)
		error = config_label(source, path, from->admin_label, subsys);
	snprintf(path, sizeof(path), "subsystems.%u.max_io_queues", i);
	if (!error)
		error = config_io_queues(source, path, from->max_io_queues, subsys);
	snprintf(path, sizeof(path), "subsystems.%u.duplicate_hosts", i);
	if (!error)
		error = config_duplicate_hosts(source, path, from->duplicate_hosts, subsys);
	subsys->reset_offered = from->subsystem_reset;
	snprintf(path, sizeof(path), "subsystems.%u", i);
	if (!error)
		error = config_allow_subsys(source, path, subsys);
	if (!error)
		error = config_auth_add(source, config, i, catalog, subsys, directory);
	for (unsigned j = 0; j < from->ana_count && !error; j++)
		error = config_ana(source, config, i, j, catalog, subsys);
	for (unsigned j = 0; j < from->namespaces_count && !error; j++) {
		const struct config_ns_place place = {config, i, j, catalog, subsys, directory};

		error = config_ns_add(source, &place);
	}
	return error;
}
