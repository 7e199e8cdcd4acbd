/* SPDX-License-Identifier: MIT */
/*
 * Log pages with what commands have left behind: errors and SMART counters, from all reactors.
 */
#include <errno.h>
#include <string.h>

#include "proto/nvme/log.h"
#include "target/error_log.h"
#include "tests/sim/target/sim.h"

#define MEMORY	(32ull << 20)
#define BAD_LBA (NVME_SC_LBA_RANGE | NVME_STATUS_DNR)

struct host {
	struct sim *sim;
	struct sim_conn *admin, *queue;
};

/* The queue is on another reactor than its controller. */
static struct host setup(void)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct host host = {sim, admin, sim_queue(sim, admin, 1, 64)};

	assert_ptr_not_equal(host.admin->conn->reactor, host.queue->conn->reactor);
	return host;
}

/* With its controller on the reactor that turns last. */
static struct host setup_reversed(void)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct sim_conn *other = sim_admin(sim, SIM_OTHER);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct host host = {sim, admin, sim_queue(sim, admin, 1, 64)};

	assert_ptr_equal(other->conn->reactor, host.queue->conn->reactor);
	assert_ptr_not_equal(host.admin->conn->reactor, host.queue->conn->reactor);
	return host;
}

static const struct nvme_log_error *read_errors(const struct host *host)
{
	sim_get_log(host->sim, host->admin, NVME_LOG_ERROR, 0, 4096, 0);
	return (const void *)host->admin->data;
}

static void expect_entry(const struct nvme_log_error *entry, uint64_t count, uint16_t sqid,
	const struct nvme_cmd *cmd, uint16_t status, uint16_t parameter)
{
	assert_int_equal(le64_get(entry->error_count), count);
	assert_int_equal(le16_get(entry->sqid), sqid);
	assert_int_equal(le16_get(entry->cid), le16_get(cmd->cid));
	assert_int_equal(le16_get(entry->status) >> 1, status | NVME_STATUS_MORE);
	assert_int_equal(le16_get(entry->parameter), parameter);
	assert_int_equal(le32_get(entry->nsid), le32_get(cmd->nsid));
	assert_int_equal(entry->trtype, NVME_TRTYPE_TCP);
}

static void errors_of_all_queues_are_entries_the_newest_first(void **state)
{
	struct host host = setup();
	struct nvme_cmd first = sim_rw(NVME_OPC_READ, SIM_LBAS + 5, 1);
	struct nvme_cmd second = sim_cmd(0xc5, 77, 0);
	struct nvme_cmd third = sim_rw(NVME_OPC_WRITE, 8, 1);
	const struct nvme_log_error *entries;

	(void)state;
	entries = read_errors(&host);
	assert_int_equal(le64_get(entries[0].error_count), 0);
	assert_int_equal(sim_run(host.sim, host.queue, &first), BAD_LBA);
	assert_true(host.queue->last_more);
	assert_int_equal(
		sim_run(host.sim, host.admin, &second), NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR);
	host.sim->next_result = -EIO;
	assert_int_equal(
		sim_run(host.sim, host.queue, &third) & NVME_STATUS_CODE_MASK, NVME_SC_WRITE_FAULT);
	host.sim->next_result = 0;
	third.nsid = le32(1);
	entries = read_errors(&host);
	assert_int_equal(le64_get(entries[0].error_count), 3);
	assert_int_equal(le64_get(entries[0].lba), 8);
	expect_entry(&entries[1], 2, 0, &second, NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR, 0);
	expect_entry(&entries[2], 1, 1, &first, BAD_LBA, 40);
	assert_int_equal(le64_get(entries[2].lba), SIM_LBAS + 5);
	assert_int_equal(le64_get(entries[3].error_count), 0);
	sim_destroy(host.sim);
}

static void good_commands_and_aborts_are_no_entries(void **state)
{
	struct host host = setup();
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);
	uint16_t cid = sim_ask_event(host.sim, host.admin);

	(void)state;
	assert_int_equal(sim_run(host.sim, host.queue, &cmd), 0);
	assert_false(host.queue->last_more);
	assert_true(event_abort_request(host.admin->conn->member.ctrl, cid));
	sim_settle(host.sim);
	assert_int_equal(le64_get(read_errors(&host)[0].error_count), 0);
	sim_destroy(host.sim);
}

static void log_keeps_the_last_entries(void **state)
{
	struct host host = setup();
	const struct nvme_log_error *entries;

	(void)state;
	for (unsigned i = 0; i < ERROR_LOG_ENTRIES + 10; i++) {
		struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, SIM_LBAS + i, 1);

		assert_int_equal(sim_run(host.sim, host.queue, &cmd), BAD_LBA);
	}
	entries = read_errors(&host);
	for (unsigned i = 0; i < ERROR_LOG_ENTRIES; i++)
		assert_int_equal(le64_get(entries[i].error_count), ERROR_LOG_ENTRIES + 10 - i);
	sim_destroy(host.sim);
}

