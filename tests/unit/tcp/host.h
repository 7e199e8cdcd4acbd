/* SPDX-License-Identifier: MIT */
/*
 * An initiator's queue of a few lines around its TCP transport, and a target's words to it.
 */
#ifndef HAUL_TESTS_TCP_HOST_H
#define HAUL_TESTS_TCP_HOST_H

#include "tests/unit/tcp/peer.h"

#include "initiator/loop_private.h"
#include "initiator/transport.h"

#define DEPTH	   32
#define DATA_BYTES (1u << 20)

extern struct host {
	struct haul_loop hl;
	struct haul_queue queue;
	struct haul_request requests[DEPTH];
	uint32_t nr_done[DEPTH];
	struct peer peer;
	int listen_fd;
	uint32_t nr_connected, nr_failed, nr_quiesced;
	int connect_result, failure;
	char why[256];
} host;

extern uint8_t host_bytes[DATA_BYTES], peer_bytes[DATA_BYTES];

void host_reset(struct loop *loop);
void host_open(struct loop *loop, uint8_t digests);
void host_initialize(struct loop *loop, uint8_t digests, uint8_t cpda, uint32_t maxh2cdata);
void host_disconnect(void);
void host_end(void);
struct haul_request *host_submit(uint16_t cid, bool to_host, uint32_t len);
void host_scatter(struct haul_request *request, uint32_t nr);
struct peer_pdu host_expect_command(uint16_t cid);
void host_send_c2h(uint16_t cid, uint32_t offset, uint32_t len, uint8_t flags);
void host_send_response(uint16_t cid, uint16_t status);
void host_send_r2t(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len);
void host_expect_h2c(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t len, uint32_t max);
uint16_t host_done_status(struct haul_request *request);

#endif
