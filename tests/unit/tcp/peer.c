/* SPDX-License-Identifier: MIT */
/*
 * The raw other end of a connection under test.
 */
#include "tests/unit/tcp/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/link/tcp_stream.h"
#include "proto/nvme/crc32c.h"

void fill_pattern(void *bytes, size_t len, uint32_t seed)
{
	uint8_t *to = bytes;

	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245 + 12345;
		to[i] = (uint8_t)(seed >> 16);
	}
}

void peer_open(struct peer *peer, struct loop *loop, int sndbuf, int *ret_fd)
{
	int fds[2];

	memset(peer, 0, sizeof(*peer));
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	if (sndbuf)
		assert_int_equal(
			setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf)), 0);
	peer->loop = loop;
	peer->fd = fds[0];
	peer->in = malloc(PEER_ROOM * 2);
	assert_non_null(peer->in);
	*ret_fd = fds[1];
}

void peer_close(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
	free(peer->in);
	peer->in = NULL;
}

void peer_turn(struct peer *peer)
{
	ssize_t n;

	loop_turn(peer->loop);
	n = recv(peer->fd, peer->in + peer->in_len, PEER_ROOM - peer->in_len, MSG_DONTWAIT);
	if (n > 0)
		peer->in_len += (size_t)n;
	else if (!n || (errno != EAGAIN && errno != EWOULDBLOCK))
		peer->eof = true;
	else
		loop_wait(peer->loop, 1000000);
}

void peer_send(struct peer *peer, const void *bytes, size_t len)
{
	const uint8_t *from = bytes;
	uint64_t limit_ns = loop_now_ns(peer->loop) + PEER_PATIENCE_NS;

	while (len) {
		ssize_t n = send(peer->fd, from, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			from += n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EPIPE || errno == ECONNRESET)
			return;
		peer_turn(peer);
		if (loop_now_ns(peer->loop) > limit_ns)
			fail_msg("the other end takes nothing");
	}
}

size_t peer_build_pdu(const struct peer *peer, uint8_t *ret, uint8_t type, uint8_t flags,
	void *header, uint8_t len, const void *data, uint32_t data_len)
{
	bool plain = type == NVME_TCP_IC_REQ || type == NVME_TCP_IC_RESP ||
		     type == NVME_TCP_H2C_TERM_REQ || type == NVME_TCP_C2H_TERM_REQ;
	bool hdgst = peer->header_digest && !plain, ddgst = peer->data_digest && data_len;
	size_t at = len + (hdgst ? 4u : 0u), align = (peer->pda + 1u) * 4u, pdo;
	struct nvme_tcp_ch *ch = header;
	le32_t digest;

	pdo = data_len ? (at + align - 1) / align * align : 0;
	ch->type = type;
	ch->flags =
		(uint8_t)(flags | (hdgst ? NVME_TCP_HDGSTF : 0) | (ddgst ? NVME_TCP_DDGSTF : 0));
	ch->hlen = len;
	ch->pdo = (uint8_t)pdo;
	ch->plen = le32((uint32_t)((data_len ? pdo : at) + data_len + (ddgst ? 4 : 0)));
	memcpy(ret, header, len);
	if (hdgst) {
		digest = le32(nvme_crc32c(0, header, len) ^ peer->wrong_header_digest);
		memcpy(ret + len, &digest, 4);
	}
	if (!data_len)
		return at;
	memset(ret + at, 0, pdo - at);
	memcpy(ret + pdo, data, data_len);
	if (!ddgst)
		return pdo + data_len;
	digest = le32(nvme_crc32c(0, data, data_len) ^ peer->wrong_data_digest);
	memcpy(ret + pdo + data_len, &digest, 4);
	return pdo + data_len + 4;
}

void peer_send_pdu(struct peer *peer, uint8_t type, uint8_t flags, void *header, uint8_t len,
	const void *data, uint32_t data_len)
{
	uint8_t *bytes = malloc(len + data_len + 256u);
	size_t n;

	assert_non_null(bytes);
	n = peer_build_pdu(peer, bytes, type, flags, header, len, data, data_len);
	peer_send(peer, bytes, n);
	free(bytes);
}

