/* SPDX-License-Identifier: MIT */
/*
 * A configuration file is compared with what counts, and the difference made: for haulctl apply,
 * which sends it, and for SIGHUP.
 */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/config.h"
#include "target/config_text.h"
#include "target/control_json.h"
#include "target/control_private.h"
#include "target/diff.h"
#include "target/target.h"
#include "target/write_protect.h"

/* Of one change; the rest are counted. */
#define APPLY_MAX_LOG_LINES 64

struct apply {
	struct control_work work; /* no client: SIGHUP */
	struct change change;
	struct diff diff;
	struct json_object *request; /* NULL: TEXT is read from the file, when its turn comes */
	struct config_text text;
	bool dry_run;
	struct json_object *changes, *notes; /* lists of lines */
	struct config_report report;
};

/* --- making ---------------------------------------------------------------------------------- */

static void apply_line(struct diff *diff, const char *text)
{
	struct apply *apply = container_of(diff, struct apply, diff);

	json_object_array_add(apply->changes, json_object_new_string(text));
}

static void apply_note(struct apply *apply, const char *key)
{
	char text[128];

	snprintf(text, sizeof(text),
		"%s cannot change while hauld runs: it counts from the next start", key);
	json_object_array_add(apply->notes, json_object_new_string(text));
}

static const struct {
	const char *key;
	size_t offset, size;
} apply_settings[] = {
#define APPLY_SETTING(key, member)                                       \
	{                                                                \
		key, offsetof(struct target_settings, member),           \
			sizeof(((struct target_settings *)NULL)->member) \
	}
	APPLY_SETTING("threads", nr_reactors),
	APPLY_SETTING("engine", engine),
	APPLY_SETTING("memory", memory_bytes),
	APPLY_SETTING("spin_us", spin_ns),
	APPLY_SETTING("patience_s", patience_ns),
	APPLY_SETTING("kas_s", kas_ms),
	APPLY_SETTING("cntlid_min", cntlid_min),
	APPLY_SETTING("cntlid_max", cntlid_max),
	APPLY_SETTING("discovery_nqn", discovery_nqn),
};

/* Which settings the next start with this file would make others than those that hauld runs with.
 */
static void apply_compare_settings(struct apply *apply, const struct target_settings *running,
	const struct target_settings *file)
{
	for (size_t i = 0; i < ARRAY_SIZE(apply_settings); i++) {
		size_t offset = apply_settings[i].offset;

		if (memcmp((const char *)running + offset, (const char *)file + offset,
			    apply_settings[i].size))
			apply_note(apply, apply_settings[i].key);
	}
	if (strcmp(file->control, running->control))
		apply_note(apply, "control");
	if (strcmp(file->state, running->state))
		apply_note(apply, "state");
}

/* Who has put another file in place of a disk wants to hear that the old one stays in use. */
static int apply_note_disk(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct backend *backend = ns->place->backend;
	struct apply *apply = context;
	char text[PATH_MAX + 256];

	if (!backend->ops->is_named || backend->ops->is_named(backend))
		return 0;
	snprintf(text, sizeof(text),
		"namespace %u of %s: the disk opened as %s has another name or none now, and "
		"stays in use: to change over, take the namespace out, apply, and add it again",
		ns->nsid, subsys->nqn, backend->path);
	json_object_array_add(apply->notes, json_object_new_string(text));
	return 0;
}

static int apply_load(struct apply *apply, struct catalog *catalog)
{
	const struct target *target = apply->work.control->target;
	struct target_settings running = target->settings, next = target->options;
	int error = config_load_text(
		&apply->text, &next, running.discovery_nqn, catalog, &apply->report);

	if (error)
		return error;
	running.nr_reactors = target->nr_reactors;
	target_settings_complete(&running);
	target_settings_complete(&next);
	apply_compare_settings(apply, &running, &next);
	return 0;
}

static int apply_read(struct apply *apply)
{
	const struct control *control = apply->work.control;

	if (apply->request)
		return 0;
	return config_text_read(control->config_file, &apply->text, apply->report.mistake,
		sizeof(apply->report.mistake));
}

