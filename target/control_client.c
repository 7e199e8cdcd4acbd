/* SPDX-License-Identifier: MIT */
/*
 * Lines from clients, and answers to them.
 */
#include "target/control_client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "target/control_private.h"
#include "target/target.h"

/* For a whole request to arrive, and for an answer to be taken. */
#define CONTROL_PATIENCE_NS 10000000000ull
#define CONTROL_FIRST_BYTES 4096

enum control_client_state {
	CONTROL_CLIENT_READS,
	CONTROL_CLIENT_WAITS, /* the request is with somebody else */
	CONTROL_CLIENT_ANSWERS,
	CONTROL_CLIENT_ENDS,
};

struct control_client {
	struct control *control;
	struct list node;
	enum control_client_state state;
	struct loop_file file;
	struct loop_op receive, transmit;
	struct iovec iov;
	bool receives, transmits; /* the operation is out */
	struct loop_timer deadline;
	struct control_work *work; /* while WAITS */

	char *bytes; /* received; the first LINE of them are being answered */
	size_t size, used, line;
	char *answer;
	size_t length, sent;
	bool last; /* the end comes after this answer */
};

static struct loop *control_client_loop(const struct control_client *client)
{
	return client->control->target->loop;
}

struct control *control_client_control(const struct control_client *client)
{
	return client->control;
}

/* --- life ------------------------------------------------------------------------------------ */

static void control_client_try_free(struct control_client *client)
{
	struct loop *loop = control_client_loop(client);

	if (client->receives || client->transmits)
		return;
	loop_timers_unreserve(loop, 1);
	loop_file_del(loop, &client->file);
	close(client->file.fd);
	list_remove(&client->node);
	client->control->nr_clients--;
	free(client->answer);
	free(client->bytes);
	free(client);
}

void control_client_end(struct control_client *client)
{
	struct loop *loop = control_client_loop(client);

	if (client->state == CONTROL_CLIENT_ENDS)
		return;
	client->state = CONTROL_CLIENT_ENDS;
	if (client->work)
		client->work->client = NULL;
	loop_timer_cancel(loop, &client->deadline);
	loop_cancel(loop, &client->receive);
	loop_cancel(loop, &client->transmit);
	control_client_try_free(client);
}

void control_client_end_all(struct control *control)
{
	struct control_client *client, *after;

	list_for_each_entry_safe (client, after, &control->clients, node)
		control_client_end(client);
}

static void control_client_expired(struct loop_timer *timer)
{
	control_client_end(container_of(timer, struct control_client, deadline));
}

static void control_client_set_deadline(struct control_client *client)
{
	struct loop *loop = control_client_loop(client);

	loop_timer_set(loop, &client->deadline, loop_now_ns(loop) + CONTROL_PATIENCE_NS);
}

/* --- receiving ------------------------------------------------------------------------------- */

static int control_client_grow(struct control_client *client)
{
	size_t size = client->size ? 2 * client->size : CONTROL_FIRST_BYTES;
	char *bytes;

	if (client->used < client->size)
		return 0;
	if (size > CONTROL_MAX_LINE)
		return -EMSGSIZE;
	bytes = realloc(client->bytes, size);
	if (!bytes)
		return -ENOMEM;
	client->bytes = bytes;
	client->size = size;
	return 0;
}

static void control_client_receive(struct control_client *client)
{
	int error = control_client_grow(client);

	client->state = CONTROL_CLIENT_READS;
	if (error) {
		client->last = true;
		client->line = client->used;
		control_refuse(client, "the request is too long: at most %u bytes are possible",
			CONTROL_MAX_LINE);
		return;
	}
	client->iov = (struct iovec){client->bytes + client->used, client->size - client->used};
	client->receives = true;
	loop_receive(control_client_loop(client), &client->receive, &client->file, &client->iov, 1);
}

/* A whole line is here, among the bytes from FROM on, or more must come. */
static void control_client_look(struct control_client *client, size_t from)
{
	char *end = memchr(client->bytes + from, '\n', client->used - from);

	if (!end) {
		control_client_receive(client);
		return;
	}
	client->line = (size_t)(end - client->bytes) + 1;
	loop_timer_cancel(control_client_loop(client), &client->deadline);
	*end = '\0';
	control_request(client, client->bytes, client->line - 1);
}

