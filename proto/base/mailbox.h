/* SPDX-License-Identifier: MIT */
/*
 * The mailbox of a loop: many threads post, the loop's thread takes. A stack that is taken as a
 * whole and turned round, so that posting is one compare-and-swap and nobody ever waits. Posting
 * costs a system call only when the loop sleeps.
 */
#ifndef HAUL_BASE_MAILBOX_H
#define HAUL_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proto/base/compiler.h"
#include "proto/base/loop.h"

struct mailbox {
	/* Written by all posting threads and the loop's thread. */
	_Atomic(struct loop_message *) posted cache_aligned;
	/* Set by the loop's thread before it sleeps, cleared by it or by who wakes it. */
	atomic_bool sleeping;
	/* The loop's thread only: taken, oldest first, not yet delivered. */
	struct loop_message *taken cache_aligned;
	struct loop_message **taken_end;
	int event_fd; /* readable when somebody woke the loop */
};

int mailbox_init(struct mailbox *mailbox) must_check;
void mailbox_destroy(struct mailbox *mailbox);

/* Any thread. Returns whether the loop had to be woken. */
bool mailbox_post(struct mailbox *mailbox, struct loop_message *message);

/* The loop's thread. Calls at most BUDGET messages and returns how many. */
uint32_t mailbox_deliver(struct mailbox *mailbox, uint32_t budget);

/* The loop's thread. True: nothing is there, and whatever is posted from now on wakes. */
bool mailbox_sleep(struct mailbox *mailbox);
void mailbox_awake(struct mailbox *mailbox);
/* Resets EVENT_FD. */
void mailbox_drain(struct mailbox *mailbox);

#endif