/* More at a time than a queue keeps: the first ones and "more" just for them. */
static void burst_of_errors_is_bounded(void **state)
{
	struct host host = setup();
	unsigned nr_more = 0;
	const struct nvme_log_error *entries;

	(void)state;
	host.sim->auto_reply = false;
	for (unsigned i = 0; i < 40; i++) {
		struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, SIM_LBAS + i, 1);

		assert_true(sim_send(host.sim, host.queue, &cmd));
		assert_int_equal(nvme_cqe_status(&host.queue->last), BAD_LBA);
		nr_more += host.queue->last_more;
	}
	host.sim->auto_reply = true;
	sim_settle(host.sim);
	entries = read_errors(&host);
	assert_in_range(nr_more, 16, 39);
	assert_int_equal(le64_get(entries[0].error_count), nr_more);
	assert_int_equal(le64_get(entries[nr_more].error_count), 0);
	sim_destroy(host.sim);
}

static void reset_clears_entries_and_keeps_the_count(void **state)
{
	struct host host = setup();
	struct ctrl *ctrl = host.admin->conn->member.ctrl;
	struct nvme_cmd cmd = sim_cmd(0xc5, 0, 0);
	uint32_t cc = ctrl->cc;

	(void)state;
	assert_int_not_equal(sim_run(host.sim, host.admin, &cmd), 0);
	assert_int_equal(sim_set_cc(host.sim, host.admin, 0), 0);
	assert_int_equal(sim_set_cc(host.sim, host.admin, cc), 0);
	assert_int_equal(le64_get(read_errors(&host)[0].error_count), 0);
	assert_int_not_equal(sim_run(host.sim, host.admin, &cmd), 0);
	assert_int_equal(le64_get(read_errors(&host)[0].error_count), 2);
	sim_destroy(host.sim);
}

/* Reports are on their way, in both directions, while the queue or all of it ends. */
static void ends_in_the_middle_of_reports(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 6; turns++) {
		for (unsigned which = 0; which < 4; which++) {
			struct host host = which & 2 ? setup_reversed() : setup();

			for (unsigned i = 0; i < 20; i++) {
				struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, SIM_LBAS, 1);

				assert_true(sim_send(host.sim, host.queue, &cmd));
			}
			for (unsigned i = 0; i < turns; i++)
				loop_turn(host.sim->target.reactors[i % 2]->loop);
			conn_close(
				which & 1 ? host.queue->conn : host.admin->conn, "the test closes");
			sim_settle(host.sim);
			assert_null(host.queue->conn);
			sim_destroy(host.sim);
		}
	}
}

/* --- SMART ----------------------------------------------------------------------------------- */

static const struct nvme_log_smart *read_smart(const struct host *host, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_LOG_PAGE, nsid, 512);

	cmd.get_log.lid = NVME_LOG_SMART;
	cmd.get_log.numdl = le16(512 / 4 - 1);
	assert_int_equal(sim_run(host->sim, host->admin, &cmd), 0);
	return (const void *)host->admin->data;
}

static uint64_t low(le128_t value)
{
	return le64_get(*(const le64_t *)&value);
}

static void run_io(const struct host *host, struct sim_conn *queue, uint8_t opcode, uint32_t nsid,
	uint32_t nr_lbas)
{
	struct nvme_cmd cmd = sim_rw(opcode, 0, nr_lbas);

	cmd.nsid = le32(nsid);
	assert_int_equal(sim_run(host->sim, queue, &cmd), 0);
}

static void smart_adds_up_what_all_reactors_have_done(void **state)
{
	struct host host = setup();
	struct sim_conn *second = sim_queue(host.sim, host.admin, 2, 32);
	const struct nvme_log_smart *smart;

	(void)state;
	assert_ptr_not_equal(host.queue->conn->reactor, second->conn->reactor);
	for (unsigned i = 0; i < 3; i++) {
		run_io(&host, host.queue, NVME_OPC_READ, 1, 500);
		run_io(&host, second, NVME_OPC_WRITE, 1, 334);
	}
	run_io(&host, second, NVME_OPC_READ, 3, 1);
	run_io(&host, second, NVME_OPC_FLUSH, 1, 1);
	smart = read_smart(&host, NVME_NSID_ALL);
	assert_int_equal(low(smart->host_reads), 4);
	assert_int_equal(low(smart->host_writes), 3);
	assert_int_equal(low(smart->data_units_read), 2);    /* 1501 */
	assert_int_equal(low(smart->data_units_written), 2); /* 1002 */
	smart = read_smart(&host, 3);
	assert_int_equal(low(smart->host_reads), 1);
	assert_int_equal(low(smart->host_writes), 0);
	assert_int_equal(low(smart->data_units_read), 1);
	assert_int_equal(low(smart->data_units_written), 0);
	assert_int_equal(smart->critical_warning, 0);
	sim_destroy(host.sim);
}

