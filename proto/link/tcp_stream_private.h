/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of tcp_stream need of each other.
 */
#ifndef HAUL_LINK_TCP_STREAM_PRIVATE_H
#define HAUL_LINK_TCP_STREAM_PRIVATE_H

#include "proto/link/tcp_stream.h"

/*
 * The longest header with its digest must fit. Larger saves receives of small PDUs (a 4 KiB write
 * is cheaper copied than received by itself), at the price of copying the head of each large one;
 * hence after large data only so much is taken into staging that the next headers are there.
 */
#define TCP_STREAM_STAGING_BYTES 16384u
#define TCP_STREAM_STAGING_LARGE 512u
#define TCP_STREAM_LARGE	 16384u

/* Pages of it that were never used cost nothing: an idle queue touches three. */
struct tcp_stream_buffers {
	struct iovec iov[TCP_STREAM_NR_IOV];
	uint8_t small[TCP_STREAM_SMALL_BYTES];
	uint8_t staging[TCP_STREAM_STAGING_BYTES];
};

void tcp_stream_kick(struct tcp_stream *stream);
void tcp_stream_resume(struct tcp_stream *stream);
void tcp_stream_receive_more(struct tcp_stream *stream);
void tcp_stream_linger_more(struct tcp_stream *stream);
/* Sends what is queued; nothing is out. */
void tcp_stream_transmit(struct tcp_stream *stream);
/* WHY NULL: what ERROR means. */
void tcp_stream_fail(struct tcp_stream *stream, int error, const char *why);
void tcp_stream_stop(struct tcp_stream *stream);

#endif
