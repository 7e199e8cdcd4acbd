/* SPDX-License-Identifier: MIT */
/*
 * haul discover: what a discovery service offers.
 */
#include "initiator/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/uri.h"

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
	struct nvme_uri uri = {.ipv6 = entry->address_family == NVME_ADRFAM_IPV6};
	unsigned long port = strtoul(entry->service, NULL, 10);

	uri.trtype = nvme_trtype_by_name(entry->transport, strlen(entry->transport));
	if (uri.trtype != NVME_TRTYPE_RDMA && uri.trtype != NVME_TRTYPE_TCP)
		return false;
	if (port == 0 || port > UINT16_MAX || strlen(entry->address) >= sizeof(uri.host))
		return false;
	uri.port = (uint16_t)port;
	strcpy(uri.host, entry->address);
	strcpy(uri.nqn, entry->subsystem_nqn);
	return nvme_uri_format(&uri, text, size) >= 0;
}

static void discover_print(const struct haul_discovery_log *log)
{
	char uri[NVME_URI_TEXT_MAX];

	for (uint32_t i = 0; i < log->nr; i++) {
		const struct haul_discovery_entry *entry = &log->entries[i];

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
		json_object_array_add(entries, discover_json_entry(&log->entries[i]));
	json_object_object_add(json, "entries", entries);
	cli_print_json(json);
}

/* Without an NQN the well-known discovery subsystem is meant. */
static int discover_address(const char *text, char *ret, size_t size)
{
	struct nvme_uri *uri = malloc(sizeof(*uri));
	char why[256] = "out of memory";
	int error = -1;

	if (uri)
		error = nvme_uri_parse(text, 0, uri, why, sizeof(why));
	if (!error) {
		if (!uri->nqn[0])
			strcpy(uri->nqn, NVME_DISCOVERY_NQN);
		error = nvme_uri_format(uri, ret, size) < 0;
	}
	if (error)
		cli_error("%s: %s", text, why);
	free(uri);
	return error ? CLI_USAGE : CLI_OK;
}

static int discover_run(struct cli *cli)
{
	struct haul_discovery_log *log = NULL;
	char uri[NVME_URI_TEXT_MAX];
	int code = discover_address(cli->uri, uri, sizeof(uri));
	int error;

	if (code == CLI_OK)
		code = cli_connect(cli, uri);
	if (code != CLI_OK)
		return code;
	error = haul_discover(cli->ctrl, &log, 0);
	if (error == -EINVAL) {
		cli_error("%s is no discovery subsystem; leave the NQN out", cli->uri);
		return CLI_FAILED;
	}
	if (!error)
		error = cli_wait(cli);
	if (error) {
		if (error != -EINTR)
			cli_error("%s", haul_ctrl_error(cli->ctrl));
		return CLI_FAILED;
	}
	if (cli->json)
		discover_print_json(log);
	else
		discover_print(log);
	free(log);
	return CLI_OK;
}

const struct cli_command cli_discover = {
	.name = "discover",
	.help = "lists what the target at URI offers to this host",
	.run = discover_run,
};
