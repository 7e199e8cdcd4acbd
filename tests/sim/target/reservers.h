/* SPDX-License-Identifier: MIT */
/*
 * Three hosts, their queues spread over the reactors, that reserve namespaces.
 */
#ifndef HAUL_TESTS_SIM_TARGET_RESERVERS_H
#define HAUL_TESTS_SIM_TARGET_RESERVERS_H

#include "tests/sim/target/sim.h"

#define MEMORY	 (32ull << 20)
#define CONFLICT (NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR)
#define NR_HOSTS 3

struct host {
	struct sim_conn *admin, *queue;
	uint64_t key;
};

struct fixture {
	struct sim *sim;
	struct host hosts[NR_HOSTS];
	uint32_t nsid; /* that commands are for */
};

struct fixture setup(void);
void send_keys(struct fixture *fixture, struct host *host, uint8_t opcode, uint32_t word,
	uint64_t current, uint64_t key);
uint16_t run(struct fixture *fixture, struct host *host, uint8_t opcode, uint32_t word,
	uint64_t current, uint64_t key);
void must_register(struct fixture *fixture, struct host *host);
uint16_t acquire(struct fixture *fixture, struct host *host, unsigned type, unsigned action,
	uint64_t preempted);
uint16_t release(struct fixture *fixture, struct host *host, unsigned type, unsigned action);

#endif
