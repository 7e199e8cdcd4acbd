/* SPDX-License-Identifier: MIT */
/*
 * The target's TCP transport under a core of a few lines, against a host that sends chosen bytes.
 * Each test ends with all requests back and the connection quiesced.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/nvme/status.h"
#include "tests/unit/base/engines.h"
#include "tests/unit/tcp/core.h"

/* --- the start ------------------------------------------------------------------------------- */

static void icresp_offers_legal_limits(void **state)
{
	struct nvme_tcp_ic_resp resp;

	core_open(*state, 0);
	resp = core_initialize(0, 0);
	assert_int_equal(le16_get(resp.pfv), 0);
	assert_int_equal(resp.cpda, 0);
	assert_int_equal(resp.dgst, 0);
	assert_true(le32_get(resp.maxh2cdata) >= 4096 && le32_get(resp.maxh2cdata) % 4 == 0);
	core_end();
}

static void digests_in_use_are_those_asked_and_allowed(void **state)
{
	for (uint8_t asked = 0; asked < 4; asked++) {
		for (uint8_t allowed = 0; allowed < 4; allowed++) {
			core_open(*state, 0);
			core.port.option[TCP_OPTION_HDGST] = allowed & NVME_TCP_DGST_HEADER;
			core.port.option[TCP_OPTION_DDGST] = allowed & NVME_TCP_DGST_DATA;
			assert_int_equal(core_initialize(0, asked).dgst, asked & allowed);
			core_send_command(OP_READ, 1, 4096, NULL);
			assert_int_equal(peer_expect(&core.peer, NVME_TCP_C2H_DATA).data_len, 4096);
			assert_int_equal(core_expect_response(1), 0);
			core_end();
		}
	}
}

static void pdus_out_of_sequence_end_the_connection(void **state)
{
	struct nvme_tcp_ic_req req = {0};
	uint8_t data[8] = {0};

	for (uint32_t i = 0; i < 3; i++) {
		core_open(*state, 0);
		if (i == 0) {
			core_send_command(OP_READ, 1, 4096, NULL);
		} else if (i == 1) {
			core_send_h2c(0, 0, 0, data, sizeof(data), true);
		} else {
			core_initialize(0, 0);
			peer_send_pdu(&core.peer, NVME_TCP_IC_REQ, 0, &req, sizeof(req), NULL, 0);
		}
		core_expect_term(NVME_TCP_FES_SEQUENCE);
		core_end();
	}
}

static void icreq_with_illegal_values_is_refused(void **state)
{
	static const struct {
		struct nvme_tcp_ic_req req;
		uint16_t fes;
		uint32_t fei;
	} cases[] = {
		{{.pfv = {{1, 0}}}, NVME_TCP_FES_UNSUPPORTED_PARAMETER, 8},
		{{.pfv = {{0, 1}}}, NVME_TCP_FES_UNSUPPORTED_PARAMETER, 8},
		{{.hpda = 32}, NVME_TCP_FES_INVALID_HEADER_FIELD, 10},
		{{.hpda = 255}, NVME_TCP_FES_INVALID_HEADER_FIELD, 10},
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_tcp_ic_req req = cases[i].req;

		core_open(*state, 0);
		peer_send_pdu(&core.peer, NVME_TCP_IC_REQ, 0, &req, sizeof(req), NULL, 0);
		assert_int_equal(core_expect_term(cases[i].fes), cases[i].fei);
		core_end();
	}
}

static void host_data_alignment_is_honoured(void **state)
{
	for (uint8_t hpda = 0; hpda <= NVME_TCP_PDA_MAX; hpda++) {
		struct peer_pdu pdu;

		core_open(*state, 0);
		core_initialize(hpda, hpda & 3);
		core_send_command(OP_READ, 9, 512, NULL);
		pdu = peer_expect(&core.peer, NVME_TCP_C2H_DATA);
		assert_int_equal(pdu.ch.pdo % ((hpda + 1) * 4), 0);
		assert_int_equal(pdu.data_len, 512);
		core_end();
	}
}

/* --- malformed PDUs ----------------------------------------------------------------------------
 */

