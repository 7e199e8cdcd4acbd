/* SPDX-License-Identifier: MIT */
/*
 * Brings settings to the queues, and applies those about retries.
 */
#include "target/ctrl_settings.h"

#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/request_round.h"

struct ctrl_settings_round {
	struct request_round round;
	const struct ctrl *ctrl; /* not looked into but at home */
	struct ctrl_settings settings;
	bool flush;
};

static struct ctrl_settings ctrl_settings_of(const struct features *features)
{
	return (struct ctrl_settings){
		.write_through = features->write_through, .retry_delays = features->acre};
}

bool ctrl_settings_stale(const struct ctrl *ctrl)
{
	struct ctrl_settings wanted = ctrl_settings_of(&ctrl->features);

	return ctrl->settings.write_through != wanted.write_through ||
	       ctrl->settings.retry_delays != wanted.retry_delays;
}

/* --- the round ------------------------------------------------------------------------------- */

/* One that is joining has the new ones already, or has joined when the round comes. */
static bool ctrl_settings_concern(const struct ctrl_settings_round *round, const struct conn *conn)
{
	enum conn_member_state state = conn->member.state;

	return (state == CONN_MEMBER_JOINED || state == CONN_MEMBER_ADMIN) &&
	       conn->member.ctrl == round->ctrl;
}

static void ctrl_settings_visit(struct request_round *base, struct reactor *reactor)
{
	const struct ctrl_settings_round *round =
		container_of(base, struct ctrl_settings_round, round);
	struct conn *conn;

	list_for_each_entry (conn, &reactor->conns, node)
		if (ctrl_settings_concern(round, conn))
			conn->settings = round->settings;
}

static void ctrl_settings_flushed(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	if (res || !cmd_flush_next(request, ctrl_settings_flushed))
		request_complete(request, nvme_status_from_errno(res, true));
}

static void ctrl_settings_done(struct request_round *base)
{
	const struct ctrl_settings_round *round =
		container_of(base, struct ctrl_settings_round, round);
	struct request *request = base->request;

	/* A reset may have come between. */
	request->conn->settings = round->ctrl->settings;
	if (!round->flush || !cmd_flush_next(request, ctrl_settings_flushed))
		request_complete(request, 0);
}

void ctrl_settings_spread(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	struct ctrl_settings wanted = ctrl_settings_of(&ctrl->features);
	struct request_round *base =
		request_round_create(request, sizeof(struct ctrl_settings_round));
	struct ctrl_settings_round *round = container_of(base, struct ctrl_settings_round, round);

	/* They stay stale, hence the next command tries again. */
	if (!base) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	round->ctrl = ctrl;
	round->settings = wanted;
	round->flush = wanted.write_through && !ctrl->settings.write_through;
	ctrl->settings = wanted;
	request_round_start(base, ctrl_settings_visit, ctrl_settings_done);
}

/* --- retries --------------------------------------------------------------------------------- */

static uint16_t ctrl_settings_delay(uint16_t code)
{
	switch (code) {
	case NVME_SC_INTERRUPTED:
		return 1 << NVME_STATUS_CRD_SHIFT;
	case NVME_SC_NS_NOT_READY:
	case NVME_SC_ANA_TRANSITION:
		return 2 << NVME_STATUS_CRD_SHIFT;
	default:
		return 0;
	}
}

uint16_t ctrl_settings_retry(const struct request *request, uint16_t status)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	if (request->conn->settings.retry_delays)
		return status | ctrl_settings_delay(code);
	if (code != NVME_SC_INTERRUPTED)
		return status;
	return request->ns ? NVME_SC_NS_NOT_READY : NVME_SC_INTERNAL;
}
