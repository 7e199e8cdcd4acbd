/* SPDX-License-Identifier: MIT */
/*
 * Reservation commands at their namespace's owner, one at a time.
 */
#include "target/reservation_owner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request.h"
#include "target/reservation_report.h"
#include "target/reservation_store.h"
#include "target/reservation_visit.h"
#include "target/subsys.h"
#include "target/target.h"

static_assert(PUBLISH_MAX_PARTS == TARGET_MAX_REACTORS);

/* --- owners ---------------------------------------------------------------------------------- */

int reservation_table_create(
	struct reservation_table **ret, const char *path, char *why, size_t why_size)
{
	struct reservation_table *table = calloc(1, sizeof(*table));
	int error;

	if (!table)
		return -ENOMEM;
	for (unsigned i = 0; i < RESERVATION_BUCKETS; i++)
		list_init(&table->buckets[i]);
	error = state_dir_open(&table->state_dir, path, why, why_size);
	if (error) {
		state_dir_close(&table->state_dir);
		free(table);
		return error;
	}
	*ret = table;
	return 0;
}

static void reservation_owner_free(struct reservation_owner *owner)
{
	assert(list_empty(&owner->waiting));
	free(owner->state);
	free(owner);
}

void reservation_table_free(struct reservation_table *table)
{
	if (!table)
		return;
	for (unsigned i = 0; i < RESERVATION_BUCKETS; i++) {
		struct list *node;

		while ((node = list_pop_front(&table->buckets[i])))
			reservation_owner_free(container_of(node, struct reservation_owner, node));
	}
	state_dir_close(&table->state_dir);
	free(table);
}

static struct list *reservation_bucket(
	struct reservation_table *table, const struct nvme_uuid *uuid)
{
	uint8_t mixed = 0;

	for (unsigned i = 0; i < sizeof(uuid->b); i++)
		mixed = (uint8_t)(mixed * 31 + uuid->b[i]);
	return &table->buckets[mixed % RESERVATION_BUCKETS];
}

static struct reservation_owner *reservation_owner_find(
	struct reservation_table *table, const struct nvme_uuid *uuid)
{
	struct reservation_owner *owner;

	list_for_each_entry (owner, reservation_bucket(table, uuid), node)
		if (!memcmp(&owner->uuid, uuid, sizeof(*uuid)))
			return owner;
	return NULL;
}

static struct reservation_owner *reservation_owner_create(
	struct reservation_table *table, const struct nvme_uuid *uuid, struct reservation *state)
{
	struct reservation_owner *owner = calloc(1, sizeof(*owner));

	if (!owner)
		return NULL;
	owner->table = table;
	owner->uuid = *uuid;
	owner->state = state;
	list_init(&owner->waiting);
	list_init(&owner->node);
	for (unsigned i = 0; i < ARRAY_SIZE(owner->seen); i++)
		owner->seen[i] = state;
	list_push_back(reservation_bucket(table, uuid), &owner->node);
	return owner;
}

struct reservation_adoption {
	struct reservation_table *table;
	char *why;
	size_t why_size;
};

/* What is in memory only is lost with it: there a reservation that persists would promise too much.
 */
static bool reservation_may_persist(const struct reservation_table *table, const struct ns *ns)
{
	return state_dir_is_there(&table->state_dir) &&
	       !backend_is_memory(ns->place->backend->path);
}

static int reservation_adopt_one(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct reservation_adoption *adoption = context;
	struct reservation_table *table = adoption->table;
	struct reservation *state = NULL;
	int error = 0;

	(void)subsys;
	ns->may_persist = reservation_may_persist(table, ns);
	ns->reservation = reservation_owner_find(table, &ns->uuid);
	if (ns->reservation)
		return 0;
	if (ns->may_persist)
		error = reservation_store_load(
			&table->state_dir, &ns->uuid, &state, adoption->why, adoption->why_size);
	if (error)
		return error;
	if (!state)
		state = reservation_create(0);
	if (state)
		ns->reservation = reservation_owner_create(table, &ns->uuid, state);
	if (ns->reservation)
		return 0;
	free(state);
	return -ENOMEM;
}

int reservation_adopt(
	struct reservation_table *table, const struct catalog *catalog, char *why, size_t why_size)
{
	struct reservation_adoption adoption = {table, why, why_size};

	return catalog_for_each_ns(catalog, reservation_adopt_one, &adoption);
}

/* --- a command at its owner ------------------------------------------------------------------ */

static void reservation_start(struct reservation_owner *owner);

