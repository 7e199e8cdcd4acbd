/* SPDX-License-Identifier: MIT */
/*
 * Brings a change of write protection to the control thread and home again, then waits for what
 * still writes and flushes it.
 */
#include "target/write_protect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/change.h"
#include "target/cmd.h"
#include "target/cmd_io.h"
#include "target/conn.h"
#include "target/range_lock.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request_errand.h"
#include "target/reservation_owner.h"
#include "target/target.h"
#include "target/view.h"
#include "target/write_protect_store.h"

struct write_protect {
	struct host_turn turn; /* the control thread's, as what follows */
	struct change change;
	struct request_errand errand;
	struct target *target;
	char nqn[NVME_NQN_MAX + 1];
	char hostnqn[NVME_NQN_MAX + 1]; /* only what it sees is meant */
	uint32_t nsid;			/* or NVME_NSID_ALL */
	uint8_t wanted;			/* NVME_WRITE_PROTECT_NONE or _SET */
	bool stored;			/* or tried to */
	uint16_t status;
	uint32_t next; /* namespace to be flushed, of all */
	struct backend_io io;
	struct range_lock lock; /* with its entries, at the end */
};

/* --- states ---------------------------------------------------------------------------------- */

static uint8_t write_protect_state(const struct ns *ns)
{
	return ns->read_only ? NVME_WRITE_PROTECT_SET : NVME_WRITE_PROTECT_NONE;
}

static void write_protect_enter(struct ns *ns, bool protect)
{
	ns->write_protected = protect;
	ns->read_only = ns->always_read_only || protect;
}

void write_protect_take_over(struct ns *ns, const struct ns *before)
{
	/* What is stored is another one's. */
	if (memcmp(&ns->uuid, &before->uuid, sizeof(ns->uuid)))
		return;
	write_protect_enter(ns, before->write_protected);
	ns->write_protect_known = before->write_protect_known;
}

bool write_protect_offered(const struct target *target)
{
	return target->reservations && state_dir_is_there(&target->reservations->state_dir);
}

struct write_protect_adoption {
	const struct state_dir *dir;
	char *why;
	size_t why_size;
};

static int write_protect_adopt_one(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct write_protect_adoption *adoption = context;
	int found;

	if (ns->write_protect_known)
		return 0;
	found = write_protect_store_load(adoption->dir, &ns->uuid);
	if (found > 0)
		write_protect_enter(ns, true);
	ns->write_protect_known = found >= 0;
	if (found < 0)
		snprintf(adoption->why, adoption->why_size,
			"whether namespace %u of %s is write-protected cannot be read: %s",
			ns->nsid, subsys->nqn, strerror(-found));
	return min_of(found, 0);
}

int write_protect_adopt(
	struct reservation_table *table, const struct catalog *catalog, char *why, size_t why_size)
{
	struct write_protect_adoption adoption = {&table->state_dir, why, why_size};

	return catalog_for_each_ns(catalog, write_protect_adopt_one, &adoption);
}

uint32_t write_protect_get(const struct request *request, uint32_t nsid)
{
	return write_protect_state(subsys_ns(request->conn->subsys, nsid));
}

/* What the configuration protects no host changes. */
static uint16_t write_protect_check(const struct ns *ns, uint8_t wanted)
{
	if (write_protect_state(ns) == wanted || !ns->always_read_only)
		return 0;
	return NVME_SC_FEATURE_NOT_CHANGEABLE | NVME_STATUS_DNR;
}

/* --- on the control thread ------------------------------------------------------------------- */

static bool write_protect_means(const struct write_protect *protect, const struct ns *ns)
{
	return ns && (protect->nsid == NVME_NSID_ALL || protect->nsid == ns->nsid) &&
	       view_has(ns, protect->hostnqn);
}

/* The number of namespaces that have to change; the status when one must not. */
static uint32_t write_protect_count(struct write_protect *protect, const struct subsys *subsys)
{
	uint32_t nr = 0, nr_meant = 0;

	for (uint32_t nsid = 1; subsys && nsid < subsys->ns_limit; nsid++) {
		const struct ns *ns = subsys->ns[nsid];

		if (!write_protect_means(protect, ns))
			continue;
		nr_meant++;
		nr += write_protect_state(ns) != protect->wanted;
		if (!protect->status)
			protect->status = write_protect_check(ns, protect->wanted);
	}
	if (!nr_meant && protect->nsid != NVME_NSID_ALL)
		protect->status = CMD_INVALID_FIELD;
	return protect->status ? 0 : nr;
}

static bool write_protect_is_stored(const struct ns *ns)
{
	return ns && ns->write_protected;
}

/* As CATALOG has it, where that is not as it was BEFORE; NULL: all. */
static int write_protect_save(const struct write_protect *protect, const struct catalog *catalog,
	const struct catalog *before)
{
	const struct state_dir *dir = &protect->target->reservations->state_dir;
	const struct subsys *subsys = catalog_find(catalog, protect->nqn);
	const struct subsys *then = before ? catalog_find(before, protect->nqn) : NULL;
	int error = 0;

	for (uint32_t nsid = 1; !error && subsys && nsid < subsys->ns_limit; nsid++) {
		const struct ns *ns = subsys->ns[nsid];
		bool stored = write_protect_is_stored(ns);

		if (!write_protect_means(protect, ns) ||
			(then && write_protect_is_stored(subsys_ns(then, nsid)) == stored))
			continue;
		error = write_protect_store_save(dir, &ns->uuid, stored);
	}
	return error;
}

/* Stored before it counts: what a host was told stays true. */
static int write_protect_make(struct change *change, const struct catalog *now,
	struct catalog **ret, char *why, size_t why_size)
{
	struct write_protect *protect = container_of(change, struct write_protect, change);
	const struct subsys *subsys = catalog_find(now, protect->nqn);
	int error;

