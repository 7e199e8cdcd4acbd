/* SPDX-License-Identifier: MIT */
/*
 * The connect: each step good, silent, late, refused; what a target may announce; ends in every
 * state.
 */
#include "tests/unit/initiator/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct haul_ctrl_options short_options(uint32_t connect_timeout_ms)
{
	struct haul_ctrl_options options;

	haul_ctrl_options_init(&options);
	options.connect_timeout_ms = connect_timeout_ms;
	return options;
}

/* Connects; returns the result and checks that the text has WORDS in it. */
static int connect_result(const char *uri, uint32_t timeout_ms, const char *words)
{
	struct haul_ctrl_options options = short_options(timeout_ms);
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl;
	int result;

	assert_int_equal(haul_connect(hl, uri, &options, 1, &ctrl), 0);
	result = wait_for(hl, 1);
	if (result && !strstr(haul_ctrl_error(ctrl), words))
		fail_msg("\"%s\" says nothing of \"%s\"", haul_ctrl_error(ctrl), words);
	if (result)
		assert_string_equal(haul_loop_error(hl), haul_ctrl_error(ctrl));
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
	return result;
}

static const struct {
	enum fake_what what;
	const char *words; /* of the text */
	int refused;	   /* result when answered with an error status; 0: goes on without */
} steps[] = {
	{FAKE_TRANSPORT, "connecting", -ECONNREFUSED},
	{FAKE_CONNECT, "connecting", -EIO},
	{FAKE_CAP, "CAP", -EIO},
	{FAKE_VS, "VS", -EIO},
	{FAKE_SET_CC, "enabling", -EIO},
	{FAKE_CSTS, "CSTS.RDY", -EIO},
	{FAKE_ID_CTRL, "Identify Controller", -EIO},
	{FAKE_ID_LIMITS, "limits", 0},
	{FAKE_SET_QUEUES, "number of queues", -EIO},
	{FAKE_ID_NS_LIST, "active namespaces", -EIO},
	{FAKE_ID_NS, "Identify Namespace", -EIO},
	{FAKE_ID_DESC, "Identify Namespace", 0},
};

static void each_step_silent_ends_at_the_deadline(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		memset(fake.rules, 0, sizeof(fake.rules));
		fake.rules[steps[i].what].how = FAKE_SILENT;
		assert_int_equal(connect_result(FAKE_URI, 30, steps[i].words), -ETIMEDOUT);
	}
}

static void each_step_late_is_ignored(void **state)
{
	(void)state;
	for (size_t i = 1; i < ARRAY_SIZE(steps); i++) {
		memset(fake.rules, 0, sizeof(fake.rules));
		fake.rules[steps[i].what].how = FAKE_LATE;
		assert_int_equal(connect_result(FAKE_URI, 30, steps[i].words), -ETIMEDOUT);
	}
}

static void each_step_refused_says_which(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		memset(fake.rules, 0, sizeof(fake.rules));
		fake.rules[steps[i].what] = (struct fake_rule){
			FAKE_STATUS, NVME_SC_INTERNAL | NVME_STATUS_DNR, -ECONNREFUSED, 0};
		assert_int_equal(connect_result(FAKE_URI, 5000, steps[i].words), steps[i].refused);
	}
}

static void each_step_broken_says_which(void **state)
{
	(void)state;
	for (size_t i = 1; i < ARRAY_SIZE(steps); i++) {
		memset(fake.rules, 0, sizeof(fake.rules));
		fake.rules[steps[i].what] = (struct fake_rule){FAKE_BREAK, 0, -ECONNRESET, 0};
		assert_int_equal(connect_result(FAKE_URI, 5000, steps[i].words), -ECONNRESET);
	}
}

