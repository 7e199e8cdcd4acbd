/* SPDX-License-Identifier: MIT */
/*
 * What one host may hold of what is finite, whatever it does, and that others go on.
 */
#include <stdlib.h>

#include "proto/link/address.h"
#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)
#define MIB    (1u << 20)

/* An I/O queue of host HOST, of the greatest depth. */
static struct sim_conn *host_queue(struct sim *sim, unsigned host, uint16_t qid)
{
	static struct sim_conn *admins[256];
	static struct sim *last;

	assert_true(host < ARRAY_SIZE(admins));
	if (last != sim || qid == 1) {
		sim->host = host;
		admins[host] = sim_admin(sim, SIM_NQN);
	}
	last = sim;
	sim->host = host;
	return sim_queue(sim, admins[host], qid, 128);
}

/* NR reads of NR_LBAS blocks, of which the disk is told as they get buffers. */
static void send_reads(struct sim *sim, struct sim_conn *sc, unsigned nr, uint32_t nr_lbas)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, nr_lbas);

	while (nr--)
		assert_true(sim_send(sim, sc, &cmd));
	sim_settle(sim);
}

/* Of its requests, those that have a buffer. */
static unsigned nr_with_buffer(const struct sim_conn *sc)
{
	unsigned nr = 0;

	for (uint32_t i = 0; i < sc->conn->slots.nr_touched; i++)
		nr += sc->conn->requests[i].buf != NULL;
	return nr;
}

/* A host that was not there before connects and is told what there is. */
static struct sim_conn *newcomer(struct sim *sim, unsigned host)
{
	struct nvme_cmd identify = sim_cmd(NVME_OPC_IDENTIFY, 0, 4096);
	struct sim_conn *admin;

	sim->host = host;
	admin = sim_admin(sim, SIM_NQN);
	identify.cdw10 = le32(1);
	assert_int_equal(sim_run(sim, admin, &identify), 0);
	return admin;
}

/* --- buffers --------------------------------------------------------------------------------- */

/* In MiB, of 32 and of a few that are kept for each size. */
static const struct {
	unsigned nr_hosts, nr_conns, least, most;
} part_cases[] = {
	{1, 1, 12, 16},
	{1, 8, 12, 16},
	{2, 1, 8, 16},
	{2, 4, 8, 16},
	{3, 1, 5, 16},
};

static void what_a_host_may_hold_does_not_depend_on_its_connections(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(part_cases); i++) {
		struct sim *sim = sim_create(1, MEMORY);
		struct sim_conn *all[4][8];
		unsigned nr_hosts = part_cases[i].nr_hosts, nr_all = 0;

		sim->auto_disk = false;
		for (unsigned host = 0; host < nr_hosts; host++)
			for (unsigned j = 0; j < part_cases[i].nr_conns; j++)
				all[host][j] = host_queue(sim, host, (uint16_t)(j + 1));
		/* All at once: none may be there first and have its half. */
		for (unsigned round = 0; round < 40; round++)
			for (unsigned host = 0; host < nr_hosts; host++)
				send_reads(sim, all[host][round % part_cases[i].nr_conns], 1, 2048);
		for (unsigned host = 0; host < nr_hosts; host++) {
			unsigned nr = 0;

			for (unsigned j = 0; j < part_cases[i].nr_conns; j++)
				nr += nr_with_buffer(all[host][j]);
			assert_in_range(nr, part_cases[i].least, part_cases[i].most);
			nr_all += nr;
		}
		assert_true(nr_all <= 32 * nr_hosts / (nr_hosts + 1));
		/* There is something left for one that comes, of any size. */
		send_reads(sim, host_queue(sim, 9, 1), 1, 2048);
		assert_int_equal(sim->nr_ios, nr_all + 1);
		newcomer(sim, 10);
		sim->auto_disk = true;
		sim_settle(sim);
		sim_destroy(sim);
	}
}

