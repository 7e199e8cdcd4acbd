/* SPDX-License-Identifier: MIT */
/*
 * Reservations between hosts on several reactors: commands in flight when a state changes, preempt
 * and abort, notices, and connections that end in the middle.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/log.h"
#include "target/cmd_io.h"
#include "target/reservation_owner.h"
#include "tests/sim/target/reservers.h"

enum { NO_EVENT, REGISTRATION_PREEMPTED, RELEASED, PREEMPTED };

static uint16_t do_rw(struct fixture *fixture, struct host *host, uint8_t opcode)
{
	struct nvme_cmd cmd = sim_rw(opcode, 8, 8);

	return sim_run(fixture->sim, host->queue, &cmd);
}

/* What the host is told next; NO_EVENT: nothing. */
static unsigned next_notice(struct fixture *fixture, struct host *host, unsigned *ret_more)
{
	const struct nvme_log_reservation *page = (const void *)host->admin->data;

	sim_get_log(fixture->sim, host->admin, NVME_LOG_RESERVATION, 0, sizeof(*page), 0);
	if (page->type)
		assert_int_equal(le32_get(page->nsid), 1);
	*ret_more = page->nr_pages;
	return page->type;
}

static void expect_notice(struct fixture *fixture, struct host *host, unsigned notice)
{
	unsigned more;

	assert_int_equal(next_notice(fixture, host, &more), notice);
	assert_int_equal(more, 0);
}

/* --- conflicts on every reactor -------------------------------------------------------------- */

static void reservation_counts_on_all_reactors_when_it_is_answered(void **state)
{
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;

	(void)state;
	assert_ptr_not_equal(hosts[0].queue->conn->reactor, hosts[1].queue->conn->reactor);
	must_register(&fixture, &hosts[0]);
	assert_int_equal(do_rw(&fixture, &hosts[1], NVME_OPC_WRITE), 0);
	assert_int_equal(acquire(&fixture, &hosts[0], 1, NVME_RESERVATION_ACQUIRE, 0), 0);
	for (unsigned i = 0; i < NR_HOSTS; i++) {
		assert_int_equal(do_rw(&fixture, &hosts[i], NVME_OPC_WRITE), i ? CONFLICT : 0);
		assert_int_equal(do_rw(&fixture, &hosts[i], NVME_OPC_READ), 0);
	}
	assert_int_equal(release(&fixture, &hosts[0], 1, NVME_RESERVATION_RELEASE), 0);
	for (unsigned i = 0; i < NR_HOSTS; i++)
		assert_int_equal(do_rw(&fixture, &hosts[i], NVME_OPC_WRITE), 0);
	sim_destroy(fixture.sim);
}

/* Its data was on its way when the reservation came. */
static void write_that_comes_late_conflicts(void **state)
{
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	(void)state;
	must_register(&fixture, &hosts[0]);
	fixture.sim->auto_pull = false;
	assert_true(sim_send(fixture.sim, hosts[1].queue, &cmd));
	send_keys(&fixture, &hosts[0], NVME_OPC_RESERVATION_ACQUIRE, 1 << 8, hosts[0].key, 0);
	assert_true(sim_do_pull(hosts[0].queue, 0));
	sim_settle(fixture.sim);
	assert_int_equal(nvme_cqe_status(&hosts[0].queue->last), 0);
	fixture.sim->auto_pull = true;
	sim_settle(fixture.sim);
	assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), CONFLICT);
	assert_int_equal(fixture.sim->nr_ios, 0);
	sim_destroy(fixture.sim);
}

/* Another catalog: new reactor tables, the same namespace. */
static void reservation_outlives_a_change_of_the_catalog(void **state)
{
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct catalog *catalog;

	(void)state;
	must_register(&fixture, &hosts[0]);
	assert_int_equal(acquire(&fixture, &hosts[0], 2, NVME_RESERVATION_ACQUIRE, 0), 0);
	catalog = catalog_clone(sim->target.catalog);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 9, false);
	assert_int_equal(sim_publish(sim, catalog), 0);
	assert_int_equal(do_rw(&fixture, &hosts[1], NVME_OPC_READ), CONFLICT);
	assert_int_equal(do_rw(&fixture, &hosts[0], NVME_OPC_WRITE), 0);
	sim_destroy(sim);
}

