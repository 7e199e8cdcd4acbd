/* SPDX-License-Identifier: MIT */
/*
 * Locks of ranges: who waits for whom, on every reactor.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/range_lock.h"
#include "tests/sim/target/sim.h"

#define MEMORY	    (32ull << 20)
#define NR_REACTORS 4u

/* A lock with its holder's part. */
struct holder {
	struct reactor_ns *ns;
	bool is_taken, is_ending, is_released;
	struct range_lock lock;
	struct range_entry entries[NR_REACTORS];
};

static void holder_taken(struct range_lock *lock)
{
	struct holder *holder = container_of(lock, struct holder, lock);

	assert_false(holder->is_taken);
	holder->is_taken = true;
}

static void holder_released(struct range_lock *lock)
{
	struct holder *holder = container_of(lock, struct holder, lock);

	assert_true(holder->is_taken && !holder->is_released);
	holder->is_released = true;
	reactor_ns_put(holder->ns);
}

static struct reactor_ns *ns_on(struct sim *sim, unsigned reactor)
{
	const struct subsys *subsys = catalog_find(sim->target.catalog, SIM_NQN);

	return reactor_ns_find(sim->target.reactors[reactor], subsys, 1);
}

static void take(
	struct sim *sim, struct holder *holder, unsigned reactor, uint64_t slba, uint64_t nr)
{
	memset(holder, 0, sizeof(*holder));
	holder->ns = ns_on(sim, reactor);
	holder->lock.taken = holder_taken;
	holder->lock.released = holder_released;
	reactor_ns_get(holder->ns);
	range_lock_take(&holder->lock, holder->ns,
		(struct range){.start = slba * 512, .end = (slba + nr) * 512});
}

static void assert_gates(struct sim *sim, bool locked)
{
	for (unsigned i = 0; i < NR_REACTORS; i++) {
		assert_int_equal(ns_on(sim, i)->gate, locked ? REACTOR_NS_LOCKED : 0);
		assert_int_equal(list_empty(&ns_on(sim, i)->locks), !locked);
	}
}

static struct sim *setup(void)
{
	struct sim *sim = sim_create(NR_REACTORS, MEMORY);

	sim->has_media = true;
	return sim;
}

static void teardown(struct sim *sim)
{
	sim->auto_disk = true;
	sim_settle(sim);
	assert_gates(sim, false);
	sim_destroy(sim);
}

/* A queue on each reactor. */
static struct sim_conn *queue_on(struct sim *sim, const struct sim_conn *admin, unsigned reactor)
{
	for (uint16_t qid = 1;; qid++) {
		struct sim_conn *queue = sim_queue(sim, admin, qid, 32);

		if (queue->conn->reactor->index == reactor)
			return queue;
	}
}

static void a_lock_is_known_everywhere_until_its_end(void **state)
{
	struct sim *sim = setup();
	struct holder holder;

	(void)state;
	for (unsigned home = 0; home < NR_REACTORS; home++) {
		take(sim, &holder, home, 8, 8);
		assert_false(holder.is_taken);
		sim_settle(sim);
		assert_true(holder.is_taken);
		assert_gates(sim, true);
		range_lock_release(&holder.lock);
		sim_settle(sim);
		assert_true(holder.is_released);
		assert_gates(sim, false);
	}
	teardown(sim);
}

struct overlap_case {
	uint64_t slba, nr;
	bool waits;
};

static const struct overlap_case overlap_cases[] = {{8, 8, true}, {7, 2, true}, {15, 1, true},
	{0, 64, true}, {10, 2, true}, {0, 8, false}, {16, 8, false}, {7, 1, false}};

static void locks_that_overlap_have_an_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(overlap_cases); i++) {
		const struct overlap_case *other = &overlap_cases[i];
		struct sim *sim = setup();
		struct holder holders[3];

		take(sim, &holders[0], 0, 8, 8);
		sim_settle(sim);
		take(sim, &holders[1], 1, other->slba, other->nr);
		take(sim, &holders[2], 2, other->slba, other->nr);
		sim_settle(sim);
		assert_true(holders[1].is_taken + holders[2].is_taken == !other->waits);
		range_lock_release(&holders[0].lock);
		sim_settle(sim);
		assert_true(holders[1].is_taken + holders[2].is_taken == 1);
		range_lock_release(&holders[holders[1].is_taken ? 1 : 2].lock);
		sim_settle(sim);
		assert_true(holders[1].is_taken && holders[2].is_taken);
		range_lock_release(&holders[holders[1].is_released ? 2 : 1].lock);
		teardown(sim);
	}
}

