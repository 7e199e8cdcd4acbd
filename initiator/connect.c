/* SPDX-License-Identifier: MIT */
/*
 * The connect of a controller as a list of steps: each starts something, and its end starts the
 * next. All of them together are under one deadline; a failure says which step it was.
 */
#include "initiator/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "proto/nvme/status.h"
#include "initiator/admin.h"
#include "initiator/discovery.h"
#include "initiator/limits.h"
#include "initiator/lookup.h"
#include "initiator/namespace.h"
#include "initiator/queue.h"
#include "initiator/resolve.h"

#define CONNECT_READY_PAUSE_MS	   1 /* between looks at CSTS.RDY; doubled each time up to ... */
#define CONNECT_READY_PAUSE_MAX_MS 64

enum connect_step {
	STEP_RESOLVE,
	STEP_TRANSPORT,
	STEP_CAP,
	STEP_VS,
	STEP_ENABLE,
	STEP_READY,
	STEP_IDENTIFY,
	STEP_LOG,
	STEP_HANG_UP,
	STEP_CHOOSE,
	STEP_LIMITS,
	STEP_NR_QUEUES,
	STEP_NAMESPACES,
	STEP_NAMESPACE,
	STEP_END,
};

/* With an NQN, of a subsystem or of discovery (Identify tells: connect_identify_answered()). */
static const uint8_t connect_plan[] = {STEP_RESOLVE, STEP_TRANSPORT, STEP_CAP, STEP_VS, STEP_ENABLE,
	STEP_READY, STEP_IDENTIFY, STEP_LIMITS, STEP_NR_QUEUES, STEP_NAMESPACES, STEP_NAMESPACE,
	STEP_END};
/* Without: a discovery controller first, and again while one refers to another; what they list
 * gives the rest of the address. */
static const uint8_t connect_plan_looking[] = {STEP_RESOLVE, STEP_TRANSPORT, STEP_CAP, STEP_VS,
	STEP_ENABLE, STEP_READY, STEP_IDENTIFY, STEP_LOG, STEP_HANG_UP, STEP_CHOOSE, STEP_END};

struct connect_step_row {
	const char *name;
	void (*start)(struct haul_ctrl *ctrl);
	/* The step's command was answered with success. */
	void (*answered)(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe);
	/* ... with an error status; NULL: that ends the connect. */
	void (*refused)(struct haul_ctrl *ctrl);
};
static const struct connect_step_row connect_steps[];

static const struct connect_step_row *connect_step(const struct haul_ctrl *ctrl)
{
	return &connect_steps[*ctrl->plan];
}

void connect_step_done(struct haul_ctrl *ctrl)
{
	assert(ctrl->state == CTRL_CONNECTING);
	ctrl->plan++;
	if (*ctrl->plan == STEP_END)
		ctrl_connected(ctrl);
	else
		connect_step(ctrl)->start(ctrl);
}

/* Leaves a discovery controller that does not answer as it should. Requests that are out come back
 * with the end of the queue, see connect_is_leaving(). */
static void connect_leave(struct haul_ctrl *ctrl)
{
	loop_timer_cancel(ctrl->hl->loop, &ctrl->step_timer);
	if (ctrl->resolve) {
		resolve_abandon(ctrl->resolve);
		ctrl->resolve = NULL;
	}
	while (*ctrl->plan != STEP_HANG_UP)
		ctrl->plan++;
	if (ctrl->admin && !queue_is_quiet(ctrl->admin))
		queue_end(ctrl->admin, -ECANCELED);
	else
		connect_admin_closed(ctrl);
}

static bool connect_is_leaving(const struct haul_ctrl *ctrl)
{
	return *ctrl->plan == STEP_HANG_UP;
}

void connect_step_failed(struct haul_ctrl *ctrl, int result, const char *format, ...)
{
	char why[HAUL_ERROR_BYTES];
	va_list args;
	int n;

	n = snprintf(why, sizeof(why), "%s%s: ", ctrl->lookup ? "discovery: " : "",
		connect_step(ctrl)->name);
	va_start(args, format);
	vsnprintf(why + n, sizeof(why) - (size_t)n, format, args);
	va_end(args);
	if (lookup_pass_over(ctrl, why))
		connect_leave(ctrl);
	else
		ctrl_fail(ctrl, result, why);
}

