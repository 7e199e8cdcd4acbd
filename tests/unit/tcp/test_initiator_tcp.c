/* SPDX-License-Identifier: MIT */
/*
 * The initiator's TCP transport under a queue of a few lines, against a target that sends chosen
 * bytes. Each request comes back exactly once, whatever the target does.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "initiator/loop_private.h"
#include "initiator/transport.h"
#include "proto/nvme/status.h"
#include "tests/unit/base/engines.h"
#include "tests/unit/tcp/peer.h"

#define DEPTH	   32
#define DATA_BYTES (1u << 20)

static struct host {
	struct haul_loop hl;
	struct haul_queue queue;
	struct haul_request requests[DEPTH];
	uint32_t nr_done[DEPTH];
	struct peer peer;
	int listen_fd;
	uint32_t nr_connected, nr_failed, nr_quiesced;
	int connect_result, failure;
	char why[256];
} host;

static uint8_t host_bytes[DATA_BYTES], peer_bytes[DATA_BYTES];

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

static void host_reset(struct loop *loop)
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
static void host_open(struct loop *loop, uint8_t digests)
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

static void host_initialize(struct loop *loop, uint8_t digests, uint8_t cpda, uint32_t maxh2cdata)
{
	struct nvme_tcp_ic_resp resp = {
		.cpda = cpda, .dgst = digests, .maxh2cdata = le32(maxh2cdata)};

	host_open(loop, digests);
	peer_send_pdu(&host.peer, NVME_TCP_IC_RESP, 0, &resp, sizeof(resp), NULL, 0);
	wait_for(loop, host.nr_connected);
	assert_int_equal(host.connect_result, 0);
	host.peer.header_digest = digests & NVME_TCP_DGST_HEADER;
	host.peer.data_digest = digests & NVME_TCP_DGST_DATA;
}

static void host_disconnect(void)
{
	haul_transport_tcp_ops.disconnect(&host.queue);
	assert_int_equal(host.nr_quiesced, 0);
	wait_for(host.queue.loop, host.nr_quiesced);
	for (uint32_t i = 0; i < DEPTH; i++) {
		assert_int_equal(host.requests[i].state, HAUL_REQUEST_FREE);
		assert_true(host.nr_done[i] <= 1);
	}
}

static void host_end(void)
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

static struct haul_request *submit(uint16_t cid, bool to_host, uint32_t len)
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
static void scatter(struct haul_request *request, uint32_t nr)
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

static struct peer_pdu expect_command(uint16_t cid)
{
	struct peer_pdu pdu = peer_expect(&host.peer, NVME_TCP_CAPSULE_CMD);

	assert_int_equal(le16_get(pdu.cmd.cmd.cid), cid);
	assert_int_equal(pdu.cmd.cmd.flags & NVME_CMD_PSDT_MASK, NVME_CMD_PSDT_SGL);
	return pdu;
}

static void send_c2h(uint16_t cid, uint32_t offset, uint32_t len, uint8_t flags)
{
	struct nvme_tcp_data header = {
		.cccid = le16(cid), .datao = le32(offset), .datal = le32(len)};

	peer_send_pdu(&host.peer, NVME_TCP_C2H_DATA, flags, &header, sizeof(header),
		peer_bytes + offset, len);
}

static void send_response(uint16_t cid, uint16_t status)
{
	struct nvme_tcp_capsule_resp resp = {.cqe = {.cid = le16(cid)}};

	nvme_cqe_set_status(&resp.cqe, status);
	peer_send_pdu(&host.peer, NVME_TCP_CAPSULE_RESP, 0, &resp, sizeof(resp), NULL, 0);
}

static void send_r2t(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len)
{
	struct nvme_tcp_r2t r2t = {
		.cccid = le16(cid), .ttag = le16(ttag), .r2to = le32(offset), .r2tl = le32(len)};

	peer_send_pdu(&host.peer, NVME_TCP_R2T, 0, &r2t, sizeof(r2t), NULL, 0);
}

/* H2CData for all of an R2T, none longer than MAX. */
static void expect_h2c(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len, uint32_t max)
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

static uint16_t done_status(struct haul_request *request)
{
	wait_for(host.queue.loop, host.nr_done[request->index]);
	assert_int_equal(host.nr_done[request->index], 1);
	host.nr_done[request->index] = 0;
	assert_int_equal(request->result, 0);
	assert_int_equal(le16_get(request->cqe.cid), request->cid);
	return nvme_cqe_status(&request->cqe);
}

