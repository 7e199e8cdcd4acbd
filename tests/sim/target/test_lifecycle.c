/* SPDX-License-Identifier: MIT */
/*
 * Requests, connections and controllers from their start to their end, in every order: each
 * request is freed exactly once, nothing is answered twice or on a dead connection, nothing stays.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

static struct sim *setup(void)
{
	return sim_create(2, MEMORY);
}

static struct nvme_cmd aer(void)
{
	return sim_cmd(NVME_OPC_ASYNC_EVENT_REQUEST, 0, 0);
}

/* --- close in each state --------------------------------------------------------------------- */

struct stop_case {
	const char *name;
	uint8_t opcode;
	bool hold_pull, hold_disk, hold_reply;
	enum request_state state;
};

static const struct stop_case stop_cases[] = {
	{"read in EXEC", NVME_OPC_READ, false, true, false, REQUEST_EXEC},
	{"read in REPLY", NVME_OPC_READ, false, false, true, REQUEST_REPLY},
	{"write in PULL", NVME_OPC_WRITE, true, false, false, REQUEST_PULL},
	{"write in EXEC", NVME_OPC_WRITE, false, true, false, REQUEST_EXEC},
	{"write in REPLY", NVME_OPC_WRITE, false, false, true, REQUEST_REPLY},
	{"flush in EXEC", NVME_OPC_FLUSH, false, true, false, REQUEST_EXEC},
};

/* What comes first: the disk's answer or the transport's end. */
static void close_in_state(const struct stop_case *stop, bool disk_first)
{
	struct sim *sim = setup();
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *queue = sim_queue(sim, admin, 1, 32);
	struct nvme_cmd cmd = stop->opcode == NVME_OPC_FLUSH ? sim_cmd(NVME_OPC_FLUSH, 1, 0)
							     : sim_rw(stop->opcode, 0, 8);
	unsigned replies = queue->nr_replies;

	sim->auto_pull = !stop->hold_pull;
	sim->auto_disk = !stop->hold_disk;
	sim->auto_reply = !stop->hold_reply;
	sim->auto_quiesce = false;
	assert_true(sim_send(sim, queue, &cmd));
	sim_settle(sim);
	assert_int_equal(queue->conn->nr_out, 1);
	assert_int_equal(queue->conn->requests[0].state, stop->state);
	conn_close(queue->conn, "test");
	conn_close(queue->conn, "again");
	sim_settle(sim);
	assert_non_null(queue->conn);
	if (disk_first && stop->hold_disk) {
		assert_true(sim_do_io(sim, 0, 0));
		sim_settle(sim);
		assert_non_null(queue->conn);
	}
	assert_true(sim_do_quiesce(queue));
	sim_settle(sim);
	if (!disk_first && stop->hold_disk) {
		assert_non_null(queue->conn);
		assert_true(sim_do_io(sim, 0, -EIO));
		sim_settle(sim);
	}
	assert_null(queue->conn);
	assert_int_equal(queue->nr_replies, replies + (stop->state == REQUEST_REPLY));
	assert_non_null(admin->conn);
	sim_destroy(sim);
}

static void closing_in_each_state_frees_the_request_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(stop_cases); i++) {
		print_message("  %s\n", stop_cases[i].name);
		close_in_state(&stop_cases[i], true);
		close_in_state(&stop_cases[i], false);
	}
}

static void closing_frees_held_event_requests(void **state)
{
	struct sim *sim = setup();
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct nvme_cmd cmd = aer();

	(void)state;
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		assert_true(sim_send(sim, admin, &cmd));
	sim_settle(sim);
	assert_int_equal(admin->conn->nr_out, CTRL_MAX_AERS);
	conn_close(admin->conn, "test");
	sim_settle(sim);
	assert_null(admin->conn);
	sim_destroy(sim);
}

static unsigned waiting_of(const struct sim_conn *sc)
{
	struct request *request;
	unsigned nr = 0;

	list_for_each_entry (request, &sc->conn->waiting, node)
		nr++;
	return nr;
}

static void closing_takes_waiting_requests_out_of_their_line(void **state)
{
	struct sim *sim = sim_create(1, TARGET_MIN_MEMORY_PER_REACTOR);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *one = sim_queue(sim, admin, 1, 32);
	struct sim_conn *two = sim_queue(sim, admin, 2, 32);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 2048);
	unsigned waiting;

	(void)state;
	sim->auto_disk = false;
	for (unsigned i = 0; i < 16; i++) {
		assert_true(sim_send(sim, one, &cmd));
		assert_true(sim_send(sim, two, &cmd));
	}
	sim_settle(sim);
	waiting = 32 - sim->nr_ios;
	assert_true(waiting > 0);
	conn_close(one->conn, "test");
	assert_int_equal(one->conn->nr_out, sim->nr_ios - (two->conn->nr_out - waiting_of(two)));
	while (sim_do_io(sim, 0, 0))
		sim_settle(sim);
	assert_null(one->conn);
	assert_int_equal(two->nr_replies, 1 + 16);
	sim_destroy(sim);
}

