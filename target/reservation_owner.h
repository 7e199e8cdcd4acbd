/* SPDX-License-Identifier: MIT */
/*
 * Who has the reservations. Of each namespace, known by its UUID, the control thread has the state.
 * A command that may change it comes there as a message, from a request in EXEC; one after the
 * other they are decided, stored and brought to all reactors by a round
 * (target/reservation_visit.h), and only then answered. Those that have come while others were
 * stored are decided together and stored once. A reactor reads the state that its last visit has
 * left.
 *
 * What is stored keeps the control thread with the disk: it is done in turns of the hosts
 * (target/host_turns.h), at the expense of the one whose command is the first to be stored. Who
 * stores nothing waits for nobody's turn but at its own namespace.
 *
 * A namespace that is taken away and given back with its UUID has its reservation still.
 */
#ifndef HAUL_TARGET_RESERVATION_OWNER_H
#define HAUL_TARGET_RESERVATION_OWNER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/nvme/name.h"
#include "target/host_turns.h"
#include "target/publish.h"
#include "target/request_errand.h"
#include "target/reservation.h"
#include "target/revoke.h"
#include "target/round.h"
#include "target/state_dir.h"

struct catalog;
struct reactor;
struct request;
struct target;

#define RESERVATION_BUCKETS 256

struct reservation_table {
	struct state_dir state_dir;
	struct log_limit log; /* hosts may try again and again what cannot be stored */
	struct list buckets[RESERVATION_BUCKETS]; /* of struct reservation_owner */
};

struct reservation_owner {
	struct list node;
	struct reservation_table *table;
	struct nvme_uuid uuid;
	struct reservation *state; /* the control thread's; what it points to is constant */
	bool unsure;		   /* what is stored may be another one */
	struct list waiting;	   /* commands, the first is being done */
	uint32_t nr_decided;	   /* of them, at the start, that are stored already */
	struct loop_flush begin;   /* with the first */
	struct host_turn turn;	   /* at storing what they leave */
	struct loop_message turn_over;
	/* Each reactor's own: the state that counts there. */
	const struct reservation *seen[PUBLISH_MAX_PARTS];
};

/* A controller of a host, for the report. */
struct reservation_ctrl {
	uint8_t host[RESERVATION_HOST_BYTES];
	uint16_t cntlid;
};

struct reservation_task {
	struct reservation_owner *owner;
	struct request_errand errand;
	struct reservation_command command;
	bool report;	       /* instead of COMMAND: request->bytes is filled in */
	bool may_persist;      /* the namespace */
	struct share_key host; /* whose turn it is */
	/* At home again, the request not taken back. */
	void (*done)(struct request *request, uint16_t status);

	/* The owner's and, while it is visited, a reactor's. */
	struct list node; /* owner->waiting */
	struct round round;
	uint16_t status;
	struct reservation *before, *after; /* AFTER: NULL when STATUS is not 0 */
	struct reservation_effect effect;
	struct revoke revoke;		/* of commands of preempted hosts, on the reactor */
	struct reservation_ctrl *ctrls; /* for the report */
	uint32_t nr_ctrls, room;
};

/* --- on the control thread ------------------------------------------------------------------- */

/* PATH as for state_dir_open(). */
int reservation_table_create(
	struct reservation_table **ret, const char *path, char *why, size_t why_size) must_check;
/* NULL is good. No reactor is left. */
void reservation_table_free(struct reservation_table *table);

/* Gives each namespace of CATALOG, which is about to be published, its owner; reads what is stored
 * of those that are new. */
int reservation_adopt(struct reservation_table *table, const struct catalog *catalog, char *why,
	size_t why_size) must_check;

/* --- on a reactor ---------------------------------------------------------------------------- */

/* A task for REQUEST (CORE, with its namespace) that is given to the owner by
 * reservation_task_send(); NULL: no memory. */
struct reservation_task *reservation_task_create(struct request *request);
void reservation_task_send(struct reservation_task *task, struct request *request);

#endif
