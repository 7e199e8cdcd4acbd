/* SPDX-License-Identifier: MIT */
/*
 * Set and Get Features (NVMe base 2.0 5.15 and 5.27): one row a feature. None can be saved, none
 * belongs to a namespace.
 */
#include "target/cmd.h"

#include <string.h>

#include "proto/nvme/log.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/event.h"
#include "target/subsys.h"

struct feature {
	uint8_t fid;
	bool discovery; /* discovery controllers have it, too */
	bool constant;	/* not changeable: no SET */
	uint32_t (*get)(const struct ctrl *ctrl, bool standard);
	/* DW0 of the response in *RET_DW0. */
	uint16_t (*set)(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0);
};

/* Number of queues (5.27.1.5): both halves 0's based. */
static uint32_t feature_queues_get(const struct ctrl *ctrl, bool standard)
{
	uint32_t nr = (standard ? CTRL_MAX_IO_QUEUES : ctrl->nr_io_queues) - 1;

	return NVME_NUMBER_OF_QUEUES(nr, nr);
}

static uint16_t feature_queues_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	uint32_t nsq = NVME_NUMBER_OF_QUEUES_SQ(value);
	uint32_t ncq = NVME_NUMBER_OF_QUEUES_CQ(value);

	if (nsq == NVME_NUMBER_OF_QUEUES_ILLEGAL || ncq == NVME_NUMBER_OF_QUEUES_ILLEGAL)
		return CMD_INVALID_FIELD;
	if (ctrl->nr_members || ctrl->nr_waiting)
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	/* On fabrics a queue is a pair: the smaller number counts for both. */
	nsq = min_of(nsq, ncq) + 1;
	ctrl->nr_io_queues = min_of(nsq, (uint32_t)CTRL_MAX_IO_QUEUES);
	*ret_dw0 = feature_queues_get(ctrl, false);
	return 0;
}

static uint32_t feature_async_event_get(const struct ctrl *ctrl, bool standard)
{
	return standard ? 0 : ctrl->events.configured;
}

static uint16_t feature_async_event_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	uint32_t supported =
		ctrl->subsys->discovery ? NVME_AEC_DISCOVERY : NVME_AEC_SMART | NVME_AEC_NS;

	(void)ret_dw0;
	event_configure(ctrl, value & supported);
	return 0;
}

static uint32_t feature_keep_alive_get(const struct ctrl *ctrl, bool standard)
{
	return standard ? 0 : ctrl->kato_ms;
}

static uint16_t feature_keep_alive_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ret_dw0;
	ctrl_set_kato(ctrl, value);
	return 0;
}

static uint32_t feature_write_cache_get(const struct ctrl *ctrl, bool standard)
{
	(void)standard;
	return ctrl->subsys->volatile_cache ? NVME_VWC_WCE : 0;
}

/* Arbitration, power state, error recovery, write atomicity: nothing of it here is adjustable. */
static uint32_t feature_zero_get(const struct ctrl *ctrl, bool standard)
{
	(void)ctrl;
	(void)standard;
	return 0;
}

static const struct feature feature_table[] = {
	{.fid = NVME_FEAT_ARBITRATION, .constant = true, .get = feature_zero_get},
	{.fid = NVME_FEAT_POWER_MANAGEMENT, .constant = true, .get = feature_zero_get},
	{.fid = NVME_FEAT_ERROR_RECOVERY, .constant = true, .get = feature_zero_get},
	{.fid = NVME_FEAT_VOLATILE_WRITE_CACHE, .constant = true, .get = feature_write_cache_get},
	{.fid = NVME_FEAT_NUMBER_OF_QUEUES, .get = feature_queues_get, .set = feature_queues_set},
	{.fid = NVME_FEAT_WRITE_ATOMICITY, .constant = true, .get = feature_zero_get},
	{.fid = NVME_FEAT_ASYNC_EVENT,
		.discovery = true,
		.get = feature_async_event_get,
		.set = feature_async_event_set},
	{.fid = NVME_FEAT_KEEP_ALIVE_TIMER,
		.discovery = true,
		.get = feature_keep_alive_get,
		.set = feature_keep_alive_set},
};

