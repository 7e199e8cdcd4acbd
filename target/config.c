/* SPDX-License-Identifier: MIT */
/*
 * hauld.conf: read by its schema, then checked, and made into settings and a catalog.
 */
#include "target/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/config_referral.h"
#include "target/config_schema.h"
#include "target/config_shape.h"
#include "target/config_source.h"
#include "target/config_subsys.h"
#include "target/config_text.h"
#include "target/size.h"
#include "target/target.h"

/* --- settings -------------------------------------------------------------------------------- */

static int config_discovery_nqn(
	struct config_source *source, const char *nqn, struct target_settings *settings)
{
	const char *fault = NULL;

	if (!nqn)
		return 0;
	if (nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_OURS, &fault))
		return config_source_wrong(source, "discovery_nqn", "'%s': %s", nqn, fault);
	/* Zeroes behind it: settings are compared as bytes. */
	memset(settings->discovery_nqn, 0, sizeof(settings->discovery_nqn));
	memcpy(settings->discovery_nqn, nqn, strlen(nqn));
	return 0;
}

/* Of the subsystem with that name. */
static int config_nqn_wrong(struct config_source *source, const struct config_file *config,
	const char *nqn, const char *why)
{
	char path[CONFIG_PATH_BYTES];
	unsigned i = 0;

	while (i + 1 < config->subsystems_count && strcmp(config->subsystems[i].nqn, nqn) != 0)
		i++;
	snprintf(path, sizeof(path), "subsystems.%u.nqn", i);
	return config_source_wrong(source, path, "'%s': %s", nqn, why);
}

/* That of the next start, and of hauld as it runs. */
static int config_discovery_nqn_is_free(struct config_source *source,
	const struct config_file *config, const struct target_settings *settings,
	const char *running, const struct catalog *catalog)
{
	if (config->discovery_nqn && catalog_find(catalog, settings->discovery_nqn))
		return config_source_wrong(
			source, "discovery_nqn", "a subsystem has this name, too");
	if (running && catalog_find(catalog, running))
		return config_nqn_wrong(source, config, running,
			"hauld's discovery service has this name until hauld is restarted");
	return 0;
}

static int config_cntlids(struct config_source *source, const struct config_file *config,
	struct target_settings *settings)
{
	bool has_min = config_source_at(source, "cntlid_min");
	bool has_max = config_source_at(source, "cntlid_max");
	uint32_t min = has_min ? config->cntlid_min : settings->cntlid_min;
	uint32_t max = has_max ? config->cntlid_max : settings->cntlid_max;

	if (min < 1 || max > NVME_CNTLID_MAX || max < min || max - min + 1 < TARGET_MIN_CNTLIDS)
		return config_source_wrong(source, has_max ? "cntlid_max" : "cntlid_min",
			"%u to %u is not a range within 1 to %u of at least %u numbers", min, max,
			NVME_CNTLID_MAX, TARGET_MIN_CNTLIDS);
	settings->cntlid_min = (uint16_t)min;
	settings->cntlid_max = (uint16_t)max;
	return 0;
}

static int config_kas(struct config_source *source, const struct config_file *config,
	struct target_settings *settings)
{
	if (!config_source_at(source, "kas_s"))
		return 0;
	if (config->kas_s < 1 || config->kas_s > TARGET_MAX_KAS_S)
		return config_source_wrong(source, "kas_s", "%u is not a number from 1 to %u",
			config->kas_s, TARGET_MAX_KAS_S);
	settings->kas_ms = config->kas_s * 1000;
	return 0;
}

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
	return config_cntlids(source, config, settings);
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

/* --- all of it ------------------------------------------------------------------------------- */

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
	const char *running, struct catalog *catalog, bool open, struct config_report *ret_report)
{
	struct config_source source;
	struct config_file *config = NULL;
	int error = config_source_load(&source, text->name, text->bytes, text->length);

	if (!error)
		error = config_shape_check(&source);
	if (!error)
		error = config_schema_read(&source, text, &config);
	if (!error)
		error = config_settings(&source, config, settings);
	if (!error)
		error = config_kas(&source, config, settings);
	if (!error)
		error = config_discovery_nqn(&source, config->discovery_nqn, settings);
	if (!error)
		error = config_listen(&source, config, catalog, open, ret_report);
	if (!error)
		error = config_referrals(&source, catalog);
	if (!error)
		error = config_count(&source, config);
	for (unsigned i = 0; !error && i < config->subsystems_count; i++)
		error = config_subsys_add(
			&source, config, i, catalog, open ? text->directory : NULL);
	if (!error)
		error = config_discovery_nqn_is_free(&source, config, settings, running, catalog);
	if (error && !source.mistake[0])
		snprintf(source.mistake, sizeof(source.mistake), "%s: %s", text->name,
			strerror(-error));
	memcpy(ret_report->mistake, source.mistake, sizeof(source.mistake));
	config_schema_free(config);
	config_source_free(&source);
	return error;
}

int config_load_text(const struct config_text *text, struct target_settings *settings,
	const char *running, struct catalog *catalog, struct config_report *ret_report)
{
	return config_use(text, settings, running, catalog, true, ret_report);
}

int config_check_text(const struct config_text *text, struct config_report *ret_report)
{
	struct target_settings settings = TARGET_SETTINGS_DEFAULT;
	struct catalog *catalog = catalog_create(NULL);
	int error =
		catalog ? config_use(text, &settings, NULL, catalog, false, ret_report) : -ENOMEM;

	catalog_free(catalog);
	return error;
}

int config_load(const char *file, struct target_settings *settings, struct catalog *catalog)
{
	struct config_report report = {0};
	struct config_text text = {0};
	int error = config_text_read(file, &text, report.mistake, sizeof(report.mistake));

	if (!error)
		error = config_load_text(&text, settings, NULL, catalog, &report);
	if (error)
		fprintf(stderr, "%s\n", report.mistake);
	config_text_free(&text);
	return error;
}

int config_check(const char *file)
{
	struct config_report report = {0};
	struct config_text text = {0};
	int error = config_text_read(file, &text, report.mistake, sizeof(report.mistake));

	if (!error)
		error = config_check_text(&text, &report);
	if (error)
		fprintf(stderr, "%s\n", report.mistake);
	else
		printf("%s is right\n", text.name);
	config_text_free(&text);
	return error;
}