	if (!write_protect_count(protect, subsys))
		return 0;
	*ret = catalog_clone(now);
	if (!*ret) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	subsys = catalog_find(*ret, protect->nqn);
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
		if (write_protect_means(protect, subsys->ns[nsid]))
			write_protect_enter(
				subsys->ns[nsid], protect->wanted == NVME_WRITE_PROTECT_SET);
	protect->stored = true;
	error = write_protect_save(protect, *ret, now);
	if (error) {
		snprintf(why, why_size, "write protection cannot be stored: %s", strerror(-error));
		catalog_free(*ret);
		*ret = NULL;
	}
	return error;
}

static void write_protect_over(struct change *change, int error, const char *why)
{
	struct write_protect *protect = container_of(change, struct write_protect, change);
	const struct target *target = protect->target;

	if (error) {
		bool differs =
			protect->stored && write_protect_save(protect, target->catalog, NULL);

		log_line_limited(&target->reservations->log, loop_now_ns(target->loop),
			LOG_LEVEL_WARNING, "%s: %s%s", protect->nqn, why,
			differs ? "; what is stored may not be what counts" : "");
		protect->status = NVME_SC_INTERNAL;
	}
	host_turns_over(&protect->target->host_turns, &protect->turn);
	request_errand_return(&protect->errand);
}

static void write_protect_begin(struct host_turn *turn)
{
	struct write_protect *protect = container_of(turn, struct write_protect, turn);

	protect->change.make = write_protect_make;
	protect->change.over = write_protect_over;
	change_ask(&protect->target->changes, &protect->change);
}

/* A host could keep this thread with the disk for ever. */
static void write_protect_arrive(struct request_errand *errand)
{
	struct write_protect *protect = container_of(errand, struct write_protect, errand);

	protect->turn.begin = write_protect_begin;
	host_turns_ask(&protect->target->host_turns, &protect->turn);
}

/* --- at home --------------------------------------------------------------------------------- */

static void write_protect_end(struct write_protect *protect)
{
	struct request *request = protect->errand.request;
	uint16_t status = protect->status;

	free(protect);
	if (request_executed(request))
		request_complete(request, status);
}

static void write_protect_flush_next(struct write_protect *protect);

static void write_protect_released(struct range_lock *lock)
{
	write_protect_flush_next(container_of(lock, struct write_protect, lock));
}

/* What cannot be flushed is lost with or without protection; the host hears of it. */
static void write_protect_flushed(struct done *done, int res, unsigned flags)
{
	struct write_protect *protect = container_of(done, struct write_protect, io.done);

	(void)flags;
	if (res)
		protect->status = nvme_status_from_errno(res, true);
	range_lock_release(&protect->lock);
}

static void write_protect_taken(struct range_lock *lock)
{
	struct write_protect *protect = container_of(lock, struct write_protect, lock);
	struct backend_queue *queue = protect->errand.request->ns->queue;

	protect->io.op = BACKEND_FLUSH;
	protect->io.done.fn = write_protect_flushed;
	queue->ops->submit(queue, &protect->io);
}

/* With all of it locked nothing is with the disk, on any reactor. */
static void write_protect_flush_next(struct write_protect *protect)
{
	struct request *request = protect->errand.request;
	const struct conn *conn = request->conn;
	const struct subsys *subsys = conn->subsys;
	struct reactor_ns *ns;

	while (protect->next < subsys->ns_limit &&
		!write_protect_means(protect, subsys->ns[protect->next]))
		protect->next++;
	if (protect->next >= subsys->ns_limit) {
		write_protect_end(protect);
		return;
	}
	ns = reactor_ns_find(conn->reactor, subsys, protect->next++);
	request_set_ns(request, ns);
	protect->lock.taken = write_protect_taken;
	protect->lock.released = write_protect_released;
	range_lock_take(&protect->lock, ns, (struct range){.start = 0, .end = UINT64_MAX});
}

static void write_protect_back(struct request_errand *errand)
{
	struct write_protect *protect = container_of(errand, struct write_protect, errand);

	if (!protect->status && protect->wanted != NVME_WRITE_PROTECT_NONE)
		write_protect_flush_next(protect);
	else
		write_protect_end(protect);
}

/* --- the command ----------------------------------------------------------------------------- */

static struct write_protect *write_protect_new(struct request *request, uint8_t wanted)
{
	struct reactor *reactor = request->conn->reactor;
	size_t size = offsetof(struct write_protect, lock) +
		      range_lock_size(reactor->target->nr_reactors);
	struct write_protect *protect = calloc(1, max_of(size, sizeof(*protect)));

	if (!protect)
		return NULL;
	protect->target = reactor->target;
	protect->turn.host = request->conn->share->key;
	protect->nsid = le32_get(request->cmd.nsid);
	protect->wanted = wanted;
	protect->next = 1;
	snprintf(protect->nqn, sizeof(protect->nqn), "%s", request->conn->subsys->nqn);
	snprintf(protect->hostnqn, sizeof(protect->hostnqn), "%s", request->conn->hostnqn);
	return protect;
}

void write_protect_set(struct request *request)
{
	uint32_t wanted = le32_get(request->cmd.features.cdw11) & NVME_WRITE_PROTECT_MASK;
	struct write_protect *protect;

	/* The other states need a Replay Protected Memory Block (8.12.1). */
	if (wanted > NVME_WRITE_PROTECT_SET) {
		request_complete(request, CMD_INVALID_FIELD);
		return;
	}
	protect = write_protect_new(request, (uint8_t)wanted);
	if (!protect) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	request_errand_send(&protect->errand, request, write_protect_arrive, write_protect_back);
}
