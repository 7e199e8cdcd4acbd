/* SPDX-License-Identifier: MIT */
/*
 * Asymmetric Namespace Access: what a host may do, and is told, by the listener it came in by.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "target/ana.h"
#include "tests/sim/target/sim.h"

#define MEMORY	   (32ull << 20)
#define PAGE_BYTES 16384
#define SECOND	   2 /* port id */

#define ANA_EVENT NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_ANA, NVME_LOG_ANA)
#define NS_EVENT  NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS)

/* A target with two listeners and a host on each. */
struct paths {
	struct sim *sim;
	struct port second;
	struct sim_conn *admin[2], *queue[2];
};

static struct catalog *changed(const struct paths *paths)
{
	return catalog_clone(paths->sim->target.catalog);
}

static void publish(struct paths *paths, struct catalog *catalog)
{
	assert_int_equal(sim_publish(paths->sim, catalog), 0);
	sim_settle(paths->sim);
}

static void set(struct catalog *catalog, uint32_t group, uint16_t portid, enum nvme_ana_state state)
{
	assert_int_equal(ana_set(catalog_find(catalog, SIM_NQN), group, portid, state), 0);
}

static void publish_state(
	struct paths *paths, uint32_t group, uint16_t portid, enum nvme_ana_state state)
{
	struct catalog *catalog = changed(paths);

	set(catalog, group, portid, state);
	publish(paths, catalog);
}

static void move_ns(struct catalog *catalog, uint32_t nsid, uint8_t group)
{
	catalog_find(catalog, SIM_NQN)->ns[nsid]->ana_group = group;
}

static struct sim_conn *connect_at(
	struct sim *sim, struct port *port, uint16_t qid, uint16_t sqsize, uint16_t cntlid)
{
	struct sim_conn *sc = sim_accept_at(sim, port);
	struct nvme_cmd cmd = sim_connect(SIM_NQN, qid, sqsize, cntlid);

	assert_non_null(sc);
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	return sc;
}

static void host_arrives(struct paths *paths, unsigned which)
{
	struct sim *sim = paths->sim;
	struct port *port = which ? &paths->second : &sim->port;
	struct sim_conn *admin = connect_at(sim, port, 0, 31, NVME_CNTLID_DYNAMIC);

	assert_int_equal(sim_set_cc(sim, admin, SIM_CC_ENABLE), 0);
	sim_set_feature(sim, admin, NVME_FEAT_ASYNC_EVENT, (uint32_t)~NVME_AEC_ENDURANCE_GROUPS);
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		sim_ask_event(sim, admin);
	paths->admin[which] = admin;
	paths->queue[which] = connect_at(sim, port, 1, 7, sim_cntlid(admin));
}

static struct paths *paths_create(void)
{
	struct paths *paths = calloc(1, sizeof(*paths));
	struct catalog *catalog;

	paths->sim = sim_create(2, MEMORY);
	paths->second = paths->sim->port;
	paths->second.portid = SECOND;
	paths->second.nr_refs = 2;
	paths->second.listening = paths->second.open = false;
	list_init(&paths->second.early);
	catalog = changed(paths);
	catalog->port[catalog->nr_ports++] = &paths->second;
	publish(paths, catalog);
	host_arrives(paths, 0);
	host_arrives(paths, 1);
	return paths;
}

static void paths_destroy(struct paths *paths)
{
	sim_destroy(paths->sim);
	assert_int_equal(paths->second.nr_refs, 1);
	free(paths);
}

static uint16_t read_status(struct paths *paths, unsigned which, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);

	cmd.nsid = le32(nsid);
	return sim_run(paths->sim, paths->queue[which], &cmd);
}

/* --- the page -------------------------------------------------------------------------------- */

/* As pieces of STEP bytes make it. */
static uint8_t *read_log(
	struct paths *paths, unsigned which, uint8_t lsp, uint32_t length, uint32_t step)
{
	static uint8_t page[PAGE_BYTES];
	struct sim_conn *admin = paths->admin[which];

