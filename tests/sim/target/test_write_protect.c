/* SPDX-License-Identifier: MIT */
/*
 * Write protection: whatever was on its way before it is over, or refused, when it is answered.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

struct host {
	struct sim *sim;
	struct sim_conn *admin, *queue;
	char state[32];
};

static struct host setup(void)
{
	struct host host = {.state = "/tmp/haul-protect-XXXXXX"};

	assert_non_null(mkdtemp(host.state));
	sim_state = host.state;
	host.sim = sim_create(3, MEMORY);
	host.sim->has_media = true;
	host.admin = sim_admin(host.sim, SIM_NQN);
	host.queue = sim_queue(host.sim, host.admin, 1, 32);
	return host;
}

/* FILES: the state directory has one, which goes. */
static void teardown(struct host *host, bool files)
{
	const struct subsys *subsys = catalog_find(host->sim->target.catalog, SIM_NQN);
	char text[NVME_UUID_TEXT], path[128];

	nvme_uuid_format(&subsys_ns(subsys, 1)->uuid, text);
	snprintf(path, sizeof(path), "%s/%s.write-protect", host->state, text);
	host->sim->auto_disk = true;
	while (sim_do_io(host->sim, 0, 0))
		sim_settle(host->sim);
	sim_destroy(host->sim);
	sim_state = "";
	assert_int_equal(unlink(path), files ? 0 : -1);
	assert_int_equal(rmdir(host->state), 0);
}

/* Returns its id. */
static uint16_t send_protect(struct host *host, uint32_t wanted)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 1, 0);

	cmd.features.fid = NVME_FEAT_WRITE_PROTECT;
	cmd.features.cdw11 = le32(wanted);
	assert_true(sim_send(host->sim, host->admin, &cmd));
	sim_settle(host->sim);
	return le16_get(cmd.cid);
}

static uint16_t send_write(struct host *host, uint8_t opcode, uint8_t fuse)
{
	struct nvme_cmd cmd = sim_rw(opcode, 8, 2);

	cmd.flags |= fuse;
	assert_true(sim_send(host->sim, host->queue, &cmd));
	sim_settle(host->sim);
	return le16_get(cmd.cid);
}

static void assert_code(const struct host *host, uint16_t cid, uint16_t code)
{
	assert_int_not_equal(host->sim->status[cid], SIM_NO_ANSWER);
	assert_int_equal(host->sim->status[cid] & NVME_STATUS_CODE_MASK, code);
}

static void assert_waits(const struct host *host, uint16_t cid)
{
	assert_int_equal(host->sim->status[cid], SIM_NO_ANSWER);
}

static void disk_does(struct host *host, enum backend_op op, int result)
{
	const struct backend_io *io =
		container_of(host->sim->ios.next, struct backend_io, loop_op.node);

	assert_true(host->sim->nr_ios);
	assert_int_equal(io->op, op);
	assert_true(sim_do_io(host->sim, 0, result));
	sim_settle(host->sim);
}