static void malformed_headers_end_the_connection(void **state)
{
	static const struct {
		uint16_t type, flags, hlen, pdo;
		uint32_t plen;
		uint16_t fes, fei;
	} cases[] = {
		{4, 0, 0, 0, 72, 1, 2},
		{4, 0, 1, 0, 72, 1, 2},
		{4, 0, 71, 0, 72, 1, 2},
		{4, 0, 73, 0, 73, 1, 2},
		{4, 0, 255, 0, 255, 1, 2},
		{4, 0, 72, 0, 0, 1, 4},
		{4, 0, 72, 0, 7, 1, 4},
		{4, 0, 72, 0, 71, 1, 4},
		{4, 0, 72, 0, 584, 1, 3},
		{4, 0, 72, 8, 584, 1, 3},
		{4, 0, 72, 73, 584, 1, 3},
		{4, 0, 72, 200, 76, 1, 3},
		{4, 0, 72, 72, 0xffffffff, 1, 4},
		{4, 0, 72, 72, 72 + 8196, 1, 4},
		{4, 1, 72, 0, 72, 1, 1},
		{4, 2, 72, 72, 584, 1, 1},
		{4, 0x80, 72, 0, 72, 1, 1},
		{4, 4, 72, 0, 72, 1, 1},
		{6, 0, 23, 24, 536, 1, 2},
		{6, 0, 25, 24, 536, 1, 2},
		{6, 0, 24, 24, 24, 1, 4},
		{6, 0, 24, 23, 536, 1, 3},
		{6, 8, 24, 24, 536, 1, 1},
		{6, 0, 24, 24, 24 + TCP_MAXH2CDATA + 4, 5, 0},
		{6, 0, 24, 24, 0xffffffff, 5, 0},
		{8, 0, 24, 0, 24, 1, 0},
		{0x0a, 0, 24, 0, 24, 1, 0},
		{0xac, 0, 24, 0, 24, 1, 0},
		{0xff, 0, 24, 0, 24, 1, 0},
		{1, 0, 128, 0, 128, 1, 0},
		{3, 0, 24, 0, 24, 1, 0},
		{5, 0, 24, 0, 24, 1, 0},
		{7, 0, 24, 24, 536, 1, 0},
		{9, 0, 24, 0, 24, 1, 0},
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t bytes[64] = {0};
		struct nvme_tcp_ch ch = {.type = (uint8_t)cases[i].type,
			.flags = (uint8_t)cases[i].flags,
			.hlen = (uint8_t)cases[i].hlen,
			.pdo = (uint8_t)cases[i].pdo,
			.plen = le32(cases[i].plen)};

		core_open(*state, 0);
		core_initialize(0, 0);
		memcpy(bytes, &ch, sizeof(ch));
		peer_send(&core.peer, bytes, sizeof(bytes));
		if (core_expect_term(cases[i].fes) != cases[i].fei)
			fail_msg("case %u: another field is blamed", i);
		core_end();
	}
}

static void wrong_header_digest_ends_the_connection(void **state)
{
	core_open(*state, 0);
	core_initialize(0, NVME_TCP_DGST_HEADER);
	core.peer.wrong_header_digest = true;
	core_send_command(OP_READ, 1, 4096, NULL);
	core_expect_term(NVME_TCP_FES_HEADER_DIGEST);
	core_end();
}

static void termination_request_of_the_host_ends_the_connection(void **state)
{
	struct nvme_tcp_term_req term = {.fes = le16(NVME_TCP_FES_OUT_OF_RANGE)};
	uint8_t bytes[24 + 16] = {0};

	core_open(*state, 0);
	core_initialize(0, 0);
	peer_build_pdu(&core.peer, bytes, NVME_TCP_H2C_TERM_REQ, 0, &term, sizeof(term), NULL, 0);
	((struct nvme_tcp_ch *)bytes)->plen = le32(sizeof(bytes));
	peer_send(&core.peer, bytes, sizeof(bytes));
	peer_expect_eof(&core.peer);
	assert_non_null(strstr(core.why, "Out of Range"));
	core_end();
}

/* --- reads -------------------------------------------------------------------------------------
 */