static void connect_command_answered(struct haul_request *request)
{
	struct haul_ctrl *ctrl = request->context;
	const struct connect_step_row *step;
	uint16_t status;
	int result = request_result(request, &status);

	if (ctrl->state != CTRL_CONNECTING || connect_is_leaving(ctrl))
		return;
	step = connect_step(ctrl);
	if (!result)
		step->answered(ctrl, &request->cqe);
	else if (status && step->refused)
		step->refused(ctrl);
	else
		connect_step_failed(
			ctrl, result, "%s", status ? nvme_status_str(status) : strerror(-result));
}

/* The data, if any, is the controller's page. */
static void connect_send(struct haul_ctrl *ctrl, const struct nvme_cmd *cmd, uint32_t len)
{
	int error = admin_send(ctrl, cmd, ctrl->page, len, 1, 0, connect_command_answered, ctrl);

	if (error)
		connect_step_failed(ctrl, error, "%s", strerror(-error));
}

/* --- address and connection ---------------------------------------------------------------- */

static void connect_resolved(
	struct haul_ctrl *ctrl, int result, const char *why, const struct sockaddr_storage *address)
{
	ctrl->resolve = NULL;
	if (result) {
		connect_step_failed(ctrl, result, "%s: %s", ctrl->uri.host, why);
		return;
	}
	ctrl->address = *address;
	connect_step_done(ctrl);
}

static void connect_resolve(struct haul_ctrl *ctrl)
{
	int error;

	if (resolve_literal(ctrl->uri.host, ctrl->uri.port, &ctrl->address)) {
		connect_step_done(ctrl);
		return;
	}
	error = resolve_start(
		ctrl->hl, ctrl->uri.host, ctrl->uri.port, ctrl, connect_resolved, &ctrl->resolve);
	if (error)
		connect_step_failed(ctrl, error, "%s", strerror(-error));
}

/* Goes on in ctrl_queue_live(), after Connect. */
static void connect_transport(struct haul_ctrl *ctrl)
{
	int error = queue_alloc(ctrl, 0, CTRL_ADMIN_DEPTH, &ctrl->admin);

	if (!error)
		error = queue_start(ctrl->admin);
	if (error)
		connect_step_failed(ctrl, error, "%s",
			error == -ENODEV
				? "no RDMA device leads to this address; see rdma link show"
				: strerror(-error));
}

static void connect_hang_up(struct haul_ctrl *ctrl)
{
	queue_end(ctrl->admin, -ECANCELED);
}

/* --- enabling ------------------------------------------------------------------------------ */

static void connect_cap(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_property_get(NVME_PROPERTY_CAP, true);

	connect_send(ctrl, &cmd, 0);
}

static void connect_cap_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	ctrl->limits.cap = le64_get(cqe->property);
	if (NVME_CAP_MQES(ctrl->limits.cap) == 0)
		connect_step_failed(ctrl, -EPROTO, "queues of one entry (MQES 0) cannot be used");
	else
		connect_step_done(ctrl);
}

static void connect_vs(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_property_get(NVME_PROPERTY_VS, false);

	connect_send(ctrl, &cmd, 0);
}

static void connect_vs_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	ctrl->limits.vs = (uint32_t)le64_get(cqe->property);
	connect_step_done(ctrl);
}

static void connect_enable(struct haul_ctrl *ctrl)
{
	uint64_t cap = ctrl->limits.cap;
	uint32_t css = cap & NVME_CAP_CSS_NVM	 ? NVME_CC_CSS_NVM
		       : cap & NVME_CAP_CSS_IOCS ? NVME_CC_CSS_ALL
						 : NVME_CC_CSS_NVM;
	struct nvme_cmd cmd;

	ctrl->cc = NVME_CC_EN | css << NVME_CC_CSS_SHIFT |
		   NVME_CAP_MPSMIN(cap) << NVME_CC_MPS_SHIFT | NVME_SQES << NVME_CC_IOSQES_SHIFT |
		   NVME_CQES << NVME_CC_IOCQES_SHIFT;
	cmd = admin_cmd_property_set(NVME_PROPERTY_CC, ctrl->cc);
	connect_send(ctrl, &cmd, 0);
}

