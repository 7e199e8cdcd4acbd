/* SPDX-License-Identifier: MIT */
/*
 * Knows since when each group has been in transition, and ends it.
 */
#include "target/control_ana_end.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "target/catalog.h"
#include "target/diff.h"
#include "target/target.h"

/* Early enough for the other state to count on every reactor by then. */
#define CONTROL_ANA_END_NS	 ((ANA_TRANSITION_S - 1) * 1000000000ull)
/* After a failure, such as a lack of memory. */
#define CONTROL_ANA_END_AGAIN_NS 1000000000ull

static struct control_ana_changing *control_ana_end_find(
	struct control_ana_end *end, const char *nqn, uint32_t group, uint16_t portid)
{
	struct control_ana_changing *changing;

	list_for_each_entry (changing, &end->changing, node)
		if (changing->group == group && changing->portid == portid &&
			!strcmp(changing->nqn, nqn))
			return changing;
	return NULL;
}

static bool control_ana_end_is_changing(
	const struct subsys *subsys, uint32_t group, uint16_t portid)
{
	return subsys->ana[group] && subsys->ana[group]->at[portid] == NVME_ANA_CHANGE;
}

/* --- the change ------------------------------------------------------------------------------ */

static void control_ana_end_log(struct diff *diff, const char *text)
{
	(void)diff;
	log_warning("%s, for nobody has ended the change within %u s", text, ANA_TRANSITION_S);
}

static int control_ana_end_apply(
	const struct control_ana_end *end, struct catalog *catalog, uint64_t now_ns)
{
	struct control_ana_changing *changing;
	int nr = 0;

	list_for_each_entry (changing, &end->changing, node) {
		struct subsys *subsys = catalog_find(catalog, changing->nqn);

		if (changing->until_ns > now_ns || !subsys ||
			!control_ana_end_is_changing(subsys, changing->group, changing->portid))
			continue;
		if (ana_set(subsys, changing->group, changing->portid, NVME_ANA_INACCESSIBLE))
			return -ENOMEM;
		nr++;
	}
	return nr;
}

static int control_ana_end_make(struct change *change, const struct catalog *now,
	struct catalog **ret, char *why, size_t why_size)
{
	struct control_ana_end *end = container_of(change, struct control_ana_end, change);
	struct diff diff = {.line = control_ana_end_log};
	struct catalog *catalog = catalog_clone(now);
	int nr = catalog ? control_ana_end_apply(end, catalog, loop_now_ns(end->target->loop))
			 : -ENOMEM;

	if (nr > 0) {
		diff_catalogs(&diff, now, catalog);
		*ret = catalog;
		return 0;
	}
	catalog_free(catalog);
	snprintf(why, why_size, "%s", "out of memory");
	return nr;
}

static void control_ana_end_arm(struct control_ana_end *end);

static void control_ana_end_over(struct change *change, int error, const char *why)
{
	struct control_ana_end *end = container_of(change, struct control_ana_end, change);
	struct loop *loop = end->target->loop;

	end->asked = false;
	if (end->stopped)
		return;
	if (error) {
		log_warning("an ANA group stays in change for too long: %s", why);
		loop_timer_set(loop, &end->timer, loop_now_ns(loop) + CONTROL_ANA_END_AGAIN_NS);
	} else {
		control_ana_end_arm(end);
	}
}

static void control_ana_end_due(struct loop_timer *timer)
{
	struct control_ana_end *end = container_of(timer, struct control_ana_end, timer);

	if (end->asked)
		return;
	end->asked = true;
	change_ask(&end->target->changes, &end->change);
}

/* --- what counts ----------------------------------------------------------------------------- */

static void control_ana_end_arm(struct control_ana_end *end)
{
	struct loop *loop = end->target->loop;
	struct control_ana_changing *changing;
	uint64_t first_ns = UINT64_MAX;

	list_for_each_entry (changing, &end->changing, node)
		first_ns = min_of(first_ns, changing->until_ns);
	if (first_ns == UINT64_MAX)
		loop_timer_cancel(loop, &end->timer);
	else if (!end->asked)
		loop_timer_set(loop, &end->timer, first_ns);
}

/* Without memory for it the state lasts until somebody ends it. */
static void control_ana_end_note(
	struct control_ana_end *end, const char *nqn, uint32_t group, uint16_t portid)
{
	struct control_ana_changing *changing = control_ana_end_find(end, nqn, group, portid);

	if (!changing) {
		changing = calloc(1, sizeof(*changing));
		if (!changing)
			return;
		list_init(&changing->node);
		snprintf(changing->nqn, sizeof(changing->nqn), "%s", nqn);
		changing->group = group;
		changing->portid = portid;
		changing->until_ns = loop_now_ns(end->target->loop) + CONTROL_ANA_END_NS;
		list_push_back(&end->changing, &changing->node);
	}
	changing->still = true;
}

static void control_ana_end_note_subsys(struct control_ana_end *end, const struct subsys *subsys)
{
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++)
		for (uint16_t portid = 0; portid <= ANA_MAX_PORTID; portid++)
			if (control_ana_end_is_changing(subsys, group, portid))
				control_ana_end_note(end, subsys->nqn, group, portid);
}

static void control_ana_end_forget(struct control_ana_end *end, bool all)
{
	struct list *node = end->changing.next;

	while (node != &end->changing) {
		struct control_ana_changing *changing =
			container_of(node, struct control_ana_changing, node);

		node = node->next;
		if (!all && changing->still)
			continue;
		list_remove(&changing->node);
		free(changing);
	}
}

static void control_ana_end_counts(struct change_watch *watch)
{
	struct control_ana_end *end = container_of(watch, struct control_ana_end, watch);
	struct control_ana_changing *changing;
	const struct subsys *subsys;

	list_for_each_entry (changing, &end->changing, node)
		changing->still = false;
	list_for_each_entry (subsys, &end->target->catalog->subsystems, node)
		control_ana_end_note_subsys(end, subsys);
	control_ana_end_forget(end, false);
	control_ana_end_arm(end);
}

/* --- life ------------------------------------------------------------------------------------ */

int control_ana_end_start(struct control_ana_end *end, struct target *target)
{
	int error = loop_timers_reserve(target->loop, 1);

	if (error)
		return error;
	end->target = target;
	end->watch.counts = control_ana_end_counts;
	end->change.make = control_ana_end_make;
	end->change.over = control_ana_end_over;
	list_init(&end->changing);
	loop_timer_init(&end->timer, control_ana_end_due);
	target->changes.watch = &end->watch;
	control_ana_end_counts(&end->watch);
	return 0;
}

void control_ana_end_stop(struct control_ana_end *end)
{
	end->stopped = true;
	end->target->changes.watch = NULL;
	loop_timer_cancel(end->target->loop, &end->timer);
	loop_timers_unreserve(end->target->loop, 1);
	control_ana_end_forget(end, true);
}