static void reads_bring_data_and_a_response(void **state)
{
	static const uint32_t lens[] = {4, 512, 4096, 131072, 1 << 20};
	uint8_t *pattern = malloc(1 << 20);

	for (uint8_t digests = 0; digests < 4; digests++) {
		core_open(*state, digests & 1 ? 4096 : 0);
		core_initialize(digests ? 3 : 0, digests);
		for (uint16_t i = 0; i < ARRAY_SIZE(lens); i++) {
			struct peer_pdu pdu;

			core_send_command(OP_READ, i, lens[i], NULL);
			pdu = peer_expect(&core.peer, NVME_TCP_C2H_DATA);
			fill_pattern(pattern, lens[i], i);
			assert_int_equal(le16_get(pdu.data_header.cccid), i);
			assert_int_equal(le32_get(pdu.data_header.datao), 0);
			assert_int_equal(le32_get(pdu.data_header.datal), lens[i]);
			assert_int_equal(pdu.flags & (NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS),
				NVME_TCP_LAST_PDU);
			assert_int_equal(pdu.data_len, lens[i]);
			assert_memory_equal(pdu.data, pattern, lens[i]);
			assert_int_equal(core_expect_response(i), 0);
		}
		core_end();
	}
	free(pattern);
}

static void success_takes_the_place_of_the_response_without_flow_control(void **state)
{
	struct peer_pdu pdu;

	core_open(*state, 0);
	core.conn.flow_control_disabled = true;
	core_initialize(0, 0);
	core_send_command(OP_READ, 3, 4096, NULL);
	pdu = peer_expect(&core.peer, NVME_TCP_C2H_DATA);
	assert_int_equal(pdu.flags, NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS);
	core_expect_still_in_step(4);
	core_end();
}

static void burst_of_reads_costs_one_receive_and_one_transmit(void **state)
{
	uint8_t bytes[DEPTH * 72];
	struct loop_stats before, after;

	core_open(*state, 0);
	core_initialize(0, 0);
	for (uint16_t i = 0; i < DEPTH; i++) {
		struct nvme_tcp_capsule_cmd cmd = core_command(OP_READ, i, 512, false);

		peer_build_pdu(&core.peer, bytes + i * 72, NVME_TCP_CAPSULE_CMD, 0, &cmd,
			sizeof(cmd), NULL, 0);
	}
	peer_turn(&core.peer);
	loop_stats_get(core.loop, &before);
	peer_send(&core.peer, bytes, sizeof(bytes));
	for (uint16_t i = 0; i < DEPTH; i++) {
		peer_expect(&core.peer, NVME_TCP_C2H_DATA);
		assert_int_equal(core_expect_response(i), 0);
	}
	wait_for(core.loop, !core.conn.nr_out);
	loop_stats_get(core.loop, &after);
	/* The receive that follows and the transmit; the other receive was out before. */
	assert_int_equal(after.nr_ops - before.nr_ops, 2);
	core_end();
}

static void more_commands_than_the_queue_holds_end_the_connection(void **state)
{
	core_open(*state, 0);
	core_initialize(0, 0);
	for (uint16_t i = 0; i <= DEPTH; i++)
		core_send_command(OP_HOLD, i, 0, NULL);
	core_expect_term(NVME_TCP_FES_SEQUENCE);
	core_end();
}

/* --- writes ------------------------------------------------------------------------------------
 */

static void in_capsule_data_arrives_or_is_dropped_in_step(void **state)
{
	static const uint32_t lens[] = {4, 512, 4096, 8192};
	static const uint8_t opcodes[] = {OP_WRITE, OP_REFUSE, OP_HOLD, OP_WRITE_LATER};
	uint8_t data[8192];

	fill_pattern(data, sizeof(data), 11);
	for (uint8_t digests = 0; digests < 4; digests++) {
		core_open(*state, 0);
		core_initialize(0, digests);
		for (uint16_t i = 0; i < 16; i++) {
			uint8_t opcode = opcodes[i % 4];
			uint32_t len = lens[i / 4];

			core.last_len = 0;
			core_send_command(opcode, i, len, data);
			if (opcode == OP_WRITE_LATER) {
				wait_for(core.loop, !list_empty(&core.waiting));
				core_give_buffers();
			}
			if (opcode != OP_HOLD)
				assert_int_equal(core_expect_response(i),
					opcode == OP_REFUSE ? NVME_SC_INVALID_OPCODE : 0);
			if (opcode == OP_WRITE || opcode == OP_WRITE_LATER) {
				assert_int_equal(core.last_len, len);
				assert_memory_equal(core.last_data, data, len);
			}
		}
		core_expect_still_in_step(100);
		core_end();
	}
}

