/* SPDX-License-Identifier: MIT */
/*
 * Reservations that are stored: together, in turns of the hosts, or not at all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "target/reservation_owner.h"
#include "target/reservation_store.h"
#include "tests/sim/target/reservers.h"

#define PERSIST (3u << 30) /* CPTPL of Reservation Register */

static unsigned nr_syncs;
static unsigned answered_before; /* replies when the last sync was asked for */
static struct fixture *watched;
static int good_syncs; /* so many of the next ones are, and then... */
static int fail_syncs; /* ... so many fail */

static unsigned count_replies(const struct fixture *fixture)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < NR_HOSTS; i++)
		nr += fixture->hosts[i].queue->nr_replies;
	return nr;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	nr_syncs++;
	if (watched)
		answered_before = count_replies(watched);
	errno = EIO;
	return good_syncs-- <= 0 && fail_syncs-- > 0 ? -1 : __real_fsync(fd);
}

static struct fixture setup_stored(char directory[32])
{
	struct fixture fixture;

	snprintf(directory, 32, "/tmp/haul-stored-XXXXXX");
	assert_non_null(mkdtemp(directory));
	sim_state = directory;
	fixture = setup();
	nr_syncs = 0;
	good_syncs = fail_syncs = 0;
	return fixture;
}

static const struct reservation_owner *owner_of(const struct fixture *fixture)
{
	return fixture->sim->target.reactors[0]->namespaces[0]->ns.reservation;
}

/* What hauld would find if it started now. */
static unsigned count_stored(const struct fixture *fixture)
{
	const struct reservation_owner *owner = owner_of(fixture);
	struct reservation *found = NULL;
	char why[256];
	unsigned nr = 0;

	assert_int_equal(reservation_store_load(
				 &owner->table->state_dir, &owner->uuid, &found, why, sizeof(why)),
		0);
	if (found)
		nr = found->nr;
	free(found);
	return nr;
}

/* Nobody is left registered, nothing is stored. */
static void teardown_stored(struct fixture *fixture, const char *directory)
{
	watched = NULL;
	must_register(fixture, &fixture->hosts[0]);
	assert_int_equal(release(fixture, &fixture->hosts[0], 0, NVME_RESERVATION_CLEAR), 0);
	assert_int_equal(run(fixture, &fixture->hosts[0], NVME_OPC_RESERVATION_REGISTER, 2u << 30,
				 0, fixture->hosts[0].key),
		0);
	sim_destroy(fixture->sim);
	sim_state = "";
	assert_int_equal(rmdir(directory), 0);
}

static void send_registrations(struct fixture *fixture, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct host *host = &fixture->hosts[i % NR_HOSTS];

		send_keys(fixture, host, NVME_OPC_RESERVATION_REGISTER, PERSIST, 0, host->key);
	}
}

static void registrations_that_wait_are_stored_together(void **state)
{
	char directory[32];
	struct fixture fixture = setup_stored(directory);
	unsigned before = count_replies(&fixture);

	(void)state;
	watched = &fixture;
	send_registrations(&fixture, 60);
	sim_settle(fixture.sim);
	assert_int_equal(count_replies(&fixture), before + 60);
	/* The file and its directory, once. Nobody was told earlier. */
	assert_int_equal(nr_syncs, 2);
	assert_int_equal(answered_before, before);
	for (unsigned i = 0; i < NR_HOSTS; i++)
		assert_int_equal(nvme_cqe_status(&fixture.hosts[i].queue->last), 0);
	assert_int_equal(count_stored(&fixture), NR_HOSTS);
	teardown_stored(&fixture, directory);
}

/* Each one that was refused says so, in the order in which they came. */
static void refused_ones_of_a_group_are_refused_alone(void **state)
{
	char directory[32];
	struct fixture fixture = setup_stored(directory);
	struct host *hosts = fixture.hosts;

	(void)state;
	/* Registers, acquires; not registered: conflict; registers; held by the first: conflict. */
	send_keys(&fixture, &hosts[0], NVME_OPC_RESERVATION_REGISTER, PERSIST, 0, hosts[0].key);
	send_keys(&fixture, &hosts[0], NVME_OPC_RESERVATION_ACQUIRE, 1 << 8, hosts[0].key, 0);
	send_keys(&fixture, &hosts[2], NVME_OPC_RESERVATION_ACQUIRE, 1 << 8, hosts[2].key, 0);
	send_keys(&fixture, &hosts[1], NVME_OPC_RESERVATION_REGISTER, PERSIST, 0, hosts[1].key);
	send_keys(&fixture, &hosts[1], NVME_OPC_RESERVATION_ACQUIRE, 1 << 8, hosts[1].key, 0);
	sim_settle(fixture.sim);
	assert_int_equal(nvme_cqe_status(&hosts[0].queue->last), 0);
	assert_int_equal(nvme_cqe_status(&hosts[1].queue->last), CONFLICT);
	assert_int_equal(nvme_cqe_status(&hosts[2].queue->last), CONFLICT);
	assert_int_equal(nr_syncs, 2);
	assert_int_equal(count_stored(&fixture), 2);
	teardown_stored(&fixture, directory);
}

