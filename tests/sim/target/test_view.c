/* SPDX-License-Identifier: MIT */
/*
 * Namespaces that some hosts see and others do not: what is hidden is not there, wherever a host
 * looks, and a change of it concerns just the hosts that lose or gain sight.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "target/view.h"
#include "tests/sim/target/sim.h"

#define MEMORY	 (32ull << 20)
#define A	 SIM_HOST ":a"
#define B	 SIM_HOST ":b"
#define C	 SIM_HOST ":c"
#define NS	 NVME_AER(NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_CHANGED_NS)
#define NO_SUCH	 (NVME_SC_INVALID_FIELD | NVME_STATUS_DNR)
#define HIDDEN	 2u /* to most: its id */
#define NR_WORDS 8

/* --- catalogs -------------------------------------------------------------------------------- */

/* Only HOSTS, up to NULL, see the namespace; HOSTS NULL: all do. */
static void show(struct catalog *catalog, uint32_t nsid, const char *const *hosts)
{
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);
	struct ns *ns = subsys->ns[nsid];
	struct host_list list = {0};

	if (ns->hosts) {
		host_list_free(ns->hosts);
		free(ns->hosts);
		ns->hosts = NULL;
	}
	for (unsigned i = 0; hosts && hosts[i]; i++)
		assert_int_equal(host_list_add(&list, hosts[i]), 0);
	if (hosts)
		assert_int_equal(subsys_show_ns(subsys, ns, &list), 0);
	host_list_free(&list);
}

#define SHOW(catalog, nsid, ...) show(catalog, nsid, (const char *const[]){__VA_ARGS__, NULL})

static struct catalog *changed(const struct sim *sim)
{
	return catalog_clone(sim->target.catalog);
}

static void publish(struct sim *sim, struct catalog *catalog)
{
	assert_int_equal(sim_publish(sim, catalog), 0);
	sim_settle(sim);
}

/* Namespaces 1 and 3 for all, HIDDEN for A, 5 for A and B, 700 for nobody. */
static struct sim *create(unsigned nr_reactors)
{
	struct sim *sim = sim_create(nr_reactors, MEMORY);
	struct catalog *catalog = changed(sim);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	sim_add_ns(catalog, subsys, HIDDEN, false);
	sim_add_ns(catalog, subsys, 5, false);
	sim_add_ns(catalog, subsys, 700, false);
	SHOW(catalog, HIDDEN, A);
	SHOW(catalog, 5, B, A);
	SHOW(catalog, 700, NULL);
	publish(sim, catalog);
	return sim;
}

/* --- hosts ----------------------------------------------------------------------------------- */

static void be(const char *hostnqn)
{
	sim_host = hostnqn;
	sim_hostid = (uint8_t)hostnqn[strlen(hostnqn) - 1];
}

static struct sim_conn *admin_of(struct sim *sim, const char *hostnqn)
{
	be(hostnqn);
	return sim_admin(sim, SIM_NQN);
}

static struct sim_conn *listener_of(struct sim *sim, const char *hostnqn)
{
	struct sim_conn *admin = admin_of(sim, hostnqn);

	sim_set_feature(sim, admin, NVME_FEAT_ASYNC_EVENT, NVME_AEC_NS | NVME_AEC_ANA);
	for (unsigned i = 0; i < CTRL_MAX_AERS; i++)
		sim_ask_event(sim, admin);
	return admin;
}

static uint16_t identify(struct sim *sim, struct sim_conn *admin, uint8_t cns, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_IDENTIFY, nsid, NVME_IDENTIFY_SIZE);

	cmd.identify.cns = cns;
	memset(admin->data, 0xee, sizeof(admin->data));
	return sim_run(sim, admin, &cmd);
}

static bool is_zero(const struct sim_conn *admin)
{
	for (size_t i = 0; i < sizeof(admin->data); i++)
		if (admin->data[i])
			return false;
	return true;
}

