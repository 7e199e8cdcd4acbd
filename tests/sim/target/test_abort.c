/* SPDX-License-Identifier: MIT */
/*
 * Abort finds a command in whatever state it is, on whatever reactor; the command is answered
 * first.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

struct scene {
	struct sim *sim;
	struct sim_conn *admin, *queue;
	uint16_t cid; /* of the last command on the queue */
};

static void scene_start(struct scene *scene, uint64_t memory)
{
	scene->sim = sim_create(2, memory);
	scene->admin = sim_admin(scene->sim, SIM_NQN);
	scene->queue = sim_queue(scene->sim, scene->admin, 1, 64);
	assert_ptr_not_equal(scene->queue->conn->reactor, scene->admin->conn->reactor);
	scene->sim->auto_disk = false;
}

static void scene_send(struct scene *scene, struct nvme_cmd cmd)
{
	scene->cid = le16_get(cmd.cid);
	assert_true(sim_send(scene->sim, scene->queue, &cmd));
	sim_settle(scene->sim);
}

/* Up to a write whose data has not come yet. */
static void scene_start_writing(struct scene *scene)
{
	scene_start(scene, MEMORY);
	scene->sim->auto_pull = false;
	scene_send(scene, sim_rw(NVME_OPC_WRITE, 0, 8));
}

static void scene_data_comes(struct scene *scene, uint16_t status)
{
	assert_true(sim_do_pull(scene->queue, status));
	sim_settle(scene->sim);
}

static struct nvme_cmd abort_of(uint16_t sqid, uint16_t cid)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_ABORT, 0, 0);

	cmd.abort.sqid = le16(sqid);
	cmd.abort.cid = le16(cid);
	return cmd;
}

static void scene_abort(struct scene *scene)
{
	struct nvme_cmd cmd = abort_of(1, scene->cid);

	assert_true(sim_send(scene->sim, scene->admin, &cmd));
}

/* The last response on the admin queue is Abort's. */
static void assert_abort_says(const struct scene *scene, bool aborted)
{
	assert_int_equal(nvme_cqe_status(&scene->admin->last), 0);
	assert_int_equal(le32_get(scene->admin->last.dw0), aborted ? 0 : NVME_ABORT_NOT_ABORTED);
	assert_int_equal(scene->admin->conn->member.ctrl->nr_aborts, 0);
}

static void assert_command_aborted(const struct scene *scene)
{
	assert_int_equal(le16_get(scene->queue->last.cid), scene->cid);
	assert_int_equal(
		nvme_cqe_status(&scene->queue->last) & ~NVME_STATUS_DNR, NVME_SC_ABORT_REQUESTED);
}

/* Runs until Abort is answered: then the command has been. */
static void scene_see_order(struct scene *scene, unsigned replies)
{
	unsigned before = scene->admin->nr_replies;

	while (scene->admin->nr_replies == before) {
		loop_turn(scene->admin->conn->reactor->loop);
		if (scene->admin->nr_replies == before)
			loop_turn(scene->queue->conn->reactor->loop);
		else
			assert_int_equal(scene->queue->nr_replies, replies + 1);
	}
}

static void command_that_waits_for_a_buffer_is_aborted(void **state)
{
	struct scene scene;
	unsigned replies;

	(void)state;
	scene_start(&scene, TARGET_MIN_MEMORY_PER_REACTOR);
	for (unsigned i = 0; i < 32; i++)
		scene_send(&scene, sim_rw(NVME_OPC_READ, 0, 2048));
	assert_true(scene.sim->nr_ios < 32);
	replies = scene.queue->nr_replies;
	scene_abort(&scene);
	scene_see_order(&scene, replies);
	assert_abort_says(&scene, true);
	assert_command_aborted(&scene);
	scene.sim->auto_disk = true;
	sim_settle(scene.sim);
	assert_int_equal(scene.queue->nr_replies, 1 + 32);
	sim_destroy(scene.sim);
}

