/* SPDX-License-Identifier: MIT */
/*
 * Visits the reactors and lists their controllers in order.
 */
#include "target/identify_ctrls.h"

#include <string.h>

#include "proto/nvme/identify.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/request_round.h"
#include "target/subsys.h"

struct identify_ctrls {
	struct request_round round;
	uint32_t nsid;			      /* those that it is attached to; 0: all */
	uint64_t seen[(UINT16_MAX + 1) / 64]; /* by controller id */
};

uint16_t identify_ctrls_check(const struct request *request)
{
	uint32_t nsid = le32_get(request->cmd.nsid);

	if (request->cmd.identify.cns == NVME_CNS_CTRL_LIST)
		return 0;
	if (nsid == NVME_NSID_ALL)
		return CMD_INVALID_FIELD;
	return nsid_valid(nsid) ? 0 : NVME_SC_INVALID_NS | NVME_STATUS_DNR;
}

/* On each reactor. */
static void identify_ctrls_visit(struct request_round *round, struct reactor *reactor)
{
	struct identify_ctrls *ctrls = container_of(round, struct identify_ctrls, round);

	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++) {
		const struct ctrl *ctrl = reactor->ctrls[slot];

		if (ctrl && !ctrl->ending && !strcmp(ctrl->subsys->nqn, round->nqn) &&
			(!ctrls->nsid || subsys_ns(ctrl->subsys, ctrls->nsid)))
			ctrls->seen[ctrl->cntlid / 64] |= 1ull << ctrl->cntlid % 64;
	}
}

static void identify_ctrls_done(struct request_round *round)
{
	const struct identify_ctrls *ctrls = container_of(round, struct identify_ctrls, round);
	struct request *request = round->request;
	struct nvme_ctrl_list *list = request->bytes;
	uint32_t nr = 0;

	for (uint32_t id = le16_get(request->cmd.identify.cntid);
		id <= UINT16_MAX && nr < NVME_CTRL_LIST_MAX; id++)
		if (ctrls->seen[id / 64] & 1ull << id % 64)
			list->cntlid[nr++] = le16((uint16_t)id);
	list->nr = le16((uint16_t)nr);
	request_complete(request, 0);
}

void identify_ctrls_run(struct request *request)
{
	const struct nvme_cmd_identify *identify = &request->cmd.identify;
	uint32_t nsid = identify->cns == NVME_CNS_NS_CTRL_LIST ? le32_get(request->cmd.nsid) : 0;
	struct request_round *round;

	/* Attached to nobody that this host may know of, as it is not there: the list is empty. */
	if (nsid && !subsys_ns(request->conn->subsys, nsid)) {
		request_complete(request, 0);
		return;
	}
	round = request_round_create(request, sizeof(struct identify_ctrls));
	if (!round) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	container_of(round, struct identify_ctrls, round)->nsid = nsid;
	request_round_start(round, identify_ctrls_visit, identify_ctrls_done);
}
