/* SPDX-License-Identifier: MIT */
/*
 * What kinds of RDMA devices are taken to do otherwise than the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "proto/base/compiler.h"
#include "proto/link/rdma_quirks.h"

static const struct quirks_case {
	const char *name;
	enum ibv_transport_type transport;
	uint32_t vendor;
	struct rdma_quirks expect;
} quirks_cases[] = {
	{"mlx5_0", IBV_TRANSPORT_IB, 0x02c9, {0}},
	{"myrxe", IBV_TRANSPORT_IB, 0x02c9, {0}},
	{"rxe0", IBV_TRANSPORT_IB, 0, {.no_invalidate = true}},
	{"renamed", IBV_TRANSPORT_IB, 0xffffff, {.no_invalidate = true}},
	{"siw0", IBV_TRANSPORT_IWARP, 0x626d74,
		{.no_rnr_timer = true, .read_access = IBV_ACCESS_REMOTE_WRITE}},
	/* Every row that fits counts. */
	{"rxe1", IBV_TRANSPORT_IWARP, 0xffffff,
		{.no_invalidate = true,
			.no_rnr_timer = true,
			.read_access = IBV_ACCESS_REMOTE_WRITE}},
};

static void rows_fit_by_name_vendor_or_transport(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(quirks_cases); i++) {
		const struct quirks_case *c = &quirks_cases[i];
		struct ibv_device device = {.transport_type = c->transport};
		struct ibv_device_attr attr = {.vendor_id = c->vendor};
		struct rdma_quirks quirks;

		snprintf(device.name, sizeof(device.name), "%s", c->name);
		quirks = rdma_quirks_of(&device, &attr);
		assert_int_equal(quirks.no_invalidate, c->expect.no_invalidate);
		assert_int_equal(quirks.no_rnr_timer, c->expect.no_rnr_timer);
		assert_int_equal(quirks.read_access, c->expect.read_access);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_fit_by_name_vendor_or_transport),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