/* --- bounds ---------------------------------------------------------------------------------- */

static void more_commands_than_the_queue_holds_are_refused(void **state)
{
	struct sim *sim = setup();
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *queue = sim_queue(sim, admin, 1, 8);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);

	(void)state;
	sim->auto_disk = false;
	for (unsigned i = 0; i < 8; i++)
		assert_true(sim_send(sim, queue, &cmd));
	assert_false(sim_send(sim, queue, &cmd));
	/* Answered but not yet seen to be sent: the host may send again (slots are 2 x depth). */
	sim->auto_reply = false;
	while (sim_do_io(sim, 0, 0))
		;
	for (unsigned i = 0; i < 8; i++)
		assert_true(sim_send(sim, queue, &cmd));
	assert_false(sim_send(sim, queue, &cmd));
	sim_destroy(sim);
}

/* --- controllers and their queues ------------------------------------------------------------ */

static void end_of_the_admin_queue_ends_all_queues(void **state)
{
	struct sim *sim = sim_create(3, MEMORY);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *queues[6];
	struct sim_conn *other = sim_admin(sim, SIM_OTHER);
	struct sim_conn *stranger = sim_queue(sim, other, 1, 8);

	(void)state;
	for (uint16_t i = 0; i < 6; i++)
		queues[i] = sim_queue(sim, admin, i + 1, 8);
	conn_close(admin->conn, "test");
	sim_settle(sim);
	assert_null(admin->conn);
	for (unsigned i = 0; i < 6; i++)
		assert_null(queues[i]->conn);
	assert_non_null(stranger->conn);
	sim_destroy(sim);
}

static void controller_waits_for_the_io_of_its_queues(void **state)
{
	struct sim *sim = sim_create(3, MEMORY);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *queue = sim_queue(sim, admin, 1, 8);
	uint16_t cntlid = sim_cntlid(admin);
	struct reactor *owner = admin->conn->reactor;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, queue, &cmd));
	sim_settle(sim);
	conn_close(admin->conn, "test");
	sim_settle(sim);
	assert_null(admin->conn);
	assert_non_null(queue->conn);
	assert_non_null(owner->ctrls[(cntlid - 1) / 3]);
	assert_null(ctrl_find(owner, cntlid));
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_null(queue->conn);
	assert_null(owner->ctrls[(cntlid - 1) / 3]);
	sim_destroy(sim);
}

/* A queue, and the connection that is to become one with the same id. */
struct two_queues {
	struct sim *sim;
	struct sim_conn *admin, *old, *new;
};

static struct two_queues two_queues_start(void)
{
	struct two_queues two = {.sim = setup()};

	two.admin = sim_admin(two.sim, SIM_NQN);
	two.old = sim_queue(two.sim, two.admin, 1, 8);
	two.new = sim_accept(two.sim);
	return two;
}

static void two_queues_connect(struct two_queues *two)
{
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 1, 7, sim_cntlid(two->admin));

	assert_true(sim_send(two->sim, two->new, &cmd));
}

static void queue_id_in_use_waits_for_a_queue_that_closes(void **state)
{
	struct two_queues two = two_queues_start();

	(void)state;
	two.sim->auto_quiesce = false;
	conn_close(two.old->conn, "test");
	sim_settle(two.sim);
	two_queues_connect(&two);
	sim_settle(two.sim);
	assert_int_equal(two.new->nr_replies, 0);
	assert_true(sim_do_quiesce(two.old));
	sim_settle(two.sim);
	assert_null(two.old->conn);
	assert_int_equal(two.new->nr_replies, 1);
	assert_int_equal(nvme_cqe_status(&two.new->last), 0);
	sim_destroy(two.sim);
}

static void connect_that_waits_is_answered_when_its_controller_ends(void **state)
{
	struct two_queues two = two_queues_start();

	(void)state;
	two_queues_connect(&two);
	sim_settle(two.sim);
	assert_int_equal(two.new->nr_replies, 0);
	conn_close(two.admin->conn, "test");
	sim_settle(two.sim);
	assert_null(two.old->conn);
	assert_int_equal(two.new->nr_replies, 1);
	assert_int_not_equal(nvme_cqe_status(&two.new->last), 0);
	sim_destroy(two.sim);
}

