/* SPDX-License-Identifier: MIT */
/*
 * What a controller's features change on its queues, wherever these are: the write cache that is
 * off, and how errors that pass by themselves are told.
 */
#include <errno.h>

#include "proto/nvme/status.h"
#include "tests/sim/target/sim.h"

#define MEMORY	   (32ull << 20)
#define NR_QUEUES  5
#define NAMESPACES 2 /* of the simulation's first catalog, at SIM_NQN */

struct host {
	struct sim *sim;
	struct sim_conn *admin, *queues[NR_QUEUES];
};

static struct host setup(void)
{
	struct host host = {.sim = sim_create(3, MEMORY)};

	host.admin = sim_admin(host.sim, SIM_NQN);
	for (uint16_t i = 0; i < NR_QUEUES; i++)
		host.queues[i] = sim_queue(host.sim, host.admin, i + 1u, 16);
	return host;
}

static uint16_t send_cmd(struct host *host, struct sim_conn *sc, struct nvme_cmd cmd)
{
	assert_true(sim_send(host->sim, sc, &cmd));
	sim_settle(host->sim);
	return le16_get(cmd.cid);
}

static uint16_t send_cache(struct host *host, bool on)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 0, 0);

	cmd.features.fid = NVME_FEAT_VOLATILE_WRITE_CACHE;
	cmd.features.cdw11 = le32(on);
	return send_cmd(host, host->admin, cmd);
}

static uint32_t get_feature(struct host *host, uint8_t fid, uint8_t select)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_FEATURES, 0, 0);

	cmd.features.fid = fid;
	cmd.features.sel = select;
	assert_int_equal(sim_run(host->sim, host->admin, &cmd), 0);
	return le32_get(host->admin->last.dw0);
}

static struct backend_io *disk_has(struct host *host)
{
	assert_false(list_empty(&host->sim->ios));
	return container_of(host->sim->ios.next, struct backend_io, loop_op.node);
}

static void disk_does(struct host *host, enum backend_op op, bool fua, int result)
{
	assert_int_equal(disk_has(host)->op, op);
	assert_int_equal(disk_has(host)->fua, fua);
	assert_true(sim_do_io(host->sim, 0, result));
	sim_settle(host->sim);
}

/* Of two ranges. */
static uint16_t send_deallocation(struct host *host, struct sim_conn *queue)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_DSM, 1, 2 * sizeof(struct nvme_dsm_range));
	struct nvme_dsm_range *ranges;
	struct sim *sim = host->sim;

	cmd.dsm.nr = 1;
	cmd.dsm.attributes = le32(NVME_DSM_AD);
	sim->auto_pull = false;
	send_cmd(host, queue, cmd);
	ranges = container_of(queue->conn->moving.next, struct request, moving)->bytes;
	for (unsigned i = 0; i < 2; i++)
		ranges[i] = (struct nvme_dsm_range){.slba = le64(8 * i), .nlb = le32(4)};
	sim->keeps_data = true;
	assert_true(sim_do_pull(queue, 0));
	sim->keeps_data = false;
	sim->auto_pull = true;
	sim_settle(sim);
	return le16_get(cmd.cid);
}

/* Two ranges are one flush. */
static void assert_deallocates(struct host *host, struct sim_conn *queue, bool through)
{
	uint16_t cid = send_deallocation(host, queue);

	disk_does(host, BACKEND_DISCARD, false, 0);
	disk_does(host, BACKEND_DISCARD, false, 0);
	assert_int_equal(host->sim->status[cid], through ? SIM_NO_ANSWER : 0);
	if (through)
		disk_does(host, BACKEND_FLUSH, false, 0);
	assert_int_equal(host->sim->status[cid], 0);
	assert_true(list_empty(&host->sim->ios));
}

