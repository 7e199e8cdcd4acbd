/* SPDX-License-Identifier: MIT */
/*
 * haul discover: what a discovery service offers, and those that it refers to.
 */
#include "initiator/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/uri.h"
#include "initiator/discovery.h"
#include "initiator/referral.h"

/* Its connect; an option in the address counts more. */
#define DISCOVER_REFERRAL_MS 3000

static const char *const discover_subtypes[] = {[NVME_SUBTYPE_REFERRAL] = "referral",
	[NVME_SUBTYPE_NVM] = "subsystem",
	[NVME_SUBTYPE_CURRENT_DISCOVERY] = "discovery"};

static const char *const discover_families[] = {[NVME_ADRFAM_IPV4] = "ipv4",
	[NVME_ADRFAM_IPV6] = "ipv6",
	[NVME_ADRFAM_IB] = "ib",
	[NVME_ADRFAM_FC] = "fc"};

static const char *discover_name(const char *const names[], size_t nr, uint8_t number)
{
	return number < nr && names[number] ? names[number] : "unknown";
}

static const char *discover_subtype(uint8_t subtype)
{
	return discover_name(discover_subtypes, ARRAY_SIZE(discover_subtypes), subtype);
}

static const char *discover_family(uint8_t family)
{
	return discover_name(discover_families, ARRAY_SIZE(discover_families), family);
}

/* What haul id and fio take; false: the entry is none of ours. */
static bool discover_uri(const struct haul_discovery_entry *entry, char *text, size_t size)
{
	struct nvme_uri uri;

	return discovery_uri(entry, &uri) && nvme_uri_format(&uri, text, size) >= 0;
}

/* Logs of several controllers may say the same. */
static bool discover_is_new(const struct haul_discovery_log *log, uint32_t index)
{
	const struct haul_discovery_entry *entry = &log->entries[index];

	for (uint32_t i = 0; i < index; i++) {
		const struct haul_discovery_entry *other = &log->entries[i];

		if (other->subtype == entry->subtype && other->portid == entry->portid &&
			!strcmp(other->subsystem_nqn, entry->subsystem_nqn) &&
			!strcmp(other->transport, entry->transport) &&
			!strcmp(other->address, entry->address) &&
			!strcmp(other->service, entry->service))
			return false;
	}
	return true;
}

static void discover_print(const struct haul_discovery_log *log)
{
	char uri[NVME_URI_TEXT_MAX];

	for (uint32_t i = 0; i < log->nr; i++) {
		const struct haul_discovery_entry *entry = &log->entries[i];

		if (!discover_is_new(log, i))
			continue;
		if (discover_uri(entry, uri, sizeof(uri)))
			printf("%-9s  %s\n", discover_subtype(entry->subtype), uri);
		else
			printf("%-9s  %s %s %s %s\n", discover_subtype(entry->subtype),
				entry->transport, entry->address, entry->service,
				entry->subsystem_nqn);
	}
	if (log->nr == 0)
		puts("nothing is offered to this host");
}

static struct json_object *discover_json_entry(const struct haul_discovery_entry *entry)
{
	struct json_object *json = json_object_new_object();
	char uri[NVME_URI_TEXT_MAX];

	cli_json_text(json, "subtype", discover_subtype(entry->subtype));
	cli_json_text(json, "nqn", entry->subsystem_nqn);
	cli_json_text(json, "transport", entry->transport);
	cli_json_text(json, "address_family", discover_family(entry->address_family));
	cli_json_text(json, "address", entry->address);
	cli_json_text(json, "service", entry->service);
	cli_json_number(json, "portid", entry->portid);
	cli_json_number(json, "cntlid", entry->cntlid);
	cli_json_number(json, "treq", entry->treq);
	cli_json_number(json, "eflags", entry->eflags);
	if (discover_uri(entry, uri, sizeof(uri)))
		cli_json_text(json, "uri", uri);
	return json;
}

static void discover_print_json(const struct haul_discovery_log *log)
{
	struct json_object *json = json_object_new_object();
	struct json_object *entries = json_object_new_array();

	cli_json_number(json, "generation", log->generation);
	for (uint32_t i = 0; i < log->nr; i++)
		if (discover_is_new(log, i))
			json_object_array_add(entries, discover_json_entry(&log->entries[i]));
	json_object_object_add(json, "entries", entries);
	cli_print_json(json);
}