/* The last command of a burst waits, and nothing more ever comes on the socket. */
static void commands_behind_one_that_waits_are_answered_when_it_gets_a_buffer(void **state)
{
	uint8_t data[8192], bytes[4 * 8300];
	struct nvme_tcp_capsule_cmd cmd;
	size_t n = 0;

	fill_pattern(data, sizeof(data), 12);
	for (uint32_t round = 0; round < 20; round++) {
		core_open(*state, 0);
		core_initialize(0, 0);
		n = 0;
		for (uint16_t i = 0; i < 3; i++) {
			cmd = core_command(OP_WRITE_LATER, i, 8192, true);
			n += peer_build_pdu(&core.peer, bytes + n, NVME_TCP_CAPSULE_CMD, 0, &cmd,
				sizeof(cmd), data, 8192);
		}
		peer_send(&core.peer, bytes, n);
		for (uint16_t i = 0; i < 3; i++) {
			wait_for(core.loop, !list_empty(&core.waiting));
			core_give_buffers();
			assert_int_equal(core_expect_response(i), 0);
		}
		assert_int_equal(core.nr_pulled, 3);
		core_end();
	}
}

static void r2t_writes_arrive_in_any_legal_pieces(void **state)
{
	static const uint32_t lens[] = {512, 4096, 66048, 1 << 20};
	static const uint32_t pieces[] = {4, 512, 4096, TCP_MAXH2CDATA};
	uint8_t *data = malloc(1 << 20);

	fill_pattern(data, 1 << 20, 13);
	for (uint8_t digests = 0; digests < 4; digests += 3) {
		for (uint32_t i = 0; i < ARRAY_SIZE(lens) * ARRAY_SIZE(pieces); i++) {
			uint32_t len = lens[i / 4], piece = pieces[i % 4], at = 0;
			uint16_t ttag;

			if (len / piece > 3000)
				continue;
			core_open(*state, 0);
			core_initialize(0, digests);
			core_send_command(OP_WRITE, 5, len, NULL);
			ttag = core_expect_r2t(5, len);
			while (at < len) {
				uint32_t n = min_of(piece, len - at);

				core_send_h2c(5, ttag, at, data, n, at + n == len);
				at += n;
			}
			assert_int_equal(core_expect_response(5), 0);
			assert_int_equal(core.last_len, len);
			assert_memory_equal(core.last_data, data, len);
			core_end();
		}
	}
	free(data);
}

static void h2cdata_beside_its_r2t_is_fatal(void **state)
{
	static const struct {
		const char *name;
		uint16_t cid, ttag_xor;
		uint32_t offset, len;
		bool last;
		uint16_t fes;
	} cases[] = {
		{"another command", 6, 0, 0, 4096, false, NVME_TCP_FES_INVALID_HEADER_FIELD},
		{"another tag", 5, 1, 0, 4096, false, NVME_TCP_FES_INVALID_HEADER_FIELD},
		{"no such tag", 5, 0x8000, 0, 4096, false, NVME_TCP_FES_INVALID_HEADER_FIELD},
		{"not at its offset", 5, 0, 4096, 4096, true, NVME_TCP_FES_OUT_OF_RANGE},
		{"beyond the end", 5, 0, 0, 8196, false, NVME_TCP_FES_OUT_OF_RANGE},
		{"early last", 5, 0, 0, 4096, true, NVME_TCP_FES_OUT_OF_RANGE},
		{"no last", 5, 0, 0, 8192, false, NVME_TCP_FES_OUT_OF_RANGE},
		{"no dwords", 5, 0, 0, 511, false, NVME_TCP_FES_INVALID_HEADER_FIELD},
	};
	uint8_t data[16384] = {0};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint16_t ttag;

		core_open(*state, 0);
		core_initialize(0, 0);
		core_send_command(OP_WRITE, 5, 8192, NULL);
		ttag = core_expect_r2t(5, 8192) ^ cases[i].ttag_xor;
		core_send_h2c(
			cases[i].cid, ttag, cases[i].offset, data, cases[i].len, cases[i].last);
		core_expect_term(cases[i].fes);
		assert_int_equal(core.nr_pulled, 0);
		core_end();
	}
}