	memset(page, 0xee, sizeof(page));
	for (uint32_t at = 0; at < length; at += step) {
		uint32_t size = min_of(step, length - at);

		sim_get_log(paths->sim, admin, NVME_LOG_ANA, at, size, lsp);
		memcpy(page + at, admin->data, size);
	}
	return page;
}

struct expected_group {
	uint32_t id;
	enum nvme_ana_state state;
	uint64_t count;
	uint32_t nr;
	uint32_t nsids[4];
};

static void expect_log(struct paths *paths, unsigned which, uint64_t count, uint32_t nr_groups,
	const struct expected_group *groups)
{
	const uint8_t *page = read_log(paths, which, 0, 512, 512);
	const struct nvme_log_ana *header = (const void *)page;

	assert_int_equal(le64_get(header->chgcnt), count);
	assert_int_equal(le16_get(header->ngrps), nr_groups);
	page += sizeof(*header);
	for (uint32_t i = 0; i < nr_groups; i++) {
		const struct nvme_log_ana_group *group = (const void *)page;

		assert_int_equal(le32_get(group->grpid), groups[i].id);
		assert_int_equal(group->state, groups[i].state);
		assert_int_equal(le64_get(group->chgcnt), groups[i].count);
		assert_int_equal(le32_get(group->nnsids), groups[i].nr);
		for (uint32_t k = 0; k < groups[i].nr; k++)
			assert_int_equal(le32_get(group->nsid[k]), groups[i].nsids[k]);
		page += sizeof(*group) + groups[i].nr * sizeof(le32_t);
	}
}

static void expect_event(const struct sim_conn *admin, unsigned replies, uint32_t event)
{
	assert_int_equal(admin->nr_replies, replies + 1);
	assert_int_equal(nvme_cqe_status(&admin->last), 0);
	assert_int_equal(le32_get(admin->last.dw0), event);
}

/* --- states ---------------------------------------------------------------------------------- */

static void namespaces_are_in_group_1_and_optimized_by_default(void **state)
{
	struct paths *paths = paths_create();
	const struct expected_group group = {1, NVME_ANA_OPTIMIZED, 1, 2, {1, 3}};

	(void)state;
	for (unsigned which = 0; which < 2; which++) {
		expect_log(paths, which, 0, 1, &group);
		assert_int_equal(read_status(paths, which, 1), 0);
	}
	paths_destroy(paths);
}

static const struct {
	enum nvme_ana_state state;
	uint16_t status; /* of I/O */
	bool sized;
} states[] = {
	{NVME_ANA_OPTIMIZED, 0, true},
	{NVME_ANA_NON_OPTIMIZED, 0, true},
	{NVME_ANA_INACCESSIBLE, NVME_SC_ANA_INACCESSIBLE, false},
	{NVME_ANA_PERSISTENT_LOSS, NVME_SC_ANA_PERSISTENT_LOSS, false},
	{NVME_ANA_CHANGE, NVME_SC_ANA_TRANSITION, true},
};

static void expect_sizes(struct paths *paths, unsigned which, bool sized)
{
	struct sim_conn *admin = paths->admin[which];
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_IDENTIFY, 1, NVME_IDENTIFY_SIZE);
	const struct nvme_id_ns *id = (const void *)admin->data;
	le128_t none = le128(0);

	cmd.identify.cns = NVME_CNS_NS;
	assert_int_equal(sim_run(paths->sim, admin, &cmd), 0);
	assert_int_equal(le32_get(id->anagrpid), 1);
	assert_int_equal(le64_get(id->nsze), SIM_LBAS);
	assert_int_equal(le64_get(id->ncap), SIM_LBAS);
	assert_int_equal(le64_get(id->nuse), sized ? SIM_LBAS : 0);
	assert_int_equal(!memcmp(&id->nvmcap, &none, sizeof(none)), !sized);
}

