/* SPDX-License-Identifier: MIT */
/*
 * hauld.conf: one schema for libcyaml, then the checks a schema cannot make, then the target.
 */
#include "target/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cyaml/cyaml.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/uri.h"
#include "target/backend_later.h"
#include "target/catalog.h"
#include "target/config_source.h"
#include "target/config_text.h"
#include "target/identity.h"
#include "target/port.h"
#include "target/size.h"
#include "target/subsys.h"
#include "target/target.h"

#define CONFIG_WHY_BYTES 512

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

struct config_subsys {
	char *nqn;
	char *serial;
	struct config_ana *ana;
	unsigned ana_count;
	struct config_ns *namespaces;
	unsigned namespaces_count;
};

struct config_file {
	char **listen;
	unsigned listen_count;
	char **referrals;
	unsigned referrals_count;
	struct config_subsys *subsystems;
	unsigned subsystems_count;
	uint32_t threads;
	char *engine;
	char *memory;
	char *control;
	char *state;
	uint32_t *spin_us;
	uint32_t patience_s;
};

static const cyaml_schema_value_t config_text = {
	CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 4096)};

static const cyaml_schema_field_t config_ns_fields[] = {
	CYAML_FIELD_STRING_PTR(
		"path", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, path, 1, 4096),
	CYAML_FIELD_STRING_PTR(
		"ram", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, ram, 1, 64),
	CYAML_FIELD_STRING_PTR(
		"null", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, null, 1, 64),
	CYAML_FIELD_STRING_PTR(
		"uuid", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, uuid, 1, 64),
	CYAML_FIELD_STRING_PTR(
		"nguid", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, nguid, 1, 64),
	CYAML_FIELD_STRING_PTR(
		"eui64", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_ns, eui64, 1, 64),
	CYAML_FIELD_UINT("nsid", CYAML_FLAG_OPTIONAL, struct config_ns, nsid),
	CYAML_FIELD_UINT("block", CYAML_FLAG_OPTIONAL, struct config_ns, block),
	CYAML_FIELD_UINT("ana_group", CYAML_FLAG_OPTIONAL, struct config_ns, ana_group),
	CYAML_FIELD_BOOL("readonly", CYAML_FLAG_OPTIONAL, struct config_ns, readonly),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_ns_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_ns, config_ns_fields)};

static const cyaml_schema_field_t config_ana_fields[] = {
	CYAML_FIELD_UINT("group", CYAML_FLAG_DEFAULT, struct config_ana, group),
	CYAML_FIELD_STRING_PTR("state", CYAML_FLAG_POINTER, struct config_ana, state, 1, 64),
	CYAML_FIELD_SEQUENCE("listeners", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_ana, listeners, &config_text, 1, CATALOG_MAX_PORTS),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_ana_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_ana, config_ana_fields)};

/* "allow" is a word or a list, which a schema cannot say: config_allow() reads it from the tree. */
static const cyaml_schema_field_t config_subsys_fields[] = {
	CYAML_FIELD_STRING_PTR("nqn", CYAML_FLAG_POINTER, struct config_subsys, nqn, 1, 4096),
	CYAML_FIELD_STRING_PTR("serial", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, serial, 1, 4096),
	CYAML_FIELD_IGNORE("allow", CYAML_FLAG_OPTIONAL),
	CYAML_FIELD_SEQUENCE("ana", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_subsys,
		ana, &config_ana_value, 0, ANA_MAX_GROUPS *(CATALOG_MAX_PORTS + 1)),
	CYAML_FIELD_SEQUENCE("namespaces", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, namespaces, &config_ns_value, 0, SUBSYS_MAX_NSID),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_subsys_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_subsys, config_subsys_fields)};

