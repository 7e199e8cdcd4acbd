/* SPDX-License-Identifier: MIT */
/*
 * The discovery log: consistent or not at all, always bounded; and finding the only subsystem
 * without being told.
 */
#include "tests/unit/initiator/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/ctrl.h"

#define DISCOVERY_URI "tcp://127.0.0.1/" NVME_DISCOVERY_NQN

/* What the fake's log is, and how it changes while it is read. */
static struct {
	uint32_t nr; /* entries now */
	uint64_t genctr;
	uint32_t nr_reads, nr_rae_clear;
	int change_until; /* the log changes after each read until that many */
	int grow_by;
	uint32_t claim; /* NUMREC; 0: NR */
	uint16_t recfmt;
	uint32_t smallest; /* longest read */
	int last_was_clear;
} book;

static void book_entry(uint32_t i, struct nvme_disc_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->trtype = NVME_TRTYPE_TCP;
	entry->adrfam = NVME_ADRFAM_IPV4;
	entry->subtype = NVME_SUBTYPE_NVM;
	entry->portid = le16((uint16_t)i);
	assert_int_equal(nvme_field_set(entry->traddr, sizeof(entry->traddr), "127.0.0.1"), 0);
	assert_int_equal(nvme_field_set(entry->trsvcid, sizeof(entry->trsvcid), "4420"), 0);
	snprintf(entry->subnqn, sizeof(entry->subnqn), "nqn.2014-08.org.example:%llu-%u",
		(unsigned long long)book.genctr, i);
}

static uint16_t book_read(struct fake *f, uint64_t offset, void *bytes, uint32_t len, int rae)
{
	uint8_t *log = calloc(1, 1024 + (size_t)book.nr * 1024 + len);
	struct nvme_disc_log *header = (struct nvme_disc_log *)log;

	(void)f;
	header->genctr = le64(book.genctr);
	header->numrec = le64(book.claim ? book.claim : book.nr);
	header->recfmt = le16(book.recfmt);
	for (uint32_t i = 0; i < book.nr; i++)
		book_entry(i, &header->entry[i]);
	if (offset <= 1024 + (uint64_t)book.nr * 1024)
		memcpy(bytes, log + offset, len);
	free(log);
	book.nr_reads++;
	book.nr_rae_clear += !rae;
	book.last_was_clear = !rae;
	if (offset + len > 1024 + (uint64_t)book.nr * 1024)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	if ((int)book.nr_reads <= book.change_until) {
		book.genctr++;
		book.nr = (uint32_t)((int)book.nr + book.grow_by);
	}
	return 0;
}

static int book_setup(void **state)
{
	int error = fake_setup(state);

	memset(&book, 0, sizeof(book));
	book.genctr = 100;
	fake.log = book_read;
	fake.id_ctrl.cntrltype = NVME_CNTRLTYPE_DISCOVERY;
	return error;
}

static int discover(uint32_t timeout_ms, struct haul_discovery_log **ret)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl_options options;
	struct haul_ctrl *ctrl;
	int result;

	haul_ctrl_options_init(&options);
	options.command_timeout_ms = timeout_ms;
	*ret = NULL;
	assert_int_equal(haul_connect(hl, DISCOVERY_URI, &options, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), 0);
	assert_int_equal(haul_discover(ctrl, ret, 5), 0);
	result = wait_for(hl, 5);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
	return result;
}

static void logs_of_all_sizes_are_read_whole(void **state)
{
	static const uint32_t sizes[] = {0, 1, 3, 4, 31, 32, 33, 100, 4096};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		struct haul_discovery_log *log;
		char nqn[64];

		fake.id_ctrl.mdts = i % 2 ? 0 : 1; /* 8 KiB: 8 entries a command */
		book.nr = sizes[i / 2];
		assert_int_equal(discover(5000, &log), 0);
		assert_int_equal(log->nr, sizes[i / 2]);
		assert_int_equal(log->generation, 100);
		for (uint32_t k = 0; k < log->nr; k++) {
			snprintf(nqn, sizeof(nqn), "nqn.2014-08.org.example:100-%u", k);
			assert_string_equal(log->entries[k].subsystem_nqn, nqn);
			assert_string_equal(log->entries[k].address, "127.0.0.1");
			assert_string_equal(log->entries[k].service, "4420");
			assert_string_equal(log->entries[k].transport, "tcp");
		}
		free(log);
	}
}