/* 8.1.3: a retry elsewhere is wanted, hence no DNR. */
static void state_decides_what_becomes_of_commands(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct paths *paths = paths_create();
		struct nvme_cmd cmds[] = {sim_rw(NVME_OPC_READ, 0, 1), sim_rw(NVME_OPC_WRITE, 0, 1),
			sim_cmd(NVME_OPC_FLUSH, 1, 0), sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0),
			sim_rw(NVME_OPC_WRITE_ZEROES, 0, 1), sim_rw(NVME_OPC_VERIFY, 0, 1)};

		publish_state(paths, 1, ANA_OTHER_PORTS, states[i].state);
		for (size_t k = 0; k < ARRAY_SIZE(cmds); k++)
			assert_int_equal(
				sim_run(paths->sim, paths->queue[0], &cmds[k]), states[i].status);
		expect_sizes(paths, 0, states[i].sized);
		paths_destroy(paths);
	}
}

/* Figure "ANA effects on command processing". */
static void features_of_all_namespaces_need_all_of_them(void **state)
{
	struct paths *paths = paths_create();
	struct nvme_cmd all = sim_cmd(NVME_OPC_SET_FEATURES, NVME_NSID_ALL, 0);
	struct nvme_cmd none = sim_cmd(NVME_OPC_SET_FEATURES, 0, 0);

	(void)state;
	all.features.fid = none.features.fid = NVME_FEAT_KEEP_ALIVE_TIMER;
	assert_int_equal(sim_run(paths->sim, paths->admin[0], &all), 0);
	publish_state(paths, 1, ANA_OTHER_PORTS, NVME_ANA_INACCESSIBLE);
	assert_int_equal(sim_run(paths->sim, paths->admin[0], &all), NVME_SC_ANA_INACCESSIBLE);
	assert_int_equal(sim_run(paths->sim, paths->admin[0], &none), 0);
	paths_destroy(paths);
}

static void features_of_a_namespace_need_it_as_the_figure_says(void **state)
{
	static const struct {
		uint8_t opcode, fid;
		uint16_t status[3]; /* inaccessible, change, lost */
	} cases[] = {
		{NVME_OPC_GET_FEATURES, NVME_FEAT_RESERVATION_PERSISTENCE,
			{NVME_SC_ANA_INACCESSIBLE, NVME_SC_ANA_TRANSITION,
				NVME_SC_ANA_PERSISTENT_LOSS}},
		{NVME_OPC_SET_FEATURES, NVME_FEAT_RESERVATION_NOTIFICATION_MASK,
			{NVME_SC_ANA_INACCESSIBLE, NVME_SC_ANA_TRANSITION,
				NVME_SC_ANA_PERSISTENT_LOSS}},
		{NVME_OPC_SET_FEATURES, NVME_FEAT_KEEP_ALIVE_TIMER,
			{NVME_SC_FEATURE_NOT_PER_NS | NVME_STATUS_DNR,
				NVME_SC_FEATURE_NOT_PER_NS | NVME_STATUS_DNR,
				NVME_SC_ANA_PERSISTENT_LOSS}},
	};
	static const enum nvme_ana_state in[] = {
		NVME_ANA_INACCESSIBLE, NVME_ANA_CHANGE, NVME_ANA_PERSISTENT_LOSS};
	struct paths *paths = paths_create();

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(in); k++) {
		publish_state(paths, 1, ANA_OTHER_PORTS, in[k]);
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			struct nvme_cmd cmd = sim_cmd(cases[i].opcode, 1, 0);
			struct sim_conn *admin = paths->admin[0];

			cmd.features.fid = cases[i].fid;
			assert_true(sim_send(paths->sim, admin, &cmd));
			sim_settle(paths->sim);
			assert_int_equal(paths->sim->status[le16_get(cmd.cid)] & ~NVME_STATUS_MORE,
				cases[i].status[k]);
		}
	}
	paths_destroy(paths);
}

static void listener_has_states_of_its_own(void **state)
{
	struct paths *paths = paths_create();
	const struct expected_group usable = {1, NVME_ANA_NON_OPTIMIZED, 2, 2, {1, 3}};
	const struct expected_group gone = {1, NVME_ANA_INACCESSIBLE, 2, 2, {1, 3}};
	struct catalog *catalog = changed(paths);

	(void)state;
	set(catalog, 1, ANA_OTHER_PORTS, NVME_ANA_NON_OPTIMIZED);
	set(catalog, 1, SECOND, NVME_ANA_INACCESSIBLE);
	publish(paths, catalog);
	expect_log(paths, 0, 1, 1, &usable);
	expect_log(paths, 1, 1, 1, &gone);
	assert_int_equal(read_status(paths, 0, 1), 0);
	assert_int_equal(read_status(paths, 1, 1), NVME_SC_ANA_INACCESSIBLE);
	expect_sizes(paths, 0, true);
	expect_sizes(paths, 1, false);
	paths_destroy(paths);
}

