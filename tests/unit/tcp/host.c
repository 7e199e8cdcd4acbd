/* SPDX-License-Identifier: MIT */
/*
 * An initiator's queue of a few lines: requests, one connection, and what a target sends.
 */
#include "tests/unit/tcp/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct host host;
uint8_t host_bytes[DATA_BYTES], peer_bytes[DATA_BYTES];

/* --- the queue ------------------------------------------------------------------------------- */

void haul_queue_connected(struct haul_queue *queue, int result, const char *why)
{
	assert_ptr_equal(queue, &host.queue);
	host.nr_connected++;
	host.connect_result = result;
	snprintf(host.why, sizeof(host.why), "%s", why ? why : "");
}

void haul_queue_failed(struct haul_queue *queue, int result, const char *why)
{
	assert_ptr_equal(queue, &host.queue);
	assert_true(result < 0);
	host.nr_failed++;
	host.failure = result;
	snprintf(host.why, sizeof(host.why), "%s", why);
}

void haul_queue_quiesced(struct haul_queue *queue)
{
	assert_ptr_equal(queue, &host.queue);
	host.nr_quiesced++;
}

struct haul_request *haul_queue_request_by_cid(struct haul_queue *queue, uint16_t cid)
{
	if (cid >= DEPTH || queue->requests[cid].state != HAUL_REQUEST_OUT)
		return NULL;
	return &queue->requests[cid];
}

void haul_request_done(struct haul_request *request, int result, const struct nvme_cqe *cqe)
{
	assert_int_equal(request->state, HAUL_REQUEST_OUT);
	request->state = HAUL_REQUEST_FREE;
	request->result = result;
	if (!result)
		request->cqe = *cqe;
	host.nr_done[request->index]++;
	/* As a next command would do. */
	memset(request->transport, 0xa5, sizeof(request->transport));
}

/* --- a connection ---------------------------------------------------------------------------- */

void host_reset(struct loop *loop)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(host.queue.address);

	memset(&host, 0, sizeof(host));
	host.peer.loop = loop;
	host.peer.fd = -1;
	host.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(host.listen_fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(host.listen_fd, 8), 0);
	host.hl.loop = loop;
	host.queue = (struct haul_queue){.hl = &host.hl,
		.loop = loop,
		.ops = &haul_transport_tcp_ops,
		.depth = DEPTH,
		.requests = host.requests,
		.in_capsule_bytes = 4096,
		.max_segments = 1};
	getsockname(host.listen_fd, (struct sockaddr *)&host.queue.address, &len);
	for (uint32_t i = 0; i < DEPTH; i++) {
		host.requests[i].queue = &host.queue;
		host.requests[i].index = i;
	}
}

/* The socket is connected and ICReq is here, checked. */
void host_open(struct loop *loop, uint8_t digests)
{
	struct peer_pdu pdu;

	host_reset(loop);
	host.queue.header_digest = digests & NVME_TCP_DGST_HEADER;
	host.queue.data_digest = digests & NVME_TCP_DGST_DATA;
	assert_int_equal(haul_transport_tcp_ops.alloc(&host.queue), 0);
	haul_transport_tcp_ops.connect(&host.queue);
	loop_turn(loop);
	host.peer.fd = accept(host.listen_fd, NULL, NULL);
	assert_true(host.peer.fd >= 0);
	host.peer.in = malloc(PEER_ROOM * 2);
	pdu = peer_expect(&host.peer, NVME_TCP_IC_REQ);
	assert_int_equal(le16_get(pdu.ic_req.pfv), 0);
	assert_int_equal(pdu.ic_req.hpda, 0);
	assert_int_equal(pdu.ic_req.dgst, digests);
	assert_int_equal(le32_get(pdu.ic_req.maxr2t), 0);
	assert_int_equal(le32_get(pdu.ic_req.ch.plen), 128);
}

void host_initialize(struct loop *loop, uint8_t digests, uint8_t cpda, uint32_t maxh2cdata)
{
	struct nvme_tcp_ic_resp resp = {
		.cpda = cpda, .dgst = digests, .maxh2cdata = le32(maxh2cdata)};

	host_open(loop, digests);
	peer_send_pdu(&host.peer, NVME_TCP_IC_RESP, 0, &resp, sizeof(resp), NULL, 0);
	peer_wait(loop, host.nr_connected);
	assert_int_equal(host.connect_result, 0);
	host.peer.header_digest = digests & NVME_TCP_DGST_HEADER;
	host.peer.data_digest = digests & NVME_TCP_DGST_DATA;
}