static void control_client_received(struct done *done, int res, unsigned flags)
{
	struct control_client *client = container_of(done, struct control_client, receive.done);
	size_t from = client->used;

	(void)flags;
	client->receives = false;
	if (client->state == CONTROL_CLIENT_ENDS) {
		control_client_try_free(client);
		return;
	}
	if (res <= 0) {
		control_client_end(client);
		return;
	}
	client->used += (size_t)res;
	control_client_look(client, from);
}

/* --- answering ------------------------------------------------------------------------------- */

static void control_client_next(struct control_client *client)
{
	free(client->answer);
	client->answer = NULL;
	if (client->last) {
		control_client_end(client);
		return;
	}
	client->used -= client->line;
	memmove(client->bytes, client->bytes + client->line, client->used);
	client->line = 0;
	client->state = CONTROL_CLIENT_READS;
	control_client_set_deadline(client);
	control_client_look(client, 0);
}

static void control_client_transmit(struct control_client *client)
{
	client->iov = (struct iovec){client->answer + client->sent, client->length - client->sent};
	client->transmits = true;
	loop_transmit(
		control_client_loop(client), &client->transmit, &client->file, &client->iov, 1);
}

static void control_client_transmitted(struct done *done, int res, unsigned flags)
{
	struct control_client *client = container_of(done, struct control_client, transmit.done);

	(void)flags;
	client->transmits = false;
	if (client->state == CONTROL_CLIENT_ENDS) {
		control_client_try_free(client);
		return;
	}
	if (res < 0) {
		control_client_end(client);
		return;
	}
	client->sent += (size_t)res;
	if (client->sent < client->length)
		control_client_transmit(client);
	else
		control_client_next(client);
}

/* One line, or NULL: no memory. Frees ANSWER. */
static char *control_client_line(struct json_object *answer)
{
	const char *text = NULL;
	char *ret = NULL;

	if (answer) {
		json_object_object_add(answer, "version", json_object_new_int(CONTROL_VERSION));
		text = json_object_to_json_string_ext(
			answer, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	}
	if (text && asprintf(&ret, "%s\n", text) < 0)
		ret = NULL;
	json_object_put(answer);
	return ret;
}

void control_answer(struct control_client *client, struct json_object *answer)
{
	client->state = CONTROL_CLIENT_ANSWERS;
	client->answer = control_client_line(answer);
	client->length = client->answer ? strlen(client->answer) : 0;
	client->sent = 0;
	if (!client->answer) {
		control_client_end(client);
		return;
	}
	control_client_set_deadline(client);
	control_client_transmit(client);
}

void control_refuse(struct control_client *client, const char *format, ...)
{
	struct json_object *answer = json_object_new_object();
	char text[CHANGE_WHY_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_object_object_add(answer, "error", json_object_new_string(text));
	control_answer(client, answer);
}

void control_client_wait(struct control_client *client, struct control_work *work)
{
	client->state = CONTROL_CLIENT_WAITS;
	client->work = work;
	work->control = client->control;
	work->client = client;
}

struct control_client *control_work_over(struct control_work *work)
{
	struct control_client *client = work->client;

	work->client = NULL;
	if (client)
		client->work = NULL;
	return client;
}

/* --- start ----------------------------------------------------------------------------------- */

void control_client_start(struct control *control, int fd)
{
	struct loop *loop = control->target->loop;
	struct control_client *client = calloc(1, sizeof(*client));

	if (!client || loop_timers_reserve(loop, 1))
		goto close_fd;
	client->control = control;
	client->receive.done.fn = control_client_received;
	client->transmit.done.fn = control_client_transmitted;
	loop_timer_init(&client->deadline, control_client_expired);
	list_init(&client->node);
	if (loop_file_add(loop, &client->file, fd, LOOP_FILE_SOCKET))
		goto unreserve_timer;
	list_push_back(&control->clients, &client->node);
	control->nr_clients++;
	control_client_set_deadline(client);
	control_client_receive(client);
	return;

unreserve_timer:
	loop_timers_unreserve(loop, 1);
close_fd:
	free(client);
	close(fd);
}