/* Another namespace of the same UUID is the same to the hosts. */
static void reservation_is_found_by_uuid(void **state)
{
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct sim_conn *admin, *queue;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 1);

	(void)state;
	must_register(&fixture, &hosts[0]);
	assert_int_equal(acquire(&fixture, &hosts[0], 1, NVME_RESERVATION_ACQUIRE, 0), 0);
	admin = sim_admin(sim, SIM_OTHER);
	queue = sim_queue(sim, admin, 1, 16);
	assert_int_equal(sim_run(sim, queue, &cmd), CONFLICT);
	sim_destroy(sim);
}

/* --- preempt and abort ----------------------------------------------------------------------- */

static struct fixture setup_held(unsigned type)
{
	struct fixture fixture = setup();

	for (unsigned i = 0; i < NR_HOSTS; i++)
		must_register(&fixture, &fixture.hosts[i]);
	assert_int_equal(
		acquire(&fixture, &fixture.hosts[0], type, NVME_RESERVATION_ACQUIRE, 0), 0);
	return fixture;
}

static void preempt(struct fixture *fixture, unsigned action)
{
	send_keys(fixture, &fixture->hosts[1], NVME_OPC_RESERVATION_ACQUIRE, action | 1 << 8,
		fixture->hosts[1].key, fixture->hosts[0].key);
	sim_settle(fixture->sim);
}

/* What a disk has of the preempted host is over before the answer; of others it is not awaited. */
static void preempt_and_abort_waits_for_the_disk(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);
	unsigned before;

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, hosts[0].queue, &cmd));
	cmd = sim_rw(NVME_OPC_READ, 0, 8);
	assert_true(sim_send(sim, hosts[0].queue, &cmd));
	assert_true(sim_send(sim, hosts[2].queue, &cmd));
	sim_settle(sim);
	assert_int_equal(sim->nr_ios, 3);
	before = hosts[1].queue->nr_replies;
	preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
	assert_int_equal(hosts[1].queue->nr_replies, before);
	/* The state counts already. */
	cmd = sim_rw(NVME_OPC_WRITE, 0, 8);
	assert_int_equal(sim_run(sim, hosts[0].queue, &cmd), CONFLICT);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before);
	assert_true(sim_do_io(sim, 0, -EIO));
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before + 1);
	assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), 0);
	assert_int_equal(sim->nr_ios, 1);
	sim_destroy(sim);
}

/* A Flush of all namespaces is with one disk after the other, and each may be awaited. */
static void flush_of_all_is_awaited_namespace_by_namespace(void **state)
{
	const uint32_t nsids[] = {1, 3};
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0);
	unsigned before, flushed;

	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(nsids); i++) {
		fixture.nsid = nsids[i / 2];
		must_register(&fixture, &hosts[i % 2]);
	}
	fixture.sim->auto_disk = false;
	flushed = hosts[0].queue->nr_replies;
	assert_true(sim_send(fixture.sim, hosts[0].queue, &cmd));
	sim_settle(fixture.sim);
	for (unsigned i = 0; i < ARRAY_SIZE(nsids); i++) {
		fixture.nsid = nsids[i];
		before = hosts[1].queue->nr_replies;
		preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
		assert_int_equal(hosts[1].queue->nr_replies, before);
		assert_true(sim_do_io(fixture.sim, 0, 0));
		sim_settle(fixture.sim);
		assert_int_equal(hosts[1].queue->nr_replies, before + 1);
		assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), 0);
	}
	assert_int_equal(hosts[0].queue->nr_replies, flushed + 1);
	sim_destroy(fixture.sim);
}