/* B034 */
static void log_that_changes_is_read_again(void **state)
{
	static const struct {
		uint32_t nr;
		int until, grow_by;
		int result;
	} cases[] = {{40, 1, 0, 0}, {40, 3, 0, 0}, {1, 9, 1, 0}, {10, 5, -2, 0}, {3, 3, -1, 0},
		{40, 1000, 0, -EAGAIN}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct haul_discovery_log *log;
		char nqn[64];

		book.nr_reads = 0;
		book.nr = cases[i].nr;
		book.change_until = cases[i].until;
		book.grow_by = cases[i].grow_by;
		assert_int_equal(discover(5000, &log), cases[i].result);
		assert_true(book.nr_reads < 100);
		for (uint32_t k = 0; log && k < log->nr; k++) {
			snprintf(nqn, sizeof(nqn), "nqn.2014-08.org.example:%llu-%u",
				(unsigned long long)log->generation, k);
			assert_string_equal(log->entries[k].subsystem_nqn, nqn);
		}
		if (log)
			assert_int_equal(log->nr, book.nr);
		free(log);
	}
}

/* B042 */
static void event_is_cleared_by_the_last_read_only(void **state)
{
	struct haul_discovery_log *log;

	(void)state;
	book.nr = 100;
	assert_int_equal(discover(5000, &log), 0);
	assert_int_equal(book.nr_rae_clear, 1);
	assert_true(book.last_was_clear);
	free(log);
}

static void absurd_logs_are_refused(void **state)
{
	struct haul_discovery_log *log;

	(void)state;
	book.claim = 4097;
	assert_int_equal(discover(5000, &log), -EMSGSIZE);
	book.claim = UINT32_MAX;
	assert_int_equal(discover(5000, &log), -EMSGSIZE);
	book.claim = 5; /* more than there are */
	book.nr = 2;
	assert_int_equal(discover(5000, &log), -EAGAIN);
	book.claim = 0;
	book.recfmt = 1;
	assert_int_equal(discover(5000, &log), -EPROTO);
	assert_null(log);
}

static void silent_log_ends_in_time(void **state)
{
	struct haul_discovery_log *log;

	(void)state;
	book.nr = 100;
	for (uint32_t skip = 0; skip < 5; skip++) {
		memset(fake.nr_asked, 0, sizeof(fake.nr_asked));
		fake.rules[FAKE_LOG] = (struct fake_rule){FAKE_SILENT, 0, 0, skip};
		assert_int_equal(discover(30, &log), -ETIMEDOUT);
		assert_null(log);
	}
}

static uint16_t garbage_read(struct fake *f, uint64_t offset, void *bytes, uint32_t len, int rae)
{
	(void)f;
	(void)rae;
	memset(bytes, 0xff, len);
	if (offset == 0) {
		memset(bytes, 0, len);
		((struct nvme_disc_log *)bytes)->numrec = le64(2);
	}
	return 0;
}

/* Fields without end, with bytes that are no text (B005). */
static void garbage_is_made_printable(void **state)
{
	struct haul_discovery_log *log;

	(void)state;
	fake.log = garbage_read;
	assert_int_equal(discover(5000, &log), 0);
	assert_int_equal(log->nr, 2);
	assert_int_equal(strlen(log->entries[1].subsystem_nqn), NVME_NQN_MAX);
	assert_int_equal(strlen(log->entries[1].address), 256);
	assert_int_equal(strlen(log->entries[1].service), 32);
	assert_int_equal(log->entries[1].address[5], '?');
	free(log);
}

