/* SPDX-License-Identifier: MIT */
/*
 * Who belongs to an association, how long it lives without a word, and that nothing of an old one
 * lands after the new one's data.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "target/fence.h"
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

/* --- where queues are (B177) ----------------------------------------------------------------- */

/* An admin queue has little to do: all I/O would be on every other reactor if it counted like the
 * rest. */
static void io_queues_are_spread_whatever_comes_between(void **state)
{
	(void)state;
	for (unsigned nr_queues = 0; nr_queues < 4; nr_queues++) {
		struct sim *sim = sim_create(4, MEMORY);
		unsigned nr_io[4] = {0}, nr_admin[4] = {0}, most = 0, least = UINT32_MAX;

		for (unsigned host = 0; host < 8; host++) {
			struct sim_conn *admin = sim_admin(sim, SIM_NQN);

			nr_admin[admin->conn->reactor->index]++;
			for (unsigned i = 0; i < nr_queues; i++) {
				struct sim_conn *queue =
					sim_queue(sim, admin, (uint16_t)(i + 1), 8);

				nr_io[queue->conn->reactor->index]++;
			}
		}
		for (unsigned i = 0; i < 4; i++) {
			unsigned nr = nr_queues ? nr_io[i] : nr_admin[i];

			most = max_of(most, nr);
			least = min_of(least, nr);
		}
		assert_true(most - least <= (nr_queues ? 1 : 0));
		sim_destroy(sim);
	}
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
	assert_int_equal(life.ctrl->kato_ms, 1000);
	ctrl_set_kato(life.ctrl, UINT32_MAX);
	assert_int_equal(life.ctrl->kato_ms, UINT32_MAX / 1000 * 1000);
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

/* --- fencing --------------------------------------------------------------------------------- */

struct old {
	struct sim *sim;
	struct sim_conn *admin, *queue;
};

/* A host with a write that the disk does not finish. */
static void old_start(struct old *old)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	old->sim = sim_create(3, MEMORY);
	old->admin = sim_admin(old->sim, SIM_NQN);
	old->queue = sim_queue(old->sim, old->admin, 1, 8);
	assert_ptr_not_equal(old->queue->conn->reactor, old->admin->conn->reactor);
	old->sim->auto_disk = false;
	assert_true(sim_send(old->sim, old->queue, &cmd));
	sim_settle(old->sim);
	assert_int_equal(old->sim->nr_ios, 1);
}

/* The host comes (back), and asks for its controller to be enabled. */
static struct sim_conn *comes(struct sim *sim, const char *subnqn, const char *hostnqn, uint8_t id)
{
	struct sim_conn *sc = sim_accept(sim);
	struct nvme_cmd cmd = sim_connect(subnqn, 0, 31, NVME_CNTLID_DYNAMIC);

	snprintf(sim_connect_data.hostnqn, sizeof(sim_connect_data.hostnqn), "%s", hostnqn);
	memset(sim_connect_data.hostid, id, sizeof(sim_connect_data.hostid));
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	cmd = sim_property_set_cc(SIM_CC_ENABLE);
	assert_true(sim_send(sim, sc, &cmd));
	return sc;
}

static bool is_ready(struct sim_conn *admin)
{
	return ctrl_csts(admin->conn->member.ctrl) & NVME_CSTS_RDY;
}

