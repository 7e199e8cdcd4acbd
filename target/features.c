/* SPDX-License-Identifier: MIT */
/*
 * The features that controllers have (NVMe base 2.0 5.27): one row a feature. None can be saved.
 */
#include "target/ctrl_features.h"

#include <string.h>

#include "proto/nvme/log.h"
#include "target/cmd_reservation.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/event.h"
#include "target/feature.h"
#include "target/reactor.h"
#include "target/reservation_log.h"
#include "target/smart.h"
#include "target/subsys.h"
#include "target/write_protect.h"

/* Keep Alive Timer (NVMe base 2.0 5.27.1.12), of transports that need one, as RDMA and TCP do. */
#define FEATURE_KATO_DEFAULT_MS 120000u

void features_reset(struct features *features, uint64_t now_ns)
{
	*features = (struct features){.over_kelvin = SMART_WCTEMP, .clock_ns = now_ns};
}

/* Number of queues (5.27.1.5): both halves 0's based. */
static uint32_t feature_queues_get(const struct ctrl *ctrl, bool standard)
{
	uint32_t nr = (standard ? ctrl->max_io_queues : ctrl->nr_io_queues) - 1;

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
	ctrl->nr_io_queues = min_of(nsq, ctrl->max_io_queues);
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
	return standard ? ctrl_round_kato(ctrl, FEATURE_KATO_DEFAULT_MS) : ctrl->kato_ms;
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
		features_reset(&features, 0);
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

/* Timestamp (5.27.1.11): goes on from what the host has set, or from 0 at the last reset; modulo
 * 2^48, and it never stands still. */
static void feature_timestamp_get(const struct ctrl *ctrl, bool standard, void *bytes)
{
	const struct features *features = &ctrl->features;
	struct nvme_timestamp *timestamp = bytes;
	uint64_t passed_ns = loop_now_ns(ctrl->reactor->loop) - features->clock_ns;
	le64_t now = le64(features->timestamp_ms + passed_ns / 1000000);

	if (standard)
		return;
	memcpy(timestamp->ms, &now, sizeof(timestamp->ms));
	timestamp->attributes = features->timestamp_is_hosts ? NVME_TIMESTAMP_ORIGIN_HOST : 0;
}

static uint16_t feature_timestamp_set(struct ctrl *ctrl, const void *bytes)
{
	const struct nvme_timestamp *timestamp = bytes;
	le64_t value = le64(0);

	memcpy(&value, timestamp->ms, sizeof(timestamp->ms));
	ctrl->features.timestamp_ms = le64_get(value);
	ctrl->features.clock_ns = loop_now_ns(ctrl->reactor->loop);
	ctrl->features.timestamp_is_hosts = true;
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
	{.fid = NVME_FEAT_TIMESTAMP,
		.length = sizeof(struct nvme_timestamp),
		.get_data = feature_timestamp_get,
		.set_data = feature_timestamp_set},
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

const struct feature *feature_find(const struct ctrl *ctrl, uint8_t fid)
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
