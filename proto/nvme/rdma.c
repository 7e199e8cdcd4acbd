/* SPDX-License-Identifier: MIT */
/*
 * The check of a connection request's private data.
 */
#include "proto/nvme/rdma.h"

#include <string.h>

enum nvme_rdma_cm_status nvme_rdma_cm_req_check(const void *private_data, size_t len,
	const struct nvme_rdma_cm_limits *limits, struct nvme_rdma_cm_params *ret)
{
	struct nvme_rdma_cm_req req;
	struct nvme_rdma_cm_params params;
	uint32_t max_depth;

	if (!private_data || len < sizeof(req))
		return NVME_RDMA_CM_INVALID_LEN;
	memcpy(&req, private_data, sizeof(req));
	if (le16_get(req.recfmt) != NVME_RDMA_CM_RECFMT)
		return NVME_RDMA_CM_INVALID_RECFMT;

	params.qid = le16_get(req.qid);
	params.sqsize = le16_get(req.hsqsize);
	params.hrqsize = le16_get(req.hrqsize);
	params.cntlid = le16_get(req.cntlid);
	if (params.qid > limits->max_qid)
		return NVME_RDMA_CM_INVALID_QID;

	/* 0's based, and a queue has at least two entries (NVMe base 2.0 3.3.3.1). */
	max_depth = params.qid == 0 ? limits->max_admin_depth : limits->max_io_depth;
	if (params.sqsize == 0 || params.sqsize + 1u > max_depth)
		return NVME_RDMA_CM_INVALID_HSQSIZE;
	/* SQSIZE commands can be out, and each needs a receive at the host for its response. */
	if (params.hrqsize < params.sqsize)
		return NVME_RDMA_CM_INVALID_HRQSIZE;
	*ret = params;
	return NVME_RDMA_CM_OK;
}

const char *nvme_rdma_cm_status_str(uint16_t sts)
{
	static const char *const text[] = {
		[NVME_RDMA_CM_OK] = "no error",
		[NVME_RDMA_CM_INVALID_LEN] = "invalid private data length",
		[NVME_RDMA_CM_INVALID_RECFMT] = "invalid record format",
		[NVME_RDMA_CM_INVALID_QID] = "invalid queue id",
		[NVME_RDMA_CM_INVALID_HSQSIZE] = "invalid host submission queue size",
		[NVME_RDMA_CM_INVALID_HRQSIZE] = "invalid host receive queue size",
		[NVME_RDMA_CM_NO_RESOURCES] = "no resources",
		[NVME_RDMA_CM_INVALID_IRD] = "invalid inbound read depth",
		[NVME_RDMA_CM_INVALID_ORD] = "invalid outbound read depth",
		[NVME_RDMA_CM_INVALID_CNTLID] = "invalid controller id",
	};

	return sts < ARRAY_SIZE(text) ? text[sts] : "unknown status";
}