static void command_whose_data_comes_is_aborted_when_it_is_here(void **state)
{
	struct scene scene;
	unsigned replies;

	(void)state;
	scene_start_writing(&scene);
	replies = scene.admin->nr_replies;
	/* Two of them, for the same. */
	scene_abort(&scene);
	scene_abort(&scene);
	sim_settle(scene.sim);
	assert_int_equal(scene.admin->nr_replies, replies + 2);
	assert_abort_says(&scene, false);
	scene_data_comes(&scene, 0);
	assert_int_equal(scene.sim->nr_ios, 0);
	assert_command_aborted(&scene);
	sim_destroy(scene.sim);
}

static void command_whose_data_fails_is_not_aborted(void **state)
{
	struct scene scene;

	(void)state;
	scene_start_writing(&scene);
	scene_abort(&scene);
	sim_settle(scene.sim);
	scene_data_comes(&scene, NVME_SC_TRANSIENT_TRANSPORT);
	assert_int_equal(nvme_cqe_status(&scene.queue->last), NVME_SC_TRANSIENT_TRANSPORT);
	assert_abort_says(&scene, false);
	sim_destroy(scene.sim);
}

static void command_that_the_disk_has_is_not_aborted(void **state)
{
	struct scene scene;
	unsigned replies;

	(void)state;
	scene_start(&scene, MEMORY);
	scene_send(&scene, sim_rw(NVME_OPC_WRITE, 0, 8));
	replies = scene.admin->nr_replies;
	scene_abort(&scene);
	sim_settle(scene.sim);
	assert_int_equal(scene.admin->nr_replies, replies + 1);
	assert_abort_says(&scene, false);
	assert_true(sim_do_io(scene.sim, 0, 0));
	sim_settle(scene.sim);
	assert_int_equal(nvme_cqe_status(&scene.queue->last), 0);
	sim_destroy(scene.sim);
}

static void command_of_several_parts_ends_after_the_present_one(void **state)
{
	struct nvme_cmd cmds[] = {
		sim_rw(NVME_OPC_VERIFY, 0, SIM_LBAS), sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0)};
	struct scene scene;
	unsigned replies;

	(void)state;
	cmds[0].sgl = (struct nvme_sgl_desc){0};
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cmds); i++) {
		scene_start(&scene, MEMORY);
		scene_send(&scene, cmds[i / 2]);
		assert_int_equal(scene.sim->nr_ios, 1);
		replies = scene.admin->nr_replies;
		scene_abort(&scene);
		scene_abort(&scene);
		sim_settle(scene.sim);
		assert_int_equal(scene.admin->nr_replies, replies + 2);
		assert_abort_says(&scene, false);
		assert_true(sim_do_io(scene.sim, 0, i % 2 ? -EIO : 0));
		sim_settle(scene.sim);
		assert_int_equal(scene.sim->nr_ios, 0);
		assert_command_aborted(&scene);
		sim_destroy(scene.sim);
	}
}

static void event_request_is_aborted(void **state)
{
	struct scene scene;
	struct nvme_cmd event = sim_cmd(NVME_OPC_ASYNC_EVENT_REQUEST, 0, 0);
	struct nvme_cmd cmd = abort_of(0, le16_get(event.cid));
	struct nvme_cmd elsewhere = abort_of(1, le16_get(event.cid));
	unsigned replies;

	(void)state;
	scene_start(&scene, MEMORY);
	assert_true(sim_send(scene.sim, scene.admin, &event));
	/* It is not the I/O queue's. */
	assert_int_equal(sim_run(scene.sim, scene.admin, &elsewhere), 0);
	assert_abort_says(&scene, false);
	replies = scene.admin->nr_replies;
	assert_true(sim_send(scene.sim, scene.admin, &cmd));
	sim_settle(scene.sim);
	assert_int_equal(scene.admin->nr_replies, replies + 2);
	assert_int_equal(le16_get(scene.admin->last.cid), le16_get(cmd.cid));
	assert_abort_says(&scene, true);
	sim_destroy(scene.sim);
}

