/* SPDX-License-Identifier: MIT */
/*
 * Compare and Write: both halves in any order of events, with errors and ends at any time, and
 * beside everything else that writes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/fused.h"
#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)
#define SLBA   8
#define LBAS   2

static uint16_t last_cid;

static struct nvme_cmd half(uint8_t fuse, uint64_t slba, uint32_t nr_lbas, uint32_t value)
{
	bool first = fuse == NVME_CMD_FUSE_FIRST;
	struct nvme_cmd cmd = sim_rw(first ? NVME_OPC_COMPARE : NVME_OPC_WRITE, slba, nr_lbas);

	cmd.flags |= fuse;
	cmd.cdw2 = le32(value);
	last_cid = le16_get(cmd.cid);
	return cmd;
}

static uint16_t send_half(struct sim *sim, struct sim_conn *queue, uint8_t fuse, uint32_t value)
{
	struct nvme_cmd cmd = half(fuse, SLBA, LBAS, value);

	assert_true(sim_send(sim, queue, &cmd));
	return last_cid;
}

struct pair {
	uint16_t compare, write; /* ids */
};

static struct pair send_pair(struct sim *sim, struct sim_conn *queue, uint32_t old, uint32_t new)
{
	struct pair pair;

	pair.compare = send_half(sim, queue, NVME_CMD_FUSE_FIRST, old);
	pair.write = send_half(sim, queue, NVME_CMD_FUSE_SECOND, new);
	return pair;
}

static void fill(struct sim *sim, uint64_t slba, uint32_t nr_lbas, uint32_t value)
{
	le32_t word = le32(value);

	for (uint32_t at = 0; at < nr_lbas * 512; at += 4)
		memcpy(sim->media + slba * 512 + at, &word, 4);
}

static bool holds(const struct sim *sim, uint64_t slba, uint32_t nr_lbas, uint32_t value)
{
	le32_t word = le32(value);

	for (uint32_t at = 0; at < nr_lbas * 512; at += 4)
		if (memcmp(sim->media + slba * 512 + at, &word, 4))
			return false;
	return true;
}

static void assert_code(const struct sim *sim, uint16_t cid, uint16_t code)
{
	assert_int_not_equal(sim->status[cid], SIM_NO_ANSWER);
	assert_int_equal(sim->status[cid] & NVME_STATUS_CODE_MASK, code);
}

static void assert_pair(
	const struct sim *sim, const struct pair *pair, uint16_t compare, uint16_t write)
{
	assert_code(sim, pair->compare, compare);
	assert_code(sim, pair->write, write);
}

/* No lock is left anywhere. */
static void assert_unlocked(const struct sim *sim)
{
	for (unsigned i = 0; i < sim->target.nr_reactors; i++) {
		const struct reactor *reactor = sim->target.reactors[i];

		assert_true(list_empty(&reactor->range_locks));
		for (unsigned j = 0; j < CATALOG_MAX_NAMESPACES; j++) {
			const struct reactor_ns *ns = reactor->namespaces[j];

			assert_true(!ns || (!(ns->gate & REACTOR_NS_LOCKED) &&
						   list_empty(&ns->locks) && list_empty(&ns->out)));
		}
	}
}

static struct sim_conn *setup(struct sim **ret)
{
	struct sim *sim = sim_create(3, MEMORY);

	*ret = sim;
	sim->has_media = true;
	fill(sim, SLBA, LBAS, 1);
	return sim_queue(sim, sim_admin(sim, SIM_NQN), 1, 32);
}

static void teardown(struct sim *sim)
{
	sim_settle(sim);
	assert_unlocked(sim);
	sim_destroy(sim);
}

/* --- one pair -------------------------------------------------------------------------------- */