/* All that is given back is another one's, for whom nothing waits. */
static void who_waits_goes_on_with_what_others_give_back(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *first = host_queue(sim, 1, 1);
	struct sim_conn *second = host_queue(sim, 2, 1);
	unsigned held;

	(void)state;
	sim->auto_disk = false;
	send_reads(sim, first, 12, 2048);
	send_reads(sim, second, 20, 2048);
	assert_int_equal(nr_with_buffer(first), 12);
	held = nr_with_buffer(second);
	assert_in_range(held, 1, 10);
	/* The first one's are the first that the disk got. */
	for (unsigned i = 0; i < 12; i++) {
		assert_true(sim_do_io(sim, 0, 0));
		sim_settle(sim);
	}
	assert_int_equal(first->nr_replies, 1 + 12);
	assert_int_equal(second->nr_replies, 1);
	assert_in_range(nr_with_buffer(second), 12, 16);
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(second->nr_replies, 1 + 20);
	sim_destroy(sim);
}

static void send_writes(struct sim *sim, struct sim_conn *sc, unsigned nr, uint32_t nr_lbas)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, nr_lbas);

	while (nr--)
		assert_true(sim_send(sim, sc, &cmd));
	sim_settle(sim);
}

/* In one go: nothing more comes back after that. */
static void who_waits_goes_on_when_another_host_leaves(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *first = host_queue(sim, 1, 1);
	struct sim_conn *second = host_queue(sim, 2, 1);

	(void)state;
	sim->auto_pull = false;
	send_writes(sim, first, 12, 2048);
	send_writes(sim, second, 20, 2048);
	assert_in_range(nr_with_buffer(second), 1, 10);
	conn_close(first->conn, "test");
	sim_settle(sim);
	assert_null(first->conn);
	assert_in_range(nr_with_buffer(second), 12, 16);
	sim_destroy(sim);
}

/* More lines than are tried at once, and what they wait for comes back in one go. */
static void however_many_wait_all_go_on(void **state)
{
	enum { NR_HOSTS = 90 };
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *greedy = host_queue(sim, 200, 1);
	struct sim_conn *queues[NR_HOSTS];
	unsigned nr_waiting = 0;

	(void)state;
	for (unsigned host = 0; host < NR_HOSTS; host++)
		queues[host] = host_queue(sim, host, 1);
	sim->auto_pull = false;
	send_writes(sim, greedy, 104, 256);
	for (unsigned i = 0; i < 2 * NR_HOSTS; i++)
		send_writes(sim, queues[i % NR_HOSTS], 1, 256);
	for (unsigned host = 0; host < NR_HOSTS; host++)
		nr_waiting += nr_with_buffer(queues[host]) < 2;
	assert_true(nr_waiting > 64);
	conn_close(greedy->conn, "test");
	sim_settle(sim);
	for (unsigned host = 0; host < NR_HOSTS; host++)
		assert_int_equal(nr_with_buffer(queues[host]), 2);
	sim_destroy(sim);
}

/* The pool has but two of the largest, and those who hold nothing wait in its own line. */
static void closing_takes_a_request_out_of_the_pools_line(void **state)
{
	struct sim *sim = sim_create(1, TARGET_MIN_MEMORY_PER_REACTOR);
	struct sim_conn *queues[4];

	(void)state;
	for (unsigned host = 0; host < 4; host++)
		queues[host] = host_queue(sim, host, 1);
	sim->auto_disk = false;
	for (unsigned host = 0; host < 4; host++)
		send_reads(sim, queues[host], 1, 2048);
	assert_int_equal(sim->nr_ios, 2);
	conn_close(queues[2]->conn, "test");
	assert_int_equal(queues[2]->conn->nr_out, 0);
	sim_settle(sim);
	assert_null(queues[2]->conn);
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(queues[3]->nr_replies, 1 + 1);
	sim_destroy(sim);
}