static void reservation_at_home(struct loop_message *message)
{
	struct reservation_task *task = container_of(message, struct reservation_task, message);
	struct request *request = task->request;
	void (*done)(struct request *, uint16_t) = task->done;
	uint16_t status = task->status;

	free(task);
	done(request, status);
}

/* The first of the owner's; then comes the next one. */
static void reservation_answer(struct reservation_task *task, uint16_t status)
{
	struct reservation_owner *owner = task->owner;

	task->status = status;
	list_remove(&task->node);
	task->message.fn = reservation_at_home;
	loop_send(task->home->loop, &task->message);
	if (!list_empty(&owner->waiting))
		reservation_start(owner);
}

/* All reactors know. */
static void reservation_visited(struct round *round)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);

	free(task->before);
	reservation_answer(task, 0);
}

static void reservation_report_ready(struct round *round)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);
	uint16_t status = task->status;

	if (!status)
		reservation_report_fill(task->owner->state, task->ctrls, task->nr_ctrls,
			task->request->bytes, task->request->data_len);
	free(task->ctrls);
	reservation_answer(task, status);
}

/* What a failure may have left is replaced by what counts (target/state_dir.h). */
static void reservation_store_again(
	struct reservation_owner *owner, const struct target *target, int error)
{
	struct reservation_table *table = owner->table;
	char text[NVME_UUID_TEXT];

	owner->unsure = reservation_store_save(&table->state_dir, &owner->uuid, owner->state) != 0;
	nvme_uuid_format(&owner->uuid, text);
	log_line_limited(&table->log, loop_now_ns(target->loop), LOG_LEVEL_ERROR,
		"the reservation of namespace %s cannot be stored in %s: %s%s", text,
		table->state_dir.path, strerror(-error),
		owner->unsure ? "; what is stored may not be what counts" : "");
}

/* Before anybody knows of the change. */
static uint16_t reservation_store(const struct reservation_task *task)
{
	struct reservation_owner *owner = task->owner;
	int error;

	if (!task->after->ptpl && !owner->state->ptpl && !owner->unsure)
		return 0;
	if (!task->may_persist)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	error = reservation_store_save(&owner->table->state_dir, &owner->uuid, task->after);
	if (error) {
		reservation_store_again(owner, task->home->target, error);
		return NVME_SC_INTERNAL;
	}
	owner->unsure = false;
	return 0;
}

static uint16_t reservation_decide(struct reservation_task *task)
{
	uint16_t status;

	task->after = reservation_copy(task->owner->state);
	if (!task->after)
		return NVME_SC_INTERNAL;
	status = reservation_apply(task->after, &task->command, &task->effect);
	if (!status)
		status = reservation_store(task);
	if (status)
		free(task->after);
	return status;
}

static void reservation_change(struct reservation_task *task)
{
	struct reservation_owner *owner = task->owner;
	struct target *target = task->home->target;
	uint16_t status = reservation_decide(task);

	if (status) {
		reservation_answer(task, status);
		return;
	}
	task->before = owner->state;
	owner->state = task->after;
	round_start(&task->round, target, target->loop, reservation_visit, reservation_visited);
}

static void reservation_start(struct reservation_owner *owner)
{
	struct reservation_task *task =
		container_of(owner->waiting.next, struct reservation_task, node);
	struct target *target = task->home->target;

	if (task->report)
		round_start(&task->round, target, target->loop, reservation_report_visit,
			reservation_report_ready);
	else
		reservation_change(task);
}

static void reservation_arrive(struct loop_message *message)
{
	struct reservation_task *task = container_of(message, struct reservation_task, message);
	struct reservation_owner *owner = task->owner;
	bool idle = list_empty(&owner->waiting);

	list_push_back(&owner->waiting, &task->node);
	if (idle)
		reservation_start(owner);
}

/* --- at the request's reactor ---------------------------------------------------------------- */

struct reservation_task *reservation_task_create(struct request *request)
{
	struct reservation_task *task = calloc(1, sizeof(*task));

	if (!task)
		return NULL;
	list_init(&task->node);
	task->request = request;
	task->home = request->conn->reactor;
	task->owner = request->ns->ns.reservation;
	task->may_persist = request->ns->ns.may_persist;
	memcpy(task->command.host, request->conn->hostid, sizeof(task->command.host));
	return task;
}

void reservation_task_send(struct reservation_task *task)
{
	request_hand_to(task->request, REQUEST_EXEC);
	task->message.fn = reservation_arrive;
	loop_send(task->home->target->loop, &task->message);
}
