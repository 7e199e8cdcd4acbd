/* SPDX-License-Identifier: MIT */
/*
 * The running configuration, for haulctl config.
 */
#include <stdlib.h>

#include "target/config_print.h"
#include "target/control_json.h"
#include "target/control_private.h"
#include "target/target.h"

void control_config(struct control_client *client, struct json_object *request)
{
	const struct target *target = control_client_control(client)->target;
	char why[CHANGE_WHY_BYTES];
	struct json_object *answer;
	char *text;

	(void)request;
	if (config_print(&target->settings, target->catalog, &text, why, sizeof(why))) {
		control_refuse(client, "%s", why);
		return;
	}
	answer = json_object_new_object();
	control_json_text(answer, "config", text);
	free(text);
	control_answer(client, answer);
}