static void late_write_is_over_before_the_next_association_may_write(void **state)
{
	struct old old;
	struct sim_conn *again;
	struct nvme_cmd cmd;

	(void)state;
	old_start(&old);
	conn_close(old.admin->conn, "test");
	again = comes(old.sim, SIM_NQN, SIM_HOST, 7);
	sim_settle(old.sim);
	assert_false(is_ready(again));
	assert_int_equal(again->nr_replies, 1);
	/* Meanwhile no queue may join. */
	cmd = sim_connect(SIM_NQN, 1, 7, sim_cntlid(again));
	assert_int_equal(sim_run(old.sim, sim_accept(old.sim), &cmd),
		NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
	assert_int_equal(old.sim->nr_ios, 1);
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_true(is_ready(again));
	assert_int_equal(again->nr_replies, 2);
	assert_non_null(sim_queue(old.sim, again, 1, 8));
	sim_destroy(old.sim);
}

struct late_end {
	struct loop_flush flush;
	struct conn *conn;
};

static void late_end_found(struct loop_flush *flush)
{
	conn_close(container_of(flush, struct late_end, flush)->conn, "test");
}

/* The end of the old one lies in a socket of a reactor that is asked before it looks there. */
static void end_that_is_found_in_this_turn_is_waited_for(void **state)
{
	struct late_end late;
	struct old old;
	struct sim_conn *again;

	(void)state;
	old_start(&old);
	late.conn = old.admin->conn;
	assert_int_equal(late.conn->reactor->index, 0);
	again = comes(old.sim, SIM_NQN, SIM_HOST, 7);
	loop_flush_init(&late.flush, late_end_found);
	loop_flush_later(late.conn->reactor->loop, &late.flush);
	sim_settle(old.sim);
	assert_null(old.admin->conn);
	assert_false(is_ready(again));
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_true(is_ready(again));
	sim_destroy(old.sim);
}

static void others_do_not_wait(void **state)
{
	static const struct {
		const char *subnqn, *hostnqn;
		uint8_t id;
	} other[] = {{SIM_NQN, SIM_HOST ":other", 7}, {SIM_NQN, SIM_HOST, 8},
		{SIM_OTHER, SIM_HOST, 7}, {NVME_DISCOVERY_NQN, SIM_HOST, 7}};
	struct old old;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(other); i++) {
		struct sim_conn *admin;

		old_start(&old);
		conn_close(old.admin->conn, "test");
		admin = comes(old.sim, other[i].subnqn, other[i].hostnqn, other[i].id);
		sim_settle(old.sim);
		assert_true(is_ready(admin));
		sim_destroy(old.sim);
	}
}

/* Nothing of it may be seen any more but its write: it lives on, or only a part of it has gone. */
static void write_of_an_association_that_is_not_over_is_waited_for(void **state)
{
	static const uint32_t shut_down = SIM_CC_ENABLE | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT;
	struct old old;
	struct sim_conn *again;
	struct nvme_cmd cmd;

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		old_start(&old);
		if (i == 1)
			conn_close(old.queue->conn, "test");
		if (i == 2) {
			cmd = sim_cmd(NVME_OPC_FABRICS, 0, 0);
			cmd.fctype = NVME_FCTYPE_DISCONNECT;
			assert_int_equal(sim_run(old.sim, old.queue, &cmd), 0);
		}
		if (i >= 3) {
			cmd = sim_property_set_cc(i == 3 ? 0 : shut_down);
			assert_true(sim_send(old.sim, old.admin, &cmd));
		}
		again = comes(old.sim, SIM_NQN, SIM_HOST, 7);
		sim_settle(old.sim);
		assert_false(is_ready(again));
		assert_true(sim_do_io(old.sim, 0, 0));
		old.sim->auto_disk = true;
		sim_settle(old.sim);
		assert_true(is_ready(again));
		sim_destroy(old.sim);
	}
}

static void other_path_of_the_host_works_on(void **state)
{
	struct nvme_cmd later = sim_rw(NVME_OPC_WRITE, 8, 8), read = sim_rw(NVME_OPC_READ, 0, 8);
	struct old old;
	struct sim_conn *path;

	(void)state;
	old_start(&old);
	assert_true(sim_send(old.sim, old.queue, &read));
	path = comes(old.sim, SIM_NQN, SIM_HOST, 7);
	sim_settle(old.sim);
	assert_true(sim_send(old.sim, old.queue, &later));
	sim_settle(old.sim);
	assert_int_equal(old.sim->nr_ios, 3);
	assert_false(is_ready(path));
	/* Neither the read nor what has begun since is waited for. */
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_true(is_ready(path));
	assert_int_equal(old.sim->nr_ios, 2);
	assert_int_equal(old.queue->nr_replies, 2);
	old.sim->auto_disk = true;
	sim_destroy(old.sim);
}

