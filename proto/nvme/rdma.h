/* SPDX-License-Identifier: MIT */
/*
 * Private data of the RDMA connection manager's messages (NVMe RDMA 1.0 3.2).
 */
#ifndef HAUL_PROTO_NVME_RDMA_H
#define HAUL_PROTO_NVME_RDMA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/endian.h"

#define NVME_RDMA_CM_RECFMT 0

struct nvme_rdma_cm_req {
	le16_t recfmt;
	le16_t qid;
	le16_t hrqsize; /* a count: responses the host can receive */
	le16_t hsqsize; /* 0's based: what Connect will say as SQSIZE */
	le16_t cntlid;	/* of an I/O queue, from hosts of NVMe RDMA 1.0 on; otherwise 0 */
	uint8_t rsvd10[22];
};
static_assert(sizeof(struct nvme_rdma_cm_req) == 32);
static_assert(offsetof(struct nvme_rdma_cm_req, hsqsize) == 6);
static_assert(offsetof(struct nvme_rdma_cm_req, cntlid) == 8);

struct nvme_rdma_cm_accept {
	le16_t recfmt;
	le16_t crqsize; /* a count: commands the controller can receive */
	uint8_t rsvd4[28];
};
static_assert(sizeof(struct nvme_rdma_cm_accept) == 32);

struct nvme_rdma_cm_reject {
	le16_t recfmt;
	le16_t sts;
};
static_assert(sizeof(struct nvme_rdma_cm_reject) == 4);

enum nvme_rdma_cm_status {
	NVME_RDMA_CM_OK = 0, /* never on the wire */
	NVME_RDMA_CM_INVALID_LEN = 1,
	NVME_RDMA_CM_INVALID_RECFMT = 2,
	NVME_RDMA_CM_INVALID_QID = 3,
	NVME_RDMA_CM_INVALID_HSQSIZE = 4,
	NVME_RDMA_CM_INVALID_HRQSIZE = 5,
	NVME_RDMA_CM_NO_RESOURCES = 6,
	NVME_RDMA_CM_INVALID_IRD = 7,
	NVME_RDMA_CM_INVALID_ORD = 8,
	NVME_RDMA_CM_INVALID_CNTLID = 9,
};

struct nvme_rdma_cm_limits {
	uint16_t max_qid;
	uint32_t max_admin_depth; /* queue entries, counts */
	uint32_t max_io_depth;
};

struct nvme_rdma_cm_params {
	uint16_t qid;
	uint16_t sqsize; /* 0's based; the later Connect must have the same */
	uint16_t hrqsize;
	uint16_t cntlid;
};

/*
 * Checks the private data of a connection request; what a fabric pads behind the 32 bytes is
 * ignored. Returns NVME_RDMA_CM_OK and fills ret, or the status to reject with and leaves ret
 * untouched.
 */
enum nvme_rdma_cm_status nvme_rdma_cm_req_check(const void *private_data, size_t len,
	const struct nvme_rdma_cm_limits *limits, struct nvme_rdma_cm_params *ret) must_check;

/* A text for the status of a reject; never NULL. */
const char *nvme_rdma_cm_status_str(uint16_t sts);

#endif
