/* SPDX-License-Identifier: MIT */
/*
 * Without an NQN: discovery controllers that refer to others, to each other, to themselves, to
 * nowhere and to too many.
 */
#include "tests/unit/initiator/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "initiator/referral.h"

#define NQN_A	  "nqn.2014-08.org.example:a"
#define NQN_B	  "nqn.2014-08.org.example:b"
#define FIRST_URI "tcp://127.0.0.1:8001"
#define DISK	  4420 /* the port of subsystems; others are discovery controllers */
#define TCP	  NVME_TRTYPE_TCP
#define RDMA	  NVME_TRTYPE_RDMA
#define TO(PORT)                                                                  \
	{                                                                         \
		TCP, NVME_SUBTYPE_REFERRAL, "127.0.0.1", PORT, NVME_DISCOVERY_NQN \
	}
#define NVM(NQN)                                              \
	{                                                     \
		TCP, NVME_SUBTYPE_NVM, "127.0.0.1", DISK, NQN \
	}

/* --- a site ---------------------------------------------------------------------------------- */

struct line {
	uint8_t trtype, subtype;
	const char *address;
	uint16_t port;
	const char *nqn;
};

struct place {
	uint16_t port;
	bool is_dead;
	struct line lines[4];
};

struct site {
	const char *name;
	struct place places[8];
	int result;
	const char *words;   /* of the text; of a success the address */
	const char *warning; /* of a success; NULL: none */
	unsigned nr_asked;   /* discovery controllers */
};

static const struct site sites[] = {
	{"one step", {{8001, false, {TO(8002)}}, {8002, false, {NVM(NQN_A)}}}, 0, "127.0.0.1:4420",
		NULL, 2},
	{"both have it", {{8001, false, {NVM(NQN_A), TO(8002)}}, {8002, false, {NVM(NQN_A)}}}, 0,
		"127.0.0.1:4420", NULL, 2},
	{"four steps",
		{{8001, false, {TO(8002)}}, {8002, false, {TO(8003)}}, {8003, false, {TO(8004)}},
			{8004, false, {TO(8005)}}, {8005, false, {NVM(NQN_A)}}},
		0, "127.0.0.1:4420", NULL, 5},
	{"five steps",
		{{8001, false, {TO(8002)}}, {8002, false, {TO(8003)}}, {8003, false, {TO(8004)}},
			{8004, false, {TO(8005)}}, {8005, false, {TO(8006)}},
			{8006, false, {NVM(NQN_A)}}},
		-ENOENT, "1 referral beyond the limit was", NULL, 5},
	{"a circle",
		{{8001, false, {TO(8002), TO(8001)}}, {8002, false, {TO(8003), TO(8002)}},
			{8003, false, {TO(8001), TO(8002), NVM(NQN_A)}}},
		0, "127.0.0.1:4420", NULL, 3},
	{"different ones", {{8001, false, {NVM(NQN_A), TO(8002)}}, {8002, false, {NVM(NQN_B)}}},
		-ENOTUNIQ, NQN_A ", " NQN_B, NULL, 2},
	{"nothing anywhere", {{8001, false, {TO(8002)}}, {8002}}, -ENOENT, "no subsystem", NULL, 2},
	{"dead, then good",
		{{8001, false, {TO(8002), TO(8003)}}, {8002, true}, {8003, false, {NVM(NQN_A)}}}, 0,
		"127.0.0.1:4420", "1 referral did not help (127.0.0.1 port 8002", 3},
	{"good and dead",
		{{8001, false, {NVM(NQN_A), TO(8002), TO(8003)}}, {8002, true}, {8003, true}}, 0,
		"127.0.0.1:4420", "2 referrals did not help (127.0.0.1 port 8002", 3},
	{"all dead", {{8001, false, {TO(8002)}}, {8002, true}}, -ENOENT, "1 referral did not help",
		NULL, 2},
	{"the first is dead", {{8001, true}}, -ECONNREFUSED, "connecting", NULL, 1},
	{"over another transport",
		{{8001, false,
			{{RDMA, NVME_SUBTYPE_REFERRAL, "127.0.0.1", 8002, NVME_DISCOVERY_NQN},
				NVM(NQN_A)}}},
		0, "127.0.0.1:4420", NULL, 1},
	{"to nowhere",
		{{8001, false,
			{{TCP, NVME_SUBTYPE_REFERRAL, "", 8002, NVME_DISCOVERY_NQN},
				{TCP, NVME_SUBTYPE_REFERRAL, "127.0.0.1", 0, NVME_DISCOVERY_NQN},
				NVM(NQN_A)}}},
		0, "127.0.0.1:4420", NULL, 1},
	{"a wildcard there",
		{{8001, false,
			 {{TCP, NVME_SUBTYPE_REFERRAL, "127.0.0.9", 8002, NVME_DISCOVERY_NQN}}},
			{8002, false, {{TCP, NVME_SUBTYPE_NVM, "0.0.0.0", DISK, NQN_A}}}},
		0, "127.0.0.9:4420", NULL, 2},
	{"a name of its own",
		{{8001, false, {{TCP, NVME_SUBTYPE_REFERRAL, "127.0.0.1", 8002, NQN_B}}},
			{8002, false, {NVM(NQN_A)}}},
		0, "127.0.0.1:4420", NULL, 2},
};

