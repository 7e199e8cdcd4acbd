/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes requests of the control socket: a line of JSON, up to the change that it asks for, which
 * always fails here. Each request is answered once.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/config_text.h"
#include "target/control_json.h"
#include "target/control_private.h"
#include "target/target.h"
#include "tests/fuzz/fuzz.h"

struct control_client {
	struct control control;
	struct control_work *work;
	unsigned nr_answers;
};

/* --- in place of target/control_client.c, change.c, control_status.c, control_config.c ---------
 */

struct control *__wrap_control_client_control(const struct control_client *client);
void __wrap_control_answer(struct control_client *client, struct json_object *answer);
void __wrap_control_refuse(struct control_client *client, const char *format, ...)
	printf_like(2, 3);
void __wrap_control_client_wait(struct control_client *client, struct control_work *work);
struct control_client *__wrap_control_work_over(struct control_work *work);
void __wrap_change_ask(struct change_queue *queue, struct change *change);
void __wrap_control_status(struct control_client *client, struct json_object *request);
void __wrap_control_config(struct control_client *client, struct json_object *request);

struct control *__wrap_control_client_control(const struct control_client *client)
{
	return (struct control *)(uintptr_t)&client->control;
}

void __wrap_control_answer(struct control_client *client, struct json_object *answer)
{
	client->nr_answers++;
	json_object_put(answer);
}

void __wrap_control_refuse(struct control_client *client, const char *format, ...)
{
	char text[CHANGE_WHY_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	assert(text[0] && !strchr(text, '\n'));
	client->nr_answers++;
}

void __wrap_control_client_wait(struct control_client *client, struct control_work *work)
{
	assert(!client->nr_answers && !client->work);
	client->work = work;
	work->control = &client->control;
	work->client = client;
}

struct control_client *__wrap_control_work_over(struct control_work *work)
{
	struct control_client *client = work->client;

	assert(client && client->work == work);
	client->work = NULL;
	return client;
}

/* The real one never calls it at once; but nobody looks at CHANGE after having asked. */
void __wrap_change_ask(struct change_queue *queue, struct change *change)
{
	(void)queue;
	assert(change->make && change->over);
	change->over(change, -EIO, "the fuzzer changes nothing");
}

void __wrap_control_status(struct control_client *client, struct json_object *request)
{
	(void)request;
	client->nr_answers++;
}

void __wrap_control_config(struct control_client *client, struct json_object *request)
{
	(void)request;
	client->nr_answers++;
}

/* --------------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static struct target target = {.publish.failed_port = UINT32_MAX};
	struct control_client client = {.control.target = &target};
	char *line = malloc(size + 1);

	if (!line)
		return 0;
	memcpy(line, input, size);
	line[size] = '\0';
	control_request(&client, line, size);
	assert(client.nr_answers == 1 && !client.work);
	free(line);
	return 0;
}
