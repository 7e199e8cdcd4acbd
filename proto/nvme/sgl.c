/* SPDX-License-Identifier: MIT */
/*
 * The SGL parser. All arithmetic on the peer's lengths and offsets is in 64 bits.
 */
#include "proto/nvme/sgl.h"

#include <stdint.h>
#include <string.h>

#include "proto/nvme/nvme.h"
#include "proto/nvme/status.h"

#define SGL_ERROR(code) ((uint16_t)((code) | NVME_STATUS_DNR))

/* Bounds of [offset, offset + len) in the capsule, without an overflow. */
static bool sgl_beyond(uint64_t offset, uint64_t len, uint64_t available)
{
	return offset > available || len > available - offset;
}

static uint16_t sgl_add_keyed(const struct nvme_sgl_desc *desc, struct nvme_sgl *sgl)
{
	uint64_t addr = le64_get(desc->addr);
	uint32_t len = le24_get(desc->keyed.len);
	uint32_t key = le32_get(desc->keyed.key);

	if (len == 0)
		return 0;
	if (addr > UINT64_MAX - len)
		return SGL_ERROR(NVME_SC_SGL_DATA_LEN_INVALID);
	if (desc->id == NVME_SGL_ID_KEYED_INVALIDATE && !sgl->invalidate) {
		sgl->invalidate = true;
		sgl->invalidate_key = key;
	}
	sgl->piece[sgl->nr++] = (struct nvme_sgl_piece){.addr = addr, .len = len, .key = key};
	sgl->place = NVME_SGL_KEYED;
	sgl->len += len;
	return 0;
}

/* The only descriptor, so what it describes is the whole of the data. */
static void sgl_set_single(
	uint64_t addr, uint32_t len, enum nvme_sgl_place place, struct nvme_sgl *sgl)
{
	if (len == 0)
		return;
	sgl->piece[0] = (struct nvme_sgl_piece){.addr = addr, .len = len};
	sgl->nr = 1;
	sgl->len = len;
	sgl->place = place;
}

static uint16_t sgl_parse_in_capsule(const struct nvme_sgl_desc *desc, size_t icd_len,
	const struct nvme_sgl_limits *limits, struct nvme_sgl *sgl)
{
	uint64_t offset = le64_get(desc->addr);
	uint32_t len = le32_get(desc->len);

	/* A host that exceeds IOCCSZ or points behind what it sent. */
	if (len > limits->in_capsule_max)
		return SGL_ERROR(NVME_SC_SGL_DATA_LEN_INVALID);
	if (sgl_beyond(offset, len, icd_len))
		return SGL_ERROR(NVME_SC_SGL_OFFSET_INVALID);
	sgl_set_single(offset, len, NVME_SGL_IN_CAPSULE, sgl);
	return 0;
}

/* Descriptors in the capsule: keyed data blocks only, at most MSDBD (NVMe base 2.0 4.1.2.1, NVMe
 * RDMA 1.0 2.3). */
static uint16_t sgl_parse_segment(const struct nvme_sgl_desc *segment, const void *icd,
	size_t icd_len, const struct nvme_sgl_limits *limits, struct nvme_sgl *sgl)
{
	uint64_t offset = le64_get(segment->addr);
	uint32_t len = le32_get(segment->len);
	uint32_t nr = len / (uint32_t)sizeof(struct nvme_sgl_desc);

	if (len == 0 || len % sizeof(struct nvme_sgl_desc) != 0)
		return SGL_ERROR(NVME_SC_SGL_SEGMENT_INVALID);
	if (nr > limits->msdbd)
		return SGL_ERROR(NVME_SC_SGL_COUNT_INVALID);
	if (sgl_beyond(offset, len, icd_len))
		return SGL_ERROR(NVME_SC_SGL_OFFSET_INVALID);

	for (uint32_t i = 0; i < nr; i++) {
		struct nvme_sgl_desc desc;
		uint16_t status;

		memcpy(&desc, (const uint8_t *)icd + offset + i * sizeof(desc), sizeof(desc));
		if (desc.id == NVME_SGL_ID_LAST_SEGMENT)
			return SGL_ERROR(NVME_SC_SGL_SEGMENT_INVALID);
		if (desc.id != NVME_SGL_ID_KEYED && desc.id != NVME_SGL_ID_KEYED_INVALIDATE)
			return SGL_ERROR(NVME_SC_SGL_TYPE_INVALID);
		status = sgl_add_keyed(&desc, sgl);
		if (status)
			return status;
	}
	return 0;
}

/* A command without data may have any descriptor of length 0; some hosts leave it all zero. */
static bool sgl_is_null(const struct nvme_sgl_desc *desc)
{
	return desc->id == (NVME_SGL_DATA_BLOCK << 4 | NVME_SGL_ADDRESS) &&
	       le32_get(desc->len) == 0;
}

static uint16_t sgl_parse_keyed(const struct nvme_sgl_desc *desc, const void *icd, size_t icd_len,
	const struct nvme_sgl_limits *limits, struct nvme_sgl *sgl)
{
	switch (desc->id) {
	case NVME_SGL_ID_KEYED:
	case NVME_SGL_ID_KEYED_INVALIDATE:
		return sgl_add_keyed(desc, sgl);
	case NVME_SGL_ID_LAST_SEGMENT:
		return sgl_parse_segment(desc, icd, icd_len, limits, sgl);
	default:
		return SGL_ERROR(NVME_SC_SGL_TYPE_INVALID);
	}
}

uint16_t nvme_sgl_parse(const struct nvme_cmd *cmd, const void *icd, size_t icd_len,
	const struct nvme_sgl_limits *limits, struct nvme_sgl *ret)
{
	const struct nvme_sgl_desc *desc = &cmd->sgl;
	uint16_t status = 0;

	assert(limits->msdbd >= 1 && limits->msdbd <= NVME_SGL_MAX_PIECES);
	ret->len = 0;
	ret->place = NVME_SGL_NO_DATA;
	ret->nr = 0;
	ret->invalidate = false;
	ret->invalidate_key = 0;

	/* PRPs and SGLs for metadata do not exist on a fabric (NVMe base 2.0 3.3.2.1). */
	if ((cmd->flags & NVME_CMD_PSDT_MASK) != NVME_CMD_PSDT_SGL)
		return SGL_ERROR(NVME_SC_INVALID_FIELD);

	if (sgl_is_null(desc))
		return 0;
	if (desc->id == NVME_SGL_ID_IN_CAPSULE)
		return sgl_parse_in_capsule(desc, icd_len, limits, ret);
	if (limits->keyed)
		status = sgl_parse_keyed(desc, icd, icd_len, limits, ret);
	else if (desc->id == NVME_SGL_ID_TRANSPORT)
		sgl_set_single(0, le32_get(desc->len), NVME_SGL_TRANSPORT, ret);
	else
		status = SGL_ERROR(NVME_SC_SGL_TYPE_INVALID);
	return status;
}