static void log_is_asked_of_discovery_only(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_discovery_log *log;
	struct haul_ctrl *ctrl;

	(void)state;
	fake.id_ctrl.cntrltype = NVME_CNTRLTYPE_IO;
	ctrl = connect_good(hl);
	assert_int_equal(haul_discover(ctrl, &log, 5), -EINVAL);
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

/* --- without an NQN --------------------------------------------------------------------------- */

struct choice {
	uint8_t trtype, subtype;
	const char *nqn, *address, *service;
};

static const struct choice *choices;
static uint32_t nr_choices;

static uint16_t choices_read(struct fake *f, uint64_t offset, void *bytes, uint32_t len, int rae)
{
	struct nvme_disc_entry *entry = bytes;

	(void)len;
	(void)rae;
	/* The next Identify is the subsystem's. */
	f->id_ctrl.cntrltype = NVME_CNTRLTYPE_IO;
	if (offset == 0) {
		((struct nvme_disc_log *)bytes)->numrec = le64(nr_choices);
		return 0;
	}
	for (uint32_t i = 0; i < nr_choices; i++) {
		book_entry(i, &entry[i]);
		entry[i].trtype = choices[i].trtype;
		entry[i].subtype = choices[i].subtype;
		memset(entry[i].subnqn, 0, sizeof(entry[i].subnqn));
		memcpy(entry[i].subnqn, choices[i].nqn, strlen(choices[i].nqn));
		assert_int_equal(nvme_field_set(entry[i].traddr, 256, choices[i].address), 0);
		assert_int_equal(nvme_field_set(entry[i].trsvcid, 32, choices[i].service), 0);
	}
	return 0;
}

#define NQN_A "nqn.2014-08.org.example:a"
#define NQN_B "nqn.2014-08.org.example:b"

static void only_subsystem_is_taken_and_several_are_listed(void **state)
{
	static const struct choice one[] = {{3, 3, NVME_DISCOVERY_NQN, "127.0.0.1", "4420"},
		{3, 2, NQN_A, "127.0.0.1", "4420"}},
				   twice[] = {{1, 2, NQN_A, "10.0.0.1", "4420"},
					   {3, 2, NQN_A, "127.0.0.9", "5000"},
					   {3, 2, NQN_A, "127.0.0.1", "4420"}},
				   elsewhere[] = {{3, 2, NQN_A, "127.0.0.9", "5000"}},
				   wildcard[] = {{3, 2, NQN_A, "0.0.0.0", "5000"}},
				   two[] = {{3, 2, NQN_A, "127.0.0.1", "4420"},
					   {3, 2, NQN_B, "127.0.0.1", "4420"}},
				   other[] = {{1, 2, NQN_A, "127.0.0.1", "4420"}},
				   referral[] = {{3, 1, NVME_DISCOVERY_NQN, "127.0.0.1", "4420"}},
				   free_form[] = {{3, 2, "test/n\xc3\xa4me", "127.0.0.1", "4420"}},
				   nonsense[] = {{3, 2, "", "127.0.0.1", "4420"}};
	static const struct {
		const struct choice *choices;
		uint32_t nr;
		int result;
		const char *words; /* of the text; of a success the address */
		const char *nqn;   /* NULL: NQN_A */
	} cases[] = {{NULL, 0, -ENOENT, "no subsystem"}, {one, 2, 0, "127.0.0.1:4420"},
		{twice, 3, 0, "127.0.0.1:4420"}, {elsewhere, 1, 0, "127.0.0.9:5000"},
		{wildcard, 1, 0, "127.0.0.1:5000"}, {two, 2, -ENOTUNIQ, NQN_A ", " NQN_B},
		{other, 1, -EPROTONOSUPPORT, "other transports"},
		{free_form, 1, 0, "127.0.0.1:4420", "test/n\xc3\xa4me"},
		{referral, 1, -ENOENT, "no subsystem"}, {nonsense, 1, -ENOENT, "no subsystem"}};

	(void)state;
	fake.log = choices_read;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct haul_loop *hl = loop_good();
		const char *nqn = cases[i].nqn ? cases[i].nqn : NQN_A;
		struct haul_ctrl_info info;
		struct haul_ctrl *ctrl;

		fake.id_ctrl.cntrltype = NVME_CNTRLTYPE_DISCOVERY;
		choices = cases[i].choices;
		nr_choices = cases[i].nr;
		assert_int_equal(haul_connect(hl, "tcp://127.0.0.1", NULL, 1, &ctrl), 0);
		assert_int_equal(wait_for(hl, 1), cases[i].result);
		if (cases[i].result) {
			assert_non_null(strstr(haul_ctrl_error(ctrl), cases[i].words));
		} else {
			assert_int_equal(haul_ctrl_info(ctrl, &info), 0);
			assert_string_equal(info.address, cases[i].words);
			assert_string_equal(info.subsystem_nqn, nqn);
			assert_string_equal(fake.last_nqn, nqn);
			assert_int_equal(fake.last_kato, 15000);
			assert_int_equal(fake.nr_queues_open, 1); /* discovery was left */
		}
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
	}
}

/* One deadline over both connections. */
static void silence_after_discovery_is_within_the_deadline(void **state)
{
	static const struct choice one[] = {{3, 2, NQN_A, "127.0.0.1", "4420"}};
	struct haul_ctrl_options options;
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl;

	(void)state;
	fake.log = choices_read;
	choices = one;
	nr_choices = 1;
	haul_ctrl_options_init(&options);
	options.connect_timeout_ms = 40;
	for (uint32_t skip = 0; skip < 2; skip++) {
		memset(fake.nr_asked, 0, sizeof(fake.nr_asked));
		fake.rules[FAKE_CAP] = (struct fake_rule){FAKE_SILENT, 0, 0, skip};
		assert_int_equal(haul_connect(hl, "tcp://127.0.0.1", &options, 1, &ctrl), 0);
		assert_int_equal(wait_for(hl, 1), -ETIMEDOUT);
		assert_int_equal(!strstr(haul_ctrl_error(ctrl), "discovery:"), skip);
		haul_ctrl_free(ctrl);
	}
	haul_loop_destroy(hl);
}

#define TEST(FN) cmocka_unit_test_setup_teardown(FN, book_setup, fake_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(logs_of_all_sizes_are_read_whole),
		TEST(log_that_changes_is_read_again),
		TEST(event_is_cleared_by_the_last_read_only),
		TEST(absurd_logs_are_refused),
		TEST(silent_log_ends_in_time),
		TEST(garbage_is_made_printable),
		TEST(log_is_asked_of_discovery_only),
		TEST(only_subsystem_is_taken_and_several_are_listed),
		TEST(silence_after_discovery_is_within_the_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