static uint16_t io(struct sim *sim, struct sim_conn *queue, uint8_t opcode, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_rw(opcode, 0, 8);

	cmd.nsid = le32(nsid);
	return sim_run(sim, queue, &cmd);
}

/* --- what is seen ---------------------------------------------------------------------------- */

static const struct {
	const char *host;
	uint32_t nsids[NR_WORDS]; /* up to 0 */
} sights[] = {
	{A, {1, 2, 3, 5}},
	{B, {1, 3, 5}},
	{C, {1, 3}},
	{SIM_HOST, {1, 3}},
};

static void expect_ids(const struct sim_conn *admin, const uint32_t *nsids)
{
	const le32_t *ids = (const void *)admin->data;
	unsigned nr = 0;

	for (; nsids[nr]; nr++)
		assert_int_equal(le32_get(ids[nr]), nsids[nr]);
	for (; nr < 1024; nr++)
		assert_int_equal(le32_get(ids[nr]), 0);
}

static void each_host_lists_what_it_sees(void **state)
{
	static const uint8_t lists[] = {NVME_CNS_ACTIVE_NS_LIST, NVME_CNS_CSI_ACTIVE_NS_LIST,
		NVME_CNS_ALLOCATED_NS_LIST, NVME_CNS_CSI_ALLOCATED_NS_LIST};
	struct sim *sim = create(2);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sights); i++) {
		struct sim_conn *admin = admin_of(sim, sights[i].host);

		for (size_t k = 0; k < ARRAY_SIZE(lists); k++) {
			assert_int_equal(identify(sim, admin, lists[k], 0), 0);
			expect_ids(admin, sights[i].nsids);
		}
	}
	sim_destroy(sim);
}

/* As for an id that has no namespace (4 is free, 700 nobody's). */
static void hidden_is_as_not_there(void **state)
{
	static const uint8_t pages[] = {NVME_CNS_NS, NVME_CNS_NS_DESC_LIST, NVME_CNS_CSI_NS,
		NVME_CNS_INDEPENDENT_NS, NVME_CNS_ALLOCATED_NS, NVME_CNS_CSI_ALLOCATED_NS,
		NVME_CNS_NS_CTRL_LIST};
	static const uint32_t hidden[] = {HIDDEN, 700};
	struct sim *sim = create(2);
	struct sim_conn *admin = admin_of(sim, B);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
		uint16_t status = identify(sim, admin, pages[i], 4);
		bool zero = is_zero(admin);

		for (size_t k = 0; k < ARRAY_SIZE(hidden); k++) {
			assert_int_equal(identify(sim, admin, pages[i], hidden[k]), status);
			assert_int_equal(is_zero(admin), zero);
		}
	}
	sim_destroy(sim);
}

static void io_reaches_what_is_seen_only(void **state)
{
	static const uint8_t opcodes[] = {NVME_OPC_READ, NVME_OPC_WRITE, NVME_OPC_FLUSH,
		NVME_OPC_WRITE_ZEROES, NVME_OPC_COMPARE, NVME_OPC_VERIFY, NVME_OPC_COPY,
		NVME_OPC_DSM, NVME_OPC_RESERVATION_REGISTER, NVME_OPC_RESERVATION_REPORT,
		NVME_OPC_RESERVATION_ACQUIRE, NVME_OPC_RESERVATION_RELEASE};
	struct sim *sim = create(2);
	struct sim_conn *admin_a = admin_of(sim, A);
	struct sim_conn *queue_a = sim_queue(sim, admin_a, 1, 32);
	struct sim_conn *admin_b = admin_of(sim, B);
	struct sim_conn *queue_b = sim_queue(sim, admin_b, 1, 32);

	(void)state;
	assert_int_equal(io(sim, queue_a, NVME_OPC_WRITE, HIDDEN), 0);
	assert_int_equal(io(sim, queue_a, NVME_OPC_WRITE, 5), 0);
	assert_int_equal(io(sim, queue_b, NVME_OPC_WRITE, 5), 0);
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		unsigned before = sim->nr_ios;

		assert_int_equal(io(sim, queue_b, opcodes[i], HIDDEN), NO_SUCH);
		assert_int_equal(io(sim, queue_a, opcodes[i], 700), NO_SUCH);
		assert_int_equal(sim->nr_ios, before);
	}
	sim_destroy(sim);
}

