/* SPDX-License-Identifier: MIT */
/*
 * Disks that grow, shrink, vanish or hang while they are looked at.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "target/control_sizes.h"
#include "tests/sim/target/sim.h"

#define TURN_NS	  10000000
#define MAX_TURNS 500

/* What the disk says. */
static atomic_ullong disk_bytes;
static atomic_int disk_error;
static atomic_bool disk_hangs;
static struct backend_ops disk_ops;

static int disk_says(const struct backend *backend, uint64_t *ret_bytes)
{
	(void)backend;
	while (disk_hangs)
		usleep(1000);
	*ret_bytes = disk_bytes;
	return disk_error;
}

struct watched {
	struct sim *sim;
	struct control_sizes sizes;
};

static const struct ns *first_ns(const struct sim *sim)
{
	return subsys_ns(catalog_find(sim->target.catalog, SIM_NQN), 1);
}

static void setup(struct watched *watched)
{
	struct backend *backend;

	*watched = (struct watched){.sim = sim_create(2, 32ull << 20)};
	backend = first_ns(watched->sim)->place->backend;
	disk_ops = *backend->ops;
	disk_ops.size = disk_says;
	backend->ops = &disk_ops;
	disk_bytes = SIM_LBAS * 512ull;
	disk_error = 0;
	disk_hangs = false;
	assert_int_equal(control_sizes_start(&watched->sizes, &watched->sim->target), 0);
}

static void teardown(struct watched *watched)
{
	assert_true(control_sizes_stop(&watched->sizes));
	change_queue_end(&watched->sim->target.changes);
	assert_int_equal(first_ns(watched->sim)->place->backend->nr_refs, 1);
	sim_destroy(watched->sim);
}

/* As if the time had come. */
static void look(struct watched *watched)
{
	loop_timer_cancel(watched->sim->target.loop, &watched->sizes.timer);
	watched->sizes.timer.expired(&watched->sizes.timer);
}

/* Until it waits for the next time. */
static void look_and_settle(struct watched *watched)
{
	look(watched);
	for (int i = 0; !loop_timer_is_set(&watched->sizes.timer); i++) {
		assert_true(i < MAX_TURNS);
		loop_wait(watched->sim->target.loop, TURN_NS);
		sim_settle(watched->sim);
	}
}

static void other_size_is_published(void **state)
{
	static const uint64_t lbas[] = {SIM_LBAS * 2, SIM_LBAS / 2, SIM_LBAS, SIM_LBAS};
	struct watched watched;

	(void)state;
	setup(&watched);
	for (size_t i = 0; i < ARRAY_SIZE(lbas); i++) {
		uint64_t generation = watched.sim->target.catalog->generation;
		bool differs = first_ns(watched.sim)->nr_lbas != lbas[i];

		disk_bytes = lbas[i] * 512 + 511; /* what is no whole block does not count */
		look_and_settle(&watched);
		assert_int_equal(first_ns(watched.sim)->nr_lbas, lbas[i]);
		assert_int_equal(watched.sim->target.catalog->generation, generation + differs);
	}
	teardown(&watched);
}

static void size_that_cannot_be_told_changes_nothing(void **state)
{
	struct watched watched;

	(void)state;
	setup(&watched);
	for (int i = 0; i < 4; i++) {
		disk_error = i % 2 ? 0 : -EIO;
		disk_bytes = i < 2 ? 0 : SIM_LBAS * 512ull;
		look_and_settle(&watched);
		assert_int_equal(first_ns(watched.sim)->place->backend->size_error,
			i % 2 ? (i < 2 ? -ENODEV : 0) : -EIO);
		assert_int_equal(first_ns(watched.sim)->nr_lbas, SIM_LBAS);
	}
	teardown(&watched);
}

static void disk_that_hangs_holds_up_nobody(void **state)
{
	struct watched watched;
	struct sim_conn *admin;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 8);

	(void)state;
	setup(&watched);
	admin = sim_admin(watched.sim, SIM_NQN);
	disk_hangs = true;
	look(&watched);
	assert_int_equal(sim_run(watched.sim, sim_queue(watched.sim, admin, 1, 32), &cmd), 0);
	assert_int_equal(sim_publish(watched.sim, catalog_clone(watched.sim->target.catalog)), 0);
	assert_false(control_sizes_stop(&watched.sizes));
	disk_hangs = false;
	teardown(&watched);
}

static void end_while_it_looks_leaves_nothing(void **state)
{
	struct watched watched;

	(void)state;
	setup(&watched);
	disk_bytes = 512;
	look(&watched);
	teardown(&watched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_size_is_published),
		cmocka_unit_test(size_that_cannot_be_told_changes_nothing),
		cmocka_unit_test(disk_that_hangs_holds_up_nobody),
		cmocka_unit_test(end_while_it_looks_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
