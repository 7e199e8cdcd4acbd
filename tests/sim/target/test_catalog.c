/* SPDX-License-Identifier: MIT */
/*
 * Catalogs change while hosts are connected and commands are out: just what has changed is felt.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/target/sim.h"

#define CATALOG_TEST(name) cmocka_unit_test_setup_teardown(name, setup, sim_host_end)
#define MEMORY		   (32ull << 20)
#define INACTIVE_NS	   (NVME_SC_INVALID_FIELD | NVME_STATUS_DNR)

static int setup(void **state)
{
	return sim_host_start(state, 2, MEMORY, 32);
}

static uint16_t read_ns(const struct sim_host *host, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);

	cmd.nsid = le32(nsid);
	return sim_run(host->sim, host->queue, &cmd);
}

static struct catalog *changed(const struct sim *sim)
{
	return catalog_clone(sim->target.catalog);
}

static void remove_ns(struct catalog *catalog, const char *nqn, uint32_t nsid)
{
	struct subsys *subsys = catalog_find(catalog, nqn);

	ns_place_put(subsys->ns[nsid]->place);
	free(subsys->ns[nsid]);
	subsys->ns[nsid] = NULL;
}

static void copy_that_changes_nothing_disturbs_nothing(void **state)
{
	struct sim_host *host = *state;
	uint64_t generation = host->sim->target.catalog->generation;

	assert_int_equal(sim_publish(host->sim, changed(host->sim)), 0);
	assert_int_equal(host->sim->target.catalog->generation, generation + 1);
	assert_int_equal(read_ns(host, 1), 0);
	assert_int_equal(read_ns(host, 3), 0);
	assert_non_null(host->admin->conn);
}

static void namespace_can_be_added(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);

	assert_int_equal(read_ns(host, 7), INACTIVE_NS);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 7, false);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(read_ns(host, 7), 0);
	assert_int_equal(read_ns(host, 1), 0);
}

static void namespace_can_be_removed_while_it_works(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);
	unsigned replies;

	host->sim->auto_disk = false;
	replies = host->queue->nr_replies;
	assert_true(sim_send(host->sim, host->queue, &cmd));
	sim_settle(host->sim);
	assert_int_equal(host->sim->nr_ios, 1);
	remove_ns(catalog, SIM_NQN, 1);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(host->queue->nr_replies, replies);
	assert_true(sim_do_io(host->sim, 0, 0));
	sim_settle(host->sim);
	assert_int_equal(host->queue->nr_replies, replies + 1);
	assert_int_equal(nvme_cqe_status(&host->queue->last), 0);
	host->sim->auto_disk = true;
	assert_int_equal(read_ns(host, 1), INACTIVE_NS);
	assert_int_equal(read_ns(host, 3), 0);
}

/* Its place may be given to another one only when no reactor knows it any more. */
static void place_is_used_again_when_the_last_command_is_over(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);
	uint32_t index = catalog_find(catalog, SIM_NQN)->ns[1]->place->index;

	host->sim->auto_disk = false;
	assert_true(sim_send(host->sim, host->queue, &cmd));
	sim_settle(host->sim);
	remove_ns(catalog, SIM_NQN, 1);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	catalog = changed(host->sim);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 8, false);
	assert_int_not_equal(catalog_find(catalog, SIM_NQN)->ns[8]->place->index, index);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	host->sim->auto_disk = true;
	sim_settle(host->sim);
	catalog = changed(host->sim);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 9, false);
	assert_int_equal(catalog_find(catalog, SIM_NQN)->ns[9]->place->index, index);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(read_ns(host, 8), 0);
	assert_int_equal(read_ns(host, 9), 0);
}

static void disk_may_come_back_before_its_last_command_is_over(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct backend *disk = catalog_find(catalog, SIM_NQN)->ns[1]->place->backend;
	const struct ns_options options = {.path = "one", .nsid = 1};
	const struct ns_options read_only = {.path = "one", .nsid = 1, .read_only = true};
	const struct ns_options blocks = {.path = "one", .nsid = 1, .block_bytes = 4096};
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);
	char why[256];

	free(disk->path);
	disk->path = strdup("one");
	host->sim->auto_disk = false;
	assert_true(sim_send(host->sim, host->queue, &cmd));
	sim_settle(host->sim);
	remove_ns(catalog, SIM_NQN, 1);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	catalog = changed(host->sim);
	assert_int_equal(
		catalog_add_ns(catalog, catalog_find(catalog, SIM_NQN), &blocks, why, sizeof(why)),
		-EBUSY);
	assert_int_equal(catalog_add_ns(catalog, catalog_find(catalog, SIM_NQN), &read_only, why,
				 sizeof(why)),
		0);
	remove_ns(catalog, SIM_NQN, 1);
	assert_int_equal(
		catalog_add_ns(catalog, catalog_find(catalog, SIM_NQN), &options, why, sizeof(why)),
		0);
	assert_ptr_equal(catalog_find(catalog, SIM_NQN)->ns[1]->place->backend, disk);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(ns_places_count(host->sim->target.catalog->places), 4);
	host->sim->auto_disk = true;
	sim_settle(host->sim);
	assert_int_equal(ns_places_count(host->sim->target.catalog->places), 3);
	assert_int_equal(read_ns(host, 1), 0);
}

