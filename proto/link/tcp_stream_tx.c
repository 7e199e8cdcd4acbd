/* SPDX-License-Identifier: MIT */
/*
 * The sending half of a stream of PDUs: items are turned into one batch at the end of the turn,
 * whose headers and digests lie side by side in the batch's own small area, between pieces of the
 * owner's data. The batch is sent to its last byte before the next is made.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/link/tcp_stream_private.h"
#include "proto/nvme/crc32c.h"

static void tcp_stream_transmit_done(struct done *done, int res, unsigned flags);

/* --- filling the batch ----------------------------------------------------------------------- */

bool tcp_stream_has_room(const struct tcp_stream *stream)
{
	return stream->tx_nr_iov + TCP_STREAM_ITEM_IOVS <= TCP_STREAM_NR_IOV &&
	       stream->tx_small + TCP_STREAM_ITEM_SMALL <= TCP_STREAM_SMALL_BYTES &&
	       stream->tx_bytes < TCP_STREAM_BATCH_BYTES;
}

static void tcp_stream_put_piece(struct tcp_stream *stream, void *bytes, size_t len)
{
	struct iovec *iov = &stream->buffers->iov[stream->tx_nr_iov];

	assert(stream->tx_nr_iov < TCP_STREAM_NR_IOV);
	iov->iov_base = bytes;
	iov->iov_len = len;
	stream->tx_nr_iov++;
	stream->tx_bytes += len;
}

void *tcp_stream_put(struct tcp_stream *stream, uint32_t len)
{
	uint8_t *bytes = stream->buffers->small + stream->tx_small;
	struct iovec *last = &stream->buffers->iov[stream->tx_nr_iov];

	assert(stream->tx_small + len <= TCP_STREAM_SMALL_BYTES);
	stream->tx_small += len;
	last--;
	if (stream->tx_nr_iov && (uint8_t *)last->iov_base + last->iov_len == bytes) {
		last->iov_len += len;
		stream->tx_bytes += len;
	} else {
		tcp_stream_put_piece(stream, bytes, len);
	}
	return bytes;
}

static uint32_t tcp_stream_data_offset(const struct tcp_stream *stream, uint32_t header_len)
{
	uint32_t align = (stream->peer_pda + 1u) * 4;

	return (header_len + align - 1) / align * align;
}

void *tcp_stream_put_header(struct tcp_stream *stream, enum nvme_tcp_pdu_type type, uint8_t flags,
	uint32_t len, uint32_t data_len)
{
	const struct nvme_tcp_pdu_rules *rules = &stream->rules;
	uint32_t size = len, end;
	struct nvme_tcp_ch *ch;

	if (rules->header_digest) {
		flags |= NVME_TCP_HDGSTF;
		size += NVME_TCP_DIGEST_SIZE;
	}
	end = size;
	if (data_len) {
		if (stream->peer_pda)
			size = tcp_stream_data_offset(stream, size);
		end = size + data_len;
		if (rules->data_digest) {
			flags |= NVME_TCP_DDGSTF;
			end += NVME_TCP_DIGEST_SIZE;
		}
	}
	ch = tcp_stream_put(stream, size);
	if (stream->peer_pda)
		memset((uint8_t *)ch + len, 0, size - len);
	ch->type = (uint8_t)type;
	ch->flags = flags;
	ch->hlen = (uint8_t)len;
	ch->pdo = (uint8_t)(data_len ? size : 0);
	ch->plen = le32(end);
	return ch;
}

void tcp_stream_seal_header(void *header)
{
	struct nvme_tcp_ch *ch = header;
	le32_t digest;

	if (!(ch->flags & NVME_TCP_HDGSTF))
		return;
	digest = le32(nvme_crc32c(0, ch, ch->hlen));
	memcpy((uint8_t *)ch + ch->hlen, &digest, sizeof(digest));
}

void tcp_stream_put_data(
	struct tcp_stream *stream, const struct iovec *iov, size_t skip, uint32_t len)
{
	bool with_digest = stream->rules.data_digest;
	uint32_t crc = 0;
	le32_t digest;

	while (len && skip >= iov->iov_len) {
		skip -= iov->iov_len;
		iov++;
	}
	while (len) {
		uint8_t *bytes = (uint8_t *)iov->iov_base + skip;
		uint32_t piece = (uint32_t)min_of(iov->iov_len - skip, (size_t)len);

		if (with_digest)
			crc = nvme_crc32c(crc, bytes, piece);
		tcp_stream_put_piece(stream, bytes, piece);
		len -= piece;
		skip = 0;
		iov++;
	}
	if (!with_digest)
		return;
	digest = le32(crc);
	memcpy(tcp_stream_put(stream, sizeof(digest)), &digest, sizeof(digest));
}

void tcp_stream_put_data_pdu(struct tcp_stream *stream, uint8_t flags, le16_t cccid, uint16_t ttag,
	const struct iovec *iov, uint32_t offset, uint32_t len)
{
	enum nvme_tcp_pdu_type type = stream->rules.to_ctrl ? NVME_TCP_C2H_DATA : NVME_TCP_H2C_DATA;
	struct nvme_tcp_data *data = tcp_stream_put_header(stream, type, flags, sizeof(*data), len);

	data->cccid = cccid;
	data->ttag = le16(ttag);
	data->datao = le32(offset);
	data->datal = le32(len);
	memset(data->rsvd20, 0, sizeof(data->rsvd20));
	tcp_stream_seal_header(data);
	tcp_stream_put_data(stream, iov, offset, len);
}