static void protection_waits_for_what_the_disk_has_and_flushes_it(void **state)
{
	struct host host = setup();
	uint16_t write, protect, late;

	(void)state;
	host.sim->auto_disk = false;
	write = send_write(&host, NVME_OPC_WRITE, 0);
	protect = send_protect(&host, NVME_WRITE_PROTECT_SET);
	assert_waits(&host, protect);
	late = send_write(&host, NVME_OPC_WRITE, 0);
	assert_code(&host, late, NVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(host.sim->nr_ios, 1);
	disk_does(&host, BACKEND_WRITE, 0);
	assert_code(&host, write, 0);
	assert_waits(&host, protect);
	disk_does(&host, BACKEND_FLUSH, 0);
	assert_code(&host, protect, 0);
	teardown(&host, true);
}

static void a_flush_that_fails_is_told_and_protects(void **state)
{
	struct host host = setup();
	uint16_t protect;

	(void)state;
	host.sim->auto_disk = false;
	protect = send_protect(&host, NVME_WRITE_PROTECT_SET);
	disk_does(&host, BACKEND_FLUSH, -EIO);
	assert_code(&host, protect, NVME_SC_WRITE_FAULT);
	assert_code(&host, send_write(&host, NVME_OPC_WRITE, 0), NVME_SC_NS_WRITE_PROTECTED);
	protect = send_protect(&host, NVME_WRITE_PROTECT_NONE);
	assert_code(&host, protect, 0);
	teardown(&host, false);
}

static void a_write_whose_data_comes_later_is_refused(void **state)
{
	struct host host = setup();
	uint16_t write;

	(void)state;
	host.sim->auto_pull = false;
	write = send_write(&host, NVME_OPC_WRITE, 0);
	assert_code(&host, send_protect(&host, NVME_WRITE_PROTECT_SET), 0);
	host.sim->auto_disk = false;
	assert_true(sim_do_pull(host.queue, 0));
	sim_settle(host.sim);
	assert_code(&host, write, NVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(host.sim->nr_ios, 0);
	teardown(&host, true);
}

static void a_pair_that_has_compared_does_not_write_any_more(void **state)
{
	struct host host = setup();
	uint16_t compare, write, protect;

	(void)state;
	host.sim->auto_disk = false;
	compare = send_write(&host, NVME_OPC_COMPARE, NVME_CMD_FUSE_FIRST);
	write = send_write(&host, NVME_OPC_WRITE, NVME_CMD_FUSE_SECOND);
	protect = send_protect(&host, NVME_WRITE_PROTECT_SET);
	disk_does(&host, BACKEND_READ, 0);
	assert_code(&host, compare, 0);
	assert_code(&host, write, NVME_SC_NS_WRITE_PROTECTED);
	disk_does(&host, BACKEND_FLUSH, 0);
	assert_code(&host, protect, 0);
	teardown(&host, true);
}

static void a_host_that_goes_leaves_nothing(void **state)
{
	struct host host = setup();

	(void)state;
	host.sim->auto_disk = false;
	(void)send_write(&host, NVME_OPC_WRITE, 0);
	(void)send_protect(&host, NVME_WRITE_PROTECT_SET);
	conn_close(host.admin->conn, "the host has gone");
	sim_settle(host.sim);
	disk_does(&host, BACKEND_WRITE, 0);
	disk_does(&host, BACKEND_FLUSH, 0);
	assert_null(host.admin->conn);
	teardown(&host, true);
}

/* --- turns of hosts -------------------------------------------------------------------------- */

static unsigned nr_syncs;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	nr_syncs++;
	return __real_fsync(fd);
}

struct taker {
	struct host_turn turn;
	char name;
};

static char turns_taken[64];

static void taker_begin(struct host_turn *turn)
{
	turns_taken[strlen(turns_taken)] = container_of(turn, struct taker, turn)->name;
}

/* Each host its own in order; between hosts one each, whoever has asked for many. */
static void hosts_have_turns_one_after_the_other(void **state)
{
	static const char asked[] = "AAAABBCA";
	struct host host = setup();
	struct host_turns *turns = &host.sim->target.host_turns;
	struct taker takers[sizeof(asked)];

	(void)state;
	memset(takers, 0, sizeof(takers));
	memset(turns_taken, 0, sizeof(turns_taken));
	for (size_t i = 0; asked[i]; i++) {
		takers[i].name = asked[i];
		takers[i].turn.host.scope = (uint32_t)asked[i];
		takers[i].turn.begin = taker_begin;
		host_turns_ask(turns, &takers[i].turn);
	}
	while (turns->current)
		host_turns_over(turns, turns->current);
	assert_string_equal(turns_taken, "ABCABAAA");
	teardown(&host, false);
}

/* More than a burst: the next has to wait, unless the target is about to stop. */
static void hosts_rest_when_they_have_taken_too_much(void **state)
{
	struct host host = setup();
	struct host_turns *turns = &host.sim->target.host_turns;
	struct taker takers[2];

	(void)state;
	memset(takers, 0, sizeof(takers));
	for (unsigned i = 0; i < 2; i++) {
		takers[i].turn.begin = taker_begin;
		host_turns_ask(turns, &takers[i].turn);
	}
	turns->began_ns -= 10000000000ull; /* that is how long it has taken */
	turns->as_of_ns = turns->began_ns;
	host_turns_over(turns, &takers[0].turn);
	assert_null(turns->current);
	assert_true(loop_timer_is_set(&turns->rest));
	host_turns_hurry(turns);
	assert_ptr_equal(turns->current, &takers[1].turn);
	host_turns_over(turns, &takers[1].turn);
	assert_false(loop_timer_is_set(&turns->rest));
	teardown(&host, false);
}

static void a_state_that_is_so_already_stores_nothing(void **state)
{
	struct host host = setup();

	(void)state;
	assert_code(&host, send_protect(&host, NVME_WRITE_PROTECT_SET), 0);
	nr_syncs = 0;
	for (unsigned i = 0; i < 30; i++)
		assert_code(&host, send_protect(&host, NVME_WRITE_PROTECT_SET), 0);
	assert_int_equal(nr_syncs, 0);
	assert_code(&host, send_protect(&host, NVME_WRITE_PROTECT_NONE), 0);
	assert_int_equal(nr_syncs, 1);
	teardown(&host, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(protection_waits_for_what_the_disk_has_and_flushes_it),
		cmocka_unit_test(a_flush_that_fails_is_told_and_protects),
		cmocka_unit_test(a_write_whose_data_comes_later_is_refused),
		cmocka_unit_test(a_pair_that_has_compared_does_not_write_any_more),
		cmocka_unit_test(a_host_that_goes_leaves_nothing),
		cmocka_unit_test(hosts_have_turns_one_after_the_other),
		cmocka_unit_test(hosts_rest_when_they_have_taken_too_much),
		cmocka_unit_test(a_state_that_is_so_already_stores_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
