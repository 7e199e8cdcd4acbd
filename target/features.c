/* SPDX-License-Identifier: MIT */
/*
 * Set and Get Features (NVMe base 2.0 5.15 and 5.27): one row a feature. None can be saved.
 */
#include "target/ctrl_features.h"

#include <string.h>

#include "proto/nvme/log.h"
#include "target/cmd_reservation.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/event.h"
#include "target/reactor.h"
#include "target/reservation_log.h"
#include "target/smart.h"
#include "target/subsys.h"
#include "target/write_protect.h"

/* Keep Alive Timer (NVMe base 2.0 5.27.1.12), of transports that need one, as RDMA and TCP do. */
#define FEATURE_KATO_DEFAULT_MS 120000u

struct feature {
	uint8_t fid;
	bool discovery;	 /* discovery controllers have it, too */
	bool constant;	 /* not changeable: no SET */
	uint16_t length; /* bytes of data, of Get and of Set; then SET_DATA and GET_DATA */
	uint32_t (*get)(const struct ctrl *ctrl, bool standard);
	/* DW0 of the response in *RET_DW0. */
	uint16_t (*set)(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0);
	void (*get_data)(const struct ctrl *ctrl, bool standard, void *bytes);
	uint16_t (*set_data)(struct ctrl *ctrl, const void *bytes);
	/* Instead of GET: what CDW11 of Get selects. CHECK judges that for Get. */
	uint16_t (*check)(uint32_t select);
	uint32_t (*get_selected)(const struct ctrl *ctrl, bool standard, uint32_t select);
	/* Instead of all: it is a namespace's. SET_NS completes, also for NVME_NSID_ALL. */
	uint32_t (*get_ns)(const struct request *request, uint32_t nsid);
	void (*set_ns)(struct request *request);
	bool stays; /* a namespace has it although its data is not accessible (NVMe base 2.0 8.1) */
	bool of_reservations; /* an invalid namespace is an invalid field (5.27.1.26, 5.27.1.27) */
};

void features_reset(struct features *features)
{
	*features = (struct features){.over_kelvin = SMART_WCTEMP};
}

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
	uint32_t supported = ctrl->subsys->discovery ? NVME_AEC_DISCOVERY
						     : NVME_AEC_SMART | NVME_AEC_NS | NVME_AEC_ANA;

	(void)ret_dw0;
	/* Endurance groups, whose bit it is, there are none of (5.27.1.8). */
	if (value & NVME_AEC_ENDURANCE_GROUPS)
		return CMD_INVALID_FIELD;
	event_configure(ctrl, value & supported);
	return 0;
}

static uint32_t feature_keep_alive_get(const struct ctrl *ctrl, bool standard)
{
	return standard ? FEATURE_KATO_DEFAULT_MS : ctrl->kato_ms;
}

static uint16_t feature_keep_alive_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ret_dw0;
	ctrl_set_kato(ctrl, value);
	return 0;
}

/* Volatile Write Cache (5.27.1.4): off, this controller's writes go through it. Without a cache
 * there is no such feature. */
static uint32_t feature_write_cache_get(const struct ctrl *ctrl, bool standard)
{
	return standard || !ctrl->features.write_through ? NVME_VWC_WCE : 0;
}

static uint16_t feature_write_cache_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ret_dw0;
	ctrl->features.write_through = !(value & NVME_VWC_WCE);
	return 0;
}

/* Arbitration (5.27.1.1): a queue's commands are taken as they come. */
static uint32_t feature_arbitration_get(const struct ctrl *ctrl, bool standard)
{
	(void)ctrl;
	(void)standard;
	return NVME_ARBITRATION_AB_NO_LIMIT;
}

/* Power Management (5.27.1.2): of the one power state. */
static uint32_t feature_power_get(const struct ctrl *ctrl, bool standard)
{
	return standard ? 0 : (uint32_t)ctrl->features.workload_hint << 5;
}

static uint16_t feature_power_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ret_dw0;
	if (NVME_POWER_PS(value) || NVME_POWER_WH(value) > NVME_POWER_WH_MAX)
		return CMD_INVALID_FIELD;
	ctrl->features.workload_hint = NVME_POWER_WH(value);
	return 0;
}

/* NVM command set 1.0 4.1.3.5: every write is as atomic as it is. */
static uint32_t feature_atomicity_get(const struct ctrl *ctrl, bool standard)
{
	return !standard && ctrl->features.disable_normal ? NVME_WRITE_ATOMICITY_DN : 0;
}

static uint16_t feature_atomicity_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ret_dw0;
	ctrl->features.disable_normal = value & NVME_WRITE_ATOMICITY_DN;
	return 0;
}

/* I/O Command Set Profile (5.27.1.21): there is one combination. */
static uint32_t feature_profile_get(const struct ctrl *ctrl, bool standard)
{
	(void)ctrl;
	(void)standard;
	return 0;
}

