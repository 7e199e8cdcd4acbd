/* SPDX-License-Identifier: MIT */
/*
 * The check of the CM private data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proto/nvme/rdma.h"

static const struct nvme_rdma_cm_limits limits = {
	.max_qid = 8, .max_admin_depth = 32, .max_io_depth = 128};

static const struct {
	const char *name;
	size_t len;
	uint16_t recfmt, qid, hrqsize, hsqsize;
	enum nvme_rdma_cm_status expected;
} cases[] = {
	{"admin queue of the Linux host", 56, 0, 0, 32, 31, NVME_RDMA_CM_OK},
	{"I/O queue of the Linux host", 56, 0, 1, 128, 127, NVME_RDMA_CM_OK},
	{"just 32 bytes", 32, 0, 8, 128, 127, NVME_RDMA_CM_OK},
	{"HRQSIZE above HSQSIZE", 32, 0, 1, 65535, 127, NVME_RDMA_CM_OK},
	{"two entries", 32, 0, 1, 1, 1, NVME_RDMA_CM_OK},
	{"no data", 0, 0, 1, 128, 127, NVME_RDMA_CM_INVALID_LEN},
	{"8 bytes", 8, 0, 1, 128, 127, NVME_RDMA_CM_INVALID_LEN},
	{"31 bytes", 31, 0, 1, 128, 127, NVME_RDMA_CM_INVALID_LEN},
	{"record format 1", 32, 1, 1, 128, 127, NVME_RDMA_CM_INVALID_RECFMT},
	{"zeroes as RoCE pads them", 56, 0, 0, 0, 0, NVME_RDMA_CM_INVALID_HSQSIZE},
	{"queue above the limit", 32, 0, 9, 128, 127, NVME_RDMA_CM_INVALID_QID},
	{"queue 65535", 32, 0, 65535, 128, 127, NVME_RDMA_CM_INVALID_QID},
	{"HSQSIZE 0", 32, 0, 1, 128, 0, NVME_RDMA_CM_INVALID_HSQSIZE},
	{"HSQSIZE above the limit", 32, 0, 1, 200, 128, NVME_RDMA_CM_INVALID_HSQSIZE},
	{"HSQSIZE 65535", 32, 0, 1, 65535, 65535, NVME_RDMA_CM_INVALID_HSQSIZE},
	{"admin HSQSIZE above its limit", 32, 0, 0, 128, 32, NVME_RDMA_CM_INVALID_HSQSIZE},
	{"HRQSIZE 0", 32, 0, 1, 0, 127, NVME_RDMA_CM_INVALID_HRQSIZE},
	{"HRQSIZE 1", 32, 0, 1, 1, 127, NVME_RDMA_CM_INVALID_HRQSIZE},
	{"HRQSIZE too small for the commands", 32, 0, 1, 126, 127, NVME_RDMA_CM_INVALID_HRQSIZE},
};

static void private_data_gets_the_right_reject(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t bytes[56] = {0};
		struct nvme_rdma_cm_req req = {
			.recfmt = le16(cases[i].recfmt),
			.qid = le16(cases[i].qid),
			.hrqsize = le16(cases[i].hrqsize),
			.hsqsize = le16(cases[i].hsqsize),
			.cntlid = le16(7),
		};
		struct nvme_rdma_cm_params params = {.qid = 999};
		enum nvme_rdma_cm_status sts;

		memcpy(bytes, &req, sizeof(req));
		sts = nvme_rdma_cm_req_check(bytes, cases[i].len, &limits, &params);
		if (sts != cases[i].expected)
			fail_msg("%s: %s", cases[i].name, nvme_rdma_cm_status_str((uint16_t)sts));
		if (sts != NVME_RDMA_CM_OK) {
			assert_int_equal(params.qid, 999);
			continue;
		}
		assert_int_equal(params.qid, cases[i].qid);
		assert_int_equal(params.sqsize, cases[i].hsqsize);
		assert_int_equal(params.hrqsize, cases[i].hrqsize);
		assert_int_equal(params.cntlid, 7);
	}
}

static void missing_private_data_is_a_wrong_length(void **state)
{
	struct nvme_rdma_cm_params params;

	(void)state;
	assert_int_equal(
		nvme_rdma_cm_req_check(NULL, 56, &limits, &params), NVME_RDMA_CM_INVALID_LEN);
}

static void any_reject_status_has_a_text(void **state)
{
	(void)state;
	for (unsigned sts = 0; sts < 65536; sts += sts < 32 ? 1 : 997)
		assert_non_null(nvme_rdma_cm_status_str((uint16_t)sts));
	assert_string_equal(nvme_rdma_cm_status_str(NVME_RDMA_CM_NO_RESOURCES), "no resources");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_data_gets_the_right_reject),
		cmocka_unit_test(missing_private_data_is_a_wrong_length),
		cmocka_unit_test(any_reject_status_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