/* At the smallest pool, with someone who has all there is of each other size. */
static void the_largest_command_is_always_possible(void **state)
{
	struct sim *sim = sim_create(1, TARGET_MIN_MEMORY_PER_REACTOR);
	struct sim_conn *greedy = host_queue(sim, 1, 1);
	struct sim_conn *other = host_queue(sim, 2, 1);
	static const uint32_t sizes[] = {8, 64, 256, 2048};

	(void)state;
	sim->auto_disk = false;
	for (unsigned i = 0; i < 120; i++)
		send_reads(sim, greedy, 1, sizes[i % ARRAY_SIZE(sizes)]);
	send_reads(sim, other, 1, 2048);
	assert_int_equal(nr_with_buffer(other), 1);
	/* Whatever is before it, the greedy one's largest come to their end, too. */
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(greedy->nr_replies, 1 + 120);
	assert_int_equal(other->nr_replies, 1 + 1);
	sim_destroy(sim);
}

/* Neither for the data of one host nor for that of so many that all is in use. */
static void connect_and_identify_wait_for_nobodys_data(void **state)
{
	static const uint32_t sizes[] = {8, 64, 256, 2048};
	struct sim *sim = sim_create(1, TARGET_MIN_MEMORY_PER_REACTOR);
	struct sim_conn *queues[40];
	unsigned nr_waiting = 0;

	(void)state;
	for (unsigned host = 0; host < ARRAY_SIZE(queues); host++)
		queues[host] = host_queue(sim, host, 1);
	sim->auto_disk = false;
	for (unsigned i = 0; i < 20; i++)
		for (unsigned host = 0; host < ARRAY_SIZE(queues); host++)
			send_reads(sim, queues[host], 1, sizes[i < 10 ? 0 : i % ARRAY_SIZE(sizes)]);
	for (unsigned host = 0; host < ARRAY_SIZE(queues); host++)
		nr_waiting += queues[host]->conn->nr_out - nr_with_buffer(queues[host]);
	assert_true(nr_waiting > 0);
	assert_false(bufpool_has(sim->target.reactors[0]->pool, BUFPOOL_SHELF_4K, 0, 16 * 4096));
	newcomer(sim, 200);
	sim->auto_disk = true;
	sim_settle(sim);
	sim_destroy(sim);
}

/* A host that never sends the data of its Connects has half of the reserve, at most. */
static void connects_without_data_hold_up_no_other_host(void **state)
{
	enum { NR = BUFPOOL_NR_RESERVED + 20 };
	struct sim *sim = sim_create(1, MEMORY);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);
	struct sim_conn *all[NR];
	unsigned nr = 0;

	(void)state;
	sim->auto_pull = false;
	sim->host = 1;
	for (unsigned i = 0; i < NR; i++) {
		all[i] = sim_accept(sim);
		assert_true(sim_send(sim, all[i], &cmd));
	}
	for (unsigned i = 0; i < NR; i++)
		nr += nr_with_buffer(all[i]);
	assert_in_range(nr, BUFPOOL_NR_RESERVED / 2 - 1, BUFPOOL_NR_RESERVED / 2);
	sim->host = 2;
	all[0] = sim_accept(sim);
	assert_true(sim_send(sim, all[0], &cmd));
	assert_true(sim_do_pull(all[0], 0));
	sim_settle(sim);
	assert_int_equal(nvme_cqe_status(&all[0]->last), 0);
	assert_int_equal(all[0]->nr_replies, 1);
	sim_destroy(sim);
}

/* --- controllers ----------------------------------------------------------------------------- */