/* Termination requests carry no digest (NVMe TCP 1.0c 3.6.2.4). */
static void tcp_stream_build_term(struct tcp_stream *stream)
{
	uint32_t len = stream->fatal_header_len;
	struct nvme_tcp_term_req *term =
		tcp_stream_put(stream, (uint32_t)(sizeof(struct nvme_tcp_term_req) + len));

	memset(term, 0, sizeof(*term));
	term->ch.type = stream->rules.to_ctrl ? NVME_TCP_C2H_TERM_REQ : NVME_TCP_H2C_TERM_REQ;
	term->ch.hlen = sizeof(*term);
	term->ch.plen = le32((uint32_t)sizeof(*term) + len);
	term->fes = le16(stream->fatal.fes);
	term->fei = le32(stream->fatal.fei);
	memcpy(term + 1, stream->fatal_header, len);
	stream->term_built = true;
}

static void tcp_stream_build(struct tcp_stream *stream)
{
	struct list *node;

	stream->tx_small = 0;
	stream->tx_first_iov = 0;
	stream->tx_nr_iov = 0;
	stream->tx_bytes = 0;
	while (tcp_stream_has_room(stream) && (node = list_pop_front(&stream->tx_queue))) {
		struct tcp_item *item = container_of(node, struct tcp_item, node);

		if (stream->ops->build(stream, item) == TCP_BUILT_LENT)
			list_push_back(&stream->tx_lent, &item->node);
	}
}

/* --- sending it ------------------------------------------------------------------------------ */

static void tcp_stream_transmit_rest(struct tcp_stream *stream)
{
	stream->tx_out = true;
	stream->tx_op.done.fn = tcp_stream_transmit_done;
	loop_transmit(stream->loop, &stream->tx_op, &stream->file,
		stream->buffers->iov + stream->tx_first_iov,
		stream->tx_nr_iov - stream->tx_first_iov);
}

void tcp_stream_transmit(struct tcp_stream *stream)
{
	if (stream->state == TCP_STREAM_OPEN) {
		if (list_empty(&stream->tx_queue))
			return;
		tcp_stream_build(stream);
	} else if (stream->state == TCP_STREAM_LINGERING && !stream->term_built) {
		stream->tx_small = 0;
		stream->tx_first_iov = 0;
		stream->tx_nr_iov = 0;
		tcp_stream_build_term(stream);
	} else {
		return;
	}
	if (stream->tx_nr_iov)
		tcp_stream_transmit_rest(stream);
}

/* The batch without its first N bytes. */
static void tcp_stream_tx_advance(struct tcp_stream *stream, size_t n)
{
	struct iovec *iov = stream->buffers->iov + stream->tx_first_iov;
	struct iovec *end = stream->buffers->iov + stream->tx_nr_iov;

	while (iov < end && n >= iov->iov_len) {
		n -= iov->iov_len;
		iov++;
	}
	if (n) {
		assert(iov < end);
		iov->iov_base = (uint8_t *)iov->iov_base + n;
		iov->iov_len -= n;
	}
	stream->tx_first_iov = (uint32_t)(iov - stream->buffers->iov);
}

static void tcp_stream_batch_sent(struct tcp_stream *stream)
{
	struct list *node;

	while ((node = list_pop_front(&stream->tx_lent)))
		stream->ops->sent(stream, container_of(node, struct tcp_item, node));
	if (stream->state == TCP_STREAM_LINGERING) {
		/* The end of the stream behind the termination request; a failure means that the
		 * peer is gone already. */
		if (stream->term_built)
			(void)shutdown(stream->file.fd, SHUT_WR);
		else
			tcp_stream_kick(stream);
	} else if (stream->state == TCP_STREAM_CLOSING || !list_empty(&stream->tx_queue)) {
		tcp_stream_kick(stream);
	}
}

static void tcp_stream_transmit_done(struct done *done, int res, unsigned flags)
{
	struct tcp_stream *stream = container_of(done, struct tcp_stream, tx_op.done);

	(void)flags;
	stream->tx_out = false;
	if (res <= 0) {
		if (stream->state == TCP_STREAM_OPEN)
			tcp_stream_fail(stream, res ? res : -EPIPE, NULL);
		else if (stream->state != TCP_STREAM_FAILED)
			tcp_stream_stop(stream);
		return;
	}
	tcp_stream_tx_advance(stream, (size_t)res);
	if (stream->tx_first_iov == stream->tx_nr_iov)
		tcp_stream_batch_sent(stream);
	else if (stream->state == TCP_STREAM_CLOSING)
		tcp_stream_kick(stream);
	else
		tcp_stream_transmit_rest(stream);
}

/* --- its part of the stream's life ----------------------------------------------------------- */

void tcp_stream_send(struct tcp_stream *stream, struct tcp_item *item)
{
	list_push_back(&stream->tx_queue, &item->node);
	if (!stream->tx_out)
		tcp_stream_kick(stream);
}

struct tcp_item *tcp_stream_take(struct tcp_stream *stream)
{
	struct list *node = list_pop_front(&stream->tx_lent);

	assert(stream->state == TCP_STREAM_CLOSED);
	if (!node)
		node = list_pop_front(&stream->tx_queue);
	return node ? container_of(node, struct tcp_item, node) : NULL;
}
