/* SPDX-License-Identifier: MIT */
/*
 * The schema of hauld.conf, for libcyaml.
 */
#include "target/config_schema.h"

#include <string.h>

#include <cyaml/cyaml.h>

#include "target/catalog.h"
#include "target/config_source.h"
#include "target/config_text.h"

static const cyaml_schema_value_t config_text = {
	CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 4096)};

/* "allow" is a word or a list, "referrals" has words or mappings, which a schema cannot say: they
 * are read from the tree (target/config_allow.h, target/config_referral.h). */
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
	CYAML_FIELD_IGNORE("allow", CYAML_FLAG_OPTIONAL),
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

static const cyaml_schema_field_t config_host_fields[] = {
	CYAML_FIELD_STRING_PTR("nqn", CYAML_FLAG_POINTER, struct config_host, nqn, 1, 4096),
	CYAML_FIELD_STRING_PTR(
		"dhchap_key", CYAML_FLAG_POINTER, struct config_host, dhchap_key, 1, 4096),
	CYAML_FIELD_STRING_PTR("dhchap_ctrl_key", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_host, dhchap_ctrl_key, 1, 4096),
	CYAML_FIELD_SEQUENCE("dhchap_hashes", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_host, dhchap_hashes, &config_text, 1, CONFIG_MAX_AUTH_NAMES),
	CYAML_FIELD_SEQUENCE("dhchap_groups", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_host, dhchap_groups, &config_text, 1, CONFIG_MAX_AUTH_NAMES),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_host_value = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_host, config_host_fields)};

static const cyaml_schema_field_t config_subsys_fields[] = {
	CYAML_FIELD_STRING_PTR("nqn", CYAML_FLAG_POINTER, struct config_subsys, nqn, 1, 4096),
	CYAML_FIELD_STRING_PTR("serial", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, serial, 1, 4096),
	CYAML_FIELD_STRING_PTR("admin_label", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, admin_label, 1, 4096),
	CYAML_FIELD_UINT("max_io_queues", CYAML_FLAG_OPTIONAL, struct config_subsys, max_io_queues),
	CYAML_FIELD_BOOL(
		"subsystem_reset", CYAML_FLAG_OPTIONAL, struct config_subsys, subsystem_reset),
	CYAML_FIELD_STRING_PTR("duplicate_hosts", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, duplicate_hosts, 1, 64),
	CYAML_FIELD_IGNORE("allow", CYAML_FLAG_OPTIONAL),
	CYAML_FIELD_SEQUENCE("hosts", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_subsys, hosts, &config_host_value, 0, HOST_LIST_MAX),
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
	CYAML_FIELD_IGNORE("referrals", CYAML_FLAG_OPTIONAL),
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
	CYAML_FIELD_UINT("kas_s", CYAML_FLAG_OPTIONAL, struct config_file, kas_s),
	CYAML_FIELD_STRING_PTR("discovery_nqn", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
		struct config_file, discovery_nqn, 1, 4096),
	CYAML_FIELD_UINT("cntlid_min", CYAML_FLAG_OPTIONAL, struct config_file, cntlid_min),
	CYAML_FIELD_UINT("cntlid_max", CYAML_FLAG_OPTIONAL, struct config_file, cntlid_max),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t config_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_file, config_fields)};

/* --- reading --------------------------------------------------------------------------------- */

static const cyaml_config_t config_cyaml = {
	.mem_fn = cyaml_mem,
	.log_level = CYAML_LOG_ERROR,
};

static void config_schema_wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
}

static void config_schema_wipe_secrets(struct config_subsys *subsys)
{
	for (unsigned i = 0; i < subsys->hosts_count; i++) {
		config_schema_wipe(subsys->hosts[i].dhchap_key);
		config_schema_wipe(subsys->hosts[i].dhchap_ctrl_key);
	}
}

void config_schema_free(struct config_file *config)
{
	for (unsigned i = 0; config && i < config->subsystems_count; i++)
		config_schema_wipe_secrets(&config->subsystems[i]);
	if (config)
		cyaml_free(&config_cyaml, &config_schema, config, 0);
}

int config_schema_read(
	struct config_source *source, const struct config_text *text, struct config_file **ret)
{
	cyaml_err_t error = cyaml_load_data((const uint8_t *)text->bytes, text->length,
		&config_cyaml, &config_schema, (cyaml_data_t **)ret, NULL);

	if (error == CYAML_OK && *ret)
		return 0;
	return config_source_wrong(source, "file", "cannot be read: %s", cyaml_strerror(error));
}
