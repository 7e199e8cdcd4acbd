/* SPDX-License-Identifier: MIT */
/*
 * The stream by itself, as a controller's end without commands: how it cuts what arrives, where
 * data goes, what it sends, how it ends.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/link/tcp_stream_private.h"
#include "tests/unit/base/engines.h"
#include "tests/unit/tcp/peer.h"

#define EVENTS_MAX 256

enum event { EVENT_HEADER, EVENT_DATA, EVENT_BAD_DATA, EVENT_SENT, EVENT_FAILED, EVENT_CLOSED };

/* An item of the test: a C2HData with the pieces of IOV. */
struct piece {
	struct tcp_item item;
	struct iovec iov[TCP_STREAM_MAX_PIECES];
	uint32_t len;
	bool copied;
};

struct end {
	struct tcp_stream stream;
	struct peer peer;
	enum event events[EVENTS_MAX];
	uint32_t nr_events;
	uint32_t data_len; /* of the last header */
	bool pause;	   /* at the next header with data */
	bool discard;
	struct iovec sink[TCP_STREAM_MAX_PIECES];
	uint32_t sink_len;
	int error;
	char why[128];
	bool destroyed;
};

static void end_event(struct end *end, enum event event)
{
	assert_true(end->nr_events < EVENTS_MAX);
	end->events[end->nr_events++] = event;
}

static void end_received(
	struct tcp_stream *stream, const struct nvme_tcp_pdu *pdu, const void *header)
{
	struct end *end = container_of(stream, struct end, stream);
	const struct nvme_tcp_ch *ch = header;

	assert_int_equal(ch->type, pdu->type);
	end_event(end, EVENT_HEADER);
	end->data_len = pdu->data_len;
	if (!pdu->data_len || end->discard)
		return;
	if (end->pause) {
		end->pause = false;
		tcp_stream_pause(stream);
		return;
	}
	tcp_stream_receive(stream, end->sink, 0, min_of(pdu->data_len, end->sink_len));
}

static void end_data_received(struct tcp_stream *stream, bool intact)
{
	end_event(container_of(stream, struct end, stream), intact ? EVENT_DATA : EVENT_BAD_DATA);
}

static enum tcp_built end_build(struct tcp_stream *stream, struct tcp_item *item)
{
	struct piece *piece = container_of(item, struct piece, item);
	struct nvme_tcp_data *data = tcp_stream_put_header(
		stream, NVME_TCP_C2H_DATA, NVME_TCP_LAST_PDU, sizeof(*data), piece->len);

	memset((char *)data + sizeof(data->ch), 0, sizeof(*data) - sizeof(data->ch));
	tcp_stream_seal_header(data);
	tcp_stream_put_data(stream, piece->iov, 0, piece->len);
	return piece->copied ? TCP_BUILT_COPIED : TCP_BUILT_LENT;
}

static void end_sent(struct tcp_stream *stream, struct tcp_item *item)
{
	(void)item;
	end_event(container_of(stream, struct end, stream), EVENT_SENT);
}

static void end_failed(struct tcp_stream *stream, int error, const char *why)
{
	struct end *end = container_of(stream, struct end, stream);

	end_event(end, EVENT_FAILED);
	end->error = error;
	snprintf(end->why, sizeof(end->why), "%s", why);
	tcp_stream_close(stream);
}

static void end_closed(struct tcp_stream *stream)
{
	end_event(container_of(stream, struct end, stream), EVENT_CLOSED);
}

static const struct tcp_stream_ops end_ops = {
	.received = end_received,
	.data_received = end_data_received,
	.build = end_build,
	.sent = end_sent,
	.failed = end_failed,
	.closed = end_closed,
};

static struct end *end_open(struct loop *loop, int sndbuf)
{
	struct end *end = calloc(1, sizeof(*end));
	int fd;

	assert_non_null(end);
	peer_open(&end->peer, loop, sndbuf, &fd);
	assert_int_equal(tcp_stream_init(&end->stream, loop, fd, true, &end_ops), 0);
	end->stream.rules.initialized = true;
	end->stream.rules.capsule_data_max = 8192;
	end->stream.rules.data_max = 1u << 20;
	tcp_stream_start(&end->stream);
	return end;
}