/* A Flush of all namespaces is of those that are seen: 1, 3, 5 and, for A, HIDDEN. */
static void flush_of_all_is_of_what_is_seen(void **state)
{
	struct sim *sim = create(1);
	struct nvme_cmd flush = sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sights); i++) {
		struct sim_conn *admin = admin_of(sim, sights[i].host);
		struct sim_conn *queue = sim_queue(sim, admin, 1, 32);
		unsigned nr = 0;

		sim->auto_disk = false;
		assert_true(sim_send(sim, queue, &flush));
		for (sim_settle(sim); sim_do_io(sim, 0, 0); sim_settle(sim))
			nr++;
		sim->auto_disk = true;
		assert_int_equal(nvme_cqe_status(&queue->last), 0);
		for (unsigned k = 0; sights[i].nsids[k]; k++)
			nr--;
		assert_int_equal(nr, 0);
	}
	sim_destroy(sim);
}

static void controllers_of_a_namespace_are_those_that_see_it(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = admin_of(sim, A), *b = admin_of(sim, B), *c = admin_of(sim, C);
	const struct nvme_ctrl_list *list = (const void *)a->data;

	(void)state;
	assert_int_equal(identify(sim, a, NVME_CNS_NS_CTRL_LIST, 1), 0);
	assert_int_equal(le16_get(list->nr), 3);
	assert_int_equal(identify(sim, a, NVME_CNS_NS_CTRL_LIST, 5), 0);
	assert_int_equal(le16_get(list->nr), 2);
	assert_int_equal(identify(sim, a, NVME_CNS_NS_CTRL_LIST, HIDDEN), 0);
	assert_int_equal(le16_get(list->nr), 1);
	assert_int_equal(le16_get(list->cntlid[0]), sim_cntlid(a));
	/* Of the subsystem they all are. */
	assert_int_equal(identify(sim, a, NVME_CNS_CTRL_LIST, 0), 0);
	assert_int_equal(le16_get(list->nr), 3);
	(void)b;
	(void)c;
	sim_destroy(sim);
}

static void smart_adds_up_what_is_seen(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = admin_of(sim, A);
	struct sim_conn *queue = sim_queue(sim, a, 1, 32);
	struct sim_conn *b = admin_of(sim, B);
	const struct nvme_log_smart *of_a = (const void *)a->data, *of_b = (const void *)b->data;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_LOG_PAGE, HIDDEN, 512);

	(void)state;
	assert_int_equal(io(sim, queue, NVME_OPC_WRITE, HIDDEN), 0);
	assert_int_equal(io(sim, queue, NVME_OPC_WRITE, 5), 0);
	sim_get_log(sim, a, NVME_LOG_SMART, 0, 512, 0);
	assert_int_equal(of_a->host_writes.b[0], 2);
	sim_get_log(sim, b, NVME_LOG_SMART, 0, 512, 0);
	assert_int_equal(of_b->host_writes.b[0], 1);
	cmd.get_log.lid = NVME_LOG_SMART;
	cmd.get_log.numdl = le16(127);
	assert_int_equal(sim_run(sim, a, &cmd), 0);
	assert_int_equal(sim_run(sim, b, &cmd), CMD_INVALID_FIELD);
	sim_destroy(sim);
}

