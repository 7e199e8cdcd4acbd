/* SPDX-License-Identifier: MIT */
/*
 * Connect (NVMe base 2.0 6.3): every field is checked, and the first wrong one named.
 */
#include "target/cmd_connect.h"

#include <string.h>

#include "target/association.h"
#include "target/cmd.h"
#include "target/catalog.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/member.h"
#include "target/reactor.h"
#include "target/subsys.h"
#include "target/target.h"
#include "target/view.h"

uint16_t cmd_connect_refuse_data(struct request *request, size_t offset)
{
	request->cqe.connect_invalid.ipo = le16((uint16_t)offset);
	request->cqe.connect_invalid.iattr = NVME_CONNECT_IATTR_DATA;
	return NVME_SC_CONNECT_INVALID_PARAM | NVME_STATUS_DNR;
}

uint16_t cmd_connect_refuse_cmd(struct request *request, size_t offset)
{
	size_t in_command = offsetof(struct nvme_cmd, connect) + offset;

	request->cqe.connect_invalid.ipo = le16((uint16_t)in_command);
	request->cqe.connect_invalid.iattr = 0;
	return NVME_SC_CONNECT_INVALID_PARAM | NVME_STATUS_DNR;
}

/* CAP.MQES is of I/O queues only (NVMe base 2.0 3.1.3.1). */
static uint32_t cmd_connect_max_depth(const struct conn *conn, uint32_t qid)
{
	return qid ? conn->port->option[TRANSPORT_MAX_QUEUE_SIZE] : conn->ops->max_admin_depth;
}

static uint16_t cmd_connect_check_queue(struct request *request)
{
	const struct conn *conn = request->conn;
	const struct nvme_connect *connect = &request->cmd.connect;
	uint32_t qid = le16_get(connect->qid);
	uint32_t depth = le16_get(connect->sqsize) + 1u;

	if (qid > CTRL_MAX_IO_QUEUES ||
		(conn->expected_qid != CONN_QID_UNKNOWN && qid != conn->expected_qid))
		return cmd_connect_refuse_cmd(request, offsetof(struct nvme_connect, qid));
	if (depth < 2 || depth > cmd_connect_max_depth(conn, qid) ||
		(conn->expected_depth && depth != conn->expected_depth))
		return cmd_connect_refuse_cmd(request, offsetof(struct nvme_connect, sqsize));
	return 0;
}

uint16_t cmd_connect_prepare(struct request *request)
{
	const struct conn *conn = request->conn;

	if (conn->connected || conn->member.state != CONN_MEMBER_NONE)
		return NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR;
	if (le16_get(request->cmd.connect.recfmt) != NVME_CONNECT_RECFMT)
		return NVME_SC_CONNECT_FORMAT | NVME_STATUS_DNR;
	request->data_len = sizeof(struct nvme_connect_data);
	return cmd_connect_check_queue(request);
}

static bool cmd_connect_name_ok(const char field[NVME_NQN_FIELD])
{
	size_t length = strnlen(field, NVME_NQN_FIELD);

	return length < NVME_NQN_FIELD && !nvme_nqn_check(field, length, NVME_NQN_PEERS, NULL);
}

static const struct subsys *cmd_connect_find_subsys(const struct conn *conn, const char *nqn)
{
	const struct target *target = conn->reactor->target;

	if (!strcmp(nqn, NVME_DISCOVERY_NQN) || !strcmp(nqn, target->settings.discovery_nqn))
		return &subsys_discovery;
	return catalog_find(conn->reactor->catalog, nqn);
}

static uint16_t cmd_connect_check_data(struct request *request, const struct subsys **ret_subsys)
{
	const struct nvme_connect_data *data = request->bytes;
	const struct subsys *subsys;

	if (!cmd_connect_name_ok(data->subnqn))
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, subnqn));
	if (!cmd_connect_name_ok(data->hostnqn))
		return cmd_connect_refuse_data(
			request, offsetof(struct nvme_connect_data, hostnqn));
	subsys = cmd_connect_find_subsys(request->conn, data->subnqn);
	if (!subsys) {
		conn_log(request->conn, "host %s asks for %s, which is not here", data->hostnqn,
			data->subnqn);
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, subnqn));
	}
	if (!subsys_host_allowed(subsys, data->hostnqn)) {
		conn_log(request->conn, "host %s is not allowed to use %s", data->hostnqn,
			subsys->nqn);
		return NVME_SC_CONNECT_INVALID_HOST | NVME_STATUS_DNR;
	}
	*ret_subsys = subsys;
	return 0;
}

