/* SPDX-License-Identifier: MIT */
/*
 * A reactor's table of namespaces follows the catalog.
 */
#include "target/reactor_ns.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/nvme/status.h"
#include "target/catalog.h"
#include "target/reactor.h"
#include "target/reservation_visit.h"
#include "target/smart_past.h"
#include "target/target.h"

struct reactor_ns *reactor_ns_find(
	const struct reactor *reactor, const struct subsys *subsys, uint32_t nsid)
{
	const struct ns *ns = subsys_ns(subsys, nsid);

	return ns ? reactor->namespaces[ns->place->index] : NULL;
}

void reactor_ns_count_error(struct reactor_ns *ns, uint16_t status)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	if (code >= NVME_SC_WRITE_FAULT && code <= NVME_SC_REFTAG_CHECK)
		ns->sum.nr_media_errors++;
}

void reactor_ns_note_refused_write(struct reactor_ns *ns)
{
	ns->tell_read_only |= !reactor_ns_turned_read_only(ns);
	ns->refused_write = true;
	ns->writes_then = ns->sum.counts[NS_COUNT_WRITE].commands;
}

/* It may outlive the catalog. */
static void reactor_ns_describe(struct reactor_ns *here, const struct ns *ns)
{
	here->ns = *ns;
	here->ns.hosts = NULL;
}

/* --- attach and undo ------------------------------------------------------------------------- */

static int reactor_ns_attach_one(void *context, struct subsys *subsys, struct ns *ns)
{
	struct reactor *reactor = context;
	struct backend *backend = ns->place->backend;
	struct reactor_ns *here;
	int error;

	(void)subsys;
	if (reactor->namespaces[ns->place->index])
		return 0;
	here = calloc(1, sizeof(*here));
	if (!here)
		return -ENOMEM;
	here->reactor = reactor;
	reactor_ns_describe(here, ns);
	list_init(&here->out);
	list_init(&here->locks);
	reservation_set_gate(here);
	error = backend->ops->attach(backend, reactor->loop, &here->queue);
	if (error) {
		free(here);
		return error;
	}
	reactor->namespaces[ns->place->index] = here;
	return 0;
}

int reactor_ns_attach(struct reactor *reactor, const struct catalog *catalog)
{
	int error = catalog_for_each_ns(catalog, reactor_ns_attach_one, reactor);

	if (error)
		reactor_ns_abandon(reactor, catalog);
	return error;
}

static int reactor_ns_abandon_one(void *context, struct subsys *subsys, struct ns *ns)
{
	struct reactor *reactor = context;
	struct reactor_ns *here = reactor->namespaces[ns->place->index];

	(void)subsys;
	if (!here || here->generation)
		return 0;
	reactor->namespaces[ns->place->index] = NULL;
	here->queue->ops->detach(here->queue);
	free(here);
	return 0;
}

void reactor_ns_abandon(struct reactor *reactor, const struct catalog *catalog)
{
	(void)catalog_for_each_ns(catalog, reactor_ns_abandon_one, reactor);
}

/* --- switch ---------------------------------------------------------------------------------- */

/* On the control thread. */
static void reactor_ns_gone(struct loop_message *message)
{
	struct reactor_ns *here = container_of(message, struct reactor_ns, gone);

	ns_place_put(here->ns.place);
	free(here);
}

void reactor_ns_unused(struct reactor_ns *here)
{
	smart_past_keep_rest(here->past, here);
	here->queue->ops->detach(here->queue);
	here->gone.fn = reactor_ns_gone;
	loop_send(here->reactor->target->loop, &here->gone);
}

/* To others than before: what they have seen stays theirs. The catalog before is there still. */
static void reactor_ns_show(
	struct reactor_ns *here, const struct subsys *subsys, const struct host_list *hosts)
{
	const struct host_list *before = here->seen_by;

	if (here->generation && (!before != !hosts || (hosts && !host_list_is_same(before, hosts))))
		(void)smart_past_keep(here->reactor, subsys->nqn, before, here);
	here->seen_by = hosts;
}

static int reactor_ns_take_over(void *context, struct subsys *subsys, struct ns *ns)
{
	struct reactor *reactor = context;
	struct reactor_ns *here = reactor->namespaces[ns->place->index];

	reactor_ns_show(here, subsys, ns->hosts);
	reactor_ns_describe(here, ns);
	here->gate &= ~(REACTOR_NS_ANA | REACTOR_NS_WRITE_PROTECTED | REACTOR_NS_NARROWS);
	if (ns->write_protected)
		here->gate |= REACTOR_NS_WRITE_PROTECTED;
	if (ana_restricts(subsys, ns->ana_group))
		here->gate |= REACTOR_NS_ANA;
	reservation_set_gate(here);
	here->generation = reactor->catalog->generation;
	return 0;
}

static int reactor_ns_let_go(void *context, struct subsys *subsys, struct ns *ns)
{
	struct reactor *reactor = context;
	struct reactor_ns *here = reactor->namespaces[ns->place->index];

	if (!here || here->generation == reactor->catalog->generation)
		return 0;
	reactor->namespaces[ns->place->index] = NULL;
	here->past = smart_past_keep(reactor, subsys->nqn, ns->hosts, here);
	here->removed = true;
	if (!here->nr_requests)
		reactor_ns_unused(here);
	return 0;
}

void reactor_ns_switch(struct reactor *reactor, const struct catalog *catalog)
{
	const struct catalog *previous = reactor->catalog;

	reactor->catalog = catalog;
	view_hide_switched(&reactor->hide);
	(void)catalog_for_each_ns(catalog, reactor_ns_take_over, reactor);
	(void)catalog_for_each_ns(previous, reactor_ns_let_go, reactor);
}

static int reactor_ns_detach_one(void *context, struct subsys *subsys, struct ns *ns)
{
	struct reactor *reactor = context;
	struct reactor_ns *here = reactor->namespaces[ns->place->index];

	(void)subsys;
	assert(!here->nr_requests);
	here->queue->ops->detach(here->queue);
	reactor->namespaces[ns->place->index] = NULL;
	free(here);
	return 0;
}

void reactor_ns_detach_all(struct reactor *reactor)
{
	(void)catalog_for_each_ns(reactor->catalog, reactor_ns_detach_one, reactor);
}
