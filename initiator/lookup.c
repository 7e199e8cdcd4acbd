/* SPDX-License-Identifier: MIT */
/*
 * Finding the only subsystem: which discovery controllers to ask, for how long, and what comes of
 * their logs.
 */
#include "initiator/lookup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "initiator/connect.h"
#include "initiator/discovery.h"
#include "initiator/referral.h"

/*
 * A dead referral must not use up the time of the whole connect: one may take a quarter of it, all
 * of them together half.
 */
#define LOOKUP_ONE_SHARE 4
#define LOOKUP_ALL_SHARE 2

struct lookup {
	struct haul_ctrl *ctrl;
	struct nvme_uri asked; /* the caller's */
	struct referrals referrals;
	const struct referral *now; /* being asked */
	struct haul_discovery_log *found;
	struct loop_timer timer; /* of the referral being asked */
	uint64_t until_ns;	 /* for all referrals; 0: none was asked yet */
	unsigned nr_passed_over;
	char why[384]; /* of the first that was */
};

static void lookup_expired(struct loop_timer *timer)
{
	struct lookup *lookup = container_of(timer, struct lookup, timer);

	if (lookup->ctrl->state == CTRL_CONNECTING)
		connect_step_failed(lookup->ctrl, -ETIMEDOUT, "no answer in time");
}

int lookup_begin(struct haul_ctrl *ctrl)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));

	if (!lookup || loop_timers_reserve(ctrl->hl->loop, 1)) {
		free(lookup);
		return -ENOMEM;
	}
	lookup->ctrl = ctrl;
	lookup->asked = ctrl->uri;
	loop_timer_init(&lookup->timer, lookup_expired);
	referrals_init(&lookup->referrals, &ctrl->uri);
	lookup->now = referrals_next(&lookup->referrals);
	strcpy(ctrl->nqn, lookup->now->nqn);
	ctrl->lookup = lookup;
	return 0;
}

void lookup_free(struct haul_ctrl *ctrl)
{
	struct lookup *lookup = ctrl->lookup;

	if (!lookup)
		return;
	loop_timer_cancel(ctrl->hl->loop, &lookup->timer);
	loop_timers_unreserve(ctrl->hl->loop, 1);
	free(lookup->found);
	free(lookup);
	ctrl->lookup = NULL;
}

int lookup_take(struct haul_ctrl *ctrl, struct haul_discovery_log *log, char *why, size_t why_size)
{
	struct lookup *lookup = ctrl->lookup;
	char address[ADDRESS_TEXT];
	int error;

	loop_timer_cancel(ctrl->hl->loop, &lookup->timer);
	address_format(&ctrl->address, address);
	referrals_found(&lookup->referrals, address);
	referrals_add(&lookup->referrals, log, (uint8_t)lookup->asked.trtype);
	discovery_complete(log, ctrl->uri.host);
	error = discovery_merge(&lookup->found, log);
	if (error)
		snprintf(why, why_size, "%s",
			error == -EMSGSIZE ? "more than 4096 entries in all" : strerror(-error));
	return error;
}

bool lookup_pass_over(struct haul_ctrl *ctrl, const char *why)
{
	struct lookup *lookup = ctrl->lookup;

	if (!lookup || !lookup->now || lookup->now->depth == 0)
		return false;
	loop_timer_cancel(ctrl->hl->loop, &lookup->timer);
	if (lookup->nr_passed_over++ == 0)
		snprintf(lookup->why, sizeof(lookup->why), "%.120s port %u: %.240s",
			lookup->now->host, lookup->now->port, why);
	return true;
}

void lookup_end(struct haul_ctrl *ctrl)
{
	if (ctrl->lookup)
		ctrl->lookup->now = NULL;
}

bool lookup_next(struct haul_ctrl *ctrl)
{
	struct lookup *lookup = ctrl->lookup;
	uint64_t timeout_ns = ctrl->options.connect_timeout_ms * NS_PER_MS;
	uint64_t now_ns = haul_loop_now_ns(ctrl->hl);

	loop_timer_cancel(ctrl->hl->loop, &lookup->timer);
	if (!lookup->until_ns)
		lookup->until_ns = now_ns + timeout_ns / LOOKUP_ALL_SHARE;
	while ((lookup->now = referrals_next(&lookup->referrals))) {
		if (now_ns < lookup->until_ns)
			break;
		lookup_pass_over(ctrl, "no time was left to ask it");
	}
	if (!lookup->now)
		return false;
	referral_apply(lookup->now, &ctrl->uri);
	strcpy(ctrl->nqn, lookup->now->nqn);
	loop_timer_set(ctrl->hl->loop, &lookup->timer,
		min_of(now_ns + timeout_ns / LOOKUP_ONE_SHARE, lookup->until_ns));
	return true;
}

/* Behind what was found, or why not: what may be missing. */
static void lookup_add_warning(const struct lookup *lookup, char *text, size_t size)
{
	size_t at = strlen(text);

	if (lookup->nr_passed_over)
		snprintf(text + at, size - at, "%s%u referral%s did not help (%s)", at ? "; " : "",
			lookup->nr_passed_over, lookup->nr_passed_over > 1 ? "s" : "", lookup->why);
	at = strlen(text);
	if (lookup->referrals.nr_left_out)
		snprintf(text + at, size - at, "%s%u %s", at ? "; " : "",
			lookup->referrals.nr_left_out,
			lookup->referrals.nr_left_out > 1
				? "referrals beyond the limit were not followed"
				: "referral beyond the limit was not followed");
}

int lookup_choose(struct haul_ctrl *ctrl, char *why, size_t why_size)
{
	struct lookup *lookup = ctrl->lookup;
	const struct haul_discovery_entry *entry;
	char warning[HAUL_ERROR_BYTES / 2] = "";
	int result = 0;

	entry = discovery_choose(lookup->found, &lookup->asked, &result, why, why_size);
	if (!entry) {
		lookup_add_warning(lookup, why, why_size);
		return result;
	}
	ctrl->uri = lookup->asked;
	strcpy(ctrl->nqn, entry->subsystem_nqn);
	discovery_apply(entry, &ctrl->uri);
	lookup_add_warning(lookup, warning, sizeof(warning));
	if (warning[0])
		ctrl_set_error(ctrl, "%.300s: discovery: %s", ctrl->uri_text, warning);
	lookup_free(ctrl);
	return 0;
}