static void preempt_alone_does_not_wait(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct host *hosts = fixture.hosts;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);
	unsigned before = hosts[1].queue->nr_replies;

	(void)state;
	fixture.sim->auto_disk = false;
	assert_true(sim_send(fixture.sim, hosts[0].queue, &cmd));
	sim_settle(fixture.sim);
	preempt(&fixture, NVME_RESERVATION_PREEMPT);
	assert_int_equal(hosts[1].queue->nr_replies, before + 1);
	assert_int_equal(fixture.sim->nr_ios, 1);
	sim_destroy(fixture.sim);
}

/* Nothing is reserved, so nothing but the abort keeps this write from the disk. */
static void data_on_its_way_is_aborted(void **state)
{
	struct fixture fixture = setup();
	struct host *hosts = fixture.hosts;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	(void)state;
	must_register(&fixture, &hosts[0]);
	must_register(&fixture, &hosts[1]);
	fixture.sim->auto_pull = false;
	assert_true(sim_send(fixture.sim, hosts[0].queue, &cmd));
	send_keys(&fixture, &hosts[1], NVME_OPC_RESERVATION_ACQUIRE,
		NVME_RESERVATION_PREEMPT_ABORT | 1 << 8, hosts[1].key, hosts[0].key);
	assert_true(sim_do_pull(hosts[1].queue, 0));
	sim_settle(fixture.sim);
	assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), 0);
	fixture.sim->auto_pull = true;
	sim_settle(fixture.sim);
	assert_int_equal(nvme_cqe_status(&hosts[0].queue->last), NVME_SC_ABORT_PREEMPTED);
	sim_destroy(fixture.sim);
}

/* Reads that have no buffer yet. */
static void command_that_waits_is_aborted(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 2048);
	unsigned before = hosts[0].queue->nr_replies;
	unsigned waiting = 0, nr = 40;

	(void)state;
	sim->auto_disk = false;
	for (unsigned i = 0; i < nr; i++)
		assert_true(sim_send(sim, hosts[0].queue, &cmd));
	sim_settle(sim);
	waiting = nr - sim->nr_ios;
	assert_true(waiting > 0);
	preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
	assert_int_equal(hosts[0].queue->nr_replies, before + waiting);
	assert_int_equal(nvme_cqe_status(&hosts[0].queue->last), NVME_SC_ABORT_PREEMPTED);
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(hosts[0].queue->nr_replies, before + nr);
	assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), 0);
	sim_destroy(sim);
}

/* The first half of a pair waits for the second. */
static void half_of_a_pair_is_aborted(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct host *hosts = fixture.hosts;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_COMPARE, 0, 8);
	unsigned before = hosts[0].queue->nr_replies;

	(void)state;
	cmd.flags |= NVME_CMD_FUSE_FIRST;
	assert_true(sim_send(fixture.sim, hosts[0].queue, &cmd));
	sim_settle(fixture.sim);
	assert_int_equal(hosts[0].queue->nr_replies, before);
	preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
	assert_int_equal(hosts[0].queue->nr_replies, before + 1);
	assert_int_equal(nvme_cqe_status(&hosts[0].queue->last), NVME_SC_ABORT_PREEMPTED);
	sim_destroy(fixture.sim);
}

/* The preempted host's connection ends while its write is waited for. */
static void preempted_host_may_leave_meanwhile(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);
	unsigned before = hosts[1].queue->nr_replies;

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, hosts[0].queue, &cmd));
	sim_settle(sim);
	preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
	conn_close(hosts[0].queue->conn, "the test");
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before + 1);
	sim_destroy(sim);
}