/* The first one's patience ends, and that the second one gets does not depend on it. */
static void write_is_waited_for_by_all_that_come(void **state)
{
	struct old old;
	struct sim_conn *again[3];

	(void)state;
	old_start(&old);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned j = 0; j < 3; j++)
			old.sim->target.reactors[j]->fence_ns = i ? FENCE_DEADLINE_NS : 0;
		again[i] = comes(old.sim, SIM_NQN, SIM_HOST, 7);
		sim_settle(old.sim);
	}
	assert_int_equal(ctrl_csts(again[0]->conn->member.ctrl), NVME_CSTS_CFS);
	conn_close(again[1]->conn, "test");
	sim_settle(old.sim);
	assert_false(is_ready(again[2]));
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_true(is_ready(again[2]));
	sim_destroy(old.sim);
}

static void disk_that_does_not_answer_is_told_at_the_deadline(void **state)
{
	struct old old;
	struct sim_conn *again;

	(void)state;
	old_start(&old);
	for (unsigned i = 0; i < 3; i++)
		old.sim->target.reactors[i]->fence_ns = 0;
	conn_close(old.admin->conn, "test");
	again = comes(old.sim, SIM_NQN, SIM_HOST, 7);
	sim_settle(old.sim);
	assert_int_equal(again->nr_replies, 2);
	assert_int_equal(ctrl_csts(again->conn->member.ctrl), NVME_CSTS_CFS);
	/* It may try again. */
	assert_true(sim_do_io(old.sim, 0, 0));
	assert_int_equal(sim_set_cc(old.sim, again, 0), 0);
	assert_int_equal(ctrl_csts(again->conn->member.ctrl), 0);
	assert_int_equal(sim_set_cc(old.sim, again, SIM_CC_ENABLE), 0);
	assert_true(is_ready(again));
	sim_destroy(old.sim);
}

static void host_that_gives_up_waiting_leaves_nothing(void **state)
{
	struct old old;
	struct sim_conn *again[2];

	(void)state;
	old_start(&old);
	conn_close(old.admin->conn, "test");
	for (unsigned i = 0; i < 2; i++)
		again[i] = comes(old.sim, SIM_NQN, SIM_HOST, 7);
	sim_settle(old.sim);
	for (unsigned i = 0; i < 2; i++)
		conn_close(again[i]->conn, "test");
	sim_settle(old.sim);
	assert_true(sim_do_io(old.sim, 0, -EIO));
	sim_settle(old.sim);
	assert_null(again[0]->conn);
	assert_null(again[1]->conn);
	sim_destroy(old.sim);
}

/* --- what has not got to the disk yet -------------------------------------------------------- */

enum waits { WAITS_FOR_MEMORY, WAITS_FOR_DATA };
enum ends { GOES_ON, QUEUE_CLOSES, CTRL_ENDS, DEADLINE_COMES };

static unsigned nr_written;

static void count_write(struct sim *sim, struct backend_io *io)
{
	(void)sim;
	nr_written += io->op == BACKEND_WRITE;
}

/* A write that has come and cannot begin yet; AGAIN is the host's new controller, not enabled. */
static void begin_waiting(struct old *old, struct sim_conn **again, enum waits waits)
{
	struct nvme_cmd read = sim_rw(NVME_OPC_READ, 0, 2048), write, connect;

	old->sim = sim_create(3, TARGET_MIN_MEMORY_PER_REACTOR);
	old->admin = sim_admin(old->sim, SIM_NQN);
	old->queue = sim_queue(old->sim, old->admin, 1, 64);
	old->sim->before_io = count_write;
	nr_written = 0;
	*again = sim_accept(old->sim);
	connect = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);
	assert_int_equal(sim_run(old->sim, *again, &connect), 0);
	old->sim->auto_disk = false;
	old->sim->auto_pull = false;
	for (unsigned i = 0; waits == WAITS_FOR_MEMORY && i < 8; i++)
		assert_true(sim_send(old->sim, old->queue, &read));
	write = sim_rw(NVME_OPC_WRITE, 0, 2048);
	assert_true(sim_send(old->sim, old->queue, &write));
	sim_settle(old->sim);
	assert_int_equal(list_empty(&old->queue->conn->waiting), waits == WAITS_FOR_DATA);
}

static void end_waiting(struct old *old, enum ends ends)
{
	switch (ends) {
	case GOES_ON:
		old->sim->auto_pull = true;
		break;
	case QUEUE_CLOSES:
		conn_close(old->queue->conn, "test");
		break;
	case CTRL_ENDS:
		conn_close(old->admin->conn, "test");
		break;
	case DEADLINE_COMES: /* fence_ns */
		break;
	}
}

