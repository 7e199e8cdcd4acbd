/* SPDX-License-Identifier: MIT */
/*
 * The other end of the connection under test: a raw socket that sends chosen bytes and takes PDUs
 * apart by itself, in the same thread as the loop under test.
 */
#ifndef HAUL_TESTS_TCP_PEER_H
#define HAUL_TESTS_TCP_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/loop.h"
#include "proto/nvme/tcp.h"

#define PEER_PATIENCE_NS 10000000000ull

/* Turns LOOP until CONDITION. */
#define peer_wait(loop, condition)                                          \
	do {                                                                \
		uint64_t limit_ns_ = loop_now_ns(loop) + PEER_PATIENCE_NS;  \
		while (!(condition)) {                                      \
			loop_wait(loop, 100000000);                         \
			if (loop_now_ns(loop) > limit_ns_)                  \
				fail_msg("waited in vain for " #condition); \
		}                                                           \
	} while (0)

#define PEER_ROOM (4u << 20)

struct peer {
	struct loop *loop;
	int fd;
	bool header_digest, data_digest; /* on what it sends, and to be verified on what comes */
	bool wrong_header_digest, wrong_data_digest; /* on what it sends */
	uint8_t pda;				     /* alignment of the data it sends */
	bool eof;
	uint8_t *in;
	size_t in_len;
};

/* One end for the test, *RET_FD for the code under test. SNDBUF: bytes of the latter's send buffer;
 * 0: the system's. */
void peer_open(struct peer *peer, struct loop *loop, int sndbuf, int *ret_fd);
void peer_close(struct peer *peer);

/* Turns the loop once and takes what has come. */
void peer_turn(struct peer *peer);
void peer_send(struct peer *peer, const void *bytes, size_t len);
/* HEADER of LEN bytes (its common header is filled in here) and data. */
void peer_send_pdu(struct peer *peer, uint8_t type, uint8_t flags, void *header, uint8_t len,
	const void *data, uint32_t data_len);
/* The same, only built: returns its length. */
size_t peer_build_pdu(const struct peer *peer, uint8_t *ret, uint8_t type, uint8_t flags,
	void *header, uint8_t len, const void *data, uint32_t data_len);

/* A PDU that has come, taken apart; DATA is valid until the next call. */
struct peer_pdu {
	uint8_t type, flags;
	union {
		struct nvme_tcp_ch ch;
		struct nvme_tcp_ic_req ic_req;
		struct nvme_tcp_ic_resp ic_resp;
		struct nvme_tcp_term_req term;
		struct nvme_tcp_capsule_cmd cmd;
		struct nvme_tcp_capsule_resp resp;
		struct nvme_tcp_data data_header;
		struct nvme_tcp_r2t r2t;
		uint8_t header[NVME_TCP_HLEN_MAX];
	};
	const uint8_t *data;
	uint32_t data_len;
};
struct peer_pdu peer_receive(struct peer *peer);
/* The same, which must be of TYPE. */
struct peer_pdu peer_expect(struct peer *peer, uint8_t type);
/* A termination request of TYPE and FES, then the end of the stream; returns FEI. */
uint32_t peer_expect_term(struct peer *peer, uint8_t type, uint16_t fes);
void peer_expect_eof(struct peer *peer);

void fill_pattern(void *bytes, size_t len, uint32_t seed);

#endif