static const cyaml_schema_field_t config_fields[] = {
	CYAML_FIELD_SEQUENCE("listen", CYAML_FLAG_POINTER, struct config_file, listen, &config_text,
		1, CATALOG_MAX_PORTS),
	CYAML_FIELD_SEQUENCE("referrals", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, referrals, &config_text, 0, CATALOG_MAX_REFERRALS),
	CYAML_FIELD_SEQUENCE("subsystems", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, subsystems, &config_subsys_value, 0, CATALOG_MAX_SUBSYSTEMS),
	CYAML_FIELD_UINT("threads", CYAML_FLAG_OPTIONAL, struct config_file, threads),
	CYAML_FIELD_STRING_PTR("engine", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, engine, 1, 64),
	CYAML_FIELD_STRING_PTR("memory", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, memory, 1, 64),
	CYAML_FIELD_STRING_PTR("control", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, control, 1, 4096),
	CYAML_FIELD_STRING_PTR("state", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, state, 1, 4096),
	CYAML_FIELD_UINT_PTR(
		"spin_us", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_file, spin_us),
	CYAML_FIELD_UINT("patience_s", CYAML_FLAG_OPTIONAL, struct config_file, patience_s),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_file, config_fields)};

/* --- reading --------------------------------------------------------------------------------- */

static void config_cyaml_log(cyaml_log_t level, void *ctx, const char *format, va_list args)
{
	char text[512];

	(void)level;
	vsnprintf(text, sizeof(text), format, args);
	config_complaint_add(ctx, text);
}

static cyaml_config_t config_cyaml(struct config_complaint *complaint)
{
	return (cyaml_config_t){.log_fn = config_cyaml_log,
		.log_ctx = complaint,
		.mem_fn = cyaml_mem,
		.log_level = CYAML_LOG_ERROR};
}

static void config_free(struct config_file *config)
{
	struct config_complaint unused = {0};
	cyaml_config_t cyaml = config_cyaml(&unused);

	if (config)
		cyaml_free(&cyaml, &config_schema, config, 0);
}

static int config_read(
	struct config_source *source, const struct config_text *text, struct config_file **ret)
{
	struct config_complaint complaint = {0};
	cyaml_config_t cyaml = config_cyaml(&complaint);
	cyaml_err_t error = cyaml_load_data((const uint8_t *)text->bytes, text->length, &cyaml,
		&config_schema, (cyaml_data_t **)ret, NULL);

	if (error == CYAML_OK && *ret)
		return 0;
	if (!complaint.what[0])
		snprintf(complaint.what, sizeof(complaint.what), "%s", cyaml_strerror(error));
	config_source_complain(source, &complaint);
	return -EINVAL;
}

/* --- settings -------------------------------------------------------------------------------- */

static int config_settings(struct config_source *source, const struct config_file *config,
	struct target_settings *settings)
{
	if (config_source_at(source, "threads")) {
		if (config->threads < 1 || config->threads > TARGET_MAX_REACTORS)
			return config_source_wrong(source, "threads",
				"%u is not a number from 1 to %u", config->threads,
				TARGET_MAX_REACTORS);
		settings->nr_reactors = config->threads;
	}
	if (config->engine && loop_engine_parse(config->engine, &settings->engine))
		return config_source_wrong(source, "engine",
			"'%s' is not known: io_uring, epoll and auto are", config->engine);
	if (config->memory && size_parse(config->memory, &settings->memory_bytes))
		return config_source_wrong(
			source, "memory", "'%s' is not a size such as 512M", config->memory);
	if (config->control && strlen(config->control) >= sizeof(settings->control))
		return config_source_wrong(source, "control",
			"'%s' is too long: at most %zu bytes are possible", config->control,
			sizeof(settings->control) - 1);
	if (config->control)
		snprintf(settings->control, sizeof(settings->control), "%s", config->control);
	if (config->state && strlen(config->state) >= sizeof(settings->state))
		return config_source_wrong(source, "state",
			"it is too long: at most %zu bytes are possible",
			sizeof(settings->state) - 1);
	if (config->state)
		snprintf(settings->state, sizeof(settings->state), "%s", config->state);
	if (config->spin_us) {
		if (*config->spin_us > 1000000)
			return config_source_wrong(source, "spin_us",
				"%u is not a number from 0 to 1000000", *config->spin_us);
		settings->spin_ns = *config->spin_us * 1000ull;
	}
	if (config_source_at(source, "patience_s")) {
		if (config->patience_s < 1 || config->patience_s > TARGET_MAX_PATIENCE_S)
			return config_source_wrong(source, "patience_s",
				"%u is not a number from 1 to %u", config->patience_s,
				TARGET_MAX_PATIENCE_S);
		settings->patience_ns = config->patience_s * 1000000000ull;
	}
	return 0;
}