static void a_pair_writes_if_the_disk_is_as_expected(void **state)
{
	struct sim *sim;
	struct sim_conn *queue = setup(&sim);
	struct pair pair;

	(void)state;
	pair = send_pair(sim, queue, 1, 2);
	sim_settle(sim);
	assert_pair(sim, &pair, 0, 0);
	assert_true(holds(sim, SLBA, LBAS, 2));
	pair = send_pair(sim, queue, 1, 3);
	sim_settle(sim);
	assert_pair(sim, &pair, NVME_SC_COMPARE_FAILED, NVME_SC_ABORT_FUSED_FAILED);
	assert_true(holds(sim, SLBA, LBAS, 2));
	assert_true(holds(sim, SLBA - 1, 1, 0) && holds(sim, SLBA + LBAS, 1, 0));
	teardown(sim);
}

static void data_of_both_may_come_in_any_order(void **state)
{
	(void)state;
	for (unsigned order = 0; order < 6; order++) {
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		struct pair pair;

		sim->auto_pull = false;
		pair.compare = send_half(sim, queue, NVME_CMD_FUSE_FIRST, 1);
		if (order >= 4)
			assert_true(sim_do_pull(queue, 0));
		pair.write = send_half(sim, queue, NVME_CMD_FUSE_SECOND, 2);
		if (order < 4)
			assert_true(sim_do_any_pull(queue, order % 2, 0));
		if (order & 2)
			sim_settle(sim);
		assert_true(sim_do_pull(queue, 0));
		sim_settle(sim);
		assert_pair(sim, &pair, 0, 0);
		assert_true(holds(sim, SLBA, LBAS, 2));
		teardown(sim);
	}
}

struct fault_case {
	const char *name;
	uint16_t first_pull, second_pull; /* status of the transport */
	int read, write;		  /* results of the disk */
	bool second_first;		  /* its data comes first */
	uint16_t compare_status, write_status;
};

static const struct fault_case fault_cases[] = {
	{.name = "first's data is lost",
		.first_pull = NVME_SC_TRANSIENT_TRANSPORT,
		.compare_status = NVME_SC_TRANSIENT_TRANSPORT,
		.write_status = NVME_SC_ABORT_FUSED_FAILED},
	{.name = "first's data is lost, the second's is here",
		.first_pull = NVME_SC_TRANSIENT_TRANSPORT,
		.second_first = true,
		.compare_status = NVME_SC_TRANSIENT_TRANSPORT,
		.write_status = NVME_SC_ABORT_FUSED_FAILED},
	{.name = "second's data is lost",
		.second_pull = NVME_SC_TRANSIENT_TRANSPORT,
		.compare_status = NVME_SC_ABORT_FUSED_FAILED,
		.write_status = NVME_SC_TRANSIENT_TRANSPORT},
	{.name = "second's data is lost before the first's is here",
		.second_pull = NVME_SC_TRANSIENT_TRANSPORT,
		.second_first = true,
		.compare_status = NVME_SC_ABORT_FUSED_FAILED,
		.write_status = NVME_SC_TRANSIENT_TRANSPORT},
	{.name = "read fails",
		.read = -EIO,
		.compare_status = NVME_SC_READ_ERROR,
		.write_status = NVME_SC_ABORT_FUSED_FAILED},
	{.name = "write fails",
		.write = -EIO,
		.compare_status = 0,
		.write_status = NVME_SC_WRITE_FAULT},
	{.name = "disk full",
		.write = -ENOSPC,
		.compare_status = 0,
		.write_status = NVME_SC_CAPACITY_EXCEEDED},
};

static void each_fault_is_told_and_leaves_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(fault_cases); i++) {
		const struct fault_case *fault = &fault_cases[i];
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		struct pair pair;

		print_message("%s\n", fault->name);
		sim->auto_pull = sim->auto_disk = false;
		pair = send_pair(sim, queue, 1, 2);
		assert_true(sim_do_any_pull(queue, fault->second_first,
			fault->second_first ? fault->second_pull : fault->first_pull));
		sim_settle(sim);
		if (sim_do_pull(
			    queue, fault->second_first ? fault->first_pull : fault->second_pull))
			sim_settle(sim);
		if (sim_do_io(sim, 0, fault->read))
			sim_settle(sim);
		if (sim_do_io(sim, 0, fault->write))
			sim_settle(sim);
		assert_pair(sim, &pair, fault->compare_status, fault->write_status);
		assert_true(holds(sim, SLBA, LBAS, 1));
		sim->auto_pull = sim->auto_disk = true;
		pair = send_pair(sim, queue, 1, 2);
		sim_settle(sim);
		assert_pair(sim, &pair, 0, 0);
		teardown(sim);
	}
}

