/* SPDX-License-Identifier: MIT */
/*
 * A target's core of a few lines around its TCP transport, and a host's words to it.
 */
#ifndef HAUL_TESTS_TCP_CORE_H
#define HAUL_TESTS_TCP_CORE_H

#include "tests/unit/tcp/peer.h"

#include "target/conn.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/transport.h"
#include "target/transport_tcp.h"

#define DEPTH	   32
#define DATA_BYTES (1u << 20)

/* Opcodes of the fake core. */
enum {
	OP_WRITE = 0x01,       /* takes the data into a buffer at once */
	OP_READ = 0x02,	       /* a pattern of CDW10 */
	OP_WRITE_LATER = 0x05, /* waits for a buffer until core_give_buffers() */
	OP_REFUSE = 0x09,      /* whatever comes with it */
	OP_HOLD = 0x0c,	       /* no answer until the end */
};

extern struct core {
	struct loop *loop;
	struct reactor reactor;
	struct port port;
	struct conn conn;
	struct peer peer;
	struct list waiting, held;
	uint32_t nr_commands;
	uint32_t nr_pulled; /* well */
	uint16_t last_status;
	uint8_t last_data[DATA_BYTES];
	uint32_t last_len;
	char why[256];
} core;

/* The request the core holds longest without a buffer, taken out. */
struct request *core_waiting(void);

void core_reply(struct request *request, uint16_t status);
void core_pull(struct request *request);
void core_give_buffers(void);
/* No connection yet; core_open() does this too. */
void core_reset(struct loop *loop);
void core_open(struct loop *loop, int sndbuf);
void core_end(void);
struct nvme_tcp_ic_resp core_initialize(uint8_t hpda, uint8_t dgst);
struct nvme_tcp_capsule_cmd core_command(uint8_t opcode, uint16_t cid, uint32_t len, bool inside);
void core_send_command(uint8_t opcode, uint16_t cid, uint32_t len, const void *inside);
void core_send_h2c(
	uint16_t cid, uint16_t ttag, uint32_t offset, const uint8_t *data, uint32_t len, bool last);
uint16_t core_expect_response(uint16_t cid);
uint16_t core_expect_r2t(uint16_t cid, uint32_t len);
void core_expect_still_in_step(uint16_t cid);
uint32_t core_expect_term(uint16_t fes);

#endif