/* Of each command that writes, on QUEUE. */
static void assert_writes(struct host *host, struct sim_conn *queue, bool through)
{
	static const struct {
		uint8_t opcode;
		enum backend_op op;
	} cases[] = {
		{NVME_OPC_WRITE, BACKEND_WRITE}, {NVME_OPC_WRITE_ZEROES, BACKEND_WRITE_ZEROES}};
	struct nvme_cmd copy = sim_cmd(NVME_OPC_COPY, 1, sizeof(struct nvme_copy_range));

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		send_cmd(host, queue, sim_rw(cases[i].opcode, 8, 1));
		disk_does(host, cases[i].op, through, 0);
	}
	send_cmd(host, queue, copy);
	disk_does(host, BACKEND_READ, false, 0);
	disk_does(host, BACKEND_WRITE, through, 0);
	assert_deallocates(host, queue, through);
	send_cmd(host, queue, sim_rw(NVME_OPC_READ, 8, 1));
	disk_does(host, BACKEND_READ, false, 0);
}

static void a_cache_that_is_off_is_written_through_on_every_queue(void **state)
{
	struct host host = setup();
	uint16_t off;

	(void)state;
	host.sim->auto_disk = false;
	assert_writes(&host, host.queues[0], false);
	off = send_cache(&host, false);
	for (unsigned i = 0; i < NAMESPACES; i++) {
		assert_int_equal(host.sim->status[off], SIM_NO_ANSWER);
		disk_does(&host, BACKEND_FLUSH, false, 0);
	}
	assert_int_equal(host.sim->status[off], 0);
	for (unsigned i = 0; i < NR_QUEUES; i++)
		assert_writes(&host, host.queues[i], true);
	assert_writes(&host, sim_queue(host.sim, host.admin, NR_QUEUES + 1, 16), true);
	assert_int_equal(
		get_feature(&host, NVME_FEAT_VOLATILE_WRITE_CACHE, NVME_FEATURE_CURRENT), 0);
	assert_int_equal(
		get_feature(&host, NVME_FEAT_VOLATILE_WRITE_CACHE, NVME_FEATURE_DEFAULT), 1);

	off = send_cache(&host, false);
	assert_int_equal(host.sim->status[off], 0);
	off = send_cache(&host, true);
	assert_int_equal(host.sim->status[off], 0);
	for (unsigned i = 0; i < NR_QUEUES; i++)
		assert_writes(&host, host.queues[i], false);
	sim_destroy(host.sim);
}

static void a_cache_that_cannot_be_flushed_is_told(void **state)
{
	struct host host = setup();
	uint16_t off;

	(void)state;
	host.sim->auto_disk = false;
	off = send_cache(&host, false);
	disk_does(&host, BACKEND_FLUSH, false, -EIO);
	assert_int_equal(host.sim->status[off] & NVME_STATUS_CODE_MASK, NVME_SC_WRITE_FAULT);
	assert_writes(&host, host.queues[1], true);
	sim_destroy(host.sim);
}

/* Nothing that a host is told of has not happened: a medium that cannot keep it, and one that
 * cannot deallocate, which is advice. */
static void a_deallocation_that_does_not_reach_the_medium_fails(void **state)
{
	static const struct {
		int first, second, flush;
		uint16_t status;
	} cases[] = {
		{0, 0, -EIO, NVME_SC_WRITE_FAULT},
		{-EOPNOTSUPP, -EOPNOTSUPP, 0, 0},
		{0, -EOPNOTSUPP, -EIO, NVME_SC_WRITE_FAULT},
	};
	struct host host = setup();

	(void)state;
	assert_int_equal(host.sim->status[send_cache(&host, false)], 0);
	host.sim->auto_disk = false;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint16_t cid = send_deallocation(&host, host.queues[0]);

		disk_does(&host, BACKEND_DISCARD, false, cases[i].first);
		disk_does(&host, BACKEND_DISCARD, false, cases[i].second);
		disk_does(&host, BACKEND_FLUSH, false, cases[i].flush);
		assert_int_equal(host.sim->status[cid] & NVME_STATUS_CODE_MASK, cases[i].status);
	}
	sim_destroy(host.sim);
}

