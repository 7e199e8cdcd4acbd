/* SPDX-License-Identifier: MIT */
/*
 * Locks of ranges: their order at the owner, their visits to all reactors.
 */
#include "target/range_lock.h"

#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request.h"
#include "target/target.h"

static bool range_overlaps(const struct range *a, const struct range *b)
{
	return a->start < b->end && b->start < a->end;
}

static struct range range_of_io(const struct backend_io *io)
{
	uint64_t length = io->extent;

	if (io->op == BACKEND_FLUSH)
		length = 0;
	else if (io->op == BACKEND_READ || io->op == BACKEND_WRITE)
		length = io->length;
	return (struct range){.start = io->offset, .end = io->offset + length};
}

static bool range_meets_io(const struct range *range, const struct backend_io *io)
{
	struct range other = range_of_io(io);

	return range_overlaps(range, &other);
}

/* --- on each reactor ------------------------------------------------------------------------- */

static uint32_t range_entry_count_out(const struct range_entry *entry)
{
	const struct request *request;
	uint32_t nr = 0;

	list_for_each_entry (request, &entry->ns->out, node)
		nr += range_meets_io(&entry->range, &request->io);
	return nr;
}

static void range_lock_enter(struct round *round, struct reactor *reactor)
{
	struct range_lock *lock = container_of(round, struct range_lock, round);
	struct range_entry *entry = &lock->entries[reactor->index];
	struct reactor_ns *ns = reactor->namespaces[lock->index];

	*entry = (struct range_entry){.lock = lock, .ns = ns, .range = lock->range};
	if (!ns) {
		round_go_on(round);
		return;
	}
	reactor_ns_get(ns);
	list_init(&entry->held);
	list_init(&entry->node);
	list_push_back(&ns->locks, &entry->node);
	ns->gate |= REACTOR_NS_LOCKED;
	entry->nr_out = range_entry_count_out(entry);
	if (!entry->nr_out)
		round_go_on(round);
}

void range_lock_io_ended(const struct request *request)
{
	struct range_entry *entry, *after;

	/* What came after a lock has been held back: who meets it has been counted. */
	list_for_each_entry_safe (entry, after, &request->ns->locks, node)
		if (entry->nr_out && range_meets_io(&entry->range, &request->io) &&
			--entry->nr_out == 0)
			round_go_on(&entry->lock->round);
}

bool range_lock_holds_back(struct request *request)
{
	struct range_entry *entry;

	list_for_each_entry (entry, &request->ns->locks, node) {
		if (!range_meets_io(&entry->range, &request->io))
			continue;
		list_push_back(&entry->held, &request->node);
		return true;
	}
	return false;
}

bool range_lock_let_go(struct request *request)
{
	const struct range_entry *entry;
	const struct request *held;

	list_for_each_entry (entry, &request->ns->locks, node)
		list_for_each_entry (held, &entry->held, node)
			if (held == request) {
				list_remove(&request->node);
				return true;
			}
	return false;
}

static void range_lock_leave(struct round *round, struct reactor *reactor)
{
	struct range_lock *lock = container_of(round, struct range_lock, round);
	struct range_entry *entry = &lock->entries[reactor->index];
	struct reactor_ns *ns = entry->ns;
	struct list *node;

	if (ns) {
		list_remove(&entry->node);
		if (list_empty(&ns->locks))
			ns->gate &= ~REACTOR_NS_LOCKED;
		while ((node = list_pop_front(&entry->held)))
			request_resume_io(container_of(node, struct request, node));
		reactor_ns_put(ns);
	}
	round_go_on(round);
}

/* --- on the owner: one order for all --------------------------------------------------------- */

static struct reactor *range_lock_owner(const struct range_lock *lock)
{
	const struct target *target = lock->home->target;

	return target->reactors[lock->index % target->nr_reactors];
}

static void range_lock_entered_all(struct round *round)
{
	struct range_lock *lock = container_of(round, struct range_lock, round);

	lock->taken(lock);
}