static const struct feature *feature_find(const struct ctrl *ctrl, uint8_t fid)
{
	for (size_t i = 0; i < ARRAY_SIZE(feature_table); i++) {
		const struct feature *feature = &feature_table[i];

		if (feature->fid != fid)
			continue;
		if (fid == NVME_FEAT_VOLATILE_WRITE_CACHE && !ctrl->subsys->volatile_cache)
			return NULL;
		return feature->discovery || !ctrl->subsys->discovery ? feature : NULL;
	}
	return NULL;
}

uint32_t feature_effects(const struct ctrl *ctrl, uint8_t fid)
{
	bool host_id = fid == NVME_FEAT_HOST_ID && !ctrl->subsys->discovery;

	return host_id || feature_find(ctrl, fid)
		       ? NVME_LOG_FEATURES_FSUPP | NVME_LOG_FEATURES_SCOPE_CTRL
		       : 0;
}

/* --- Set Features ---------------------------------------------------------------------------- */

/* None of the features takes data: what a host attaches is not fetched. */
uint16_t cmd_set_features_prepare(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	const struct conn *conn = request->conn;
	uint32_t nsid = le32_get(request->cmd.nsid);

	/* NVMe base 2.0 5.27.1.25: on fabrics the host identifier comes with Connect only. */
	if (features->fid == NVME_FEAT_HOST_ID && !conn->subsys->discovery)
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	if (!feature_find(conn->member.ctrl, features->fid))
		return CMD_INVALID_FIELD;
	if (features->sv & NVME_FEATURES_SV)
		return NVME_SC_FEATURE_NOT_SAVEABLE | NVME_STATUS_DNR;
	if (nsid != 0 && nsid != NVME_NSID_ALL)
		return NVME_SC_FEATURE_NOT_PER_NS | NVME_STATUS_DNR;
	return 0;
}

void cmd_set_features_run(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct feature *feature = feature_find(ctrl, features->fid);
	uint32_t value = le32_get(features->cdw11);
	uint16_t status;
	uint32_t dw0 = 0;

	if (!feature->constant)
		status = feature->set(ctrl, value, &dw0);
	else if (value == feature->get(ctrl, false))
		status = 0;
	else
		status = NVME_SC_FEATURE_NOT_CHANGEABLE | NVME_STATUS_DNR;
	request->cqe.dw0 = le32(dw0);
	request_complete(request, status);
}

/* --- Get Features ---------------------------------------------------------------------------- */

uint16_t cmd_get_features_prepare(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	const struct conn *conn = request->conn;

	if ((features->sel & 0x7) > NVME_FEATURE_SUPPORTED)
		return CMD_INVALID_FIELD;
	if (features->fid == NVME_FEAT_HOST_ID && !conn->subsys->discovery) {
		/* NVMe base 2.0 5.27.1.25: 128 bits are the only form on fabrics. */
		if (!(le32_get(features->cdw11) & NVME_HOST_ID_EXHID))
			return NVME_SC_HOSTID_FORMAT | NVME_STATUS_DNR;
		if ((features->sel & 0x7) != NVME_FEATURE_SUPPORTED)
			request->data_len = sizeof(conn->member.ctrl->hostid);
		return 0;
	}
	return feature_find(conn->member.ctrl, features->fid) ? 0 : CMD_INVALID_FIELD;
}

void cmd_get_features_run(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct feature *feature = feature_find(ctrl, features->fid);
	uint8_t select = features->sel & 0x7;
	uint32_t dw0 = 0;

	if (!feature) { /* the host identifier */
		if (request->data_len)
			memcpy(request->bytes, ctrl->hostid, sizeof(ctrl->hostid));
	} else if (select == NVME_FEATURE_SUPPORTED) {
		dw0 = feature->constant ? 0 : NVME_FEATURE_CAP_CHANGEABLE;
	} else {
		dw0 = feature->get(ctrl, select != NVME_FEATURE_CURRENT);
	}
	request->cqe.dw0 = le32(dw0);
	request_complete(request, 0);
}
