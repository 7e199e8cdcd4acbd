/* SPDX-License-Identifier: MIT */
/*
 * In-band authentication of a connection (NVMe base 2.0 8.13): the commands, the order of messages,
 * deadlines. A host that has a key here proves on each queue that it knows it; until then the queue
 * is not connected and nothing but authentication is answered. It may do so again at any time,
 * which takes nothing away unless it fails. A transaction exists from Connect, or from Negotiate,
 * to its end; what is secret, or takes long, is the control thread's (target/auth_private.h).
 */
#ifndef HAUL_TARGET_AUTH_H
#define HAUL_TARGET_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/compiler.h"

struct auth;
struct cmd;
struct conn;
struct request;

struct conn_auth {
	struct auth *transaction; /* NULL: none is under way */
	bool required;		  /* at Connect the host had a key */
	bool due;		  /* Connect has succeeded but for the proof */
	/* Of the last that has succeeded. */
	bool both_ways;
	uint8_t hash; /* 0: none has */
	uint8_t group;
};

/* Rows for cmd_fabrics_find(). */
extern const struct cmd cmd_auth_send;
extern const struct cmd cmd_auth_receive;

/* Connect has been accepted but for the proof. -ENOMEM. */
int auth_begin(struct conn *conn) must_check;
/* The connection is freed, and no request of it is out. */
void auth_forget(struct conn *conn);

#endif
