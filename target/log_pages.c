/* SPDX-License-Identifier: MIT */
/*
 * Get Log Page (NVMe base 2.0 5.16): one row a page. A page is made whole and cut to what is asked.
 */
#include "proto/nvme/log.h"

#include <string.h>

#include "proto/nvme/identify.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/discovery.h"
#include "target/event.h"
#include "target/reactor.h"
#include "target/subsys.h"

#define LOG_PAGE_MAX_BYTES   4096
/* Kelvin; there is no sensor: a room's. */
#define LOG_PAGE_TEMPERATURE 298

struct log_page {
	uint8_t lid;
	bool io;	/* I/O controllers have it */
	bool discovery; /* discovery controllers have it */
	uint32_t size;	/* 0: the discovery log */
	void (*fill)(
		const struct ctrl *ctrl, void *page); /* into zeros; NULL: they are the truth */
};

static void log_page_supported(const struct ctrl *ctrl, void *page);

static void log_page_smart(const struct ctrl *ctrl, void *page)
{
	struct nvme_log_smart *smart = page;

	(void)ctrl;
	smart->temperature = le16(LOG_PAGE_TEMPERATURE);
	smart->available_spare = 100;
	smart->spare_threshold = 10;
	smart->power_cycles = le128(1);
}

static void log_page_fw_slot(const struct ctrl *ctrl, void *page)
{
	struct nvme_log_fw_slot *slot = page;

	(void)ctrl;
	slot->afi = 1;
	memset(slot->frs[0], ' ', sizeof(slot->frs[0]));
	memcpy(slot->frs[0], HAUL_VERSION, min_of(sizeof(slot->frs[0]), sizeof(HAUL_VERSION) - 1));
}

static le32_t log_page_effects_of(const struct cmd *command)
{
	return le32(command ? NVME_EFFECTS_CSUPP | command->effects : 0);
}

static void log_page_effects(const struct ctrl *ctrl, void *page)
{
	struct nvme_log_effects *effects = page;

	(void)ctrl;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		effects->iocs[opcode] = log_page_effects_of(cmd_io_find((uint8_t)opcode));
		effects->acs[opcode] = log_page_effects_of(cmd_admin_find((uint8_t)opcode));
	}
}

static const struct log_page log_page_table[] = {
	{.lid = NVME_LOG_SUPPORTED,
		.io = true,
		.discovery = true,
		.size = sizeof(struct nvme_log_supported),
		.fill = log_page_supported},
	/* No error is kept, no namespace changes: their pages are empty. */
	{.lid = NVME_LOG_ERROR, .io = true, .size = sizeof(struct nvme_log_error)},
	{.lid = NVME_LOG_SMART,
		.io = true,
		.size = sizeof(struct nvme_log_smart),
		.fill = log_page_smart},
	{.lid = NVME_LOG_FW_SLOT,
		.io = true,
		.size = sizeof(struct nvme_log_fw_slot),
		.fill = log_page_fw_slot},
	{.lid = NVME_LOG_CHANGED_NS, .io = true, .size = sizeof(struct nvme_log_changed_ns)},
	{.lid = NVME_LOG_EFFECTS,
		.io = true,
		.size = sizeof(struct nvme_log_effects),
		.fill = log_page_effects},
	{.lid = NVME_LOG_DISCOVERY, .discovery = true},
};

static const struct log_page *log_page_find(const struct ctrl *ctrl, uint8_t lid)
{
	for (size_t i = 0; i < ARRAY_SIZE(log_page_table); i++) {
		const struct log_page *page = &log_page_table[i];

		if (page->lid == lid)
			return (ctrl->subsys->discovery ? page->discovery : page->io) ? page : NULL;
	}
	return NULL;
}

static void log_page_supported(const struct ctrl *ctrl, void *page)
{
	struct nvme_log_supported *supported = page;

	for (unsigned lid = 0; lid < NVME_LOG_MAX_IDS; lid++)
		if (log_page_find(ctrl, (uint8_t)lid))
			supported->lid[lid] = le32(NVME_LOG_LSUPP);
}

static uint64_t log_page_size(const struct ctrl *ctrl, const struct log_page *page)
{
	return page->size ? page->size : discovery_log_size(ctrl);
}

uint16_t cmd_get_log_prepare(struct request *request)
{
	const struct nvme_cmd_get_log *get = &request->cmd.get_log;
	const struct ctrl *ctrl = request->conn->member.ctrl;
	const struct log_page *page = log_page_find(ctrl, get->lid);
	uint64_t offset = le64_get(get->lpo);
	uint64_t length =
		((uint64_t)le16_get(get->numdl) + ((uint64_t)le16_get(get->numdu) << 16) + 1) * 4;

	if (!page)
		return NVME_SC_LOG_PAGE_INVALID | NVME_STATUS_DNR;
	/* An index offset is for pages that say so in page 00h; none of ours does. */
	if (length > CMD_MAX_BYTES || offset % 4 || (get->ot & NVME_GET_LOG_OT) ||
		offset > log_page_size(ctrl, page))
		return CMD_INVALID_FIELD;
	request->data_len = (uint32_t)length;
	return 0;
}

void cmd_get_log_run(struct request *request)
{
	const struct nvme_cmd_get_log *get = &request->cmd.get_log;
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct log_page *page = log_page_find(ctrl, get->lid);
	uint64_t offset = le64_get(get->lpo);
	bool retain = get->lsp & NVME_GET_LOG_RAE;
	_Alignas(8) char bytes[LOG_PAGE_MAX_BYTES] = {0};

	ctrl_alive(ctrl);
	if (!page->size) {
		discovery_log_fill(ctrl, offset, request->data_len, request->bytes);
	} else {
		if (page->fill)
			page->fill(ctrl, bytes);
		memcpy(request->bytes, bytes + offset,
			min_of((uint64_t)request->data_len, page->size - offset));
	}
	request_complete(request, 0);
	event_log_read(ctrl, page->lid, offset, retain);
}