static void end_digests(struct end *end, bool digests)
{
	end->stream.rules.header_digest = digests;
	end->stream.rules.data_digest = digests;
	end->peer.header_digest = digests;
	end->peer.data_digest = digests;
}

static void end_free(struct end *end)
{
	tcp_stream_close(&end->stream);
	wait_for(end->peer.loop, end->stream.state == TCP_STREAM_CLOSED);
	while (tcp_stream_take(&end->stream))
		;
	tcp_stream_destroy(&end->stream);
	peer_close(&end->peer);
	free(end);
}

static void end_wait_events(struct end *end, uint32_t nr)
{
	uint64_t limit_ns = loop_now_ns(end->peer.loop) + PEER_PATIENCE_NS;

	while (end->nr_events < nr) {
		peer_turn(&end->peer);
		if (loop_now_ns(end->peer.loop) > limit_ns)
			fail_msg("waited in vain for event %u, %u came", nr, end->nr_events);
	}
}

static void end_expect(struct end *end, const enum event *events, uint32_t nr)
{
	end_wait_events(end, nr);
	for (uint32_t i = 0; i < 3; i++)
		loop_turn(end->peer.loop);
	assert_int_equal(end->nr_events, nr);
	assert_memory_equal(end->events, events, nr * sizeof(*events));
	end->nr_events = 0;
}

/* --- receiving ------------------------------------------------------------------------------- */

#define DATA_LEN 96

/* Two commands, one with data, and then one without: the bytes on the wire. */
static size_t build_three(struct end *end, uint8_t *bytes, const uint8_t *data)
{
	struct nvme_tcp_capsule_cmd cmd = {0};
	size_t n = 0;

	n += peer_build_pdu(
		&end->peer, bytes + n, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);
	n += peer_build_pdu(
		&end->peer, bytes + n, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), data, DATA_LEN);
	n += peer_build_pdu(
		&end->peer, bytes + n, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);
	return n;
}

static const enum event three_events[] = {EVENT_HEADER, EVENT_HEADER, EVENT_DATA, EVENT_HEADER};

static void cut_and_check(struct end *end, const uint8_t *bytes, size_t len, const size_t *cuts,
	uint32_t nr_cuts, const uint8_t *data)
{
	uint8_t first[40], second[DATA_LEN];
	size_t at = 0;

	memset(first, 0, sizeof(first));
	memset(second, 0, sizeof(second));
	end->sink[0] = (struct iovec){first, sizeof(first)};
	end->sink[1] = (struct iovec){second, sizeof(second)};
	end->sink_len = DATA_LEN;
	for (uint32_t i = 0; i <= nr_cuts; i++) {
		size_t to = i < nr_cuts ? cuts[i] : len;

		peer_send(&end->peer, bytes + at, to - at);
		for (uint32_t turn = 0; turn < 3; turn++)
			loop_turn(end->peer.loop);
		at = to;
	}
	end_expect(end, three_events, ARRAY_SIZE(three_events));
	assert_memory_equal(first, data, sizeof(first));
	assert_memory_equal(second, data + sizeof(first), DATA_LEN - sizeof(first));
}

static void pdus_may_be_cut_at_each_byte(void **state)
{
	for (uint32_t variant = 0; variant < 4; variant++) {
		struct end *end = end_open(*state, 0);
		uint8_t bytes[1024], data[DATA_LEN];
		size_t len, all[1024];

		end_digests(end, variant & 1);
		end->peer.pda = variant & 2 ? 15 : 0;
		end->stream.rules.pda = end->peer.pda;
		fill_pattern(data, sizeof(data), variant);
		len = build_three(end, bytes, data);
		for (size_t cut = 1; cut < len; cut++)
			cut_and_check(end, bytes, len, &cut, 1, data);
		for (size_t i = 0; i + 1 < len; i++)
			all[i] = i + 1;
		cut_and_check(end, bytes, len, all, (uint32_t)len - 1, data);
		end_free(end);
	}
}