static void group_that_is_not_accessible_concerns_its_namespaces_only(void **state)
{
	struct paths *paths = paths_create();
	struct catalog *catalog = changed(paths);
	const struct expected_group groups[] = {
		{1, NVME_ANA_OPTIMIZED, 2, 1, {1}}, {2, NVME_ANA_CHANGE, 2, 1, {3}}};

	(void)state;
	move_ns(catalog, 3, 2);
	set(catalog, 2, ANA_OTHER_PORTS, NVME_ANA_CHANGE);
	publish(paths, catalog);
	expect_log(paths, 0, 1, 2, groups);
	assert_int_equal(read_status(paths, 0, 1), 0);
	assert_int_equal(read_status(paths, 0, 3), NVME_SC_ANA_TRANSITION);
	publish_state(paths, 5, SECOND, NVME_ANA_INACCESSIBLE); /* another change leaves it so */
	assert_int_equal(read_status(paths, 0, 3), NVME_SC_ANA_TRANSITION);
	publish_state(paths, 2, ANA_OTHER_PORTS, NVME_ANA_OPTIMIZED);
	assert_int_equal(read_status(paths, 0, 3), 0);
	paths_destroy(paths);
}

/* B167: a namespace is never refused for a group that nobody has set. */
static void host_at_a_listener_that_goes_is_not_refused_by_a_state(void **state)
{
	struct paths *paths = paths_create();
	struct catalog *catalog = changed(paths);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);

	(void)state;
	paths->sim->auto_disk = false;
	assert_true(sim_send(paths->sim, paths->queue[1], &cmd));
	sim_settle(paths->sim);
	catalog->nr_ports--;
	port_put(&paths->second);
	publish(paths, catalog);
	assert_true(sim_do_io(paths->sim, 0, 0));
	paths->sim->auto_disk = true;
	sim_settle(paths->sim);
	assert_null(paths->queue[1]->conn);
	assert_int_equal(read_status(paths, 0, 1), 0);
	paths_destroy(paths);
}

static void command_in_flight_is_left_alone(void **state)
{
	struct paths *paths = paths_create();
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 1);

	(void)state;
	paths->sim->auto_disk = false;
	assert_true(sim_send(paths->sim, paths->queue[0], &cmd));
	sim_settle(paths->sim);
	publish_state(paths, 1, ANA_OTHER_PORTS, NVME_ANA_INACCESSIBLE);
	assert_int_equal(paths->sim->status[le16_get(cmd.cid)], SIM_NO_ANSWER);
	assert_true(sim_do_io(paths->sim, 0, 0));
	sim_settle(paths->sim);
	assert_int_equal(paths->sim->status[le16_get(cmd.cid)], 0);
	paths->sim->auto_disk = true;
	assert_int_equal(read_status(paths, 0, 1), NVME_SC_ANA_INACCESSIBLE);
	paths_destroy(paths);
}

/* --- events and counts ----------------------------------------------------------------------- */

static void only_controllers_whose_view_changes_are_told_once(void **state)
{
	struct paths *paths = paths_create();
	unsigned first = paths->admin[0]->nr_replies, second = paths->admin[1]->nr_replies;

	(void)state;
	publish_state(paths, 1, SECOND, NVME_ANA_NON_OPTIMIZED);
	assert_int_equal(paths->admin[0]->nr_replies, first);
	expect_event(paths->admin[1], second, ANA_EVENT);
	publish_state(paths, 1, SECOND, NVME_ANA_INACCESSIBLE);
	assert_int_equal(paths->admin[1]->nr_replies, second + 1);
	/* The first reading clears the one, and what has come before it. */
	(void)read_log(paths, 1, 0, 64, 64);
	publish_state(paths, 1, SECOND, NVME_ANA_OPTIMIZED);
	expect_event(paths->admin[1], second + 2, ANA_EVENT);
	assert_int_equal(paths->admin[0]->nr_replies, first);
	paths_destroy(paths);
}

