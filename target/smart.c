/* SPDX-License-Identifier: MIT */
/*
 * Visits the reactors and fills in the page.
 */
#include "target/smart.h"

#include <string.h>

#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "target/catalog.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/error_log.h"
#include "target/log_pages.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/request_round.h"
#include "target/smart_past.h"
#include "target/view.h"

#define SMART_SPARE	      100
#define SMART_SPARE_THRESHOLD 10
#define SMART_NS_PER_HOUR     3600000000000ull

struct smart_round {
	struct request_round round;
	uint32_t nsid; /* NVME_NSID_ALL: of all namespaces that the host sees */
	struct ns_sum sum;
	bool read_only;
};

uint16_t smart_log_check(const struct request *request)
{
	uint32_t nsid = le32_get(request->cmd.nsid);

	if (nsid == 0 || nsid == NVME_NSID_ALL)
		return 0;
	if (!nsid_valid(nsid))
		return NVME_SC_INVALID_NS | NVME_STATUS_DNR;
	return subsys_ns(request->conn->subsys, nsid) ? 0 : CMD_INVALID_FIELD;
}

/* On each reactor. */
static void smart_visit_one(struct smart_round *smart, const struct reactor_ns *ns)
{
	if (smart->nsid == NVME_NSID_ALL)
		smart_past_add_since(ns, &smart->sum);
	else
		smart_past_sum_add(&smart->sum, &ns->sum);
	smart->read_only |= reactor_ns_turned_read_only(ns);
}

static void smart_visit(struct request_round *round, struct reactor *reactor)
{
	struct smart_round *smart = container_of(round, struct smart_round, round);
	const struct subsys *subsys = view_find(reactor->catalog, round->nqn, round->hostnqn);

	for (uint32_t nsid = 1; subsys && nsid < subsys->ns_limit; nsid++)
		if (subsys->ns[nsid] && (smart->nsid == NVME_NSID_ALL || smart->nsid == nsid))
			smart_visit_one(smart, reactor_ns_find(reactor, subsys, nsid));
	if (smart->nsid == NVME_NSID_ALL)
		smart_past_add(reactor, round->nqn, round->hostnqn, &smart->sum);
}

/* Thousands of 512 bytes, rounded up. */
static le128_t smart_data_units(uint64_t units)
{
	return le128(units / 1000 + (units % 1000 ? 1 : 0));
}

/* What is left 0 has not been measured: busy time would cost each I/O its part, and unsafe
 * shutdowns need a record that outlives the process. Power-on hours and all counts are since the
 * start of the process, which is the one power cycle.
 *
 * Units read are those of Compare, Read and Verify, commands that read are Compare, Copy and Read,
 * what writes are Copy and Write (NVM command set 1.0 1.4.2.7, 1.4.2.8, 1.4.2.10). */
static void smart_fill(
	const struct smart_round *smart, const struct ctrl *ctrl, struct nvme_log_smart *page)
{
	const struct reactor *reactor = ctrl->reactor;
	const struct ns_count *counts = smart->sum.counts;

	*page = (struct nvme_log_smart){
		.critical_warning =
			(smart->read_only ? NVME_SMART_READ_ONLY : 0) |
			(features_temperature_alarm(&ctrl->features) ? NVME_SMART_TEMPERATURE : 0),
		.temperature = le16(SMART_TEMPERATURE),
		.available_spare = SMART_SPARE,
		.spare_threshold = SMART_SPARE_THRESHOLD,
		.data_units_read = smart_data_units(
			counts[NS_COUNT_READ].units + counts[NS_COUNT_VERIFY].units),
		.data_units_written = smart_data_units(
			counts[NS_COUNT_WRITE].units + counts[NS_COUNT_COPY].units),
		.host_reads =
			le128(counts[NS_COUNT_READ].commands + counts[NS_COUNT_COPY].commands),
		.host_writes =
			le128(counts[NS_COUNT_WRITE].commands + counts[NS_COUNT_COPY].commands),
		.power_cycles = le128(1),
		.power_on_hours = le128(
			(loop_now_ns(reactor->loop) - reactor->started_ns) / SMART_NS_PER_HOUR),
		.media_errors = le128(smart->sum.nr_media_errors),
		.error_entries = le128(error_log_count(ctrl))};
}

static void smart_done(struct request_round *round)
{
	struct request *request = round->request;
	struct nvme_log_smart page;

	smart_fill(
		container_of(round, struct smart_round, round), request->conn->member.ctrl, &page);
	log_page_answer(request, &page, sizeof(page));
}

void smart_log_run(struct request *request)
{
	struct request_round *round = request_round_create(request, sizeof(struct smart_round));
	uint32_t nsid = le32_get(request->cmd.nsid);

	if (!round) {
		request_complete(request, NVME_SC_INTERNAL);
		return;
	}
	container_of(round, struct smart_round, round)->nsid = nsid ? nsid : NVME_NSID_ALL;
	request_round_start(round, smart_visit, smart_done);
}

/* --- the warning ----------------------------------------------------------------------------- */

struct smart_warning {
	struct request_round round;
	uint16_t status;
	uint32_t nsid;
};

static void smart_warn_visit(struct request_round *round, struct reactor *reactor)
{
	const struct smart_warning *warning = container_of(round, struct smart_warning, round);

	for (uint32_t slot = 0; slot < REACTOR_MAX_CTRLS; slot++) {
		struct ctrl *ctrl = reactor->ctrls[slot];

		if (ctrl && !strcmp(ctrl->subsys->nqn, round->nqn) &&
			subsys_ns(ctrl->subsys, warning->nsid))
			event_raise(
				ctrl, NVME_AER_SMART, NVME_AER_SMART_RELIABILITY, NVME_LOG_SMART);
	}
}

static void smart_warn_done(struct request_round *round)
{
	request_complete(round->request, container_of(round, struct smart_warning, round)->status);
}

void smart_warn(struct request *request, uint16_t status)
{
	struct request_round *round = request_round_create(request, sizeof(struct smart_warning));
	struct smart_warning *warning;

	request->ns->tell_read_only = false;
	if (!round) {
		request_complete(request, status);
		return;
	}
	warning = container_of(round, struct smart_warning, round);
	warning->status = status;
	warning->nsid = request->ns->ns.nsid;
	request_round_start(round, smart_warn_visit, smart_warn_done);
}
