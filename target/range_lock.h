/* SPDX-License-Identifier: MIT */
/*
 * The lock of a range of a namespace: while it is held no other command's I/O touches the range, on
 * any reactor. That makes a read and a write of it one atomic step. It costs nothing when no lock
 * is held of a namespace but one test of its gate.
 *
 * Locks that overlap have one order, that of their arrival at the namespace's owner (a reactor like
 * others), so that two hosts never wait for each other. A lock that is granted visits each reactor:
 * there it enters the range, so that I/O from now on waits, and goes on when the overlapping I/O
 * that was out is over. Its end visits them again and lets go what has waited. Reads wait, too:
 * none sees half of what the holder writes.
 *
 * What waits for a lock is in EXEC, as what a disk has: the holder is done at the speed of disks,
 * whatever its host does, for it has all its data before it asks.
 */
#ifndef HAUL_TARGET_RANGE_LOCK_H
#define HAUL_TARGET_RANGE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "target/round.h"

struct reactor;
struct reactor_ns;
struct request;

struct range {
	uint64_t start; /* bytes */
	uint64_t end;	/* the first one behind it */
};

/* A lock as one reactor knows it; that reactor's alone. */
struct range_entry {
	struct list node; /* reactor_ns->locks */
	struct range_lock *lock;
	struct reactor_ns *ns; /* NULL: the namespace is not on this reactor */
	struct range range;
	struct list held; /* requests that wait for its end */
	uint32_t nr_out;  /* I/Os that it waits for */
};

struct range_lock {
	struct range range;
	uint32_t index; /* place->index of the namespace */
	struct reactor *home;
	void (*taken)(struct range_lock *lock);	   /* at home: the range is the holder's */
	void (*released)(struct range_lock *lock); /* at home: LOCK is the caller's again */

	struct loop_message message; /* between home and owner */
	struct round round;
	struct list node;	      /* the owner's range_locks */
	bool granted;		      /* the owner's */
	struct range_entry entries[]; /* by reactor */
};

/* Bytes of a lock in a target of so many reactors. */
static inline uint32_t range_lock_size(uint32_t nr_reactors)
{
	return (uint32_t)(sizeof(struct range_lock) + nr_reactors * sizeof(struct range_entry));
}

/*
 * At home: asks for a range of NS, which a request of the caller refers to until RELEASED. LOCK has
 * range_lock_size() bytes and both functions set; it must not move. The holder's I/O goes to the
 * backend directly, not through request_submit().
 */
void range_lock_take(struct range_lock *lock, struct reactor_ns *ns, struct range range);
/* At home, after TAKEN. */
void range_lock_release(struct range_lock *lock);

/*
 * At home, before TAKEN: nothing is waited for any more. Either OVER comes alone, with NEVER_TAKEN,
 * and LOCK is the caller's again; or TAKEN and OVER come, in any order, and the range is not to be
 * touched (for I/O may be out), but to be released. LOCK must stay until OVER.
 */
struct range_cancel {
	struct range_lock *lock;
	struct round round;
	bool never_taken;
	void (*over)(struct range_cancel *cancel);
};
void range_lock_cancel(struct range_cancel *cancel);

/* --- for request.c, when the namespace's gate says so ---------------------------------------- */

/* True: REQUEST (in EXEC) waits for a lock's end; then request_resume_io() is called. */
bool range_lock_holds_back(struct request *request);
/* True: it has waited, and does not any more; nothing has been called. */
bool range_lock_let_go(struct request *request);
/* The I/O of REQUEST is over. */
void range_lock_io_ended(const struct request *request);

#endif
