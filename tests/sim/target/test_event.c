/* SPDX-License-Identifier: MIT */
/*
 * Events and the host's requests for them, in every order (NVMe base 2.0 5.2).
 */
#include <string.h>

#include "proto/nvme/log.h"
#include "tests/sim/target/sim.h"

#define EVENT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, sim_host_end)
#define MEMORY		 (32ull << 20)
#define NS		 NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS)
#define ANA		 NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_ANA, NVME_LOG_ANA)
#define ERROR		 NVME_AER(NVME_AER_ERROR, 3, NVME_LOG_ERROR)

static int setup(void **state)
{
	struct sim_host *host;

	sim_host_start(state, 1, MEMORY, 0);
	host = *state;
	event_configure(host->admin->conn->member.ctrl, NVME_AEC_NS | NVME_AEC_ANA);
	return 0;
}

static struct ctrl *ctrl_of(const struct sim_host *host)
{
	return host->admin->conn->member.ctrl;
}

static uint16_t ask(struct sim_host *host)
{
	return sim_ask_event(host->sim, host->admin);
}

static void raise_event(struct sim_host *host, uint32_t event)
{
	event_raise(ctrl_of(host), NVME_AER_TYPE(event), NVME_AER_INFO(event), NVME_AER_LID(event));
	sim_settle(host->sim);
}

static void read_log(struct sim_host *host, uint8_t lid, uint64_t offset, bool retain)
{
	sim_get_log(host->sim, host->admin, lid, offset, 64, retain ? NVME_GET_LOG_RAE : 0);
}

/* The last of NR responses since BEFORE is that of request CID with EVENT. */
static void expect(
	const struct sim_host *host, unsigned before, unsigned nr, uint16_t cid, uint32_t event)
{
	assert_int_equal(host->admin->nr_replies - before, nr);
	assert_int_equal(nvme_cqe_status(&host->admin->last), 0);
	assert_int_equal(le16_get(host->admin->last.cid), cid);
	assert_int_equal(le32_get(host->admin->last.dw0), event);
}

static void event_completes_a_request_that_waits(void **state)
{
	struct sim_host *host = *state;
	uint16_t cid = ask(host);
	unsigned before = host->admin->nr_replies;

	raise_event(host, NS);
	expect(host, before, 1, cid, NS);
}

static void event_waits_for_a_request(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t cid;

	raise_event(host, NS);
	assert_int_equal(host->admin->nr_replies, before);
	cid = ask(host);
	expect(host, before, 1, cid, NS);
}

static void events_are_told_in_order_and_requests_used_in_order(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t first;

	raise_event(host, ANA);
	raise_event(host, ERROR);
	raise_event(host, NS);
	expect(host, before, 1, ask(host), ANA);
	expect(host, before, 2, ask(host), ERROR);
	expect(host, before, 3, ask(host), NS);
	read_log(host, NVME_LOG_ERROR, 0, false);
	first = ask(host);
	ask(host);
	before = host->admin->nr_replies;
	raise_event(host, ERROR);
	expect(host, before, 1, first, ERROR);
}

static void told_event_is_masked_until_its_log_page_is_read(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t cid;

	ask(host);
	cid = ask(host);
	raise_event(host, NS);
	raise_event(host, NS);
	raise_event(host, NS);
	assert_int_equal(host->admin->nr_replies, before + 1);
	/* What was read has been heard of: none is owed. */
	read_log(host, NVME_LOG_CHANGED_NS, 0, false);
	assert_int_equal(host->admin->nr_replies, before + 2);
	raise_event(host, NS);
	expect(host, before, 3, cid, NS);
}

static void reading_with_rae_clears_nothing(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;

	ask(host);
	ask(host);
	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 0, true);
	raise_event(host, NS);
	assert_int_equal(host->admin->nr_replies, before + 2);
}

static void mask_of_one_log_page_holds_up_no_other(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t cid;

	ask(host);
	cid = ask(host);
	raise_event(host, NS);
	raise_event(host, NS);
	raise_event(host, ANA);
	expect(host, before, 2, cid, ANA);
}

static void event_read_before_it_was_told_is_not_told(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;

	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 0, false);
	ask(host);
	assert_int_equal(host->admin->nr_replies, before + 1);
}

/* B042: the last piece is the one without RAE. */
static void change_between_two_pieces_of_a_log_page_is_told(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t cid;

	ask(host);
	cid = ask(host);
	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 0, true);
	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 64, false);
	expect(host, before, 4, cid, NS);
	/* The second of two that wait counts, too. */
	cid = ask(host);
	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 0, true);
	raise_event(host, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 64, false);
	expect(host, before, 7, cid, NS);
	read_log(host, NVME_LOG_CHANGED_NS, 0, true);
	read_log(host, NVME_LOG_CHANGED_NS, 64, false);
	ask(host);
	assert_int_equal(host->admin->nr_replies, before + 9);
}

