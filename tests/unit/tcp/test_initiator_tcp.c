/* SPDX-License-Identifier: MIT */
/*
 * The initiator's TCP transport under a queue of a few lines, against a target that sends chosen
 * bytes. Each request comes back exactly once, whatever the target does.
 */
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/nvme/status.h"
#include "tests/unit/base/engines.h"
#include "tests/unit/tcp/host.h"

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

/* Refused, not done without: the user wants his data protected. */
static void digests_asked_for_and_not_granted_end_the_connect(void **state)
{
	static const struct {
		uint8_t asked, granted;
		const char *words;
	} cases[] = {
		{1, 0, "does no header digests, which were asked for: leave hdgst out, or"},
		{2, 0, "does no data digests, which were asked for: leave ddgst out, or"},
		{3, 1, "does no data digests, which were asked for: leave ddgst out, or"},
		{3, 2, "does no header digests, which were asked for: leave hdgst out, or"},
		{3, 0, "does no digests, which were asked for: leave hdgst and ddgst out, or"},
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_tcp_ic_resp resp = {
			.dgst = cases[i].granted, .maxh2cdata = {{0, 0x10}}};

		host_open(*state, cases[i].asked);
		peer_send_pdu(&host.peer, NVME_TCP_IC_RESP, 0, &resp, sizeof(resp), NULL, 0);
		wait_for(host.queue.loop, host.nr_connected);
		assert_int_equal(host.connect_result, -EOPNOTSUPP);
		assert_non_null(strstr(host.why, cases[i].words));
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
		request = host_submit(3, true, len);
		host_scatter(request, in_pieces ? HAUL_MAX_IOV : 1);
		memset(host_bytes, 0, len);
		host_expect_command(3);
		while (at < len) {
			uint32_t n = in_pieces ? min_of(len - at, 20000u) : len;
			bool last = at + n == len;

			host_send_c2h(3, at, n,
				!last ? 0 : NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0));
			at += n;
		}
		if (!success)
			host_send_response(3, 0);
		assert_int_equal(host_done_status(request), 0);
		assert_memory_equal(host_bytes, peer_bytes, len);
		host_end();
	}
}

static void failed_read_needs_no_data(void **state)
{
	struct haul_request *request;

	host_initialize(*state, 0, 0, 4096);
	request = host_submit(3, true, 4096);
	host_expect_command(3);
	host_send_response(3, NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	assert_int_equal(host_done_status(request), NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	host_end();
}

static void read_with_wrong_data_digest_is_not_taken_for_good(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		bool success = i & 1, first = i & 2;
		struct haul_request *request;

		host_initialize(*state, NVME_TCP_DGST_DATA, 0, 4096);
		request = host_submit(3, true, 8192);
		host_expect_command(3);
		host.peer.wrong_data_digest = first;
		host_send_c2h(3, 0, 4096, 0);
		host.peer.wrong_data_digest = !first;
		host_send_c2h(3, 4096, 4096, NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0));
		if (!success)
			host_send_response(3, 0);
		assert_int_equal(host_done_status(request), NVME_SC_TRANSIENT_TRANSPORT);
		/* The connection lives. */
		host.peer.wrong_data_digest = false;
		request = host_submit(4, true, 512);
		host_expect_command(4);
		host_send_c2h(4, 0, 512, NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS);
		assert_int_equal(host_done_status(request), 0);
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
		request = host_submit(5, false, 4096);
		host_scatter(request, 5);
		pdu = host_expect_command(5);
		assert_int_equal(pdu.cmd.cmd.sgl.id, NVME_SGL_ID_IN_CAPSULE);
		assert_int_equal(le32_get(pdu.cmd.cmd.sgl.len), 4096);
		assert_int_equal(pdu.data_len, 4096);
		assert_int_equal(pdu.ch.pdo % (digests ? 32 : 4), 0);
		assert_memory_equal(pdu.data, host_bytes, 4096);
		host_send_response(5, 0);
		assert_int_equal(host_done_status(request), 0);
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
	assert_int_equal(host_expect_command(0).data_len, 1024);
	host_send_response(0, 0);
	assert_int_equal(host_done_status(request), 0);
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
		request = host_submit(6, false, len);
		host_scatter(request, i & 1 ? HAUL_MAX_IOV : 3);
		assert_int_equal(host_expect_command(6).cmd.cmd.sgl.id, NVME_SGL_ID_TRANSPORT);
		/* NR of them, one after the other. */
		while (at < len) {
			uint32_t n =
				len - at < 2 * part && nr > 1 && len - at != part ? len - at : part;

			host_send_r2t(6, (uint16_t)(0x100 + at), at, n);
			host_expect_h2c(6, (uint16_t)(0x100 + at), at, n, max);
			at += n;
		}
		host_send_response(6, 0);
		assert_int_equal(host_done_status(request), 0);
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
		request = host_submit(6, false, 1 << 20);
		host_expect_command(6);
		if (after_r2t)
			host_send_r2t(6, 1, 0, 1 << 20);
		host_send_response(6, NVME_SC_WRITE_FAULT);
		for (uint32_t i = 0; i < 10; i++)
			loop_wait(host.queue.loop, 1000000);
		/* Until the socket has taken the batch, the memory is not the caller's. */
		assert_int_equal(host.nr_done[6], !after_r2t);
		while (!host.nr_done[6])
			peer_receive(&host.peer);
		assert_int_equal(host_done_status(request), NVME_SC_WRITE_FAULT);
		other = host_submit(7, false, 0);
		while (peer_receive(&host.peer).type != NVME_TCP_CAPSULE_CMD)
			;
		host_send_response(7, 0);
		assert_int_equal(host_done_status(other), 0);
		host_end();
	}
}

