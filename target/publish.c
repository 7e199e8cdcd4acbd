/* SPDX-License-Identifier: MIT */
/*
 * The steps of a change, each started by the control thread and answered by reactors.
 */
#include "target/publish.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/discovery.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/reservation_owner.h"
#include "target/target.h"
#include "target/view.h"
#include "target/view_hide.h"
#include "target/write_protect.h"

static_assert(PUBLISH_MAX_PARTS == TARGET_MAX_REACTORS);

/* --- on the control thread: steps ------------------------------------------------------------ */

static struct reactor *publish_reactor(const struct publish_part *part)
{
	return part->publish->target->reactors[part->index];
}

static void publish_ask(
	struct publish *publish, uint32_t nr, void (*fn)(struct loop_message *message))
{
	publish->nr_waiting = nr;
	for (uint32_t i = 0; i < nr; i++) {
		struct publish_part *part = &publish->parts[i];

		*part = (struct publish_part){.message.fn = fn, .publish = publish, .index = i};
		loop_send(publish_reactor(part)->loop, &part->message);
	}
}

static void publish_ask_all(struct publish *publish, void (*fn)(struct loop_message *message))
{
	publish_ask(publish, publish->target->nr_reactors, fn);
}

/* From a reactor. */
static void publish_answer(struct publish_part *part, void (*fn)(struct loop_message *message))
{
	part->message.fn = fn;
	loop_send(part->publish->target->loop, &part->message);
}

/* True when it was the last part; the first error is kept. */
static bool publish_is_answered(struct loop_message *message, const char *what)
{
	struct publish_part *part = container_of(message, struct publish_part, message);
	struct publish *publish = part->publish;

	if (part->error && !publish->error) {
		publish->error = part->error;
		if (!publish->why[0])
			snprintf(publish->why, sizeof(publish->why), "reactor %u cannot %s: %s",
				part->index, what, strerror(-part->error));
	}
	return --publish->nr_waiting == 0;
}

static struct publish *publish_of(struct loop_message *message)
{
	return container_of(message, struct publish_part, message)->publish;
}

/* --- what reactors refer to ------------------------------------------------------------------ */

/* Each reactor refers to each place, the first one to each listener. */
static int publish_take_place(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct publish *publish = context;

	(void)subsys;
	if (!ns->place->generation) {
		ns->place->generation = publish->catalog->generation;
		ns->place->nr_refs += publish->target->nr_reactors;
	}
	return 0;
}

struct publish_since {
	uint32_t nr_refs;
	uint64_t generation;
};

static int publish_drop_place(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct publish_since *since = context;

	(void)subsys;
	/* Never the last one: the catalog has its own. */
	if (ns->place->generation && ns->place->generation >= since->generation)
		ns->place->nr_refs -= since->nr_refs;
	return 0;
}

static void publish_take_refs(struct publish *publish)
{
	const struct catalog *catalog = publish->catalog;

	(void)catalog_for_each_ns(catalog, publish_take_place, publish);
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		if (!catalog_has_port(catalog->previous, catalog->port[i]))
			port_get(catalog->port[i]);
}

/* Of what has come since GENERATION. */
static void publish_drop_refs(
	const struct target *target, const struct catalog *catalog, uint64_t generation)
{
	struct publish_since since = {target->nr_reactors, generation};

	(void)catalog_for_each_ns(catalog, publish_drop_place, &since);
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		if (!catalog_has_port(catalog->previous, catalog->port[i]))
			port_put(catalog->port[i]);
}

/* --- the end --------------------------------------------------------------------------------- */

static void publish_end(struct publish *publish)
{
	struct target *target = publish->target;
	struct catalog *over = target->catalog;

	if (publish->error) {
		publish_drop_refs(target, publish->catalog, publish->catalog->generation);
		over = publish->catalog;
	} else {
		target->catalog = publish->catalog;
		target->catalog->previous = NULL;
	}
	publish->catalog = NULL;
	catalog_free(over);
	publish->done(publish, publish->error);
}

/* --- switch ---------------------------------------------------------------------------------- */

static void publish_opened(struct loop_message *message)
{
	if (publish_is_answered(message, "open listeners"))
		publish_end(publish_of(message));
}

static void publish_open_ports(const struct publish *publish)
{
	const struct catalog *previous = publish->target->catalog;
	const struct catalog *catalog = publish->catalog;

	for (uint32_t i = 0; i < previous->nr_ports; i++)
		if (!catalog_has_port(catalog, previous->port[i]))
			port_release(previous->port[i]);
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		port_open(catalog->port[i]);
}

/* All have switched: who comes in, or is told of a change, finds what there is. */
static void publish_open(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);
	struct reactor *reactor = publish_reactor(part);

	if (part->index == 0)
		publish_open_ports(part->publish);
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		if (reactor->ctrls[slot])
			ctrl_announce(reactor->ctrls[slot]);
	publish_answer(part, publish_opened);
}

static void publish_switched(struct loop_message *message)
{
	struct publish *publish = publish_of(message);

	if (publish_is_answered(message, "switch"))
		publish_ask_all(publish, publish_open);
}

/* Controllers first: their events depend on what they had. */
static void publish_switch(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);
	struct reactor *reactor = publish_reactor(part);
	const struct catalog *catalog = part->publish->catalog;
	struct conn *conn, *after;

	reactor_ns_switch(reactor, catalog);
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		if (reactor->ctrls[slot])
			ctrl_follow(reactor->ctrls[slot], catalog);
	list_for_each_entry_safe (conn, after, &reactor->conns, node)
		conn_follow(conn, catalog);
	publish_answer(part, publish_switched);
}

