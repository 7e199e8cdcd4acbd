/* SPDX-License-Identifier: MIT */
/*
 * Associations are asked for, given and released by messages to the listener's reactor.
 */
#include "target/association.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/fabrics.h"
#include "target/conn.h"
#include "target/port.h"
#include "target/reactor.h"

/* A host that comes back at once may be here before we know that it had gone. */
#define ASSOCIATION_WAIT_NS 500000000ull

struct association {
	struct loop_message message; /* the ask, the answer, the release */
	struct list node;	     /* of HOME's: held or waiting */
	struct reactor *home;	     /* the listener's */
	struct reactor *reactor;     /* the admin queue's */
	struct request *request;     /* while it is asked for */
	void (*over)(struct request *request, struct association *association);
	bool granted;
	uint64_t until_ns; /* while it waits */
	/* Whose it is: of a listener that is a wildcard, each address is one by itself. */
	const struct port *port;
	char address[ADDRESS_TEXT];
	char subnqn[NVME_NQN_MAX + 1];
	char hostnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];
};

/* --- on the listener's reactor --------------------------------------------------------------- */

static bool association_is_same(const struct association *one, const struct association *other)
{
	return one->port == other->port && !strcmp(one->address, other->address) &&
	       !strcmp(one->subnqn, other->subnqn) && !strcmp(one->hostnqn, other->hostnqn) &&
	       !memcmp(one->hostid, other->hostid, sizeof(one->hostid));
}

static bool association_is_taken(const struct association *association)
{
	const struct association *other;

	list_for_each_entry (other, &association->home->associations.held, node)
		if (association_is_same(other, association))
			return true;
	return false;
}

static void association_answered(struct loop_message *message);

static void association_answer(struct association *association, bool granted)
{
	association->granted = granted;
	if (granted)
		list_push_back(&association->home->associations.held, &association->node);
	association->message.fn = association_answered;
	loop_send(association->reactor->loop, &association->message);
}

/* All wait for the same time: the first is the first to give up. */
static void association_arm(struct reactor *home)
{
	struct associations *all = &home->associations;
	struct list *first = all->waiting.next;

	if (list_empty(&all->waiting))
		loop_timer_cancel(home->loop, &all->timer);
	else
		loop_timer_set(home->loop, &all->timer,
			container_of(first, struct association, node)->until_ns);
}

static void association_asked(struct loop_message *message)
{
	struct association *association = container_of(message, struct association, message);
	struct reactor *home = association->home;

	if (!association_is_taken(association)) {
		association_answer(association, true);
		return;
	}
	association->until_ns = loop_now_ns(home->loop) + home->associations.wait_ns;
	list_push_back(&home->associations.waiting, &association->node);
	association_arm(home);
}

static void association_released(struct loop_message *message)
{
	struct association *gone = container_of(message, struct association, message);
	struct reactor *home = gone->home;
	struct association *waiting, *after;

	list_remove(&gone->node);
	free(gone);
	list_for_each_entry_safe (waiting, after, &home->associations.waiting, node) {
		if (association_is_taken(waiting))
			continue;
		list_remove(&waiting->node);
		association_answer(waiting, true);
	}
	association_arm(home);
}

static void association_expired(struct loop_timer *timer)
{
	struct reactor *home = container_of(timer, struct reactor, associations.timer);
	uint64_t now_ns = loop_now_ns(home->loop);
	struct association *waiting, *after;

	list_for_each_entry_safe (waiting, after, &home->associations.waiting, node) {
		if (waiting->until_ns > now_ns)
			break;
		list_remove(&waiting->node);
		association_answer(waiting, false);
	}
	association_arm(home);
}

void associations_init(struct associations *associations)
{
	list_init(&associations->held);
	list_init(&associations->waiting);
	loop_timer_init(&associations->timer, association_expired);
	associations->wait_ns = ASSOCIATION_WAIT_NS;
}

/* --- on the admin queue's -------------------------------------------------------------------- */

static void association_answered(struct loop_message *message)
{
	struct association *association = container_of(message, struct association, message);
	struct request *request = association->request;
	void (*over)(struct request * request, struct association * association) =
		association->over;

	if (!association->granted) {
		free(association);
		association = NULL;
	}
	over(request, association);
}

bool association_claim(struct request *request, const char *subnqn,
	void (*over)(struct request *request, struct association *association))
{
	struct association *association = calloc(1, sizeof(*association));
	const struct conn *conn = request->conn;

	if (!association)
		return false;
	list_init(&association->node);
	association->home = conn->port->reactor;
	association->reactor = conn->reactor;
	association->request = request;
	association->over = over;
	association->port = conn->port;
	address_format(&conn->local, association->address);
	snprintf(association->subnqn, sizeof(association->subnqn), "%s", subnqn);
	snprintf(association->hostnqn, sizeof(association->hostnqn), "%s", conn->hostnqn);
	memcpy(association->hostid, conn->hostid, sizeof(association->hostid));
	association->message.fn = association_asked;
	loop_send(association->home->loop, &association->message);
	return true;
}

void association_release(struct association *association)
{
	if (!association)
		return;
	association->message.fn = association_released;
	loop_send(association->home->loop, &association->message);
}
