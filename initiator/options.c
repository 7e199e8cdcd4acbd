/* SPDX-License-Identifier: MIT */
/*
 * Options of a connect: defaults, the caller's structure, then the URI's own.
 */
#include "initiator/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/host.h"

#define OPTIONS_MAX_MS (24u * 3600 * 1000) /* a day: more is a mistake */

struct options_texts {
	const char *host_nqn, *host_id;
};

struct options_row {
	const char *key;
	/* False: VALUE is wrong; then WHAT is what would be right. */
	bool (*read)(
		const char *value, struct haul_ctrl_options *options, struct options_texts *texts);
	const char *what;
};

static bool options_number(const char *value, uint32_t max, uint32_t *ret, const char **ret_end)
{
	char *end;
	unsigned long long x;

	if (value[0] < '0' || value[0] > '9')
		return false;
	errno = 0;
	x = strtoull(value, &end, 10);
	if (errno || x > max)
		return false;
	*ret = (uint32_t)x;
	*ret_end = end;
	return true;
}

static bool options_flag(const char *value, uint32_t *ret)
{
	const char *end;

	return options_number(value, 1, ret, &end) && !*end;
}

/* "15" and "15s" are seconds, "500ms" milliseconds. */
static bool options_time(const char *value, uint32_t *ret_ms)
{
	const char *end;
	uint32_t x;

	if (!options_number(value, OPTIONS_MAX_MS, &x, &end))
		return false;
	if (!strcmp(end, "ms")) {
		*ret_ms = x;
		return true;
	}
	if ((*end && strcmp(end, "s")) || x > OPTIONS_MAX_MS / 1000)
		return false;
	*ret_ms = x * 1000;
	return true;
}

static bool options_hdgst(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	return options_flag(value, &options->header_digest);
}

static bool options_ddgst(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	return options_flag(value, &options->data_digest);
}

static bool options_kato(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	return options_time(value, &options->keep_alive_ms);
}

static bool options_timeout(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	return options_time(value, &options->command_timeout_ms);
}

static bool options_connect_timeout(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	return options_time(value, &options->connect_timeout_ms) && options->connect_timeout_ms;
}

static bool options_hostnqn(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)options;
	texts->host_nqn = value;
	return true; /* checked with the rest of the identity */
}

static bool options_hostid(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)options;
	texts->host_id = value;
	return true;
}

static bool options_tos(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	const char *end;

	(void)texts;
	return options_number(value, 255, &options->tos, &end) && !*end;
}

static bool options_queues(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	const char *end;

	(void)texts;
	return options_number(value, CTRL_MAX_IO_QUEUES, &options->max_queues, &end) && !*end &&
	       options->max_queues;
}

static bool options_keys(
	const char *value, struct haul_ctrl_options *options, struct options_texts *texts)
{
	(void)texts;
	options->keys = !strcmp(value, "io") ? HAUL_KEYS_IO : HAUL_KEYS_REGION;
	return options->keys == HAUL_KEYS_IO || !strcmp(value, "region");
}

static const struct options_row options_rows[] = {
	{"hdgst", options_hdgst, "0 or 1"},
	{"ddgst", options_ddgst, "0 or 1"},
	{"kato", options_kato, "a time such as 15, 15s or 500ms, 0 for none"},
	{"timeout", options_timeout, "a time such as 30, 30s or 500ms, 0 for none"},
	{"connect_timeout", options_connect_timeout, "a time such as 10, 10s or 500ms"},
	{"hostnqn", options_hostnqn, ""},
	{"hostid", options_hostid, ""},
	{"tos", options_tos, "a number from 0 to 255"},
	{"queues", options_queues, "a number from 1 to 128"},
	{"keys", options_keys, "region or io"},
};

static int options_apply(const struct nvme_uri_option *option, struct haul_ctrl_options *options,
	struct options_texts *texts, char *why, size_t why_size)
{
	for (size_t i = 0; i < ARRAY_SIZE(options_rows); i++) {
		const struct options_row *row = &options_rows[i];

		if (strcmp(row->key, option->key))
			continue;
		if (row->read(option->value, options, texts))
			return 0;
		snprintf(why, why_size, "option %s=%.64s is wrong, it is %s", option->key,
			option->value, row->what);
		return -EINVAL;
	}
	snprintf(why, why_size,
		"there is no option \"%s\"; known ones: hdgst, ddgst, kato, timeout, "
		"connect_timeout, hostnqn, hostid, tos, queues, keys",
		option->key);
	return -EINVAL;
}

static int options_check(const struct haul_ctrl_options *options, char *why, size_t why_size)
{
	if (options->keep_alive_ms > OPTIONS_MAX_MS ||
		options->command_timeout_ms > OPTIONS_MAX_MS ||
		options->connect_timeout_ms > OPTIONS_MAX_MS || options->connect_timeout_ms == 0) {
		snprintf(why, why_size,
			"a time of the options is more than a day, or the connect's is 0");
		return -EINVAL;
	}
	if (options->header_digest > 1 || options->data_digest > 1 || options->tos > 255 ||
		options->max_queues == 0 || options->max_queues > CTRL_MAX_IO_QUEUES ||
		options->keys > HAUL_KEYS_IO) {
		snprintf(why, why_size,
			"digests are 0 or 1, tos 0 to 255, queues 1 to %u, keys region or io",
			CTRL_MAX_IO_QUEUES);
		return -EINVAL;
	}
	return 0;
}

/* NVMe/RDMA has no digests: its fabric checks what it carries. NVMe/TCP has no keys. */
static int options_check_transport(const struct haul_ctrl *ctrl, char *why, size_t why_size)
{
	bool header = ctrl->options.header_digest;

	if (ctrl->uri.trtype != NVME_TRTYPE_RDMA && ctrl->options.keys == HAUL_KEYS_IO) {
		snprintf(why, why_size, "keys is for rdma:// only");
		return -EINVAL;
	}
	if (ctrl->uri.trtype == NVME_TRTYPE_TCP || (!header && !ctrl->options.data_digest))
		return 0;
	snprintf(why, why_size, "%s is for tcp:// only", header ? "hdgst" : "ddgst");
	return -EINVAL;
}

int options_read(
	struct haul_ctrl *ctrl, const struct haul_ctrl_options *options, char *why, size_t why_size)
{
	struct options_texts texts = {NULL, NULL};
	int error;

	haul_ctrl_options_init(&ctrl->options);
	if (options) {
		if (options->size < sizeof(*options)) {
			snprintf(why, why_size, "haul_ctrl_options_init() was not called");
			return -EINVAL;
		}
		ctrl->options = *options;
		texts = (struct options_texts){options->host_nqn, options->host_id};
	}
	for (unsigned i = 0; i < ctrl->uri.nr_options; i++) {
		error = options_apply(&ctrl->uri.option[i], &ctrl->options, &texts, why, why_size);
		if (error)
			return error;
	}
	error = options_check(&ctrl->options, why, why_size);
	if (!error)
		error = options_check_transport(ctrl, why, why_size);
	if (error)
		return error;
	return host_identity(
		texts.host_nqn, texts.host_id, ctrl->host_nqn, &ctrl->host_id, why, why_size);
}
