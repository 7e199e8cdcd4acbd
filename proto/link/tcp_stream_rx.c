/* SPDX-License-Identifier: MIT */
/*
 * The receiving half of a stream of PDUs.
 *
 * All receives end in a staging area; when the data of a PDU is due, the rest of its destination is
 * put before it, so that one receive brings the end of this data and the PDUs behind it. What has
 * come into staging with a header is copied, the rest is not.
 */
#include "proto/link/tcp_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/link/tcp_stream_private.h"
#include "proto/nvme/crc32c.h"

static void tcp_stream_receive_done(struct done *done, int res, unsigned flags);

/* --- where data goes ------------------------------------------------------------------------- */

/* N bytes are in the sink. */
static void tcp_stream_sink_advance(struct tcp_stream *stream, uint32_t n)
{
	stream->sink_left -= n;
	stream->data_left -= n;
	while (n) {
		uint32_t piece = (uint32_t)min_of(stream->sink->iov_len - stream->sink_done, n);

		if (stream->pdu.data_digest)
			stream->rx_crc = nvme_crc32c(stream->rx_crc,
				(const uint8_t *)stream->sink->iov_base + stream->sink_done, piece);
		stream->sink_done += piece;
		n -= piece;
		if (stream->sink_done == stream->sink->iov_len) {
			stream->sink++;
			stream->sink_done = 0;
		}
	}
}

static void tcp_stream_copy_to_sink(struct tcp_stream *stream, const uint8_t *from, uint32_t n)
{
	const struct iovec *sink = stream->sink;
	size_t done = stream->sink_done;
	uint32_t copied = 0;

	while (copied < n) {
		size_t piece = min_of(sink->iov_len - done, (size_t)(n - copied));

		memcpy((uint8_t *)sink->iov_base + done, from + copied, piece);
		copied += (uint32_t)piece;
		sink++;
		done = 0;
	}
	tcp_stream_sink_advance(stream, n);
}

/* N bytes at FROM are dropped, but the digest covers them. */
static void tcp_stream_drop(struct tcp_stream *stream, const uint8_t *from, uint32_t n)
{
	if (stream->pdu.data_digest)
		stream->rx_crc = nvme_crc32c(stream->rx_crc, from, n);
	stream->data_left -= n;
}

static void tcp_stream_resume(struct tcp_stream *stream)
{
	if (!stream->rx_paused)
		return;
	stream->rx_paused = false;
	if (!stream->rx_parsing)
		tcp_stream_kick(stream);
}

void tcp_stream_receive(
	struct tcp_stream *stream, const struct iovec *iov, size_t skip, uint32_t len)
{
	assert(stream->data_left && len <= stream->data_left);
	while (len && skip >= iov->iov_len) {
		skip -= iov->iov_len;
		iov++;
	}
	stream->sink = iov;
	stream->sink_done = skip;
	stream->sink_left = len;
	tcp_stream_resume(stream);
}

void tcp_stream_discard(struct tcp_stream *stream)
{
	stream->sink_left = 0;
	tcp_stream_resume(stream);
}

void tcp_stream_pause(struct tcp_stream *stream)
{
	assert(stream->rx_parsing && stream->data_left);
	stream->rx_paused = true;
}

/* --- cutting --------------------------------------------------------------------------------- */

static uint32_t tcp_stream_staged(const struct tcp_stream *stream)
{
	return stream->rx_end - stream->rx_begin;
}

static bool tcp_stream_header_is_intact(const struct nvme_tcp_ch *ch,
	const struct nvme_tcp_pdu *pdu, struct nvme_tcp_fatal *ret_fatal)
{
	uint32_t computed;
	le32_t received;

	if (!pdu->header_digest)
		return true;
	computed = nvme_crc32c(0, ch, pdu->header_len);
	memcpy(&received, (const uint8_t *)ch + pdu->header_len, sizeof(received));
	if (computed == le32_get(received))
		return true;
	ret_fatal->fes = NVME_TCP_FES_HEADER_DIGEST;
	ret_fatal->fei = le32_get(received);
	return false;
}

