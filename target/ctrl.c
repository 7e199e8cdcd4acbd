/* SPDX-License-Identifier: MIT */
/*
 * Controllers: ids, enabling, reset, keep-alive, held event requests, the end.
 */
#include "target/ctrl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "proto/nvme/log.h"
#include "proto/nvme/nvme.h"
#include "target/association.h"
#include "target/catalog.h"
#include "target/cmd.h"
#include "target/discovery.h"
#include "target/error_log.h"
#include "target/fence.h"
#include "target/keep_alive.h"
#include "target/member.h"
#include "target/port.h"
#include "target/reactor.h"
#include "target/reservation_log.h"
#include "target/subsys.h"
#include "target/target.h"
#include "target/view.h"

#define CTRL_NR_TIMERS 2u /* of keep-alive and of replacement */

/* An id names its owner: the first id + slot x reactors + reactor, so that any reactor can compute
 * whom to ask. */
static uint16_t ctrl_cntlid(const struct reactor *reactor, uint32_t slot)
{
	const struct target *target = reactor->target;

	return (uint16_t)(target->settings.cntlid_min + slot * target->nr_reactors +
			  reactor->index);
}

uint32_t ctrl_owner(const struct reactor *reactor, uint16_t cntlid)
{
	const struct target *target = reactor->target;
	uint32_t first = target->settings.cntlid_min;

	return cntlid < first ? 0 : (cntlid - first) % target->nr_reactors;
}

static uint32_t ctrl_nr_slots(const struct reactor *reactor)
{
	const struct target *target = reactor->target;
	uint32_t nr_ids = target->settings.cntlid_max - target->settings.cntlid_min + 1u;

	return min_of(nr_ids / target->nr_reactors, (uint32_t)REACTOR_MAX_CTRLS);
}

struct ctrl *ctrl_find(struct reactor *reactor, uint16_t cntlid)
{
	uint32_t slot;
	struct ctrl *ctrl;
	uint32_t first = reactor->target->settings.cntlid_min;

	if (cntlid < first || ctrl_owner(reactor, cntlid) != reactor->index)
		return NULL;
	slot = (cntlid - first) / reactor->target->nr_reactors;
	ctrl = slot < ctrl_nr_slots(reactor) ? reactor->ctrls[slot] : NULL;
	return ctrl && !ctrl->ending ? ctrl : NULL;
}

uint32_t ctrl_nr_left(const struct reactor *reactor)
{
	return ctrl_nr_slots(reactor) - reactor->nr_ctrls;
}

static int ctrl_take_slot(struct reactor *reactor, struct share *share, uint32_t *ret)
{
	uint32_t nr = ctrl_nr_slots(reactor);
	uint32_t left = ctrl_nr_left(reactor);

	if (!share_may_take(share->nr_ctrls, 1, left)) {
		share_log_refusal(share, "controllers", share->nr_ctrls, left);
		return -EMFILE;
	}
	for (uint32_t tries = 0; tries < nr; tries++) {
		uint32_t slot = reactor->next_ctrl_slot;

		reactor->next_ctrl_slot = (slot + 1) % nr;
		if (!reactor->ctrls[slot]) {
			*ret = slot;
			return 0;
		}
	}
	return -EMFILE;
}

/* Limited: a host may come and go as often as it likes. */
static void ctrl_log(struct ctrl *ctrl, const char *what, const char *why)
{
	struct reactor *reactor = ctrl->reactor;
	struct log_limit *limit = &reactor->ctrl_log[ctrl->slot % REACTOR_CTRL_LIMITS];

	log_line_limited(limit, loop_now_ns(reactor->loop), LOG_LEVEL_INFO,
		"controller %u: host %s %s %s%s%s", ctrl->cntlid, ctrl->hostnqn, what,
		ctrl->subsys->nqn, why ? ": " : "", why ? why : "");
}

/* --- keep-alive ------------------------------------------------------------------------------ */

void ctrl_alive(struct ctrl *ctrl)
{
	ctrl->alive_ns = loop_now_ns(ctrl->reactor->loop);
}

uint32_t ctrl_round_kato(const struct ctrl *ctrl, uint32_t kato_ms)
{
	uint32_t kas_ms = ctrl->reactor->target->settings.kas_ms;
	uint64_t rounded = ((uint64_t)kato_ms + kas_ms - 1) / kas_ms * kas_ms;

	return (uint32_t)min_of(rounded, (uint64_t)UINT32_MAX / kas_ms * kas_ms);
}