/* Each state of it, each way to end: when the new controller is ready it is over, or never begins.
 */
static void write_that_has_not_begun_is_over_or_never_begins(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		enum waits waits = i % 2;
		enum ends ends = i / 2;
		struct nvme_cmd cmd = sim_property_set_cc(SIM_CC_ENABLE);
		struct sim_conn *again;
		struct old old;

		begin_waiting(&old, &again, waits);
		for (unsigned j = 0; ends == DEADLINE_COMES && j < 3; j++)
			old.sim->target.reactors[j]->fence_ns = 0;
		assert_true(sim_send(old.sim, again, &cmd));
		sim_settle(old.sim);
		if (ends != DEADLINE_COMES)
			assert_false(is_ready(again));
		assert_int_equal(nr_written, 0);
		end_waiting(&old, ends);
		while (!is_ready(again)) {
			sim_settle(old.sim);
			if (!is_ready(again))
				assert_true(sim_do_io(old.sim, 0, 0));
		}
		assert_int_equal(nr_written, ends == GOES_ON);
		old.sim->auto_disk = old.sim->auto_pull = true;
		sim_settle(old.sim);
		assert_int_equal(nr_written, ends == GOES_ON);
		assert_int_equal(old.queue->conn != NULL, ends == GOES_ON);
		sim_destroy(old.sim);
	}
}

/* Half of KATO is when a host that lives says something at the latest. */
static void silent_association_ends_when_its_host_has_a_new_one(void **state)
{
	static const struct {
		uint32_t silent_ms;
		bool io, ends;
	} cases[] = {{1000, false, false}, {1400, false, false}, {1600, false, true},
		{1600, true, false}};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sim_conn *again;
		struct life life;

		life_start(&life, 2000, 2);
		life_pass(&life, 0);
		life_pass(&life, 0);
		if (cases[i].io)
			life_io(&life, 1);
		life.ctrl->alive_ns -= cases[i].silent_ms * NS_PER_MS;
		again = comes(life.sim, SIM_NQN, SIM_HOST ":other", 7);
		sim_settle(life.sim);
		assert_true(is_ready(again));
		assert_non_null(life.queue[0]->conn);
		again = comes(life.sim, SIM_NQN, SIM_HOST, 7);
		sim_settle(life.sim);
		assert_true(is_ready(again));
		assert_int_equal(life.admin->conn == NULL, cases[i].ends);
		assert_int_equal(life.queue[0]->conn == NULL, cases[i].ends);
		sim_destroy(life.sim);
	}
}

/* --- reset and shutdown with I/O out --------------------------------------------------------- */

