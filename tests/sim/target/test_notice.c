/* SPDX-License-Identifier: MIT */
/*
 * Catalogs change: just the hosts that are concerned are told, and find it in their log pages.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/log.h"
#include "tests/sim/target/sim.h"

#define MEMORY	  (32ull << 20)
#define NS	  NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS)
#define DISCOVERY NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_DISCOVERY, NVME_LOG_DISCOVERY)

/* A controller that wants to hear of everything. */
static struct sim_conn *listener(struct sim *sim, const char *nqn)
{
	struct sim_conn *admin = sim_admin(sim, nqn);

	sim_set_feature(sim, admin, NVME_FEAT_ASYNC_EVENT, (uint32_t)~NVME_AEC_ENDURANCE_GROUPS);
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		sim_ask_event(sim, admin);
	return admin;
}

static struct catalog *changed(const struct sim *sim)
{
	return catalog_clone(sim->target.catalog);
}

static void publish(struct sim *sim, struct catalog *catalog)
{
	assert_int_equal(sim_publish(sim, catalog), 0);
	sim_settle(sim);
}

static void remove_ns(struct catalog *catalog, const char *nqn, uint32_t nsid)
{
	struct subsys *subsys = catalog_find(catalog, nqn);

	ns_place_put(subsys->ns[nsid]->place);
	free(subsys->ns[nsid]);
	subsys->ns[nsid] = NULL;
}

static void expect_event(const struct sim_conn *admin, unsigned nr_replies, uint32_t event)
{
	assert_int_equal(admin->nr_replies, nr_replies);
	assert_int_equal(nvme_cqe_status(&admin->last), 0);
	assert_int_equal(le32_get(admin->last.dw0), event);
}

/* The Changed Namespace List has just these. */
static void expect_list(
	struct sim *sim, struct sim_conn *admin, uint8_t lsp, uint32_t nr, const uint32_t *nsids)
{
	const struct nvme_log_changed_ns *list = (const void *)admin->data;

	sim_get_log(sim, admin, NVME_LOG_CHANGED_NS, 0, 4096, lsp);
	for (uint32_t i = 0; i < nr; i++)
		assert_int_equal(le32_get(list->nsid[i]), nsids[i]);
	for (uint32_t i = nr; i < NVME_LOG_CHANGED_NS_MAX; i++)
		assert_int_equal(le32_get(list->nsid[i]), 0);
}

/* --- namespaces ------------------------------------------------------------------------------ */

static void add_7(struct catalog *catalog)
{
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 7, false);
}

static void add_8(struct catalog *catalog)
{
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 8, false);
}

static void remove_3(struct catalog *catalog)
{
	remove_ns(catalog, SIM_NQN, 3);
}

static void grow_1(struct catalog *catalog)
{
	catalog_find(catalog, SIM_NQN)->ns[1]->nr_lbas += 8;
}

static void protect_1(struct catalog *catalog)
{
	catalog_find(catalog, SIM_NQN)->ns[1]->read_only = true;
}

static void replace_3(struct catalog *catalog)
{
	remove_ns(catalog, SIM_NQN, 3);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 3, true);
}

static const struct {
	const char *name;
	void (*change)(struct catalog *catalog);
	uint32_t nsid;
} changes[] = {
	{"added", add_7, 7},
	{"removed", remove_3, 3},
	{"grown", grow_1, 1},
	{"made read-only", protect_1, 1},
	{"replaced", replace_3, 3},
};

static void host_is_told_of_each_change_of_its_namespaces(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct sim *sim = sim_create(2, MEMORY);
		struct sim_conn *admin = listener(sim, SIM_NQN);
		struct sim_conn *other = listener(sim, SIM_OTHER);
		unsigned replies = admin->nr_replies, others = other->nr_replies;
		struct catalog *catalog = changed(sim);

		changes[i].change(catalog);
		publish(sim, catalog);
		expect_event(admin, replies + 1, NS);
		assert_int_equal(other->nr_replies, others);
		expect_list(sim, admin, 0, 1, &changes[i].nsid);
		expect_list(sim, admin, 0, 0, NULL);
		sim_destroy(sim);
	}
}