static uint16_t feature_profile_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	(void)ctrl;
	(void)ret_dw0;
	return NVME_IO_COMMAND_SET_INDEX(value)
		       ? NVME_SC_IO_COMMAND_SET_COMBINATION_REJECTED | NVME_STATUS_DNR
		       : 0;
}

/* --- Temperature Threshold (5.27.1.3): of a sensor that always says the same ------------------ */

bool features_temperature_alarm(const struct features *features)
{
	return features->over_kelvin <= SMART_TEMPERATURE ||
	       features->under_kelvin >= SMART_TEMPERATURE;
}

static uint16_t feature_temperature_check(uint32_t select)
{
	if (NVME_TEMPERATURE_TMPSEL(select) != NVME_TEMPERATURE_COMPOSITE ||
		NVME_TEMPERATURE_THSEL(select) > NVME_TEMPERATURE_UNDER)
		return CMD_INVALID_FIELD;
	return 0;
}

static uint32_t feature_temperature_get(const struct ctrl *ctrl, bool standard, uint32_t select)
{
	struct features features = ctrl->features;
	bool under = NVME_TEMPERATURE_THSEL(select) == NVME_TEMPERATURE_UNDER;

	if (standard)
		features_reset(&features);
	return (select & NVME_TEMPERATURE_SELECT) |
	       (under ? features.under_kelvin : features.over_kelvin);
}

static uint16_t feature_temperature_set(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0)
{
	struct features *features = &ctrl->features;

	(void)ret_dw0;
	if (NVME_TEMPERATURE_TMPSEL(value) == NVME_TEMPERATURE_ALL)
		value &= ~(NVME_TEMPERATURE_ALL << 16);
	if (feature_temperature_check(value))
		return CMD_INVALID_FIELD;
	if (NVME_TEMPERATURE_THSEL(value) == NVME_TEMPERATURE_UNDER)
		features->under_kelvin = NVME_TEMPERATURE_TMPTH(value);
	else
		features->over_kelvin = NVME_TEMPERATURE_TMPTH(value);
	if (features_temperature_alarm(features))
		event_raise(ctrl, NVME_AER_SMART, NVME_AER_SMART_TEMPERATURE, NVME_LOG_SMART);
	return 0;
}

/* --- with data ------------------------------------------------------------------------------- */

/* Host Behavior Support (5.27.1.18): what the host can do; ACRE is made use of, see
 * target/ctrl_settings.h. */
static void feature_behavior_get(const struct ctrl *ctrl, bool standard, void *bytes)
{
	struct nvme_host_behavior *behavior = bytes;

	if (standard)
		return;
	behavior->acre = ctrl->features.acre;
	behavior->etdas = ctrl->features.etdas;
	behavior->lbafee = ctrl->features.lbafee;
}

static uint16_t feature_behavior_set(struct ctrl *ctrl, const void *bytes)
{
	const struct nvme_host_behavior *behavior = bytes;

	if (behavior->acre > 1 || behavior->etdas > 1 || behavior->lbafee > 1)
		return CMD_INVALID_FIELD;
	ctrl->features.acre = behavior->acre;
	ctrl->features.etdas = behavior->etdas;
	ctrl->features.lbafee = behavior->lbafee;
	return 0;
}

/* Host Identifier (5.27.1.25): 128 bits are the only form on fabrics. */
static uint16_t feature_host_id_check(uint32_t select)
{
	return select & NVME_HOST_ID_EXHID ? 0 : CMD_INVALID_FIELD;
}

static void feature_host_id_get(const struct ctrl *ctrl, bool standard, void *bytes)
{
	(void)standard;
	memcpy(bytes, ctrl->hostid, sizeof(ctrl->hostid));
}

/* --- of namespaces --------------------------------------------------------------------------- */

/* Error Recovery (NVM command set 1.0 4.1.3.2): errors of a disk are told at once, and reads of
 * deallocated blocks are none. */
static uint32_t feature_error_recovery_get(const struct request *request, uint32_t nsid)
{
	(void)request;
	(void)nsid;
	return 0;
}

static void feature_error_recovery_set(struct request *request)
{
	uint32_t value = le32_get(request->cmd.features.cdw11);

	request_complete(request, value ? NVME_SC_FEATURE_NOT_CHANGEABLE | NVME_STATUS_DNR : 0);
}

/* Reservation Notification Mask (5.27.1.26): of this controller and a namespace. */
static uint32_t feature_reservation_mask_get(const struct request *request, uint32_t nsid)
{
	return reservation_mask_get(request->conn->member.ctrl, nsid);
}