static void h2cdata_is_not_taken_twice(void **state)
{
	uint8_t data[8192] = {0};
	uint16_t ttag;

	core_open(*state, 0);
	core_initialize(0, 0);
	core_send_command(OP_WRITE, 5, 8192, NULL);
	ttag = core_expect_r2t(5, 8192);
	core_send_h2c(5, ttag, 0, data, 4096, false);
	core_send_h2c(5, ttag, 0, data, 4096, false);
	core_expect_term(NVME_TCP_FES_OUT_OF_RANGE);
	core_end();
}

/* The tag is guessed: command and data come in one segment. */
static void h2cdata_before_its_r2t_is_fatal(void **state)
{
	struct nvme_tcp_capsule_cmd cmd = core_command(OP_WRITE, 5, 512, false);
	struct nvme_tcp_data header = {.cccid = le16(5), .datal = le32(512)};
	uint8_t bytes[1024], data[512] = {0};
	size_t n;

	core_open(*state, 0);
	core_initialize(0, 0);
	n = peer_build_pdu(&core.peer, bytes, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);
	n += peer_build_pdu(&core.peer, bytes + n, NVME_TCP_H2C_DATA, NVME_TCP_LAST_PDU, &header,
		sizeof(header), data, sizeof(data));
	peer_send(&core.peer, bytes, n);
	assert_int_equal(core_expect_term(NVME_TCP_FES_INVALID_HEADER_FIELD),
		offsetof(struct nvme_tcp_data, ttag));
	core_end();
}

static void command_that_waits_may_be_refused_in_step(void **state)
{
	uint8_t data[4096] = {0};

	core_open(*state, 0);
	core_initialize(0, 0);
	core_send_command(OP_WRITE_LATER, 1, 4096, data);
	wait_for(core.loop, !list_empty(&core.waiting));
	core_reply(core_waiting(), NVME_SC_INTERNAL);
	assert_int_equal(core_expect_response(1), NVME_SC_INTERNAL);
	core_expect_still_in_step(2);
	core_end();
}

static void wrong_data_digest_is_the_commands_error_only(void **state)
{
	uint8_t data[12288];
	uint16_t ttag;

	fill_pattern(data, sizeof(data), 14);
	core_open(*state, 0);
	core_initialize(0, NVME_TCP_DGST_DATA);
	core.peer.wrong_data_digest = true;
	core_send_command(OP_WRITE, 1, 4096, data);
	assert_int_equal(core_expect_response(1), NVME_SC_TRANSIENT_TRANSPORT);
	core_send_command(OP_WRITE_LATER, 2, 4096, data);
	wait_for(core.loop, !list_empty(&core.waiting));
	core_give_buffers();
	assert_int_equal(core_expect_response(2), NVME_SC_TRANSIENT_TRANSPORT);
	core.peer.wrong_data_digest = false;
	core_send_command(OP_WRITE, 3, 12288, NULL);
	ttag = core_expect_r2t(3, 12288);
	for (uint32_t i = 0; i < 3; i++) {
		core.peer.wrong_data_digest = i == 1;
		core_send_h2c(3, ttag, i * 4096, data, 4096, i == 2);
	}
	assert_int_equal(core_expect_response(3), NVME_SC_TRANSIENT_TRANSPORT);
	assert_int_equal(core.nr_pulled, 0);
	core_send_command(OP_WRITE, 4, 4096, data);
	assert_int_equal(core_expect_response(4), 0);
	core_end();
}

/*
 * A holds the only buffer and waits for H2CData that is behind B's capsule, and B waits for A's
 * buffer. R2T may have been sent before B came, or while B held the stream up.
 */