/* --- hide ------------------------------------------------------------------------------------ */

static void publish_hidden(struct loop_message *message)
{
	struct publish *publish = publish_of(message);

	if (publish_is_answered(message, "hide namespaces"))
		publish_ask_all(publish, publish_switch);
}

static void publish_hide_over(void *context)
{
	publish_answer(context, publish_hidden);
}

static void publish_hide(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);

	view_hide_start(
		&publish_reactor(part)->hide, part->publish->catalog, publish_hide_over, part);
}

/* --- listen ---------------------------------------------------------------------------------- */

static void publish_abandoned(struct loop_message *message)
{
	if (publish_is_answered(message, "undo"))
		publish_end(publish_of(message));
}

static void publish_abandon(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);

	reactor_ns_abandon(publish_reactor(part), part->publish->catalog);
	publish_answer(part, publish_abandoned);
}

static void publish_listened(struct loop_message *message)
{
	struct publish *publish = publish_of(message);

	if (!publish_is_answered(message, "listen"))
		return;
	if (publish->error)
		publish_ask_all(publish, publish_abandon);
	else
		publish_ask_all(publish, publish->catalog->narrows ? publish_hide : publish_switch);
}

/* Ends the listeners of ONE that OTHER has not. */
static void publish_unlisten(const struct catalog *one, const struct catalog *other)
{
	for (uint32_t i = 0; i < one->nr_ports; i++)
		if (!catalog_has_port(other, one->port[i]))
			port_unlisten(one->port[i]);
}

static int publish_listen_all(struct target *target, const struct catalog *catalog,
	uint32_t *ret_failed, char *why, size_t why_size)
{
	for (uint32_t i = 0; i < catalog->nr_ports; i++) {
		int error = port_listen(catalog->port[i], target->reactors[0], why, why_size);

		if (error) {
			*ret_failed = i;
			return error;
		}
	}
	return 0;
}

/* The listeners of before, all of which were open. One whose address somebody else has taken
 * meanwhile is lost until the next change; the others are not. */
static void publish_listen_again(const struct publish *publish)
{
	const struct catalog *before = publish->target->catalog;
	char text[PORT_TEXT], why[PUBLISH_WHY_BYTES];

	publish_unlisten(publish->catalog, before);
	for (uint32_t i = 0; i < before->nr_ports; i++) {
		struct port *port = before->port[i];

		if (!port_listen(port, publish->target->reactors[0], why, sizeof(why))) {
			port_open(port);
			continue;
		}
		port_describe(port, text);
		log_error("listener %s is lost: %s", text, why);
	}
}

/* Those that go make room for those that come, maybe at the same address. */
static void publish_listen(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);
	struct publish *publish = part->publish;
	struct target *target = publish->target;

	part->error = target->stopping ? -ESHUTDOWN : 0;
	if (!part->error) {
		publish_unlisten(target->catalog, publish->catalog);
		part->error = publish_listen_all(target, publish->catalog, &publish->failed_port,
			publish->why, sizeof(publish->why));
	}
	if (part->error && !target->stopping)
		publish_listen_again(publish);
	publish_answer(part, publish_listened);
}

/* --- attach ---------------------------------------------------------------------------------- */

static void publish_attached(struct loop_message *message)
{
	struct publish *publish = publish_of(message);

	if (!publish_is_answered(message, "open the namespaces"))
		return;
	if (publish->error)
		publish_ask_all(publish, publish_abandon);
	else
		publish_ask(publish, 1, publish_listen);
}

static void publish_attach(struct loop_message *message)
{
	struct publish_part *part = container_of(message, struct publish_part, message);

	part->error = reactor_ns_attach(publish_reactor(part), part->publish->catalog);
	publish_answer(part, publish_attached);
}

/* --- start ----------------------------------------------------------------------------------- */

void publish_init(struct publish *publish, struct target *target)
{
	*publish = (struct publish){.target = target};
}

void publish_start(struct publish *publish, struct catalog *catalog,
	void (*done)(struct publish *publish, int error))
{
	assert(!publish->catalog && catalog->previous == publish->target->catalog);
	publish->catalog = catalog;
	publish->done = done;
	publish->error = 0;
	publish->why[0] = '\0';
	publish->failed_port = UINT32_MAX;
	catalog->same_discovery = discovery_is_same(catalog->previous, catalog);
	catalog->genctr = catalog->previous->genctr + !catalog->same_discovery;
	publish_take_refs(publish);
	publish->error = view_make_all(catalog);
	if (publish->error)
		snprintf(publish->why, sizeof(publish->why), "out of memory");
	else
		publish->error = reservation_adopt(
			publish->target->reservations, catalog, publish->why, sizeof(publish->why));
	if (!publish->error)
		publish->error = write_protect_adopt(
			publish->target->reservations, catalog, publish->why, sizeof(publish->why));
	publish_ask_all(publish, publish->error ? publish_abandon : publish_attach);
}

void publish_forget(struct publish *publish)
{
	struct target *target = publish->target;
	struct catalog *catalog = publish->catalog;

	if (catalog) {
		publish_drop_refs(target, catalog, catalog->generation);
		catalog_free(catalog);
	}
	publish->catalog = NULL;
	if (target->catalog) {
		publish_drop_refs(target, target->catalog, 0);
		catalog_free(target->catalog);
	}
	target->catalog = NULL;
}