/* A disk that has turned read-only, on another reactor than some of its hosts'. */
static void smart_warning_is_of_what_is_seen(void **state)
{
	const char *const hosts[] = {A, B, C};
	struct sim_conn *admins[ARRAY_SIZE(hosts)], *queue;
	unsigned replies[ARRAY_SIZE(hosts)];
	struct sim *sim = create(2);

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++) {
		admins[i] = admin_of(sim, hosts[i]);
		sim_set_feature(sim, admins[i], NVME_FEAT_ASYNC_EVENT, NVME_SMART_READ_ONLY);
		sim_ask_event(sim, admins[i]);
		replies[i] = admins[i]->nr_replies;
	}
	be(A);
	queue = sim_queue(sim, admins[0], 1, 32);
	sim->next_result = -EROFS;
	assert_int_equal(
		io(sim, queue, NVME_OPC_WRITE, 5), NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR);
	sim->next_result = 0;
	sim_settle(sim);
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++) {
		const struct nvme_log_smart *smart = (const void *)admins[i]->data;
		unsigned sees = hosts[i] != hosts[2];

		assert_int_equal(admins[i]->nr_replies, replies[i] + sees);
		if (sees)
			assert_int_equal(le32_get(admins[i]->last.dw0),
				NVME_AER(NVME_AER_SMART, NVME_AER_SMART_RELIABILITY,
					NVME_LOG_SMART));
		sim_get_log(sim, admins[i], NVME_LOG_SMART, 0, 512, 0);
		assert_int_equal(smart->critical_warning, sees ? NVME_SMART_READ_ONLY : 0);
	}
	sim_destroy(sim);
}

/* --- changes --------------------------------------------------------------------------------- */

static void expect_changed(struct sim *sim, struct sim_conn *admin, uint32_t nsid)
{
	sim_get_log(sim, admin, NVME_LOG_CHANGED_NS, 0, 4096, 0);
	expect_ids(admin, (const uint32_t[]){nsid, 0});
}

static void expect_event(const struct sim_conn *admin, unsigned nr_replies)
{
	assert_int_equal(admin->nr_replies, nr_replies);
	assert_int_equal(nvme_cqe_status(&admin->last), 0);
	assert_int_equal(le32_get(admin->last.dw0), NS);
}

static void just_who_loses_or_gains_sight_is_told(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = listener_of(sim, A), *b = listener_of(sim, B);
	struct sim_conn *c = listener_of(sim, C);
	unsigned of_a = a->nr_replies, of_b = b->nr_replies, of_c = c->nr_replies;
	struct catalog *catalog = changed(sim);

	(void)state;
	SHOW(catalog, HIDDEN, B); /* not A any more */
	publish(sim, catalog);
	expect_event(a, of_a + 1);
	expect_event(b, of_b + 1);
	assert_int_equal(c->nr_replies, of_c);
	expect_changed(sim, a, HIDDEN);
	expect_changed(sim, b, HIDDEN);
	sim_ask_event(sim, a);
	sim_ask_event(sim, b);
	of_a = a->nr_replies;
	of_b = b->nr_replies;

	catalog = changed(sim);
	show(catalog, HIDDEN, NULL); /* all see it: B does already */
	publish(sim, catalog);
	expect_event(a, of_a + 1);
	assert_int_equal(b->nr_replies, of_b);
	expect_event(c, of_c + 1);
	expect_changed(sim, c, HIDDEN);

	/* The list is another, but not for anybody who is here. */
	of_a = a->nr_replies;
	of_b = b->nr_replies;
	of_c = c->nr_replies;
	catalog = changed(sim);
	SHOW(catalog, HIDDEN, A, B, C);
	publish(sim, catalog);
	assert_int_equal(a->nr_replies, of_a);
	assert_int_equal(b->nr_replies, of_b);
	assert_int_equal(c->nr_replies, of_c);
	sim_destroy(sim);
}

static void change_of_what_is_hidden_is_not_told(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = listener_of(sim, A), *b = listener_of(sim, B);
	unsigned of_a = a->nr_replies, of_b = b->nr_replies;
	struct catalog *catalog = changed(sim);

	(void)state;
	catalog_find(catalog, SIM_NQN)->ns[HIDDEN]->nr_lbas += 8;
	catalog_find(catalog, SIM_NQN)->ns[HIDDEN]->ana_group = 7;
	publish(sim, catalog);
	assert_int_equal(a->nr_replies, of_a + 2);
	assert_int_equal(b->nr_replies, of_b);
	sim_destroy(sim);
}

