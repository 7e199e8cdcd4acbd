/* SPDX-License-Identifier: MIT */
/*
 * What a stream's life and its two halves need of each other.
 */
#ifndef HAUL_LINK_TCP_STREAM_PRIVATE_H
#define HAUL_LINK_TCP_STREAM_PRIVATE_H

#include "proto/link/tcp_stream.h"

/*
 * A burst of 32 commands of 4 KiB data is taken with one receive: that is dearer than copying them
 * once more. (Target's CPU time per 4 KiB write at depth 32: 3.6 us with 16 KiB, 1.8 us with this.)
 * The price is copying the head of large data; hence after such only so much is taken into staging
 * that the next headers are there.
 */
#define TCP_STREAM_STAGING_BYTES 131072u
#define TCP_STREAM_STAGING_LARGE 512u
#define TCP_STREAM_LARGE	 16384u

/* What a burst has touched of staging goes back to the system when there was none for so long. */
#define TCP_STREAM_STAGING_KEEP 4096u
#define TCP_STREAM_IDLE_NS	5000000000ull

/* Pages of it that were never used cost nothing: an idle queue touches three. */
struct tcp_stream_buffers {
	_Alignas(TCP_STREAM_STAGING_KEEP) uint8_t staging[TCP_STREAM_STAGING_BYTES];
	struct iovec iov[TCP_STREAM_NR_IOV];
	uint8_t small[TCP_STREAM_SMALL_BYTES];
};

/* --- tcp_stream.c */
/* Its flush runs at the end of this turn. */
void tcp_stream_kick(struct tcp_stream *stream);
/* What a stream receives that only waits for its peer to hang up. */
void tcp_stream_linger_more(struct tcp_stream *stream);
/* WHY NULL: what ERROR means. */
void tcp_stream_fail(struct tcp_stream *stream, int error, const char *why);
/* Everything that is out comes back; then it is closed. */
void tcp_stream_stop(struct tcp_stream *stream);

/* --- tcp_stream_rx.c */
/* Cuts PDUs until there is no whole one, then receives more. No receive is out. */
void tcp_stream_parse(struct tcp_stream *stream);
void tcp_stream_receive_more(struct tcp_stream *stream);
/* Gives back what a burst has touched of staging, if none has come since. */
void tcp_stream_trim(struct tcp_stream *stream);
/* The timer of the rest of what the peer has begun. */
void tcp_stream_rest_expired(struct loop_timer *timer);

/* --- tcp_stream_tx.c */
/* Sends what is queued; nothing is out. */
void tcp_stream_transmit(struct tcp_stream *stream);

#endif