static int apply_make(struct change *change, const struct catalog *now, struct catalog **ret,
	char *why, size_t why_size)
{
	struct apply *apply = container_of(change, struct apply, change);
	struct catalog *catalog = catalog_create(now);
	int error = catalog ? apply_read(apply) : -ENOMEM;

	if (!error)
		error = apply_load(apply, catalog);
	if (!error)
		error = write_protect_adopt(apply->work.control->target->reservations, catalog,
			apply->report.mistake, sizeof(apply->report.mistake));
	if (error) {
		snprintf(why, why_size, "%s",
			apply->report.mistake[0] ? apply->report.mistake : strerror(-error));
		catalog_free(catalog);
		return error;
	}
	control_sizes_look(catalog);
	catalog_for_each_ns(catalog, apply_note_disk, apply);
	diff_catalogs(&apply->diff, now, catalog);
	if (apply->dry_run || !json_object_array_length(apply->changes))
		catalog_free(catalog);
	else
		*ret = catalog;
	return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

static void apply_free(struct apply *apply)
{
	json_object_put(apply->changes);
	json_object_put(apply->notes);
	if (apply->request)
		json_object_put(apply->request);
	else
		config_text_free(&apply->text);
	free(apply);
}

static void apply_log(const struct apply *apply)
{
	size_t nr = json_object_array_length(apply->changes);

	if (apply->dry_run)
		return;
	for (size_t i = 0; i < json_object_array_length(apply->notes); i++)
		log_warning("%s: %s", apply->text.name,
			json_object_get_string(json_object_array_get_idx(apply->notes, i)));
	for (size_t i = 0; i < nr && i < APPLY_MAX_LOG_LINES; i++)
		log_info(
			"%s", json_object_get_string(json_object_array_get_idx(apply->changes, i)));
	log_info("%s: %zu change%s made", apply->text.name, nr, nr == 1 ? "" : "s");
}

/* With the line of the listener that it was. */
static void apply_say_why(struct apply *apply, const char *why, char *ret, size_t size)
{
	const struct publish *publish = &apply->work.control->target->publish;
	uint32_t port = why == publish->why ? publish->failed_port : UINT32_MAX;

	if (port >= CATALOG_MAX_PORTS)
		snprintf(ret, size, "%s", why);
	else
		snprintf(ret, size, "%s:%u: listen.%u: %s", apply->text.name,
			apply->report.port_line[port], port, why);
}

static void apply_tell(
	struct apply *apply, struct control_client *client, int error, const char *why)
{
	struct json_object *answer;
	char text[CHANGE_WHY_BYTES];

	if (error) {
		apply_say_why(apply, why, text, sizeof(text));
		log_warning("nothing has changed: %s", text);
		if (client)
			control_refuse(client, "%s", text);
		return;
	}
	apply_log(apply);
	if (!client)
		return;
	answer = json_object_new_object();
	control_json_flag(answer, "dry_run", apply->dry_run);
	json_object_object_add(answer, "changes", json_object_get(apply->changes));
	json_object_object_add(answer, "notes", json_object_get(apply->notes));
	control_answer(client, answer);
}

static void apply_over(struct change *change, int error, const char *why)
{
	struct apply *apply = container_of(change, struct apply, change);
	struct control *control = apply->work.control;

	apply_tell(apply, control_work_over(&apply->work), error, why);
	if (!apply->request) {
		control->reloads = false;
		sd_notify(0, "READY=1");
	}
	apply_free(apply);
}

/* --- start ----------------------------------------------------------------------------------- */

static struct apply *apply_create(struct control *control)
{
	struct apply *apply = calloc(1, sizeof(*apply));

	if (!apply)
		return NULL;
	apply->work.control = control;
	apply->change.make = apply_make;
	apply->change.over = apply_over;
	apply->diff.line = apply_line;
	apply->changes = json_object_new_array();
	apply->notes = json_object_new_array();
	return apply;
}

/* A text without zeros; NULL: there is none, or it is none. */
static const char *apply_text(struct json_object *request, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(request, key, &value) ||
		!json_object_is_type(value, json_type_string) ||
		strlen(json_object_get_string(value)) != (size_t)json_object_get_string_len(value))
		return NULL;
	return json_object_get_string(value);
}

static const char *apply_check(struct json_object *request, const struct apply *apply)
{
	struct json_object *dry_run;

	if (!apply->text.name || !apply->text.directory || !apply->text.bytes)
		return "file, directory and text are needed, all of them text";
	if (apply->text.directory[0] != '/')
		return "the directory is not absolute";
	if (apply->text.length > CONFIG_TEXT_MAX)
		return "the file is longer than 2 MiB";
	/* A null is not the same as none: who sends it may not mean that all is to count. */
	if (json_object_object_get_ex(request, "dry_run", &dry_run) &&
		!json_object_is_type(dry_run, json_type_boolean))
		return "dry_run is neither true nor false";
	return NULL;
}

void control_apply(struct control_client *client, struct json_object *request)
{
	struct control *control = control_client_control(client);
	struct apply *apply = apply_create(control);
	const char *wrong;

	if (!apply) {
		control_refuse(client, "out of memory");
		return;
	}
	apply->request = json_object_get(request);
	apply->text = (struct config_text){
		.name = apply_text(request, "file"),
		.directory = (char *)(uintptr_t)apply_text(request, "directory"),
		.bytes = (char *)(uintptr_t)apply_text(request, "text"),
	};
	apply->text.length = apply->text.bytes ? strlen(apply->text.bytes) : 0;
	apply->dry_run = json_object_get_boolean(json_object_object_get(request, "dry_run"));
	wrong = apply_check(request, apply);
	if (wrong) {
		apply_free(apply);
		control_refuse(client, "%s", wrong);
		return;
	}
	control_client_wait(client, &apply->work);
	change_ask(&control->target->changes, &apply->change);
}

bool control_reload(struct control *control)
{
	struct apply *apply;

	if (!control || !control->config_file)
		return false;
	/* One that waits will read the file as it is then. */
	if (control->reloads)
		return true;
	apply = apply_create(control);
	if (!apply) {
		log_warning("nothing has changed: out of memory");
		return true;
	}
	log_info("reading %s again", control->config_file);
	apply->text.name = control->config_file;
	control->reloads = true;
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		(unsigned long long)loop_now_ns(control->target->loop) / 1000);
	change_ask(&control->target->changes, &apply->change);
	return true;
}
