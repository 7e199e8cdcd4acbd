/* SPDX-License-Identifier: MIT */
/*
 * The ANA state "change" does not last longer than hosts are told.
 */
#include "target/change.h"
#include "target/control_ana_end.h"
#include "tests/sim/target/sim.h"

#define MEMORY	  (32ull << 20)
#define GROUP	  3u
#define TURN_NS	  10000000
#define MAX_TURNS 500

struct world {
	struct sim *sim;
	struct control_ana_end end;
};

struct setting {
	struct change change;
	uint16_t portid;
	enum nvme_ana_state state;
	bool over;
};

static int setting_make(struct change *change, const struct catalog *now, struct catalog **ret,
	char *why, size_t why_size)
{
	const struct setting *setting = container_of(change, struct setting, change);

	(void)why;
	(void)why_size;
	*ret = catalog_clone(now);
	assert_non_null(*ret);
	return ana_set(catalog_find(*ret, SIM_NQN), GROUP, setting->portid, setting->state);
}

static void setting_over(struct change *change, int error, const char *why)
{
	(void)why;
	assert_int_equal(error, 0);
	container_of(change, struct setting, change)->over = true;
}

static void set(struct world *world, uint16_t portid, enum nvme_ana_state state)
{
	struct setting setting = {.change = {.make = setting_make, .over = setting_over},
		.portid = portid,
		.state = state};

	change_ask(&world->sim->target.changes, &setting.change);
	for (unsigned i = 0; !setting.over; i++) {
		assert_true(i < MAX_TURNS);
		sim_settle(world->sim);
		loop_wait(world->sim->target.loop, TURN_NS);
	}
}

static enum nvme_ana_state state_at(const struct world *world, uint16_t portid)
{
	return ana_state(catalog_find(world->sim->target.catalog, SIM_NQN), GROUP, portid);
}

static struct control_ana_changing *changing_at(const struct world *world, uint16_t portid)
{
	struct control_ana_changing *changing;

	list_for_each_entry (changing, &world->end.changing, node)
		if (changing->portid == portid && changing->group == GROUP)
			return changing;
	return NULL;
}

/* As if its time had come. */
static void pass(struct world *world, uint16_t portid)
{
	struct loop_timer *timer = &world->end.timer;

	assert_true(loop_timer_is_set(timer));
	changing_at(world, portid)->until_ns = 0;
	loop_timer_cancel(world->sim->target.loop, timer);
	timer->expired(timer);
	for (unsigned i = 0; world->end.asked; i++) {
		assert_true(i < MAX_TURNS);
		sim_settle(world->sim);
		loop_wait(world->sim->target.loop, TURN_NS);
	}
}

static void setup(struct world *world)
{
	*world = (struct world){.sim = sim_create(2, MEMORY)};
	assert_int_equal(control_ana_end_start(&world->end, &world->sim->target), 0);
	assert_false(loop_timer_is_set(&world->end.timer));
}

static void teardown(struct world *world)
{
	control_ana_end_stop(&world->end);
	change_queue_end(&world->sim->target.changes);
	sim_destroy(world->sim);
}

static void a_change_that_nobody_ends_becomes_inaccessible(void **state)
{
	struct world world;

	(void)state;
	setup(&world);
	set(&world, ANA_OTHER_PORTS, NVME_ANA_CHANGE);
	set(&world, 1, NVME_ANA_CHANGE);
	set(&world, 2, NVME_ANA_NON_OPTIMIZED);
	assert_true(changing_at(&world, ANA_OTHER_PORTS)->until_ns <=
		    loop_now_ns(world.sim->target.loop) + ANA_TRANSITION_S * 1000000000ull);
	pass(&world, 1);
	assert_int_equal(state_at(&world, 1), NVME_ANA_INACCESSIBLE);
	assert_int_equal(state_at(&world, 2), NVME_ANA_NON_OPTIMIZED);
	assert_int_equal(state_at(&world, 3), NVME_ANA_CHANGE);
	pass(&world, ANA_OTHER_PORTS);
	assert_int_equal(state_at(&world, 3), NVME_ANA_INACCESSIBLE);
	assert_false(loop_timer_is_set(&world.end.timer));
	teardown(&world);
}

static void a_change_that_is_ended_is_left_alone(void **state)
{
	struct world world;

	(void)state;
	setup(&world);
	set(&world, 1, NVME_ANA_CHANGE);
	assert_true(loop_timer_is_set(&world.end.timer));
	set(&world, 1, NVME_ANA_OPTIMIZED);
	assert_false(loop_timer_is_set(&world.end.timer));
	assert_null(changing_at(&world, 1));
	teardown(&world);
}

static void other_changes_do_not_prolong_it(void **state)
{
	struct world world;
	uint64_t until_ns;

	(void)state;
	setup(&world);
	set(&world, 1, NVME_ANA_CHANGE);
	until_ns = changing_at(&world, 1)->until_ns;
	set(&world, 2, NVME_ANA_CHANGE);
	set(&world, 1, NVME_ANA_CHANGE);
	assert_int_equal(changing_at(&world, 1)->until_ns, until_ns);
	assert_true(changing_at(&world, 2)->until_ns > until_ns);
	teardown(&world);
}

static void what_is_ended_while_the_end_is_asked_for_stays(void **state)
{
	struct world world;
	struct setting setting = {.change = {.make = setting_make, .over = setting_over},
		.portid = 1,
		.state = NVME_ANA_OPTIMIZED};

	(void)state;
	setup(&world);
	set(&world, 1, NVME_ANA_CHANGE);
	change_ask(&world.sim->target.changes, &setting.change);
	pass(&world, 1);
	assert_true(setting.over);
	assert_int_equal(state_at(&world, 1), NVME_ANA_OPTIMIZED);
	teardown(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_that_nobody_ends_becomes_inaccessible),
		cmocka_unit_test(a_change_that_is_ended_is_left_alone),
		cmocka_unit_test(other_changes_do_not_prolong_it),
		cmocka_unit_test(what_is_ended_while_the_end_is_asked_for_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
