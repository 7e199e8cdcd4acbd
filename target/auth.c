/* SPDX-License-Identifier: MIT */
/*
 * Authentication Send and Receive: which message may come when, and what is answered.
 */
#include "target/auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/auth_private.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/subsys.h"

/* What a host may describe for a message. Ours and its are shorter by far; Linux has 4 KiB. */
#define AUTH_MAX_BYTES (64u << 10)

/* --- transactions ---------------------------------------------------------------------------- */

static void auth_end(struct conn *conn)
{
	struct auth *auth = conn->auth.transaction;

	if (!auth)
		return;
	assert(!auth->is_away);
	conn->auth.transaction = NULL;
	loop_timer_cancel(conn->reactor->loop, &auth->deadline);
	loop_timers_unreserve(conn->reactor->loop, 1);
	dhchap_dh_free(auth->dh);
	dhchap_wipe(auth, sizeof(*auth));
	free(auth);
}

void auth_forget(struct conn *conn)
{
	auth_end(conn);
}

/* A queue that has proved itself before loses nothing: only the transaction is over (NVMe base 2.0
 * 8.13.2). */
static void auth_expired(struct loop_timer *timer)
{
	struct conn *conn = container_of(timer, struct auth, deadline)->conn;

	if (conn->state != CONN_LIVE)
		return;
	conn_log(conn, "host %s has not finished its authentication in time", conn->hostnqn);
	auth_end(conn);
	if (!conn->connected)
		conn_close(conn, "no authentication in time");
}

/* All steps of the host together have the time that it has for its part of a command; ours are not
 * counted. */
static int auth_create(struct conn *conn)
{
	struct auth *auth = calloc(1, sizeof(*auth));
	struct loop *loop = conn->reactor->loop;

	if (!auth || loop_timers_reserve(loop, 1)) {
		free(auth);
		return -ENOMEM;
	}
	auth->conn = conn;
	snprintf(auth->subnqn, sizeof(auth->subnqn), "%s", conn->subsys->nqn);
	snprintf(auth->hostnqn, sizeof(auth->hostnqn), "%s", conn->hostnqn);
	loop_timer_init(&auth->deadline, auth_expired);
	loop_timer_set(loop, &auth->deadline, loop_now_ns(loop) + conn->reactor->patience_ns);
	conn->auth.transaction = auth;
	return 0;
}

int auth_begin(struct conn *conn)
{
	conn->auth.due = true;
	return auth_create(conn);
}

static void auth_goes_away(struct auth *auth)
{
	struct loop *loop = auth->conn->reactor->loop;
	uint64_t due_ns = auth->deadline.deadline_ns;

	auth->left_ns = due_ns - min_of(due_ns, loop_now_ns(loop));
	auth->is_away = true;
	loop_timer_cancel(loop, &auth->deadline);
}

static void auth_is_back(struct auth *auth)
{
	struct loop *loop = auth->conn->reactor->loop;

	auth->is_away = false;
	if (auth->conn->state == CONN_LIVE)
		loop_timer_set(loop, &auth->deadline, loop_now_ns(loop) + auth->left_ns);
}

static void auth_fail(struct auth *auth, enum nvme_auth_fault fault)
{
	auth->state = AUTH_FAILED;
	auth->fault = fault;
	dhchap_dh_free(auth->dh);
	auth->dh = NULL;
	conn_log(auth->conn, "host %s is refused at %s: %s", auth->hostnqn, auth->subnqn,
		nvme_auth_fault_str(fault));
}

/* The proof is there. What its controller allows while it is not ready is its own matter. */
static void auth_succeed(struct auth *auth)
{
	struct conn *conn = auth->conn;

	conn->auth.hash = auth->hash;
	conn->auth.group = auth->group;
	conn->auth.both_ways = auth->challenges;
	conn->auth.due = false;
	conn->connected = true;
	auth_end(conn);
}

/* --- both commands --------------------------------------------------------------------------- */

#define AUTH_SEQUENCE (NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR)

static uint16_t auth_prepare(struct request *request)
{
	const struct nvme_auth_cmd *cmd = &request->cmd.auth;
	const struct conn *conn = request->conn;

	/* To whom nobody has given a key nothing can be proved. */
	if (!conn->auth.required)
		return NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	if (cmd->secp != NVME_AUTH_SECP || cmd->spsp0 != NVME_AUTH_SPSP0 ||
		cmd->spsp1 != NVME_AUTH_SPSP1)
		return CMD_INVALID_FIELD;
	request->data_len = le32_get(cmd->length);
	if (!request->data_len || request->data_len > AUTH_MAX_BYTES)
		return CMD_INVALID_FIELD;
	if (conn->member.state == CONN_MEMBER_ADMIN)
		ctrl_alive(conn->member.ctrl);
	return 0;
}

/* --- Authentication Send --------------------------------------------------------------------- */

static void auth_verified(struct request_errand *errand)
{
	struct auth *auth = container_of(errand, struct auth, errand);
	struct request *request = errand->request;

	auth_is_back(auth);
	if (!request_executed(request))
		return;
	if (auth->fault)
		auth_fail(auth, auth->fault);
	else
		auth->state = AUTH_VERIFIED;
	request_complete(request, 0);
}

