/* SPDX-License-Identifier: MIT */
/*
 * Who belongs to an association, how long it lives without a word, what Abort finds, and that
 * nothing of an old one lands after the new one's data.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

/* --- who belongs ----------------------------------------------------------------------------- */

static void queue_joins_at_the_port_of_its_admin_queue_only(void **state)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct port other = sim->port;
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 1, 7, sim_cntlid(admin));
	struct sim_conn *queue;

	(void)state;
	other.portid = 2;
	list_init(&other.early);
	queue = sim_accept_at(sim, &other);
	assert_int_equal(
		sim_run(sim, queue, &cmd), NVME_SC_CONNECT_INVALID_PARAM | NVME_STATUS_DNR);
	assert_int_equal(le16_get(queue->last.connect_invalid.ipo),
		offsetof(struct nvme_connect_data, cntlid));
	assert_int_equal(queue->last.connect_invalid.iattr, NVME_CONNECT_IATTR_DATA);
	assert_non_null(sim_queue(sim, admin, 1, 8));
	sim_destroy(sim);
}

/* --- keep-alive ------------------------------------------------------------------------------ */

struct life {
	struct sim *sim;
	struct sim_conn *admin;
	struct ctrl *ctrl;
	struct sim_conn *queue[2];
};

static void life_start(struct life *life, uint32_t kato_ms, unsigned nr_queues)
{
	life->sim = sim_create(3, MEMORY);
	life->admin = sim_admin(life->sim, SIM_NQN);
	life->ctrl = life->admin->conn->member.ctrl;
	ctrl_set_kato(life->ctrl, kato_ms);
	for (unsigned i = 0; i < nr_queues; i++)
		life->queue[i] = sim_queue(life->sim, life->admin, (uint16_t)(i + 1), 8);
}

/* MS later the timer rings, and all that it asks is answered. */
static void life_pass(struct life *life, uint64_t ms)
{
	life->ctrl->alive_ns -= ms * NS_PER_MS;
	life->ctrl->keep_alive.expired(&life->ctrl->keep_alive);
	sim_settle(life->sim);
}

static void life_io(struct life *life, unsigned queue)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);

	assert_int_equal(sim_run(life->sim, life->queue[queue], &cmd), 0);
}

static void io_on_any_queue_keeps_the_association(void **state)
{
	struct life life;

	(void)state;
	life_start(&life, 2000, 2);
	life_pass(&life, 0); /* the Connects have been heard of */
	for (unsigned i = 0; i < 10; i++) {
		life_io(&life, i % 2);
		life_pass(&life, 5000);
		assert_non_null(life.admin->conn);
		assert_true(loop_timer_is_set(&life.ctrl->keep_alive));
	}
	sim_destroy(life.sim);
}

static void silence_on_all_queues_ends_it_after_kato(void **state)
{
	struct life life;

	(void)state;
	life_start(&life, 2000, 2);
	life_io(&life, 1);
	life_pass(&life, 0);
	life_pass(&life, 1900);
	assert_non_null(life.admin->conn);
	life_pass(&life, 1000);
	assert_null(life.admin->conn);
	assert_null(life.queue[0]->conn);
	assert_null(life.queue[1]->conn);
	sim_destroy(life.sim);
}

static void queues_are_asked_four_times_in_kato(void **state)
{
	struct life life;
	uint64_t now_ns;

	(void)state;
	life_start(&life, 8000, 1);
	life_pass(&life, 0);
	now_ns = loop_now_ns(life.ctrl->reactor->loop);
	assert_true(life.ctrl->keep_alive.deadline_ns <= now_ns + 2200 * NS_PER_MS);
	sim_destroy(life.sim);
	/* Without queues there is nobody to ask. */
	life_start(&life, 8000, 0);
	life_pass(&life, 0);
	now_ns = loop_now_ns(life.ctrl->reactor->loop);
	assert_true(life.ctrl->keep_alive.deadline_ns >= now_ns + 7900 * NS_PER_MS);
	sim_destroy(life.sim);
}