/* --- adjacency ------------------------------------------------------------------------------- */

static void a_first_alone_is_aborted_wherever_it_is(void **state)
{
	(void)state;
	for (unsigned here = 0; here < 2; here++) {
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		struct nvme_cmd read = sim_rw(NVME_OPC_READ, 0, 1);
		struct pair pair;
		uint16_t alone;

		sim->auto_pull = here;
		alone = send_half(sim, queue, NVME_CMD_FUSE_FIRST, 1);
		sim_settle(sim);
		assert_int_equal(sim->status[alone], SIM_NO_ANSWER);
		assert_true(sim_send(sim, queue, &read));
		sim->auto_pull = true;
		sim_settle(sim);
		assert_code(sim, alone, NVME_SC_ABORT_FUSED_MISSING);
		assert_code(sim, le16_get(read.cid), 0);
		alone = send_half(sim, queue, NVME_CMD_FUSE_SECOND, 1);
		sim_settle(sim);
		assert_code(sim, alone, NVME_SC_ABORT_FUSED_MISSING);
		alone = send_half(sim, queue, NVME_CMD_FUSE_FIRST, 1);
		pair = send_pair(sim, queue, 1, 2);
		sim_settle(sim);
		assert_code(sim, alone, NVME_SC_ABORT_FUSED_MISSING);
		assert_pair(sim, &pair, 0, 0);
		teardown(sim);
	}
}