static void what_is_not_there_is_not_aborted(void **state)
{
	static const uint16_t sqids[] = {
		0, 1, 2, CTRL_MAX_IO_QUEUES, CTRL_MAX_IO_QUEUES + 1, 0xffff};
	struct scene scene;
	struct nvme_cmd cmd;

	(void)state;
	scene_start(&scene, MEMORY);
	for (unsigned i = 0; i < ARRAY_SIZE(sqids); i++) {
		cmd = abort_of(sqids[i], 0xfff0);
		assert_int_equal(sim_run(scene.sim, scene.admin, &cmd), 0);
		assert_abort_says(&scene, false);
	}
	/* Itself. */
	cmd = abort_of(0, 0);
	cmd.abort.cid = cmd.cid;
	assert_int_equal(sim_run(scene.sim, scene.admin, &cmd), 0);
	assert_abort_says(&scene, false);
	sim_destroy(scene.sim);
}

static void aborts_beyond_the_limit_are_refused(void **state)
{
	struct scene scene;
	unsigned replies;

	(void)state;
	scene_start_writing(&scene);
	replies = scene.admin->nr_replies;
	for (unsigned i = 0; i < CTRL_MAX_ABORTS; i++)
		scene_abort(&scene);
	assert_int_equal(scene.admin->nr_replies, replies);
	scene_abort(&scene);
	assert_int_equal(scene.admin->nr_replies, replies + 1);
	assert_int_equal(nvme_cqe_status(&scene.admin->last), NVME_SC_ABORT_LIMIT);
	/* They wait for nothing and nobody. */
	sim_settle(scene.sim);
	assert_int_equal(scene.admin->nr_replies, replies + 1 + CTRL_MAX_ABORTS);
	assert_abort_says(&scene, false);
	scene_data_comes(&scene, 0);
	assert_command_aborted(&scene);
	sim_destroy(scene.sim);
}

/* --- locked ranges --------------------------------------------------------------------------- */

struct locked {
	struct scene scene;
	struct nvme_cmd half[2];
	unsigned replies; /* on the admin queue, before Abort */
};

static void locked_send_pair(struct locked *locked, uint64_t lba, uint32_t nr)
{
	locked->half[0] = sim_rw(NVME_OPC_COMPARE, lba, nr);
	locked->half[1] = sim_rw(NVME_OPC_WRITE, lba, nr);
	locked->half[0].flags |= NVME_CMD_FUSE_FIRST;
	locked->half[1].flags |= NVME_CMD_FUSE_SECOND;
	scene_send(&locked->scene, locked->half[0]);
	scene_send(&locked->scene, locked->half[1]);
}

/* A write is at the disk, and a pair waits for it. */
static void locked_start(struct locked *locked)
{
	struct nvme_cmd write = sim_rw(NVME_OPC_WRITE, 0, 1);

	scene_start(&locked->scene, MEMORY);
	scene_send(&locked->scene, write);
	locked_send_pair(locked, 0, 1);
	assert_int_equal(locked->scene.sim->nr_ios, 1);
}

static uint16_t locked_status(const struct locked *locked, const struct nvme_cmd *cmd)
{
	return locked->scene.sim->status[le16_get(cmd->cid)] & NVME_STATUS_CODE_MASK;
}

static void locked_abort(struct locked *locked, const struct nvme_cmd *cmd)
{
	locked->replies = locked->scene.admin->nr_replies;
	locked->scene.cid = le16_get(cmd->cid);
	scene_abort(&locked->scene);
	sim_settle(locked->scene.sim);
	assert_int_equal(locked->scene.admin->nr_replies, locked->replies + 1);
}

static void locked_end(struct locked *locked)
{
	locked->scene.sim->auto_disk = true;
	while (sim_do_io(locked->scene.sim, 0, 0))
		sim_settle(locked->scene.sim);
	sim_settle(locked->scene.sim);
	for (unsigned i = 0; i < locked->scene.sim->target.nr_reactors; i++)
		assert_true(list_empty(&locked->scene.sim->target.reactors[i]->range_locks));
	sim_destroy(locked->scene.sim);
}