/* Takes one header out of staging; false: it is not all here, or the stream has failed. */
static bool tcp_stream_cut_header(struct tcp_stream *stream)
{
	const struct nvme_tcp_ch *ch =
		(const struct nvme_tcp_ch *)(stream->buffers->staging + stream->rx_begin);
	uint32_t staged = tcp_stream_staged(stream), need;
	struct nvme_tcp_fatal fatal;
	struct nvme_tcp_pdu pdu;

	if (staged < sizeof(*ch))
		return false;
	if (nvme_tcp_pdu_check(&stream->rules, ch, &pdu, &fatal)) {
		tcp_stream_terminate(stream, fatal.fes, fatal.fei, ch, staged, NULL);
		return false;
	}
	need = pdu.header_len + (pdu.header_digest ? NVME_TCP_DIGEST_SIZE : 0);
	if (staged < need)
		return false;
	if (!tcp_stream_header_is_intact(ch, &pdu, &fatal)) {
		tcp_stream_terminate(stream, fatal.fes, fatal.fei, ch, pdu.header_len, NULL);
		return false;
	}
	stream->rx_begin += need;
	stream->pdu = pdu;
	stream->pad_left = pdu.data_offset - need;
	stream->data_left = pdu.data_len;
	stream->sink_left = 0;
	stream->rx_crc = 0;
	if (pdu.data_len)
		stream->rx_large = pdu.data_len >= TCP_STREAM_LARGE;
	stream->ops->received(stream, &pdu, ch);
	return true;
}

/* One step through the data of the PDU at hand; false: more has to come. */
static bool tcp_stream_cut_data(struct tcp_stream *stream)
{
	const uint8_t *from = stream->buffers->staging + stream->rx_begin;
	uint32_t n = tcp_stream_staged(stream);

	if (!n)
		return false;
	if (stream->pad_left) {
		n = min_of(n, stream->pad_left);
		stream->pad_left -= n;
	} else if (stream->sink_left) {
		n = min_of(n, stream->sink_left);
		tcp_stream_copy_to_sink(stream, from, n);
	} else {
		n = min_of(n, stream->data_left);
		tcp_stream_drop(stream, from, n);
	}
	stream->rx_begin += n;
	return true;
}

/* All data has passed; false: its digest has not. */
static bool tcp_stream_cut_data_digest(struct tcp_stream *stream)
{
	bool intact = true;
	le32_t received;

	if (stream->pdu.data_digest) {
		if (tcp_stream_staged(stream) < sizeof(received))
			return false;
		memcpy(&received, stream->buffers->staging + stream->rx_begin, sizeof(received));
		stream->rx_begin += sizeof(received);
		intact = le32_get(received) == stream->rx_crc;
	}
	stream->pdu.data_len = 0;
	stream->ops->data_received(stream, intact);
	return true;
}

static bool tcp_stream_cut(struct tcp_stream *stream)
{
	if (!stream->pdu.data_len)
		return tcp_stream_cut_header(stream);
	if (stream->data_left)
		return tcp_stream_cut_data(stream);
	return tcp_stream_cut_data_digest(stream);
}

void tcp_stream_parse(struct tcp_stream *stream)
{
	stream->rx_parsing = true;
	while (stream->state == TCP_STREAM_OPEN && !stream->rx_paused && tcp_stream_cut(stream))
		;
	stream->rx_parsing = false;
	if (stream->state == TCP_STREAM_OPEN && !stream->rx_paused)
		tcp_stream_receive_more(stream);
}

/* --- the socket ------------------------------------------------------------------------------ */

/* What is left of the sink, as far as it can be received straight into; returns the pieces. */
static uint32_t tcp_stream_direct(struct tcp_stream *stream)
{
	const struct iovec *sink = stream->sink;
	size_t done = stream->sink_done;
	uint32_t left = stream->sink_left, nr = 0;

	stream->rx_direct = 0;
	if (!stream->data_left || stream->pad_left)
		return 0;
	while (left) {
		uint32_t piece = (uint32_t)min_of(sink->iov_len - done, (size_t)left);

		assert(nr < TCP_STREAM_MAX_PIECES);
		stream->rx_iov[nr].iov_base = (uint8_t *)sink->iov_base + done;
		stream->rx_iov[nr++].iov_len = piece;
		left -= piece;
		sink++;
		done = 0;
	}
	stream->rx_direct = stream->sink_left;
	return nr;
}

static bool tcp_stream_pdu_has_begun(const struct tcp_stream *stream)
{
	return tcp_stream_staged(stream) || stream->pdu.data_len;
}

/* The timer is not moved at each receive: late is good enough. */
static void tcp_stream_expect_rest(struct tcp_stream *stream)
{
	stream->rx_since_ns = loop_now_ns(stream->loop);
	if (!loop_timer_is_set(&stream->rx_timer))
		loop_timer_set(
			stream->loop, &stream->rx_timer, stream->rx_since_ns + TCP_STREAM_PDU_NS);
}

