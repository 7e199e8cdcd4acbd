/* SPDX-License-Identifier: MIT */
/*
 * The control socket: made, listened at, removed; and what a line asks for.
 */
#include "target/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "target/control_path.h"
#include "target/control_private.h"
#include "target/target.h"

#define CONTROL_ACCEPT_BUDGET 16
/* Until descriptors may be there again. */
#define CONTROL_REST_NS	      1000000000ull
/* Requests are flat. */
#define CONTROL_JSON_DEPTH    4

/* --- requests -------------------------------------------------------------------------------- */

struct control_verb {
	const char *name;
	void (*run)(struct control_client *client, struct json_object *request);
};

static const struct control_verb control_verbs[] = {
	{"status", control_status},
	{"apply", control_apply},
	{"ana", control_ana},
	{"config", control_config},
};

/* The answer is a line of text, whatever is in the name, and wherever it is cut. */
static void control_refuse_unknown(struct control_client *client, const char *name)
{
	char shown[64 + 1];

	snprintf(shown, sizeof(shown), "%s", name);
	for (char *c = shown; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	control_refuse(client, "there is no request '%s'", shown);
}

static void control_run(struct control_client *client, struct json_object *request)
{
	struct json_object *version, *name;

	if (!json_object_object_get_ex(request, "version", &version) ||
		!json_object_is_type(version, json_type_int) ||
		json_object_get_int(version) != CONTROL_VERSION) {
		control_refuse(client,
			"version %d of the protocol is spoken here: is haulctl of "
			"another release than hauld?",
			CONTROL_VERSION);
		return;
	}
	if (!json_object_object_get_ex(request, "request", &name) ||
		!json_object_is_type(name, json_type_string)) {
		control_refuse(client, "there is no request in it");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(control_verbs); i++) {
		if (strcmp(json_object_get_string(name), control_verbs[i].name))
			continue;
		control_verbs[i].run(client, request);
		return;
	}
	control_refuse_unknown(client, json_object_get_string(name));
}

static const char *control_why_not(struct json_tokener *tokener)
{
	if (!tokener)
		return "out of memory";
	switch (json_tokener_get_error(tokener)) {
	case json_tokener_success:
		return "there is something else on the line";
	case json_tokener_continue:
		return "the line ends before it does";
	default:
		return json_tokener_error_desc(json_tokener_get_error(tokener));
	}
}

void control_request(struct control_client *client, const char *line, size_t length)
{
	struct json_tokener *tokener = json_tokener_new_ex(CONTROL_JSON_DEPTH);
	struct json_object *request = NULL;

	if (tokener) {
		json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
		request = json_tokener_parse_ex(tokener, line, (int)length);
	}
	if (json_object_is_type(request, json_type_object) &&
		json_tokener_get_parse_end(tokener) == length)
		control_run(client, request);
	else
		control_refuse(client, "that is no JSON object: %s", control_why_not(tokener));
	json_object_put(request);
	if (tokener)
		json_tokener_free(tokener);
}

/* --- the socket ------------------------------------------------------------------------------ */

static void control_deleted(struct loop_poll *poll)
{
	struct control *control = container_of(poll, struct control, poll);
	struct loop *loop = control->target->loop;

	if (!control->closing)
		loop_timer_set(loop, &control->rest, loop_now_ns(loop) + CONTROL_REST_NS);
}

static void control_rested(struct loop_timer *timer)
{
	struct control *control = container_of(timer, struct control, rest);

	if (loop_poll_add(control->target->loop, &control->poll, control->fd, POLLIN))
		loop_timer_set(control->target->loop, timer,
			loop_now_ns(control->target->loop) + CONTROL_REST_NS);
}

static void control_ready(struct loop_poll *poll, uint32_t events)
{
	struct control *control = container_of(poll, struct control, poll);

	(void)events;
	for (int i = 0; i < CONTROL_ACCEPT_BUDGET; i++) {
		int fd = accept4(control->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				errno == ENOMEM)
				loop_poll_del(control->target->loop, poll, control_deleted);
			return;
		}
		if (control->nr_clients < CONTROL_MAX_CLIENTS)
			control_client_start(control, fd);
		else
			close(fd);
	}
}