static void io_that_a_lock_holds_back_is_aborted(void **state)
{
	struct nvme_cmd cmds[] = {sim_rw(NVME_OPC_READ, 0, 1), sim_rw(NVME_OPC_WRITE, 0, 1),
		sim_rw(NVME_OPC_VERIFY, 0, SIM_LBAS)};
	struct locked locked;

	(void)state;
	cmds[2].sgl = (struct nvme_sgl_desc){0};
	for (unsigned i = 0; i < ARRAY_SIZE(cmds); i++) {
		locked_start(&locked);
		scene_send(&locked.scene, cmds[i]);
		assert_int_equal(locked.scene.sim->nr_ios, 1);
		locked_abort(&locked, &cmds[i]);
		assert_abort_says(&locked.scene, true);
		assert_command_aborted(&locked.scene);
		/* The pair goes on to wait, for the write. */
		assert_int_equal(locked.scene.sim->nr_ios, 1);
		locked_end(&locked);
	}
}

static void pair_behind_an_aborted_one_goes_on(void **state)
{
	struct nvme_cmd second[2];
	struct locked locked;

	(void)state;
	locked_start(&locked);
	/* One of blocks 0 and 1 waits for the pair of block 0, and one of block 1 for it. */
	locked_send_pair(&locked, 0, 2);
	memcpy(second, locked.half, sizeof(second));
	locked_send_pair(&locked, 1, 1);
	assert_int_equal(locked.scene.sim->nr_ios, 1);
	locked_abort(&locked, &second[0]);
	assert_abort_says(&locked.scene, true);
	assert_int_equal(locked.scene.sim->nr_ios, 2);
	locked_end(&locked);
}

/* It waits for a write, or for another pair, that waits itself. */
static void pair_that_waits_for_its_range_is_aborted(void **state)
{
	struct nvme_cmd earlier[2];
	struct locked locked;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		bool behind_another = i / 2;
		unsigned aborted = i % 2;

		locked_start(&locked);
		memcpy(earlier, locked.half, sizeof(earlier));
		if (behind_another)
			locked_send_pair(&locked, 0, 1);
		locked_abort(&locked, &locked.half[aborted]);
		assert_abort_says(&locked.scene, true);
		assert_int_equal(
			locked_status(&locked, &locked.half[aborted]), NVME_SC_ABORT_REQUESTED);
		assert_int_equal(
			locked_status(&locked, &locked.half[!aborted]), NVME_SC_ABORT_FUSED_FAILED);
		assert_int_equal(locked.scene.sim->nr_ios, 1);
		if (behind_another) {
			/* And the one before it. */
			locked_abort(&locked, &earlier[aborted]);
			assert_abort_says(&locked.scene, true);
			assert_int_equal(locked_status(&locked, &earlier[0]),
				aborted ? NVME_SC_ABORT_FUSED_FAILED : NVME_SC_ABORT_REQUESTED);
		}
		locked_end(&locked);
	}
}

static void pair_that_has_begun_is_not_aborted(void **state)
{
	struct locked locked;

	(void)state;
	locked_start(&locked);
	assert_true(sim_do_io(locked.scene.sim, 0, 0));
	sim_settle(locked.scene.sim);
	assert_int_equal(locked.scene.sim->nr_ios, 1); /* it reads */
	locked_abort(&locked, &locked.half[0]);
	assert_abort_says(&locked.scene, false);
	locked_end(&locked);
}

/* At each point of the way of both. */
static void pair_may_begin_or_its_queue_end_while_it_is_aborted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3 * 8; i++) {
		struct locked locked;
		struct sim *sim;

		locked_start(&locked);
		sim = locked.scene.sim;
		locked.scene.cid = le16_get(locked.half[i % 2].cid);
		scene_abort(&locked.scene);
		for (unsigned turn = 0; turn < i / 3; turn++)
			loop_turn(sim->target.reactors[turn % 2]->loop);
		if (i % 3 == 0)
			assert_true(sim_do_io(sim, 0, 0));
		else
			conn_close((i % 3 == 1 ? locked.scene.queue : locked.scene.admin)->conn,
				"test");
		sim_settle(sim);
		locked_end(&locked);
	}
}