void ctrl_set_kato(struct ctrl *ctrl, uint32_t kato_ms)
{
	ctrl->kato_ms = ctrl_round_kato(ctrl, kato_ms);
	ctrl_alive(ctrl);
	keep_alive_arm(ctrl);
}

/* --- a queue waits for an older one of its id ------------------------------------------------ */

void ctrl_arm_replace(struct ctrl *ctrl)
{
	uint64_t first_ns = UINT64_MAX;

	for (uint32_t qid = 1; qid <= CTRL_MAX_IO_QUEUES && ctrl->nr_waiting; qid++)
		if (ctrl->queues[qid].waiting)
			first_ns = min_of(first_ns, ctrl->queues[qid].waiting_until_ns);
	if (first_ns != UINT64_MAX)
		loop_timer_set(ctrl->reactor->loop, &ctrl->replace, first_ns);
	else
		loop_timer_cancel(ctrl->reactor->loop, &ctrl->replace);
}

static void ctrl_replace_expired(struct loop_timer *timer)
{
	struct ctrl *ctrl = container_of(timer, struct ctrl, replace);
	uint64_t now_ns = loop_now_ns(ctrl->reactor->loop);

	for (uint32_t qid = 1; qid <= CTRL_MAX_IO_QUEUES; qid++)
		if (ctrl->queues[qid].waiting && ctrl->queues[qid].waiting_until_ns <= now_ns)
			member_stop_waiting(ctrl, &ctrl->queues[qid]);
	ctrl_arm_replace(ctrl);
}

/* --- registers ------------------------------------------------------------------------------- */

bool ctrl_may_reset_subsys(const struct ctrl *ctrl)
{
	return ctrl->subsys->reset_offered;
}

uint64_t ctrl_cap(const struct ctrl *ctrl)
{
	uint64_t mqes = ctrl->admin->port->option[TRANSPORT_MAX_QUEUE_SIZE] - 1;

	return mqes << NVME_CAP_MQES_SHIFT | NVME_CAP_CQR |
	       (uint64_t)CTRL_CAP_TO << NVME_CAP_TO_SHIFT | NVME_CAP_CSS_NVM |
	       (ctrl->subsys->discovery ? 0 : NVME_CAP_CSS_IOCS) |
	       (ctrl_may_reset_subsys(ctrl) ? NVME_CAP_NSSRS : 0) | NVME_CAP_CRMS_CRWMS;
}

uint32_t ctrl_csts(const struct ctrl *ctrl)
{
	bool ready = ctrl->stage == CTRL_READY || ctrl->stage == CTRL_RESETTING;

	return ctrl->shst | (ready ? NVME_CSTS_RDY : 0) |
	       (ctrl->stage == CTRL_FAILED ? NVME_CSTS_CFS : 0) |
	       (ctrl->nssro ? NVME_CSTS_NSSRO : 0);
}

bool ctrl_ready(const struct ctrl *ctrl)
{
	return ctrl->stage == CTRL_READY;
}

bool ctrl_expels(const struct ctrl *ctrl)
{
	return ctrl->ending || ctrl->stage == CTRL_RESETTING || NVME_CC_SHN(ctrl->cc);
}

static bool ctrl_cc_valid(const struct ctrl *ctrl, uint32_t cc)
{
	bool all_sets = NVME_CC_CSS(cc) == NVME_CC_CSS_ALL && !ctrl->subsys->discovery;

	if (NVME_CC_CSS(cc) != NVME_CC_CSS_NVM && !all_sets)
		return false;
	if (NVME_CC_MPS(cc) || NVME_CC_AMS(cc))
		return false;
	/* A discovery controller has no I/O queues, and hosts leave their entry sizes 0. */
	return ctrl->subsys->discovery ||
	       (NVME_CC_IOSQES(cc) == NVME_SQES && NVME_CC_IOCQES(cc) == NVME_CQES);
}

/* Controller Level Reset: queues go, features return to their defaults, the admin queue and the
 * keep-alive timer stay. It is over when no queue is left, for until then a disk may have commands
 * of theirs. */