static int config_listen(struct config_source *source, const struct config_file *config,
	struct catalog *catalog, bool resolve, struct config_report *ret_report)
{
	char why[CONFIG_WHY_BYTES];
	char path[CONFIG_PATH_BYTES];

	for (unsigned i = 0; i < config->listen_count; i++) {
		struct nvme_uri uri;
		int error = nvme_uri_parse(
			config->listen[i], NVME_URI_LISTENER, &uri, why, sizeof(why));

		if (!error)
			error = catalog_add_port(catalog, &uri, resolve, why, sizeof(why));
		snprintf(path, sizeof(path), "listen.%u", i);
		ret_report->port_line[i] = config_source_line(source, path);
		if (error)
			return config_source_wrong(source, path, "%s: %s", config->listen[i], why);
	}
	return 0;
}

static int config_referrals(
	struct config_source *source, const struct config_file *config, struct catalog *catalog)
{
	char why[CONFIG_WHY_BYTES];
	char path[CONFIG_PATH_BYTES];

	for (unsigned i = 0; i < config->referrals_count; i++) {
		const char *text = config->referrals[i];
		struct nvme_uri uri;
		int error = nvme_uri_parse(text, 0, &uri, why, sizeof(why));

		if (!error)
			error = catalog_add_referral(catalog, &uri, why, sizeof(why));
		snprintf(path, sizeof(path), "referrals.%u", i);
		if (error)
			return config_source_wrong(source, path, "%s: %s", text, why);
	}
	return 0;
}

/* --- subsystems ------------------------------------------------------------------------------ */

static int config_allow_host(
	struct config_source *source, const char *path, yaml_node_t *node, struct subsys *subsys)
{
	const char *fault = NULL;
	const char *nqn;
	int error;

	if (node->type != YAML_SCALAR_NODE)
		return config_source_wrong(source, path,
			"is not the name of a host, such as nqn.2024-01.com.example:host");
	nqn = (const char *)node->data.scalar.value;
	if (!strcmp(nqn, "any"))
		return config_source_wrong(source, path,
			"would be a host of that name: for all hosts it is 'allow: any'");
	if (nvme_nqn_check(nqn, node->data.scalar.length, NVME_NQN_PEERS, &fault))
		return config_source_wrong(source, path, "'%s': %s", nqn, fault);
	error = subsys_allow_host(subsys, nqn);
	if (error)
		return config_source_wrong(source, path, "%s", strerror(-error));
	return 0;
}

static int config_allow(struct config_source *source, const char *path, struct subsys *subsys)
{
	yaml_node_t *node = config_source_at(source, path);

	if (!node) {
		subsys->allow_any = true;
		return 0;
	}
	if (node->type == YAML_SCALAR_NODE) {
		if (strcmp((const char *)node->data.scalar.value, "any"))
			return config_source_wrong(source, path,
				"'%s' is neither 'any' nor a list of host NQNs",
				(const char *)node->data.scalar.value);
		subsys->allow_any = true;
		return 0;
	}
	if (node->type != YAML_SEQUENCE_NODE)
		return config_source_wrong(
			source, path, "is neither 'any' nor a list of host NQNs");
	for (yaml_node_item_t *item = node->data.sequence.items.start;
		item < node->data.sequence.items.top; item++) {
		char at[CONFIG_PATH_BYTES + 16];
		int error;

		snprintf(at, sizeof(at), "%s.%u", path,
			(unsigned)(item - node->data.sequence.items.start));
		error = config_allow_host(source, at, config_source_node(source, *item), subsys);
		if (error)
			return error;
	}
	return 0;
}

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