/* Ours alone: systemd makes /run/haul, and a user's XDG_RUNTIME_DIR is there. */
static int control_set_address(struct control *control, const char *path)
{
	int error = path[0] ? control_path_set(&control->address, path)
			    : control_path_default(&control->address);

	if (!error && !strcmp(control->address.sun_path, CONTROL_PATH_SYSTEM))
		(void)mkdir("/run/haul", S_IRWXU);
	return error;
}

static int control_listen(struct control *control, const char *path)
{
	struct loop *loop = control->target->loop;
	int error = control_set_address(control, path);

	if (!error)
		error = control_path_listen(&control->address, &control->fd);
	if (error)
		return error;
	if (lstat(control->address.sun_path, &control->node))
		control->node.st_ino = 0;
	control->poll.ready = control_ready;
	return loop_poll_add(loop, &control->poll, control->fd, POLLIN);
}

static void control_say_why(
	const struct control *control, const char *path, int error, char *why, size_t why_size)
{
	const char *name = path[0] ? path : control->address.sun_path;

	if (error == -EADDRINUSE)
		snprintf(why, why_size,
			"control socket %s is that of a hauld that runs: give another with "
			"--control",
			name);
	else if (error == -EEXIST)
		snprintf(why, why_size, "control socket %s: there is something else of that name",
			name);
	else
		snprintf(why, why_size, "control socket %s cannot be made: %s", name,
			strerror(-error));
}

/* Without one that was not asked for it goes on. */
static int control_open(struct control *control, char *why, size_t why_size)
{
	const char *path = control->target->settings.control;
	int error = strcmp(path, "none") ? control_listen(control, path) : 0;

	if (!error)
		return 0;
	control_say_why(control, path, error, why, why_size);
	if (path[0])
		return error;
	log_warning("%s", why);
	return 0;
}

/* --- life ------------------------------------------------------------------------------------ */

int control_create(struct target *target, const char *config_file, struct control **ret, char *why,
	size_t why_size)
{
	struct control *control = calloc(1, sizeof(*control));
	int error = -ENOMEM;

	snprintf(why, why_size, "out of memory");
	if (!control)
		return error;
	control->target = target;
	control->config_file = config_file;
	control->fd = -1;
	control->start_ns = loop_now_ns(target->loop);
	list_init(&control->clients);
	list_init(&control->statuses);
	loop_timer_init(&control->rest, control_rested);
	if (loop_timers_reserve(target->loop, 1))
		goto free_control;
	if (control_sizes_start(&control->sizes, target))
		goto unreserve_timer;
	if (control_ana_end_start(&control->ana_end, target))
		goto stop_sizes;
	error = control_open(control, why, why_size);
	if (error)
		goto close_socket;
	*ret = control;
	return 0;

close_socket:
	if (control->fd >= 0)
		close(control->fd);
	control_ana_end_stop(&control->ana_end);
stop_sizes:
	(void)control_sizes_stop(&control->sizes);
unreserve_timer:
	loop_timers_unreserve(target->loop, 1);
free_control:
	free(control);
	return error;
}

/* Unless another has taken its place. */
static void control_unlink(struct control *control)
{
	const char *path = control->address.sun_path;
	struct stat now;

	if (!lstat(path, &now) && now.st_dev == control->node.st_dev &&
		now.st_ino == control->node.st_ino)
		unlink(path);
}

int control_close(struct control *control)
{
	struct loop *loop;

	if (!control || control->closing)
		return 0;
	control->closing = true;
	loop = control->target->loop;
	loop_timer_cancel(loop, &control->rest);
	if (control->fd >= 0) {
		control_unlink(control);
		loop_poll_del(loop, &control->poll, control_deleted);
		close(control->fd);
		control->fd = -1;
	}
	control_client_end_all(control);
	/* Their operations come back, and the poll's last word. */
	while (control->nr_clients || loop_wait(loop, 0))
		loop_wait(loop, 0);
	control_ana_end_stop(&control->ana_end);
	return control_sizes_stop(&control->sizes) ? 0 : -ETIMEDOUT;
}

void control_destroy(struct control *control)
{
	if (!control)
		return;
	control_status_forget(control);
	free(control);
}