static void ctrl_reset(struct ctrl *ctrl)
{
	ctrl->stage = ctrl->nr_members ? CTRL_RESETTING : CTRL_DISABLED;
	ctrl->nr_io_queues = ctrl->max_io_queues;
	features_reset(&ctrl->features, loop_now_ns(ctrl->reactor->loop));
	ctrl->settings = ctrl->admin->settings = (struct ctrl_settings){0};
	event_reset(ctrl);
	error_log_reset(ctrl);
	ana_log_reset(ctrl);
	reservation_log_reset(ctrl);
	member_expel_all(ctrl);
}

static enum ctrl_task ctrl_enable(struct ctrl *ctrl)
{
	if (!ctrl_cc_valid(ctrl, ctrl->cc)) {
		ctrl->stage = CTRL_FAILED;
		return CTRL_TASK_NONE;
	}
	/* A host that does not wait for the end of a reset has to do it now. */
	if (ctrl->stage != CTRL_RESETTING)
		ctrl->stage = CTRL_ENABLING;
	ctrl->nr_enabling++;
	return CTRL_TASK_ENABLE;
}

enum ctrl_task ctrl_set_cc(struct ctrl *ctrl, uint32_t cc)
{
	uint32_t old = ctrl->cc;

	ctrl->cc = cc;
	if ((old & NVME_CC_EN) && !(cc & NVME_CC_EN))
		ctrl_reset(ctrl);
	if (!NVME_CC_SHN(cc) && NVME_CC_SHN(old))
		ctrl->shst = 0;
	if (NVME_CC_SHN(cc) && !NVME_CC_SHN(old)) {
		ctrl->shst = NVME_CSTS_SHST_OCCURRING;
		member_expel_all(ctrl);
		return CTRL_TASK_SHUT_DOWN;
	}
	return !(old & NVME_CC_EN) && (cc & NVME_CC_EN) ? ctrl_enable(ctrl) : CTRL_TASK_NONE;
}

void ctrl_enabled(struct ctrl *ctrl, bool late)
{
	if (--ctrl->nr_enabling || ctrl->stage != CTRL_ENABLING)
		return;
	ctrl->stage = late ? CTRL_FAILED : CTRL_READY;
	ctrl_alive(ctrl);
	if (late)
		ctrl_log(ctrl, "may not write to",
			"a disk still has commands of an earlier controller of this host");
}

void ctrl_shutdown_done(struct ctrl *ctrl)
{
	/* Unless the host has taken it back meanwhile. */
	if (ctrl->shst == NVME_CSTS_SHST_OCCURRING)
		ctrl->shst = NVME_CSTS_SHST_COMPLETE;
}

void ctrl_queues_gone(struct ctrl *ctrl)
{
	struct list *node;

	if (ctrl->stage == CTRL_RESETTING)
		ctrl->stage = ctrl->cc & NVME_CC_EN ? CTRL_ENABLING : CTRL_DISABLED;
	while ((node = list_pop_front(&ctrl->parked)))
		cmd_property_go_on(container_of(node, struct request, node));
	fence_look_again(ctrl->reactor);
}

/* --- beginning and end ----------------------------------------------------------------------- */

static int ctrl_reserve_timers(struct ctrl *ctrl)
{
	keep_alive_init(ctrl);
	loop_timer_init(&ctrl->replace, ctrl_replace_expired);
	return loop_timers_reserve(ctrl->reactor->loop, CTRL_NR_TIMERS);
}

int ctrl_create(struct conn *conn, const struct subsys *subsys, const char *hostnqn,
	const uint8_t hostid[16], uint32_t kato_ms, struct ctrl **ret)
{
	struct reactor *reactor = conn->reactor;
	struct ctrl *ctrl = calloc(1, sizeof(*ctrl));
	int error = ctrl ? ctrl_take_slot(reactor, conn->share, &ctrl->slot) : -ENOMEM;

	if (error)
		goto free_ctrl;
	ctrl->reactor = reactor;
	error = ctrl_reserve_timers(ctrl);
	if (error)
		goto free_ctrl;
	ctrl->subsys = subsys;
	ctrl->cntlid = ctrl_cntlid(reactor, ctrl->slot);
	ctrl->admin = conn;
	ctrl->portid = conn->port->portid;
	ctrl->nr_resets = subsys->nr_resets;
	/* Its host may have lost an earlier one by that. */
	ctrl->nssro = subsys->nr_resets;
	list_init(&ctrl->parked);
	ctrl->max_io_queues = ctrl->nr_io_queues = subsys->max_io_queues;
	features_reset(&ctrl->features, loop_now_ns(reactor->loop));
	snprintf(ctrl->hostnqn, sizeof(ctrl->hostnqn), "%s", hostnqn);
	memcpy(ctrl->hostid, hostid, sizeof(ctrl->hostid));
	reactor->ctrls[ctrl->slot] = ctrl;
	reactor->nr_ctrls++;
	ctrl->share = share_use(conn->share);
	ctrl->share->nr_ctrls++;
	ctrl_set_kato(ctrl, kato_ms);
	ctrl_log(ctrl, "connected to", NULL);
	*ret = ctrl;
	return 0;

free_ctrl:
	free(ctrl);
	return error;
}