static void group_without_namespaces_is_nobodys_matter(void **state)
{
	struct paths *paths = paths_create();
	const struct expected_group group = {1, NVME_ANA_OPTIMIZED, 1, 2, {1, 3}};
	unsigned replies = paths->admin[0]->nr_replies;

	(void)state;
	publish_state(paths, 7, ANA_OTHER_PORTS, NVME_ANA_INACCESSIBLE);
	assert_int_equal(paths->admin[0]->nr_replies, replies);
	expect_log(paths, 0, 0, 1, &group);
	paths_destroy(paths);
}

/* 8.1.2: a namespace with another group is told of; one that has come is in another event. */
static void moved_namespace_is_told_of_and_a_new_one_by_its_own_event(void **state)
{
	struct paths *paths = paths_create();
	const struct expected_group moved[] = {
		{1, NVME_ANA_OPTIMIZED, 2, 1, {3}}, {9, NVME_ANA_OPTIMIZED, 2, 1, {1}}};
	const struct expected_group added[] = {
		{1, NVME_ANA_OPTIMIZED, 3, 2, {3, 4}}, {9, NVME_ANA_OPTIMIZED, 2, 1, {1}}};
	unsigned replies = paths->admin[0]->nr_replies;
	struct catalog *catalog = changed(paths);

	(void)state;
	move_ns(catalog, 1, 9);
	publish(paths, catalog);
	expect_event(paths->admin[0], replies, ANA_EVENT);
	expect_log(paths, 0, 1, 2, moved);
	replies = paths->admin[0]->nr_replies;
	catalog = changed(paths);
	sim_add_ns(catalog, catalog_find(catalog, SIM_NQN), 4, false);
	publish(paths, catalog);
	expect_event(paths->admin[0], replies, NS_EVENT);
	expect_log(paths, 0, 2, 2, added);
	paths_destroy(paths);
}

static void reset_begins_the_counts_anew(void **state)
{
	struct paths *paths = paths_create();
	const struct expected_group before = {1, NVME_ANA_NON_OPTIMIZED, 2, 2, {1, 3}};
	const struct expected_group group = {1, NVME_ANA_NON_OPTIMIZED, 1, 2, {1, 3}};
	const struct nvme_cmd reset = sim_property_set_cc(0);

	(void)state;
	publish_state(paths, 1, ANA_OTHER_PORTS, NVME_ANA_NON_OPTIMIZED);
	expect_log(paths, 0, 1, 1, &before);
	assert_true(
		sim_send(paths->sim, paths->admin[0], &reset)); /* ends the event requests, too */
	sim_settle(paths->sim);
	assert_int_equal(sim_set_cc(paths->sim, paths->admin[0], SIM_CC_ENABLE), 0);
	expect_log(paths, 0, 0, 1, &group);
	paths_destroy(paths);
}

/* 8.1.3.4: for a controller there is no way back; its host may connect anew. */
static void end_of_persistent_loss_ends_its_controllers(void **state)
{
	struct paths *paths = paths_create();

	(void)state;
	publish_state(paths, 1, SECOND, NVME_ANA_PERSISTENT_LOSS);
	publish_state(paths, 1, SECOND, NVME_ANA_OPTIMIZED);
	assert_null(paths->admin[1]->conn);
	assert_null(paths->queue[1]->conn);
	assert_int_equal(read_status(paths, 0, 1), 0);
	host_arrives(paths, 1);
	assert_int_equal(read_status(paths, 1, 1), 0);
	paths_destroy(paths);
}

/* --- long pages ------------------------------------------------------------------------------ */

