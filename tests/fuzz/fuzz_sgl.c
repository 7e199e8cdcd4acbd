/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the SGL parser: one byte for the limits, the command, the data in the capsule.
 */
#include <assert.h>
#include <string.h>

#include "proto/nvme/nvme.h"
#include "proto/nvme/sgl.h"
#include "proto/nvme/status.h"
#include "tests/fuzz/fuzz.h"

static void check_good(
	const struct nvme_sgl *sgl, const struct nvme_sgl_limits *limits, size_t icd_len)
{
	uint64_t sum = 0;

	assert(sgl->nr <= limits->msdbd);
	assert((sgl->nr == 0) == (sgl->place == NVME_SGL_NO_DATA));
	for (unsigned i = 0; i < sgl->nr; i++) {
		assert(sgl->piece[i].len > 0);
		sum += sgl->piece[i].len;
	}
	assert(sum == sgl->len);
	if (sgl->place == NVME_SGL_IN_CAPSULE) {
		assert(sgl->nr == 1 && sgl->len <= limits->in_capsule_max);
		assert(sgl->piece[0].addr <= icd_len && sgl->len <= icd_len - sgl->piece[0].addr);
	}
	if (sgl->place == NVME_SGL_KEYED) {
		assert(limits->keyed);
		for (unsigned i = 0; i < sgl->nr; i++)
			assert(sgl->piece[i].addr + sgl->piece[i].len > sgl->piece[i].addr);
	}
	if (sgl->place == NVME_SGL_TRANSPORT)
		assert(!limits->keyed && sgl->nr == 1);
	if (sgl->invalidate)
		assert(sgl->place == NVME_SGL_KEYED);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct nvme_sgl_limits limits;
	struct nvme_cmd cmd;
	struct nvme_sgl sgl;
	size_t icd_len;
	uint16_t status;

	if (size < 1 + sizeof(cmd))
		return 0;
	limits.keyed = input[0] & 1;
	limits.msdbd = 1 + (input[0] >> 1) % NVME_SGL_MAX_PIECES;
	limits.in_capsule_max = input[0] & 0x80 ? 0 : 4096;
	memcpy(&cmd, input + 1, sizeof(cmd));
	icd_len = size - 1 - sizeof(cmd);
	status = nvme_sgl_parse(&cmd, input + 1 + sizeof(cmd), icd_len, &limits, &sgl);
	if (status == 0)
		check_good(&sgl, &limits, icd_len);
	else
		assert(status & NVME_STATUS_DNR && status & NVME_STATUS_CODE_MASK);
	return 0;
}
