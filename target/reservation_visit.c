/* SPDX-License-Identifier: MIT */
/*
 * Visits of a changed reservation to a reactor, and what commands there see of it.
 */
#include "target/reservation_visit.h"

#include <string.h>

#include "target/catalog.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/reservation_log.h"
#include "target/reservation_owner.h"
#include "target/subsys.h"

/* --- conflicts ------------------------------------------------------------------------------- */

static const struct reservation *reservation_seen(const struct reactor_ns *ns)
{
	return ns->ns.reservation->seen[ns->reactor->index];
}

void reservation_set_gate(struct reactor_ns *ns)
{
	if (reservation_seen(ns)->type)
		ns->gate |= REACTOR_NS_RESERVED;
	else
		ns->gate &= ~REACTOR_NS_RESERVED;
}

uint16_t reservation_check_ns(const struct request *request, const struct reactor_ns *ns)
{
	return reservation_allows(
		       reservation_seen(ns), request->conn->hostid, request->command->access)
		       ? 0
		       : NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR;
}

uint16_t reservation_check(const struct request *request)
{
	return reservation_check_ns(request, request->ns);
}

/* --- notices --------------------------------------------------------------------------------- */

/* EMPTY: there is nothing to tell this host. */
static enum nvme_reservation_notice reservation_notice(
	const struct reservation_task *task, const uint8_t *host)
{
	const struct reservation_effect *effect = &task->effect;

	if (!memcmp(host, task->command.host, RESERVATION_HOST_BYTES))
		return NVME_RESERVATION_NOTICE_EMPTY;
	if (effect->lost && reservation_lost(task->before, task->after, &task->command, host))
		return effect->lost;
	return effect->released && reservation_find(task->after, host)
		       ? NVME_RESERVATION_NOTICE_RELEASED
		       : NVME_RESERVATION_NOTICE_EMPTY;
}

static void reservation_tell(const struct reservation_task *task, struct ctrl *ctrl)
{
	const struct subsys *subsys = ctrl->subsys;
	enum nvme_reservation_notice notice;

	if (ctrl->ending || subsys->discovery)
		return;
	notice = reservation_notice(task, ctrl->hostid);
	if (!notice)
		return;
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
		if (subsys->ns[nsid] && subsys->ns[nsid]->reservation == task->owner)
			reservation_log_add(ctrl, notice, nsid);
}

static void reservation_tell_all(const struct reservation_task *task, struct reactor *reactor)
{
	if (!task->effect.lost && !task->effect.released)
		return;
	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++)
		if (reactor->ctrls[slot])
			reservation_tell(task, reactor->ctrls[slot]);
}

/* --- preempt and abort ----------------------------------------------------------------------- */

static void reservation_preempted_run(struct request *request)
{
	request_complete(request, NVME_SC_ABORT_PREEMPTED);
}

/* What a command becomes whose data is still on its way. */
static const struct cmd reservation_preempted = {
	.name = "preempted",
	.direction = REQUEST_FROM_HOST,
	.run = reservation_preempted_run,
};

static bool reservation_concerns(const struct revoke *revoke, const struct request *request)
{
	const struct reservation_task *task = container_of(revoke, struct reservation_task, revoke);

	return request->ns && request->ns->ns.reservation == task->owner &&
	       request->command->access != RESERVATION_FREE;
}

static void reservation_aborted(struct revoke *revoke)
{
	round_go_on(&container_of(revoke, struct reservation_task, revoke)->round);
}

static void reservation_abort(struct reservation_task *task, struct reactor *reactor)
{
	struct conn *conn;

	task->revoke = (struct revoke){.status = NVME_SC_ABORT_PREEMPTED,
		.command = &reservation_preempted,
		.concerns = reservation_concerns,
		.over = reservation_aborted};
	revoke_begin(&task->revoke);
	list_for_each_entry (conn, &reactor->conns, node)
		if (reservation_lost(task->before, task->after, &task->command, conn->hostid))
			revoke_commands(&task->revoke, conn);
	revoke_end(&task->revoke);
}

/* --- the visit ------------------------------------------------------------------------------- */

static void reservation_set_gates(
	const struct reservation_owner *owner, const struct reactor *reactor)
{
	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++) {
		struct reactor_ns *ns = reactor->namespaces[i];

		if (ns && ns->ns.reservation == owner)
			reservation_set_gate(ns);
	}
}

void reservation_visit(struct round *round, struct reactor *reactor)
{
	struct reservation_task *task = container_of(round, struct reservation_task, round);

	task->owner->seen[reactor->index] = task->after;
	reservation_set_gates(task->owner, reactor);
	reservation_tell_all(task, reactor);
	if (task->effect.abort)
		reservation_abort(task, reactor);
	else
		round_go_on(round);
}
