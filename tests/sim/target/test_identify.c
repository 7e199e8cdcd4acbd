/* SPDX-License-Identifier: MIT */
/*
 * What Identify Namespace makes of a disk's limits.
 */
#include <string.h>

#include "proto/nvme/identify.h"
#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

/* In blocks of 512 bytes; all but the boundary 0's based. */
static const struct limits_case {
	const char *name;
	struct backend_limits limits;
	bool hints;
	uint16_t write, discard, optimal, boundary;
} limits_cases[] = {
	{.name = "nothing is known"},
	{.name = "a disk of 512 bytes", .limits = {.write_bytes = 512, .discard_bytes = 512}},
	{.name = "a disk of 4 KiB",
		.limits = {.write_bytes = 4096, .discard_bytes = 4096},
		.hints = true,
		.write = 7,
		.discard = 7,
		.optimal = 7},
	{.name = "a RAID of four",
		.limits = {.write_bytes = 65536,
			.optimal_bytes = 4 * 65536,
			.discard_bytes = 1 << 20,
			.boundary_bytes = 65536},
		.hints = true,
		.write = 127,
		.discard = 2047,
		.optimal = 511,
		.boundary = 128},
	{.name = "a stripe longer than MDTS",
		.limits = {.write_bytes = 65536, .optimal_bytes = 20 * 65536},
		.hints = true,
		.write = 127,
		.optimal = 127},
	{.name = "a stripe that is no multiple",
		.limits = {.write_bytes = 65536, .optimal_bytes = 3 * 32768},
		.hints = true,
		.write = 127,
		.optimal = 127},
	{.name = "more than the fields hold, and no blocks",
		.limits = {.write_bytes = 700,
			.discard_bytes = 1u << 31,
			.boundary_bytes = 1u << 31}},
};

static void limits_of_a_disk_are_told_in_blocks(void **state)
{
	struct sim *sim = sim_create(1, MEMORY);
	struct sim_conn *admin = sim_admin(sim, SIM_NQN);
	const struct subsys *subsys = catalog_find(sim->target.catalog, SIM_NQN);
	struct backend *backend = subsys_ns(subsys, 1)->place->backend;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(limits_cases); i++) {
		const struct limits_case *c = &limits_cases[i];
		struct nvme_cmd cmd = sim_cmd(NVME_OPC_IDENTIFY, 1, NVME_IDENTIFY_SIZE);
		struct nvme_id_ns id;

		print_message("%s\n", c->name);
		backend->geometry.limits = c->limits;
		assert_int_equal(sim_run(sim, admin, &cmd), 0);
		memcpy(&id, admin->data, sizeof(id));
		assert_int_equal(!!(id.nsfeat & NVME_ID_NSFEAT_OPTPERF), c->hints);
		assert_int_equal(le16_get(id.npwg), c->write);
		assert_int_equal(le16_get(id.npwa), c->write);
		assert_int_equal(le16_get(id.npdg), c->discard);
		assert_int_equal(le16_get(id.npda), c->discard);
		assert_int_equal(le16_get(id.nows), c->optimal);
		assert_int_equal(le16_get(id.noiob), c->boundary);
	}
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_of_a_disk_are_told_in_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