static void host_with_an_admin_queue_only_still_expires(void **state)
{
	struct life life;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_KEEP_ALIVE, 0, 0);

	(void)state;
	life_start(&life, 1000, 0);
	life_pass(&life, 1000);
	assert_non_null(life.admin->conn);
	assert_int_equal(sim_run(life.sim, life.admin, &cmd), 0);
	/* One that is refused is a sign of life, too. */
	life.ctrl->alive_ns -= 5000 * NS_PER_MS;
	cmd = sim_cmd(0xfe, 0, 0);
	assert_int_equal(
		sim_run(life.sim, life.admin, &cmd), NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR);
	life_pass(&life, 1000);
	assert_non_null(life.admin->conn);
	life_pass(&life, 1000);
	assert_null(life.admin->conn);
	sim_destroy(life.sim);
}

static void kato_may_change_and_cease(void **state)
{
	struct life life;

	(void)state;
	life_start(&life, 1, 1);
	assert_int_equal(life.ctrl->kato_ms, CTRL_KAS_MS);
	ctrl_set_kato(life.ctrl, UINT32_MAX);
	assert_true(life.ctrl->kato_ms <= UINT32_MAX / CTRL_KAS_MS * CTRL_KAS_MS);
	life_pass(&life, 60000);
	assert_non_null(life.admin->conn);
	ctrl_set_kato(life.ctrl, 0);
	assert_false(loop_timer_is_set(&life.ctrl->keep_alive));
	life_pass(&life, 600000);
	assert_non_null(life.admin->conn);
	ctrl_set_kato(life.ctrl, 1000);
	life_pass(&life, 0);
	life_pass(&life, 2000);
	assert_null(life.admin->conn);
	sim_destroy(life.sim);
}

static void queues_may_go_while_they_are_asked(void **state)
{
	struct life life;

	(void)state;
	for (unsigned turns = 0; turns < 4; turns++) {
		life_start(&life, 1000, 2);
		life_pass(&life, 0);
		life_io(&life, 0);
		life.ctrl->alive_ns -= 2000 * NS_PER_MS;
		if (turns & 1)
			conn_close(life.queue[0]->conn, "test");
		life.ctrl->keep_alive.expired(&life.ctrl->keep_alive);
		for (unsigned i = 0; i < turns; i++)
			loop_turn(life.queue[1]->conn->reactor->loop);
		if (!(turns & 1))
			conn_close(life.queue[0]->conn, "test");
		conn_close(life.queue[1]->conn, "test");
		sim_settle(life.sim);
		/* What it did before it closed counts. */
		assert_non_null(life.admin->conn);
		assert_int_equal(life.ctrl->nr_asked, 0);
		assert_null(life.queue[0]->conn);
		sim_destroy(life.sim);
	}
}

static void controller_may_end_while_its_queues_are_asked(void **state)
{
	struct life life;

	(void)state;
	life_start(&life, 1000, 2);
	life.ctrl->keep_alive.expired(&life.ctrl->keep_alive);
	assert_int_equal(life.ctrl->nr_asked, 2);
	conn_close(life.admin->conn, "test");
	sim_settle(life.sim);
	assert_null(life.admin->conn);
	sim_destroy(life.sim);
}

static void silent_discovery_controller_ends(void **state)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct life life = {.sim = sim, .admin = sim_admin(sim, NVME_DISCOVERY_NQN)};

	(void)state;
	life.ctrl = life.admin->conn->member.ctrl;
	life_pass(&life, CTRL_DISCOVERY_IDLE_MS - 1000);
	assert_non_null(life.admin->conn);
	life_pass(&life, 1001);
	assert_null(life.admin->conn);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_joins_at_the_port_of_its_admin_queue_only),
		cmocka_unit_test(io_on_any_queue_keeps_the_association),
		cmocka_unit_test(silence_on_all_queues_ends_it_after_kato),
		cmocka_unit_test(queues_are_asked_four_times_in_kato),
		cmocka_unit_test(host_with_an_admin_queue_only_still_expires),
		cmocka_unit_test(kato_may_change_and_cease),
		cmocka_unit_test(queues_may_go_while_they_are_asked),
		cmocka_unit_test(controller_may_end_while_its_queues_are_asked),
		cmocka_unit_test(silent_discovery_controller_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
