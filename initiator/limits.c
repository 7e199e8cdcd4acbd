/* SPDX-License-Identifier: MIT */
/*
 * What a target announces about itself, checked once: every command afterwards stays within it.
 */
#include "initiator/limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/nvme/identify.h"

/* Larger commands gain nothing, and a bounce buffer must hold the data of one. */
#define LIMITS_MAX_COMMAND_BYTES BUFPOOL_MAX_BYTES
/* More in-capsule data than this only makes queues larger. */
#define LIMITS_MAX_IN_CAPSULE	 (64u << 10)

/* 2^EXPONENT pages of the smallest size the controller has, without overflow; 0: no limit. */
static uint64_t limits_pages(uint64_t cap, uint8_t exponent)
{
	uint32_t shift = 12 + NVME_CAP_MPSMIN(cap) + exponent;

	if (exponent == 0)
		return 0;
	return shift < 63 ? 1ull << shift : 1ull << 62;
}

/* What is demanded of every fabrics controller (NVMe-oF 1.1 5; NVMe base 2.0 5.17.2.1). */
static int limits_check(
	const struct haul_ctrl *ctrl, const struct nvme_id_ctrl *id, char *why, size_t why_size)
{
	uint16_t cntlid = le16_get(id->cntlid);

	if (cntlid != ctrl->cntlid) {
		snprintf(why, why_size, "it says controller id %u, Connect gave %u", cntlid,
			ctrl->cntlid);
		return -EPROTO;
	}
	if (ctrl->limits.is_discovery)
		return 0;
	if (id->cntrltype == NVME_CNTRLTYPE_ADMIN) {
		snprintf(why, why_size, "it is an administrative controller, without namespaces");
		return -EOPNOTSUPP;
	}
	if (le32_get(id->ioccsz) < 4) {
		snprintf(why, why_size,
			"command capsules of %u x 16 bytes (IOCCSZ) hold no command",
			le32_get(id->ioccsz));
		return -EPROTO;
	}
	if (le32_get(id->iorcsz) < 1) {
		snprintf(why, why_size, "response capsules (IORCSZ 0) hold no completion");
		return -EPROTO;
	}
	if (ctrl->ops->trtype == NVME_TRTYPE_RDMA && !(le32_get(id->sgls) & NVME_ID_SGLS_KEYED)) {
		snprintf(why, why_size, "it has no keyed SGLs (SGLS bit 2), which RDMA needs");
		return -EPROTO;
	}
	return 0;
}

/* Data in the capsule needs it to start right behind the command; on RDMA also SGL offsets. */
static uint32_t limits_in_capsule(const struct haul_ctrl *ctrl, const struct nvme_id_ctrl *id)
{
	uint64_t bytes = 16ull * le32_get(id->ioccsz) - sizeof(struct nvme_cmd);

	if (le16_get(id->icdoff) != 0)
		return 0;
	if (ctrl->ops->trtype == NVME_TRTYPE_RDMA && !(le32_get(id->sgls) & NVME_ID_SGLS_OFFSET))
		return 0;
	return (uint32_t)min_of(bytes, (uint64_t)LIMITS_MAX_IN_CAPSULE);
}

static uint32_t limits_depth(uint64_t cap, const struct nvme_id_ctrl *id)
{
	/* Flow control keeps one entry free, and MQES is 0's based: both cancel out. */
	uint32_t depth = NVME_CAP_MQES(cap);
	uint16_t maxcmd = le16_get(id->maxcmd);

	return maxcmd ? min_of(depth, (uint32_t)maxcmd) : depth;
}

int limits_read(struct haul_ctrl *ctrl, const struct nvme_id_ctrl *id, char *why, size_t why_size)
{
	struct ctrl_limits *limits = &ctrl->limits;
	uint64_t max_transfer = limits_pages(limits->cap, id->mdts);
	int error = limits_check(ctrl, id, why, why_size);

	if (error)
		return error;
	nvme_field_get(id->sn, sizeof(id->sn), limits->serial);
	nvme_field_get(id->mn, sizeof(id->mn), limits->model);
	nvme_field_get(id->fr, sizeof(id->fr), limits->firmware);
	if (max_transfer == 0 || max_transfer > LIMITS_MAX_COMMAND_BYTES)
		max_transfer = LIMITS_MAX_COMMAND_BYTES;
	limits->max_transfer_bytes = (uint32_t)max_transfer;
	limits->has_keep_alive = !ctrl->lookup && le16_get(id->kas) != 0;
	limits->oncs = le16_get(id->oncs);
	limits->vwc = id->vwc;
	limits->max_segments = id->msdbd ? min_of(id->msdbd, HAUL_MAX_IOV) : HAUL_MAX_IOV;
	limits->max_discard_range_blocks = UINT32_MAX;
	limits->max_discard_blocks = UINT64_MAX;
	if (limits->is_discovery)
		return 0;
	limits->in_capsule_bytes = limits_in_capsule(ctrl, id);
	limits->max_depth = limits_depth(limits->cap, id);
	return 0;
}

void limits_read_nvm(struct haul_ctrl *ctrl, const struct nvme_id_ctrl_nvm *id)
{
	struct ctrl_limits *limits = &ctrl->limits;

	limits->max_write_zeroes_bytes = limits_pages(limits->cap, id->wzsl);
	if (le32_get(id->dmrsl))
		limits->max_discard_range_blocks = le32_get(id->dmrsl);
	if (le64_get(id->dmsl))
		limits->max_discard_blocks = le64_get(id->dmsl);
}