static void a_lock_waits_for_io_that_is_out_and_meets_it(void **state)
{
	static const uint8_t opcodes[] = {NVME_OPC_WRITE, NVME_OPC_READ, NVME_OPC_WRITE_ZEROES};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(opcodes) * NR_REACTORS * 2; i++) {
		struct sim *sim = setup();
		struct sim_conn *queue = queue_on(sim, sim_admin(sim, SIM_NQN), i % NR_REACTORS);
		bool meets = i / NR_REACTORS % 2;
		struct nvme_cmd cmd = sim_rw(opcodes[i / NR_REACTORS / 2], meets ? 15 : 16, 4);
		struct holder holder;

		if (cmd.opcode == NVME_OPC_WRITE_ZEROES)
			cmd.sgl = (struct nvme_sgl_desc){0};
		sim->auto_disk = false;
		assert_true(sim_send(sim, queue, &cmd));
		sim_settle(sim);
		assert_int_equal(sim->nr_ios, 1);
		take(sim, &holder, 1, 8, 8);
		sim_settle(sim);
		assert_int_equal(holder.is_taken, !meets);
		assert_true(sim_do_io(sim, 0, i % 3 ? 0 : -EIO));
		sim_settle(sim);
		assert_true(holder.is_taken);
		range_lock_release(&holder.lock);
		teardown(sim);
	}
}

static void io_that_meets_a_lock_waits_for_its_end(void **state)
{
	static const uint8_t opcodes[] = {NVME_OPC_WRITE, NVME_OPC_READ, NVME_OPC_WRITE_ZEROES,
		NVME_OPC_VERIFY, NVME_OPC_FLUSH};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(opcodes) * NR_REACTORS * 2; i++) {
		struct sim *sim = setup();
		struct sim_conn *queue = queue_on(sim, sim_admin(sim, SIM_NQN), i % NR_REACTORS);
		uint8_t opcode = opcodes[i / NR_REACTORS / 2];
		bool meets = i / NR_REACTORS % 2;
		struct nvme_cmd cmd = sim_rw(opcode, meets ? 4 : 3, 5);
		struct holder holder;
		unsigned before = queue->nr_replies;

		if (opcode != NVME_OPC_WRITE && opcode != NVME_OPC_READ)
			cmd.sgl = (struct nvme_sgl_desc){0};
		take(sim, &holder, 2, 8, 8);
		sim_settle(sim);
		assert_true(sim_send(sim, queue, &cmd));
		sim_settle(sim);
		assert_int_equal(queue->nr_replies - before, !meets || opcode == NVME_OPC_FLUSH);
		range_lock_release(&holder.lock);
		sim_settle(sim);
		assert_int_equal(queue->nr_replies - before, 1);
		assert_int_equal(nvme_cqe_status(&queue->last), 0);
		teardown(sim);
	}
}

/* It waits for a lock, or a lock waits for it. */
static void a_connection_may_end_while_its_io_waits(void **state)
{
	(void)state;
	for (unsigned first = 0; first < 2; first++) {
		struct sim *sim = setup();
		struct sim_conn *queue = queue_on(sim, sim_admin(sim, SIM_NQN), 3);
		struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 8, 1);
		struct holder holder;

		cmd.cdw2 = le32(7);
		sim->auto_disk = false;
		if (!first)
			assert_true(sim_send(sim, queue, &cmd));
		sim_settle(sim);
		take(sim, &holder, 0, 8, 8);
		sim_settle(sim);
		if (first)
			assert_true(sim_send(sim, queue, &cmd));
		sim_settle(sim);
		conn_close(queue->conn, "test");
		sim_settle(sim);
		assert_non_null(queue->conn);
		sim->auto_disk = true;
		sim_settle(sim);
		assert_true(holder.is_taken);
		range_lock_release(&holder.lock);
		sim_settle(sim);
		assert_null(queue->conn);
		/* Nobody wants what has waited any more. */
		assert_int_equal(sim->media[8 * 512], first ? 0 : 7);
		teardown(sim);
	}
}

/* The largest Compare has memory of its own: the sanitizer sees whether it is given back. */
static void a_compare_that_waits_gives_its_memory_back(void **state)
{
	struct sim *sim = setup();
	struct sim_conn *queue = queue_on(sim, sim_admin(sim, SIM_NQN), 3);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_COMPARE, 0, CMD_MAX_BYTES / 512);
	struct holder holder;

	(void)state;
	take(sim, &holder, 0, 0, 8);
	sim_settle(sim);
	assert_true(sim_send(sim, queue, &cmd));
	sim_settle(sim);
	conn_close(queue->conn, "test");
	sim_settle(sim);
	assert_non_null(queue->conn);
	range_lock_release(&holder.lock);
	sim_settle(sim);
	assert_null(queue->conn);
	teardown(sim);
}

static void a_namespace_may_be_removed_under_a_lock(void **state)
{
	struct sim *sim = setup();
	struct catalog *catalog = catalog_create(sim->target.catalog);
	struct subsys *subsys;
	struct holder holder;

	(void)state;
	take(sim, &holder, 1, 8, 8);
	sim_settle(sim);
	assert_int_equal(catalog_add_subsys(catalog, SIM_NQN, &subsys), 0);
	subsys->allow_any = true;
	catalog->port[catalog->nr_ports++] = port_get(&sim->port);
	assert_int_equal(sim_publish(sim, catalog), 0);
	range_lock_release(&holder.lock);
	sim_settle(sim);
	assert_true(holder.is_released);
	sim_destroy(sim);
}