static void capsule_that_waits_does_not_hold_up_data_of_another(void **state)
{
	uint8_t data[8192];
	uint16_t ttag;

	fill_pattern(data, sizeof(data), 15);
	for (uint32_t r2t_first = 0; r2t_first < 2; r2t_first++) {
		core_open(*state, 0);
		core_initialize(0, NVME_TCP_DGST_DATA);
		core_send_command(r2t_first ? OP_WRITE : OP_WRITE_LATER, 1, 8192, NULL);
		if (!r2t_first) {
			core_send_command(OP_WRITE_LATER, 2, 4096, data);
			wait_for(core.loop, core.conn.nr_out == 2);
			core_pull(core_waiting());
			ttag = core_expect_r2t(1, 8192);
		} else {
			ttag = core_expect_r2t(1, 8192);
			core_send_command(OP_WRITE_LATER, 2, 4096, data);
		}
		core_send_command(OP_WRITE_LATER, 3, 512, data);
		core_send_h2c(1, ttag, 0, data, 8192, true);
		assert_int_equal(core_expect_response(1), 0);
		memset(core.last_data, 0, 8192);
		core_pull(core_waiting());
		assert_int_equal(core_expect_response(2), 0);
		assert_memory_equal(core.last_data, data, 4096);
		/* What is left aside goes with the connection, or with a refusal. */
		if (r2t_first)
			core_reply(core_waiting(), NVME_SC_INTERNAL);
		core_end();
	}
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void connections_may_end_at_any_byte_of_a_mix(void **state)
{
	uint8_t data[4096], *bytes = malloc(1 << 20);
	size_t len = 0, step;

	fill_pattern(data, sizeof(data), 16);
	for (uint32_t how = 0; how < 3; how++) {
		step = 0;
		for (size_t cut = 1; !len || cut < len; cut += 1 + step++ * 7) {
			core_open(*state, 4096);
			core_initialize(0, NVME_TCP_DGST_DATA | NVME_TCP_DGST_HEADER);
			len = 0;
			for (uint16_t i = 0; i < 24; i++) {
				static const uint8_t opcodes[] = {
					OP_WRITE, OP_READ, OP_HOLD, OP_WRITE, OP_WRITE_LATER};
				uint8_t opcode = opcodes[i % 5];
				bool inside = opcode != OP_READ && i % 5 != 3;
				struct nvme_tcp_capsule_cmd cmd =
					core_command(opcode, i, 4096, inside);

				len += peer_build_pdu(&core.peer, bytes + len, NVME_TCP_CAPSULE_CMD,
					0, &cmd, sizeof(cmd), inside ? data : NULL,
					inside ? 4096 : 0);
			}
			peer_send(&core.peer, bytes, min_of(cut, len));
			for (uint32_t i = 0; i < cut % 4; i++)
				loop_turn(core.loop);
			if (how == 0)
				shutdown(core.peer.fd, SHUT_WR);
			else if (how == 1)
				shutdown(core.peer.fd, SHUT_RDWR);
			else
				conn_close(&core.conn, "by the target");
			loop_turn(core.loop);
			core_end();
		}
	}
	free(bytes);
}

/* The stream stands still meanwhile, and so does not see the end. */
static void a_host_gone_while_its_command_waits_is_noticed_with_the_buffer(void **state)
{
	uint8_t data[4096] = {0};

	core_open(*state, 0);
	core_initialize(0, 0);
	core_send_command(OP_WRITE_LATER, 1, 4096, data);
	wait_for(core.loop, !list_empty(&core.waiting));
	shutdown(core.peer.fd, SHUT_RDWR);
	for (uint32_t i = 0; i < 10; i++)
		loop_turn(core.loop);
	core_give_buffers();
	wait_for(core.loop, core.conn.transport_quiesced);
	core_end();
}

/* --- listeners ----------------------------------------------------------------------------------
 */

/* Returns a socket of FAMILY for the host, and where it can connect to the listener at TEXT. */
static int listen_at(struct loop *loop, const char *text, int family, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_in6 *address = (struct sockaddr_in6 *)&core.port.address;
	char why[256];

	core_reset(loop);
	address->sin6_family = AF_INET6;
	assert_int_equal(inet_pton(AF_INET6, text, &address->sin6_addr), 1);
	if (transport_tcp_ops.listen(&core.port, why, sizeof(why))) {
		print_message("skipped: %s\n", why);
		skip();
	}
	in.sin_port = in6.sin6_port = address->sin6_port;
	assert_int_not_equal(in.sin_port, 0);
	memset(ret, 0, sizeof(*ret));
	if (family == AF_INET)
		memcpy(ret, &in, sizeof(in));
	else
		memcpy(ret, &in6, sizeof(in6));
	return socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void listener_end(void)
{
	transport_tcp_ops.unlisten(&core.port);
	for (uint32_t i = 0; i < 5; i++)
		loop_turn(core.loop);
	core_end();
}

static void wildcard_listener_takes_hosts_of_both_families(void **state)
{
	static const int families[] = {AF_INET, AF_INET6};

	for (uint32_t i = 0; i < ARRAY_SIZE(families); i++) {
		struct sockaddr_storage to;
		int fd = listen_at(*state, "::", families[i], &to);

		assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
		wait_for(core.loop, core.conn.transport);
		core.peer.loop = core.loop;
		core.peer.fd = fd;
		core.peer.in = malloc(PEER_ROOM * 2);
		core_initialize(0, 0);
		/* What discovery answers is the address the host has used, in its own family. */
		assert_memory_equal(&core.conn.local, &to, sizeof(struct sockaddr_in));
		assert_int_equal(core.conn.peer.ss_family, families[i]);
		listener_end();
	}
}

static void listener_without_descriptors_rests_and_comes_back(void **state)
{
	struct loop_stats before, after;
	struct rlimit limit, none;
	struct sockaddr_storage to;
	int fd = listen_at(*state, "::1", AF_INET6, &to);
	uint64_t start_ns;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = (rlim_t)fd + 1;
	setrlimit(RLIMIT_NOFILE, &none);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	loop_wait(core.loop, 0);
	loop_stats_get(core.loop, &before);
	start_ns = loop_now_ns(core.loop);
	while (loop_now_ns(core.loop) - start_ns < 50000000)
		loop_wait(core.loop, 10000000);
	loop_stats_get(core.loop, &after);
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_null(core.conn.transport);
	assert_true(after.nr_turns - before.nr_turns < 100);
	wait_for(core.loop, core.conn.transport);
	core.peer.fd = fd;
	listener_end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(icresp_offers_legal_limits),
		loop_test(digests_in_use_are_those_asked_and_allowed),
		loop_test(pdus_out_of_sequence_end_the_connection),
		loop_test(icreq_with_illegal_values_is_refused),
		loop_test(host_data_alignment_is_honoured),
		loop_test(malformed_headers_end_the_connection),
		loop_test(wrong_header_digest_ends_the_connection),
		loop_test(termination_request_of_the_host_ends_the_connection),
		loop_test(reads_bring_data_and_a_response),
		loop_test(success_takes_the_place_of_the_response_without_flow_control),
		loop_test(burst_of_reads_costs_one_receive_and_one_transmit),
		loop_test(more_commands_than_the_queue_holds_end_the_connection),
		loop_test(in_capsule_data_arrives_or_is_dropped_in_step),
		loop_test(commands_behind_one_that_waits_are_answered_when_it_gets_a_buffer),
		loop_test(r2t_writes_arrive_in_any_legal_pieces),
		loop_test(h2cdata_beside_its_r2t_is_fatal),
		loop_test(h2cdata_is_not_taken_twice),
		loop_test(h2cdata_before_its_r2t_is_fatal),
		loop_test(command_that_waits_may_be_refused_in_step),
		loop_test(wrong_data_digest_is_the_commands_error_only),
		loop_test(capsule_that_waits_does_not_hold_up_data_of_another),
		loop_test(connections_may_end_at_any_byte_of_a_mix),
		loop_test(a_host_gone_while_its_command_waits_is_noticed_with_the_buffer),
		loop_test(wildcard_listener_takes_hosts_of_both_families),
		loop_test(listener_without_descriptors_rests_and_comes_back),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