/* --- a bad target
 * --------------------------------------------------------------------------------- */

enum step_kind { STEP_END, STEP_C2H, STEP_C2H_LIE, STEP_RESPONSE, STEP_R2T, STEP_RAW };

struct step {
	enum step_kind kind;
	uint16_t cid;	 /* RAW: type */
	uint32_t offset; /* RAW: HLEN */
	uint32_t len;	 /* RAW: PLEN */
	uint8_t flags;
};

#define LAST	NVME_TCP_LAST_PDU
#define SUCCESS NVME_TCP_SUCCESS

/* Out are: 1 a read of 8 KiB, 2 a write of 1 MiB by R2T, 3 a write in its capsule. */
static const struct bad {
	const char *what;
	struct step steps[2];
	bool read_is_done; /* before the mistake */
} bad_targets[] = {
	{"success without last", {{STEP_C2H, 1, 0, 8192, SUCCESS}}, false},
	{"success, then a response",
		{{STEP_C2H, 1, 0, 8192, LAST | SUCCESS}, {STEP_RESPONSE, 1, 0, 0, 0}}, true},
	{"success with bytes missing", {{STEP_C2H, 1, 0, 4096, LAST | SUCCESS}}, false},
	{"last with bytes missing", {{STEP_C2H, 1, 0, 4096, LAST}, {STEP_RESPONSE, 1, 0, 0, 0}},
		false},
	{"response with bytes missing", {{STEP_C2H, 1, 0, 4096, 0}, {STEP_RESPONSE, 1, 0, 0, 0}},
		false},
	{"data at another offset", {{STEP_C2H, 1, 4096, 4096, LAST}}, false},
	{"data beyond the end", {{STEP_C2H, 1, 0, 8196, 0}}, false},
	{"data of another length", {{STEP_C2H_LIE, 1, 0, 8192, 0}}, false},
	{"data for nobody", {{STEP_C2H, 9, 0, 4096, LAST}}, false},
	{"data for a write", {{STEP_C2H, 2, 0, 4096, 0}}, false},
	{"response for nobody", {{STEP_RESPONSE, 9, 0, 0, 0}}, false},
	{"response before the data", {{STEP_RESPONSE, 2, 0, 0, 0}}, false},
	{"R2T at another offset", {{STEP_R2T, 2, 4096, 4096, 0}}, false},
	{"R2T beyond the end", {{STEP_R2T, 2, 0, (1 << 20) + 4, 0}}, false},
	{"R2T for nothing", {{STEP_R2T, 2, 0, 0, 0}}, false},
	{"R2T beyond 32 bits", {{STEP_R2T, 2, 0, 0xffffffff, 0}}, false},
	{"R2T for nobody", {{STEP_R2T, 9, 0, 4096, 0}}, false},
	{"R2T for a read", {{STEP_R2T, 1, 0, 4096, 0}}, false},
	{"R2T for data in a capsule", {{STEP_R2T, 3, 0, 4096, 0}}, false},
	{"R2T before the last is served",
		{{STEP_R2T, 2, 0, 1 << 19, 0}, {STEP_R2T, 2, 1 << 19, 1 << 19, 0}}, false},
	{"unknown type", {{STEP_RAW, 0xac, 24, 24, 0}}, false},
	{"ICResp again", {{STEP_RAW, NVME_TCP_IC_RESP, 128, 128, 0}}, false},
	{"a command", {{STEP_RAW, NVME_TCP_CAPSULE_CMD, 72, 72, 0}}, false},
	{"impossible length", {{STEP_RAW, NVME_TCP_CAPSULE_RESP, 24, 23, 0}}, false},
};

