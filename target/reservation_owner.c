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

/* Commands that are stored by one write; each holds a copy of the state until it is answered. */
#define RESERVATION_GROUP 64

static void reservation_begin(struct loop_flush *flush);
static void reservation_turn_has_come(struct host_turn *turn);
static void reservation_turn_is_over(struct loop_message *message);

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
	loop_flush_cancel(&owner->begin);
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
	loop_flush_init(&owner->begin, reservation_begin);
	owner->turn.begin = reservation_turn_has_come;
	owner->turn_over.fn = reservation_turn_is_over;
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

/* --- a group of commands is decided and stored ------------------------------------------------ */

/* Sets STATUS and, if that is 0, AFTER. */
static void reservation_decide(struct reservation_task *task, struct reservation *before)
{
	task->before = before;
	task->after = reservation_copy(before);
	task->status = NVME_SC_INTERNAL;
	if (!task->after)
		return;
	task->status = reservation_apply(task->after, &task->command, &task->effect);
	if (!task->status && (before->ptpl || task->after->ptpl) && !task->may_persist)
		task->status = NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	if (!task->status)
		return;
	free(task->after);
	task->after = NULL;
}

/* What a failure may have left is replaced by what counts (target/state_dir.h). */
static void reservation_store_again(struct reservation_owner *owner, struct loop *loop, int error)
{
	struct reservation_table *table = owner->table;
	char text[NVME_UUID_TEXT];

	owner->unsure = reservation_store_save(&table->state_dir, &owner->uuid, owner->state) != 0;
	nvme_uuid_format(&owner->uuid, text);
	log_line_limited(&table->log, loop_now_ns(loop), LOG_LEVEL_ERROR,
		"the reservation of namespace %s cannot be stored in %s: %s%s", text,
		table->state_dir.path, strerror(-error),
		owner->unsure ? "; what is stored may not be what counts" : "");
}

/* Before anybody knows of it. */
static bool reservation_store(
	struct reservation_owner *owner, const struct reservation *state, struct loop *loop)
{
	int error = reservation_store_save(&owner->table->state_dir, &owner->uuid, state);

	if (error)
		reservation_store_again(owner, loop, error);
	else
		owner->unsure = false;
	return !error;
}

/* None of the group has happened. */
static void reservation_undo_group(struct reservation_owner *owner)
{
	struct reservation_task *task;
	uint32_t left = owner->nr_decided;

	list_for_each_entry (task, &owner->waiting, node) {
		if (!left--)
			break;
		free(task->after);
		task->after = NULL;
		task->status = NVME_SC_INTERNAL;
	}
}

/* Each after the one before it; a report sees what those before it have left, and comes later. */
static void reservation_decide_group(struct reservation_owner *owner, struct loop *loop)
{
	struct reservation *state = owner->state;
	struct reservation_task *task;
	bool to_store = false;

	list_for_each_entry (task, &owner->waiting, node) {
		if (task->report || owner->nr_decided == RESERVATION_GROUP)
			break;
		reservation_decide(task, state);
		owner->nr_decided++;
		if (task->status)
			continue;
		to_store |= state->ptpl || task->after->ptpl || owner->unsure;
		state = task->after;
	}
	if (to_store && !reservation_store(owner, state, loop))
		reservation_undo_group(owner);
	else
		owner->state = state;
}

/* --- ... then brought to the reactors, one after the other ----------------------------------- */

static void reservation_back(struct request_errand *errand)
{
	struct reservation_task *task = container_of(errand, struct reservation_task, errand);
	struct request *request = errand->request;
	void (*done)(struct request *, uint16_t) = task->done;
	uint16_t status = task->status;

	free(task);
	done(request, status);
}

/* The first of the owner's; its own reactor frees it, maybe at once. */
static void reservation_answer(struct reservation_task *task)
{
	list_remove(&task->node);
	request_errand_return(&task->errand);
}

static void reservation_visited(struct round *round);