/* --- asking --------------------------------------------------------------------------------- */

struct discover {
	struct cli *cli;
	struct nvme_uri uri; /* the user's */
	struct referrals referrals;
	struct haul_discovery_log *found;
	char why[1024]; /* what went wrong at the controller asked last; "": a signal came */
};

/* CLI->ctrl is connected to URI. */
static int discover_read(struct discover *discover, const char *uri)
{
	struct cli *cli = discover->cli;
	struct haul_discovery_log *log = NULL;
	struct haul_ctrl_info info;
	int error = haul_discover(cli->ctrl, &log, 0);

	if (error == -EINVAL) {
		snprintf(discover->why, sizeof(discover->why),
			"%.300s is no discovery subsystem; leave the NQN out", uri);
		return CLI_FAILED;
	}
	if (!error)
		error = cli_wait(cli);
	if (error) {
		snprintf(discover->why, sizeof(discover->why), "%s",
			error == -EINTR ? "" : haul_ctrl_error(cli->ctrl));
		return CLI_FAILED;
	}
	if (!haul_ctrl_info(cli->ctrl, &info))
		referrals_found(&discover->referrals, info.address);
	referrals_add(&discover->referrals, log, 0);
	error = discovery_merge(&discover->found, log);
	if (error)
		snprintf(discover->why, sizeof(discover->why), "%.300s: %s", uri,
			error == -EMSGSIZE ? "more than 4096 entries in all" : strerror(-error));
	return error ? CLI_FAILED : CLI_OK;
}

/* Who was only referred to is not waited for that long. */
static int discover_connect(struct discover *discover, const char *uri, bool is_first)
{
	struct haul_ctrl_options options;
	const char *why = NULL;
	int code;

	haul_ctrl_options_init(&options);
	if (!is_first)
		options.connect_timeout_ms = DISCOVER_REFERRAL_MS;
	code = cli_try_connect(discover->cli, uri, &options, &why);
	snprintf(discover->why, sizeof(discover->why), "%s", why ? why : "");
	return code;
}

/* One controller: connected, read, left. */
static int discover_ask(struct discover *discover, const struct referral *referral)
{
	bool is_first = referral->depth == 0;
	struct nvme_uri *uri = malloc(sizeof(*uri));
	char text[NVME_URI_TEXT_MAX];
	int code = CLI_FAILED;

	strcpy(discover->why, "out of memory");
	if (uri) {
		*uri = discover->uri;
		referral_apply(referral, uri);
		if (nvme_uri_format(uri, text, sizeof(text)) >= 0)
			code = discover_connect(discover, text, is_first);
		if (code == CLI_OK)
			code = discover_read(discover, text);
	}
	free(uri);
	cli_leave(discover->cli);
	if (code == CLI_OK || !discover->why[0])
		return code;
	cli_error("%s%s", is_first ? "" : "warning: referral: ", discover->why);
	return is_first ? code : CLI_OK;
}

static int discover_all(struct discover *discover)
{
	const struct referral *referral;
	int code = CLI_OK;

	referrals_init(&discover->referrals, &discover->uri);
	while (code == CLI_OK && (referral = referrals_next(&discover->referrals)))
		code = discover_ask(discover, referral);
	if (code == CLI_OK && discover->referrals.nr_left_out)
		cli_error("warning: %u referrals are not followed: more than %d steps away, or "
			  "beyond %d controllers",
			discover->referrals.nr_left_out, REFERRAL_MAX_DEPTH, REFERRAL_MAX_CTRLS);
	return code;
}

static int discover_run(struct cli *cli)
{
	struct discover *discover = calloc(1, sizeof(*discover));
	char why[256];
	int code;

	if (!discover) {
		cli_error("out of memory");
		return CLI_FAILED;
	}
	if (nvme_uri_parse(cli->uri, 0, &discover->uri, why, sizeof(why))) {
		cli_error("%s: %s", cli->uri, why);
		free(discover);
		return CLI_USAGE;
	}
	discover->cli = cli;
	code = discover_all(discover);
	if (code == CLI_OK && cli->json)
		discover_print_json(discover->found);
	else if (code == CLI_OK)
		discover_print(discover->found);
	free(discover->found);
	free(discover);
	return code;
}

const struct cli_command cli_discover = {
	.name = "discover",
	.help = "lists what the target at URI, and those it refers to, offer to this host",
	.run = discover_run,
};