/* --- the start ------------------------------------------------------------------------------- */

static uint32_t nr_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t nr = 0;

	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}

static void refused_connection_is_told(void **state)
{
	host_reset(*state);
	close(host.listen_fd);
	host.listen_fd = -1;
	assert_int_equal(haul_transport_tcp_ops.alloc(&host.queue), 0);
	haul_transport_tcp_ops.connect(&host.queue);
	assert_int_equal(host.nr_connected, 0);
	wait_for(host.queue.loop, host.nr_connected);
	assert_int_equal(host.connect_result, -ECONNREFUSED);
	haul_transport_tcp_ops.free(&host.queue);
}

static void address_family_without_sockets_is_told(void **state)
{
	host_reset(*state);
	host.queue.address.ss_family = AF_UNSPEC;
	assert_int_equal(haul_transport_tcp_ops.alloc(&host.queue), 0);
	haul_transport_tcp_ops.connect(&host.queue);
	assert_int_equal(host.nr_connected, 0);
	wait_for(host.queue.loop, host.nr_connected);
	assert_true(host.connect_result < 0);
	haul_transport_tcp_ops.free(&host.queue);
	close(host.listen_fd);
}

static void silent_target_can_be_left_at_any_byte_of_icresp(void **state)
{
	uint32_t before = 0;

	for (uint32_t i = 0; i < 128; i++) {
		uint8_t resp[128] = {NVME_TCP_IC_RESP, 0, 128, 0, 128};

		host_open(*state, 0);
		peer_send(&host.peer, resp, i);
		peer_turn(&host.peer);
		host_end();
		if (!i)
			before = nr_descriptors();
	}
	assert_int_equal(nr_descriptors(), before);
}

static void queue_can_be_left_while_its_socket_connects(void **state)
{
	host_reset(*state);
	assert_int_equal(haul_transport_tcp_ops.alloc(&host.queue), 0);
	haul_transport_tcp_ops.connect(&host.queue);
	host_end();
}

static void end_of_stream_before_icresp_is_told(void **state)
{
	host_open(*state, 0);
	shutdown(host.peer.fd, SHUT_WR);
	wait_for(host.queue.loop, host.nr_connected);
	assert_true(host.connect_result < 0);
	host_end();
}

static void icresp_with_illegal_values_is_refused(void **state)
{
	static const struct {
		struct nvme_tcp_ic_resp resp;
		uint16_t fes;
		uint32_t fei;
	} cases[] = {
		{{.pfv = {{1, 0}}, .maxh2cdata = {{0, 0x10}}}, 6, 8},
		{{.cpda = 32, .maxh2cdata = {{0, 0x10}}}, 1, 10},
		{{.dgst = 1, .maxh2cdata = {{0, 0x10}}}, 1, 11},
		{{.dgst = 2, .maxh2cdata = {{0, 0x10}}}, 1, 11},
		{{.maxh2cdata = {{0, 0}}}, 1, 12},
		{{.maxh2cdata = {{0xff, 0x0f}}}, 1, 12},
		{{.maxh2cdata = {{0x02, 0x10}}}, 1, 12},
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_tcp_ic_resp resp = cases[i].resp;

		host_open(*state, 0);
		peer_send_pdu(&host.peer, NVME_TCP_IC_RESP, 0, &resp, sizeof(resp), NULL, 0);
		assert_int_equal(peer_expect_term(&host.peer, NVME_TCP_H2C_TERM_REQ, cases[i].fes),
			cases[i].fei);
		wait_for(host.queue.loop, host.nr_connected);
		assert_int_equal(host.connect_result, -EPROTO);
		host_end();
	}
}

/* --- reads -------------------------------------------------------------------------------------
 */

static void reads_end_with_success_or_a_response(void **state)
{
	static const uint32_t lens[] = {4, 512, 4096, 66052, 1 << 20};

	fill_pattern(peer_bytes, sizeof(peer_bytes), 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(lens) * 2 * 4 * 2; i++) {
		uint32_t len = lens[i / 16], at = 0;
		bool success = i & 1, in_pieces = i & 8;
		struct haul_request *request;

		host_initialize(*state, i / 2 % 4, i & 1 ? 15 : 0, 4096);
		request = submit(3, true, len);
		scatter(request, in_pieces ? HAUL_MAX_IOV : 1);
		memset(host_bytes, 0, len);
		expect_command(3);
		while (at < len) {
			uint32_t n = in_pieces ? min_of(len - at, 20000u) : len;
			bool last = at + n == len;

			send_c2h(3, at, n,
				!last ? 0 : NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0));
			at += n;
		}
		if (!success)
			send_response(3, 0);
		assert_int_equal(done_status(request), 0);
		assert_memory_equal(host_bytes, peer_bytes, len);
		host_end();
	}
}

