/* SPDX-License-Identifier: MIT */
/*
 * A target's core of a few lines: requests, one connection, and what a host sends.
 */
#include "tests/unit/tcp/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/status.h"

struct core core;

static uint8_t core_bytes[2 * DEPTH][DATA_BYTES];

struct request *core_waiting(void)
{
	return container_of(list_pop_front(&core.waiting), struct request, node);
}

/* --- the core -------------------------------------------------------------------------------- */

struct request *request_get(struct conn *conn)
{
	uint32_t index;
	struct request *request;

	if (core.nr_commands >= conn->depth)
		return NULL;
	index = slots_get(&conn->slots);
	if (index == SLOTS_NONE)
		return NULL;
	request = &conn->requests[index];
	request->conn = conn;
	request->index = index;
	request->state = REQUEST_CORE;
	list_init(&request->node);
	request->inline_bytes = NULL;
	request->inline_len = 0;
	core.nr_commands++;
	conn->nr_out++;
	return request;
}

static void core_free(struct request *request)
{
	assert_true(list_empty(&request->node));
	request->state = REQUEST_FREE;
	slots_put(&request->conn->slots, request->index);
	request->conn->nr_out--;
}

void core_reply(struct request *request, uint16_t status)
{
	request->cqe = (struct nvme_cqe){.cid = request->cmd.cid};
	nvme_cqe_set_status(&request->cqe, status);
	core.nr_commands--;
	request->state = REQUEST_REPLY;
	request->conn->ops->reply(request);
}

void core_pull(struct request *request)
{
	request->state = REQUEST_PULL;
	request->bytes = core_bytes[request->index];
	request->conn->ops->pull(request);
}

static void core_wait(struct request *request)
{
	request->state = REQUEST_WAIT_BUF;
	list_push_back(&core.waiting, &request->node);
}

void core_give_buffers(void)
{
	struct list *node;

	while ((node = list_pop_front(&core.waiting)))
		core_pull(container_of(node, struct request, node));
}

void request_received(struct request *request)
{
	const struct nvme_cmd *cmd = &request->cmd;
	bool in_capsule = cmd->sgl.id == NVME_SGL_ID_IN_CAPSULE;

	request->data_len = le32_get(cmd->sgl.len);
	request->sgl.place = in_capsule ? NVME_SGL_IN_CAPSULE : NVME_SGL_TRANSPORT;
	request->direction = cmd->opcode == OP_READ ? REQUEST_TO_HOST : REQUEST_FROM_HOST;
	if (cmd->opcode == OP_REFUSE || (in_capsule && request->data_len > request->inline_len)) {
		core_reply(request, NVME_SC_INVALID_OPCODE);
	} else if (cmd->opcode == OP_HOLD) {
		request->state = REQUEST_HELD;
		list_push_back(&core.held, &request->node);
	} else if (cmd->opcode == OP_READ) {
		request->bytes = core_bytes[request->index];
		fill_pattern(request->bytes, request->data_len, le32_get(cmd->cdw10));
		core_reply(request, 0);
	} else if (cmd->opcode == OP_WRITE_LATER) {
		core_wait(request);
	} else {
		core_pull(request);
	}
}

void request_pulled(struct request *request, uint16_t status)
{
	assert_int_equal(request->state, REQUEST_PULL);
	assert_true(list_empty(&request->node));
	core.last_status = status;
	core.last_len = request->data_len;
	memcpy(core.last_data, request->bytes, request->data_len);
	if (!status)
		core.nr_pulled++;
	core_reply(request, status);
}

void request_sent(struct request *request)
{
	assert_int_equal(request->state, REQUEST_REPLY);
	core_free(request);
}

void request_flushed(struct request *request)
{
	assert_true(request->state == REQUEST_REPLY || request->state == REQUEST_PULL);
	assert_int_equal(request->conn->state, CONN_CLOSING);
	core_free(request);
}

static void core_drop(struct list *list)
{
	struct list *node;

	while ((node = list_pop_front(list)))
		core_free(container_of(node, struct request, node));
}

void conn_close(struct conn *conn, const char *why)
{
	if (conn->state != CONN_LIVE)
		return;
	conn->state = CONN_CLOSING;
	snprintf(core.why, sizeof(core.why), "%s", why);
	core_drop(&core.waiting);
	core_drop(&core.held);
	conn->ops->close(conn);
}

void conn_close_for_mistake(struct conn *conn, const char *why)
{
	conn_close(conn, why);
}

void conn_quiesced(struct conn *conn)
{
	assert_false(conn->transport_quiesced);
	conn->transport_quiesced = true;
}

void conn_accept(struct port *port, struct transport_handover *handover)
{
	assert_ptr_equal(port, &core.port);
	core.conn.peer = handover->peer;
	assert_int_equal(transport_tcp_ops.start(&core.conn, handover), 0);
}