static void another_controller_and_a_reset_have_the_cache_on(void **state)
{
	struct host host = setup();
	struct sim_conn *other = sim_admin(host.sim, SIM_NQN);
	struct sim_conn *queue = sim_queue(host.sim, other, 1, 16);

	(void)state;
	assert_int_equal(host.sim->status[send_cache(&host, false)], 0);
	assert_int_equal(sim_set_cc(host.sim, host.admin, 0), 0);
	assert_int_equal(sim_set_cc(host.sim, host.admin, SIM_CC_ENABLE), 0);
	host.queues[0] = sim_queue(host.sim, host.admin, 1, 16);
	host.sim->auto_disk = false;
	assert_writes(&host, queue, false);
	assert_writes(&host, host.queues[0], false);
	sim_destroy(host.sim);
}

static void a_host_that_goes_meanwhile_leaves_nothing(void **state)
{
	(void)state;
	for (unsigned when = 0; when < 2; when++) {
		struct host host = setup();
		struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 0, 0);

		host.sim->auto_disk = false;
		cmd.features.fid = NVME_FEAT_VOLATILE_WRITE_CACHE;
		assert_true(sim_send(host.sim, host.admin, &cmd));
		if (when)
			sim_settle(host.sim);
		conn_close(host.admin->conn, "the host has gone");
		sim_settle(host.sim);
		while (sim_do_io(host.sim, 0, 0))
			sim_settle(host.sim);
		assert_null(host.admin->conn);
		sim_destroy(host.sim);
	}
}

/* --- retries --------------------------------------------------------------------------------- */

static void set_retry_delays(struct host *host, bool on)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 0, sizeof(struct nvme_host_behavior));

	cmd.features.fid = NVME_FEAT_HOST_BEHAVIOR;
	cmd.cdw2 = le32(on); /* ACRE is the first byte */
	/* The pattern repeats: all else is reserved. */
	assert_int_equal(sim_run(host->sim, host->admin, &cmd), 0);
}

static void interruptions_and_delays_are_told_to_whoever_knows_them(void **state)
{
	static const struct {
		int error;
		uint16_t plain, delayed;
	} cases[] = {
		{-EAGAIN, NVME_SC_NS_NOT_READY, NVME_SC_INTERRUPTED | 1 << NVME_STATUS_CRD_SHIFT},
		{-EBUSY, NVME_SC_NS_NOT_READY, NVME_SC_NS_NOT_READY | 2 << NVME_STATUS_CRD_SHIFT},
		{-ENOLINK, NVME_SC_INTERNAL_PATH, NVME_SC_INTERNAL_PATH},
		{-EIO, NVME_SC_READ_ERROR | NVME_STATUS_DNR, NVME_SC_READ_ERROR | NVME_STATUS_DNR},
	};
	struct host host = setup();
	struct sim *sim = host.sim;

	(void)state;
	for (unsigned on = 0; on < 3; on++) {
		set_retry_delays(&host, on == 1);
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			struct nvme_cmd read = sim_rw(NVME_OPC_READ, 0, 1);

			sim->next_result = cases[i].error;
			assert_int_equal(
				sim_run(sim, host.queues[i], &read) & (uint16_t)~NVME_STATUS_MORE,
				on == 1 ? cases[i].delayed : cases[i].plain);
		}
		sim->next_result = 0;
	}
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cache_that_is_off_is_written_through_on_every_queue),
		cmocka_unit_test(a_cache_that_cannot_be_flushed_is_told),
		cmocka_unit_test(a_deallocation_that_does_not_reach_the_medium_fails),
		cmocka_unit_test(another_controller_and_a_reset_have_the_cache_on),
		cmocka_unit_test(a_host_that_goes_meanwhile_leaves_nothing),
		cmocka_unit_test(interruptions_and_delays_are_told_to_whoever_knows_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
