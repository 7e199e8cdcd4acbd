/* SPDX-License-Identifier: MIT */
/*
 * Entries are made where the command failed and kept where its controller is.
 */
#include "target/error_log.h"

#include <stdlib.h>
#include <string.h>

#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"

/* Of one queue while others are on their way; those beyond are not kept. */
#define ERROR_LOG_REPORT_ENTRIES 16
#define ERROR_LOG_NO_PARAMETER	 0xffff

struct error_log_batch {
	uint32_t nr;
	struct nvme_log_error entries[ERROR_LOG_REPORT_ENTRIES];
};

/* What an I/O queue tells its controller. Sent only while it has joined, so that it is back before
 * the answer to its leave. */
struct error_report {
	struct loop_message message;
	struct conn *conn;
	bool sent;
	struct error_log_batch out;  /* the controller's while SENT */
	struct error_log_batch next; /* the queue's */
};

/* --- entries --------------------------------------------------------------------------------- */

/* An I/O command's namespace is not one of the host's: the same status as for other fields. */
static bool error_log_has_no_ns(const struct request *request)
{
	const struct conn *conn = request->conn;

	return conn->qid && request->cmd.opcode != NVME_OPC_FABRICS &&
	       !reactor_ns_find(conn->reactor, conn->subsys, le32_get(request->cmd.nsid));
}

/* Offsets into the command (and the bit in bits 10:8) that a status alone tells. */
static uint16_t error_log_parameter(const struct request *request, uint16_t code)
{
	switch (code) {
	case NVME_SC_INVALID_OPCODE:
		return offsetof(struct nvme_cmd, opcode);
	case NVME_SC_INVALID_NS:
		return offsetof(struct nvme_cmd, nsid);
	case NVME_SC_INVALID_FIELD:
		return error_log_has_no_ns(request) ? offsetof(struct nvme_cmd, nsid)
						    : ERROR_LOG_NO_PARAMETER;
	case NVME_SC_SGL_SEGMENT_INVALID:
	case NVME_SC_SGL_COUNT_INVALID:
	case NVME_SC_SGL_DATA_LEN_INVALID:
	case NVME_SC_SGL_TYPE_INVALID:
	case NVME_SC_SGL_OFFSET_INVALID:
		return offsetof(struct nvme_cmd, sgl);
	case NVME_SC_LBA_RANGE: /* of Dataset Management: in its data */
		return request->cmd.opcode == NVME_OPC_DSM ? ERROR_LOG_NO_PARAMETER
							   : offsetof(struct nvme_cmd, rw.slba);
	case NVME_SC_LOG_PAGE_INVALID:
		return offsetof(struct nvme_cmd, get_log.lid);
	case NVME_SC_FEATURE_NOT_CHANGEABLE:
	case NVME_SC_FEATURE_NOT_PER_NS:
		return offsetof(struct nvme_cmd, features.fid);
	case NVME_SC_FEATURE_NOT_SAVEABLE:
		return offsetof(struct nvme_cmd, features.sv) | 7 << 8;
	default:
		return ERROR_LOG_NO_PARAMETER;
	}
}

static uint64_t error_log_lba(const struct request *request)
{
	switch (request->cmd.opcode) {
	case NVME_OPC_READ:
	case NVME_OPC_WRITE:
	case NVME_OPC_WRITE_ZEROES:
	case NVME_OPC_WRITE_UNCORRECTABLE:
	case NVME_OPC_COMPARE:
	case NVME_OPC_VERIFY:
		return request->conn->qid ? le64_get(request->cmd.rw.slba) : 0;
	default:
		return 0;
	}
}

static struct nvme_log_error error_log_entry(const struct request *request, uint16_t status)
{
	const struct conn *conn = request->conn;

	return (struct nvme_log_error){.sqid = le16(conn->qid),
		.cid = request->cmd.cid,
		.status = le16((uint16_t)(status << 1)),
		.parameter = le16(error_log_parameter(request, status & NVME_STATUS_CODE_MASK)),
		.lba = le64(error_log_lba(request)),
		.nsid = request->cmd.opcode == NVME_OPC_FABRICS ? le32(0) : request->cmd.nsid,
		.trtype = conn->ops->trtype};
}

/* --- the controller's ------------------------------------------------------------------------ */

