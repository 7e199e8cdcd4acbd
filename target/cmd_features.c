/* SPDX-License-Identifier: MIT */
/*
 * Set and Get Features (NVMe base 2.0 5.27 and 5.15): what is the same for every feature.
 */
#include "target/cmd.h"

#include "target/conn.h"
#include "target/ctrl.h"
#include "target/feature.h"
#include "target/subsys.h"

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