static void a_host_may_not_have_the_last_controllers(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct reactor *reactor = sim->target.reactors[0];
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);
	struct sim_conn *mine[3];

	(void)state;
	/* As though others had all but six. */
	reactor->nr_ctrls += REACTOR_MAX_CTRLS - 6;
	sim->host = 1;
	for (unsigned i = 0; i < 3; i++)
		mine[i] = sim_admin(sim, SIM_NQN);
	assert_int_equal(sim_run(sim, sim_accept(sim), &cmd), NVME_SC_CONNECT_BUSY);
	sim->host = 2;
	sim_admin(sim, SIM_NQN);
	sim->host = 1;
	assert_int_equal(sim_run(sim, sim_accept(sim), &cmd), NVME_SC_CONNECT_BUSY);
	/* Those that end make room. */
	conn_close(mine[0]->conn, "test");
	conn_close(mine[1]->conn, "test");
	sim_settle(sim);
	sim_admin(sim, SIM_NQN);
	reactor->nr_ctrls -= REACTOR_MAX_CTRLS - 6;
	sim_destroy(sim);
}

/* --- connections ----------------------------------------------------------------------------- */

static void a_host_may_not_have_the_last_connections(void **state)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct sim_conn *mine[3];

	(void)state;
	sim->target.max_conns = 6;
	sim->host = 1;
	for (unsigned i = 0; i < 3; i++) {
		mine[i] = sim_accept(sim);
		assert_non_null(mine[i]);
	}
	assert_null(sim_accept(sim));
	sim->host = 2;
	assert_non_null(sim_accept(sim));
	sim->host = 3;
	assert_non_null(sim_accept(sim));
	sim->host = 1;
	for (unsigned i = 0; i < 3; i++)
		conn_close(mine[i]->conn, "test");
	sim_settle(sim);
	assert_non_null(sim_accept(sim));
	sim_destroy(sim);
}

/* --- who is one host ------------------------------------------------------------------------- */

static const struct {
	const char *one, *other;
	bool same;
} host_cases[] = {
	{"10.0.0.1", "10.0.0.1", true},
	{"10.0.0.1", "10.0.0.2", false},
	{"10.0.0.1", "::ffff:10.0.0.1", true},
	{"2001:db8::1", "2001:db8::ffff:1", true},
	{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
	{"fe80::1", "fe80::2", false},
	{"fe80::1", "fe80::1", true},
	{"::1", "10.0.0.1", false},
};

static struct sockaddr_storage address_of(const char *text)
{
	struct sockaddr_storage ret;

	assert_int_equal(address_resolve(text, 4420, AI_NUMERICHOST, &ret), 0);
	return ret;
}

static void a_host_is_an_address_or_an_ipv6_network(void **state)
{
	const uint64_t key[2] = {1, 2};
	struct share_table table;
	struct sockaddr_storage address;
	struct share *one, *other;

	(void)state;
	share_table_init(&table, NULL, NULL, key);
	for (size_t i = 0; i < ARRAY_SIZE(host_cases); i++) {
		address = address_of(host_cases[i].one);
		one = share_get(&table, &address);
		address = address_of(host_cases[i].other);
		other = share_get(&table, &address);
		assert_int_equal(one == other, host_cases[i].same);
		share_put(one);
		share_put(other);
	}
	share_table_destroy(&table);
}

/* --- deadlines ------------------------------------------------------------------------------- */

static const struct {
	uint8_t opcode;
	uint32_t nr_lbas;
	unsigned age_ms;
	bool ends;
} deadline_cases[] = {
	/* 30 s, and one for each 64 KiB. */
	{NVME_OPC_WRITE, 8, 30000, false},
	{NVME_OPC_WRITE, 8, 30100, true},
	{NVME_OPC_WRITE, 2048, 45500, false},
	{NVME_OPC_WRITE, 2048, 46100, true},
	{NVME_OPC_READ, 8, 30000, false},
	{NVME_OPC_READ, 8, 30100, true},
	{NVME_OPC_READ, 2048, 45500, false},
	{NVME_OPC_READ, 2048, 46100, true},
	{NVME_OPC_FLUSH, 0, 29500, false},
	{NVME_OPC_FLUSH, 0, 30100, true},
};

/* The clock is the loop's: the beginning of what moves is brought back instead. */
static void age(struct conn *conn, unsigned age_ms)
{
	struct request *request;

	list_for_each_entry (request, &conn->moving, moving)
		request->moving_since_ns -= age_ms * 1000000ull;
	loop_timer_set(conn->reactor->loop, &conn->transfer, loop_now_ns(conn->reactor->loop));
}

static void a_host_that_takes_too_long_for_its_part_is_ended(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(deadline_cases); i++) {
		struct sim *sim = sim_create(1, MEMORY);
		struct sim_conn *queue = host_queue(sim, 1, 1);
		struct nvme_cmd cmd =
			deadline_cases[i].nr_lbas
				? sim_rw(deadline_cases[i].opcode, 0, deadline_cases[i].nr_lbas)
				: sim_cmd(deadline_cases[i].opcode, 1, 0);

		sim->auto_pull = sim->auto_reply = false;
		assert_true(sim_send(sim, queue, &cmd));
		sim_settle(sim);
		assert_false(list_empty(&queue->conn->moving));
		assert_true(loop_timer_is_set(&queue->conn->transfer));
		age(queue->conn, deadline_cases[i].age_ms);
		sim_settle(sim);
		assert_int_equal(queue->conn == NULL, deadline_cases[i].ends);
		sim_destroy(sim);
	}
}