void ctrl_try_free(struct ctrl *ctrl)
{
	struct loop *loop = ctrl->reactor->loop;

	if (!ctrl->ending || ctrl->admin || ctrl->nr_members)
		return;
	assert(!ctrl->nr_waiting);
	loop_timers_unreserve(loop, CTRL_NR_TIMERS);
	ctrl->reactor->ctrls[ctrl->slot] = NULL;
	ctrl->reactor->nr_ctrls--;
	ctrl->share->nr_ctrls--;
	share_put(ctrl->share);
	error_log_free(ctrl);
	reservation_log_reset(ctrl);
	free(ctrl);
}

void ctrl_end(struct ctrl *ctrl, const char *why)
{
	if (ctrl->ending)
		return;
	ctrl->ending = true;
	ctrl->stage = CTRL_DISABLED;
	ctrl_log(ctrl, "disconnected from", why);
	association_release(ctrl->association);
	ctrl->association = NULL;
	member_expel_all(ctrl);
	keep_alive_stop(ctrl);
	loop_timer_cancel(ctrl->reactor->loop, &ctrl->replace);
	conn_close(ctrl->admin, why);
}

void ctrl_admin_gone(struct ctrl *ctrl)
{
	ctrl->admin = NULL;
	ctrl_try_free(ctrl);
}

static void ctrl_compare(struct ctrl *ctrl, const struct subsys *now)
{
	struct ana_change ana = ana_log_follow(ctrl, ctrl->subsys, now);

	if (changed_ns_compare(ctrl, ctrl->subsys, now))
		ctrl->announce |= NVME_AEC_NS;
	if (ana.tell)
		ctrl->announce |= NVME_AEC_ANA;
	if (ana.ends)
		ctrl_end(ctrl, "what it had lost for good is back");
}

/* NVMe base 2.0 3.7.2: a Controller Level Reset, as if the host had cleared CC. */
static void ctrl_subsys_reset(struct ctrl *ctrl)
{
	ctrl->nr_resets = ctrl->subsys->nr_resets;
	ctrl->nssro = true;
	(void)ctrl_set_cc(ctrl, 0);
}

void ctrl_follow(struct ctrl *ctrl, const struct catalog *catalog)
{
	const struct subsys *now;

	if (ctrl->subsys->discovery) {
		if (!ctrl->ending && !catalog->same_discovery &&
			discovery_differs(ctrl, catalog->previous, catalog))
			ctrl->announce |= NVME_AEC_DISCOVERY;
		return;
	}
	now = catalog_find(catalog, ctrl->subsys->nqn);
	if (!now)
		ctrl_end(ctrl, "its subsystem has been removed");
	else if (!subsys_host_allowed(now, ctrl->hostnqn))
		ctrl_end(ctrl, "its host may not use it any more");
	else
		ctrl_compare(ctrl, view_of(now, ctrl->hostnqn));
	ctrl->subsys = now ? view_of(now, ctrl->hostnqn) : &subsys_removed;
	if (now && !ctrl->ending && ctrl->nr_resets != now->nr_resets)
		ctrl_subsys_reset(ctrl);
}

void ctrl_announce(struct ctrl *ctrl)
{
	uint32_t announce = ctrl->announce;

	ctrl->announce = 0;
	if (announce & NVME_AEC_NS)
		event_raise(ctrl, NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS);
	if (announce & NVME_AEC_ANA)
		event_raise(ctrl, NVME_AER_NOTICE, NVME_AER_NOTICE_ANA, NVME_LOG_ANA);
	if (announce & NVME_AEC_DISCOVERY)
		event_raise(ctrl, NVME_AER_NOTICE, NVME_AER_NOTICE_DISCOVERY, NVME_LOG_DISCOVERY);
}