/* B165, B161: in each step the caller gives up, in each of the three ways. */
static void giving_up_in_each_step_is_safe(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3 * ARRAY_SIZE(steps); i++) {
		struct haul_loop *hl = loop_good();
		struct haul_ctrl *ctrl;

		memset(fake.rules, 0, sizeof(fake.rules));
		fake.rules[steps[i / 3].what].how = FAKE_SILENT;
		assert_int_equal(haul_connect(hl, FAKE_URI, NULL, 1, &ctrl), 0);
		for (int turn = 0; turn < 100 && !fake.nr_asked[steps[i / 3].what]; turn++)
			assert_int_equal(haul_loop_poll(hl, NULL, 0), 0);
		if (i % 3 != 0)
			assert_int_equal(haul_disconnect(ctrl, 2), 0);
		if (i % 3 == 2) {
			assert_int_equal(wait_for(hl, 1), -ECANCELED);
			assert_int_equal(wait_for(hl, 2), 0);
		}
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
		memset(fake.nr_asked, 0, sizeof(fake.nr_asked));
	}
}

static void connect_errors_are_told_apart(void **state)
{
	static const struct {
		uint16_t status;
		int result;
		const char *words;
	} cases[] = {{NVME_SC_CONNECT_INVALID_HOST, -EACCES, "allowed hosts"},
		{NVME_SC_CONNECT_INVALID_PARAM, -EINVAL, "haul discover"},
		{NVME_SC_CONNECT_BUSY, -EBUSY, "busy"}, {NVME_SC_CONNECT_FORMAT, -EPROTO, "format"},
		{NVME_SC_CONNECT_RESTART_DISCOVERY, -EAGAIN, "discovery"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake.rules[FAKE_CONNECT] =
			(struct fake_rule){FAKE_STATUS, cases[i].status | NVME_STATUS_DNR, 0, 0};
		assert_int_equal(connect_result(FAKE_URI, 5000, cases[i].words), cases[i].result);
	}
}

static void wrong_controller_id_is_refused(void **state)
{
	(void)state;
	fake.id_ctrl.cntlid = le16(8);
	assert_int_equal(connect_result(FAKE_URI, 5000, "controller id 8"), -EPROTO);
	fake.cntlid = 0xfff5;
	assert_int_equal(connect_result(FAKE_URI, 5000, "wrong controller id"), -EPROTO);
}

static void missing_musts_are_refused_with_a_text(void **state)
{
	(void)state;
	fake.id_ctrl.ioccsz = le32(3);
	assert_int_equal(connect_result(FAKE_URI, 5000, "IOCCSZ"), -EPROTO);
	fake.id_ctrl.ioccsz = le32(4);
	fake.id_ctrl.iorcsz = le32(0);
	assert_int_equal(connect_result(FAKE_URI, 5000, "IORCSZ"), -EPROTO);
	fake.id_ctrl.iorcsz = le32(1);
	fake.id_ctrl.sgls = le32(NVME_ID_SGLS_SUPPORTED);
	assert_int_equal(connect_result(FAKE_URI, 5000, ""), 0);
	assert_int_equal(connect_result("rdma://127.0.0.1/" FAKE_NQN, 5000, "keyed SGLs"), -EPROTO);
	fake.cap &= ~0xffffull;
	assert_int_equal(connect_result(FAKE_URI, 5000, "MQES"), -EPROTO);
}

static void fatal_status_and_never_ready_are_told_apart(void **state)
{
	(void)state;
	fake.csts = NVME_CSTS_CFS;
	assert_int_equal(connect_result(FAKE_URI, 5000, "fatal"), -EIO);
	fake.csts = 0;
	assert_int_equal(connect_result(FAKE_URI, 5000, "CAP.TO"), -ETIMEDOUT);
}

struct limits_case {
	const char *what;
	uint8_t mdts, mpsmin;
	uint16_t maxcmd, mqes;
	uint32_t ioccsz;
	uint16_t icdoff;
	uint8_t msdbd;
	int no_offset;
	/* expected */
	uint32_t transfer, depth, in_capsule, segments;
};

static void announced_limits_are_taken_over(void **state)
{
	static const struct limits_case cases[] = {
		{"plain", 5, 0, 0, 127, 260, 0, 16, 0, 131072, 127, 4096, 16},
		{"mdts 1", 1, 0, 0, 127, 260, 0, 16, 0, 8192, 127, 4096, 16},
		{"mdts none", 0, 0, 0, 127, 260, 0, 16, 0, 1u << 20, 127, 4096, 16},
		{"mdts absurd", 255, 15, 0, 127, 260, 0, 16, 0, 1u << 20, 127, 4096, 16},
		{"larger pages", 1, 4, 0, 127, 260, 0, 16, 0, 131072, 127, 4096, 16},
		{"maxcmd", 5, 0, 1, 127, 260, 0, 16, 0, 131072, 1, 4096, 16},
		{"maxcmd above", 5, 0, 500, 127, 260, 0, 16, 0, 131072, 127, 4096, 16},
		{"mqes 1", 5, 0, 0, 1, 260, 0, 16, 0, 131072, 1, 4096, 16},
		{"no in-capsule", 5, 0, 0, 127, 4, 0, 16, 0, 131072, 127, 0, 16},
		{"16 bytes", 5, 0, 0, 127, 5, 0, 16, 0, 131072, 127, 16, 16},
		{"absurd capsule", 5, 0, 0, 127, UINT32_MAX, 0, 16, 0, 131072, 127, 65536, 16},
		{"icdoff", 5, 0, 0, 127, 260, 1, 16, 0, 131072, 127, 0, 16},
		{"msdbd 1", 5, 0, 0, 127, 260, 0, 1, 0, 131072, 127, 4096, 1},
		{"msdbd none", 5, 0, 0, 127, 260, 0, 0, 0, 131072, 127, 4096, 16},
		{"no offsets", 5, 0, 0, 127, 260, 0, 16, 1, 131072, 127, 0, 16},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct limits_case *c = &cases[i];
		struct haul_loop *hl = loop_good();
		struct haul_ctrl_info info;
		struct haul_ctrl *ctrl;

		fake.cap = c->mqes | 1ull << NVME_CAP_TO_SHIFT |
			   (uint64_t)c->mpsmin << NVME_CAP_MPSMIN_SHIFT;
		fake.id_ctrl.mdts = c->mdts;
		fake.id_ctrl.maxcmd = le16(c->maxcmd);
		fake.id_ctrl.ioccsz = le32(c->ioccsz);
		fake.id_ctrl.icdoff = le16(c->icdoff);
		fake.id_ctrl.msdbd = c->msdbd;
		fake.id_ctrl.sgls = le32(NVME_ID_SGLS_SUPPORTED | NVME_ID_SGLS_KEYED |
					 (c->no_offset ? 0 : NVME_ID_SGLS_OFFSET));
		assert_int_equal(haul_connect(hl, "rdma://127.0.0.1/" FAKE_NQN, NULL, 1, &ctrl), 0);
		assert_int_equal(wait_for(hl, 1), 0);
		assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
		print_message("%s\n", c->what);
		assert_int_equal(info.max_transfer_bytes, c->transfer);
		assert_int_equal(info.max_queue_depth, c->depth);
		assert_int_equal(info.in_capsule_bytes, c->in_capsule);
		assert_int_equal(info.max_segments, c->segments);
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

static void queues_are_no_more_than_granted(void **state)
{
	struct haul_queue *queue[3];
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl;

	(void)state;
	fake.dw0_queues = NVME_NUMBER_OF_QUEUES(1, 5);
	ctrl = connect_good(hl);
	queue[0] = queue_good(ctrl, 4);
	queue[1] = queue_good(ctrl, 4);
	assert_int_equal(haul_queue_create(ctrl, NULL, 3, &queue[2]), -EUSERS);
	assert_int_equal(haul_queue_close(queue[0], 4), 0);
	assert_int_equal(haul_queue_close(queue[0], 5), -EALREADY);
	assert_int_equal(wait_for(hl, 4), 0);
	queue[0] = queue_good(ctrl, 4); /* B002: the id is free again */
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void queue_that_cannot_be_made_leaves_the_others(void **state)
{
	static const struct fake_rule rules[] = {{FAKE_STATUS, NVME_SC_CONNECT_BUSY, 0, 0},
		{FAKE_BREAK, 0, -ECONNRESET, 0}, {FAKE_SILENT, 0, 0, 0}, {FAKE_LATE, 0, 0, 0}};
	struct haul_ctrl_options options = short_options(40);
	struct haul_loop *hl = loop_good();
	struct haul_queue *good, *bad;
	struct haul_ctrl *ctrl;

	(void)state;
	assert_int_equal(haul_connect(hl, FAKE_URI, &options, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	good = queue_good(ctrl, 4);
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		static const int results[] = {-EBUSY, -ECONNRESET, -ETIMEDOUT, -ETIMEDOUT};

		fake.rules[FAKE_CONNECT_IO] = rules[i];
		assert_int_equal(haul_queue_create(ctrl, NULL, 3, &bad), 0);
		assert_int_equal(wait_for(hl, 3), results[i]);
		assert_int_equal(haul_flush(bad, 1, 9), -ENOTCONN);
		assert_int_equal(haul_queue_close(bad, 4), 0);
		assert_int_equal(wait_for(hl, 4), 0);
		assert_true(haul_ctrl_is_live(ctrl));
		assert_int_equal(haul_flush(good, 1, 5), 0);
		assert_int_equal(wait_for(hl, 5), 0);
	}
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void wrong_controller_id_of_an_io_queue_is_refused(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl = connect_good(hl);
	struct haul_queue *queue;

	(void)state;
	fake.cntlid_io = 8;
	assert_int_equal(haul_queue_create(ctrl, NULL, 3, &queue), 0);
	assert_int_equal(wait_for(hl, 3), -EPROTO);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

/* B007: 0's based, one entry is kept free, and the transport may lower it. */
static void depth_is_the_least_of_all(void **state)
{
	static const struct {
		uint32_t asked, lowered, expected;
	} cases[] = {
		{16, 0, 16}, {127, 0, 127}, {128, 0, 127}, {1024, 0, 127}, {64, 31, 31}, {1, 0, 1}};
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl = connect_good(hl);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct haul_queue *queue;

		fake.lower_depth = cases[i].lowered;
		queue = queue_good(ctrl, cases[i].asked);
		assert_int_equal(haul_queue_depth(queue), cases[i].expected);
		assert_int_equal(fake.last_sqsize, cases[i].expected);
		assert_int_equal(haul_queue_close(queue, 3), 0);
		assert_int_equal(wait_for(hl, 3), 0);
	}
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void keep_alive_goes_out_at_half_its_time(void **state)
{
	struct haul_ctrl_options options = short_options(5000);
	struct haul_loop *hl = loop_good();
	struct haul_event event;
	struct haul_ctrl *ctrl;

	(void)state;
	options.keep_alive_ms = 40;
	assert_int_equal(haul_connect(hl, FAKE_URI, &options, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	assert_int_equal(fake.last_kato, 40);
	assert_int_equal(haul_loop_wait(hl, &event, 1, 150000000), 0);
	assert_in_range(fake.nr_asked[FAKE_KEEP_ALIVE], 3, 8);
	fake.rules[FAKE_KEEP_ALIVE].how = FAKE_SILENT;
	while (haul_ctrl_is_live(ctrl))
		haul_loop_wait(hl, &event, 1, 10000000);
	assert_non_null(strstr(haul_ctrl_error(ctrl), "keep-alive"));
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

/* B159: its answer may be behind a lot of data. */
static void target_that_answers_io_is_alive(void **state)
{
	struct haul_ctrl_options options = short_options(5000);
	struct haul_loop *hl = loop_good();
	struct haul_queue *queue;
	struct haul_event event;
	struct haul_ctrl *ctrl;

	(void)state;
	options.keep_alive_ms = 20;
	assert_int_equal(haul_connect(hl, FAKE_URI, &options, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	queue = queue_good(ctrl, 4);
	fake.rules[FAKE_KEEP_ALIVE].how = FAKE_SILENT;
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(haul_loop_wait(hl, &event, 1, 5000000), 0);
		assert_int_equal(haul_flush(queue, 1, 5), 0);
		assert_int_equal(wait_for(hl, 5), 0);
	}
	assert_true(haul_ctrl_is_live(ctrl));
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void without_keep_alive_none_is_sent(void **state)
{
	struct haul_ctrl_options options = short_options(5000);
	struct haul_loop *hl = loop_good();
	struct haul_ctrl_info info;
	struct haul_event event;
	struct haul_ctrl *ctrl;

	(void)state;
	options.keep_alive_ms = 20;
	fake.id_ctrl.kas = le16(0);
	assert_int_equal(haul_connect(hl, FAKE_URI, &options, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
	assert_int_equal(info.keep_alive_ms, 0);
	fake.nr_asked[FAKE_KEEP_ALIVE] = 0;
	assert_int_equal(haul_loop_wait(hl, &event, 1, 60000000), 0);
	assert_int_equal(fake.nr_asked[FAKE_KEEP_ALIVE], 0);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void disconnect_shuts_the_controller_down(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl = connect_good(hl);

	(void)state;
	queue_good(ctrl, 4);
	assert_int_equal(haul_disconnect(ctrl, 5), 0);
	assert_int_equal(haul_disconnect(ctrl, 6), -EALREADY);
	assert_int_equal(wait_for(hl, 5), 0);
	assert_int_equal(NVME_CC_SHN(fake.cc), NVME_CC_SHN_NORMAL);
	assert_int_equal(fake.nr_queues_open, 0);
	assert_int_equal(haul_queue_create(ctrl, NULL, 3, &(struct haul_queue *){NULL}), -ENOTCONN);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

static void disconnect_from_a_silent_target_is_bounded(void **state)
{
	static const enum fake_what whats[] = {FAKE_SET_CC, FAKE_CSTS};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
		struct haul_loop *hl = loop_good();
		struct haul_ctrl *ctrl = connect_good(hl);

		fake.rules[whats[i]].how = FAKE_SILENT;
		assert_int_equal(haul_disconnect(ctrl, 5), 0);
		assert_int_equal(wait_for(hl, 5), 0);
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
		memset(fake.rules, 0, sizeof(fake.rules));
	}
}

/* --- namespaces ------------------------------------------------------------------------------- */

static uint32_t list_first, list_last, list_step;

static void list_range(struct fake *f, uint32_t after, struct nvme_ns_list *ret)
{
	uint32_t at = 0;

	(void)f;
	for (uint64_t nsid = list_first; nsid <= list_last && at < NVME_NS_LIST_MAX;
		nsid += list_step)
		if (nsid > after)
			ret->nsid[at++] = le32((uint32_t)nsid);
}

static void list_descends(struct fake *f, uint32_t after, struct nvme_ns_list *ret)
{
	(void)f;
	(void)after;
	ret->nsid[0] = le32(2);
	ret->nsid[1] = le32(1);
}

static void list_repeats(struct fake *f, uint32_t after, struct nvme_ns_list *ret)
{
	(void)f;
	(void)after;
	for (uint32_t i = 0; i < NVME_NS_LIST_MAX; i++)
		ret->nsid[i] = le32(i + 1);
}

static void all_pages_of_the_list_are_read(void **state)
{
	static const struct {
		uint32_t first, last, step, nr;
		int64_t chosen;
	} cases[] = {{1, 0, 1, 0, -ENOENT}, {7, 7, 1, 1, 7}, {1, 2, 1, 2, -ENOTUNIQ},
		{1, 1024, 1, 1024, -ENOTUNIQ}, {1, 1025, 1, 1025, -ENOTUNIQ},
		{5, 15000, 5, 3000, -ENOTUNIQ}};

	(void)state;
	fake.ns_list = list_range;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct haul_loop *hl = loop_good();
		struct haul_ctrl *ctrl;
		uint32_t nsids[2] = {0, 0};

		list_first = cases[i].first;
		list_last = cases[i].last;
		list_step = cases[i].step;
		ctrl = connect_good(hl);
		assert_int_equal(haul_ns_list(ctrl, nsids, 2), cases[i].nr);
		if (cases[i].nr)
			assert_int_equal(nsids[0], cases[i].first);
		assert_int_equal(haul_ns_default(ctrl), cases[i].chosen);
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

static void absurd_lists_end_the_connect(void **state)
{
	(void)state;
	fake.ns_list = list_descends;
	assert_int_equal(connect_result(FAKE_URI, 5000, "ascending"), -EPROTO);
	fake.ns_list = list_repeats;
	assert_int_equal(connect_result(FAKE_URI, 5000, "ascending"), -EPROTO);
	fake.ns_list = list_range;
	list_first = list_step = 1;
	list_last = UINT32_MAX - 1;
	assert_int_equal(connect_result(FAKE_URI, 5000, "active namespaces"), -E2BIG);
}

static void namespace_that_is_not_there_lists_those_that_are(void **state)
{
	(void)state;
	fake.ns_list = list_range;
	list_first = 3;
	list_last = 5;
	list_step = 1;
	assert_int_equal(connect_result(FAKE_URI "/9", 5000, "active ones: 3, 4, 5"), -ENOENT);
	assert_int_equal(connect_result(FAKE_URI "/4", 5000, ""), 0);
}

static void unusable_formats_are_refused_with_a_text(void **state)
{
	static const struct {
		const char *words;
		uint8_t flbas, nlbaf, ds;
		uint16_t ms;
		uint64_t nsze;
		int result;
	} cases[] = {{"metadata", 0, 0, 9, 8, 100, -EOPNOTSUPP},
		{"block size", 0, 0, 8, 0, 100, -EOPNOTSUPP},
		{"block size", 0, 0, 17, 0, 100, -EOPNOTSUPP},
		{"block size", 0, 0, 255, 0, 100, -EOPNOTSUPP},
		{"format index", 1, 0, 9, 0, 100, -EPROTO},
		{"63 bits", 0, 0, 9, 0, UINT64_MAX, -EPROTO},
		{"not an active", 0, 0, 9, 0, 0, -ENOENT}, {"", 0, 0, 12, 0, 100, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake.id_ns.flbas = cases[i].flbas;
		fake.id_ns.nlbaf = cases[i].nlbaf;
		fake.id_ns.lbaf[0].ds = cases[i].ds;
		fake.id_ns.lbaf[0].ms = le16(cases[i].ms);
		fake.id_ns.nsze = le64(cases[i].nsze);
		assert_int_equal(connect_result(FAKE_URI, 5000, cases[i].words), cases[i].result);
	}
}

/* --- arguments -------------------------------------------------------------------------------- */

static void wrong_arguments_are_refused_at_once(void **state)
{
	static const struct {
		const char *uri, *words;
	} cases[] = {{"http://127.0.0.1", "tcp://"}, {"tcp://127.0.0.1:0", "port"},
		{"tcp://127.0.0.1:65536", "port"}, {"tcp://127.0.0.1:4420x", "port"},
		{FAKE_URI "?hdgst=2", "hdgst"}, {FAKE_URI "?kato=soon", "kato"},
		{FAKE_URI "?kato=99999999", "kato"}, {FAKE_URI "?nonsense=1", "known ones"},
		{FAKE_URI "?tos=256", "tos"}, {FAKE_URI "?queues=0", "queues"},
		{FAKE_URI "?hostnqn=me", "host NQN"}, {FAKE_URI "?hostid=1", "UUID"},
		{FAKE_URI "?connect_timeout=0", "connect_timeout"}};
	struct haul_loop *hl = loop_good();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct haul_ctrl *ctrl = NULL;

		assert_int_equal(haul_connect(hl, cases[i].uri, NULL, 1, &ctrl), -EINVAL);
		assert_null(ctrl);
		if (!strstr(haul_loop_error(hl), cases[i].words))
			fail_msg("%s: \"%s\"", cases[i].uri, haul_loop_error(hl));
	}
	haul_loop_destroy(hl);
}

static void options_of_the_uri_win(void **state)
{
	struct haul_ctrl_options options = short_options(5000);
	struct haul_loop *hl = loop_good();
	struct haul_ctrl_info info;
	struct haul_ctrl *ctrl;

	(void)state;
	options.host_nqn = "nqn.2014-08.org.example:one";
	assert_int_equal(
		haul_connect(hl, FAKE_URI "?hostnqn=nqn.2014-08.org.example:two&kato=7s&queues=2",
			&options, 1, &ctrl),
		0);
	assert_int_equal(wait_for(hl, 1), 0);
	assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
	assert_string_equal(info.host_nqn, "nqn.2014-08.org.example:two");
	assert_string_equal(info.address, "127.0.0.1:4420");
	assert_int_equal(fake.last_kato, 7000);
	assert_int_equal(info.max_queues, 2);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

/* With epoll: under valgrind the look-up's thread stands still while io_uring waits. */
static void name_that_does_not_exist_is_said(void **state)
{
	struct haul_loop_options loop_options = {.size = sizeof(loop_options), .engine = "epoll"};
	struct haul_ctrl_options options = short_options(20000);
	struct haul_loop *hl;
	struct haul_ctrl *ctrl;

	(void)state;
	assert_int_equal(haul_loop_create(&loop_options, &hl), 0);
	assert_int_equal(
		haul_connect(hl, "tcp://does-not-exist.invalid/" FAKE_NQN, &options, 1, &ctrl), 0);
	assert_true(wait_for(hl, 1) < 0);
	assert_non_null(strstr(haul_ctrl_error(ctrl), "does-not-exist.invalid"));
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

/* --- nonsense --------------------------------------------------------------------------------- */

/* Whatever is answered: one event for each thing started, in bounded time, nothing touched that is
 * not ours. */
static void garbled_answers_never_do_harm(void **state)
{
	static uint8_t bytes[65536];
	struct haul_ctrl_options options = short_options(30);
	struct haul_loop *hl = loop_good();
	unsigned nr_live = 0;

	(void)state;
	options.command_timeout_ms = 30;
	for (uint64_t seed = 1; seed <= 3000; seed++) {
		struct iovec iov = {bytes, sizeof(bytes)};
		struct haul_ns_info info = {0};
		struct haul_queue *queue;
		struct haul_ctrl *ctrl;

		fake.garble = seed << 20;
		assert_int_equal(
			haul_connect(hl, seed % 2 ? FAKE_URI : "rdma://127.0.0.1/" FAKE_NQN,
				&options, 1, &ctrl),
			0);
		if (wait_for(hl, 1) == 0 && haul_ns_default(ctrl) > 0) {
			nr_live++;
			if (!haul_ns_info(ctrl, 1, &info, 2))
				wait_for(hl, 2);
			if (!haul_queue_create(ctrl, NULL, 3, &queue) && !wait_for(hl, 3)) {
				fake.garble = 0;
				iov.iov_len = min_of(sizeof(bytes), (size_t)info.block_bytes);
				if (!haul_readv(queue, 1, &iov, 1, 0, 4))
					wait_for(hl, 4);
			}
		}
		haul_ctrl_free(ctrl);
	}
	print_message("%u of 3000 connects went well\n", nr_live);
	assert_true(nr_live > 300);
	haul_loop_destroy(hl);
}

#define TEST(FN) cmocka_unit_test_setup_teardown(FN, fake_setup, fake_teardown)

static void the_address_is_told_with_its_scope(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl_info info;
	struct haul_ctrl *ctrl;

	(void)state;
	assert_int_equal(haul_connect(hl, "tcp://[fe80::1%25lo]/" FAKE_NQN, NULL, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
	assert_string_equal(info.address, "[fe80::1%lo]:4420");
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_step_silent_ends_at_the_deadline),
		TEST(each_step_late_is_ignored),
		TEST(each_step_refused_says_which),
		TEST(each_step_broken_says_which),
		TEST(giving_up_in_each_step_is_safe),
		TEST(connect_errors_are_told_apart),
		TEST(wrong_controller_id_is_refused),
		TEST(missing_musts_are_refused_with_a_text),
		TEST(fatal_status_and_never_ready_are_told_apart),
		TEST(announced_limits_are_taken_over),
		TEST(queues_are_no_more_than_granted),
		TEST(queue_that_cannot_be_made_leaves_the_others),
		TEST(wrong_controller_id_of_an_io_queue_is_refused),
		TEST(depth_is_the_least_of_all),
		TEST(keep_alive_goes_out_at_half_its_time),
		TEST(target_that_answers_io_is_alive),
		TEST(without_keep_alive_none_is_sent),
		TEST(disconnect_shuts_the_controller_down),
		TEST(disconnect_from_a_silent_target_is_bounded),
		TEST(all_pages_of_the_list_are_read),
		TEST(absurd_lists_end_the_connect),
		TEST(namespace_that_is_not_there_lists_those_that_are),
		TEST(unusable_formats_are_refused_with_a_text),
		TEST(wrong_arguments_are_refused_at_once),
		TEST(options_of_the_uri_win),
		TEST(name_that_does_not_exist_is_said),
		TEST(garbled_answers_never_do_harm),
		TEST(the_address_is_told_with_its_scope),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