static void failed_read_needs_no_data(void **state)
{
	struct haul_request *request;

	host_initialize(*state, 0, 0, 4096);
	request = submit(3, true, 4096);
	expect_command(3);
	send_response(3, NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	assert_int_equal(done_status(request), NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	host_end();
}

static void read_with_wrong_data_digest_is_not_taken_for_good(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		bool success = i & 1, first = i & 2;
		struct haul_request *request;

		host_initialize(*state, NVME_TCP_DGST_DATA, 0, 4096);
		request = submit(3, true, 8192);
		expect_command(3);
		host.peer.wrong_data_digest = first;
		send_c2h(3, 0, 4096, 0);
		host.peer.wrong_data_digest = !first;
		send_c2h(3, 4096, 4096, NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0));
		if (!success)
			send_response(3, 0);
		assert_int_equal(done_status(request), NVME_SC_TRANSIENT_TRANSPORT);
		/* The connection lives. */
		host.peer.wrong_data_digest = false;
		request = submit(4, true, 512);
		expect_command(4);
		send_c2h(4, 0, 512, NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS);
		assert_int_equal(done_status(request), 0);
		host_end();
	}
}

/* --- writes ------------------------------------------------------------------------------------
 */

static void write_that_fits_goes_in_the_capsule(void **state)
{
	for (uint8_t digests = 0; digests < 4; digests++) {
		struct haul_request *request;
		struct peer_pdu pdu;

		fill_pattern(host_bytes, 4096, 2);
		host_initialize(*state, digests, digests ? 7 : 0, 4096);
		request = submit(5, false, 4096);
		scatter(request, 5);
		pdu = expect_command(5);
		assert_int_equal(pdu.cmd.cmd.sgl.id, NVME_SGL_ID_IN_CAPSULE);
		assert_int_equal(le32_get(pdu.cmd.cmd.sgl.len), 4096);
		assert_int_equal(pdu.data_len, 4096);
		assert_int_equal(pdu.ch.pdo % (digests ? 32 : 4), 0);
		assert_memory_equal(pdu.data, host_bytes, 4096);
		send_response(5, 0);
		assert_int_equal(done_status(request), 0);
		host_end();
	}
}

static void connect_goes_in_the_capsule_whatever_the_limit(void **state)
{
	struct haul_request *request;

	host_initialize(*state, 0, 0, 4096);
	host.queue.in_capsule_bytes = 0;
	request = &host.requests[0];
	request->cmd = (struct nvme_cmd){.opcode = NVME_OPC_FABRICS};
	request->to_host = false;
	request->data_len = 1024;
	request->iov[0] = (struct iovec){host_bytes, 1024};
	request->nr_iov = 1;
	request->state = HAUL_REQUEST_OUT;
	haul_transport_tcp_ops.submit(&host.queue, request);
	assert_int_equal(expect_command(0).data_len, 1024);
	send_response(0, 0);
	assert_int_equal(done_status(request), 0);
	host_end();
}

static void r2t_is_served_in_pdus_no_longer_than_the_target_takes(void **state)
{
	static const uint32_t maxima[] = {4096, 8192, 131072, 1 << 20};
	static const uint32_t lens[] = {4608, 65536, 1 << 20};

	fill_pattern(host_bytes, sizeof(host_bytes), 3);
	for (uint32_t i = 0; i < ARRAY_SIZE(maxima) * ARRAY_SIZE(lens) * 3; i++) {
		uint32_t max = maxima[i % 4], len = lens[i / 4 % 3], nr = i / 12 + 1;
		uint32_t at = 0, part = (len / nr) & ~3u;
		struct haul_request *request;

		host_initialize(*state, i & 3, 0, max);
		request = submit(6, false, len);
		scatter(request, i & 1 ? HAUL_MAX_IOV : 3);
		assert_int_equal(expect_command(6).cmd.cmd.sgl.id, NVME_SGL_ID_TRANSPORT);
		/* NR of them, one after the other. */
		while (at < len) {
			uint32_t n =
				len - at < 2 * part && nr > 1 && len - at != part ? len - at : part;

			send_r2t(6, (uint16_t)(0x100 + at), at, n);
			expect_h2c(6, (uint16_t)(0x100 + at), at, n, max);
			at += n;
		}
		send_response(6, 0);
		assert_int_equal(done_status(request), 0);
		host_end();
	}
}

