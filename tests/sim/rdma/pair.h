/* SPDX-License-Identifier: MIT */
/*
 * Two endpoints of proto/link on one loop, connected through whatever verbs library is loaded:
 * the client with receives of its own, the server with the device's SRQ.
 */
#ifndef HAUL_TESTS_SIM_RDMA_PAIR_H
#define HAUL_TESTS_SIM_RDMA_PAIR_H

#include <netinet/in.h>
#include <stdbool.h>

#include "proto/link/rdma_loop.h"
#include "proto/link/rdma_dev.h"
#include "proto/link/rdma_ep.h"
#include "proto/link/rdma_srq.h"

#define PAIR_NR_RECVS	   64
#define PAIR_SRQ_SLOTS	   64
#define PAIR_MESSAGE_BYTES 64
#define PAIR_SECONDS	   20 /* nothing takes as long unless it hangs */

struct side {
	struct pair *pair;
	struct rdma_cm_owner owner;
	struct rdma_cm_id *id;
	struct rdma_dev *dev;
	struct rdma_ep ep;
	bool has_ep;
	bool connected, disconnected;
	unsigned nr_failed, nr_drained, nr_messages;
	int failure;
	bool keep_slots; /* do not give slots back */
	struct list slots;
};

struct pair {
	struct loop *loop;
	struct bufpool *pool;
	struct rdma_loop rdma;
	uint64_t nr_doorbells;
	struct rdma_cm_owner owner;
	struct rdma_cm_id *listener;
	struct rdma_ep_params params[2]; /* client, server */
	uint32_t max_reads;
	uint32_t nr_slots; /* admitted to the SRQ */
	struct side client, server;
	struct rdma_cm_note request; /* the last connection request */
	const void *accept_data;     /* private data of the answer, ACCEPT_LEN of them */
	uint8_t accept_len;
	bool reject; /* ... which is a reject */
	struct buf *responses;
	struct rdma_recv recvs[PAIR_NR_RECVS];
	struct buf *memory[2]; /* 1 MiB each: client's, server's */
	uint64_t timeout_ns;   /* of each wait */
	int result;	       /* the first failure of connecting */
};

/* Where the pair meets, port 0: on a real device at HAUL_TEST_ADDRESS, else on the loopback. */
struct sockaddr_in pair_address(void);
/* The engine that HAUL_TEST_ENGINE asks for cannot be had. */
bool pair_engine_is_refused(void);
int pair_open(struct pair *pair);
/* Both sides as before a connection: pair_connect() begins with it. A test with a client of its own
 * uses the server alone. */
void pair_reset(struct pair *pair);
/* Until both sides are up; pair->params and max_reads may be changed before. */
int pair_connect(struct pair *pair);
/* Drains and destroys what is left of both sides, keeps loop and device. */
void pair_disconnect(struct pair *pair);
void pair_close(struct pair *pair);

/* Turns the loop until *FLAG is at least VALUE; false when that does not come. */
bool pair_wait(struct pair *pair, const unsigned *flag, unsigned value);

/* A piece of the client's memory, as the server addresses it. */
struct nvme_sgl_piece pair_piece(const struct pair *pair, uint32_t offset, uint32_t len);

#endif