static void connect_enable_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	/* CAP.TO is in 500 ms; 0 is taken as one of them. */
	uint64_t limit_ms = 500ull * max_of(NVME_CAP_TO(ctrl->limits.cap), 1u);

	(void)cqe;
	ctrl->ready_deadline_ns = loop_now_ns(ctrl->hl->loop) + limit_ms * NS_PER_MS;
	ctrl->ready_pause_ms = CONNECT_READY_PAUSE_MS;
	connect_step_done(ctrl);
}

static void connect_ready(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_property_get(NVME_PROPERTY_CSTS, false);

	connect_send(ctrl, &cmd, 0);
}

static void connect_ready_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	uint32_t csts = (uint32_t)le64_get(cqe->property);
	uint64_t now_ns = loop_now_ns(ctrl->hl->loop);

	if (csts & NVME_CSTS_CFS) {
		connect_step_failed(ctrl, -EIO, "the controller reports a fatal error (CSTS.CFS)");
	} else if (csts & NVME_CSTS_RDY) {
		connect_step_done(ctrl);
	} else if (now_ns >= ctrl->ready_deadline_ns) {
		connect_step_failed(ctrl, -ETIMEDOUT,
			"the controller does not become ready within the time it announced (CAP.TO)");
	} else {
		loop_timer_set(ctrl->hl->loop, &ctrl->step_timer,
			now_ns + ctrl->ready_pause_ms * NS_PER_MS);
		ctrl->ready_pause_ms =
			min_of(2 * ctrl->ready_pause_ms, (uint32_t)CONNECT_READY_PAUSE_MAX_MS);
	}
}

void connect_step_expired(struct loop_timer *timer)
{
	struct haul_ctrl *ctrl = container_of(timer, struct haul_ctrl, step_timer);

	if (ctrl->state == CTRL_CONNECTING)
		connect_ready(ctrl);
}

/* --- Identify ------------------------------------------------------------------------------ */

static void connect_identify(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_identify(NVME_CNS_CTRL, 0, 0);

	connect_send(ctrl, &cmd, NVME_IDENTIFY_SIZE);
}

static void connect_identify_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	const struct nvme_id_ctrl *id = ctrl->page;
	char why[160];
	int error;

	(void)cqe;
	ctrl->limits.is_discovery = ctrl->lookup || id->cntrltype == NVME_CNTRLTYPE_DISCOVERY ||
				    strcmp(ctrl->nqn, NVME_DISCOVERY_NQN) == 0;
	error = limits_read(ctrl, id, why, sizeof(why));
	if (error) {
		connect_step_failed(ctrl, error, "%s", why);
		return;
	}
	if (ctrl->limits.is_discovery && !ctrl->lookup)
		ctrl_connected(ctrl); /* the rest of the plan is about I/O */
	else
		connect_step_done(ctrl);
}

/* Limits of commands without data, since 2.0; older controllers do not know the question. */
static void connect_limits(struct haul_ctrl *ctrl)
{
	struct nvme_cmd cmd = admin_cmd_identify(NVME_CNS_CSI_CTRL, 0, NVME_CSI_NVM);

	if (ctrl->limits.vs < NVME_VERSION(2, 0, 0))
		connect_step_done(ctrl);
	else
		connect_send(ctrl, &cmd, NVME_IDENTIFY_SIZE);
}

static void connect_limits_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	(void)cqe;
	limits_read_nvm(ctrl, ctrl->page);
	connect_step_done(ctrl);
}

static void connect_nr_queues(struct haul_ctrl *ctrl)
{
	uint32_t nr = ctrl->options.max_queues - 1; /* 0's based */
	struct nvme_cmd cmd = {.opcode = NVME_OPC_SET_FEATURES,
		.features = {.fid = NVME_FEAT_NUMBER_OF_QUEUES,
			.cdw11 = le32(NVME_NUMBER_OF_QUEUES(nr, nr))}};

	connect_send(ctrl, &cmd, 0);
}