static void data_may_be_paused_and_goes_on_without_more_bytes(void **state)
{
	static const enum event before[] = {EVENT_HEADER, EVENT_HEADER};
	static const enum event after[] = {EVENT_DATA, EVENT_HEADER};
	uint8_t bytes[1024], data[DATA_LEN], sink[DATA_LEN] = {0};

	for (uint32_t with_discard = 0; with_discard < 2; with_discard++) {
		struct end *end = end_open(*state, 0);
		size_t len;

		fill_pattern(data, sizeof(data), 7);
		len = build_three(end, bytes, data);
		end->pause = true;
		peer_send(&end->peer, bytes, len);
		end_expect(end, before, ARRAY_SIZE(before));
		end->sink[0] = (struct iovec){sink, sizeof(sink)};
		if (with_discard)
			tcp_stream_discard(&end->stream);
		else
			tcp_stream_receive(&end->stream, end->sink, 0, DATA_LEN);
		end_expect(end, after, ARRAY_SIZE(after));
		if (!with_discard)
			assert_memory_equal(sink, data, DATA_LEN);
		end_free(end);
	}
}

static void data_nobody_wants_is_dropped_in_step(void **state)
{
	static const uint32_t lens[] = {4, 512, 16384, 100000, 1 << 20};
	uint8_t *data = malloc(1 << 20), *sink = malloc(1 << 20);
	struct end *end = end_open(*state, 0);
	struct nvme_tcp_data header = {0};

	end_digests(end, true);
	fill_pattern(data, 1 << 20, 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(lens); i++) {
		static const enum event events[] = {EVENT_HEADER, EVENT_DATA};

		/* All of it, then all but the first bytes. */
		end->discard = true;
		peer_send_pdu(
			&end->peer, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, lens[i]);
		end_expect(end, events, 2);
		end->discard = false;
		end->sink[0] = (struct iovec){sink, 1 << 20};
		end->sink_len = lens[i] / 2;
		memset(sink, 0xee, 1 << 20);
		peer_send_pdu(
			&end->peer, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, lens[i]);
		end_expect(end, events, 2);
		assert_memory_equal(sink, data, lens[i] / 2);
		assert_int_equal(sink[lens[i] / 2], 0xee);
	}
	end_free(end);
	free(data);
	free(sink);
}

static void data_goes_to_its_pieces_whatever_their_sizes(void **state)
{
	enum { LEN = 300000 };
	uint8_t *data = malloc(LEN), *sink = malloc(LEN);
	uint32_t seed = 3;

	fill_pattern(data, LEN, 2);
	for (uint32_t round = 0; round < 40; round++) {
		struct end *end = end_open(*state, 0);
		struct nvme_tcp_data header = {0};
		static const enum event events[] = {EVENT_HEADER, EVENT_DATA};
		size_t at = 0;

		end_digests(end, round & 1);
		for (uint32_t i = 0; i < TCP_STREAM_MAX_PIECES; i++) {
			size_t len =
				i + 1 < TCP_STREAM_MAX_PIECES ? (seed >> 8) % (LEN / 16) : LEN - at;

			seed = seed * 1103515245 + 12345;
			end->sink[i] = (struct iovec){sink + at, len};
			at += len;
		}
		end->sink_len = LEN;
		memset(sink, 0, LEN);
		peer_send_pdu(&end->peer, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, LEN);
		end_expect(end, events, 2);
		assert_memory_equal(sink, data, LEN);
		end_free(end);
	}
	free(data);
	free(sink);
}

static void wrong_data_digest_is_told_and_the_stream_goes_on(void **state)
{
	static const enum event events[] = {EVENT_HEADER, EVENT_BAD_DATA, EVENT_HEADER, EVENT_DATA};
	static const uint32_t lens[] = {4, 8192, 200000};
	uint8_t *data = malloc(200000), *sink = malloc(200000);
	struct nvme_tcp_data header = {0};

	fill_pattern(data, 200000, 5);
	for (uint32_t i = 0; i < ARRAY_SIZE(lens); i++) {
		struct end *end = end_open(*state, 0);

		end_digests(end, true);
		end->sink[0] = (struct iovec){sink, 200000};
		end->sink_len = lens[i];
		end->peer.wrong_data_digest = true;
		peer_send_pdu(
			&end->peer, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, lens[i]);
		end->peer.wrong_data_digest = false;
		peer_send_pdu(
			&end->peer, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, lens[i]);
		end_expect(end, events, ARRAY_SIZE(events));
		end_free(end);
	}
	free(data);
	free(sink);
}