/* Without an errand, 0, or the fault. */
static enum nvme_auth_fault auth_negotiate(struct auth *auth, const struct request *request)
{
	enum nvme_auth_fault fault =
		nvme_auth_negotiate_check(request->bytes, request->data_len, &auth->offer);

	if (!fault)
		auth->state = AUTH_OFFERED;
	return fault;
}

static enum nvme_auth_fault auth_reply(struct auth *auth, struct request *request)
{
	uint32_t hash_bytes = nvme_auth_hash_bytes(auth->hash);
	struct nvme_auth_answer answer;
	enum nvme_auth_fault fault = nvme_auth_reply_check(
		request->bytes, request->data_len, auth->hash, auth->group, &answer);

	if (fault)
		return fault;
	/* A challenge that comes back is nobody's own. */
	if (answer.challenges && dhchap_is_same(answer.challenge, auth->challenge, hash_bytes))
		return NVME_AUTH_FAILED;
	auth->challenges = answer.challenges;
	auth->host_seqnum = answer.seqnum;
	memcpy(auth->response, answer.response, hash_bytes);
	memcpy(auth->host_challenge, answer.challenge, hash_bytes);
	if (answer.dh)
		memcpy(auth->value, answer.dh, nvme_auth_group_bytes(auth->group));
	auth_goes_away(auth);
	auth_verify(auth, request, auth_verified);
	return NVME_AUTH_OK;
}

/* The host will not go on: it says so, and that is all. */
static enum nvme_auth_fault auth_refused_by_host(struct auth *auth, const struct request *request)
{
	struct conn *conn = auth->conn;
	uint8_t why = 0;
	enum nvme_auth_fault fault =
		nvme_auth_failure2_check(request->bytes, request->data_len, &why);

	if (fault)
		return fault;
	conn_log(conn, "host %s does not go on with its authentication at %s: %s", auth->hostnqn,
		auth->subnqn, nvme_auth_fault_str(why));
	conn->leaves = true;
	auth_end(conn);
	return NVME_AUTH_OK;
}

static enum nvme_auth_fault auth_success2(struct auth *auth, const struct request *request)
{
	enum nvme_auth_fault fault = nvme_auth_success2_check(request->bytes, request->data_len);

	if (!fault)
		auth_succeed(auth);
	return fault;
}

#define AUTH_MESSAGE(type, id) ((type) << 8 | (id))

/* What has come fits the transaction, or there is a fault. It may be over after this. */
static enum nvme_auth_fault auth_take(
	struct auth *auth, struct request *request, const struct nvme_auth_header *header)
{
	unsigned message = AUTH_MESSAGE(header->type, header->id);

	/* It begins anew, whatever was before: the host may have given up (8.13.2). */
	if (message == AUTH_MESSAGE(NVME_AUTH_COMMON, NVME_AUTH_NEGOTIATE)) {
		auth->t_id = le16_get(header->t_id);
		return auth_negotiate(auth, request);
	}
	if (auth->state == AUTH_IDLE || auth->state == AUTH_OFFERED)
		return NVME_AUTH_MESSAGE;
	if (le16_get(header->t_id) != auth->t_id)
		return NVME_AUTH_PAYLOAD;
	if (message == AUTH_MESSAGE(NVME_AUTH_COMMON, NVME_AUTH_FAILURE2))
		return auth_refused_by_host(auth, request);
	if (message == AUTH_MESSAGE(NVME_AUTH_DHCHAP, NVME_AUTH_REPLY) &&
		auth->state == AUTH_CHALLENGED)
		return auth_reply(auth, request);
	if (message == AUTH_MESSAGE(NVME_AUTH_DHCHAP, NVME_AUTH_SUCCESS2) &&
		auth->state == AUTH_ANSWERED)
		return auth_success2(auth, request);
	return NVME_AUTH_MESSAGE;
}

/* On a queue that has proved itself a Negotiate begins; anything else is of one that is over. */
static struct auth *auth_transaction(
	struct conn *conn, bool is_message, const struct nvme_auth_header *header)
{
	if (conn->auth.transaction)
		return conn->auth.transaction;
	if (!conn->connected || !is_message || header->type != NVME_AUTH_COMMON ||
		header->id != NVME_AUTH_NEGOTIATE)
		return NULL;
	return auth_create(conn) ? NULL : conn->auth.transaction;
}

static void auth_send_run(struct request *request)
{
	struct nvme_auth_header header = {0};
	bool is_message = !nvme_auth_header_get(request->bytes, request->data_len, &header);
	struct conn *conn = request->conn;
	struct auth *auth = conn->leaves ? NULL : auth_transaction(conn, is_message, &header);
	enum nvme_auth_fault fault;

	if (!auth || auth->is_away || auth->state == AUTH_FAILED) {
		request_complete(request, AUTH_SEQUENCE);
		return;
	}
	/* The fault is told by a message of its own, not by the command's status (8.13.4.2). */
	fault = is_message ? auth_take(auth, request, &header) : NVME_AUTH_PAYLOAD;
	if (fault)
		auth_fail(auth, fault);
	if (request->state == REQUEST_CORE)
		request_complete(request, 0);
}