/* Of the transport's own socket, which is the one connected to our listener. */
static void shrink_send_buffer(void)
{
	struct sockaddr_storage peer;
	int bytes = 4096;

	for (int fd = 3; fd < 100; fd++) {
		socklen_t len = sizeof(peer);

		memset(&peer, 0, sizeof(peer));
		if (!getpeername(fd, (struct sockaddr *)&peer, &len) &&
			!memcmp(&peer, &host.queue.address, sizeof(struct sockaddr_in)))
			assert_int_equal(
				setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	}
}

/* The target gives the command up while its data is on its way. */
static void write_may_fail_before_its_data_is_sent(void **state)
{
	for (uint32_t after_r2t = 0; after_r2t < 2; after_r2t++) {
		struct haul_request *request, *other;

		host_initialize(*state, 0, 0, 4096);
		shrink_send_buffer();
		request = submit(6, false, 1 << 20);
		expect_command(6);
		if (after_r2t)
			send_r2t(6, 1, 0, 1 << 20);
		send_response(6, NVME_SC_WRITE_FAULT);
		for (uint32_t i = 0; i < 10; i++)
			loop_wait(host.queue.loop, 1000000);
		/* Until the socket has taken the batch, the memory is not the caller's. */
		assert_int_equal(host.nr_done[6], !after_r2t);
		while (!host.nr_done[6])
			peer_receive(&host.peer);
		assert_int_equal(done_status(request), NVME_SC_WRITE_FAULT);
		other = submit(7, false, 0);
		while (peer_receive(&host.peer).type != NVME_TCP_CAPSULE_CMD)
			;
		send_response(7, 0);
		assert_int_equal(done_status(other), 0);
		host_end();
	}
}

/* --- a bad target
 * --------------------------------------------------------------------------------- */

enum bad {
	BAD_SUCCESS_WITHOUT_LAST,
	BAD_SUCCESS_THEN_RESPONSE,
	BAD_SUCCESS_WITH_BYTES_MISSING,
	BAD_LAST_WITH_BYTES_MISSING,
	BAD_RESPONSE_WITH_BYTES_MISSING,
	BAD_DATA_OFFSET,
	BAD_DATA_BEYOND,
	BAD_DATA_LENGTH,
	BAD_DATA_FOR_NOBODY,
	BAD_DATA_FOR_WRITE,
	BAD_RESPONSE_FOR_NOBODY,
	BAD_RESPONSE_BEFORE_DATA,
	BAD_R2T_OFFSET,
	BAD_R2T_BEYOND,
	BAD_R2T_EMPTY,
	BAD_R2T_WRAPS,
	BAD_R2T_FOR_NOBODY,
	BAD_R2T_FOR_READ,
	BAD_R2T_FOR_CAPSULE,
	BAD_R2T_TWICE,
	BAD_TYPE,
	BAD_ICRESP_AGAIN,
	BAD_COMMAND,
	BAD_LENGTH,
	NR_BAD,
};

/* Out are: 1 a read of 8 KiB, 2 a write of 1 MiB by R2T, 3 a write in its capsule. */
static void misbehave(enum bad bad)
{
	static const uint8_t last = NVME_TCP_LAST_PDU, success = NVME_TCP_SUCCESS;
	struct nvme_tcp_data data = {.cccid = le16(1), .datal = le32(4096)};
	struct nvme_tcp_ic_resp resp = {.maxh2cdata = le32(4096)};
	struct nvme_tcp_capsule_cmd cmd = {0};
	uint8_t bytes[24] = {0xac, 0, 24, 0, 24};

	switch (bad) {
	case BAD_SUCCESS_WITHOUT_LAST:
		send_c2h(1, 0, 8192, success);
		break;
	case BAD_SUCCESS_THEN_RESPONSE:
		send_c2h(1, 0, 8192, last | success);
		send_response(1, 0);
		break;
	case BAD_SUCCESS_WITH_BYTES_MISSING:
		send_c2h(1, 0, 4096, last | success);
		break;
	case BAD_LAST_WITH_BYTES_MISSING:
		send_c2h(1, 0, 4096, last);
		send_response(1, 0);
		break;
	case BAD_RESPONSE_WITH_BYTES_MISSING:
		send_c2h(1, 0, 4096, 0);
		send_response(1, 0);
		break;
	case BAD_DATA_OFFSET:
		send_c2h(1, 4096, 4096, last);
		break;
	case BAD_DATA_BEYOND:
		send_c2h(1, 0, 8196, 0);
		break;
	case BAD_DATA_LENGTH:
		peer_send_pdu(
			&host.peer, NVME_TCP_C2H_DATA, 0, &data, sizeof(data), peer_bytes, 8192);
		break;
	case BAD_DATA_FOR_NOBODY:
		send_c2h(9, 0, 4096, last);
		break;
	case BAD_DATA_FOR_WRITE:
		send_c2h(2, 0, 4096, 0);
		break;
	case BAD_RESPONSE_FOR_NOBODY:
		send_response(9, 0);
		break;
	case BAD_RESPONSE_BEFORE_DATA:
		send_response(2, 0);
		break;
	case BAD_R2T_OFFSET:
		send_r2t(2, 0, 4096, 4096);
		break;
	case BAD_R2T_BEYOND:
		send_r2t(2, 0, 0, (1 << 20) + 4);
		break;
	case BAD_R2T_EMPTY:
		send_r2t(2, 0, 0, 0);
		break;
	case BAD_R2T_WRAPS:
		send_r2t(2, 0, 0, 0xffffffff);
		break;
	case BAD_R2T_FOR_NOBODY:
		send_r2t(9, 0, 0, 4096);
		break;
	case BAD_R2T_FOR_READ:
		send_r2t(1, 0, 0, 4096);
		break;
	case BAD_R2T_FOR_CAPSULE:
		send_r2t(3, 0, 0, 4096);
		break;
	case BAD_R2T_TWICE:
		send_r2t(2, 0, 0, 1 << 19);
		send_r2t(2, 1, 1 << 19, 1 << 19);
		break;
	case BAD_TYPE:
		peer_send(&host.peer, bytes, sizeof(bytes));
		break;
	case BAD_ICRESP_AGAIN:
		peer_send_pdu(&host.peer, NVME_TCP_IC_RESP, 0, &resp, sizeof(resp), NULL, 0);
		break;
	case BAD_COMMAND:
		peer_send_pdu(&host.peer, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);
		break;
	case BAD_LENGTH:
		bytes[0] = NVME_TCP_CAPSULE_RESP;
		bytes[4] = 23;
		peer_send(&host.peer, bytes, sizeof(bytes));
		break;
	case NR_BAD:
		break;
	}
}

static void bad_target_ends_the_queue_and_each_request_once(void **state)
{
	for (uint32_t bad = 0; bad < NR_BAD; bad++) {
		struct peer_pdu pdu;

		host_initialize(*state, 0, 0, 4096);
		submit(1, true, 8192);
		submit(2, false, 1 << 20);
		submit(3, false, 4096);
		expect_command(1);
		expect_command(2);
		expect_command(3);
		misbehave((enum bad)bad);
		wait_for(host.queue.loop, host.nr_failed);
		assert_int_equal(host.nr_failed, 1);
		assert_int_equal(host.failure, -EPROTO);
		haul_transport_tcp_ops.disconnect(&host.queue);
		do
			pdu = peer_receive(&host.peer);
		while (pdu.type == NVME_TCP_H2C_DATA);
		assert_int_equal(pdu.type, NVME_TCP_H2C_TERM_REQ);
		shutdown(host.peer.fd, SHUT_WR);
		wait_for(host.queue.loop, host.nr_quiesced);
		for (uint32_t i = 1; i <= 3; i++)
			assert_int_equal(host.nr_done[i], 1);
		/* Done well before the mistake, or not at all. */
		assert_int_equal(
			host.requests[1].result, bad == BAD_SUCCESS_THEN_RESPONSE ? 0 : -ECANCELED);
		assert_int_equal(host.requests[2].result, -ECANCELED);
		haul_transport_tcp_ops.free(&host.queue);
		peer_close(&host.peer);
		close(host.listen_fd);
	}
}

static void termination_request_is_told_in_words(void **state)
{
	struct nvme_tcp_term_req term = {.fes = le16(NVME_TCP_FES_LIMIT_EXCEEDED), .fei = le32(17)};

	host_initialize(*state, 0, 0, 4096);
	peer_send_pdu(&host.peer, NVME_TCP_C2H_TERM_REQ, 0, &term, sizeof(term), NULL, 0);
	wait_for(host.queue.loop, host.nr_failed);
	assert_non_null(strstr(host.why, "Limit Exceeded"));
	assert_non_null(strstr(host.why, "17"));
	host_end();
}

static void wrong_header_digest_ends_the_queue(void **state)
{
	host_initialize(*state, NVME_TCP_DGST_HEADER, 0, 4096);
	submit(1, true, 512);
	expect_command(1);
	host.peer.wrong_header_digest = true;
	send_response(1, NVME_SC_INTERNAL);
	wait_for(host.queue.loop, host.nr_failed);
	host_end();
	assert_int_equal(host.requests[1].result, -ECANCELED);
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void requests_out_come_back_and_their_memory_stays_as_it_is(void **state)
{
	for (uint32_t i = 0; i < 40; i++) {
		struct nvme_tcp_data header = {.datal = le32(100000)};
		uint8_t *bytes = malloc(200000);
		size_t n;

		fill_pattern(peer_bytes, sizeof(peer_bytes), i);
		host_initialize(*state, i & 3, 0, 8192);
		submit(0, true, 100000);
		submit(1, false, 1 << 20);
		submit(2, false, 4096);
		submit(3, true, 512);
		expect_command(0);
		expect_command(1);
		send_r2t(1, 7, 0, 1 << 20);
		n = peer_build_pdu(&host.peer, bytes, NVME_TCP_C2H_DATA, NVME_TCP_LAST_PDU, &header,
			sizeof(header), peer_bytes, 100000);
		peer_send(&host.peer, bytes, n / 40 * i + 1);
		for (uint32_t j = 0; j < i % 5; j++)
			loop_turn(host.queue.loop);
		if (i & 4)
			shutdown(host.peer.fd, SHUT_RDWR);
		host_disconnect();
		memset(host_bytes, 0x77, 100000);
		(void)!send(host.peer.fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		for (uint32_t j = 0; j < 5; j++)
			loop_turn(host.queue.loop);
		for (uint32_t j = 0; j < 100000; j++)
			assert_int_equal(host_bytes[j], 0x77);
		haul_transport_tcp_ops.free(&host.queue);
		peer_close(&host.peer);
		close(host.listen_fd);
		free(bytes);
	}
}

static void burst_of_reads_costs_one_transmit(void **state)
{
	struct loop_stats before, after;

	host_initialize(*state, 0, 0, 4096);
	peer_turn(&host.peer);
	loop_stats_get(*state, &before);
	for (uint16_t i = 0; i < DEPTH; i++)
		submit(i, true, 4096);
	for (uint16_t i = 0; i < DEPTH; i++)
		expect_command(i);
	loop_stats_get(*state, &after);
	assert_int_equal(after.nr_ops - before.nr_ops, 1);
	host_end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(refused_connection_is_told),
		loop_test(address_family_without_sockets_is_told),
		loop_test(silent_target_can_be_left_at_any_byte_of_icresp),
		loop_test(queue_can_be_left_while_its_socket_connects),
		loop_test(end_of_stream_before_icresp_is_told),
		loop_test(icresp_with_illegal_values_is_refused),
		loop_test(reads_end_with_success_or_a_response),
		loop_test(failed_read_needs_no_data),
		loop_test(read_with_wrong_data_digest_is_not_taken_for_good),
		loop_test(write_that_fits_goes_in_the_capsule),
		loop_test(connect_goes_in_the_capsule_whatever_the_limit),
		loop_test(r2t_is_served_in_pdus_no_longer_than_the_target_takes),
		loop_test(write_may_fail_before_its_data_is_sent),
		loop_test(bad_target_ends_the_queue_and_each_request_once),
		loop_test(termination_request_is_told_in_words),
		loop_test(wrong_header_digest_ends_the_queue),
		loop_test(requests_out_come_back_and_their_memory_stays_as_it_is),
		loop_test(burst_of_reads_costs_one_transmit),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