static void wrong_header_digest_is_told_to_the_peer(void **state)
{
	struct end *end = end_open(*state, 0);
	struct nvme_tcp_capsule_cmd cmd = {0};

	end_digests(end, true);
	end->peer.wrong_header_digest = true;
	peer_send_pdu(&end->peer, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);
	peer_expect_term(&end->peer, NVME_TCP_C2H_TERM_REQ, NVME_TCP_FES_HEADER_DIGEST);
	assert_int_equal(end->error, -EPROTO);
	end_free(end);
}

static uint32_t resident_pages(struct end *end)
{
	unsigned char pages[TCP_STREAM_STAGING_BYTES / 4096];
	uint32_t nr = 0;

	assert_int_equal(mincore(end->stream.buffers->staging, TCP_STREAM_STAGING_BYTES, pages), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(pages); i++)
		nr += pages[i] & 1;
	return nr;
}

/* Sends between a turn's completions and its submission. */
struct late_send {
	struct loop_flush flush;
	struct peer *peer;
	const void *bytes;
	size_t len;
};

static void late_send_flush(struct loop_flush *flush)
{
	struct late_send *late = container_of(flush, struct late_send, flush);

	peer_send(late->peer, late->bytes, late->len);
}

/* The receive that is out has completed, but its completion waits behind more than a turn's budget
 * of others when the timer of the idle stream rings: what it brought must stay. */
static void trimming_leaves_what_a_receive_has_brought(void **state)
{
	const struct loop_options options = {.engine = engines_chosen};
	enum { NR_READS = 700, NR_PDUS = 8, LEN = 8192 };
	struct nvme_tcp_capsule_cmd cmd = {0};
	struct waited *reads = calloc(NR_READS, sizeof(*reads));
	uint8_t *wire = malloc(NR_PDUS * (LEN + 128)), *data = malloc(LEN), *sink = malloc(LEN);
	struct iovec iov = {malloc(4096), 4096};
	struct late_send late;
	struct loop_file file;
	struct loop *loop;
	struct end *end;
	size_t len = 0;
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_file_add(loop, &file, fd, LOOP_FILE_DISK), 0);
	end = end_open(loop, 0);
	end_digests(end, true);
	end->sink[0] = (struct iovec){sink, LEN};
	end->sink_len = LEN;
	fill_pattern(data, LEN, 7);
	for (unsigned i = 0; i < NR_PDUS; i++)
		len += peer_build_pdu(&end->peer, wire + len, NVME_TCP_CAPSULE_CMD, 0, &cmd,
			sizeof(cmd), data, LEN);
	peer_send(&end->peer, wire, len); /* a first burst */
	end_wait_events(end, 2 * NR_PDUS);
	for (unsigned i = 0; i < 10; i++)
		loop_turn(loop);
	end->nr_events = 0;

	/* Five seconds later, told in short. */
	assert_true(end->stream.rx_touched);
	end->stream.rx_bursts = false;
	loop_turn(loop);
	loop_timer_set(loop, &end->stream.timer, loop_now_ns(loop) + 100000000);
	for (unsigned i = 0; i < NR_READS; i++) {
		waited_init(&reads[i]);
		loop_read(loop, &reads[i].op, &file, &iov, 1, 0, LOOP_BUFFER_NONE);
	}
	late = (struct late_send){.peer = &end->peer, .bytes = wire, .len = len};
	loop_flush_init(&late.flush, late_send_flush);
	loop_flush_later(loop, &late.flush);
	loop_turn(loop);
	usleep(150000); /* the timer is due, and 700 reads have completed before the receive */
	for (unsigned i = 0; i < 100; i++)
		loop_turn(loop);
	for (uint32_t i = 0; i < end->nr_events; i++)
		assert_int_equal(end->events[i], i % 2 ? EVENT_DATA : EVENT_HEADER);
	assert_int_equal(end->nr_events, 2 * NR_PDUS);
	end_free(end);
	loop_file_del(loop, &file);
	loop_destroy(loop);
	close(fd);
	free(iov.iov_base);
	free(sink);
	free(data);
	free(wire);
	free(reads);
}

