/* SPDX-License-Identifier: MIT */
/*
 * Hosts that connect under the name of one that is there, where a subsystem refuses that.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/target/sim.h"

#define MEMORY	    (32ull << 20)
#define DUP_ANOTHER 9 /* a host identifier */

static struct sim *dup_create(unsigned nr_reactors)
{
	struct sim *sim = sim_create(nr_reactors, MEMORY);
	struct catalog *catalog = catalog_clone(sim->target.catalog);

	catalog_find(catalog, SIM_NQN)->one_association = true;
	assert_int_equal(sim_publish(sim, catalog), 0);
	return sim;
}

/* Those that find one there are refused at once. */
static struct sim *dup_create_hasty(unsigned nr_reactors)
{
	struct sim *sim = dup_create(nr_reactors);

	sim->target.reactors[0]->associations.wait_ns = 0;
	return sim;
}

/* A new admin queue of SUBNQN; its Connect is sent and may wait. */
static struct sim_conn *dup_begin(struct sim *sim, const char *subnqn)
{
	struct sim_conn *sc = sim_accept(sim);
	struct nvme_cmd cmd = sim_connect(subnqn, 0, 31, NVME_CNTLID_DYNAMIC);

	assert_true(sim_send(sim, sc, &cmd));
	sim_settle(sim);
	return sc;
}

static uint16_t dup_status(const struct sim_conn *sc)
{
	assert_int_equal(sc->nr_replies, 1);
	return nvme_cqe_status(&sc->last);
}

static void dup_close(struct sim *sim, struct sim_conn *sc)
{
	conn_close(sc->conn, "the host has gone");
	sim_settle(sim);
	assert_null(sc->conn);
}

static void second_of_a_host_is_refused_and_others_are_not(void **state)
{
	(void)state;
	for (unsigned nr_reactors = 1; nr_reactors <= 3; nr_reactors++) {
		struct sim *sim = dup_create_hasty(nr_reactors);
		struct sim_conn *first = dup_begin(sim, SIM_NQN);

		assert_int_equal(dup_status(first), 0);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), NVME_SC_CONNECT_BUSY);
		assert_int_equal(dup_status(dup_begin(sim, SIM_OTHER)), 0);
		assert_int_equal(dup_status(dup_begin(sim, SIM_OTHER)), 0);
		assert_int_equal(dup_status(dup_begin(sim, NVME_DISCOVERY_NQN)), 0);
		sim_hostid = DUP_ANOTHER;
		assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
		sim_hostid = 7;
		sim_host = SIM_HOST ":twin";
		assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
		sim_host = SIM_HOST;
		assert_int_equal(sim_set_cc(sim, first, SIM_CC_ENABLE), 0);
		dup_close(sim, first);
		assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
		sim_destroy(sim);
	}
}

static void other_listeners_and_addresses_are_other_paths(void **state)
{
	struct sim *sim = dup_create_hasty(2);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);
	struct sockaddr_in *address = (struct sockaddr_in *)&sim->port.address;
	struct port other = sim->port;
	struct sim_conn *sc;

	(void)state;
	other.portid = 2;
	list_init(&other.early);
	assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
	sc = sim_accept_at(sim, &other);
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	sc = sim_accept_at(sim, &other);
	assert_int_equal(sim_run(sim, sc, &cmd), NVME_SC_CONNECT_BUSY);
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
	assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), NVME_SC_CONNECT_BUSY);
	sim_destroy(sim);
}

static void host_that_comes_back_waits_for_its_old_controller(void **state)
{
	struct sim *sim = dup_create(3);
	struct sim_conn *first = dup_begin(sim, SIM_NQN), *second, *third;

	(void)state;
	second = dup_begin(sim, SIM_NQN);
	third = dup_begin(sim, SIM_NQN);
	assert_int_equal(second->nr_replies + third->nr_replies, 0);
	dup_close(sim, first);
	assert_int_equal(dup_status(second), 0);
	assert_int_equal(third->nr_replies, 0);
	/* One that went while it waited takes nothing with it. */
	conn_close(third->conn, "the host has gone");
	dup_close(sim, second);
	assert_null(third->conn);
	assert_true(list_empty(&sim->target.reactors[0]->associations.held));
	assert_int_equal(dup_status(dup_begin(sim, SIM_NQN)), 0);
	sim_destroy(sim);
}

static void a_second_connect_on_a_queue_that_waits_is_out_of_sequence(void **state)
{
	struct sim *sim = dup_create(2);
	struct sim_conn *first = dup_begin(sim, SIM_NQN), *second = dup_begin(sim, SIM_NQN);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);

	(void)state;
	/* Over RDMA the queue's depth is known before Connect. */
	assert_int_equal(conn_set_depth(second->conn, 32), 0);
	assert_int_equal(sim_run(sim, second, &cmd), NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
	dup_close(sim, first);
	assert_int_equal(second->nr_replies, 2);
	assert_int_equal(nvme_cqe_status(&second->last), 0);
	sim_destroy(sim);
}

static void what_changed_while_it_waited_counts(void **state)
{
	struct sim *sim = dup_create(2);
	struct sim_conn *first = dup_begin(sim, SIM_NQN), *second = dup_begin(sim, SIM_NQN);
	struct catalog *catalog = catalog_clone(sim->target.catalog);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	(void)state;
	subsys->allow_any = false;
	assert_int_equal(sim_publish(sim, catalog), 0);
	assert_null(first->conn);
	assert_int_equal(dup_status(second), NVME_SC_CONNECT_INVALID_HOST | NVME_STATUS_DNR);
	assert_true(list_empty(&sim->target.reactors[0]->associations.held));
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(second_of_a_host_is_refused_and_others_are_not),
		cmocka_unit_test(other_listeners_and_addresses_are_other_paths),
		cmocka_unit_test(host_that_comes_back_waits_for_its_old_controller),
		cmocka_unit_test(a_second_connect_on_a_queue_that_waits_is_out_of_sequence),
		cmocka_unit_test(what_changed_while_it_waited_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