/* libcyaml takes any word it does not know for true. */
static int config_bool_check(struct config_source *source, const char *path)
{
	yaml_node_t *node = config_source_at(source, path);
	const char *text =
		node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";

	if (!node || !strcmp(text, "true") || !strcmp(text, "false"))
		return 0;
	return config_source_wrong(source, path, "'%s' is neither true nor false", text);
}

/* "ram:1M" as on the command line: here it has a key of its own. */
static int config_path_check(struct config_source *source, const char *path, const char *value)
{
	static const char *const kinds[] = {"ram", "null"};
	char at[CONFIG_PATH_BYTES + 16];

	for (size_t i = 0; value && i < ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i]);

		if (strncmp(value, kinds[i], length) || value[length] != ':')
			continue;
		snprintf(at, sizeof(at), "%s.path", path);
		return config_source_wrong(source, at,
			"'%s' is no path: write '%s: %s' for a disk in memory, './%s' for a file "
			"of that name",
			value, kinds[i], value + length + 1, value);
	}
	return 0;
}

/* What of a namespace can be judged without opening it. SPEC: room for "ram:" and a size. */
static int config_ns_check(struct config_source *source, const char *path,
	const struct config_ns *config, struct ns_options *options, char *spec, size_t spec_size)
{
	int nr = !!config->path + !!config->ram + !!config->null;
	const char *size = config->ram ? config->ram : config->null;
	const char *kind = config->ram ? "ram" : "null";
	struct backend_geometry unused;
	char why[CONFIG_WHY_BYTES];
	char at[CONFIG_PATH_BYTES + 16];

	if (nr != 1)
		return config_source_wrong(source, path,
			"has %s of 'path', 'ram' and 'null': exactly one says what the disk is",
			nr ? "more than one" : "none");
	if (config_path_check(source, path, config->path))
		return -EINVAL;
	snprintf(at, sizeof(at), "%s.nsid", path);
	if (config_source_at(source, at) && !nsid_valid(config->nsid))
		return config_source_wrong(source, at, "%u is not a number from 1 to %u",
			config->nsid, SUBSYS_MAX_NSID);
	snprintf(at, sizeof(at), "%s.block", path);
	if (config_source_at(source, at) && config->block != 512 && config->block != 4096)
		return config_source_wrong(source, at, "%u is neither 512 nor 4096", config->block);
	snprintf(at, sizeof(at), "%s.%s", path, kind);
	if (size && backend_memory_geometry(
			    kind, size, config->readonly, config->block, &unused, why, sizeof(why)))
		return config_source_wrong(source, at, "%s", why);
	snprintf(at, sizeof(at), "%s.ana_group", path);
	if (config_source_at(source, at) && !ana_group_valid(config->ana_group))
		return config_source_wrong(source, at, "%u is not a number from 1 to %u",
			config->ana_group, ANA_MAX_GROUPS);
	snprintf(at, sizeof(at), "%s.readonly", path);
	if (config_bool_check(source, at))
		return -EINVAL;
	snprintf(spec, spec_size, "%s:%s", kind, size ? size : "");
	options->path = config->path ? config->path : spec;
	options->block_bytes = config->block;
	options->ana_group = config->ana_group;
	options->read_only = config->readonly;
	return 0;
}

static int config_uuid(
	struct config_source *source, const char *path, const char *text, struct nvme_uuid *ret)
{
	char at[CONFIG_PATH_BYTES + 16];