static struct {
	const struct place *place; /* where we are; NULL: a disk's subsystem */
	const struct site *site;
	const struct line *lines;
	unsigned nr_lines, nr_asked;
	struct fake_rule rules[FAKE_NR]; /* of all referred to */
} here;

static unsigned nr_lines(const struct line *lines, unsigned most)
{
	unsigned nr = 0;

	while (nr < most && lines[nr].trtype)
		nr++;
	return nr;
}

static const struct place *site_place(uint16_t port)
{
	for (size_t i = 0; i < ARRAY_SIZE(here.site->places); i++)
		if (here.site->places[i].port == port)
			return &here.site->places[i];
	return NULL;
}

static void reached(struct fake *f, const struct sockaddr_in *address)
{
	uint16_t port = ntohs(address->sin_port);

	memset(f->rules, 0, sizeof(f->rules));
	memset(f->nr_asked, 0, sizeof(f->nr_asked));
	f->id_ctrl.cntrltype = port == DISK ? NVME_CNTRLTYPE_IO : NVME_CNTRLTYPE_DISCOVERY;
	if (port == DISK)
		return;
	here.nr_asked++;
	here.place = site_place(port);
	if (here.place && here.place->is_dead)
		f->rules[FAKE_TRANSPORT] = (struct fake_rule){FAKE_ERROR, 0, -ECONNREFUSED, 0};
	else if (here.nr_asked > 1)
		memcpy(f->rules, here.rules, sizeof(f->rules));
	here.lines = here.place ? here.place->lines : NULL;
	here.nr_lines = here.lines ? nr_lines(here.lines, ARRAY_SIZE(here.place->lines)) : 0;
}

static uint16_t log_read(struct fake *f, uint64_t offset, void *bytes, uint32_t len, int rae)
{
	struct nvme_disc_entry *entry = bytes;
	char service[8];

	(void)f;
	(void)rae;
	memset(bytes, 0, len);
	if (offset == 0) {
		((struct nvme_disc_log *)bytes)->numrec = le64(here.nr_lines);
		return 0;
	}
	for (unsigned i = 0; i < here.nr_lines; i++) {
		const struct line *line = &here.lines[i];

		entry[i].trtype = line->trtype;
		entry[i].subtype = line->subtype;
		entry[i].adrfam = NVME_ADRFAM_IPV4;
		snprintf(service, sizeof(service), "%u", line->port);
		assert_int_equal(nvme_field_set(entry[i].traddr, 256, line->address), 0);
		assert_int_equal(nvme_field_set(entry[i].trsvcid, 32, service), 0);
		strcpy(entry[i].subnqn, line->nqn);
	}
	return 0;
}

static int setup(void **state)
{
	int error = fake_setup(state);

	memset(&here, 0, sizeof(here));
	fake.log = log_read;
	fake.reached = reached;
	return error;
}

static void site_enter(const struct site *site)
{
	here.site = site;
	here.nr_asked = 0;
}

