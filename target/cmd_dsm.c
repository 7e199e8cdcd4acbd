/* SPDX-License-Identifier: MIT */
/*
 * Dataset Management (NVM command set 1.0 3.2.3): deallocation; all other attributes are advice
 * that nothing here can use. While the volatile write cache is off (NVMe base 2.0 5.27.1.4) what is
 * deallocated is so on the medium, like what is written: one flush for all ranges, before the end.
 */
#include <errno.h>

#include "proto/nvme/log.h"
#include "target/cmd_io.h"
#include "target/reactor_ns.h"

static uint16_t cmd_dsm_prepare(struct request *request)
{
	uint16_t status = cmd_io_find_ns(request);

	if (!status && (le32_get(request->cmd.dsm.attributes) & NVME_DSM_AD))
		status = cmd_io_check_writable(&request->ns->ns);
	request->data_len = (request->cmd.dsm.nr + 1u) * (uint32_t)sizeof(struct nvme_dsm_range);
	return status;
}

static uint16_t cmd_dsm_check_ranges(const struct request *request)
{
	const struct nvme_dsm_range *ranges = request->bytes;

	for (uint32_t i = 0; i <= request->cmd.dsm.nr; i++) {
		uint16_t status = cmd_io_check_range(
			&request->ns->ns, le64_get(ranges[i].slba), le32_get(ranges[i].nlb));

		if (status)
			return status;
	}
	return 0;
}

static bool cmd_dsm_submit_next(struct request *request);

static void cmd_dsm_flush(struct request *request)
{
	if (!request->conn->settings.write_through) {
		request_complete(request, 0);
		return;
	}
	request->io.op = BACKEND_FLUSH;
	request_submit(request, cmd_io_done);
}

static void cmd_dsm_done(struct done *done, int res, unsigned flags)
{
	struct request *request = container_of(done, struct request, io.done);

	(void)flags;
	if (!request_executed(request))
		return;
	/* Advisory: what cannot be deallocated stays. */
	if (res == -EOPNOTSUPP)
		res = 0;
	if (res)
		request_complete(request, cmd_io_status(&request->io, res));
	else if (!cmd_dsm_submit_next(request))
		cmd_dsm_flush(request);
}

/* One range at a time: 256 of one command shall not crowd out others. False: no further one. */
static bool cmd_dsm_submit_next(struct request *request)
{
	const struct nvme_dsm_range *ranges = request->bytes;
	uint8_t shift = request->ns->ns.lba_shift;

	while (request->nr_parts <= request->cmd.dsm.nr) {
		const struct nvme_dsm_range *range = &ranges[request->nr_parts++];

		if (!le32_get(range->nlb))
			continue;
		request->io.offset = le64_get(range->slba) << shift;
		request->io.extent = (uint64_t)le32_get(range->nlb) << shift;
		request_submit(request, cmd_dsm_done);
		return true;
	}
	return false;
}

static bool cmd_dsm_more(const struct request *request)
{
	return request->nr_parts <= request->cmd.dsm.nr;
}

static void cmd_dsm_run(struct request *request)
{
	bool deallocate = le32_get(request->cmd.dsm.attributes) & NVME_DSM_AD;
	uint16_t status = cmd_dsm_check_ranges(request);

	request->io.op = BACKEND_DISCARD;
	request->io.fua = false;
	if (status || !deallocate || !request->ns->queue->backend->geometry.can_discard ||
		!cmd_dsm_submit_next(request))
		request_complete(request, status);
}

const struct cmd cmd_dsm = {
	.name = "Dataset Management",
	.direction = REQUEST_FROM_HOST,
	.prepare = cmd_dsm_prepare,
	.max_len = NVME_DSM_MAX_RANGES * sizeof(struct nvme_dsm_range),
	.run = cmd_dsm_run,
	.access = RESERVATION_WRITE,
	.more_parts = cmd_dsm_more,
	.effects = NVME_EFFECTS_LBCC,
};