/* --- totals ---------------------------------------------------------------------------------- */

static void expect_writes(struct sim *sim, struct sim_conn *admin, unsigned total)
{
	const struct nvme_log_smart *page = (const void *)admin->data;

	sim_get_log(sim, admin, NVME_LOG_SMART, 0, 512, 0);
	assert_int_equal(page->host_writes.b[0], total);
}

static void remove_ns(struct sim *sim, uint32_t nsid)
{
	struct catalog *catalog = changed(sim);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	ns_place_put(subsys->ns[nsid]->place);
	ns_free(subsys->ns[nsid]);
	subsys->ns[nsid] = NULL;
	publish(sim, catalog);
}

/* Whatever comes and goes: what a host has seen counted stays, and nothing else is added. */
static void smart_totals_never_go_back(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = admin_of(sim, A), *b = admin_of(sim, B);
	struct sim_conn *queue_b = sim_queue(sim, b, 1, 32), *queue_a;
	struct catalog *catalog = changed(sim);

	(void)state;
	be(A);
	queue_a = sim_queue(sim, a, 1, 32);
	assert_ptr_not_equal(queue_a->conn->reactor, queue_b->conn->reactor);
	assert_int_equal(io(sim, queue_a, NVME_OPC_WRITE, HIDDEN), 0);
	assert_int_equal(io(sim, queue_b, NVME_OPC_WRITE, 5), 0);
	expect_writes(sim, a, 2);
	expect_writes(sim, b, 1);
	SHOW(catalog, HIDDEN, B); /* not A any more */
	publish(sim, catalog);
	assert_int_equal(io(sim, queue_b, NVME_OPC_WRITE, HIDDEN), 0);
	expect_writes(sim, a, 2);
	expect_writes(sim, b, 2);
	catalog = changed(sim);
	SHOW(catalog, HIDDEN, A); /* and back */
	publish(sim, catalog);
	assert_int_equal(io(sim, queue_a, NVME_OPC_WRITE, HIDDEN), 0);
	expect_writes(sim, a, 3);
	expect_writes(sim, b, 2);
	remove_ns(sim, HIDDEN);
	remove_ns(sim, 5);
	expect_writes(sim, a, 3);
	expect_writes(sim, b, 2);
	sim_destroy(sim);
}

/* What the disk has when its namespace goes counts when it is done. */
static void smart_totals_have_what_ends_late(void **state)
{
	struct sim *sim = create(2);
	struct sim_conn *a = admin_of(sim, A), *queue = sim_queue(sim, a, 1, 32);
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 8);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, queue, &cmd));
	sim_settle(sim);
	remove_ns(sim, 1);
	expect_writes(sim, a, 0);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	expect_writes(sim, a, 1);
	sim->auto_disk = true;
	sim_destroy(sim);
}

/* --- commands that are out -------------------------------------------------------------------- */

struct taking { /* HIDDEN from A, to be B's instead */
	struct sim *sim;
	struct sim_conn *admin, *queue;	    /* of A */
	struct sim_conn *b_admin, *b_queue; /* of B */
	unsigned b_replies;
};

static bool taken;

static void taking_done(struct publish *publish, int error)
{
	(void)publish;
	assert_int_equal(error, 0);
	taken = true;
}

static struct taking taking_begin(unsigned nr_reactors)
{
	struct taking taking = {.sim = create(nr_reactors)};

	taking.admin = admin_of(taking.sim, A);
	taking.queue = sim_queue(taking.sim, taking.admin, 1, 32);
	taking.b_admin = listener_of(taking.sim, B);
	taking.b_queue = sim_queue(taking.sim, taking.b_admin, 1, 32);
	taking.b_replies = taking.b_admin->nr_replies;
	taken = false;
	return taking;
}