static void change_that_changes_nothing_is_not_told(void **state)
{
	struct sim *sim = sim_create(2, MEMORY);
	struct sim_conn *admin = listener(sim, SIM_NQN);
	struct sim_conn *discovery = listener(sim, NVME_DISCOVERY_NQN);
	unsigned replies = admin->nr_replies, others = discovery->nr_replies;

	(void)state;
	publish(sim, changed(sim));
	assert_int_equal(admin->nr_replies, replies);
	assert_int_equal(discovery->nr_replies, others);
	expect_list(sim, admin, 0, 0, NULL);
	sim_destroy(sim);
}

static void changes_add_up_until_the_list_is_read(void **state)
{
	static const uint32_t three[] = {1, 3, 7}, one[] = {7};
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = listener(sim, SIM_NQN);
	unsigned replies = admin->nr_replies;
	struct catalog *catalog = changed(sim);

	(void)state;
	add_7(catalog);
	remove_3(catalog);
	publish(sim, catalog);
	catalog = changed(sim);
	grow_1(catalog);
	publish(sim, catalog);
	expect_event(admin, replies + 1, NS);
	expect_list(sim, admin, NVME_GET_LOG_RAE, 3, three);
	expect_list(sim, admin, 0, 3, three);
	catalog = changed(sim);
	remove_ns(catalog, SIM_NQN, 7);
	publish(sim, catalog);
	expect_event(admin, replies + 4, NS);
	expect_list(sim, admin, 0, 1, one);
	sim_destroy(sim);
}

/* A change between two pieces is in the next list, and the host hears of it. */
static void list_is_one_list_in_pieces(void **state)
{
	static const uint32_t one[] = {1};
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = listener(sim, SIM_NQN);
	const struct nvme_log_changed_ns *list = (const void *)admin->data;
	struct catalog *catalog = changed(sim);
	unsigned replies;

	(void)state;
	add_7(catalog);
	publish(sim, catalog);
	sim_get_log(sim, admin, NVME_LOG_CHANGED_NS, 0, 4, NVME_GET_LOG_RAE);
	assert_int_equal(le32_get(list->nsid[0]), 7);
	catalog = changed(sim);
	grow_1(catalog);
	publish(sim, catalog);
	replies = admin->nr_replies;
	sim_get_log(sim, admin, NVME_LOG_CHANGED_NS, 4, 4, 0);
	expect_event(admin, replies + 2, NS);
	assert_int_equal(le32_get(list->nsid[0]), 0);
	expect_list(sim, admin, 0, 1, one);
	/* Who begins in the middle sees what is there. */
	catalog = changed(sim);
	remove_3(catalog);
	add_8(catalog);
	publish(sim, catalog);
	sim_get_log(sim, admin, NVME_LOG_CHANGED_NS, 4, 4, NVME_GET_LOG_RAE);
	assert_int_equal(le32_get(list->nsid[0]), 8);
	sim_destroy(sim);
}

static void host_that_did_not_ask_finds_the_list_only(void **state)
{
	static const uint32_t one[] = {7};
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	struct catalog *catalog = changed(sim);
	unsigned replies;

	(void)state;
	sim_ask_event(sim, admin);
	replies = admin->nr_replies;
	add_7(catalog);
	publish(sim, catalog);
	assert_int_equal(admin->nr_replies, replies);
	expect_list(sim, admin, 0, 1, one);
	sim_destroy(sim);
}

/* --- discovery ------------------------------------------------------------------------------- */

static void allow_the_host(struct catalog *catalog)
{
	assert_int_equal(subsys_allow_host(catalog_find(catalog, SIM_PRIVATE), SIM_HOST), 0);
}

static void allow_another_host(struct catalog *catalog)
{
	assert_int_equal(
		subsys_allow_host(catalog_find(catalog, SIM_PRIVATE), SIM_HOST ":third"), 0);
}

static void remove_other(struct catalog *catalog)
{
	subsys_free(catalog_find(catalog, SIM_OTHER));
}

static void remove_private(struct catalog *catalog)
{
	subsys_free(catalog_find(catalog, SIM_PRIVATE));
}