/* Between PDUs, and while its own owner holds it up, a stream may be silent for ever. */
void tcp_stream_rest_expired(struct loop_timer *timer)
{
	struct tcp_stream *stream = container_of(timer, struct tcp_stream, rx_timer);
	uint64_t deadline_ns = stream->rx_since_ns + TCP_STREAM_PDU_NS;

	if (!stream->rx_out || !tcp_stream_pdu_has_begun(stream))
		return;
	if (deadline_ns > loop_now_ns(stream->loop))
		loop_timer_set(stream->loop, timer, deadline_ns);
	else
		tcp_stream_fail(
			stream, -ETIMEDOUT, "the peer does not send the rest of what it has begun");
}

void tcp_stream_receive_more(struct tcp_stream *stream)
{
	uint8_t *staging = stream->buffers->staging;
	uint32_t staged = tcp_stream_staged(stream), room, nr;

	assert(!stream->rx_out);
	if (staged && stream->rx_begin)
		memmove(staging, staging + stream->rx_begin, staged);
	stream->rx_begin = 0;
	stream->rx_end = staged;
	if (tcp_stream_pdu_has_begun(stream))
		tcp_stream_expect_rest(stream);
	nr = tcp_stream_direct(stream);
	room = TCP_STREAM_STAGING_BYTES - staged;
	if (stream->rx_large)
		room = min_of(room, TCP_STREAM_STAGING_LARGE);
	stream->rx_iov[nr].iov_base = staging + staged;
	stream->rx_iov[nr++].iov_len = room;
	stream->rx_out = true;
	stream->rx_op.done.fn = tcp_stream_receive_done;
	loop_receive(stream->loop, &stream->rx_op, &stream->file, stream->rx_iov, nr);
}

static void tcp_stream_trim_later(struct tcp_stream *stream)
{
	loop_timer_set(
		stream->loop, &stream->timer, loop_now_ns(stream->loop) + TCP_STREAM_IDLE_NS);
}

static void tcp_stream_note_burst(struct tcp_stream *stream)
{
	stream->rx_bursts = true;
	if (stream->rx_touched)
		return;
	stream->rx_touched = true;
	tcp_stream_trim_later(stream);
}

/* Memory goes back only while no receive is out: the kernel may have filled staging already, with
 * the completion on its way. So the receive is called back first. */
void tcp_stream_trim(struct tcp_stream *stream)
{
	if (stream->rx_bursts || tcp_stream_staged(stream) || !stream->rx_out) {
		stream->rx_bursts = false;
		tcp_stream_trim_later(stream);
		return;
	}
	stream->rx_trimming = true;
	loop_cancel(stream->loop, &stream->rx_op);
}

/* The receive that was called back has ended with RES; whether it brought nothing. */
static bool tcp_stream_trimmed(struct tcp_stream *stream, int res)
{
	if (!stream->rx_trimming)
		return false;
	stream->rx_trimming = false;
	if (res != -ECANCELED) {
		tcp_stream_trim_later(stream);
		return false;
	}
	stream->rx_touched = false;
	(void)madvise(stream->buffers->staging + TCP_STREAM_STAGING_KEEP,
		TCP_STREAM_STAGING_BYTES - TCP_STREAM_STAGING_KEEP, MADV_DONTNEED);
	return true;
}

static void tcp_stream_receive_done(struct done *done, int res, unsigned flags)
{
	struct tcp_stream *stream = container_of(done, struct tcp_stream, rx_op.done);
	uint32_t direct;

	(void)flags;
	stream->rx_out = false;
	if (stream->state == TCP_STREAM_LINGERING && res > 0) {
		tcp_stream_linger_more(stream);
		return;
	}
	if (stream->state != TCP_STREAM_OPEN) {
		if (stream->state != TCP_STREAM_FAILED)
			tcp_stream_stop(stream);
		return;
	}
	if (tcp_stream_trimmed(stream, res)) {
		tcp_stream_receive_more(stream);
		return;
	}
	if (res <= 0) {
		tcp_stream_fail(stream, res, NULL);
		return;
	}
	direct = min_of((uint32_t)res, stream->rx_direct);
	if (direct)
		tcp_stream_sink_advance(stream, direct);
	stream->rx_end += (uint32_t)res - direct;
	if (stream->rx_end > TCP_STREAM_STAGING_KEEP)
		tcp_stream_note_burst(stream);
	tcp_stream_parse(stream);
}