/* Abort for a write in PULL, one in EXEC and a Verify, at each point of the end of a connection. */
static void connections_may_end_while_an_abort_is_out(void **state)
{
	struct nvme_cmd cmds[] = {sim_rw(NVME_OPC_WRITE, 0, 8), sim_rw(NVME_OPC_READ, 0, 8),
		sim_rw(NVME_OPC_VERIFY, 0, SIM_LBAS)};
	struct scene scene;

	(void)state;
	cmds[2].sgl = (struct nvme_sgl_desc){0};
	for (unsigned i = 0; i < ARRAY_SIZE(cmds) * 2 * 6; i++) {
		bool admin_ends = i / ARRAY_SIZE(cmds) % 2;
		unsigned turns = i / ARRAY_SIZE(cmds) / 2;
		unsigned replies;

		scene_start(&scene, MEMORY);
		scene.sim->auto_pull = false;
		scene_send(&scene, cmds[i % ARRAY_SIZE(cmds)]);
		replies = scene.admin->nr_replies;
		scene_abort(&scene);
		for (unsigned turn = 0; turn < turns; turn++) {
			loop_turn(scene.queue->conn->reactor->loop);
			loop_turn(scene.admin->conn->reactor->loop);
		}
		conn_close((admin_ends ? scene.admin : scene.queue)->conn, "test");
		sim_settle(scene.sim);
		while (sim_do_io(scene.sim, 0, 0))
			sim_settle(scene.sim);
		assert_null(scene.queue->conn);
		if (admin_ends) {
			assert_null(scene.admin->conn);
		} else {
			assert_int_equal(scene.admin->nr_replies, replies + 1);
			assert_abort_says(&scene, false);
		}
		sim_destroy(scene.sim);
	}
}

/* Each half of a Compare and Write, which first has its data and waits for the other. */
static void half_of_a_pair_is_aborted_and_the_other_fails(void **state)
{
	struct scene scene;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct nvme_cmd half[] = {
			sim_rw(NVME_OPC_COMPARE, 0, 1), sim_rw(NVME_OPC_WRITE, 0, 1)};
		bool held = i / 2;
		unsigned replies;

		half[0].flags |= NVME_CMD_FUSE_FIRST;
		half[1].flags |= NVME_CMD_FUSE_SECOND;
		scene_start(&scene, MEMORY);
		scene.sim->auto_pull = false;
		scene_send(&scene, half[0]);
		scene_send(&scene, half[1]);
		replies = scene.admin->nr_replies;
		if (held) /* the first one's data is here */
			assert_true(sim_do_pull(scene.queue, 0));
		scene.cid = le16_get(half[i % 2].cid);
		scene_abort(&scene);
		sim_settle(scene.sim);
		while (sim_do_pull(scene.queue, 0))
			sim_settle(scene.sim);
		sim_settle(scene.sim);
		assert_int_equal(scene.queue->nr_replies, 1 + 2);
		assert_int_equal(scene.admin->nr_replies, replies + 1);
		/* At once, or when its data is here. */
		assert_abort_says(&scene, i == 2);
		assert_int_equal(scene.sim->nr_ios, 0);
		sim_destroy(scene.sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(command_that_waits_for_a_buffer_is_aborted),
		cmocka_unit_test(command_whose_data_comes_is_aborted_when_it_is_here),
		cmocka_unit_test(command_whose_data_fails_is_not_aborted),
		cmocka_unit_test(command_that_the_disk_has_is_not_aborted),
		cmocka_unit_test(command_of_several_parts_ends_after_the_present_one),
		cmocka_unit_test(half_of_a_pair_is_aborted_and_the_other_fails),
		cmocka_unit_test(event_request_is_aborted),
		cmocka_unit_test(what_is_not_there_is_not_aborted),
		cmocka_unit_test(aborts_beyond_the_limit_are_refused),
		cmocka_unit_test(connections_may_end_while_an_abort_is_out),
		cmocka_unit_test(io_that_a_lock_holds_back_is_aborted),
		cmocka_unit_test(pair_that_waits_for_its_range_is_aborted),
		cmocka_unit_test(pair_behind_an_aborted_one_goes_on),
		cmocka_unit_test(pair_that_has_begun_is_not_aborted),
		cmocka_unit_test(pair_may_begin_or_its_queue_end_while_it_is_aborted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
