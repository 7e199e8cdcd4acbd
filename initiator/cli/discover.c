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

static const char *discover_subtype(uint8_t subtype)
{
	switch (subtype) {
	case NVME_SUBTYPE_REFERRAL:
		return "referral";
	case NVME_SUBTYPE_NVM:
		return "subsystem";
	case NVME_SUBTYPE_CURRENT_DISCOVERY:
		return "discovery";
	default:
		return "unknown";
	}
}

static const char *discover_family(uint8_t family)
{
	switch (family) {
	case NVME_ADRFAM_IPV4:
		return "ipv4";
	case NVME_ADRFAM_IPV6:
		return "ipv6";
	case NVME_ADRFAM_IB:
		return "ib";
	case NVME_ADRFAM_FC:
		return "fc";
	default:
		return "unknown";
	}
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

	json_object_object_add(
		json, "subtype", json_object_new_string(discover_subtype(entry->subtype)));
	json_object_object_add(json, "nqn", json_object_new_string(entry->subsystem_nqn));
	json_object_object_add(json, "transport", json_object_new_string(entry->transport));
	json_object_object_add(json, "address_family",
		json_object_new_string(discover_family(entry->address_family)));
	json_object_object_add(json, "address", json_object_new_string(entry->address));
	json_object_object_add(json, "service", json_object_new_string(entry->service));
	json_object_object_add(json, "portid", json_object_new_int(entry->portid));
	json_object_object_add(json, "cntlid", json_object_new_int(entry->cntlid));
	json_object_object_add(json, "treq", json_object_new_int(entry->treq));
	json_object_object_add(json, "eflags", json_object_new_int(entry->eflags));
	if (discover_uri(entry, uri, sizeof(uri)))
		json_object_object_add(json, "uri", json_object_new_string(uri));
	return json;
}

static void discover_print_json(const struct haul_discovery_log *log)
{
	struct json_object *json = json_object_new_object();
	struct json_object *entries = json_object_new_array();

	json_object_object_add(json, "generation", json_object_new_uint64(log->generation));
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
