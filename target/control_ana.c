/* SPDX-License-Identifier: MIT */
/*
 * Gives an ANA group another state, for haulctl ana: what counts is copied, changed and published.
 * The configuration file stays as it is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/control_json.h"
#include "target/control_private.h"
#include "target/diff.h"
#include "target/port.h"
#include "target/target.h"

struct ana_request {
	struct control_work work;
	struct change change;
	struct diff diff;
	struct json_object *changes; /* a list of lines */
	char nqn[NVME_NQN_MAX + 1];
	uint32_t group;
	enum nvme_ana_state state;
	bool at_listener;
	struct nvme_uri listener;
};

/* --- making ---------------------------------------------------------------------------------- */

static void ana_request_line(struct diff *diff, const char *text)
{
	struct ana_request *ana = container_of(diff, struct ana_request, diff);

	json_object_array_add(ana->changes, json_object_new_string(text));
}

/* As it is configured, or as it listens: they differ when the port is any free one. */
static int ana_request_set(struct ana_request *ana, const struct catalog *catalog,
	struct subsys *subsys, char *why, size_t why_size)
{
	struct port *wanted = NULL;
	bool found = false;
	int error;

	if (!ana->at_listener)
		return ana_set_all(subsys, ana->group, ana->state);
	error = port_create(&ana->listener, true, &wanted, why, why_size);
	for (uint32_t i = 0; !error && i < catalog->nr_ports; i++) {
		const struct port *port = catalog->port[i];

		if (!port_is_same_address(port, wanted) && !port_listens_at(port, wanted))
			continue;
		found = true;
		error = ana_set(subsys, ana->group, port->portid, ana->state);
	}
	if (!error && !found) {
		snprintf(why, why_size, "there is no such listener; haulctl status shows them");
		error = -ENOENT;
	}
	if (wanted)
		port_put(wanted);
	return error;
}

static int ana_request_make(struct change *change, const struct catalog *now, struct catalog **ret,
	char *why, size_t why_size)
{
	struct ana_request *ana = container_of(change, struct ana_request, change);
	struct catalog *catalog = catalog_clone(now);
	struct subsys *subsys = catalog ? catalog_find(catalog, ana->nqn) : NULL;
	int error = subsys ? 0 : -ENOENT;

	snprintf(why, why_size, "%s",
		!catalog ? "out of memory" : "there is no subsystem of that name");
	if (!error) {
		snprintf(why, why_size, "out of memory");
		error = ana_request_set(ana, catalog, subsys, why, why_size);
	}
	if (!error)
		diff_catalogs(&ana->diff, now, catalog);
	if (error || !json_object_array_length(ana->changes))
		catalog_free(catalog);
	else
		*ret = catalog;
	return error;
}

/* --- the end --------------------------------------------------------------------------------- */

static void ana_request_free(struct ana_request *ana)
{
	json_object_put(ana->changes);
	free(ana);
}

static void ana_request_over(struct change *change, int error, const char *why)
{
	struct ana_request *ana = container_of(change, struct ana_request, change);
	struct control_client *client = control_work_over(&ana->work);
	struct json_object *answer;

	for (size_t i = 0; !error && i < json_object_array_length(ana->changes); i++)
		log_info("%s", json_object_get_string(json_object_array_get_idx(ana->changes, i)));
	if (client && error) {
		control_refuse(client, "%s", why);
	} else if (client) {
		answer = json_object_new_object();
		json_object_object_add(answer, "changes", json_object_get(ana->changes));
		control_answer(client, answer);
	}
	ana_request_free(ana);
}

/* --- start ----------------------------------------------------------------------------------- */

static const char *ana_request_text(struct json_object *request, const char *key)
{
	struct json_object *value = json_object_object_get(request, key);

	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

/* 0: it is no whole number. json-c would make one of a text, of true and of 1.5. */
static int64_t ana_request_group(struct json_object *request)
{
	struct json_object *value = json_object_object_get(request, "group");

	return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

/* NULL, or what is wrong with it. */
static const char *ana_request_parse(
	struct ana_request *ana, struct json_object *request, char *why, size_t why_size)
{
	const char *nqn = ana_request_text(request, "subsystem");
	const char *state = ana_request_text(request, "state");
	const char *listener = ana_request_text(request, "listener");
	int64_t group = ana_request_group(request);

	if (!nqn || strlen(nqn) > NVME_NQN_MAX)
		return "a subsystem is needed";
	if (group < 1 || group > ANA_MAX_GROUPS) {
		snprintf(why, why_size, "a group is a number from 1 to %u", ANA_MAX_GROUPS);
		return why;
	}
	if (!state || !ana_state_parse(state, &ana->state))
		return "the states are " ANA_STATE_NAMES;
	if (json_object_object_get(request, "listener") && !listener)
		return "the listener is no text";
	ana->at_listener = listener;
	if (listener && nvme_uri_parse(listener, NVME_URI_LISTENER, &ana->listener, why, why_size))
		return why;
	strcpy(ana->nqn, nqn);
	ana->group = (uint32_t)group;
	return NULL;
}

void control_ana(struct control_client *client, struct json_object *request)
{
	struct control *control = control_client_control(client);
	struct ana_request *ana = calloc(1, sizeof(*ana));
	char why[CHANGE_WHY_BYTES];
	const char *wrong = "out of memory";

	if (ana) {
		ana->work.control = control;
		ana->change.make = ana_request_make;
		ana->change.over = ana_request_over;
		ana->diff.line = ana_request_line;
		ana->changes = json_object_new_array();
		wrong = ana_request_parse(ana, request, why, sizeof(why));
	}
	if (wrong) {
		control_refuse(client, "%s", wrong);
		if (ana)
			ana_request_free(ana);
		return;
	}
	control_client_wait(client, &ana->work);
	change_ask(&control->target->changes, &ana->change);
}