	snprintf(at, sizeof(at), "%s.uuid", path);
	if (nvme_uuid_parse(text, ret))
		return config_source_wrong(source, at,
			"'%s' is not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text);
	return 0;
}

struct config_ids {
	struct nvme_uuid uuid;
	uint8_t nguid[NS_NGUID_BYTES];
	uint8_t eui64[NS_EUI64_BYTES];
};

static int config_id(struct config_source *source, const char *path, const char *key,
	const char *text, uint8_t *ret, size_t size)
{
	char at[CONFIG_PATH_BYTES + 16];

	snprintf(at, sizeof(at), "%s.%s", path, key);
	if (identity_parse(text, ret, size))
		return config_source_wrong(source, at,
			"'%s' is not of %zu hexadecimal digits, one of them not 0", text, 2 * size);
	return 0;
}

static int config_ids(struct config_source *source, const char *path, const struct config_ns *ns,
	struct config_ids *ids, struct ns_options *options)
{
	int error = 0;

	options->uuid = ns->uuid ? &ids->uuid : NULL;
	options->nguid = ns->nguid ? ids->nguid : NULL;
	options->eui64 = ns->eui64 ? ids->eui64 : NULL;
	if (ns->uuid)
		error = config_uuid(source, path, ns->uuid, &ids->uuid);
	if (!error && ns->nguid)
		error = config_id(source, path, "nguid", ns->nguid, ids->nguid, sizeof(ids->nguid));
	if (!error && ns->eui64)
		error = config_id(source, path, "eui64", ns->eui64, ids->eui64, sizeof(ids->eui64));
	return error;
}

static bool config_same(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

/* In whatever case their digits are. */
static bool config_same_digits(const char *a, const char *b)
{
	return a && b && !strcasecmp(a, b);
}

/* A namespace without an id gets the lowest that those before it have left. */
static uint32_t config_nsid(const struct config_subsys *subsys, unsigned j)
{
	bool used[SUBSYS_MAX_NSID + 1] = {false};
	uint32_t nsid = 1;

	if (subsys->namespaces[j].nsid)
		return subsys->namespaces[j].nsid;
	for (unsigned k = 0; k < j; k++)
		used[subsys->namespaces[k].nsid] = true;
	while (used[nsid])
		nsid++;
	return nsid;
}

/* Twice the same id, uuid or path among namespaces, of whatever subsystem. */
static int config_ns_check_others(struct config_source *source, const struct config_file *config,
	unsigned i, unsigned j, const char *path)
{
	const struct config_ns *ns = &config->subsystems[i].namespaces[j];

	for (unsigned k = 0; k <= i; k++) {
		unsigned nr = k == i ? j : config->subsystems[k].namespaces_count;

		for (unsigned l = 0; l < nr; l++) {
			const struct config_ns *other = &config->subsystems[k].namespaces[l];
			char at[CONFIG_PATH_BYTES + 16];
			const char *what = NULL;

			if (k == i && ns->nsid == other->nsid)
				what = "nsid";
			if (config_same_digits(ns->uuid, other->uuid))
				what = "uuid";
			if (config_same_digits(ns->nguid, other->nguid))
				what = "nguid";
			if (config_same_digits(ns->eui64, other->eui64))
				what = "eui64";
			if (config_same(ns->path, other->path))
				what = "path";
			if (!what)
				continue;
			snprintf(at, sizeof(at), "%s.%s", path, what);
			return config_source_wrong(source, at,
				"is that of subsystems.%u.namespaces.%u, too: each needs its own",
				k, l);
		}
	}
	return 0;
}

/* DIRECTORY: where its path starts; NULL: it is not to be opened. */
static int config_ns(struct config_source *source, struct config_file *config, unsigned i,
	unsigned j, struct catalog *catalog, struct subsys *subsys, const char *directory)
{
	struct config_ns *ns = &config->subsystems[i].namespaces[j];
	struct ns_options options = {0};
	char why[CONFIG_WHY_BYTES] = "out of memory";
	char path[CONFIG_PATH_BYTES];
	char spec[80];
	struct config_ids ids;
	char *resolved = NULL;
	int error;

	snprintf(path, sizeof(path), "subsystems.%u.namespaces.%u", i, j);
	error = config_ns_check(source, path, ns, &options, spec, sizeof(spec));
	if (!error)
		error = config_ids(source, path, ns, &ids, &options);
	if (!error) {
		options.nsid = ns->nsid = config_nsid(&config->subsystems[i], j);
		error = config_ns_check_others(source, config, i, j, path);
	}
	if (error || !directory)
		return error;
	if (ns->path)
		options.path = resolved = config_text_resolve(directory, ns->path);
	error = options.path ? catalog_add_ns(catalog, subsys, &options, why, sizeof(why))
			     : -ENOMEM;
	if (error)
		config_source_wrong(source, path, "%s", why);
	free(resolved);
	return error;
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

static int config_subsys(struct config_source *source, struct config_file *config, unsigned i,
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
	snprintf(path, sizeof(path), "subsystems.%u.allow", i);
	if (!error)
		error = config_allow(source, path, subsys);
	for (unsigned j = 0; j < from->ana_count && !error; j++)
		error = config_ana(source, config, i, j, catalog, subsys);
	for (unsigned j = 0; j < from->namespaces_count && !error; j++)
		error = config_ns(source, config, i, j, catalog, subsys, directory);
	return error;
}

/* Before anything that takes its time for each pair of them. */
static int config_count(struct config_source *source, const struct config_file *config)
{
	uint64_t nr = 0;

	if (!config->subsystems_count)
		return config_source_wrong(source, "subsystems", "none: at least one is needed");
	for (unsigned i = 0; i < config->subsystems_count; i++)
		nr += config->subsystems[i].namespaces_count;
	if (nr > CATALOG_MAX_NAMESPACES)
		return config_source_wrong(source, "subsystems",
			"%llu namespaces: at most %u are possible", (unsigned long long)nr,
			CATALOG_MAX_NAMESPACES);
	return 0;
}

static int config_use(const struct config_text *text, struct target_settings *settings,
	struct catalog *catalog, bool open, struct config_report *ret_report)
{
	struct config_source source;
	struct config_file *config = NULL;
	int error = config_source_load(&source, text->name, text->bytes, text->length);

	if (!error)
		error = config_read(&source, text, &config);
	if (!error)
		error = config_settings(&source, config, settings);
	if (!error)
		error = config_listen(&source, config, catalog, open, ret_report);
	if (!error)
		error = config_referrals(&source, config, catalog);
	if (!error)
		error = config_count(&source, config);
	for (unsigned i = 0; !error && i < config->subsystems_count; i++)
		error = config_subsys(&source, config, i, catalog, open ? text->directory : NULL);
	if (error && !source.mistake[0])
		snprintf(source.mistake, sizeof(source.mistake), "%s: %s", text->name,
			strerror(-error));
	memcpy(ret_report->mistake, source.mistake, sizeof(source.mistake));
	config_free(config);
	config_source_free(&source);
	return error;
}

int config_load_text(const struct config_text *text, struct target_settings *settings,
	struct catalog *catalog, struct config_report *ret_report)
{
	return config_use(text, settings, catalog, true, ret_report);
}

static int config_use_file(
	const char *file, struct target_settings *settings, struct catalog *catalog, bool open)
{
	struct config_report report = {0};
	struct config_text text = {0};
	int error = config_text_read(file, &text, report.mistake, sizeof(report.mistake));

	if (!error)
		error = config_use(&text, settings, catalog, open, &report);
	if (error)
		fprintf(stderr, "%s\n", report.mistake);
	config_text_free(&text);
	return error;
}

int config_load(const char *file, struct target_settings *settings, struct catalog *catalog)
{
	return config_use_file(file, settings, catalog, true);
}

int config_check(const char *file)
{
	struct target_settings settings = TARGET_SETTINGS_DEFAULT;
	struct catalog *catalog = catalog_create(NULL);
	int error = catalog ? config_use_file(file, &settings, catalog, false) : -ENOMEM;

	catalog_free(catalog);
	if (!error)
		printf("%s is right\n", file);
	return error;
}