static void feature_reservation_mask_set(struct request *request)
{
	request_complete(request,
		reservation_mask_set(request->conn->member.ctrl, le32_get(request->cmd.nsid),
			le32_get(request->cmd.features.cdw11)));
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct feature feature_table[] = {
	{.fid = NVME_FEAT_ARBITRATION, .constant = true, .get = feature_arbitration_get},
	{.fid = NVME_FEAT_POWER_MANAGEMENT, .get = feature_power_get, .set = feature_power_set},
	{.fid = NVME_FEAT_TEMPERATURE_THRESHOLD,
		.check = feature_temperature_check,
		.get_selected = feature_temperature_get,
		.set = feature_temperature_set},
	{.fid = NVME_FEAT_ERROR_RECOVERY,
		.constant = true,
		.get_ns = feature_error_recovery_get,
		.set_ns = feature_error_recovery_set},
	{.fid = NVME_FEAT_VOLATILE_WRITE_CACHE,
		.get = feature_write_cache_get,
		.set = feature_write_cache_set},
	{.fid = NVME_FEAT_NUMBER_OF_QUEUES, .get = feature_queues_get, .set = feature_queues_set},
	{.fid = NVME_FEAT_WRITE_ATOMICITY,
		.get = feature_atomicity_get,
		.set = feature_atomicity_set},
	{.fid = NVME_FEAT_ASYNC_EVENT,
		.discovery = true,
		.get = feature_async_event_get,
		.set = feature_async_event_set},
	{.fid = NVME_FEAT_KEEP_ALIVE_TIMER,
		.discovery = true,
		.get = feature_keep_alive_get,
		.set = feature_keep_alive_set},
	{.fid = NVME_FEAT_HOST_BEHAVIOR,
		.length = sizeof(struct nvme_host_behavior),
		.get_data = feature_behavior_get,
		.set_data = feature_behavior_set},
	{.fid = NVME_FEAT_IO_COMMAND_SET_PROFILE,
		.get = feature_profile_get,
		.set = feature_profile_set},
	{.fid = NVME_FEAT_RESERVATION_NOTIFICATION_MASK,
		.get_ns = feature_reservation_mask_get,
		.set_ns = feature_reservation_mask_set,
		.of_reservations = true},
	{.fid = NVME_FEAT_RESERVATION_PERSISTENCE,
		.get_ns = cmd_persistence_get,
		.set_ns = cmd_persistence_set,
		.of_reservations = true},
	{.fid = NVME_FEAT_WRITE_PROTECT,
		.get_ns = write_protect_get,
		.set_ns = write_protect_set,
		.stays = true},
	{.fid = NVME_FEAT_HOST_ID,
		.constant = true,
		.length = sizeof(((struct ctrl *)NULL)->hostid),
		.check = feature_host_id_check,
		.get_data = feature_host_id_get},
};

static const struct feature *feature_find(const struct ctrl *ctrl, uint8_t fid)
{
	for (size_t i = 0; i < ARRAY_SIZE(feature_table); i++) {
		const struct feature *feature = &feature_table[i];

		if (feature->fid != fid)
			continue;
		if (fid == NVME_FEAT_VOLATILE_WRITE_CACHE && !ctrl->subsys->volatile_cache)
			return NULL;
		if (fid == NVME_FEAT_WRITE_PROTECT && !write_protect_offered(ctrl->reactor->target))
			return NULL;
		return feature->discovery || !ctrl->subsys->discovery ? feature : NULL;
	}
	return NULL;
}

uint32_t feature_effects(const struct ctrl *ctrl, uint8_t fid)
{
	const struct feature *feature = feature_find(ctrl, fid);

	if (!feature)
		return 0;
	return NVME_LOG_FEATURES_FSUPP |
	       (feature->get_ns ? NVME_LOG_FEATURES_SCOPE_NS : NVME_LOG_FEATURES_SCOPE_CTRL);
}

/* Of a feature that is a namespace's; a status. */
static uint16_t feature_check_ns(
	const struct conn *conn, const struct feature *feature, uint32_t nsid, bool set)
{
	uint16_t status = ana_check(conn, nsid);

	/* There is no value that all have; to be set it does not come here. */
	if (nsid == NVME_NSID_ALL)
		return CMD_INVALID_FIELD;
	if (!nsid_valid(nsid) && !feature->of_reservations)
		return NVME_SC_INVALID_NS | NVME_STATUS_DNR;
	if (!subsys_ns(conn->subsys, nsid))
		return CMD_INVALID_FIELD;
	/* NVMe base 2.0 8.1 (effects on commands): nothing is set of what has been lost for good.
	 */
	return feature->stays && !(set && status == NVME_SC_ANA_PERSISTENT_LOSS) ? 0 : status;
}

/* --- Set Features ---------------------------------------------------------------------------- */

/* NVMe base 2.0 8.1 (effects on commands): of all namespaces, or of one for a feature that is the
 * controller's. */
static uint16_t feature_check_nsid(const struct conn *conn, uint32_t nsid)
{
	if (nsid == 0)
		return 0;
	if (nsid == NVME_NSID_ALL)
		return ana_check_all(conn);
	return ana_check(conn, nsid) == NVME_SC_ANA_PERSISTENT_LOSS
		       ? NVME_SC_ANA_PERSISTENT_LOSS
		       : NVME_SC_FEATURE_NOT_PER_NS | NVME_STATUS_DNR;
}

uint16_t cmd_set_features_prepare(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	const struct conn *conn = request->conn;
	const struct feature *feature = feature_find(conn->member.ctrl, features->fid);
	uint32_t nsid = le32_get(request->cmd.nsid);

	if (!feature)
		return CMD_INVALID_FIELD;
	/* NVMe base 2.0 5.27.1.25: on fabrics the host identifier comes with Connect only. */
	if (features->fid == NVME_FEAT_HOST_ID)
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	if (features->sv & NVME_FEATURES_SV)
		return NVME_SC_FEATURE_NOT_SAVEABLE | NVME_STATUS_DNR;
	if (feature->get_ns && nsid != NVME_NSID_ALL)
		return feature_check_ns(conn, feature, nsid, true);
	request->data_len = feature->length;
	return feature_check_nsid(conn, nsid);
}

static uint16_t feature_set(struct request *request, const struct feature *feature)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	uint32_t value = le32_get(request->cmd.features.cdw11);
	uint32_t dw0 = 0;
	uint16_t status;

	if (feature->set_data)
		return feature->set_data(ctrl, request->bytes);
	if (feature->constant)
		return value == feature->get(ctrl, false)
			       ? 0
			       : NVME_SC_FEATURE_NOT_CHANGEABLE | NVME_STATUS_DNR;
	status = feature->set(ctrl, value, &dw0);
	request->cqe.dw0 = le32(dw0);
	return status;
}

