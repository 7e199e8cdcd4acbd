/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the check of CM private data.
 */
#include <assert.h>
#include "proto/nvme/rdma.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	const struct nvme_rdma_cm_limits limits = {
		.max_qid = 16, .max_admin_depth = 32, .max_io_depth = 128};
	struct nvme_rdma_cm_params params;
	enum nvme_rdma_cm_status sts = nvme_rdma_cm_req_check(input, size, &limits, &params);

	assert(nvme_rdma_cm_status_str((uint16_t)sts));
	if (sts != NVME_RDMA_CM_OK)
		return 0;
	assert(size >= sizeof(struct nvme_rdma_cm_req));
	assert(params.qid <= limits.max_qid);
	assert(params.sqsize >= 1 && params.sqsize < limits.max_io_depth);
	assert(params.qid > 0 || params.sqsize < limits.max_admin_depth);
	assert(params.hrqsize >= params.sqsize);
	return 0;
}
