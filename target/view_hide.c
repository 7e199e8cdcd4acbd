/* SPDX-License-Identifier: MIT */
/*
 * Ends what hosts do with namespaces that they are about to lose sight of.
 */
#include "target/view_hide.h"

#include "proto/base/log.h"
#include "proto/nvme/status.h"
#include "target/catalog.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request.h"
#include "target/view.h"

/* As those that come later: the id is not active any more (NVMe base 2.0 4.1). */
#define VIEW_HIDE_STATUS CMD_INVALID_FIELD

static void view_hide_run(struct request *request)
{
	request_complete(request, VIEW_HIDE_STATUS);
}

static const struct cmd view_hide_command = {
	.name = "hidden",
	.direction = REQUEST_FROM_HOST,
	.run = view_hide_run,
};

/* One that goes from all hosts is not hidden but removed. */
static bool view_hide_loses(
	const struct view_hide *hide, const struct conn *conn, const struct ns *ns)
{
	const struct subsys *now = catalog_find(hide->catalog, conn->subsys->nqn);
	const struct ns *stays = now ? subsys_ns(now, ns->nsid) : NULL;

	return stays && stays->place == ns->place && !view_has(stays, conn->hostnqn);
}

uint16_t view_hide_check(const struct conn *conn, uint32_t nsid)
{
	const struct view_hide *hide = &conn->reactor->hide;
	const struct ns *ns = subsys_ns(conn->subsys, nsid);

	return ns && view_hide_loses(hide, conn, ns) ? VIEW_HIDE_STATUS : 0;
}

static bool view_hide_concerns(const struct revoke *revoke, const struct request *request)
{
	const struct view_hide *hide = container_of(revoke, struct view_hide, revoke);

	return request->ns && (request->ns->gate & REACTOR_NS_NARROWS) &&
	       view_hide_loses(hide, request->conn, &request->ns->ns);
}

static void view_hide_over(struct revoke *revoke)
{
	struct view_hide *hide = container_of(revoke, struct view_hide, revoke);

	loop_timer_cancel(hide->reactor->loop, &hide->deadline);
	hide->over(hide->context);
}

static void view_hide_expired(struct loop_timer *timer)
{
	struct view_hide *hide = container_of(timer, struct view_hide, deadline);
	struct conn *conn;

	log_warning("%u commands of hosts that lose sight of their namespace are still with its "
		    "disk: the change counts all the same",
		hide->revoke.nr_awaited);
	list_for_each_entry (conn, &hide->reactor->conns, node)
		revoke_forget(&hide->revoke, conn);
	hide->over(hide->context);
}

void view_hide_init(struct view_hide *hide, struct reactor *reactor)
{
	*hide = (struct view_hide){
		.reactor = reactor,
		.patience_ns = VIEW_HIDE_PATIENCE_NS,
		.revoke = {.status = VIEW_HIDE_STATUS,
			.command = &view_hide_command,
			.concerns = view_hide_concerns,
			.over = view_hide_over},
	};
	loop_timer_init(&hide->deadline, view_hide_expired);
}

static int view_hide_set_gate(void *context, struct subsys *subsys, struct ns *ns)
{
	const struct reactor *reactor = context;

	(void)subsys;
	if (ns->narrows)
		reactor->namespaces[ns->place->index]->gate |= REACTOR_NS_NARROWS;
	return 0;
}

void view_hide_start(struct view_hide *hide, const struct catalog *catalog,
	void (*over)(void *context), void *context)
{
	struct reactor *reactor = hide->reactor;
	struct conn *conn;

	hide->catalog = catalog;
	hide->over = over;
	hide->context = context;
	(void)catalog_for_each_ns(catalog, view_hide_set_gate, reactor);
	loop_timer_set(
		reactor->loop, &hide->deadline, loop_now_ns(reactor->loop) + hide->patience_ns);
	revoke_begin(&hide->revoke);
	list_for_each_entry (conn, &reactor->conns, node)
		if (conn->subsys)
			revoke_commands(&hide->revoke, conn);
	revoke_end(&hide->revoke);
}

void view_hide_switched(struct view_hide *hide)
{
	hide->catalog = NULL;
}
