/* SPDX-License-Identifier: MIT */
/*
 * A target inside the process, behind the initiator's transport interface: it answers as a good one
 * would unless a rule says otherwise, and remembers what it was asked.
 */
#ifndef TEST_INITIATOR_FAKE_H
#define TEST_INITIATOR_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>

#include "initiator/loop_private.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "proto/nvme/status.h"

#define FAKE_NQN	"nqn.2014-08.org.example:disk"
#define FAKE_URI	"tcp://127.0.0.1/" FAKE_NQN
#define FAKE_BLOCK	512u
#define FAKE_NR_BLOCKS	(64u * 1024)
#define FAKE_MAX_LOG	256
#define FAKE_MAX_QUEUES 16

enum fake_what {
	FAKE_TRANSPORT, /* connecting */
	FAKE_CONNECT,
	FAKE_CONNECT_IO,
	FAKE_CAP,
	FAKE_VS,
	FAKE_SET_CC,
	FAKE_CSTS,
	FAKE_ID_CTRL,
	FAKE_ID_LIMITS,
	FAKE_ID_NS_LIST,
	FAKE_ID_NS,
	FAKE_ID_DESC,
	FAKE_SET_QUEUES,
	FAKE_KEEP_ALIVE,
	FAKE_LOG,
	FAKE_READ,
	FAKE_WRITE,
	FAKE_FLUSH,
	FAKE_DSM,
	FAKE_ZEROES,
	FAKE_OTHER,
	FAKE_NR,
};

enum fake_how {
	FAKE_GOOD,
	FAKE_SILENT, /* never answered; comes back unanswered when the queue ends */
	FAKE_LATE,   /* answered only when the queue ends */
	FAKE_STATUS, /* STATUS instead of success */
	FAKE_ERROR,  /* the transport fails with ERROR */
	FAKE_BREAK,  /* the whole connection fails with ERROR */
};

struct fake_rule {
	enum fake_how how;
	uint16_t status;
	int error;
	uint32_t skip; /* the first that many are good */
};

struct fake_io {
	uint8_t opcode;
	uint64_t slba;
	uint32_t nlb; /* a count */
	uint32_t data_len, nr_iov;
	uint16_t control;
};

struct fake {
	struct fake_rule rules[FAKE_NR];
	uint32_t nr_asked[FAKE_NR];
	struct nvme_id_ctrl id_ctrl;
	struct nvme_id_ctrl_nvm id_limits;
	struct nvme_id_ns id_ns;
	uint64_t cap;
	uint32_t vs, csts, cc, dw0_queues;
	uint16_t cntlid;    /* in Connect's answer */
	uint16_t cntlid_io; /* ... of I/O queues */
	/* Fills the page for CNS 02h; default: namespace 1. */
	void (*ns_list)(struct fake *fake, uint32_t after, struct nvme_ns_list *ret);
	/* Answers Get Log Page; default: an empty discovery log. */
	uint16_t (*log)(struct fake *fake, uint64_t offset, void *bytes, uint32_t len, int rae);
	/* A queue is connected to this address. */
	void (*reached)(struct fake *fake, const struct sockaddr_in *address);
	uint32_t log_variant; /* the tests' */
	uint8_t *disk;
	struct fake_io ios[FAKE_MAX_LOG];
	uint32_t nr_ios;
	uint32_t nr_out, max_out; /* I/O commands */
	uint32_t nr_queues_open;
	uint32_t lower_depth; /* what connect() lowers a queue's depth to; 0: leaves it */
	uint64_t garble;      /* not 0: bytes of answers are changed at random, from this seed */
	int hold;	      /* I/O commands wait for fake_release() */
	char last_nqn[NVME_NQN_FIELD + 1];
	uint32_t last_kato;
	uint16_t last_sqsize;
};

/* The one that the transports of this test program talk to; made anew by the set-up. */
extern struct fake fake;
int fake_setup(void **state);
int fake_teardown(void **state);
/* Answers the N oldest I/O commands that are held. */
void fake_release(uint32_t n);

/* --- what tests do again and again ------------------------------------------------------------ */

struct haul_event wait_event(struct haul_loop *hl);
/* Waits for the event with USER_DATA; others must not come. */
int wait_for(struct haul_loop *hl, uint64_t user_data);
struct haul_ctrl *connect_good(struct haul_loop *hl);
struct haul_queue *queue_good(struct haul_ctrl *ctrl, uint32_t depth);
struct haul_loop *loop_good(void);

#endif
