/* SPDX-License-Identifier: MIT */
/*
 * A target whose largest transfer (MDTS) and namespaces do not go together.
 */
#include "tests/unit/initiator/fake.h"

#include <errno.h>
#include <string.h>

#include "initiator/ctrl.h"

/* Else a block would be sent as commands without data, without an end. */
static void namespace_with_blocks_larger_than_mdts_is_refused(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl *ctrl;

	(void)state;
	fake.id_ctrl.mdts = 1;	    /* 8 KiB */
	fake.id_ns.lbaf[0].ds = 16; /* 64 KiB */
	fake.id_ns.nsze = le64(16);
	assert_int_equal(haul_connect(hl, FAKE_URI, NULL, 1, &ctrl), 0);
	assert_int_equal(wait_for(hl, 1), -EPROTO);
	assert_non_null(strstr(haul_ctrl_error(ctrl), "MDTS"));
	haul_ctrl_free(ctrl);
	haul_loop_destroy(hl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(namespace_with_blocks_larger_than_mdts_is_refused,
			fake_setup, fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