static void connect_nr_queues_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	uint32_t dw0 = le32_get(cqe->dw0);
	uint32_t granted = min_of(NVME_NUMBER_OF_QUEUES_SQ(dw0), NVME_NUMBER_OF_QUEUES_CQ(dw0)) + 1;

	ctrl->limits.nr_queues = min_of(granted, ctrl->options.max_queues);
	connect_step_done(ctrl);
}

/* --- namespaces ---------------------------------------------------------------------------- */

static void connect_namespaces(struct haul_ctrl *ctrl)
{
	uint32_t after = ctrl->nr_ns ? ctrl->nsids[ctrl->nr_ns - 1] : 0;
	struct nvme_cmd cmd = admin_cmd_identify(NVME_CNS_ACTIVE_NS_LIST, after, 0);

	connect_send(ctrl, &cmd, NVME_IDENTIFY_SIZE);
}

/* Without a NSID in the URI the caller may still take what there is from haul_ns_list(). */
static void connect_choose_namespace(struct haul_ctrl *ctrl)
{
	char list[256];

	ctrl->default_nsid = ctrl->uri.nsid;
	if (!ctrl->default_nsid && ctrl->nr_ns == 1)
		ctrl->default_nsid = ctrl->nsids[0];
	if (!ctrl->default_nsid || ns_is_active(ctrl, ctrl->default_nsid)) {
		connect_step_done(ctrl);
		return;
	}
	ns_list_text(ctrl, list, sizeof(list));
	connect_step_failed(ctrl, -ENOENT, "there is no namespace %u; active ones: %s",
		ctrl->default_nsid, list);
}

static void connect_namespaces_answered(struct haul_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	int more = ns_list_add_page(ctrl, ctrl->page);

	(void)cqe;
	if (more == -EPROTO)
		connect_step_failed(ctrl, more, "the list of active namespaces is not ascending");
	else if (more < 0)
		connect_step_failed(ctrl, more, "%s", strerror(-more));
	else if (more > 0)
		connect_namespaces(ctrl);
	else
		connect_choose_namespace(ctrl);
}

static void connect_namespace_read(
	struct ns_reader *reader, int result, uint16_t status, const char *why)
{
	struct haul_ctrl *ctrl = reader->ctrl;

	(void)status;
	free(reader);
	if (ctrl->state != CTRL_CONNECTING)
		return;
	if (result)
		connect_step_failed(ctrl, result, "namespace %u: %s", ctrl->default_nsid, why);
	else
		connect_step_done(ctrl);
}

static void connect_namespace(struct haul_ctrl *ctrl)
{
	struct ns_reader *reader;
	int error = -ENOMEM;

	if (!ctrl->default_nsid) {
		connect_step_done(ctrl);
		return;
	}
	reader = calloc(1, sizeof(*reader));
	if (reader) {
		reader->ctrl = ctrl;
		reader->nsid = ctrl->default_nsid;
		reader->done = connect_namespace_read;
		error = ns_reader_start(reader);
	}
	if (error) {
		free(reader);
		connect_step_failed(ctrl, error, "%s", strerror(-error));
	}
}

/* --- discovery ----------------------------------------------------------------------------- */

static void connect_log_read(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
	const char *why, struct haul_discovery_log *log)
{
	char text[128];

	(void)context;
	(void)status;
	if (ctrl->state != CTRL_CONNECTING || connect_is_leaving(ctrl)) {
		free(log);
		return;
	}
	if (!result) {
		result = lookup_take(ctrl, log, text, sizeof(text));
		why = text;
	}
	if (result)
		connect_step_failed(ctrl, result, "%s", why);
	else
		connect_step_done(ctrl);
}

static void connect_log(struct haul_ctrl *ctrl)
{
	int error = log_reader_start(ctrl, connect_log_read, NULL);

	if (error)
		connect_step_failed(ctrl, error, "%s", strerror(-error));
}