/* ... or that of the host which preempts: its command is done all the same. */
static void host_may_leave_with_its_command_on_the_way(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, hosts[0].queue, &cmd));
	sim_settle(sim);
	preempt(&fixture, NVME_RESERVATION_PREEMPT_ABORT);
	conn_close(hosts[1].queue->conn, "the test");
	sim_settle(sim);
	assert_non_null(hosts[1].queue->conn);
	/* Others wait for their turn. */
	send_keys(&fixture, &hosts[2], NVME_OPC_RESERVATION_ACQUIRE,
		NVME_RESERVATION_PREEMPT | 2 << 8, hosts[2].key, hosts[1].key);
	sim_settle(sim);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_null(hosts[1].queue->conn);
	assert_int_equal(nvme_cqe_status(&hosts[2].queue->last), 0);
	sim->auto_disk = true;
	assert_int_equal(do_rw(&fixture, &hosts[0], NVME_OPC_READ), CONFLICT);
	assert_int_equal(do_rw(&fixture, &hosts[2], NVME_OPC_WRITE), 0);
	sim_destroy(sim);
}

/* --- notices --------------------------------------------------------------------------------- */

static void hosts_are_told_what_others_did(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	unsigned before;

	(void)state;
	sim_ask_event(sim, hosts[2].admin);
	before = hosts[2].admin->nr_replies;
	assert_int_equal(release(&fixture, &hosts[0], 3, NVME_RESERVATION_RELEASE), 0);
	assert_int_equal(hosts[2].admin->nr_replies, before + 1);
	assert_int_equal(le32_get(hosts[2].admin->last.dw0),
		NVME_AER(NVME_AER_IO_SPECIFIC, NVME_AER_IO_RESERVATION_LOG, NVME_LOG_RESERVATION));
	expect_notice(&fixture, &hosts[0], NO_EVENT);
	expect_notice(&fixture, &hosts[1], RELEASED);
	expect_notice(&fixture, &hosts[2], RELEASED);
	expect_notice(&fixture, &hosts[2], NO_EVENT);
	assert_int_equal(
		acquire(&fixture, &hosts[1], 1, NVME_RESERVATION_PREEMPT, hosts[0].key), 0);
	expect_notice(&fixture, &hosts[0], REGISTRATION_PREEMPTED);
	expect_notice(&fixture, &hosts[2], NO_EVENT);
	assert_int_equal(release(&fixture, &hosts[1], 0, NVME_RESERVATION_CLEAR), 0);
	expect_notice(&fixture, &hosts[2], PREEMPTED);
	expect_notice(&fixture, &hosts[1], NO_EVENT);
	sim_destroy(sim);
}

/* Feature 82h. */
static void masked_notices_are_not_told(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 1, 0);

	(void)state;
	cmd.features.fid = NVME_FEAT_RESERVATION_NOTIFICATION_MASK;
	cmd.features.cdw11 = le32(1u << RELEASED);
	assert_int_equal(sim_run(sim, hosts[1].admin, &cmd), 0);
	assert_int_equal(release(&fixture, &hosts[0], 6, NVME_RESERVATION_RELEASE), 0);
	expect_notice(&fixture, &hosts[1], NO_EVENT);
	expect_notice(&fixture, &hosts[2], RELEASED);
	assert_int_equal(release(&fixture, &hosts[0], 0, NVME_RESERVATION_CLEAR), 0);
	expect_notice(&fixture, &hosts[1], PREEMPTED);
	cmd.features.cdw11 = le32(1);
	assert_int_equal(sim_run(sim, hosts[1].admin, &cmd), CMD_INVALID_FIELD);
	cmd.nsid = le32(2);
	assert_int_equal(sim_run(sim, hosts[1].admin, &cmd), CMD_INVALID_FIELD);
	sim_destroy(sim);
}

