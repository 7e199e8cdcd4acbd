/* SPDX-License-Identifier: MIT */
/*
 * Looks at the sizes of disks.
 */
#include "target/control_sizes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/log.h"
#include "target/backend.h"
#include "target/catalog.h"
#include "target/diff.h"
#include "target/target.h"

/* Soon enough for who has just grown a disk, and one look at each disk costs nothing. */
#define CONTROL_SIZES_NS	 3000000000ull
/* A look that has not ended by then hangs in its disk: two seconds of them. */
#define CONTROL_SIZES_STOP_NS	 10000000
#define CONTROL_SIZES_STOP_TURNS 200

static uint64_t control_sizes_lbas(const struct ns *ns)
{
	return ns->place->backend->geometry.size_bytes >> ns->lba_shift;
}

static int control_sizes_look_at(void *context, struct subsys *subsys, struct ns *ns)
{
	(void)context;
	(void)subsys;
	backend_look(ns->place->backend);
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

/* --- looking, on a helper thread: a disk that hangs must not hold up the others -------------- */

static int control_sizes_offloaded(void *arg)
{
	struct control_sizes *sizes = arg;

	for (uint32_t i = 0; i < sizes->nr; i++) {
		struct control_size *size = &sizes->looks[i];

		size->bytes = 0;
		size->error = size->backend->ops->size(size->backend, &size->bytes);
	}
	return 0;
}

static void control_sizes_looked(struct done *done, int res, unsigned flags)
{
	struct control_sizes *sizes = container_of(done, struct control_sizes, op.done);
	const struct target *target = sizes->target;

	(void)res;
	(void)flags;
	sizes->looking = false;
	for (uint32_t i = 0; i < sizes->nr; i++) {
		struct control_size *size = &sizes->looks[i];

		backend_take_size(size->backend, size->error, size->bytes);
		backend_put(size->backend);
	}
	free(sizes->looks);
	sizes->looks = NULL;
	if (sizes->stopped)
		return;
	if (catalog_for_each_ns(target->catalog, control_sizes_differ, NULL))
		change_ask(&sizes->target->changes, &sizes->change);
	else
		control_sizes_again(sizes);
}

static int control_sizes_count(void *context, struct subsys *subsys, struct ns *ns)
{
	uint32_t *nr = context;

	(void)subsys;
	*nr += ns->place->backend->ops->size != NULL;
	return 0;
}

static int control_sizes_gather(void *context, struct subsys *subsys, struct ns *ns)
{
	struct control_sizes *sizes = context;

	(void)subsys;
	if (ns->place->backend->ops->size)
		sizes->looks[sizes->nr++].backend = backend_get(ns->place->backend);
	return 0;
}

static void control_sizes_due(struct loop_timer *timer)
{
	struct control_sizes *sizes = container_of(timer, struct control_sizes, timer);
	const struct catalog *catalog = sizes->target->catalog;
	uint32_t nr = 0;

	(void)catalog_for_each_ns(catalog, control_sizes_count, &nr);
	sizes->nr = 0;
	sizes->looks = nr ? calloc(nr, sizeof(*sizes->looks)) : NULL;
	if (!sizes->looks) {
		control_sizes_again(sizes);
		return;
	}
	(void)catalog_for_each_ns(catalog, control_sizes_gather, sizes);
	sizes->looking = true;
	sizes->op.done.fn = control_sizes_looked;
	loop_offload(sizes->target->loop, &sizes->op, control_sizes_offloaded, sizes);
}

int control_sizes_start(struct control_sizes *sizes, struct target *target)
{
	int error = loop_timers_reserve(target->loop, 1);

	if (error)
		return error;
	sizes->target = target;
	sizes->change.make = control_sizes_make;
	sizes->change.over = control_sizes_over;
	loop_timer_init(&sizes->timer, control_sizes_due);
	control_sizes_again(sizes);
	return 0;
}

bool control_sizes_stop(struct control_sizes *sizes)
{
	struct loop *loop = sizes->target->loop;

	sizes->stopped = true;
	loop_timer_cancel(loop, &sizes->timer);
	for (int i = 0; sizes->looking && i < CONTROL_SIZES_STOP_TURNS; i++)
		loop_wait(loop, CONTROL_SIZES_STOP_NS);
	if (sizes->looking)
		return false;
	loop_timers_unreserve(loop, 1);
	return true;
}