/* Everything was asked, or the next discovery controller is. */
static void connect_choose(struct haul_ctrl *ctrl)
{
	char text[HAUL_ERROR_BYTES * 3 / 4];
	int result;

	if (lookup_next(ctrl)) {
		ctrl->plan = connect_plan_looking;
		connect_step(ctrl)->start(ctrl);
		return;
	}
	result = lookup_choose(ctrl, text, sizeof(text));
	if (result) {
		connect_step_failed(ctrl, result, "%s", text);
		return;
	}
	ctrl->plan = connect_plan;
	connect_step(ctrl)->start(ctrl);
}

/* The connection to discovery is gone. */
static void connect_hung_up(struct loop_timer *timer)
{
	struct haul_ctrl *ctrl = container_of(timer, struct haul_ctrl, step_timer);

	loop_timer_init(&ctrl->step_timer, connect_step_expired);
	queue_free(ctrl->admin);
	ctrl->admin = NULL;
	ctrl->limits = (struct ctrl_limits){0};
	connect_step_done(ctrl);
}

void connect_admin_closed(struct haul_ctrl *ctrl)
{
	assert(*ctrl->plan == STEP_HANG_UP);
	/* Not from here: the transport's call is on the stack, and what it is about is freed. */
	loop_timer_init(&ctrl->step_timer, connect_hung_up);
	loop_timer_set(ctrl->hl->loop, &ctrl->step_timer, loop_now_ns(ctrl->hl->loop));
}

/* --- the table ----------------------------------------------------------------------------- */

static const struct connect_step_row connect_steps[] = {
	[STEP_RESOLVE] = {"looking up the address", connect_resolve},
	[STEP_TRANSPORT] = {"connecting", connect_transport},
	[STEP_CAP] = {"reading CAP", connect_cap, connect_cap_answered},
	[STEP_VS] = {"reading VS", connect_vs, connect_vs_answered},
	[STEP_ENABLE] = {"enabling the controller", connect_enable, connect_enable_answered},
	[STEP_READY] = {"waiting for CSTS.RDY", connect_ready, connect_ready_answered},
	[STEP_IDENTIFY] = {"Identify Controller", connect_identify, connect_identify_answered},
	[STEP_LOG] = {"reading the discovery log", connect_log},
	[STEP_HANG_UP] = {"leaving discovery", connect_hang_up},
	[STEP_CHOOSE] = {"choosing the subsystem", connect_choose},
	[STEP_LIMITS] = {"Identify (limits)", connect_limits, connect_limits_answered,
		connect_step_done},
	[STEP_NR_QUEUES] = {"Set Features (number of queues)", connect_nr_queues,
		connect_nr_queues_answered},
	[STEP_NAMESPACES] = {"Identify (active namespaces)", connect_namespaces,
		connect_namespaces_answered},
	[STEP_NAMESPACE] = {"Identify Namespace", connect_namespace},
};

void connect_deadline_expired(struct loop_timer *timer)
{
	struct haul_ctrl *ctrl = container_of(timer, struct haul_ctrl, deadline_timer);

	if (ctrl->state != CTRL_CONNECTING)
		return;
	lookup_end(ctrl);
	connect_step_failed(ctrl, -ETIMEDOUT,
		"no answer within %u ms for the whole connect; is it the right address and port?",
		ctrl->options.connect_timeout_ms);
}

void connect_start(struct haul_ctrl *ctrl)
{
	uint64_t timeout_ns = ctrl->options.connect_timeout_ms * NS_PER_MS;

	ctrl->plan = connect_plan;
	if (timeout_ns)
		loop_timer_set(ctrl->hl->loop, &ctrl->deadline_timer,
			haul_loop_now_ns(ctrl->hl) + timeout_ns);
	if (!ctrl->nqn[0]) {
		ctrl->plan = connect_plan_looking;
		if (lookup_begin(ctrl)) {
			connect_step_failed(ctrl, -ENOMEM, "%s", strerror(ENOMEM));
			return;
		}
	}
	connect_step(ctrl)->start(ctrl);
}