static void size_and_write_protection_follow(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct nvme_cmd last = sim_rw(NVME_OPC_READ, SIM_LBAS - 8, 8);
	struct nvme_cmd write = sim_rw(NVME_OPC_WRITE, 0, 8);

	assert_int_equal(sim_run(host->sim, host->queue, &last), 0);
	assert_int_equal(sim_run(host->sim, host->queue, &write), 0);
	catalog_find(catalog, SIM_NQN)->ns[1]->nr_lbas -= 8;
	catalog_find(catalog, SIM_NQN)->ns[1]->read_only = true;
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(
		sim_run(host->sim, host->queue, &last), NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	assert_int_equal(sim_run(host->sim, host->queue, &write),
		NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR);
}

static void removed_subsystem_ends_its_controllers_only(void **state)
{
	struct sim_host *host = *state;
	struct sim_conn *other = sim_admin(host->sim, SIM_OTHER);
	struct catalog *catalog = changed(host->sim);

	subsys_free(catalog_find(catalog, SIM_NQN));
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	sim_settle(host->sim);
	assert_null(host->admin->conn);
	assert_null(host->queue->conn);
	assert_non_null(other->conn);
}

static void host_that_is_struck_off_is_sent_away(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	subsys->allow_any = false;
	assert_int_equal(subsys_allow_host(subsys, SIM_HOST), 0);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	sim_settle(host->sim);
	assert_non_null(host->admin->conn);
	catalog = changed(host->sim);
	catalog_find(catalog, SIM_NQN)->hosts.nr = 0;
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	sim_settle(host->sim);
	assert_null(host->admin->conn);
	assert_null(host->queue->conn);
}

static void removed_listener_ends_its_connections(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);

	port_put(catalog->port[--catalog->nr_ports]);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	sim_settle(host->sim);
	assert_null(host->admin->conn);
	assert_null(host->queue->conn);
	assert_int_equal(host->sim->port.nr_refs, 1);
	assert_false(host->sim->port.listening);
}

static void listener_that_fails_leaves_all_as_it_was(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct port port = {.ops = host->sim->port.ops, .nr_refs = 2, .portid = SIM_PORT_FAILS};

	list_init(&port.early);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 7, false);
	remove_ns(catalog, SIM_NQN, 3);
	catalog->port[catalog->nr_ports++] = &port;
	assert_int_equal(sim_publish(host->sim, catalog), -EADDRINUSE);
	assert_string_equal(host->sim->target.publish.why, "the port is told to fail");
	assert_int_equal(port.nr_refs, 1);
	assert_int_equal(read_ns(host, 7), INACTIVE_NS);
	assert_int_equal(read_ns(host, 3), 0);
	assert_non_null(sim_accept(host->sim));
	/* And nothing of it is in the way of the next one. */
	catalog = changed(host->sim);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 7, false);
	assert_int_equal(sim_publish(host->sim, catalog), 0);
	assert_int_equal(read_ns(host, 7), 0);
}

/* It had to make room for the one that fails. */
static void listener_that_was_to_go_serves_when_its_successor_fails(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct port port = {.ops = host->sim->port.ops, .nr_refs = 2, .portid = SIM_PORT_FAILS};

	list_init(&port.early);
	port_put(catalog->port[0]);
	catalog->port[0] = &port;
	assert_int_equal(sim_publish(host->sim, catalog), -EADDRINUSE);
	assert_true(host->sim->port.listening);
	assert_non_null(sim_accept(host->sim));
	assert_int_equal(read_ns(host, 1), 0);
}

static void disk_that_no_reactor_can_open_leaves_all_as_it_was(void **state)
{
	struct sim_host *host = *state;
	struct catalog *catalog = changed(host->sim);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	sim_add_ns(catalog, subsys, 7, false);
	sim_add_ns(catalog, subsys, 8, false);
	host->sim->attaches_left = 3; /* of four: the second reactor fails at the second */
	assert_int_equal(sim_publish(host->sim, catalog), -EMFILE);
	host->sim->attaches_left = UINT32_MAX;
	assert_int_equal(read_ns(host, 7), INACTIVE_NS);
	assert_int_equal(read_ns(host, 1), 0);
}

/* Who comes before all reactors have switched waits, and then finds what there is. */
static void early_host_waits_for_the_switch(void **state)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct sim_conn *sc;

	(void)state;
	sim->port.open = false;
	sc = sim_accept(sim);
	assert_null(sc);
	assert_int_equal(sim->port.nr_early, 1);
	assert_int_equal(sim_publish(sim, changed(sim)), 0);
	sim_settle(sim);
	assert_non_null(sim->conns[0].conn);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CATALOG_TEST(copy_that_changes_nothing_disturbs_nothing),
		CATALOG_TEST(namespace_can_be_added),
		CATALOG_TEST(namespace_can_be_removed_while_it_works),
		CATALOG_TEST(place_is_used_again_when_the_last_command_is_over),
		CATALOG_TEST(disk_may_come_back_before_its_last_command_is_over),
		CATALOG_TEST(size_and_write_protection_follow),
		CATALOG_TEST(removed_subsystem_ends_its_controllers_only),
		CATALOG_TEST(host_that_is_struck_off_is_sent_away),
		CATALOG_TEST(removed_listener_ends_its_connections),
		CATALOG_TEST(listener_that_fails_leaves_all_as_it_was),
		CATALOG_TEST(listener_that_was_to_go_serves_when_its_successor_fails),
		CATALOG_TEST(disk_that_no_reactor_can_open_leaves_all_as_it_was),
		cmocka_unit_test(early_host_waits_for_the_switch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