/* The first one to end is not the first one to have begun. */
static void the_earliest_deadline_counts(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *queue = host_queue(sim, 1, 1);
	struct nvme_cmd large = sim_rw(NVME_OPC_WRITE, 0, 2048);
	struct nvme_cmd small = sim_rw(NVME_OPC_WRITE, 0, 1);

	(void)state;
	sim->auto_pull = false;
	assert_true(sim_send(sim, queue, &large));
	assert_true(sim_send(sim, queue, &small));
	sim_settle(sim);
	age(queue->conn, 29000);
	sim_settle(sim);
	assert_non_null(queue->conn);
	/* Set for the small one. */
	assert_true(loop_timer_is_set(&queue->conn->transfer));
	assert_true(queue->conn->transfer.deadline_ns <
		    loop_now_ns(queue->conn->reactor->loop) + 2000000000ull);
	age(queue->conn, 2000);
	sim_settle(sim);
	assert_null(queue->conn);
	sim_destroy(sim);
}

/* An event request and what a disk has may take as long as they like. */
static void what_does_not_depend_on_the_host_has_no_deadline(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *queue = host_queue(sim, 1, 1);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, queue, &cmd));
	sim_settle(sim);
	assert_true(list_empty(&queue->conn->moving));
	age(queue->conn, 100000);
	sim_settle(sim);
	assert_non_null(queue->conn);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_int_equal(queue->nr_replies, 2);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_host_may_hold_does_not_depend_on_its_connections),
		cmocka_unit_test(who_waits_goes_on_with_what_others_give_back),
		cmocka_unit_test(who_waits_goes_on_when_another_host_leaves),
		cmocka_unit_test(however_many_wait_all_go_on),
		cmocka_unit_test(closing_takes_a_request_out_of_the_pools_line),
		cmocka_unit_test(the_largest_command_is_always_possible),
		cmocka_unit_test(connect_and_identify_wait_for_nobodys_data),
		cmocka_unit_test(connects_without_data_hold_up_no_other_host),
		cmocka_unit_test(a_host_may_not_have_the_last_controllers),
		cmocka_unit_test(a_host_may_not_have_the_last_connections),
		cmocka_unit_test(a_host_is_an_address_or_an_ipv6_network),
		cmocka_unit_test(a_host_that_takes_too_long_for_its_part_is_ended),
		cmocka_unit_test(the_earliest_deadline_counts),
		cmocka_unit_test(what_does_not_depend_on_the_host_has_no_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