static void memory_of_a_burst_goes_back_when_the_stream_is_idle(void **state)
{
	struct end *end = end_open(*state, 0);
	struct nvme_tcp_capsule_cmd cmd = {0};
	uint8_t data[8192] = {0};

	end->discard = true;
	for (uint32_t i = 0; i < 40; i++)
		peer_send_pdu(
			&end->peer, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), data, sizeof(data));
	end_wait_events(end, 80);
	assert_true(resident_pages(end) > 4);
	assert_true(loop_timer_is_set(&end->stream.timer));
	/* Twice the time, which is brought here: the first finds that there was a burst. */
	for (uint32_t i = 0; i < 2; i++) {
		loop_timer_set(*state, &end->stream.timer, loop_now_ns(*state));
		loop_wait(*state, 0);
	}
	assert_false(loop_timer_is_set(&end->stream.timer));
	/* The receive that was out comes back first. */
	for (uint32_t i = 0; i < 100 && end->stream.rx_trimming; i++)
		loop_turn(*state);
	assert_true(resident_pages(end) <= 1);
	end->nr_events = 0;
	peer_send_pdu(&end->peer, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), data, sizeof(data));
	end_wait_events(end, 2);
	end_free(end);
}

/* --- sending --------------------------------------------------------------------------------- */

static void short_sends_lose_and_repeat_nothing(void **state)
{
	enum { NR = 40, LEN = 30000 };
	struct piece *pieces = calloc(NR, sizeof(*pieces));
	uint8_t *data = malloc(LEN);

	fill_pattern(data, LEN, 9);
	for (uint32_t digests = 0; digests < 2; digests++) {
		struct end *end = end_open(*state, 4096);
		uint32_t nr_sent = 0;

		end_digests(end, digests);
		end->stream.peer_pda = digests ? 7 : 0;
		for (uint32_t i = 0; i < NR; i++) {
			struct piece *piece = &pieces[i];
			size_t at = 0;

			tcp_item_init(&piece->item);
			piece->len = LEN - i;
			for (uint32_t j = 0; j < TCP_STREAM_MAX_PIECES; j++) {
				size_t len = min_of((size_t)(LEN / 15), piece->len - at);

				piece->iov[j] = (struct iovec){data + at, len};
				at += len;
			}
			tcp_stream_send(&end->stream, &piece->item);
		}
		for (uint32_t i = 0; i < NR; i++) {
			struct peer_pdu pdu = peer_expect(&end->peer, NVME_TCP_C2H_DATA);

			assert_int_equal(pdu.data_len, LEN - i);
			assert_memory_equal(pdu.data, data, pdu.data_len);
			assert_int_equal(pdu.ch.pdo % ((end->stream.peer_pda + 1) * 4), 0);
		}
		end_wait_events(end, NR);
		for (uint32_t i = 0; i < end->nr_events; i++)
			nr_sent += end->events[i] == EVENT_SENT;
		assert_int_equal(nr_sent, NR);
		end->nr_events = 0;
		end_free(end);
	}
	free(pieces);
	free(data);
}

static void burst_costs_one_transmit(void **state)
{
	enum { NR = 32 };
	struct end *end = end_open(*state, 0);
	struct piece pieces[NR];
	struct loop_stats before, after;
	uint8_t data[512] = {0};

	peer_turn(&end->peer);
	loop_stats_get(*state, &before);
	for (uint32_t i = 0; i < NR; i++) {
		tcp_item_init(&pieces[i].item);
		pieces[i].iov[0] = (struct iovec){data, sizeof(data)};
		pieces[i].len = sizeof(data);
		pieces[i].copied = false;
		tcp_stream_send(&end->stream, &pieces[i].item);
	}
	for (uint32_t i = 0; i < NR; i++)
		peer_expect(&end->peer, NVME_TCP_C2H_DATA);
	end_wait_events(end, NR);
	loop_stats_get(*state, &after);
	assert_int_equal(after.nr_ops - before.nr_ops, 1);
	end_free(end);
}

/* --- ending ---------------------------------------------------------------------------------- */

static void end_of_the_stream_is_told_once(void **state)
{
	static const enum event events[] = {EVENT_FAILED, EVENT_CLOSED};
	struct end *end = end_open(*state, 0);

	shutdown(end->peer.fd, SHUT_WR);
	end_expect(end, events, ARRAY_SIZE(events));
	assert_int_equal(end->error, 0);
	peer_expect_eof(&end->peer);
	end_free(end);
}

