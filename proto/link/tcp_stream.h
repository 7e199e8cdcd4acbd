/* SPDX-License-Identifier: MIT */
/*
 * A stream of NVMe/TCP PDUs over one socket, the same for both sides: it cuts what arrives into
 * checked headers and data, makes and verifies digests, and gathers what is to be sent into one
 * transmit per turn. One receive and one transmit are out at a time. It knows no command and no
 * queue.
 *
 * It lives on its loop's thread. Events come from the loop, or from inside tcp_stream_terminate()
 * (FAILED only). It ends with tcp_stream_close() -> CLOSED, before which its memory, the memory
 * that data is received into and items that were sent must stay.
 */
#ifndef HAUL_LINK_TCP_STREAM_H
#define HAUL_LINK_TCP_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "proto/nvme/tcp.h"

struct tcp_stream;

/* Something to be sent; embedded in what sends. It may stand for several PDUs. */
struct tcp_item {
	struct list node; /* the stream's queue, or its list of what is on its way; else empty */
};

enum tcp_built {
	TCP_BUILT_COPIED, /* the stream has all it needs: the item is free again */
	TCP_BUILT_LENT,	  /* the item and memory it named are the stream's until SENT */
};

struct tcp_stream_ops {
	/* The stream works from now on in the sense of PDUs; HEADER's form has been checked (and
	 * its digest). It is valid until this returns. When PDU->data_len is not 0 the data is
	 * discarded unless tcp_stream_receive() or tcp_stream_pause() is called in here. */
	void (*received)(
		struct tcp_stream *stream, const struct nvme_tcp_pdu *pdu, const void *header);
	/* The data of that PDU has passed; INTACT is false when its digest was wrong. */
	void (*data_received)(struct tcp_stream *stream, bool intact);
	/* Put ITEM's PDUs into the batch with the tcp_stream_put functions. There is room for
	 * TCP_STREAM_ITEM_SMALL bytes and TCP_STREAM_ITEM_IOVS pieces of data. */
	enum tcp_built (*build)(struct tcp_stream *stream, struct tcp_item *item);
	void (*sent)(struct tcp_stream *stream, struct tcp_item *item);
	/* The stream is of no use any more: close it. ERROR is 0 at the regular end of the stream,
	 * -EPROTO for a mistake of the peer (it will be told at close), else what the socket said.
	 * WHY says it in words and is valid until this returns. At most once; not after close. */
	void (*failed)(struct tcp_stream *stream, int error, const char *why);
	/* Nothing is out any more and the descriptor is closed. Items not sent can be taken with
	 * tcp_stream_take(). The stream may be destroyed and freed in here. */
	void (*closed)(struct tcp_stream *stream);
};

enum tcp_stream_state {
	TCP_STREAM_OPEN,
	TCP_STREAM_FAILED,    /* waits for tcp_stream_close() */
	TCP_STREAM_LINGERING, /* a termination request leaves; then until the peer closes */
	TCP_STREAM_CLOSING,   /* operations are on their way back */
	TCP_STREAM_CLOSED,
};

/* One batch takes a burst of 56 read commands or 42 read responses with their data headers. More
 * than half a MiB at once would only keep buffers from being used again. */
#define TCP_STREAM_SMALL_BYTES 8192
#define TCP_STREAM_NR_IOV      128
#define TCP_STREAM_BATCH_BYTES (512u << 10)

#define TCP_STREAM_MAX_PIECES \
	16 /* of the memory that one PDU's data is received into or sent from */
#define TCP_STREAM_ITEM_SMALL 512
#define TCP_STREAM_ITEM_IOVS  (TCP_STREAM_MAX_PIECES + 3)

/* A termination request has this long to leave and to be answered by the end of the stream. */
#define TCP_STREAM_LINGER_NS 1000000000ull

/* Of a PDU that has begun something must come in this time; then the stream has failed. */
#define TCP_STREAM_PDU_NS 30000000000ull

struct tcp_stream_buffers;

struct tcp_stream {
	struct loop *loop;
	const struct tcp_stream_ops *ops;
	struct loop_file file;
	enum tcp_stream_state state;
	bool started;
	struct nvme_tcp_pdu_rules
		rules;	  /* for what arrives; the owner changes it at ICReq, ICResp */
	uint8_t peer_pda; /* for what is sent: alignment of data, in dwords, 0's based */
	struct tcp_stream_buffers *buffers; /* owned; made at start */
	struct loop_flush flush;
	struct loop_timer timer; /* OPEN: staging is to be trimmed; LINGERING: patience ends */

	/* receiving */
	struct loop_op rx_op;
	bool rx_out;
	bool rx_parsing;	    /* tcp_stream_parse() is on the stack */
	bool rx_paused;		    /* the owner decides later where the data goes */
	bool rx_large;		    /* the last data was: keep what follows it out of staging */
	bool rx_touched;	    /* more of staging than is kept, since it was trimmed */
	bool rx_trimming;	    /* the receive is called back to trim staging */
	bool rx_bursts;		    /* the same, since the timer was set */
	uint32_t rx_begin, rx_end;  /* unread bytes in staging */
	struct loop_timer rx_timer; /* patience with a PDU that has begun; may ring early */
	uint64_t rx_since_ns;	    /* when the receive that is to bring the rest began */
	struct nvme_tcp_pdu pdu;    /* the one whose data is passing; data_len 0: none */
	uint32_t pad_left;
	uint32_t data_left;
	uint32_t sink_left;	  /* of data_left: goes to the sink; what is behind it is dropped */
	uint32_t rx_direct;	  /* bytes the receive that is out may put into the sink */
	const struct iovec *sink; /* the owner's */
	size_t sink_done;	  /* of the first piece */
	uint32_t rx_crc;
	struct iovec rx_iov[TCP_STREAM_MAX_PIECES + 1];

