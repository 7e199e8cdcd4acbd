/* SPDX-License-Identifier: MIT */
/*
 * The target's core between a transport and a disk that do nothing by themselves: the test decides
 * when a pull, a reply, an I/O or the end of a connection is done, and with what result. All
 * reactors turn on the test's thread, so that a seed gives the same run each time.
 */
#ifndef HAUL_TESTS_SIM_TARGET_SIM_H
#define HAUL_TESTS_SIM_TARGET_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "target/catalog.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/port.h"
#include "target/publish.h"
#include "target/reactor.h"
#include "target/reactor_ns.h"
#include "target/subsys.h"
#include "target/target.h"

#define SIM_NQN	       "nqn.2024-01.com.example:sim"
#define SIM_OTHER      "nqn.2024-01.com.example:other"
#define SIM_PRIVATE    "nqn.2024-01.com.example:private"
#define SIM_HOST       "nqn.2024-01.com.example:host"
#define SIM_LBAS       4096
#define SIM_MAX_CONN   512
#define SIM_NO_ANSWER  0xffff
#define SIM_PORT_FAILS 999 /* the port id of a listener that cannot */

#define SIM_CC_ENABLE \
	(NVME_CC_EN | NVME_SQES << NVME_CC_IOSQES_SHIFT | NVME_CQES << NVME_CC_IOCQES_SHIFT)

struct transport_conn {
	struct conn *conn;
	struct list pulling; /* requests, by node of struct sim_request */
	struct list replying;
	bool close_asked;
};

/* In request->transport. */
struct sim_request {
	struct request *request;
	struct list node;
	unsigned char data[64]; /* unused room: the transport's part is the transport's */
};

/* One end of a connection as the test holds it; survives the connection. */
struct sim_conn {
	struct conn *conn; /* NULL: gone */
	unsigned nr_sent;  /* commands */
	unsigned nr_replies;
	struct nvme_cqe last; /* the last response, without "more" */
	bool last_more;	      /* there is an error log entry about it */
	uint8_t data[4096];   /* start of the data that came with it */
	uint32_t data_len;
};

struct sim {
	struct target target;
	struct port port;
	struct sim_conn conns[SIM_MAX_CONN];
	unsigned nr_conns;
	uint16_t status[1 << 16]; /* of each command, by its id; SIM_NO_ANSWER */
	/* What the disk holds; blocks move when an I/O is done. Off: reads bring 5Ah. */
	bool has_media;
	bool keeps_data; /* a pull leaves what the test has put there */
	uint8_t media[SIM_LBAS * 512];
	void (*before_io)(struct sim *sim, struct backend_io *io); /* is done; may be NULL */
	struct list ios; /* of backend_io, by loop_op.node: what the disk has */
	unsigned nr_ios;
	bool auto_disk;	   /* I/O is done at once */
	bool auto_pull;	   /* likewise pulls */
	bool auto_reply;   /* likewise replies */
	bool auto_quiesce; /* likewise ends */
	int next_result;   /* of I/O done at once */
	int publish_error;
	uint32_t attaches_left; /* of disks to reactors; then they fail */
	unsigned host;		/* 10.0.0.HOST is where new connections come from */
};

/* The state directory of the next simulation; "": none. */
extern const char *sim_state;

/* NR_REACTORS reactors; MEMORY_BYTES of pool each; everything automatic. */
struct sim *sim_create(unsigned nr_reactors, uint64_t memory_bytes);
/* Closes and drains what is left, and checks that nothing is: no request, buffer, controller. */
void sim_destroy(struct sim *sim);

/* Turns all loops until nothing moves by itself. */
void sim_settle(struct sim *sim);

/* Makes CATALOG what counts and returns how that went. */
int sim_publish(struct sim *sim, struct catalog *catalog);
/* A namespace on a disk of the simulation. */
void sim_add_ns(struct catalog *catalog, struct subsys *subsys, uint32_t nsid, bool read_only);

/* A host arrives, from sim->host. NULL: refused. */
struct sim_conn *sim_accept(struct sim *sim);
/* At another listener than the simulation's own. */
struct sim_conn *sim_accept_at(struct sim *sim, struct port *port);
/* A command arrives; false: there was no room for it. */
bool sim_send(struct sim *sim, struct sim_conn *sc, const struct nvme_cmd *cmd);
/* The same, then settles and returns the status; there must be a response. */
uint16_t sim_run(struct sim *sim, struct sim_conn *sc, const struct nvme_cmd *cmd);

/* Steps by hand, on any connection; false: there was nothing to do. A pull brings the command's
 * CDW2, again and again. */
bool sim_do_pull(struct sim_conn *sc, uint16_t status);
bool sim_do_any_pull(struct sim_conn *sc, unsigned which, uint16_t status);
bool sim_do_reply(struct sim_conn *sc);
bool sim_do_io(struct sim *sim, unsigned which, int result);
bool sim_do_quiesce(struct sim_conn *sc);

/* Commands. */
struct nvme_cmd sim_cmd(uint8_t opcode, uint32_t nsid, uint32_t data_len);
struct nvme_cmd sim_rw(uint8_t opcode, uint64_t slba, uint32_t nr_lbas);
/* What the next pull brings: Connect data or other. */
extern struct nvme_connect_data sim_connect_data;
/* Who comes next; SIM_HOST and 7 at first. */
extern const char *sim_host;
extern uint8_t sim_hostid;
extern struct nvme_reservation_keys sim_pull_keys;
extern const void *sim_pull_message; /* of authentication */
struct nvme_cmd sim_connect(const char *subnqn, uint16_t qid, uint16_t sqsize, uint16_t cntlid);
/* Connects, and enables the controller; the connection must come up. */
struct sim_conn *sim_admin(struct sim *sim, const char *subnqn);
struct sim_conn *sim_queue(
	struct sim *sim, const struct sim_conn *admin, uint16_t qid, uint16_t depth);
/* What many tests start with, for cmocka's set-up and tear-down: *STATE is a host with an admin
 * queue of SIM_NQN and, unless DEPTH is 0, I/O queue 1. */
struct sim_host {
	struct sim *sim;
	struct sim_conn *admin, *queue;
};

int sim_host_start(void **state, unsigned nr_reactors, uint64_t memory_bytes, uint16_t depth);
int sim_host_end(void **state);
/* An asynchronous event request; returns its command id. */
uint16_t sim_ask_event(struct sim *sim, struct sim_conn *admin);
/* Get Log Page of a controller, which succeeds: admin->data has its start. LSP: with RAE. */
void sim_get_log(struct sim *sim, struct sim_conn *admin, uint8_t lid, uint64_t offset,
	uint32_t length, uint8_t lsp);
void sim_set_feature(struct sim *sim, struct sim_conn *admin, uint8_t fid, uint32_t value);
/* Property Set of CC; the second one runs it to its end. */
struct nvme_cmd sim_property_set_cc(uint32_t cc);
uint16_t sim_set_cc(struct sim *sim, struct sim_conn *admin, uint32_t cc);
uint16_t sim_cntlid(const struct sim_conn *admin);

#endif