/* --- what comes of it ------------------------------------------------------------------------ */

static void sites_are_searched(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sites); i++) {
		struct haul_loop *hl = loop_good();
		struct haul_ctrl_info info;
		struct haul_ctrl *ctrl;
		int result;

		print_message("%s\n", sites[i].name);
		site_enter(&sites[i]);
		assert_int_equal(haul_connect(hl, FIRST_URI, NULL, 1, &ctrl), 0);
		result = wait_for(hl, 1);
		if (result != sites[i].result)
			fail_msg("%d: %s", result, haul_ctrl_error(ctrl));
		assert_int_equal(here.nr_asked, sites[i].nr_asked);
		if (result) {
			if (!strstr(haul_ctrl_error(ctrl), sites[i].words))
				fail_msg("%s", haul_ctrl_error(ctrl));
		} else {
			assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
			assert_string_equal(info.address, sites[i].words);
			assert_string_equal(info.subsystem_nqn, NQN_A);
			assert_int_equal(fake.last_kato, 15000);
			assert_int_equal(fake.nr_queues_open, 1); /* all the others were left */
			assert_int_equal(haul_ctrl_error(ctrl)[0] != 0, sites[i].warning != NULL);
			if (sites[i].warning)
				assert_non_null(strstr(haul_ctrl_error(ctrl), sites[i].warning));
		}
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

static const struct site one_referral = {
	"", {{8001, false, {NVM(NQN_A), TO(8002), TO(8003)}}, {8002}, {8003}}, 0, NULL, NULL, 0};

static const enum fake_what steps[] = {FAKE_TRANSPORT, FAKE_CONNECT, FAKE_CAP, FAKE_VS, FAKE_SET_CC,
	FAKE_CSTS, FAKE_ID_CTRL, FAKE_LOG};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Silent, refused and broken in each step, and answered only when we leave. */
static void a_referral_that_fails_at_any_step_is_passed_over(void **state)
{
	static const struct fake_rule rules[] = {{FAKE_SILENT, 0, 0, 0}, {FAKE_LATE, 0, 0, 0},
		{FAKE_STATUS, NVME_SC_INTERNAL | NVME_STATUS_DNR, -ECONNREFUSED, 0},
		{FAKE_BREAK, 0, -ECONNRESET, 0}};
	struct haul_ctrl_options options;

	(void)state;
	haul_ctrl_options_init(&options);
	options.connect_timeout_ms = 800;
	for (size_t i = 0; i < ARRAY_SIZE(steps) * ARRAY_SIZE(rules); i++) {
		enum fake_what what = steps[i / ARRAY_SIZE(rules)];
		struct haul_loop *hl = loop_good();
		struct haul_ctrl *ctrl;
		uint64_t began_ms = now_ms();
		int result;

		site_enter(&one_referral);
		memset(here.rules, 0, sizeof(here.rules));
		here.rules[what] = rules[i % ARRAY_SIZE(rules)];
		if (what == FAKE_TRANSPORT && here.rules[what].how != FAKE_SILENT)
			here.rules[what] = (struct fake_rule){FAKE_ERROR, 0, -ECONNREFUSED, 0};
		assert_int_equal(haul_connect(hl, FIRST_URI, &options, 1, &ctrl), 0);
		result = wait_for(hl, 1);
		if (result)
			fail_msg("step %d, rule %zu: %s", what, i % ARRAY_SIZE(rules),
				haul_ctrl_error(ctrl));
		if (!strstr(haul_ctrl_error(ctrl), "2 referrals did not help"))
			fail_msg("step %d, rule %zu: %s", what, i % ARRAY_SIZE(rules),
				haul_ctrl_error(ctrl));
		assert_true(now_ms() - began_ms < 800);
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

/* The caller's end, or the end of the whole connect's time, while a referral is asked. */
static void giving_up_at_any_step_of_a_referral_is_safe(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(steps); i++) {
		struct haul_loop *hl = loop_good();
		struct haul_event event;
		struct haul_ctrl *ctrl;

		site_enter(&one_referral);
		memset(here.rules, 0, sizeof(here.rules));
		here.rules[steps[i / 2]].how = FAKE_SILENT;
		assert_int_equal(haul_connect(hl, FIRST_URI, NULL, 1, &ctrl), 0);
		for (unsigned turn = 0; here.nr_asked < 2; turn++) {
			assert_true(turn < 1000);
			assert_int_equal(haul_loop_wait(hl, &event, 1, 1000000), 0);
		}
		assert_int_equal(haul_loop_wait(hl, &event, 1, 5000000), 0);
		if (i % 2) {
			assert_int_equal(haul_disconnect(ctrl, 2), 0);
			assert_int_equal(wait_for(hl, 1), -ECANCELED);
			assert_int_equal(wait_for(hl, 2), 0);
		}
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

/* --- the list -------------------------------------------------------------------------------- */

static struct haul_discovery_log *log_of(unsigned nr, uint16_t first_port)
{
	struct haul_discovery_log *log = calloc(1, sizeof(*log) + nr * sizeof(log->entries[0]));

	assert_non_null(log);
	log->nr = nr;
	for (unsigned i = 0; i < nr; i++) {
		struct haul_discovery_entry *entry = &log->entries[i];

		entry->subtype = NVME_SUBTYPE_REFERRAL;
		entry->address_family = NVME_ADRFAM_IPV4;
		strcpy(entry->transport, "tcp");
		strcpy(entry->address, "192.0.2.1");
		strcpy(entry->subsystem_nqn, NVME_DISCOVERY_NQN);
		snprintf(entry->service, sizeof(entry->service), "%u", first_port + i);
	}
	return log;
}

static void at_most_16_controllers_are_asked(void **state)
{
	struct haul_discovery_log *log = log_of(4096, 1);
	static struct referrals referrals;
	struct nvme_uri uri;
	unsigned nr = 0;
	char why[64];

	(void)state;
	assert_int_equal(nvme_uri_parse("tcp://host:1", 0, &uri, why, sizeof(why)), 0);
	referrals_init(&referrals, &uri);
	while (referrals_next(&referrals)) {
		if (nr++ == 0)
			referrals_found(&referrals, "192.0.2.1:1"); /* as the first entry says */
		referrals_add(&referrals, log, 0);
	}
	assert_int_equal(nr, REFERRAL_MAX_CTRLS);
	assert_true(referrals.nr_left_out > 0);
	free(log);
}

static void addresses_of_other_transports_keep_the_options_that_fit(void **state)
{
	struct haul_discovery_log *log = log_of(1, 7);
	static struct referrals referrals;
	const struct referral *referral;
	char why[64], text[NVME_URI_TEXT_MAX];
	struct nvme_uri uri;

	(void)state;
	strcpy(log->entries[0].transport, "rdma");
	strcpy(log->entries[0].address, "2001:db8::1");
	log->entries[0].address_family = NVME_ADRFAM_IPV6;
	assert_int_equal(nvme_uri_parse("tcp://host?hdgst=1&kato=5&ddgst=0&tos=1", 0, &uri, why,
				 sizeof(why)),
		0);
	referrals_init(&referrals, &uri);
	assert_int_equal(referrals_next(&referrals)->depth, 0);
	referrals_add(&referrals, log, NVME_TRTYPE_TCP);
	assert_null(referrals_next(&referrals));
	referrals_add(&referrals, log, 0);
	referral = referrals_next(&referrals);
	assert_non_null(referral);
	assert_int_equal(referral->depth, 1);
	referral_apply(referral, &uri);
	assert_true(nvme_uri_format(&uri, text, sizeof(text)) > 0);
	assert_string_equal(text, "rdma://[2001:db8::1]:7/" NVME_DISCOVERY_NQN "?kato=5&tos=1");
	free(log);
}

#define TEST(FN) cmocka_unit_test_setup_teardown(FN, setup, fake_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sites_are_searched),
		TEST(a_referral_that_fails_at_any_step_is_passed_over),
		TEST(giving_up_at_any_step_of_a_referral_is_safe),
		cmocka_unit_test(at_most_16_controllers_are_asked),
		cmocka_unit_test(addresses_of_other_transports_keep_the_options_that_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
