/* SPDX-License-Identifier: MIT */
/*
 * The initiator's RDMA transport between a core of the tests' own and a target that is a bare
 * endpoint of proto/link: it does what a test says, right or wrong.
 */
#ifndef HAUL_TESTS_SIM_RDMA_BARE_H
#define HAUL_TESTS_SIM_RDMA_BARE_H

#include "initiator/transport_rdma.h"
#include "proto/nvme/rdma.h"
#include "tests/sim/rdma/pair.h"

#define DEPTH	     8
#define MEMORY_BYTES (4u << 20)

extern struct pair pair; /* the target is its server */
extern struct haul_loop hl;
extern struct haul_queue queue;
extern struct haul_request requests[DEPTH];
extern unsigned char *memory; /* the first half is registered */
extern bool key_per_io;	      /* of queues from queue_init() on */
extern unsigned nr_connected, nr_failed, nr_quiesced, nr_done, nr_replied;
extern unsigned nr_done_of[DEPTH];
extern int connected_result, failed_result, replied_result;
extern char connected_why[256];
extern struct nvme_rdma_cm_accept accept_data;
extern struct nvme_rdma_cm_reject reject_data;

/* Fixtures of cmocka. */
int setup(void **state);
int setup_connected(void **state);
int teardown(void **state);

/* The queue as before alloc(). */
void queue_init(void);
void disconnect(void);
/* Turns both loops until *FLAG is at least VALUE; false when that does not come. */
bool both_wait(const unsigned *flag, unsigned value);
void both_turn(unsigned nr);

struct haul_request *submit(unsigned i, int to_host, const struct iovec *iov, unsigned nr);
/* The slot of the next command that has reached the target. */
struct rdma_slot *target_take(void);
/* Answers CID; with bytes of the target's memory first, where DESCRIPTORS say, and with
 * invalidation of the last one's key where that is asked for. */
void target_reply(unsigned cid, const struct nvme_sgl_desc *descriptors, uint32_t nr);
/* The same, which invalidates KEY, or nothing (0). */
void target_reply_invalidating(
	unsigned cid, const struct nvme_sgl_desc *descriptors, uint32_t nr, uint32_t key);
/* What a read has got from target_reply(). */
void assert_read(const struct haul_request *request);

#endif