	/* sending */
	struct loop_op tx_op;
	bool tx_out;
	bool term_wanted, term_built;
	uint32_t tx_small; /* bytes of the batch's small area in use */
	uint32_t tx_first_iov, tx_nr_iov;
	uint64_t tx_bytes;    /* of the batch */
	struct list tx_queue; /* of tcp_item */
	struct list tx_lent;  /* of tcp_item, in the batch that is out */

	struct nvme_tcp_fatal fatal; /* for the termination request */
	uint8_t fatal_header_len;
	uint8_t fatal_header[NVME_TCP_TERM_DATA_MAX];
};

/*
 * Takes FD over, also when it fails (it is closed then). TO_CTRL: this is the controller's end.
 * Until tcp_stream_start() nothing is received.
 */
int tcp_stream_init(struct tcp_stream *stream, struct loop *loop, int fd, bool to_ctrl,
	const struct tcp_stream_ops *ops) must_check;
void tcp_stream_start(struct tcp_stream *stream);
/* Both sides agree on the digests in DGST: what follows is PDUs other than ICReq and ICResp. */
void tcp_stream_initialized(struct tcp_stream *stream, uint8_t dgst, uint8_t peer_pda);
/* After CLOSED, or instead of close when neither start nor send was called. */
void tcp_stream_destroy(struct tcp_stream *stream);

/* --- receiving ------------------------------------------------------------------------------- */

/*
 * The data of the PDU at hand: LEN bytes go to the pieces at IOV (the first SKIP bytes of which are
 * left out), the rest is dropped. IOV and the memory live until DATA_RECEIVED or CLOSED; at most
 * TCP_STREAM_MAX_PIECES pieces. Called within RECEIVED, or later after pause.
 */
void tcp_stream_receive(
	struct tcp_stream *stream, const struct iovec *iov, size_t skip, uint32_t len);
/* Within RECEIVED: nothing more is taken from the socket until tcp_stream_receive() or
 * tcp_stream_discard(). */
void tcp_stream_pause(struct tcp_stream *stream);
void tcp_stream_discard(struct tcp_stream *stream);

/* --- sending --------------------------------------------------------------------------------- */

/* Queues ITEM, which is in no list, for the end of the turn. */
void tcp_stream_send(struct tcp_stream *stream, struct tcp_item *item);
static inline void tcp_item_init(struct tcp_item *item)
{
	list_init(&item->node);
}
/* In a queue or on its way. */
static inline bool tcp_item_is_out(const struct tcp_item *item)
{
	return !list_empty(&item->node);
}

/* Within BUILD. LEN contiguous bytes of the batch, to be filled: at most TCP_STREAM_ITEM_SMALL in
 * all. */
void *tcp_stream_put(struct tcp_stream *stream, uint32_t len);
/* Header of LEN bytes, common header filled in, for DATA_LEN bytes of data; fill the rest, then ...
 */
void *tcp_stream_put_header(struct tcp_stream *stream, enum nvme_tcp_pdu_type type, uint8_t flags,
	uint32_t len, uint32_t data_len);
/* ... seal it, which makes its digest, and if it has data, add that: LEN bytes of IOV from the byte
 * SKIP on. */
void tcp_stream_seal_header(void *header);
void tcp_stream_put_data(
	struct tcp_stream *stream, const struct iovec *iov, size_t skip, uint32_t len);
/* All three for one PDU of this end's data: LEN bytes of IOV from the byte OFFSET on, which is the
 * command's, too. */
void tcp_stream_put_data_pdu(struct tcp_stream *stream, uint8_t flags, le16_t cccid, uint16_t ttag,
	const struct iovec *iov, uint32_t offset, uint32_t len);
/* Whether another PDU of one item fits the batch. */
bool tcp_stream_has_room(const struct tcp_stream *stream);

/* --- ending ---------------------------------------------------------------------------------- */

/*
 * The peer has made the mistake FES, FEI in the PDU with this header: FAILED is called, and the
 * peer is told when the stream is closed. WHY NULL: what FES means. Nothing when the stream has
 * failed already.
 */
void tcp_stream_terminate(struct tcp_stream *stream, uint16_t fes, size_t fei, const void *header,
	size_t header_len, const char *why);
/* Idempotent. -> CLOSED, never before this returns. */
void tcp_stream_close(struct tcp_stream *stream);
/* Within CLOSED: the next item that was not sent, or whose end is not known; NULL: no more. */
struct tcp_item *tcp_stream_take(struct tcp_stream *stream);

const char *tcp_stream_fes_text(uint16_t fes);

#endif