void host_disconnect(void)
{
	haul_transport_tcp_ops.disconnect(&host.queue);
	assert_int_equal(host.nr_quiesced, 0);
	peer_wait(host.queue.loop, host.nr_quiesced);
	for (uint32_t i = 0; i < DEPTH; i++) {
		assert_int_equal(host.requests[i].state, HAUL_REQUEST_FREE);
		assert_true(host.nr_done[i] <= 1);
	}
}

void host_end(void)
{
	/* Or a termination request waits for this. */
	if (host.peer.fd >= 0)
		shutdown(host.peer.fd, SHUT_WR);
	if (!host.connect_result || !host.nr_connected)
		host_disconnect();
	haul_transport_tcp_ops.free(&host.queue);
	assert_null(host.queue.transport);
	peer_close(&host.peer);
	close(host.listen_fd);
	loop_turn(host.queue.loop);
}

struct haul_request *host_submit(uint16_t cid, bool to_host, uint32_t len)
{
	struct haul_request *request = &host.requests[cid];

	request->cid = cid;
	request->cmd = (struct nvme_cmd){
		.opcode = to_host ? NVME_OPC_READ : NVME_OPC_WRITE, .cid = le16(cid)};
	request->to_host = to_host;
	request->data_len = len;
	request->nr_iov = len ? 1 : 0;
	request->iov[0] = (struct iovec){host_bytes, len};
	request->state = HAUL_REQUEST_OUT;
	haul_transport_tcp_ops.submit(&host.queue, request);
	return request;
}

/* The data in pieces of odd lengths instead. */
void host_scatter(struct haul_request *request, uint32_t nr)
{
	size_t at = 0;

	request->nr_iov = nr;
	for (uint32_t i = 0; i < nr; i++) {
		size_t len =
			i + 1 < nr ? (request->data_len / nr) & ~(size_t)1 : request->data_len - at;

		if (i + 1 < nr && len > 3)
			len -= i % 3;
		request->iov[i] = (struct iovec){host_bytes + at, len};
		at += len;
	}
}

struct peer_pdu host_expect_command(uint16_t cid)
{
	struct peer_pdu pdu = peer_expect(&host.peer, NVME_TCP_CAPSULE_CMD);

	assert_int_equal(le16_get(pdu.cmd.cmd.cid), cid);
	assert_int_equal(pdu.cmd.cmd.flags & NVME_CMD_PSDT_MASK, NVME_CMD_PSDT_SGL);
	return pdu;
}

void host_send_c2h(uint16_t cid, uint32_t offset, uint32_t len, uint8_t flags)
{
	struct nvme_tcp_data header = {
		.cccid = le16(cid), .datao = le32(offset), .datal = le32(len)};

	peer_send_pdu(&host.peer, NVME_TCP_C2H_DATA, flags, &header, sizeof(header),
		peer_bytes + offset, len);
}

void host_send_response(uint16_t cid, uint16_t status)
{
	struct nvme_tcp_capsule_resp resp = {.cqe = {.cid = le16(cid)}};

	nvme_cqe_set_status(&resp.cqe, status);
	peer_send_pdu(&host.peer, NVME_TCP_CAPSULE_RESP, 0, &resp, sizeof(resp), NULL, 0);
}

void host_send_r2t(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len)
{
	struct nvme_tcp_r2t r2t = {
		.cccid = le16(cid), .ttag = le16(ttag), .r2to = le32(offset), .r2tl = le32(len)};

	peer_send_pdu(&host.peer, NVME_TCP_R2T, 0, &r2t, sizeof(r2t), NULL, 0);
}

/* H2CData for all of an R2T, none longer than MAX. */
void host_expect_h2c(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len, uint32_t max)
{
	uint32_t end = offset + len;

	while (offset < end) {
		struct peer_pdu pdu = peer_expect(&host.peer, NVME_TCP_H2C_DATA);

		assert_int_equal(le16_get(pdu.data_header.cccid), cid);
		assert_int_equal(le16_get(pdu.data_header.ttag), ttag);
		assert_int_equal(le32_get(pdu.data_header.datao), offset);
		assert_int_equal(le32_get(pdu.data_header.datal), pdu.data_len);
		assert_true(pdu.data_len && pdu.data_len <= max);
		assert_memory_equal(pdu.data, host_bytes + offset, pdu.data_len);
		offset += pdu.data_len;
		assert_int_equal(!!(pdu.flags & NVME_TCP_LAST_PDU), offset == end);
	}
}

uint16_t host_done_status(struct haul_request *request)
{
	peer_wait(host.queue.loop, host.nr_done[request->index]);
	assert_int_equal(host.nr_done[request->index], 1);
	host.nr_done[request->index] = 0;
	assert_int_equal(request->result, 0);
	assert_int_equal(le16_get(request->cqe.cid), request->cid);
	return nvme_cqe_status(&request->cqe);
}