static void smart_counts_media_errors_and_entries(void **state)
{
	struct host host = setup();
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);
	const struct nvme_log_smart *smart;

	(void)state;
	host.sim->next_result = -EIO;
	assert_int_not_equal(sim_run(host.sim, host.queue, &cmd), 0);
	host.sim->next_result = 0;
	cmd = sim_rw(NVME_OPC_READ, SIM_LBAS, 1);
	assert_int_not_equal(sim_run(host.sim, host.queue, &cmd), 0);
	smart = read_smart(&host, NVME_NSID_ALL);
	assert_int_equal(low(smart->media_errors), 1);
	assert_int_equal(low(smart->error_entries), 2);
	assert_int_equal(low(smart->host_reads), 0);
	sim_destroy(host.sim);
}

static void disk_that_turns_read_only_is_a_critical_warning_until_it_takes_writes(void **state)
{
	struct host host = setup();
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 1);
	struct sim_conn *other = sim_admin(host.sim, SIM_OTHER);
	unsigned replies;

	(void)state;
	sim_set_feature(host.sim, host.admin, NVME_FEAT_ASYNC_EVENT, NVME_SMART_READ_ONLY);
	sim_set_feature(host.sim, other, NVME_FEAT_ASYNC_EVENT, NVME_SMART_READ_ONLY);
	sim_ask_event(host.sim, host.admin);
	sim_ask_event(host.sim, other);
	replies = other->nr_replies;
	host.sim->next_result = -EROFS;
	assert_int_equal(
		sim_run(host.sim, host.queue, &cmd), NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR);
	assert_int_equal(le32_get(host.admin->last.dw0),
		NVME_AER(NVME_AER_SMART, NVME_AER_SMART_RELIABILITY, NVME_LOG_SMART));
	assert_int_equal(other->nr_replies, replies);
	assert_int_not_equal(sim_run(host.sim, host.queue, &cmd), 0);
	assert_int_equal(read_smart(&host, 1)->critical_warning, NVME_SMART_READ_ONLY);
	assert_int_equal(read_smart(&host, 0)->critical_warning, NVME_SMART_READ_ONLY);
	assert_int_equal(read_smart(&host, 3)->critical_warning, 0);
	host.sim->next_result = 0;
	run_io(&host, host.queue, NVME_OPC_WRITE, 1, 1);
	assert_int_equal(read_smart(&host, 1)->critical_warning, 0);
	sim_destroy(host.sim);
}

static void write_to_a_read_only_namespace_is_no_warning(void **state)
{
	struct host host = setup();
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 1);

	(void)state;
	cmd.nsid = le32(3);
	assert_int_equal(
		sim_run(host.sim, host.queue, &cmd), NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR);
	assert_int_equal(read_smart(&host, NVME_NSID_ALL)->critical_warning, 0);
	sim_destroy(host.sim);
}

static void host_may_go_while_smart_is_added_up(void **state)
{
	struct host host = setup();
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_LOG_PAGE, NVME_NSID_ALL, 512);

	(void)state;
	cmd.get_log.lid = NVME_LOG_SMART;
	cmd.get_log.numdl = le16(512 / 4 - 1);
	assert_true(sim_send(host.sim, host.admin, &cmd));
	conn_close(host.admin->conn, "the test closes");
	sim_settle(host.sim);
	assert_null(host.admin->conn);
	sim_destroy(host.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_of_all_queues_are_entries_the_newest_first),
		cmocka_unit_test(good_commands_and_aborts_are_no_entries),
		cmocka_unit_test(log_keeps_the_last_entries),
		cmocka_unit_test(burst_of_errors_is_bounded),
		cmocka_unit_test(reset_clears_entries_and_keeps_the_count),
		cmocka_unit_test(ends_in_the_middle_of_reports),
		cmocka_unit_test(smart_adds_up_what_all_reactors_have_done),
		cmocka_unit_test(smart_counts_media_errors_and_entries),
		cmocka_unit_test(
			disk_that_turns_read_only_is_a_critical_warning_until_it_takes_writes),
		cmocka_unit_test(write_to_a_read_only_namespace_is_no_warning),
		cmocka_unit_test(host_may_go_while_smart_is_added_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