static void error_log_keep(struct ctrl *ctrl, const struct nvme_log_error *entry)
{
	struct error_log *log = ctrl->errors;

	if (!log)
		log = ctrl->errors = calloc(1, sizeof(*log));
	if (!log)
		return;
	log->nr_errors++;
	log->entries[log->next] = *entry;
	log->entries[log->next].error_count = le64(log->nr_errors);
	log->next = (log->next + 1) % ERROR_LOG_ENTRIES;
	log->nr_entries = min_of(log->nr_entries + 1, (uint32_t)ERROR_LOG_ENTRIES);
}

uint64_t error_log_count(const struct ctrl *ctrl)
{
	return ctrl->errors ? ctrl->errors->nr_errors : 0;
}

void error_log_fill(const struct ctrl *ctrl, struct nvme_log_error ret_entries[ERROR_LOG_ENTRIES])
{
	const struct error_log *log = ctrl->errors;

	for (uint32_t i = 0; log && i < log->nr_entries; i++)
		ret_entries[i] =
			log->entries[(log->next + ERROR_LOG_ENTRIES - 1 - i) % ERROR_LOG_ENTRIES];
}

void error_log_reset(struct ctrl *ctrl)
{
	if (ctrl->errors)
		ctrl->errors->nr_entries = 0;
}

void error_log_free(struct ctrl *ctrl)
{
	free(ctrl->errors);
	ctrl->errors = NULL;
}

/* --- the queue's ----------------------------------------------------------------------------- */

static void error_report_send(struct error_report *report);

/* On the queue's reactor. */
static void error_report_back(struct loop_message *message)
{
	struct error_report *report = container_of(message, struct error_report, message);

	report->sent = false;
	if (report->next.nr && report->conn->member.state == CONN_MEMBER_JOINED)
		error_report_send(report);
}

/* On the controller's. */
static void error_report_at_owner(struct loop_message *message)
{
	struct error_report *report = container_of(message, struct error_report, message);

	for (uint32_t i = 0; i < report->out.nr; i++)
		error_log_keep(report->conn->member.ctrl, &report->out.entries[i]);
	message->fn = error_report_back;
	loop_send(report->conn->reactor->loop, message);
}

static void error_report_send(struct error_report *report)
{
	report->out = report->next;
	report->next.nr = 0;
	report->sent = true;
	report->message.fn = error_report_at_owner;
	loop_send(report->conn->member.owner->loop, &report->message);
}

/* False: it is lost. */
static bool error_report_add(struct conn *conn, const struct nvme_log_error *entry)
{
	struct error_report *report = conn->errors;

	/* From here on its owner's reactor reads CONN, too. */
	if (!report) {
		report = conn->errors = calloc(1, sizeof(*report));
		if (report)
			report->conn = conn;
	}
	if (!report || report->next.nr == ERROR_LOG_REPORT_ENTRIES)
		return false;
	report->next.entries[report->next.nr++] = *entry;
	if (!report->sent)
		error_report_send(report);
	return true;
}

void error_log_free_report(struct conn *conn)
{
	assert(!conn->errors || !conn->errors->sent);
	free(conn->errors);
	conn->errors = NULL;
}

/* --- both ------------------------------------------------------------------------------------ */

/* What the host has asked for, or what is the path's and is answered elsewhere, is no error of the
 * controller. */
static bool error_log_wants(uint16_t status)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	return code != NVME_SC_ABORT_REQUESTED && code >> 8 != NVME_SC_INTERNAL_PATH >> 8;
}

uint16_t error_log_add(struct request *request, uint16_t status)
{
	struct conn *conn = request->conn;
	struct nvme_log_error entry;
	bool kept = false;

	/* Who has not proved to be its host does not write to its log. */
	if (!error_log_wants(status) || !conn->connected)
		return status;
	entry = error_log_entry(request, status | NVME_STATUS_MORE);
	if (conn->member.state == CONN_MEMBER_JOINED) {
		kept = error_report_add(conn, &entry);
	} else if (conn->member.state == CONN_MEMBER_ADMIN) {
		error_log_keep(conn->member.ctrl, &entry);
		kept = conn->member.ctrl->errors;
	}
	return kept ? status | NVME_STATUS_MORE : status;
}
