/* SPDX-License-Identifier: MIT */
/*
 * A client of the control socket: one request at a time, each a line; one line of answer. Bounded
 * in number, length and time. On the control thread.
 */
#ifndef HAUL_TARGET_CONTROL_CLIENT_H
#define HAUL_TARGET_CONTROL_CLIENT_H

#include <json-c/json.h>

#include "proto/base/list.h"
#include "proto/base/loop.h"

struct control;
struct control_client;

/* A client that asks again and again, and some that look now and then. */
#define CONTROL_MAX_CLIENTS 32
/* The longest configuration file, with what JSON makes of it. */
#define CONTROL_MAX_LINE    (4u << 20)

/* What a request needs that cannot be answered at once. CLIENT is NULL when it has left. */
struct control_work {
	struct control *control;
	struct control_client *client;
};

/* Takes FD, an accepted socket, even on failure. */
void control_client_start(struct control *control, int fd);
void control_client_end(struct control_client *client);
void control_client_end_all(struct control *control);

struct control *control_client_control(const struct control_client *client);

/* Its request is answered later; until then the client points to WORK. */
void control_client_wait(struct control_client *client, struct control_work *work);

/* Answers the request, of whose ANSWER it is the owner now. */
void control_answer(struct control_client *client, struct json_object *answer);
/* The same with an error. */
void control_refuse(struct control_client *client, const char *format, ...) printf_like(2, 3);
/* WORK is done: it and its client, if there still is one, have nothing to do with each other any
 * more. */
struct control_client *control_work_over(struct control_work *work);

#endif