static void add_subsys(struct catalog *catalog)
{
	struct subsys *subsys;

	assert_int_equal(catalog_add_subsys(catalog, SIM_OTHER "2", &subsys), 0);
	subsys->allow_any = true;
}

static const struct {
	void (*change)(struct catalog *catalog);
	bool seen, same; /* by the host; for all hosts, so that no log is gone through */
} discoveries[] = {
	{allow_the_host, true, false},
	{allow_another_host, false, false},
	{remove_other, true, false},
	{remove_private, false, false},
	{add_subsys, true, false},
	{add_7, false, true},
};

static void discovery_tells_just_who_sees_the_change(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(discoveries); i++) {
		struct sim *sim = sim_create(2, MEMORY);
		struct sim_conn *admin = listener(sim, NVME_DISCOVERY_NQN);
		unsigned replies = admin->nr_replies;
		struct catalog *catalog = changed(sim);

		discoveries[i].change(catalog);
		publish(sim, catalog);
		assert_int_equal(catalog->same_discovery, discoveries[i].same);
		if (discoveries[i].seen)
			expect_event(admin, replies + 1, DISCOVERY);
		else
			assert_int_equal(admin->nr_replies, replies);
		sim_destroy(sim);
	}
}

/* B042 */
static void discovery_tells_once_until_the_log_is_read(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = listener(sim, NVME_DISCOVERY_NQN);
	unsigned replies = admin->nr_replies;
	struct catalog *catalog;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		catalog = changed(sim);
		discoveries[i * 2].change(catalog);
		publish(sim, catalog);
	}
	expect_event(admin, replies + 1, DISCOVERY);
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 0, 1024, NVME_GET_LOG_RAE);
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 1024, 1024, 0);
	assert_int_equal(admin->nr_replies, replies + 3);
	catalog = changed(sim);
	subsys_free(catalog_find(catalog, SIM_OTHER "2"));
	publish(sim, catalog);
	expect_event(admin, replies + 4, DISCOVERY);
	sim_destroy(sim);
}

/* B034: each answer is of one catalog, and the header tells which. */
static void log_that_changes_between_pieces_is_seen_in_its_header(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = listener(sim, NVME_DISCOVERY_NQN);
	const struct nvme_disc_log *log = (const void *)admin->data;
	struct catalog *catalog = changed(sim);
	uint64_t generation, records;

	(void)state;
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 0, 4096, 0);
	generation = le64_get(log->genctr);
	records = le64_get(log->numrec);
	assert_int_equal(records, 3); /* itself and two subsystems on one port */
	add_subsys(catalog);
	publish(sim, catalog);
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 0, 4096, 0);
	assert_int_equal(le64_get(log->genctr), generation + 1);
	assert_int_equal(le64_get(log->numrec), records + 1);
	sim_destroy(sim);
}

/* NVMe base 2.0 5.16.1.23: GENCTR counts changes of the log, not of what the log does not show. */
static void generation_counter_leaves_other_changes_out(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = listener(sim, NVME_DISCOVERY_NQN);
	const struct nvme_disc_log *log = (const void *)admin->data;
	struct catalog *catalog = changed(sim);
	uint64_t generation;

	(void)state;
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 0, 4096, 0);
	generation = le64_get(log->genctr);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 7, false);
	publish(sim, catalog);
	sim_get_log(sim, admin, NVME_LOG_DISCOVERY, 0, 4096, 0);
	assert_int_equal(le64_get(log->genctr), generation);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_is_told_of_each_change_of_its_namespaces),
		cmocka_unit_test(change_that_changes_nothing_is_not_told),
		cmocka_unit_test(changes_add_up_until_the_list_is_read),
		cmocka_unit_test(list_is_one_list_in_pieces),
		cmocka_unit_test(host_that_did_not_ask_finds_the_list_only),
		cmocka_unit_test(discovery_tells_just_who_sees_the_change),
		cmocka_unit_test(discovery_tells_once_until_the_log_is_read),
		cmocka_unit_test(log_that_changes_between_pieces_is_seen_in_its_header),
		cmocka_unit_test(generation_counter_leaves_other_changes_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