static void take(struct taking *taking)
{
	struct catalog *catalog = changed(taking->sim);

	SHOW(catalog, HIDDEN, B);
	publish_start(&taking->sim->target.publish, catalog, taking_done);
	sim_settle(taking->sim);
}

static struct nvme_cmd rw_of(uint8_t opcode, uint32_t nsid)
{
	struct nvme_cmd cmd = sim_rw(opcode, 0, 8);

	cmd.nsid = le32(nsid);
	return cmd;
}

static uint16_t status_of(const struct sim *sim, const struct nvme_cmd *cmd)
{
	uint16_t status = sim->status[le16_get(cmd->cid)];

	return status == SIM_NO_ANSWER ? status : status & (uint16_t)~NVME_STATUS_MORE;
}

/* Nobody else sees what is lost before the last command is back from the disk. */
static void what_the_disk_has_is_waited_for(void **state)
{
	(void)state;
	for (unsigned nr_reactors = 1; nr_reactors <= 3; nr_reactors++) {
		struct taking taking = taking_begin(nr_reactors);
		struct sim *sim = taking.sim;
		struct nvme_cmd first = rw_of(NVME_OPC_WRITE, HIDDEN);
		struct nvme_cmd second = rw_of(NVME_OPC_READ, HIDDEN);

		sim->auto_disk = false;
		assert_true(sim_send(sim, taking.queue, &first));
		assert_true(sim_send(sim, taking.queue, &second));
		sim_settle(sim);
		assert_int_equal(sim->nr_ios, 2);
		take(&taking);
		assert_false(taken);
		/* New ones are refused, on any queue of it; not for what it goes on to see. */
		assert_int_equal(io(sim, taking.queue, NVME_OPC_WRITE, HIDDEN), NO_SUCH);
		assert_int_equal(sim->nr_ios, 2);
		assert_int_equal(io(sim, taking.b_queue, NVME_OPC_WRITE, HIDDEN), NO_SUCH);
		assert_int_equal(taking.b_admin->nr_replies, taking.b_replies);
		assert_true(sim_do_io(sim, 0, 0));
		sim_settle(sim);
		assert_false(taken);
		assert_int_equal(taking.b_admin->nr_replies, taking.b_replies);
		assert_true(sim_do_io(sim, 0, 0));
		sim_settle(sim);
		assert_true(taken);
		assert_int_equal(status_of(sim, &first), 0);
		assert_int_equal(status_of(sim, &second), 0);
		expect_event(taking.b_admin, taking.b_replies + 1);
		sim->auto_disk = true;
		assert_int_equal(io(sim, taking.b_queue, NVME_OPC_WRITE, HIDDEN), 0);
		assert_int_equal(io(sim, taking.queue, NVME_OPC_READ, HIDDEN), NO_SUCH);
		assert_int_equal(io(sim, taking.queue, NVME_OPC_WRITE, 1), 0);
		sim_destroy(sim);
	}
}

/* No host holds up a change: what it has not brought yet is not written. */
static void data_that_comes_late_is_not_written(void **state)
{
	struct taking taking = taking_begin(2);
	struct sim *sim = taking.sim;
	struct nvme_cmd write = rw_of(NVME_OPC_WRITE, HIDDEN), other = rw_of(NVME_OPC_WRITE, 5);
	unsigned nr_ios;

	(void)state;
	sim->auto_pull = false;
	assert_true(sim_send(sim, taking.queue, &write));
	assert_true(sim_send(sim, taking.queue, &other));
	sim_settle(sim);
	take(&taking);
	assert_true(taken);
	nr_ios = sim->nr_ios;
	sim->auto_pull = true;
	sim->auto_disk = false;
	sim_settle(sim);
	assert_int_equal(sim->nr_ios, nr_ios + 1);
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(status_of(sim, &write), NO_SUCH);
	assert_int_equal(status_of(sim, &other), 0);
	sim_destroy(sim);
}

