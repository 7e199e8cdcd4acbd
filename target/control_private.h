/* SPDX-License-Identifier: MIT */
/*
 * What the files of the control socket share.
 */
#ifndef HAUL_TARGET_CONTROL_PRIVATE_H
#define HAUL_TARGET_CONTROL_PRIVATE_H

#include <sys/stat.h>
#include <sys/un.h>

#include "target/change.h"
#include "target/control.h"
#include "target/control_ana_end.h"
#include "target/control_client.h"
#include "target/control_sizes.h"

#define CONTROL_VERSION 1

struct control {
	struct target *target;
	const char *config_file; /* NULL: none */
	bool reloads;		 /* it is being read again */
	bool closing;
	uint64_t start_ns;

	int fd; /* -1: no socket */
	struct sockaddr_un address;
	struct stat node; /* what it is in the file system */
	struct loop_poll poll;
	struct loop_timer rest; /* until descriptors may be there again */

	struct list clients; /* of struct control_client */
	uint32_t nr_clients;
	struct list statuses; /* of struct status, being gathered */
	struct control_sizes sizes;
	struct control_ana_end ana_end;
};

/* The rows of the table of requests. REQUEST is the caller's. */
void control_status(struct control_client *client, struct json_object *request);
void control_apply(struct control_client *client, struct json_object *request);
void control_ana(struct control_client *client, struct json_object *request);
void control_config(struct control_client *client, struct json_object *request);

/* Answers the line of LENGTH bytes that CLIENT has sent, now or later. */
void control_request(struct control_client *client, const char *line, size_t length);

/* Rounds that will not come home any more. */
void control_status_forget(struct control *control);

#endif