static struct paths *paths_create_large(uint32_t *ret_length, uint32_t *ret_groups_only)
{
	struct paths *paths = paths_create();
	struct catalog *catalog = changed(paths);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	for (uint32_t nsid = 4; nsid <= 301; nsid++)
		sim_add_ns(catalog, subsys, nsid, false);
	for (uint32_t nsid = 1; nsid <= 301; nsid++)
		if (subsys->ns[nsid])
			subsys->ns[nsid]->ana_group = (uint8_t)(1 + nsid % ANA_MAX_GROUPS);
	publish(paths, catalog);
	*ret_groups_only = 16 + ANA_MAX_GROUPS * 32;
	*ret_length = *ret_groups_only + 300 * 4;
	return paths;
}

static void page_is_the_same_in_pieces_of_any_size(void **state)
{
	static const uint32_t steps[] = {4, 12, 52, 1000, 4096};
	static uint8_t whole[PAGE_BYTES];
	uint32_t length, groups_only;
	struct paths *paths = paths_create_large(&length, &groups_only);
	const struct nvme_log_ana_group *group;
	uint32_t at = sizeof(struct nvme_log_ana);

	(void)state;
	memcpy(whole, read_log(paths, 0, NVME_GET_LOG_RAE, length, 4096), length);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		assert_memory_equal(
			read_log(paths, 0, NVME_GET_LOG_RAE, length, steps[i]), whole, length);
	for (uint32_t id = 1; id <= ANA_MAX_GROUPS; id++) {
		group = (const void *)(whole + at);
		assert_int_equal(le32_get(group->grpid), id);
		for (uint32_t k = 0; k < le32_get(group->nnsids); k++)
			assert_int_equal(1 + le32_get(group->nsid[k]) % ANA_MAX_GROUPS, id);
		at += (uint32_t)(sizeof(*group) + le32_get(group->nnsids) * sizeof(le32_t));
	}
	assert_int_equal(at, length);
	paths_destroy(paths);
}

static void groups_only_has_no_namespaces_and_ends_earlier(void **state)
{
	uint32_t length, groups_only;
	struct paths *paths = paths_create_large(&length, &groups_only);
	const uint8_t *page = read_log(paths, 0, NVME_LOG_ANA_RGO, groups_only, 4096);
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_LOG_PAGE, NVME_NSID_ALL, 4);

	(void)state;
	for (uint32_t id = 1; id <= ANA_MAX_GROUPS; id++) {
		const struct nvme_log_ana_group *group = (const void *)(page + 16 + (id - 1) * 32);

		assert_int_equal(le32_get(group->grpid), id);
		assert_int_equal(le32_get(group->nnsids), 0);
		assert_int_equal(group->state, NVME_ANA_OPTIMIZED);
	}
	cmd.get_log.lid = NVME_LOG_ANA;
	cmd.get_log.lpo = le64(16 + ANA_MAX_GROUPS * 32 + 4);
	assert_int_equal(sim_run(paths->sim, paths->admin[0], &cmd), 0);
	cmd.get_log.lsp = NVME_LOG_ANA_RGO;
	assert_int_equal(sim_run(paths->sim, paths->admin[0], &cmd), CMD_INVALID_FIELD);
	paths_destroy(paths);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(namespaces_are_in_group_1_and_optimized_by_default),
		cmocka_unit_test(state_decides_what_becomes_of_commands),
		cmocka_unit_test(features_of_all_namespaces_need_all_of_them),
		cmocka_unit_test(features_of_a_namespace_need_it_as_the_figure_says),
		cmocka_unit_test(listener_has_states_of_its_own),
		cmocka_unit_test(group_that_is_not_accessible_concerns_its_namespaces_only),
		cmocka_unit_test(host_at_a_listener_that_goes_is_not_refused_by_a_state),
		cmocka_unit_test(command_in_flight_is_left_alone),
		cmocka_unit_test(only_controllers_whose_view_changes_are_told_once),
		cmocka_unit_test(group_without_namespaces_is_nobodys_matter),
		cmocka_unit_test(moved_namespace_is_told_of_and_a_new_one_by_its_own_event),
		cmocka_unit_test(reset_begins_the_counts_anew),
		cmocka_unit_test(end_of_persistent_loss_ends_its_controllers),
		cmocka_unit_test(page_is_the_same_in_pieces_of_any_size),
		cmocka_unit_test(groups_only_has_no_namespaces_and_ends_earlier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
