/* SPDX-License-Identifier: MIT */
/*
 * The life of a stream of PDUs: socket, failure, termination, the end. See tcp_stream_rx.c and
 * tcp_stream_tx.c for its two halves.
 */
#include "proto/link/tcp_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/link/tcp_stream_private.h"

#define TCP_STREAM_NR_TIMERS 2u /* timer and rx_timer */

static void tcp_stream_close_socket(struct tcp_stream *stream)
{
	int fd = stream->file.fd;

	loop_file_del(stream->loop, &stream->file);
	close(fd);
}

/* End of the turn: what was put off until now. */
static void tcp_stream_flush(struct loop_flush *flush)
{
	struct tcp_stream *stream = container_of(flush, struct tcp_stream, flush);

	if (stream->state == TCP_STREAM_OPEN && !stream->rx_out && stream->started)
		tcp_stream_parse(stream);
	if (!stream->tx_out)
		tcp_stream_transmit(stream);
	if (stream->state != TCP_STREAM_CLOSING || stream->rx_out || stream->tx_out)
		return;
	stream->state = TCP_STREAM_CLOSED;
	loop_timer_cancel(stream->loop, &stream->timer);
	loop_timer_cancel(stream->loop, &stream->rx_timer);
	tcp_stream_close_socket(stream);
	stream->ops->closed(stream);
}

void tcp_stream_kick(struct tcp_stream *stream)
{
	loop_flush_later(stream->loop, &stream->flush);
}

static void tcp_stream_expired(struct loop_timer *timer)
{
	struct tcp_stream *stream = container_of(timer, struct tcp_stream, timer);

	if (stream->state == TCP_STREAM_OPEN)
		tcp_stream_trim(stream);
	else if (stream->state == TCP_STREAM_LINGERING)
		tcp_stream_stop(stream);
}

int tcp_stream_init(struct tcp_stream *stream, struct loop *loop, int fd, bool to_ctrl,
	const struct tcp_stream_ops *ops)
{
	int ret = -ENOMEM;

	memset(stream, 0, sizeof(*stream));
	stream->loop = loop;
	stream->ops = ops;
	stream->rules.to_ctrl = to_ctrl;
	loop_flush_init(&stream->flush, tcp_stream_flush);
	loop_timer_init(&stream->timer, tcp_stream_expired);
	loop_timer_init(&stream->rx_timer, tcp_stream_rest_expired);
	list_init(&stream->tx_queue);
	list_init(&stream->tx_lent);
	stream->buffers =
		aligned_alloc(_Alignof(struct tcp_stream_buffers), sizeof(*stream->buffers));
	if (!stream->buffers)
		goto close_fd;
	ret = loop_timers_reserve(loop, TCP_STREAM_NR_TIMERS);
	if (ret)
		goto free_buffers;
	ret = loop_file_add(loop, &stream->file, fd, LOOP_FILE_SOCKET);
	if (ret)
		goto unreserve_timers;
	return 0;

unreserve_timers:
	loop_timers_unreserve(loop, TCP_STREAM_NR_TIMERS);
free_buffers:
	free(stream->buffers);
close_fd:
	close(fd);
	return ret;
}

void tcp_stream_start(struct tcp_stream *stream)
{
	stream->started = true;
	tcp_stream_kick(stream);
}

void tcp_stream_initialized(struct tcp_stream *stream, uint8_t dgst, uint8_t peer_pda)
{
	stream->rules.header_digest = dgst & NVME_TCP_DGST_HEADER;
	stream->rules.data_digest = dgst & NVME_TCP_DGST_DATA;
	stream->rules.initialized = true;
	stream->peer_pda = peer_pda;
}

void tcp_stream_destroy(struct tcp_stream *stream)
{
	assert(!stream->rx_out && !stream->tx_out);
	loop_flush_cancel(&stream->flush);
	if (stream->state != TCP_STREAM_CLOSED)
		tcp_stream_close_socket(stream);
	loop_timers_unreserve(stream->loop, TCP_STREAM_NR_TIMERS);
	free(stream->buffers);
}

const char *tcp_stream_fes_text(uint16_t fes)
{
	switch (fes) {
	case NVME_TCP_FES_INVALID_HEADER_FIELD:
		return "Invalid PDU Header Field";
	case NVME_TCP_FES_SEQUENCE:
		return "PDU Sequence Error";
	case NVME_TCP_FES_HEADER_DIGEST:
		return "Header Digest Error";
	case NVME_TCP_FES_OUT_OF_RANGE:
		return "Data Transfer Out of Range";
	case NVME_TCP_FES_LIMIT_EXCEEDED:
		return "Data Transfer Limit Exceeded";
	case NVME_TCP_FES_UNSUPPORTED_PARAMETER:
		return "Unsupported Parameter";
	default:
		return "unknown reason";
	}
}

void tcp_stream_fail(struct tcp_stream *stream, int error, const char *why)
{
	if (stream->state != TCP_STREAM_OPEN)
		return;
	stream->state = TCP_STREAM_FAILED;
	if (!why)
		why = error ? strerror(-error) : "the peer has closed the connection";
	stream->ops->failed(stream, error, why);
}

void tcp_stream_terminate(struct tcp_stream *stream, uint16_t fes, size_t fei, const void *header,
	size_t header_len, const char *why)
{
	char text[128];

	if (stream->state != TCP_STREAM_OPEN)
		return;
	stream->fatal = (struct nvme_tcp_fatal){.fes = fes, .fei = (uint32_t)fei};
	stream->fatal_header_len = (uint8_t)min_of(header_len, (size_t)NVME_TCP_TERM_DATA_MAX);
	memcpy(stream->fatal_header, header, stream->fatal_header_len);
	stream->term_wanted = true;
	if (why)
		snprintf(text, sizeof(text), "%s: %s", tcp_stream_fes_text(fes), why);
	else
		snprintf(
			text, sizeof(text), "%s (%u)", tcp_stream_fes_text(fes), stream->fatal.fei);
	tcp_stream_fail(stream, -EPROTO, text);
}

/*
 * Everything that is out comes back now. A cancellation alone can miss a receive or transmit that
 * io_uring is just about to try again; that finds the socket shut down.
 */
void tcp_stream_stop(struct tcp_stream *stream)
{
	stream->state = TCP_STREAM_CLOSING;
	if (stream->rx_out || stream->tx_out)
		(void)shutdown(stream->file.fd, SHUT_RDWR);
	if (stream->rx_out)
		loop_cancel(stream->loop, &stream->rx_op);
	if (stream->tx_out)
		loop_cancel(stream->loop, &stream->tx_op);
	tcp_stream_kick(stream);
}

/* The peer may still send: unless it is read, closing resets the connection, and that can overtake
 * and destroy the termination request. */
void tcp_stream_linger_more(struct tcp_stream *stream)
{
	stream->rx_begin = 0;
	stream->rx_end = 0;
	stream->data_left = 0;
	tcp_stream_receive_more(stream);
}

void tcp_stream_close(struct tcp_stream *stream)
{
	if (stream->state != TCP_STREAM_OPEN && stream->state != TCP_STREAM_FAILED)
		return;
	if (!stream->term_wanted) {
		tcp_stream_stop(stream);
		return;
	}
	stream->state = TCP_STREAM_LINGERING;
	loop_timer_set(
		stream->loop, &stream->timer, loop_now_ns(stream->loop) + TCP_STREAM_LINGER_NS);
	if (!stream->rx_out)
		tcp_stream_linger_more(stream);
	tcp_stream_kick(stream);
}