/* The first of a pair, whose second has not come. */
static void half_of_a_pair_ends(void **state)
{
	struct taking taking = taking_begin(1);
	struct sim *sim = taking.sim;
	struct nvme_cmd compare = rw_of(NVME_OPC_COMPARE, HIDDEN);

	(void)state;
	compare.flags |= NVME_CMD_FUSE_FIRST;
	assert_true(sim_send(sim, taking.queue, &compare));
	sim_settle(sim);
	assert_int_equal(status_of(sim, &compare), SIM_NO_ANSWER);
	take(&taking);
	assert_true(taken);
	assert_int_equal(status_of(sim, &compare), NO_SUCH);
	sim_destroy(sim);
}

static void host_that_goes_meanwhile_is_waited_for(void **state)
{
	struct taking taking = taking_begin(2);
	struct sim *sim = taking.sim;
	struct nvme_cmd write = rw_of(NVME_OPC_WRITE, HIDDEN);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, taking.queue, &write));
	sim_settle(sim);
	take(&taking);
	conn_close(taking.admin->conn, "the test");
	sim_settle(sim);
	assert_false(taken);
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_true(taken);
	sim->auto_disk = true;
	sim_destroy(sim);
}

static void disk_that_never_ends_holds_up_no_change(void **state)
{
	struct taking taking = taking_begin(2);
	struct sim *sim = taking.sim;
	struct nvme_cmd write = rw_of(NVME_OPC_WRITE, HIDDEN);

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		sim->target.reactors[i]->hide.patience_ns = NS_PER_MS;
	sim->auto_disk = false;
	assert_true(sim_send(sim, taking.queue, &write));
	sim_settle(sim);
	take(&taking);
	for (unsigned i = 0; i < 1000000 && !taken; i++)
		sim_settle(sim);
	assert_true(taken);
	assert_int_equal(status_of(sim, &write), SIM_NO_ANSWER);
	/* And the next change, with it still out. */
	sim->auto_disk = true;
	publish(sim, changed(sim));
	assert_int_equal(status_of(sim, &write), 0);
	sim_destroy(sim);
}

/* That none sees it any more is a change like this, that it is gone is not: nobody writes there. */
static void removal_waits_for_nothing(void **state)
{
	struct taking taking = taking_begin(1);
	struct sim *sim = taking.sim;
	struct nvme_cmd write = rw_of(NVME_OPC_WRITE, HIDDEN);
	struct catalog *catalog = changed(sim);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);

	(void)state;
	sim->auto_disk = false;
	assert_true(sim_send(sim, taking.queue, &write));
	sim_settle(sim);
	ns_place_put(subsys->ns[HIDDEN]->place);
	ns_free(subsys->ns[HIDDEN]);
	subsys->ns[HIDDEN] = NULL;
	publish(sim, catalog);
	assert_int_equal(status_of(sim, &write), SIM_NO_ANSWER);
	sim->auto_disk = true;
	sim_settle(sim);
	assert_int_equal(status_of(sim, &write), 0);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_host_lists_what_it_sees),
		cmocka_unit_test(hidden_is_as_not_there),
		cmocka_unit_test(io_reaches_what_is_seen_only),
		cmocka_unit_test(flush_of_all_is_of_what_is_seen),
		cmocka_unit_test(controllers_of_a_namespace_are_those_that_see_it),
		cmocka_unit_test(smart_adds_up_what_is_seen),
		cmocka_unit_test(smart_warning_is_of_what_is_seen),
		cmocka_unit_test(smart_totals_never_go_back),
		cmocka_unit_test(smart_totals_have_what_ends_late),
		cmocka_unit_test(just_who_loses_or_gains_sight_is_told),
		cmocka_unit_test(change_of_what_is_hidden_is_not_told),
		cmocka_unit_test(what_the_disk_has_is_waited_for),
		cmocka_unit_test(data_that_comes_late_is_not_written),
		cmocka_unit_test(half_of_a_pair_ends),
		cmocka_unit_test(host_that_goes_meanwhile_is_waited_for),
		cmocka_unit_test(disk_that_never_ends_holds_up_no_change),
		cmocka_unit_test(removal_waits_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