static void only_what_is_configured_is_told(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;

	event_configure(ctrl_of(host), NVME_AEC_NS);
	raise_event(host, ANA);
	raise_event(host, NS);
	event_configure(ctrl_of(host), 0);
	event_configure(ctrl_of(host), NVME_AEC_NS | NVME_AEC_ANA);
	ask(host);
	assert_int_equal(host->admin->nr_replies, before);
	/* Errors are not configurable. */
	event_configure(ctrl_of(host), 0);
	raise_event(host, ERROR);
	assert_int_equal(host->admin->nr_replies, before + 1);
}

static void one_request_too_many_is_refused(void **state)
{
	struct sim_host *host = *state;
	unsigned before = host->admin->nr_replies;
	uint16_t cid;

	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		ask(host);
	assert_int_equal(host->admin->nr_replies, before);
	cid = ask(host);
	assert_int_equal(host->admin->nr_replies, before + 1);
	assert_int_equal(le16_get(host->admin->last.cid), cid);
	assert_int_equal(nvme_cqe_status(&host->admin->last), NVME_SC_AER_LIMIT | NVME_STATUS_DNR);
	raise_event(host, NS);
	ask(host);
	assert_int_equal(host->admin->nr_replies, before + 2);
}

static void aborted_request_is_not_used(void **state)
{
	struct sim_host *host = *state;
	uint16_t first = ask(host);
	uint16_t second = ask(host);
	unsigned before = host->admin->nr_replies;

	assert_true(event_abort_request(ctrl_of(host), first));
	sim_settle(host->sim);
	assert_int_equal(nvme_cqe_status(&host->admin->last), NVME_SC_ABORT_REQUESTED);
	assert_false(event_abort_request(ctrl_of(host), first));
	raise_event(host, NS);
	expect(host, before, 2, second, NS);
}

static void reset_forgets_events_masks_and_requests(void **state)
{
	struct sim_host *host = *state;
	unsigned before;

	ask(host);
	ask(host);
	raise_event(host, NS);
	raise_event(host, NS);
	before = host->admin->nr_replies;
	ctrl_set_cc(ctrl_of(host), 0);
	sim_settle(host->sim);
	assert_int_equal(host->admin->nr_replies, before + 1);
	assert_int_equal(nvme_cqe_status(&host->admin->last), NVME_SC_ABORT_REQUESTED);
	assert_int_equal(sim_set_cc(host->sim, host->admin, SIM_CC_ENABLE), 0);
	before++;
	raise_event(host, NS);
	ask(host);
	assert_int_equal(host->admin->nr_replies, before + 1);
	event_configure(ctrl_of(host), NVME_AEC_NS);
	raise_event(host, NS);
	assert_int_equal(host->admin->nr_replies, before + 2);
}

/* All kinds there are wait at once. */
static void every_kind_can_wait(void **state)
{
	static const uint32_t kinds[] = {NS, ANA, ERROR,
		NVME_AER(NVME_AER_ERROR, 0, NVME_LOG_ERROR),
		NVME_AER(NVME_AER_IO_SPECIFIC, 0, NVME_LOG_RESERVATION)};
	struct sim_host *host = *state;

	for (unsigned round = 0; round < 2; round++)
		for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
			raise_event(host, kinds[i]);
	assert_int_equal(ctrl_of(host)->events.nr_pending, ARRAY_SIZE(kinds));
}

static void events_of_a_closed_controller_are_nothing(void **state)
{
	struct sim_host *host = *state;
	struct ctrl *ctrl = ctrl_of(host);

	ask(host);
	host->sim->auto_quiesce = false;
	conn_close(host->admin->conn, "the test closes it");
	event_raise(ctrl, NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS);
	host->sim->auto_quiesce = true;
	sim_settle(host->sim);
	assert_null(host->admin->conn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EVENT_TEST(event_completes_a_request_that_waits),
		EVENT_TEST(event_waits_for_a_request),
		EVENT_TEST(events_are_told_in_order_and_requests_used_in_order),
		EVENT_TEST(told_event_is_masked_until_its_log_page_is_read),
		EVENT_TEST(reading_with_rae_clears_nothing),
		EVENT_TEST(mask_of_one_log_page_holds_up_no_other),
		EVENT_TEST(event_read_before_it_was_told_is_not_told),
		EVENT_TEST(change_between_two_pieces_of_a_log_page_is_told),
		EVENT_TEST(only_what_is_configured_is_told),
		EVENT_TEST(one_request_too_many_is_refused),
		EVENT_TEST(aborted_request_is_not_used),
		EVENT_TEST(reset_forgets_events_masks_and_requests),
		EVENT_TEST(every_kind_can_wait),
		EVENT_TEST(events_of_a_closed_controller_are_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