static void connect_that_waits_may_vanish(void **state)
{
	struct two_queues two = two_queues_start();

	(void)state;
	two_queues_connect(&two);
	conn_close(two.new->conn, "test");
	sim_settle(two.sim);
	conn_close(two.old->conn, "test");
	sim_settle(two.sim);
	assert_null(two.old->conn);
	assert_null(two.new->conn);
	assert_non_null(two.admin->conn);
	/* The id is free again. */
	assert_non_null(sim_queue(two.sim, two.admin, 1, 8));
	sim_destroy(two.sim);
}

static void reset_ends_io_queues_and_lets_new_ones_in(void **state)
{
	struct sim *sim = setup();
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct sim_conn *queue = sim_queue(sim, admin, 1, 8);
	struct nvme_cmd cmd = aer();
	struct ctrl *ctrl = admin->conn->member.ctrl;
	uint32_t enabled = ctrl->cc;

	(void)state;
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		assert_true(sim_send(sim, admin, &cmd));
	ctrl_set_cc(ctrl, 0);
	sim_settle(sim);
	assert_null(queue->conn);
	assert_int_equal(admin->conn->nr_out, 0);
	assert_int_equal(nvme_cqe_status(&admin->last), NVME_SC_ABORT_REQUESTED);
	assert_int_equal(sim_set_cc(sim, admin, enabled), 0);
	assert_non_null(sim_queue(sim, admin, 1, 8));
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		assert_true(sim_send(sim, admin, &cmd));
	assert_int_equal(sim_run(sim, admin, &cmd), NVME_SC_AER_LIMIT | NVME_STATUS_DNR);
	sim_destroy(sim);
}

static void shutdown_is_complete_when_all_disks_are_flushed(void **state)
{
	struct sim *sim = setup();
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct ctrl *ctrl = admin->conn->member.ctrl;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FABRICS, 0, 0);
	unsigned replies = admin->nr_replies;

	(void)state;
	cmd.nsid = le32(0);
	cmd.property.ofst = le32(NVME_PROPERTY_CC);
	cmd.property.value = le64(ctrl->cc | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT);
	sim->auto_disk = false;
	assert_true(sim_send(sim, admin, &cmd));
	for (unsigned ns = 0; ns < 2; ns++) {
		sim_settle(sim);
		assert_int_equal(ctrl->shst, NVME_CSTS_SHST_OCCURRING);
		assert_int_equal(admin->nr_replies, replies);
		assert_true(sim_do_io(sim, 0, 0));
	}
	sim_settle(sim);
	assert_int_equal(ctrl->shst, NVME_CSTS_SHST_COMPLETE);
	assert_int_equal(admin->nr_replies, replies + 1);
	sim_destroy(sim);
}

static void connections_spread_over_reactors(void **state)
{
	struct sim *sim = sim_create(4, MEMORY);
	struct sim_conn *some[16];

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		some[i] = sim_accept(sim);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(sim->target.load[i], 4 * TARGET_LOAD_IO);
	for (unsigned i = 0; i < 16; i += 2)
		conn_close(some[i]->conn, "test");
	sim_settle(sim);
	for (unsigned i = 0; i < 8; i++)
		sim_accept(sim);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(sim->target.load[i], 4 * TARGET_LOAD_IO);
	sim_destroy(sim);
}

/* --- everything at once ---------------------------------------------------------------------- */

#define RANDOM_SEEDS 60
#define RANDOM_STEPS 1500

static struct nvme_cmd random_command(unsigned *seed)
{
	static const uint32_t blocks[] = {1, 8, 64, 256, 2048};
	uint32_t nr = blocks[(unsigned)rand_r(seed) % ARRAY_SIZE(blocks)];
	struct nvme_cmd cmd;

	switch (rand_r(seed) % 8) {
	case 0:
		return sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0);
	case 1:
		cmd = sim_cmd(NVME_OPC_DSM, 1, 4096);
		cmd.dsm.nr = 3;
		cmd.dsm.attributes = le32(NVME_DSM_AD);
		return cmd;
	case 2:
		return sim_cmd((uint8_t)rand_r(seed), 1, 0);
	case 3:
		return sim_rw(NVME_OPC_WRITE_ZEROES, (uint64_t)rand_r(seed) % SIM_LBAS, nr);
	case 4:
	case 5:
		return sim_rw(NVME_OPC_WRITE, (uint64_t)rand_r(seed) % SIM_LBAS, nr);
	default:
		return sim_rw(NVME_OPC_READ, (uint64_t)rand_r(seed) % SIM_LBAS, nr);
	}
}