/* --- Authentication Receive ------------------------------------------------------------------ */

static struct nvme_auth_header auth_header(const struct auth *auth, uint8_t type, uint8_t id)
{
	return (struct nvme_auth_header){.type = type, .id = id, .t_id = le16(auth->t_id)};
}

/* The room is zeroed. False: the host described too little, and is told so. */
static bool auth_has_room(struct request *request, size_t bytes)
{
	if (request->data_len >= bytes)
		return true;
	request_complete(request, CMD_INVALID_FIELD);
	return false;
}

/* The connection closes behind it (8.13.4.2). */
static void auth_send_failure1(struct auth *auth, struct request *request)
{
	struct nvme_auth_failure *message = request->bytes;

	if (!auth_has_room(request, sizeof(*message)))
		return;
	message->header = auth_header(auth, NVME_AUTH_COMMON, NVME_AUTH_FAILURE1);
	message->rcode = NVME_AUTH_RCODE_FAILURE;
	message->rcodeex = (uint8_t)auth->fault;
	auth->conn->leaves = true;
	auth_end(auth->conn);
	request_complete(request, 0);
}

static void auth_send_challenge(struct auth *auth, struct request *request)
{
	struct nvme_auth_challenge *message = request->bytes;
	uint32_t hash_bytes = nvme_auth_hash_bytes(auth->hash);
	uint32_t dh_bytes = nvme_auth_group_bytes(auth->group);

	/* Without room the state is as before, and another Receive gets another one. */
	if (!auth_has_room(request, sizeof(*message) + hash_bytes + dh_bytes))
		return;
	message->header = auth_header(auth, NVME_AUTH_DHCHAP, NVME_AUTH_CHALLENGE);
	message->hl = (uint8_t)hash_bytes;
	message->hash = auth->hash;
	message->group = auth->group;
	message->dhvlen = le16((uint16_t)dh_bytes);
	message->seqnum = le32(auth->seqnum);
	memcpy(message->values, auth->challenge, hash_bytes);
	memcpy(message->values + hash_bytes, auth->value, dh_bytes);
	auth->state = AUTH_CHALLENGED;
	request_complete(request, 0);
}

static void auth_chosen(struct request_errand *errand)
{
	struct auth *auth = container_of(errand, struct auth, errand);
	struct request *request = errand->request;

	auth_is_back(auth);
	if (!request_executed(request))
		return;
	if (!auth->fault) {
		auth_send_challenge(auth, request);
		return;
	}
	auth_fail(auth, auth->fault);
	auth_send_failure1(auth, request);
}

/* HL is there in any case: Linux checks it. */
static void auth_send_success1(struct auth *auth, struct request *request)
{
	struct nvme_auth_success1 *message = request->bytes;
	uint32_t hash_bytes = nvme_auth_hash_bytes(auth->hash);
	uint32_t response_bytes = auth->challenges ? hash_bytes : 0;

	if (!auth_has_room(request, sizeof(*message) + response_bytes))
		return;
	message->header = auth_header(auth, NVME_AUTH_DHCHAP, NVME_AUTH_SUCCESS1);
	message->hl = (uint8_t)hash_bytes;
	message->rvalid = auth->challenges;
	memcpy(message->values, auth->response, response_bytes);
	if (auth->challenges)
		auth->state = AUTH_ANSWERED;
	else
		auth_succeed(auth);
	request_complete(request, 0);
}

static void auth_receive_run(struct request *request)
{
	struct auth *auth = request->conn->auth.transaction;

	if (!auth || auth->is_away || request->conn->leaves) {
		request_complete(request, AUTH_SEQUENCE);
		return;
	}
	switch (auth->state) {
	case AUTH_OFFERED:
		auth_goes_away(auth);
		auth_choose(auth, request, auth_chosen);
		break;
	case AUTH_VERIFIED:
		auth_send_success1(auth, request);
		break;
	case AUTH_IDLE:
	case AUTH_CHALLENGED:
	case AUTH_ANSWERED:
		auth_fail(auth, NVME_AUTH_MESSAGE);
		auth_send_failure1(auth, request);
		break;
	case AUTH_FAILED:
		auth_send_failure1(auth, request);
		break;
	}
}

/* --- rows ------------------------------------------------------------------------------------ */

const struct cmd cmd_auth_send = {
	.name = "Authentication Send",
	.direction = REQUEST_FROM_HOST,
	.before_proof = true,
	.before_ready = true,
	.prepare = auth_prepare,
	.ends_queue = true,
	.run = auth_send_run,
};

const struct cmd cmd_auth_receive = {
	.name = "Authentication Receive",
	.direction = REQUEST_TO_HOST,
	.before_proof = true,
	.before_ready = true,
	.prepare = auth_prepare,
	.ends_queue = true,
	.run = auth_receive_run,
};