static void feature_set_and_complete(struct request *request, const struct feature *feature)
{
	uint16_t status = feature_set(request, feature);

	if (!status && ctrl_settings_stale(request->conn->member.ctrl))
		ctrl_settings_spread(request);
	else
		request_complete(request, status);
}

void cmd_set_features_run(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct feature *feature = feature_find(ctrl, request->cmd.features.fid);

	ctrl_alive(ctrl);
	/* The catalog may have changed while the data was on its way. */
	if (!feature)
		request_complete(request, CMD_INVALID_FIELD);
	else if (feature->set_ns)
		feature->set_ns(request);
	else
		feature_set_and_complete(request, feature);
}

/* --- Get Features ---------------------------------------------------------------------------- */

uint16_t cmd_get_features_prepare(struct request *request)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	const struct conn *conn = request->conn;
	const struct feature *feature = feature_find(conn->member.ctrl, features->fid);
	uint16_t status;

	if (!feature || (features->sel & 0x7) > NVME_FEATURE_SUPPORTED)
		return CMD_INVALID_FIELD;
	if (feature->get_ns)
		return feature_check_ns(conn, feature, le32_get(request->cmd.nsid), false);
	if ((features->sel & 0x7) == NVME_FEATURE_SUPPORTED)
		return 0;
	status = feature->check ? feature->check(le32_get(features->cdw11)) : 0;
	if (!status)
		request->data_len = feature->length;
	return status;
}

/* DW0 of the response. What is saved is the default (NVMe base 2.0 5.15), for nothing is. */
static uint32_t feature_get(const struct request *request, const struct feature *feature)
{
	const struct nvme_cmd_features *features = &request->cmd.features;
	const struct ctrl *ctrl = request->conn->member.ctrl;
	uint8_t select = features->sel & 0x7;
	bool standard = select != NVME_FEATURE_CURRENT;

	if (select == NVME_FEATURE_SUPPORTED)
		return (feature->constant ? 0 : NVME_FEATURE_CAP_CHANGEABLE) |
		       (feature->get_ns ? NVME_FEATURE_CAP_NS : 0);
	if (feature->get_ns)
		return standard ? 0 : feature->get_ns(request, le32_get(request->cmd.nsid));
	if (feature->get_selected)
		return feature->get_selected(ctrl, standard, le32_get(features->cdw11));
	if (!feature->get_data)
		return feature->get(ctrl, standard);
	if (request->data_len)
		feature->get_data(ctrl, standard, request->bytes);
	return 0;
}

void cmd_get_features_run(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct feature *feature = feature_find(ctrl, request->cmd.features.fid);

	ctrl_alive(ctrl);
	if (!feature) {
		request_complete(request, CMD_INVALID_FIELD);
		return;
	}
	request->cqe.dw0 = le32(feature_get(request, feature));
	request_complete(request, 0);
}