static void cmd_connect_succeed(struct request *request)
{
	struct conn *conn = request->conn;

	/* The depth has been checked, and no refused Connect has set one: only memory can be short.
	 * Then the controller goes with the connection. */
	if (conn_set_depth(conn, le16_get(request->cmd.connect.sqsize) + 1u))
		conn_close(conn, "out of memory for its queue");
	if (conn->qid)
		conn->in_capsule_max = conn->port->option[TRANSPORT_IN_CAPSULE];
	if (conn->auth.required && conn->state == CONN_LIVE && auth_begin(conn))
		conn_close(conn, "out of memory for its authentication");
	conn->connected = conn->state == CONN_LIVE && !conn->auth.required;
	conn->flow_control_disabled = request->cmd.connect.cattr & NVME_CONNECT_CATTR_NO_SQFLOW;
	loop_timer_cancel(conn->reactor->loop, &conn->handshake);
	request->cqe.connect_ok.cntlid = le16(conn->cntlid);
	request->cqe.connect_ok.authreq = le16(conn->auth.required ? NVME_CONNECT_AUTHREQ_ATR : 0);
	request_complete(request, 0);
}

static uint16_t cmd_connect_admin(struct request *request, const struct subsys *subsys)
{
	const struct nvme_connect_data *data = request->bytes;
	struct conn *conn = request->conn;
	struct ctrl *ctrl;

	if (le16_get(data->cntlid) != NVME_CNTLID_DYNAMIC)
		return cmd_connect_refuse_data(request, offsetof(struct nvme_connect_data, cntlid));
	if (ctrl_create(conn, subsys, data->hostnqn, data->hostid,
		    le32_get(request->cmd.connect.kato), &ctrl)) {
		return NVME_SC_CONNECT_BUSY;
	}
	conn->member.ctrl = ctrl;
	conn->member.state = CONN_MEMBER_ADMIN;
	conn_is_admin(conn);
	conn->cntlid = ctrl->cntlid;
	return 0;
}

/* ASSOCIATION: that of the controller to be; NULL: its subsystem wants none to be claimed. */
static void cmd_connect_make_ctrl(struct request *request, struct association *association)
{
	struct conn *conn = request->conn;
	uint16_t status = cmd_connect_admin(request, conn->subsys);

	if (status) {
		association_release(association);
		request_complete(request, status);
		return;
	}
	conn->member.ctrl->association = association;
	cmd_connect_succeed(request);
}

/* Meanwhile the catalog may have changed, or the host gone. */
static void cmd_connect_claimed(struct request *request, struct association *association)
{
	struct conn *conn = request->conn;
	const struct subsys *subsys = NULL;
	uint16_t status = NVME_SC_CONNECT_BUSY;

	conn->member.state = CONN_MEMBER_NONE;
	if (!request_executed(request)) {
		association_release(association);
		return;
	}
	if (association)
		status = cmd_connect_check_data(request, &subsys);
	else
		conn_log(conn, "host %s has a controller of %s here already", conn->hostnqn,
			conn->subsys->nqn);
	if (status) {
		association_release(association);
		request_complete(request, status);
		return;
	}
	conn->subsys = view_of(subsys, conn->hostnqn);
	cmd_connect_make_ctrl(request, association);
}

static void cmd_connect_claim(struct request *request)
{
	struct conn *conn = request->conn;

	if (!association_claim(request, conn->subsys->nqn, cmd_connect_claimed)) {
		request_complete(request, NVME_SC_CONNECT_BUSY);
		return;
	}
	conn->member.state = CONN_MEMBER_JOINING;
	request_hand_to(request, REQUEST_EXEC);
}

void cmd_connect_run(struct request *request)
{
	const struct nvme_connect_data *data = request->bytes;
	struct conn *conn = request->conn;
	const struct subsys *subsys = NULL;
	uint16_t status;

	/* Another Connect may have come between while this one's data was on its way (RDMA). */
	if (conn->connected || conn->member.state != CONN_MEMBER_NONE) {
		request_complete(request, NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
		return;
	}
	status = cmd_connect_check_data(request, &subsys);
	if (status) {
		request_complete(request, status);
		return;
	}
	conn->subsys = view_of(subsys, data->hostnqn);
	conn->auth.required = host_auth_find(&subsys->auth, data->hostnqn);
	memcpy(conn->hostnqn, data->hostnqn, sizeof(conn->hostnqn));
	conn->qid = le16_get(request->cmd.connect.qid);
	memcpy(conn->hostid, data->hostid, sizeof(conn->hostid));
	if (conn->qid) {
		member_join(request, le16_get(data->cntlid));
		return;
	}
	if (conn->subsys->one_association)
		cmd_connect_claim(request);
	else
		cmd_connect_make_ctrl(request, NULL);
}

void cmd_connect_joined(struct request *request, uint16_t status)
{
	if (!status) {
		cmd_connect_succeed(request);
		return;
	}
	conn_log(request->conn, "Connect to controller %u is refused: %s", request->conn->cntlid,
		nvme_status_str(status));
	request->conn->qid = 0;
	request_complete(request, status);
}