/* Unless it has to wait for an earlier one. */
static void range_lock_try_grant(struct reactor *owner, struct range_lock *lock)
{
	struct range_lock *earlier;

	list_for_each_entry (earlier, &owner->range_locks, node) {
		if (earlier == lock)
			break;
		if (earlier->index == lock->index && range_overlaps(&earlier->range, &lock->range))
			return;
	}
	lock->granted = true;
	round_start(&lock->round, owner->target, lock->home->loop, range_lock_enter,
		range_lock_entered_all);
}

static void range_lock_arrive(struct loop_message *message)
{
	struct range_lock *lock = container_of(message, struct range_lock, message);
	struct reactor *owner = range_lock_owner(lock);

	list_push_back(&owner->range_locks, &lock->node);
	range_lock_try_grant(owner, lock);
}

static void range_lock_come_home(struct loop_message *message)
{
	struct range_lock *lock = container_of(message, struct range_lock, message);

	lock->released(lock);
}

/* Those that have waited for it may be next. */
static void range_lock_remove(struct reactor *owner, struct range_lock *lock)
{
	struct range_lock *other;

	list_remove(&lock->node);
	list_for_each_entry (other, &owner->range_locks, node)
		if (!other->granted && other->index == lock->index &&
			range_overlaps(&other->range, &lock->range))
			range_lock_try_grant(owner, other);
}

static void range_lock_left_all(struct round *round)
{
	struct range_lock *lock = container_of(round, struct range_lock, round);

	range_lock_remove(range_lock_owner(lock), lock);
	lock->message.fn = range_lock_come_home;
	loop_send(lock->home->loop, &lock->message);
}

/* --- cancelled: it follows the lock from home to the owner and from reactor to reactor ---------
 */

/* The lock has been here: messages of one thread keep their order. */
static void range_cancel_visit(struct round *round, struct reactor *reactor)
{
	struct range_cancel *cancel = container_of(round, struct range_cancel, round);
	struct range_entry *entry = &cancel->lock->entries[reactor->index];

	if (entry->nr_out) {
		entry->nr_out = 0;
		round_go_on(&cancel->lock->round);
	}
	round_go_on(round);
}

static void range_cancel_over(struct round *round)
{
	struct range_cancel *cancel = container_of(round, struct range_cancel, round);

	cancel->over(cancel);
}

static void range_cancel_come_home(struct loop_message *message)
{
	range_cancel_over(container_of(message, struct round, message));
}

static void range_cancel_arrive(struct loop_message *message)
{
	struct round *round = container_of(message, struct round, message);
	struct range_cancel *cancel = container_of(round, struct range_cancel, round);
	struct range_lock *lock = cancel->lock;
	struct reactor *owner = range_lock_owner(lock);

	cancel->never_taken = !lock->granted;
	if (lock->granted) {
		round_start(round, owner->target, lock->home->loop, range_cancel_visit,
			range_cancel_over);
		return;
	}
	range_lock_remove(owner, lock);
	message->fn = range_cancel_come_home;
	loop_send(lock->home->loop, message);
}

/* --- at home --------------------------------------------------------------------------------- */

void range_lock_take(struct range_lock *lock, struct reactor_ns *ns, struct range range)
{
	lock->range = range;
	lock->index = ns->ns.place->index;
	lock->home = ns->reactor;
	lock->granted = false;
	list_init(&lock->node);
	lock->message.fn = range_lock_arrive;
	loop_send(range_lock_owner(lock)->loop, &lock->message);
}

void range_lock_release(struct range_lock *lock)
{
	round_start(&lock->round, lock->home->target, range_lock_owner(lock)->loop,
		range_lock_leave, range_lock_left_all);
}

void range_lock_cancel(struct range_cancel *cancel)
{
	cancel->round.message.fn = range_cancel_arrive;
	loop_send(range_lock_owner(cancel->lock)->loop, &cancel->round.message);
}
