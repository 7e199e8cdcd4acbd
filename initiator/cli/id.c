/* SPDX-License-Identifier: MIT */
/*
 * haul id: a controller and its namespaces.
 */
#include "initiator/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void id_bytes(uint64_t bytes, char ret_text[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned unit = 0;
	double x = (double)bytes;

	while (x >= 1024 && unit < 6) {
		x /= 1024;
		unit++;
	}
	snprintf(ret_text, 32, x < 10 && unit ? "%.1f %s" : "%.0f %s", x, units[unit]);
}

static void id_version(uint32_t version, char ret_text[24])
{
	if (version & 0xff)
		snprintf(ret_text, 24, "%u.%u.%u", version >> 16, version >> 8 & 0xff,
			version & 0xff);
	else
		snprintf(ret_text, 24, "%u.%u", version >> 16, version >> 8 & 0xff);
}

static void id_print_ctrl(const struct haul_ctrl_info *info)
{
	char version[24], transfer[32], capsule[32];

	id_version(info->version, version);
	id_bytes(info->max_transfer_bytes, transfer);
	id_bytes(info->in_capsule_bytes, capsule);
	printf("subsystem    %s\n", info->subsystem_nqn);
	printf("controller   %u at %s %s\n", info->cntlid, info->transport, info->address);
	printf("host         %s\n", info->host_nqn);
	printf("device       %s, firmware %s, serial %s, NVMe %s\n", info->model, info->firmware,
		info->serial, version);
	printf("limits       %u queues of depth %u, %s a command, %s of it in the capsule\n",
		info->max_queues, info->max_queue_depth, transfer, capsule);
	if (info->keep_alive_ms)
		printf("keep-alive   %u ms\n", info->keep_alive_ms);
}

static struct json_object *id_json_ctrl(const struct haul_ctrl_info *info)
{
	struct json_object *json = json_object_new_object();
	char version[24];

	id_version(info->version, version);
	cli_json_text(json, "nqn", info->subsystem_nqn);
	cli_json_number(json, "cntlid", info->cntlid);
	cli_json_text(json, "transport", info->transport);
	cli_json_text(json, "address", info->address);
	cli_json_text(json, "host_nqn", info->host_nqn);
	cli_json_text(json, "model", info->model);
	cli_json_text(json, "firmware", info->firmware);
	cli_json_text(json, "serial", info->serial);
	cli_json_text(json, "version", version);
	cli_json_number(json, "max_queues", info->max_queues);
	cli_json_number(json, "max_queue_depth", info->max_queue_depth);
	cli_json_number(json, "max_transfer_bytes", info->max_transfer_bytes);
	cli_json_number(json, "in_capsule_bytes", info->in_capsule_bytes);
	cli_json_number(json, "max_segments", info->max_segments);
	cli_json_number(json, "keep_alive_ms", info->keep_alive_ms);
	return json;
}

static void id_print_ns(const struct haul_ns_info *ns)
{
	char size[32], text[40];

	id_bytes(ns->nr_blocks * ns->block_bytes, size);
	printf("namespace %-3u %s, %llu blocks of %u bytes\n", ns->nsid, size,
		(unsigned long long)ns->nr_blocks, ns->block_bytes);
	if (cli_hex(ns->uuid, sizeof(ns->uuid), true, text))
		printf("             uuid %s\n", text);
	if (cli_hex(ns->nguid, sizeof(ns->nguid), false, text))
		printf("             nguid %s\n", text);
	if (cli_hex(ns->eui64, sizeof(ns->eui64), false, text))
		printf("             eui64 %s\n", text);
	printf("             %s%s%s%s\n", ns->read_only ? "read-only" : "writable",
		ns->can_discard ? ", discard" : "", ns->can_write_zeroes ? ", write zeroes" : "",
		ns->volatile_cache ? ", volatile cache" : "");
}

static struct json_object *id_json_ns(const struct haul_ns_info *ns)
{
	struct json_object *json = json_object_new_object();
	char text[40];

	cli_json_number(json, "nsid", ns->nsid);
	cli_json_number(json, "block_bytes", ns->block_bytes);
	cli_json_number(json, "nr_blocks", ns->nr_blocks);
	cli_json_number(json, "size_bytes", ns->nr_blocks * ns->block_bytes);
	cli_json_number(json, "capacity_blocks", ns->capacity_blocks);
	cli_json_number(json, "used_blocks", ns->used_blocks);
	if (cli_hex(ns->uuid, sizeof(ns->uuid), true, text))
		cli_json_text(json, "uuid", text);
	if (cli_hex(ns->nguid, sizeof(ns->nguid), false, text))
		cli_json_text(json, "nguid", text);
	if (cli_hex(ns->eui64, sizeof(ns->eui64), false, text))
		cli_json_text(json, "eui64", text);
	cli_json_flag(json, "read_only", ns->read_only);
	cli_json_flag(json, "discard", ns->can_discard);
	cli_json_flag(json, "write_zeroes", ns->can_write_zeroes);
	cli_json_flag(json, "volatile_cache", ns->volatile_cache);
	return json;
}

/* One namespace that cannot be read does not hide the others. */
static int id_namespace(struct cli *cli, uint32_t nsid, struct json_object *list)
{
	struct haul_ns_info info;
	int error = haul_ns_info(cli->ctrl, nsid, &info, 0);

	if (!error)
		error = cli_wait(cli);
	if (error == -EINTR)
		return CLI_FAILED;
	if (error) {
		cli_error("%s", haul_ctrl_error(cli->ctrl));
		return CLI_FAILED;
	}
	if (list)
		json_object_array_add(list, id_json_ns(&info));
	else
		id_print_ns(&info);
	return CLI_OK;
}

/* Where nobody expects namespaces. */
static bool id_is_discovery(const struct cli *cli)
{
	struct haul_ctrl_info info;

	return !haul_ctrl_info(cli->ctrl, &info) && info.max_queues == 0;
}

/* The one that the URI names, else all. */
static int id_namespaces(struct cli *cli, struct json_object *list)
{
	int64_t named = haul_ns_default(cli->ctrl);
	int nr = haul_ns_list(cli->ctrl, NULL, 0);
	uint32_t *nsids;
	int code = CLI_OK;

	if (named > 0)
		return id_namespace(cli, (uint32_t)named, list);
	nsids = calloc((size_t)nr + 1, sizeof(*nsids));
	if (!nsids)
		return CLI_FAILED;
	if (nr == 0 && !list && !id_is_discovery(cli))
		puts("namespaces   none for this host");
	haul_ns_list(cli->ctrl, nsids, (unsigned)nr);
	for (int i = 0; i < nr && haul_ctrl_is_live(cli->ctrl); i++)
		if (id_namespace(cli, nsids[i], list) != CLI_OK)
			code = CLI_FAILED;
	free(nsids);
	return code;
}

static int id_run(struct cli *cli)
{
	struct haul_ctrl_info info;
	struct json_object *json, *list;
	int code = cli_connect(cli, cli->uri);

	if (code != CLI_OK)
		return code;
	haul_ctrl_info(cli->ctrl, &info);
	if (!cli->json) {
		id_print_ctrl(&info);
		return id_namespaces(cli, NULL);
	}
	json = id_json_ctrl(&info);
	list = json_object_new_array();
	code = id_namespaces(cli, list);
	json_object_object_add(json, "namespaces", list);
	cli_print_json(json);
	return code;
}

const struct cli_command cli_id = {
	.name = "id",
	.help = "shows the controller at URI and its namespaces",
	.run = id_run,
};
