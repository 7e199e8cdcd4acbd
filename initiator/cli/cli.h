/* SPDX-License-Identifier: MIT */
/*
 * haul, the program: what its commands share.
 */
#ifndef HAUL_INITIATOR_CLI_H
#define HAUL_INITIATOR_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <json-c/json.h>

#include "initiator/haul.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli {
	struct haul_loop *loop;
	struct haul_ctrl *ctrl;
	const char *uri;     /* NULL: none was given, where it is optional */
	const char *sysroot; /* haul doctor; or NULL */
	bool json;
};

struct cli_command {
	const char *name;
	const char *help; /* one line */
	bool uri_is_optional;
	/* 0 or CLI_FAILED; has said why. CLI has a loop and is cleaned up by the caller. */
	int (*run)(struct cli *cli);
};
extern const struct cli_command cli_discover;
extern const struct cli_command cli_doctor;
extern const struct cli_command cli_id;

/* One line on stderr. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Connects CLI->ctrl to URI; 0, CLI_FAILED or CLI_USAGE. */
int cli_connect(struct cli *cli, const char *uri);
/* The same, which says nothing itself; OPTIONS may be NULL. *RET_WHY: a reason that lives as long
 * as CLI->ctrl and the loop; NULL: a signal came. */
int cli_try_connect(struct cli *cli, const char *uri, const struct haul_ctrl_options *options,
	const char **ret_why);
/* Disconnects in order, so that the target need not wait for us to time out, and frees the
 * controller, if there is one. */
void cli_leave(struct cli *cli);
/* Waits for the one operation under way: its result, or -EINTR after a signal. */
int cli_wait(struct cli *cli);
/* Members of a JSON object. */
void cli_json_text(struct json_object *json, const char *key, const char *value);
void cli_json_number(struct json_object *json, const char *key, uint64_t value);
void cli_json_flag(struct json_object *json, const char *key, bool value);
/* Prints and frees. */
void cli_print_json(struct json_object *json);
/* True: a text; false: all bytes are 0. */
bool cli_hex(const uint8_t *bytes, unsigned nr, bool is_uuid, char ret_text[40]);

#endif