static void pairs_of_two_queues_do_not_mix(void **state)
{
	struct sim *sim;
	struct sim_conn *queue = setup(&sim);
	struct sim_conn *other = sim_queue(sim, sim_admin(sim, SIM_NQN), 1, 32);
	struct pair pair, second;

	(void)state;
	pair.compare = send_half(sim, queue, NVME_CMD_FUSE_FIRST, 1);
	second.compare = send_half(sim, other, NVME_CMD_FUSE_FIRST, 2);
	pair.write = send_half(sim, queue, NVME_CMD_FUSE_SECOND, 2);
	sim_settle(sim);
	second.write = send_half(sim, other, NVME_CMD_FUSE_SECOND, 3);
	sim_settle(sim);
	assert_pair(sim, &pair, 0, 0);
	assert_pair(sim, &second, 0, 0);
	assert_true(holds(sim, SLBA, LBAS, 3));
	teardown(sim);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Reads that the disk does not answer hold all there is of large buffers. */
static void take_memory(struct sim *sim)
{
	sim->auto_disk = false;
	for (unsigned host = 1; host < 12; host++) {
		struct nvme_cmd read = sim_rw(NVME_OPC_READ, 512, 2048);
		struct sim_conn *queue;

		sim->host = host;
		queue = sim_queue(sim, sim_admin(sim, SIM_NQN), 1, 32);
		assert_true(sim_send(sim, queue, &read));
		sim_settle(sim);
	}
}

enum memory_end { MEMORY_COMES, MEMORY_FIRST_IS_ALONE, MEMORY_CLOSES, NR_MEMORY_ENDS };

/* The largest pair: its buffer is of the size that is taken. */
static void both_wait_for_the_firsts_buffer(void **state)
{
	(void)state;
	for (enum memory_end end = 0; end < NR_MEMORY_ENDS; end++) {
		struct sim *sim = sim_create(1, TARGET_MIN_MEMORY_PER_REACTOR);
		struct sim_conn *queue = sim_queue(sim, sim_admin(sim, SIM_NQN), 1, 32);
		struct nvme_cmd first = half(NVME_CMD_FUSE_FIRST, 0, 256, 0);
		struct nvme_cmd second = half(NVME_CMD_FUSE_SECOND, 0, 256, 7);
		struct nvme_cmd read = sim_rw(NVME_OPC_READ, 0, 1);

		sim->has_media = true;
		take_memory(sim);
		assert_true(sim_send(sim, queue, &first));
		assert_int_equal(queue->conn->fused_first->state, REQUEST_WAIT_BUF);
		if (end == MEMORY_FIRST_IS_ALONE)
			assert_true(sim_send(sim, queue, &read));
		assert_true(sim_send(sim, queue, &second));
		sim_settle(sim);
		if (end == MEMORY_CLOSES)
			conn_close(queue->conn, "test");
		sim->auto_disk = true;
		sim_settle(sim);
		if (end == MEMORY_COMES) {
			assert_code(sim, le16_get(first.cid), 0);
			assert_code(sim, le16_get(second.cid), 0);
			assert_true(holds(sim, 0, 256, 7));
		} else if (end == MEMORY_FIRST_IS_ALONE) {
			assert_code(sim, le16_get(first.cid), NVME_SC_ABORT_FUSED_MISSING);
			assert_code(sim, le16_get(second.cid), NVME_SC_ABORT_FUSED_MISSING);
			assert_code(sim, le16_get(read.cid), 0);
		}
		teardown(sim);
	}
}

/* --- ends ------------------------------------------------------------------------------------ */

/* One event; false: nothing was left to do. */
static bool step(struct sim *sim, struct sim_conn *queue)
{
	if (sim_do_pull(queue, 0) || sim_do_io(sim, 0, 0) || sim_do_reply(queue))
		return true;
	for (unsigned i = 0; i < sim->target.nr_reactors; i++)
		if (loop_turn(sim->target.reactors[i]->loop) > 0)
			return true;
	return false;
}

static void a_connection_may_end_at_each_step(void **state)
{
	(void)state;
	for (unsigned disk_first = 0; disk_first < 2; disk_first++) {
		for (unsigned stop = 0, over = 0; !over; stop++) {
			struct sim *sim;
			struct sim_conn *queue = setup(&sim);

			sim->auto_pull = sim->auto_disk = sim->auto_reply = sim->auto_quiesce =
				false;
			send_half(sim, queue, NVME_CMD_FUSE_FIRST, 1);
			if (stop)
				send_half(sim, queue, NVME_CMD_FUSE_SECOND, 2);
			for (unsigned i = 1; i < stop; i++)
				if (!step(sim, queue))
					over = 1;
			conn_close(queue->conn, "test");
			sim->auto_disk = disk_first;
			sim_settle(sim);
			sim->auto_quiesce = true;
			sim_settle(sim);
			sim->auto_disk = true;
			sim_settle(sim);
			assert_null(queue->conn);
			assert_true(holds(sim, SLBA, LBAS, 1) || holds(sim, SLBA, LBAS, 2));
			teardown(sim);
		}
	}
}

/* --- all at once ----------------------------------------------------------------------------- */

#define RANDOM_SEEDS 60
#define RANDOM_STEPS 4000
#define NR_SLOTS     4u
#define SLOT_LBAS    4u

static unsigned nr_pairs_written;

/* Just before the disk has the blocks of a pair's Write: they are what its Compare has expected. */
static void check_pair(struct sim *sim, struct backend_io *io)
{
	const struct request *request = container_of(io, struct request, io);

	if (io->op != BACKEND_WRITE || !(request->cmd.flags & NVME_CMD_FUSE_MASK))
		return;
	assert_int_equal(request->cmd.flags & NVME_CMD_FUSE_MASK, NVME_CMD_FUSE_SECOND);
	assert_true(holds(
		sim, io->offset / 512, io->length / 512, le32_get(request->partner->cmd.cdw2)));
	nr_pairs_written++;
}

static uint32_t first_word(const struct sim *sim, uint64_t slba)
{
	le32_t word;

	memcpy(&word, sim->media + slba * 512, 4);
	return le32_get(word);
}

static void random_send(struct sim *sim, struct sim_conn *sc, unsigned *seed)
{
	static uint32_t value;
	uint64_t slba = (uint64_t)rand_r(seed) % NR_SLOTS * SLOT_LBAS;
	uint32_t nr = rand_r(seed) % 4 ? 1 : SLOT_LBAS;
	unsigned what = (unsigned)rand_r(seed) % 12;
	struct nvme_cmd cmd;

	value++;
	if (what < 4) {
		cmd = half(NVME_CMD_FUSE_FIRST, slba, nr, first_word(sim, slba));
		sim_send(sim, sc, &cmd);
		cmd = half(NVME_CMD_FUSE_SECOND, slba, nr, value);
	} else if (what < 5) {
		cmd = half(
			rand_r(seed) % 2 ? NVME_CMD_FUSE_FIRST : NVME_CMD_FUSE_SECOND, slba, nr, 0);
	} else if (what < 7) {
		cmd = sim_rw(NVME_OPC_READ, slba, nr);
	} else if (what < 8) {
		cmd = sim_rw(NVME_OPC_WRITE_ZEROES, slba, NR_SLOTS * SLOT_LBAS);
		cmd.sgl = (struct nvme_sgl_desc){0};
	} else {
		cmd = sim_rw(NVME_OPC_WRITE, slba, nr);
		cmd.cdw2 = le32(value);
	}
	sim_send(sim, sc, &cmd);
}

static void random_step(struct sim *sim, unsigned *seed)
{
	struct sim_conn *sc = &sim->conns[(unsigned)rand_r(seed) % sim->nr_conns];
	unsigned what = (unsigned)rand_r(seed) % 1000;
	unsigned reactor = (unsigned)rand_r(seed) % sim->target.nr_reactors;

	if (what < 250 && sc->conn && sc->conn->qid)
		random_send(sim, sc, seed);
	else if (what < 450)
		sim_do_io(sim, (unsigned)rand_r(seed), rand_r(seed) % 20 ? 0 : -EIO);
	else if (what < 600)
		sim_do_any_pull(sc, (unsigned)rand_r(seed),
			rand_r(seed) % 20 ? 0 : NVME_SC_TRANSIENT_TRANSPORT);
	else if (what < 750)
		sim_do_reply(sc);
	else if (what < 990)
		loop_turn(sim->target.reactors[reactor]->loop);
	else if (what < 998)
		sim_do_quiesce(sc);
	else if (sc->conn && rand_r(seed) % 3 == 0)
		conn_close(sc->conn, "chance");
}

static void nothing_comes_between_a_compare_and_its_write(void **state)
{
	(void)state;
	for (unsigned first = 1; first <= RANDOM_SEEDS; first++) {
		struct sim *sim = sim_create(1 + first % 4, TARGET_MIN_MEMORY_PER_REACTOR);
		unsigned seed = first;

		for (unsigned i = 0; i < 3; i++) {
			struct sim_conn *admin = sim_admin(sim, SIM_NQN);

			for (uint16_t qid = 1; qid <= 3; qid++)
				sim_queue(sim, admin, qid, 16);
		}
		sim->has_media = true;
		sim->before_io = check_pair;
		sim->auto_disk = sim->auto_pull = sim->auto_reply = sim->auto_quiesce = false;
		for (unsigned i = 0; i < RANDOM_STEPS; i++)
			random_step(sim, &seed);
		sim->auto_disk = sim->auto_pull = sim->auto_reply = sim->auto_quiesce = true;
		teardown(sim);
	}
	print_message("%u pairs have written\n", nr_pairs_written);
	assert_true(nr_pairs_written > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pair_writes_if_the_disk_is_as_expected),
		cmocka_unit_test(data_of_both_may_come_in_any_order),
		cmocka_unit_test(each_fault_is_told_and_leaves_nothing),
		cmocka_unit_test(a_first_alone_is_aborted_wherever_it_is),
		cmocka_unit_test(pairs_of_two_queues_do_not_mix),
		cmocka_unit_test(both_wait_for_the_firsts_buffer),
		cmocka_unit_test(a_connection_may_end_at_each_step),
		cmocka_unit_test(nothing_comes_between_a_compare_and_its_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