static void take_step(const struct step *step)
{
	struct nvme_tcp_data lie = {.cccid = le16(step->cid), .datal = le32(step->len / 2)};
	uint8_t raw[128] = {(uint8_t)step->cid, 0, (uint8_t)step->offset, 0, (uint8_t)step->len};

	switch (step->kind) {
	case STEP_END:
		break;
	case STEP_C2H:
		host_send_c2h(step->cid, step->offset, step->len, step->flags);
		break;
	case STEP_C2H_LIE:
		peer_send_pdu(
			&host.peer, NVME_TCP_C2H_DATA, 0, &lie, sizeof(lie), peer_bytes, step->len);
		break;
	case STEP_RESPONSE:
		host_send_response(step->cid, 0);
		break;
	case STEP_R2T:
		host_send_r2t(step->cid, (uint16_t)(step->offset >> 12), step->offset, step->len);
		break;
	case STEP_RAW:
		peer_send(&host.peer, raw, sizeof(raw));
		break;
	}
}

static void bad_target_ends_the_queue_and_each_request_once(void **state)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(bad_targets); i++) {
		const struct bad *bad = &bad_targets[i];
		struct peer_pdu pdu;

		host_initialize(*state, 0, 0, 4096);
		host_submit(1, true, 8192);
		host_submit(2, false, 1 << 20);
		host_submit(3, false, 4096);
		host_expect_command(1);
		host_expect_command(2);
		host_expect_command(3);
		take_step(&bad->steps[0]);
		take_step(&bad->steps[1]);
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
		for (uint32_t cid = 1; cid <= 3; cid++)
			assert_int_equal(host.nr_done[cid], 1);
		/* Done well before the mistake, or not at all. */
		assert_int_equal(host.requests[1].result, bad->read_is_done ? 0 : -ECANCELED);
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
	host_submit(1, true, 512);
	host_expect_command(1);
	host.peer.wrong_header_digest = true;
	host_send_response(1, NVME_SC_INTERNAL);
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
		host_submit(0, true, 100000);
		host_submit(1, false, 1 << 20);
		host_submit(2, false, 4096);
		host_submit(3, true, 512);
		host_expect_command(0);
		host_expect_command(1);
		host_send_r2t(1, 7, 0, 1 << 20);
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
		host_submit(i, true, 4096);
	for (uint16_t i = 0; i < DEPTH; i++)
		host_expect_command(i);
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
		loop_test(digests_asked_for_and_not_granted_end_the_connect),
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
