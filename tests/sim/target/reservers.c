/* SPDX-License-Identifier: MIT */
/*
 * What hosts that reserve namespaces send.
 */
#include "tests/sim/target/reservers.h"

#include <string.h>

static struct sim_conn *connect_as(
	struct sim *sim, unsigned number, uint16_t qid, uint16_t cntlid, uint16_t sqsize)
{
	struct sim_conn *sc = sim_accept(sim);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, qid, sqsize, cntlid);

	memset(sim_connect_data.hostid, (int)number, sizeof(sim_connect_data.hostid));
	assert_non_null(sc);
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	return sc;
}

static struct host host_as(struct sim *sim, unsigned number)
{
	struct host host = {.key = 0x100 + number};

	host.admin = connect_as(sim, number, 0, NVME_CNTLID_DYNAMIC, 31);
	assert_int_equal(sim_set_cc(sim, host.admin, SIM_CC_ENABLE), 0);
	host.queue = connect_as(sim, number, 1, sim_cntlid(host.admin), 63);
	return host;
}

/* Hosts 1 to 3, their queues spread over the reactors. */
struct fixture setup(void)
{
	struct fixture fixture = {.sim = sim_create(3, MEMORY), .nsid = 1};

	for (unsigned i = 0; i < NR_HOSTS; i++)
		fixture.hosts[i] = host_as(fixture.sim, i + 1);
	return fixture;
}

void send_keys(struct fixture *fixture, struct host *host, uint8_t opcode, uint32_t word,
	uint64_t current, uint64_t key)
{
	struct nvme_cmd cmd =
		sim_cmd(opcode, fixture->nsid, opcode == NVME_OPC_RESERVATION_RELEASE ? 8 : 16);

	cmd.cdw10 = le32(word);
	sim_pull_keys = (struct nvme_reservation_keys){le64(current), le64(key)};
	assert_true(sim_send(fixture->sim, host->queue, &cmd));
}

uint16_t run(struct fixture *fixture, struct host *host, uint8_t opcode, uint32_t word,
	uint64_t current, uint64_t key)
{
	unsigned before = host->queue->nr_replies;

	send_keys(fixture, host, opcode, word, current, key);
	sim_settle(fixture->sim);
	assert_int_equal(host->queue->nr_replies, before + 1);
	return nvme_cqe_status(&host->queue->last);
}

void must_register(struct fixture *fixture, struct host *host)
{
	assert_int_equal(run(fixture, host, NVME_OPC_RESERVATION_REGISTER, 0, 0, host->key), 0);
}

uint16_t acquire(struct fixture *fixture, struct host *host, unsigned type, unsigned action,
	uint64_t preempted)
{
	return run(fixture, host, NVME_OPC_RESERVATION_ACQUIRE, action | type << 8, host->key,
		preempted);
}

uint16_t release(struct fixture *fixture, struct host *host, unsigned type, unsigned action)
{
	return run(fixture, host, NVME_OPC_RESERVATION_RELEASE, action | type << 8, host->key, 0);
}