/* Turns until all that was sent has been taken; then lets NS pass, as far as patience with a PDU
 * knows. */
static void end_let_pass(struct end *end, uint64_t ns)
{
	struct loop *loop = end->peer.loop;

	for (unsigned i = 0; i < 20; i++)
		loop_turn(loop);
	end->stream.rx_since_ns -= ns;
	if (loop_timer_is_set(&end->stream.rx_timer))
		loop_timer_set(loop, &end->stream.rx_timer, loop_now_ns(loop));
	for (unsigned i = 0; i < 20; i++)
		loop_turn(loop);
}

static void a_pdu_that_stops_midway_ends_the_stream(void **state)
{
	enum { LEN = 4096, HEADER = sizeof(struct nvme_tcp_capsule_cmd) + NVME_TCP_DIGEST_SIZE };
	static const struct {
		size_t sent; /* bytes of the PDU; 0: all */
		bool discard, pause, fails;
	} cases[] = {
		{1, false, false, true},
		{sizeof(struct nvme_tcp_ch), false, false, true},
		{HEADER, false, false, true},
		{HEADER, true, false, true},
		{HEADER, false, true, false}, /* the owner's own doing */
		{HEADER + 100, false, false, true},
		{HEADER + 100, true, false, true},
		{HEADER + LEN, true, false, true}, /* the digest is missing */
		{0, false, false, false},
		{0, true, false, false},
	};
	static uint8_t data[LEN], sink[LEN], wire[LEN + 256];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_tcp_capsule_cmd cmd = {0};
		struct end *end = end_open(*state, 0);
		size_t len;

		end_digests(end, true);
		end->discard = cases[i].discard;
		end->pause = cases[i].pause;
		end->sink[0] = (struct iovec){sink, LEN};
		end->sink_len = LEN;
		len = peer_build_pdu(
			&end->peer, wire, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), data, LEN);
		peer_send(&end->peer, wire, cases[i].sent ? cases[i].sent : len);
		end_let_pass(end, TCP_STREAM_PDU_NS / 2);
		assert_int_equal(end->stream.state, TCP_STREAM_OPEN);
		end_let_pass(end, TCP_STREAM_PDU_NS / 2 + 1);
		assert_int_equal(end->stream.state != TCP_STREAM_OPEN, cases[i].fails);
		if (cases[i].fails)
			assert_int_equal(end->error, -ETIMEDOUT);
		end_free(end);
	}
}

static void a_pdu_that_comes_slowly_is_waited_for(void **state)
{
	struct nvme_tcp_capsule_cmd cmd = {0};
	struct end *end = end_open(*state, 0);
	uint8_t wire[256];
	size_t len = peer_build_pdu(
		&end->peer, wire, NVME_TCP_CAPSULE_CMD, 0, &cmd, sizeof(cmd), NULL, 0);

	for (size_t i = 0; i < len; i++) {
		end_let_pass(end, TCP_STREAM_PDU_NS / 4 * 3);
		peer_send(&end->peer, wire + i, 1);
	}
	end_wait_events(end, 1);
	assert_int_equal(end->events[0], EVENT_HEADER);
	end_free(end);
}

static void closing_while_data_and_batch_are_on_their_way(void **state)
{
	uint8_t *data = calloc(1, 1 << 20);
	struct nvme_tcp_data header = {0};
	struct end *end = end_open(*state, 4096);
	struct piece pieces[2] = {0};
	uint8_t bytes[128];
	size_t n;

	n = peer_build_pdu(
		&end->peer, bytes, NVME_TCP_H2C_DATA, 0, &header, sizeof(header), data, 64);
	((struct nvme_tcp_ch *)bytes)->plen = le32(24 + 100000);
	end->sink[0] = (struct iovec){data, 1 << 20};
	end->sink_len = 100000;
	peer_send(&end->peer, bytes, n);
	end_wait_events(end, 1);
	for (uint32_t i = 0; i < 2; i++) {
		tcp_item_init(&pieces[i].item);
		pieces[i].iov[0] = (struct iovec){data, 1 << 20};
		pieces[i].len = 1 << 20;
		tcp_stream_send(&end->stream, &pieces[i].item);
	}
	loop_turn(*state);
	loop_turn(*state);
	tcp_stream_close(&end->stream);
	tcp_stream_close(&end->stream);
	wait_for(end->peer.loop, end->stream.state == TCP_STREAM_CLOSED);
	assert_ptr_equal(tcp_stream_take(&end->stream), &pieces[0].item);
	assert_ptr_equal(tcp_stream_take(&end->stream), &pieces[1].item);
	assert_null(tcp_stream_take(&end->stream));
	end_free(end);
	free(data);
}