/* Nobody reads: the oldest are lost, the count tells. */
static void unread_notices_are_bounded(void **state)
{
	struct fixture fixture = setup_held(NVME_RESERVATION_WRITE_EXCLUSIVE_ALL);
	struct host *hosts = fixture.hosts;
	const struct nvme_log_reservation *page = (const void *)hosts[1].admin->data;
	unsigned more, nr = 100;

	(void)state;
	for (unsigned i = 0; i < nr; i++) {
		assert_int_equal(release(&fixture, &hosts[0], 5, NVME_RESERVATION_RELEASE), 0);
		assert_int_equal(acquire(&fixture, &hosts[0], 5, NVME_RESERVATION_ACQUIRE, 0), 0);
	}
	assert_int_equal(next_notice(&fixture, &hosts[1], &more), RELEASED);
	assert_int_equal(le64_get(page->count), nr - more);
	while (more)
		assert_int_equal(next_notice(&fixture, &hosts[1], &more), RELEASED);
	assert_int_equal(le64_get(page->count), nr);
	expect_notice(&fixture, &hosts[1], NO_EVENT);
	sim_destroy(fixture.sim);
}

/* --- any order ------------------------------------------------------------------------------- */

/* All hosts at once, disks and data as they like: nothing hangs, all is answered, and one state
 * counts everywhere. */
static void commands_of_all_hosts_at_once(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 40; seed++) {
		struct fixture fixture = setup();
		struct sim *sim = fixture.sim;
		unsigned random = seed * 2654435761u;

		sim->auto_disk = false;
		for (unsigned i = 0; i < 60; i++) {
			struct host *host = &fixture.hosts[random % NR_HOSTS];
			struct nvme_cmd cmd =
				sim_rw(random >> 9 & 1 ? NVME_OPC_READ : NVME_OPC_WRITE, 0, 8);

			random = random * 1664525u + 1013904223u;
			if (random >> 20 & 1)
				(void)sim_send(sim, host->queue, &cmd);
			else if (random >> 21 & 1)
				send_keys(&fixture, host, NVME_OPC_RESERVATION_REGISTER,
					NVME_RESERVATION_REPLACE | NVME_RESERVATION_IEKEY, 0,
					host->key);
			else
				send_keys(&fixture, host, NVME_OPC_RESERVATION_ACQUIRE,
					(random >> 22) % 3 | (1 + (random >> 25) % 6) << 8,
					host->key, 0x101 + (random >> 28) % NR_HOSTS);
			if (random >> 18 & 1)
				sim_settle(sim);
			if (random >> 17 & 1)
				(void)sim_do_io(sim, random >> 12, 0);
		}
		sim->auto_disk = true;
		sim_settle(sim);
		for (unsigned i = 0; i < NR_HOSTS; i++) {
			struct sim_conn *queue = fixture.hosts[i].queue;

			assert_int_equal(queue->nr_replies, queue->nr_sent);
		}
		for (unsigned i = 1; i < sim->target.nr_reactors; i++)
			assert_ptr_equal(
				sim->target.reactors[0]->namespaces[0]->ns.reservation->seen[0],
				sim->target.reactors[0]->namespaces[0]->ns.reservation->seen[i]);
		sim_destroy(sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reservation_counts_on_all_reactors_when_it_is_answered),
		cmocka_unit_test(write_that_comes_late_conflicts),
		cmocka_unit_test(reservation_outlives_a_change_of_the_catalog),
		cmocka_unit_test(reservation_is_found_by_uuid),
		cmocka_unit_test(preempt_and_abort_waits_for_the_disk),
		cmocka_unit_test(flush_of_all_is_awaited_namespace_by_namespace),
		cmocka_unit_test(preempt_alone_does_not_wait),
		cmocka_unit_test(data_on_its_way_is_aborted),
		cmocka_unit_test(command_that_waits_is_aborted),
		cmocka_unit_test(half_of_a_pair_is_aborted),
		cmocka_unit_test(preempted_host_may_leave_meanwhile),
		cmocka_unit_test(host_may_leave_with_its_command_on_the_way),
		cmocka_unit_test(hosts_are_told_what_others_did),
		cmocka_unit_test(masked_notices_are_not_told),
		cmocka_unit_test(unread_notices_are_bounded),
		cmocka_unit_test(commands_of_all_hosts_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
