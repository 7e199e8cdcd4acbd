/* SPDX-License-Identifier: MIT */
/*
 * NVM Subsystem Reset: in each stage of a controller, and with commands at the disk.
 */
#include "tests/sim/target/sim.h"

#define RESET_TEST(name) cmocka_unit_test_setup_teardown(name, setup, sim_host_end)
#define MEMORY		 (32ull << 20)

static int setup(void **state)
{
	return sim_host_start(state, 2, MEMORY, 32);
}

/* What the control thread publishes then. */
static void reset(struct sim *sim, const char *nqn)
{
	struct catalog *catalog = catalog_clone(sim->target.catalog);

	catalog_find(catalog, nqn)->nr_resets++;
	assert_int_equal(sim_publish(sim, catalog), 0);
}

static uint32_t csts(const struct sim_conn *admin)
{
	return ctrl_csts(admin->conn->member.ctrl);
}

static void a_reset_is_over_when_the_disk_has_given_all_back(void **state)
{
	struct sim_host *host = *state;
	struct nvme_cmd write = sim_rw(NVME_OPC_WRITE, 0, 8);
	unsigned replies = host->queue->nr_replies;

	host->sim->auto_disk = false;
	assert_true(sim_send(host->sim, host->queue, &write));
	sim_settle(host->sim);
	reset(host->sim, SIM_NQN);
	sim_settle(host->sim);
	assert_int_equal(csts(host->admin), NVME_CSTS_RDY | NVME_CSTS_NSSRO);
	assert_int_equal(host->admin->conn->member.ctrl->cc, 0);
	assert_true(sim_do_io(host->sim, 0, 0));
	sim_settle(host->sim);
	assert_null(host->queue->conn);
	assert_int_equal(host->queue->nr_replies, replies);
	assert_int_equal(csts(host->admin), NVME_CSTS_NSSRO);
	assert_int_equal(sim_set_cc(host->sim, host->admin, SIM_CC_ENABLE), 0);
	assert_int_equal(csts(host->admin), NVME_CSTS_RDY | NVME_CSTS_NSSRO);
}

static void other_subsystems_are_left_alone(void **state)
{
	struct sim_host *host = *state;
	struct nvme_cmd read = sim_rw(NVME_OPC_READ, 0, 8);

	reset(host->sim, SIM_OTHER);
	assert_int_equal(csts(host->admin), NVME_CSTS_RDY);
	assert_int_equal(sim_run(host->sim, host->queue, &read), 0);
}

static void controllers_that_are_not_ready_are_reset_too(void **state)
{
	struct sim_host *host = *state;
	struct sim_conn *shut = sim_admin(host->sim, SIM_NQN), *off = sim_admin(host->sim, SIM_NQN);
	struct sim_conn *failed = sim_admin(host->sim, SIM_NQN);

	assert_int_equal(sim_set_cc(host->sim, shut,
				 SIM_CC_ENABLE | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT),
		0);
	assert_int_equal(sim_set_cc(host->sim, off, 0), 0);
	assert_int_equal(sim_set_cc(host->sim, failed, 0), 0);
	assert_int_equal(sim_set_cc(host->sim, failed, NVME_CC_EN), 0);
	assert_int_equal(csts(failed), NVME_CSTS_CFS);
	reset(host->sim, SIM_NQN);
	assert_int_equal(csts(shut), NVME_CSTS_NSSRO);
	assert_int_equal(csts(off), NVME_CSTS_NSSRO);
	assert_int_equal(csts(failed), NVME_CSTS_NSSRO);
	assert_int_equal(sim_set_cc(host->sim, failed, SIM_CC_ENABLE), 0);
	assert_int_equal(csts(failed), NVME_CSTS_RDY | NVME_CSTS_NSSRO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RESET_TEST(a_reset_is_over_when_the_disk_has_given_all_back),
		RESET_TEST(other_subsystems_are_left_alone),
		RESET_TEST(controllers_that_are_not_ready_are_reset_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