/* What counts is what it was; what is stored too, if it can be. */
static void what_cannot_be_stored_has_not_happened(void **state)
{
	static const struct {
		const char *name;
		int good, fail;
		unsigned stored;
	} cases[] = {
		{"the file", 0, 1, 1},
		{"the directory, with the file in place", 1, 1, 1},
		{"and what is to put back the file before", 1, 2, NR_HOSTS},
		{"and its directory", 1, 1000, NR_HOSTS},
	};

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		char directory[32];
		struct fixture fixture = setup_stored(directory);
		struct host *hosts = fixture.hosts;

		assert_int_equal(run(&fixture, &hosts[0], NVME_OPC_RESERVATION_REGISTER, PERSIST, 0,
					 hosts[0].key),
			0);
		good_syncs = cases[c].good;
		fail_syncs = cases[c].fail;
		send_registrations(&fixture, 3);
		sim_settle(fixture.sim);
		fail_syncs = 0;
		for (unsigned i = 0; i < NR_HOSTS; i++)
			assert_int_equal(nvme_cqe_status(&hosts[i].queue->last), NVME_SC_INTERNAL);
		assert_int_equal(owner_of(&fixture)->state->nr, 1);
		assert_int_equal(owner_of(&fixture)->seen[1]->nr, 1);
		assert_int_equal(count_stored(&fixture), cases[c].stored);
		assert_int_equal(owner_of(&fixture)->unsure, cases[c].stored != 1);
		send_registrations(&fixture, 3);
		sim_settle(fixture.sim);
		assert_int_equal(count_stored(&fixture), 3);
		assert_false(owner_of(&fixture)->unsure);
		teardown_stored(&fixture, directory);
	}
}

/* More than a group, with reports between: those see what those before them have left. */
static void any_number_of_commands_may_wait(void **state)
{
	char directory[32];
	struct fixture fixture = setup_stored(directory);
	unsigned before = count_replies(&fixture);

	(void)state;
	send_registrations(&fixture, 90);
	for (unsigned i = 0; i < NR_HOSTS; i++) {
		struct nvme_cmd cmd = sim_cmd(NVME_OPC_RESERVATION_REPORT, 1, 4096);

		cmd.reservation_report.numd = le32(4096 / 4 - 1);
		cmd.reservation_report.eds = NVME_RESERVATION_REPORT_EDS;
		assert_true(sim_send(fixture.sim, fixture.hosts[i].queue, &cmd));
	}
	send_registrations(&fixture, 30);
	sim_settle(fixture.sim);
	assert_int_equal(count_replies(&fixture), before + 120 + NR_HOSTS);
	assert_in_range(nr_syncs, 4, 8);
	teardown_stored(&fixture, directory);
}

/* The disk has been kept busy for a while by HOST: what is stored next is its turn, and then it
 * rests. Who stores nothing, looks, or changes something else goes on. */
static void hosts_that_store_again_and_again_have_to_rest(void **state)
{
	char directory[32];
	struct fixture fixture = setup_stored(directory);
	struct host *hosts = fixture.hosts;
	struct sim *sim = fixture.sim;
	struct host_turns *turns = &sim->target.reservation_turns;
	unsigned before;

	(void)state;
	turns->debt_ns = 60000 * NS_PER_MS;
	turns->as_of_ns = loop_now_ns(sim->target.loop);
	assert_int_equal(
		run(&fixture, &hosts[0], NVME_OPC_RESERVATION_REGISTER, PERSIST, 0, hosts[0].key),
		0);
	assert_true(loop_timer_is_set(&turns->rest));
	assert_memory_equal(
		&turns->last_host, &hosts[0].queue->conn->share->key, sizeof(struct share_key));
	nr_syncs = 0;
	before = hosts[1].queue->nr_replies;
	send_registrations(&fixture, NR_HOSTS);
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before);
	assert_int_equal(nr_syncs, 0);
	/* Those of a change wait for no turn at this. */
	assert_int_equal(sim_publish(sim, catalog_clone(sim->target.catalog)), 0);
	fixture.nsid = 3;
	must_register(&fixture, &hosts[2]);
	host_turns_hurry(turns);
	sim_settle(sim);
	assert_int_equal(hosts[1].queue->nr_replies, before + 1);
	assert_int_equal(nr_syncs, 2);
	fixture.nsid = 1;
	teardown_stored(&fixture, directory);
}

/* Each has its turn; the loop turns between two of them. */
static void namespaces_are_stored_one_after_the_other(void **state)
{
	char directory[32];
	struct fixture fixture = setup_stored(directory);
	struct host *hosts = fixture.hosts;
	struct host_turns *turns = &fixture.sim->target.reservation_turns;
	struct host_turn first = {.begin = NULL};

	(void)state;
	turns->current = &first;
	turns->began_ns = turns->as_of_ns = loop_now_ns(fixture.sim->target.loop);
	for (unsigned i = 0; i < 2; i++) {
		fixture.nsid = i ? 1 : 3;
		send_keys(&fixture, &hosts[i], NVME_OPC_RESERVATION_REGISTER, PERSIST, 0,
			hosts[i].key);
	}
	sim_settle(fixture.sim);
	assert_int_equal(nr_syncs, 0);
	host_turns_over(turns, &first);
	assert_int_equal(nr_syncs, 2);
	sim_settle(fixture.sim);
	assert_int_equal(nr_syncs, 4);
	assert_null(turns->current);
	fixture.nsid = 3;
	assert_int_equal(run(&fixture, &hosts[0], NVME_OPC_RESERVATION_REGISTER, 1 | 2u << 30,
				 hosts[0].key, 0),
		0);
	fixture.nsid = 1;
	teardown_stored(&fixture, directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registrations_that_wait_are_stored_together),
		cmocka_unit_test(refused_ones_of_a_group_are_refused_alone),
		cmocka_unit_test(what_cannot_be_stored_has_not_happened),
		cmocka_unit_test(any_number_of_commands_may_wait),
		cmocka_unit_test(hosts_that_store_again_and_again_have_to_rest),
		cmocka_unit_test(namespaces_are_stored_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