static void peer_need(struct peer *peer, size_t len)
{
	uint64_t limit_ns = loop_now_ns(peer->loop) + PEER_PATIENCE_NS;

	while (peer->in_len < len) {
		if (peer->eof)
			fail_msg("the stream ended after %zu of %zu bytes", peer->in_len, len);
		peer_turn(peer);
		if (loop_now_ns(peer->loop) > limit_ns)
			fail_msg("waited in vain for %zu bytes, %zu came", len, peer->in_len);
	}
}

struct peer_pdu peer_receive(struct peer *peer)
{
	struct peer_pdu pdu = {0};
	struct nvme_tcp_ch ch;
	uint8_t *last = peer->in + PEER_ROOM;
	le32_t digest;
	size_t plen;

	peer_need(peer, sizeof(ch));
	memcpy(&ch, peer->in, sizeof(ch));
	plen = le32_get(ch.plen);
	assert_true(plen >= ch.hlen && plen < PEER_ROOM && ch.hlen <= sizeof(pdu.header));
	peer_need(peer, plen);
	memcpy(last, peer->in, plen);
	memmove(peer->in, peer->in + plen, peer->in_len - plen);
	peer->in_len -= plen;
	pdu.type = ch.type;
	pdu.flags = ch.flags;
	memcpy(pdu.header, last, ch.hlen);
	if (ch.flags & NVME_TCP_HDGSTF) {
		memcpy(&digest, last + ch.hlen, 4);
		assert_int_equal(le32_get(digest), nvme_crc32c(0, last, ch.hlen));
	}
	if (ch.type == NVME_TCP_C2H_TERM_REQ || ch.type == NVME_TCP_H2C_TERM_REQ)
		ch.pdo = ch.hlen;
	if (!ch.pdo)
		return pdu;
	for (size_t i = ch.hlen + (ch.flags & NVME_TCP_HDGSTF ? 4u : 0u); i < ch.pdo; i++)
		assert_int_equal(last[i], 0);
	pdu.data = last + ch.pdo;
	pdu.data_len = (uint32_t)(plen - ch.pdo - (ch.flags & NVME_TCP_DDGSTF ? 4 : 0));
	if (ch.flags & NVME_TCP_DDGSTF) {
		memcpy(&digest, pdu.data + pdu.data_len, 4);
		assert_int_equal(le32_get(digest), nvme_crc32c(0, pdu.data, pdu.data_len));
	}
	return pdu;
}

struct peer_pdu peer_expect(struct peer *peer, uint8_t type)
{
	struct peer_pdu pdu = peer_receive(peer);

	assert_int_equal(pdu.type, type);
	if (type != NVME_TCP_IC_REQ && type != NVME_TCP_IC_RESP)
		assert_int_equal(!!(pdu.flags & NVME_TCP_HDGSTF), peer->header_digest);
	if (pdu.data_len && type != NVME_TCP_C2H_TERM_REQ && type != NVME_TCP_H2C_TERM_REQ)
		assert_int_equal(!!(pdu.flags & NVME_TCP_DDGSTF), peer->data_digest);
	return pdu;
}

void peer_expect_eof(struct peer *peer)
{
	uint64_t limit_ns = loop_now_ns(peer->loop) + PEER_PATIENCE_NS;

	while (!peer->eof) {
		peer_turn(peer);
		if (loop_now_ns(peer->loop) > limit_ns)
			fail_msg("the stream does not end");
	}
	assert_int_equal(peer->in_len, 0);
}

uint32_t peer_expect_term(struct peer *peer, uint8_t type, uint16_t fes)
{
	struct peer_pdu pdu = peer_receive(peer);
	uint64_t start_ns = loop_now_ns(peer->loop);

	assert_int_equal(pdu.type, type);
	assert_int_equal(pdu.flags, 0);
	assert_int_equal(le16_get(pdu.term.fes), fes);
	assert_true(pdu.data_len >= 8);
	peer_expect_eof(peer);
	/* Right behind it, not when patience ends. */
	assert_true(loop_now_ns(peer->loop) - start_ns < TCP_STREAM_LINGER_NS / 2);
	/* Or the code under test waits for this. */
	shutdown(peer->fd, SHUT_WR);
	return le32_get(pdu.term.fei);
}