/* --- a connection ---------------------------------------------------------------------------- */

void core_reset(struct loop *loop)
{
	memset(&core, 0, sizeof(core));
	core.loop = loop;
	core.reactor.loop = loop;
	core.port = (struct port){.reactor = &core.reactor,
		.ops = &transport_tcp_ops,
		.option = {[TCP_OPTION_HDGST] = true, [TCP_OPTION_DDGST] = true}};
	core.conn = (struct conn){.reactor = &core.reactor,
		.port = &core.port,
		.ops = &transport_tcp_ops,
		.in_capsule_max = TCP_IN_CAPSULE,
		.transfer_max = 1u << 20,
		.depth = DEPTH};
	core.conn.requests = calloc(2 * DEPTH, sizeof(struct request));
	assert_int_equal(slots_init(&core.conn.slots, 2 * DEPTH), 0);
	list_init(&core.waiting);
	list_init(&core.held);
}

void core_open(struct loop *loop, int sndbuf)
{
	struct tcp_handover *handover = calloc(1, sizeof(*handover));

	core_reset(loop);
	peer_open(&core.peer, loop, sndbuf, &handover->fd);
	conn_accept(&core.port, &handover->base);
}

void core_end(void)
{
	conn_close(&core.conn, "end of the test");
	peer_wait(core.loop, core.conn.transport_quiesced);
	assert_int_equal(core.conn.nr_out, 0);
	transport_tcp_ops.free(&core.conn);
	peer_close(&core.peer);
	slots_destroy(&core.conn.slots);
	free(core.conn.requests);
}

struct nvme_tcp_ic_resp core_initialize(uint8_t hpda, uint8_t dgst)
{
	struct nvme_tcp_ic_req req = {.hpda = hpda, .dgst = dgst};
	struct peer_pdu pdu;

	peer_send_pdu(&core.peer, NVME_TCP_IC_REQ, 0, &req, sizeof(req), NULL, 0);
	pdu = peer_expect(&core.peer, NVME_TCP_IC_RESP);
	core.peer.header_digest = pdu.ic_resp.dgst & NVME_TCP_DGST_HEADER;
	core.peer.data_digest = pdu.ic_resp.dgst & NVME_TCP_DGST_DATA;
	return pdu.ic_resp;
}

struct nvme_tcp_capsule_cmd core_command(uint8_t opcode, uint16_t cid, uint32_t len, bool inside)
{
	return (struct nvme_tcp_capsule_cmd){
		.cmd = {.opcode = opcode,
			.cid = le16(cid),
			.flags = NVME_CMD_PSDT_SGL,
			.cdw10 = le32(cid),
			.sgl = inside ? nvme_sgl_in_capsule(0, len) : nvme_sgl_transport(len)}};
}

void core_send_command(uint8_t opcode, uint16_t cid, uint32_t len, const void *inside)
{
	struct nvme_tcp_capsule_cmd cmd = core_command(opcode, cid, len, inside);

	peer_send_pdu(
		&core.peer, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), inside, inside ? len : 0);
}

void core_send_h2c(
	uint16_t cid, uint16_t ttag, uint32_t offset, const uint8_t *data, uint32_t len, bool last)
{
	struct nvme_tcp_data header = {
		.cccid = le16(cid), .ttag = le16(ttag), .datao = le32(offset), .datal = le32(len)};

	peer_send_pdu(&core.peer, NVME_TCP_H2C_DATA, last ? NVME_TCP_LAST_PDU : 0, &header,
		sizeof(header), data + offset, len);
}

uint16_t core_expect_response(uint16_t cid)
{
	struct peer_pdu pdu = peer_expect(&core.peer, NVME_TCP_CAPSULE_RESP);

	assert_int_equal(le16_get(pdu.resp.cqe.cid), cid);
	return nvme_cqe_status(&pdu.resp.cqe);
}

uint16_t core_expect_r2t(uint16_t cid, uint32_t len)
{
	struct peer_pdu pdu = peer_expect(&core.peer, NVME_TCP_R2T);

	assert_int_equal(le16_get(pdu.r2t.cccid), cid);
	assert_int_equal(le32_get(pdu.r2t.r2to), 0);
	assert_int_equal(le32_get(pdu.r2t.r2tl), len);
	return le16_get(pdu.r2t.ttag);
}

void core_expect_still_in_step(uint16_t cid)
{
	core_send_command(OP_REFUSE, cid, 0, NULL);
	assert_int_equal(core_expect_response(cid), NVME_SC_INVALID_OPCODE);
}

uint32_t core_expect_term(uint16_t fes)
{
	return peer_expect_term(&core.peer, NVME_TCP_C2H_TERM_REQ, fes);
}