static struct sim_conn *random_conn(struct sim *sim, unsigned *seed)
{
	return &sim->conns[(unsigned)rand_r(seed) % sim->nr_conns];
}

static void random_step(struct sim *sim, unsigned *seed)
{
	struct sim_conn *sc = random_conn(sim, seed);
	unsigned what = (unsigned)rand_r(seed) % 100;
	struct nvme_cmd cmd = random_command(seed);

	if (what < 40) {
		sim_send(sim, sc, &cmd);
	} else if (what < 55) {
		sim_do_io(sim, (unsigned)rand_r(seed), rand_r(seed) % 10 ? 0 : -EIO);
	} else if (what < 65) {
		sim_do_pull(sc, rand_r(seed) % 10 ? 0 : NVME_SC_TRANSIENT_TRANSPORT);
	} else if (what < 80) {
		sim_do_reply(sc);
	} else if (what < 95) {
		loop_turn(sim->target.reactors[(unsigned)rand_r(seed) % sim->target.nr_reactors]
				  ->loop);
	} else if (what < 97) {
		sim_do_quiesce(sc);
	} else if (sc->conn && rand_r(seed) % 3 == 0) {
		conn_close(sc->conn, "chance");
	}
}

static void any_order_of_events_leaves_nothing_behind(void **state)
{
	(void)state;
	for (unsigned first = 1; first <= RANDOM_SEEDS; first++) {
		struct sim *sim = sim_create(1 + first % 3, TARGET_MIN_MEMORY_PER_REACTOR);
		unsigned seed = first;

		for (unsigned i = 0; i < 3; i++) {
			struct sim_conn *admin;

			sim->host = i % 2;
			admin = sim_admin(sim, SIM_NQN);

			for (uint16_t qid = 1; qid <= 3; qid++)
				sim_queue(sim, admin, qid, (uint16_t)(2 + rand_r(&seed) % 60));
		}
		sim->auto_disk = sim->auto_pull = sim->auto_reply = sim->auto_quiesce = false;
		for (unsigned i = 0; i < RANDOM_STEPS; i++)
			random_step(sim, &seed);
		sim_destroy(sim);
	}
}

/* Whatever the 64 bytes say: one response, or an event request that is held. */
static void commands_of_random_bytes_are_answered_once(void **state)
{
	static const char *const subsystems[] = {SIM_NQN, NVME_DISCOVERY_NQN};
	unsigned seed = 3;

	(void)state;
	for (unsigned round = 0; round < 40; round++) {
		struct sim *sim = setup();
		struct sim_conn *sc = sim_admin(sim, subsystems[round & 1]);

		if (round % 4 == 0)
			sc = sim_queue(sim, sc, 1, 64);
		for (unsigned i = 0; i < 300 && sc->conn; i++) {
			struct nvme_cmd cmd;

			for (size_t at = 0; at < sizeof(cmd); at++)
				((uint8_t *)&cmd)[at] =
					rand_r(&seed) % 3 ? 0 : (uint8_t)rand_r(&seed);
			cmd.flags = rand_r(&seed) % 8 ? NVME_CMD_PSDT_SGL : cmd.flags;
			cmd.opcode = rand_r(&seed) % 4 ? cmd.opcode % 32 : NVME_OPC_FABRICS;
			cmd.sgl = rand_r(&seed) % 4 ? nvme_sgl_transport(4096) : cmd.sgl;
			assert_true(sim_send(sim, sc, &cmd));
			sim_settle(sim);
			if (sc->conn)
				assert_int_equal(sc->nr_sent, sc->nr_replies + sc->conn->nr_out);
		}
		sim_destroy(sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_in_each_state_frees_the_request_once),
		cmocka_unit_test(closing_frees_held_event_requests),
		cmocka_unit_test(closing_takes_waiting_requests_out_of_their_line),
		cmocka_unit_test(more_commands_than_the_queue_holds_are_refused),
		cmocka_unit_test(end_of_the_admin_queue_ends_all_queues),
		cmocka_unit_test(controller_waits_for_the_io_of_its_queues),
		cmocka_unit_test(queue_id_in_use_waits_for_a_queue_that_closes),
		cmocka_unit_test(connect_that_waits_is_answered_when_its_controller_ends),
		cmocka_unit_test(connect_that_waits_may_vanish),
		cmocka_unit_test(reset_ends_io_queues_and_lets_new_ones_in),
		cmocka_unit_test(shutdown_is_complete_when_all_disks_are_flushed),
		cmocka_unit_test(connections_spread_over_reactors),
		cmocka_unit_test(commands_of_random_bytes_are_answered_once),
		cmocka_unit_test(any_order_of_events_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