static void reservation_go_on(struct reservation_owner *owner, struct target *target)
{
	while (owner->nr_decided) {
		struct reservation_task *task =
			container_of(owner->waiting.next, struct reservation_task, node);

		owner->nr_decided--;
		if (!task->status) {
			round_start(&task->round, target, target->loop, reservation_visit,
				reservation_visited);
			return;
		}
		reservation_answer(task);
	}
	if (!list_empty(&owner->waiting))
		loop_flush_later(target->loop, &owner->begin);
}

/* All reactors know. */
static void reservation_visited(struct round *round)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);
	struct reservation_owner *owner = task->owner;
	struct target *target = round->target;

	free(task->before);
	reservation_answer(task);
	reservation_go_on(owner, target);
}

static void reservation_report_ready(struct round *round)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);
	struct reservation_owner *owner = task->owner;
	const struct request *request = task->errand.request;
	struct target *target = round->target;

	if (!task->status)
		reservation_report_fill(owner->state, task->ctrls, task->nr_ctrls, request->bytes,
			request->data_len);
	free(task->ctrls);
	reservation_answer(task);
	reservation_go_on(owner, target);
}

static struct reservation_task *reservation_first(const struct reservation_owner *owner)
{
	return container_of(owner->waiting.next, struct reservation_task, node);
}

/* What waits may have to be stored. */
static bool reservation_may_store(const struct reservation_owner *owner)
{
	const struct reservation_task *task;

	if (owner->state->ptpl || owner->unsure)
		return true;
	list_for_each_entry (task, &owner->waiting, node)
		if (task->may_persist && task->command.cptpl == RESERVATION_CPTPL_SET)
			return true;
	return false;
}

/* All that have come meanwhile are of the group. */
static void reservation_turn_has_come(struct host_turn *turn)
{
	struct reservation_owner *owner = container_of(turn, struct reservation_owner, turn);
	struct target *target = reservation_first(owner)->errand.home->target;

	reservation_decide_group(owner, target->loop);
	loop_send(target->loop, &owner->turn_over);
}

/* The loop has turned since: it knows how long that took, and others have been served. */
static void reservation_turn_is_over(struct loop_message *message)
{
	struct reservation_owner *owner =
		container_of(message, struct reservation_owner, turn_over);
	struct target *target = reservation_first(owner)->errand.home->target;

	reservation_go_on(owner, target);
	host_turns_over(&target->reservation_turns, &owner->turn);
}

/* At the end of a turn, so that all that have come in it are one group. */
static void reservation_begin(struct loop_flush *flush)
{
	struct reservation_owner *owner = container_of(flush, struct reservation_owner, begin);
	struct reservation_task *task = reservation_first(owner);
	struct target *target = task->errand.home->target;

	if (task->report) {
		round_start(&task->round, target, target->loop, reservation_report_visit,
			reservation_report_ready);
		return;
	}
	if (reservation_may_store(owner)) {
		owner->turn.host = task->host;
		host_turns_ask(&target->reservation_turns, &owner->turn);
		return;
	}
	reservation_decide_group(owner, target->loop);
	reservation_go_on(owner, target);
}

static void reservation_arrive(struct request_errand *errand)
{
	struct reservation_task *task = container_of(errand, struct reservation_task, errand);
	struct reservation_owner *owner = task->owner;
	bool idle = list_empty(&owner->waiting);

	list_push_back(&owner->waiting, &task->node);
	if (idle)
		loop_flush_later(errand->home->target->loop, &owner->begin);
}

/* --- at the request's reactor ---------------------------------------------------------------- */

struct reservation_task *reservation_task_create(struct request *request)
{
	struct reservation_task *task = calloc(1, sizeof(*task));

	if (!task)
		return NULL;
	list_init(&task->node);
	task->owner = request->ns->ns.reservation;
	task->may_persist = request->ns->ns.may_persist;
	task->host = request->conn->share->key;
	memcpy(task->command.host, request->conn->hostid, sizeof(task->command.host));
	return task;
}

void reservation_task_send(struct reservation_task *task, struct request *request)
{
	request_errand_send(&task->errand, request, reservation_arrive, reservation_back);
}