/* A peer that neither reads nor closes cannot hold a terminated stream for ever. */
static void termination_request_is_waited_for_with_a_deadline(void **state)
{
	struct end *end = end_open(*state, 4096);
	struct piece piece = {0};
	uint8_t *data = calloc(1, 1 << 20);
	uint8_t bad[8] = {0xff};
	uint64_t start_ns;

	tcp_item_init(&piece.item);
	piece.iov[0] = (struct iovec){data, 1 << 20};
	piece.len = 1 << 20;
	tcp_stream_send(&end->stream, &piece.item);
	loop_turn(*state);
	assert_int_equal(send(end->peer.fd, bad, sizeof(bad), 0), sizeof(bad));
	wait_for(end->peer.loop, end->stream.state == TCP_STREAM_LINGERING);
	start_ns = loop_now_ns(*state);
	wait_for(end->peer.loop, end->stream.state == TCP_STREAM_CLOSED);
	assert_in_range(
		loop_now_ns(*state) - start_ns, TCP_STREAM_LINGER_NS / 2, TCP_STREAM_LINGER_NS * 3);
	end_free(end);
	free(data);
}

static void termination_request_follows_the_batch_whole(void **state)
{
	struct end *end = end_open(*state, 4096);
	struct piece pieces[3] = {0};
	uint8_t *data = calloc(1, 100000);
	struct peer_pdu pdu;
	uint8_t bad[8] = {NVME_TCP_CAPSULE_CMD, 0, 71};

	for (uint32_t i = 0; i < 3; i++) {
		tcp_item_init(&pieces[i].item);
		pieces[i].iov[0] = (struct iovec){data, 100000};
		pieces[i].len = 100000;
	}
	tcp_stream_send(&end->stream, &pieces[0].item);
	loop_turn(*state);
	tcp_stream_send(&end->stream, &pieces[1].item);
	tcp_stream_send(&end->stream, &pieces[2].item);
	peer_send(&end->peer, bad, sizeof(bad));
	wait_for(end->peer.loop, end->nr_events && end->error == -EPROTO);
	pdu = peer_expect(&end->peer, NVME_TCP_C2H_DATA);
	assert_int_equal(pdu.data_len, 100000);
	assert_int_equal(peer_expect_term(&end->peer, NVME_TCP_C2H_TERM_REQ,
				 NVME_TCP_FES_INVALID_HEADER_FIELD),
		offsetof(struct nvme_tcp_ch, hlen));
	end_free(end);
	free(data);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(pdus_may_be_cut_at_each_byte),
		loop_test(data_may_be_paused_and_goes_on_without_more_bytes),
		loop_test(data_nobody_wants_is_dropped_in_step),
		loop_test(data_goes_to_its_pieces_whatever_their_sizes),
		loop_test(wrong_data_digest_is_told_and_the_stream_goes_on),
		loop_test(wrong_header_digest_is_told_to_the_peer),
		loop_test(trimming_leaves_what_a_receive_has_brought),
		loop_test(memory_of_a_burst_goes_back_when_the_stream_is_idle),
		loop_test(short_sends_lose_and_repeat_nothing),
		loop_test(burst_costs_one_transmit),
		loop_test(end_of_the_stream_is_told_once),
		loop_test(a_pdu_that_stops_midway_ends_the_stream),
		loop_test(a_pdu_that_comes_slowly_is_waited_for),
		loop_test(closing_while_data_and_batch_are_on_their_way),
		loop_test(termination_request_is_waited_for_with_a_deadline),
		loop_test(termination_request_follows_the_batch_whole),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