static void reset_is_over_when_the_disk_has_nothing_of_it(void **state)
{
	struct old old;
	struct nvme_cmd cmd;

	(void)state;
	old_start(&old);
	assert_int_equal(sim_set_cc(old.sim, old.admin, 0), 0);
	assert_true(is_ready(old.admin));
	assert_non_null(old.queue->conn);
	/* Not a queue of the time before, nor one of the time after. */
	for (uint16_t qid = 1; qid <= 2; qid++) {
		cmd = sim_connect(SIM_NQN, qid, 7, sim_cntlid(old.admin));
		assert_int_equal(sim_run(old.sim, sim_accept(old.sim), &cmd),
			NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
	}
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_null(old.queue->conn);
	assert_int_equal(ctrl_csts(old.admin->conn->member.ctrl), 0);
	sim_destroy(old.sim);
}

static void host_that_does_not_wait_for_the_reset_waits_for_the_enabling(void **state)
{
	struct old old;
	struct nvme_cmd off = sim_property_set_cc(0), on = sim_property_set_cc(SIM_CC_ENABLE);
	unsigned before;

	(void)state;
	old_start(&old);
	before = old.admin->nr_replies;
	for (unsigned i = 0; i < 3; i++) {
		assert_true(sim_send(old.sim, old.admin, &off));
		assert_true(sim_send(old.sim, old.admin, &on));
	}
	sim_settle(old.sim);
	assert_int_equal(old.admin->nr_replies, before + 3);
	assert_false(ctrl_ready(old.admin->conn->member.ctrl));
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_int_equal(old.admin->nr_replies, before + 6);
	assert_true(ctrl_ready(old.admin->conn->member.ctrl));
	assert_non_null(sim_queue(old.sim, old.admin, 1, 8));
	sim_destroy(old.sim);
}

static void host_may_vanish_while_it_waits_for_the_reset(void **state)
{
	struct old old;
	struct nvme_cmd off = sim_property_set_cc(0), on = sim_property_set_cc(SIM_CC_ENABLE);

	(void)state;
	old_start(&old);
	assert_true(sim_send(old.sim, old.admin, &off));
	assert_true(sim_send(old.sim, old.admin, &on));
	sim_settle(old.sim);
	conn_close(old.admin->conn, "test");
	sim_settle(old.sim);
	assert_true(sim_do_io(old.sim, 0, 0));
	sim_settle(old.sim);
	assert_null(old.admin->conn);
	sim_destroy(old.sim);
}

static void shutdown_flushes_what_other_queues_have_written(void **state)
{
	struct old old;
	struct nvme_cmd cmd =
		sim_property_set_cc(SIM_CC_ENABLE | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT);
	struct ctrl *ctrl;

	(void)state;
	old_start(&old);
	ctrl = old.admin->conn->member.ctrl;
	assert_true(sim_send(old.sim, old.admin, &cmd));
	sim_settle(old.sim);
	/* The write only: no flush before it is over. */
	assert_int_equal(old.sim->nr_ios, 1);
	assert_int_equal(ctrl->shst, NVME_CSTS_SHST_OCCURRING);
	/* The host need not say anything meanwhile. */
	ctrl_set_kato(ctrl, 1000);
	ctrl->alive_ns -= 60000 * NS_PER_MS;
	ctrl->keep_alive.expired(&ctrl->keep_alive);
	sim_settle(old.sim);
	cmd = sim_connect(SIM_NQN, 2, 7, sim_cntlid(old.admin));
	assert_int_equal(sim_run(old.sim, sim_accept(old.sim), &cmd),
		NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR);
	assert_true(sim_do_io(old.sim, 0, 0));
	old.sim->auto_disk = true;
	sim_settle(old.sim);
	assert_int_equal(ctrl->shst, NVME_CSTS_SHST_COMPLETE);
	assert_null(old.queue->conn);
	sim_destroy(old.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_joins_at_the_port_of_its_admin_queue_only),
		cmocka_unit_test(io_queues_are_spread_whatever_comes_between),
		cmocka_unit_test(io_on_any_queue_keeps_the_association),
		cmocka_unit_test(silence_on_all_queues_ends_it_after_kato),
		cmocka_unit_test(queues_are_asked_four_times_in_kato),
		cmocka_unit_test(host_with_an_admin_queue_only_still_expires),
		cmocka_unit_test(kato_may_change_and_cease),
		cmocka_unit_test(queues_may_go_while_they_are_asked),
		cmocka_unit_test(controller_may_end_while_its_queues_are_asked),
		cmocka_unit_test(silent_discovery_controller_ends),
		cmocka_unit_test(late_write_is_over_before_the_next_association_may_write),
		cmocka_unit_test(end_that_is_found_in_this_turn_is_waited_for),
		cmocka_unit_test(others_do_not_wait),
		cmocka_unit_test(write_of_an_association_that_is_not_over_is_waited_for),
		cmocka_unit_test(other_path_of_the_host_works_on),
		cmocka_unit_test(write_is_waited_for_by_all_that_come),
		cmocka_unit_test(disk_that_does_not_answer_is_told_at_the_deadline),
		cmocka_unit_test(host_that_gives_up_waiting_leaves_nothing),
		cmocka_unit_test(write_that_has_not_begun_is_over_or_never_begins),
		cmocka_unit_test(silent_association_ends_when_its_host_has_a_new_one),
		cmocka_unit_test(reset_is_over_when_the_disk_has_nothing_of_it),
		cmocka_unit_test(host_that_does_not_wait_for_the_reset_waits_for_the_enabling),
		cmocka_unit_test(host_may_vanish_while_it_waits_for_the_reset),
		cmocka_unit_test(shutdown_flushes_what_other_queues_have_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