/* --- any order ------------------------------------------------------------------------------- */

#define NR_HOLDERS   8u
#define RANDOM_SEEDS 30
#define RANDOM_STEPS 3000

static bool holds(const struct holder *holder)
{
	return holder->ns && holder->is_taken && !holder->is_ending;
}

static void assert_apart(const struct holder *holders)
{
	for (unsigned i = 0; i < NR_HOLDERS; i++)
		for (unsigned j = 0; j < i; j++) {
			const struct holder *a = &holders[i], *b = &holders[j];

			if (holds(a) && holds(b))
				assert_true(a->lock.range.end <= b->lock.range.start ||
					    b->lock.range.end <= a->lock.range.start);
		}
}

static const struct holder *random_holders;

/* Nobody's I/O is done in what somebody holds. */
static void check_io(struct sim *sim, struct backend_io *io)
{
	(void)sim;
	for (unsigned i = 0; i < NR_HOLDERS; i++) {
		const struct holder *holder = &random_holders[i];

		if (holds(holder))
			assert_true(io->offset >= holder->lock.range.end ||
				    io->offset + io->extent <= holder->lock.range.start);
	}
}

static void random_step(struct sim *sim, struct holder *holders, unsigned *seed)
{
	unsigned which = (unsigned)rand_r(seed) % NR_HOLDERS;
	struct holder *holder = &holders[which];
	struct sim_conn *sc = &sim->conns[(unsigned)rand_r(seed) % sim->nr_conns];
	struct nvme_cmd cmd = sim_rw(rand_r(seed) % 2 ? NVME_OPC_WRITE : NVME_OPC_READ,
		(uint64_t)rand_r(seed) % 60, 1 + (uint32_t)rand_r(seed) % 8);

	switch (rand_r(seed) % 8) {
	case 0:
		if (!holder->ns || holder->is_released) {
			take(sim, holder, (unsigned)rand_r(seed) % NR_REACTORS,
				(uint64_t)rand_r(seed) % 60, 1 + (uint64_t)rand_r(seed) % 8);
		} else if (holds(holder)) {
			holder->is_ending = true;
			range_lock_release(&holder->lock);
		}
		break;
	case 1:
	case 2:
		if (sc->conn && sc->conn->qid)
			sim_send(sim, sc, &cmd);
		break;
	case 3:
	case 4:
		sim_do_io(sim, (unsigned)rand_r(seed), 0);
		break;
	case 5:
		while (sim_do_reply(sc))
			;
		break;
	default:
		loop_turn(sim->target.reactors[(unsigned)rand_r(seed) % NR_REACTORS]->loop);
	}
	assert_apart(holders);
}

static void locks_and_io_in_any_order_stay_apart_and_all_end(void **state)
{
	(void)state;
	for (unsigned first = 1; first <= RANDOM_SEEDS; first++) {
		struct sim *sim = setup();
		struct sim_conn *admin = sim_admin(sim, SIM_NQN);
		struct holder holders[NR_HOLDERS] = {0};
		bool left = true;
		unsigned seed = first;

		for (uint16_t qid = 1; qid <= 6; qid++)
			sim_queue(sim, admin, qid, 16);
		random_holders = holders;
		sim->before_io = check_io;
		sim->auto_disk = sim->auto_reply = false;
		for (unsigned i = 0; i < RANDOM_STEPS; i++)
			random_step(sim, holders, &seed);
		sim->auto_disk = sim->auto_reply = true;
		while (left) {
			left = false;
			sim_settle(sim);
			for (unsigned i = 0; i < NR_HOLDERS; i++) {
				struct holder *holder = &holders[i];

				if (!holder->ns || holder->is_ending)
					continue;
				left = true;
				holder->is_ending = holder->is_taken;
				if (holder->is_ending)
					range_lock_release(&holder->lock);
			}
		}
		teardown(sim);
		for (unsigned i = 0; i < NR_HOLDERS; i++)
			assert_true(!holders[i].ns || holders[i].is_released);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lock_is_known_everywhere_until_its_end),
		cmocka_unit_test(locks_that_overlap_have_an_order),
		cmocka_unit_test(a_lock_waits_for_io_that_is_out_and_meets_it),
		cmocka_unit_test(io_that_meets_a_lock_waits_for_its_end),
		cmocka_unit_test(a_connection_may_end_while_its_io_waits),
		cmocka_unit_test(a_compare_that_waits_gives_its_memory_back),
		cmocka_unit_test(a_namespace_may_be_removed_under_a_lock),
		cmocka_unit_test(locks_and_io_in_any_order_stay_apart_and_all_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
