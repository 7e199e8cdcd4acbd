/* SPDX-License-Identifier: MIT */
/*
 * Looks at the sizes of disks.
 */
#include "target/control_sizes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/diff.h"
#include "target/target.h"

/* Soon enough for who has just grown a disk, and one look at each disk costs nothing. */
#define CONTROL_SIZES_NS 3000000000ull

static uint64_t control_sizes_lbas(const struct ns *ns)
{
	return ns->place->backend->geometry.size_bytes >> ns->lba_shift;
}

static int control_sizes_look_at(void *context, struct subsys *subsys, struct ns *ns)
{
	struct backend *backend = ns->place->backend;
	int before = backend->size_error;

	(void)context;
	backend_look(backend);
	if (backend->size_error && !before)
		log_warning("namespace %u of %s: %s has no size any more: %s", ns->nsid,
			subsys->nqn, backend->path, strerror(-backend->size_error));
	return 0;
}

static int control_sizes_take(void *context, struct subsys *subsys, struct ns *ns)
{
	(void)context;
	(void)subsys;
	ns->nr_lbas = control_sizes_lbas(ns);
	return 0;
}

void control_sizes_look(struct catalog *catalog)
{
	(void)catalog_for_each_ns(catalog, control_sizes_look_at, NULL);
	(void)catalog_for_each_ns(catalog, control_sizes_take, NULL);
}

/* --- by itself ------------------------------------------------------------------------------- */

static int control_sizes_differ(void *context, struct subsys *subsys, struct ns *ns)
{
	(void)context;
	(void)subsys;
	return ns->nr_lbas != control_sizes_lbas(ns);
}

static void control_sizes_log(struct diff *diff, const char *text)
{
	(void)diff;
	log_info("%s", text);
}

static int control_sizes_make(struct change *change, const struct catalog *now,
	struct catalog **ret, char *why, size_t why_size)
{
	struct diff diff = {.line = control_sizes_log};

	(void)change;
	if (!catalog_for_each_ns(now, control_sizes_differ, NULL))
		return 0;
	*ret = catalog_clone(now);
	if (!*ret) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	(void)catalog_for_each_ns(*ret, control_sizes_take, NULL);
	diff_catalogs(&diff, now, *ret);
	return 0;
}

static void control_sizes_again(struct control_sizes *sizes)
{
	struct loop *loop = sizes->target->loop;

	loop_timer_set(loop, &sizes->timer, loop_now_ns(loop) + CONTROL_SIZES_NS);
}

static void control_sizes_over(struct change *change, int error, const char *why)
{
	struct control_sizes *sizes = container_of(change, struct control_sizes, change);

	if (error && error != -ESHUTDOWN)
		log_warning("disks have other sizes, but hosts cannot be told: %s", why);
	if (!sizes->stopped)
		control_sizes_again(sizes);
}

static void control_sizes_due(struct loop_timer *timer)
{
	struct control_sizes *sizes = container_of(timer, struct control_sizes, timer);
	const struct catalog *catalog = sizes->target->catalog;

	(void)catalog_for_each_ns(catalog, control_sizes_look_at, NULL);
	if (!catalog_for_each_ns(catalog, control_sizes_differ, NULL)) {
		control_sizes_again(sizes);
		return;
	}
	change_ask(&sizes->target->changes, &sizes->change);
}

int control_sizes_start(struct control_sizes *sizes, struct target *target)
{
	int error = loop_timer_reserve(target->loop);

	if (error)
		return error;
	sizes->target = target;
	sizes->change.make = control_sizes_make;
	sizes->change.over = control_sizes_over;
	loop_timer_init(&sizes->timer, control_sizes_due);
	control_sizes_again(sizes);
	return 0;
}

void control_sizes_stop(struct control_sizes *sizes)
{
	sizes->stopped = true;
	loop_timer_cancel(sizes->target->loop, &sizes->timer);
	loop_timer_unreserve(sizes->target->loop);
}
