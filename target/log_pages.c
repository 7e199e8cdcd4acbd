/* SPDX-License-Identifier: MIT */
/*
 * Get Log Page (NVMe base 2.0 5.16): one row a page. A page is made whole and cut to what is asked.
 */
#include "target/log_pages.h"

#include <string.h>

#include "proto/nvme/fabrics.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "target/ana_log.h"
#include "target/changed_ns.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/discovery.h"
#include "target/error_log.h"
#include "target/event.h"
#include "target/feature.h"
#include "target/reservation_log.h"
#include "target/smart.h"
#include "target/subsys.h"

#define LOG_PAGE_MAX_BYTES 4096

struct log_page {
	uint8_t lid;
	bool io;	/* I/O controllers have it */
	bool discovery; /* discovery controllers have it */
	uint8_t lsp;	/* log specific parameters that are served, for page 00h */
	bool of_ns;	/* it may be asked for by namespace, which CHECK sees to */
	uint32_t size;
	uint16_t (*check)(const struct request *request);
	/* Made whole, in zeros, and then cut. NULL: zeros are the truth. */
	void (*fill)(struct request *request, void *page);
	/* Instead: ends in log_page_answer(), later. */
	void (*run)(struct request *request);
	/* Instead: a page of any length, copied piece by piece. */
	uint64_t (*length)(const struct request *request);
	void (*write)(struct request *request, const struct log_window *window);
	/* It was read without RAE. */
	void (*clear)(struct ctrl *ctrl);
};

static const struct log_page *log_page_find(const struct ctrl *ctrl, uint8_t lid);

static void log_page_supported(struct request *request, void *page)
{
	struct nvme_log_supported *supported = page;

	for (unsigned lid = 0; lid < NVME_LOG_MAX_IDS; lid++) {
		const struct log_page *other =
			log_page_find(request->conn->member.ctrl, (uint8_t)lid);

		if (other)
			supported->lid[lid] = le32(NVME_LOG_LSUPP | NVME_LOG_SPECIFIC(other->lsp));
	}
}

static void log_page_error(struct request *request, void *page)
{
	error_log_fill(request->conn->member.ctrl, page);
}

static void log_page_fw_slot(struct request *request, void *page)
{
	struct nvme_log_fw_slot *slot = page;

	(void)request;
	slot->afi = 1;
	memset(slot->frs[0], ' ', sizeof(slot->frs[0]));
	memcpy(slot->frs[0], HAUL_VERSION, min_of(sizeof(slot->frs[0]), sizeof(HAUL_VERSION) - 1));
}

static le32_t log_page_effects_of(const struct cmd *command, uint32_t scope)
{
	return le32(command ? NVME_EFFECTS_CSUPP | scope | command->effects : 0);
}

static void log_page_changed_ns(struct request *request, void *page)
{
	changed_ns_show(request->conn->member.ctrl, le64_get(request->cmd.get_log.lpo), page);
}

/* I/O commands say no scope (0: not reported): Linux warns of any effect of theirs but LBCC. */
static void log_page_effects(struct request *request, void *page)
{
	const bool discovery = request->conn->subsys->discovery;
	struct nvme_log_effects *effects = page;

	for (unsigned i = 0; i < 256; i++) {
		uint8_t opcode = (uint8_t)i;

		if (!discovery)
			effects->iocs[i] = log_page_effects_of(cmd_io_find(opcode), 0);
		effects->acs[i] = log_page_effects_of(
			discovery ? cmd_discovery_find(opcode) : cmd_admin_find(opcode),
			NVME_EFFECTS_SCOPE_CTRL);
	}
}

static void log_page_features(struct request *request, void *page)
{
	struct nvme_log_features *features = page;

	for (unsigned fid = 0; fid < 256; fid++)
		features->fid[fid] =
			le32(feature_effects(request->conn->member.ctrl, (uint8_t)fid));
}

static const struct log_page log_page_table[] = {
	{.lid = NVME_LOG_SUPPORTED,
		.io = true,
		.discovery = true,
		.size = sizeof(struct nvme_log_supported),
		.fill = log_page_supported},
	{.lid = NVME_LOG_ERROR,
		.io = true,
		.discovery = true,
		.size = ERROR_LOG_ENTRIES * sizeof(struct nvme_log_error),
		.fill = log_page_error},
	{.lid = NVME_LOG_SMART,
		.io = true,
		.size = sizeof(struct nvme_log_smart),
		.of_ns = true,
		.check = smart_log_check,
		.run = smart_log_run},
	{.lid = NVME_LOG_FW_SLOT,
		.io = true,
		.size = sizeof(struct nvme_log_fw_slot),
		.fill = log_page_fw_slot},
	{.lid = NVME_LOG_CHANGED_NS,
		.io = true,
		.size = sizeof(struct nvme_log_changed_ns),
		.fill = log_page_changed_ns,
		.clear = changed_ns_clear},
	{.lid = NVME_LOG_EFFECTS,
		.io = true,
		.discovery = true,
		.size = sizeof(struct nvme_log_effects),
		.fill = log_page_effects},
	{.lid = NVME_LOG_ANA, .io = true, .length = ana_log_length, .write = ana_log_write},
	{.lid = NVME_LOG_FEATURES,
		.io = true,
		.discovery = true,
		.size = sizeof(struct nvme_log_features),
		.fill = log_page_features},
	/* Goes with the two before by LPA bit 5. There are no NVMe-MI commands. */
	{.lid = NVME_LOG_MI_COMMANDS,
		.io = true,
		.discovery = true,
		.size = sizeof(struct nvme_log_mi_commands)},
	{.lid = NVME_LOG_DISCOVERY,
		.discovery = true,
		.lsp = DISCOVERY_LSP,
		.check = discovery_log_check,
		.length = discovery_log_size,
		.write = discovery_log_write},
	{.lid = NVME_LOG_RESERVATION,
		.io = true,
		.size = sizeof(struct nvme_log_reservation),
		.fill = reservation_log_show,
		.clear = reservation_log_clear},
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

static uint64_t log_page_length(const struct request *request, const struct log_page *page)
{
	return page->length ? page->length(request) : page->size;
}

/* --- the command ----------------------------------------------------------------------------- */

/* NVMe base 2.0 5.16.1: pages of a controller are asked for without a namespace. */
static bool log_page_is_of_ctrl(const struct request *request)
{
	uint32_t nsid = le32_get(request->cmd.nsid);

	return nsid == 0 || nsid == NVME_NSID_ALL;
}

uint16_t cmd_get_log_prepare(struct request *request)
{
	const struct nvme_cmd_get_log *get = &request->cmd.get_log;
	const struct log_page *page = log_page_find(request->conn->member.ctrl, get->lid);
	uint64_t offset = le64_get(get->lpo);
	uint64_t length =
		((uint64_t)le16_get(get->numdl) + ((uint64_t)le16_get(get->numdu) << 16) + 1) * 4;
	uint16_t status;

	if (!page)
		return NVME_SC_LOG_PAGE_INVALID | NVME_STATUS_DNR;
	/* An index offset is for pages that say so in page 00h; none of ours does. */
	if (length > request->conn->transfer_max || offset % 4 || (get->ot & NVME_GET_LOG_OT))
		return CMD_INVALID_FIELD;
	if (!page->of_ns && !log_page_is_of_ctrl(request))
		return CMD_INVALID_FIELD;
	status = page->check ? page->check(request) : 0;
	if (status)
		return status;
	if (offset > log_page_length(request, page))
		return CMD_INVALID_FIELD;
	request->data_len = (uint32_t)length;
	return 0;
}

void log_window_copy(const struct log_window *window, uint64_t at, const void *from, size_t size)
{
	uint64_t start = max_of(at, window->offset);
	uint64_t end = min_of(at + size, window->offset + window->length);

	if (start < end)
		memcpy(window->bytes + (start - window->offset), (const char *)from + (start - at),
			end - start);
}

static struct log_window log_page_window(const struct request *request)
{
	return (struct log_window){.offset = le64_get(request->cmd.get_log.lpo),
		.length = request->data_len,
		.bytes = request->bytes};
}

/* The host hears of what was read before it hears of what comes next. */
static void log_page_end(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct log_page *page = log_page_find(ctrl, request->cmd.get_log.lid);
	bool retain = request->cmd.get_log.lsp & NVME_GET_LOG_RAE;
	uint64_t offset = le64_get(request->cmd.get_log.lpo);

	if (page->clear && !retain)
		page->clear(ctrl);
	request_complete(request, 0);
	event_log_read(ctrl, page->lid, offset, retain);
}

void log_page_answer(struct request *request, const void *page, size_t size)
{
	struct log_window window = log_page_window(request);

	log_window_copy(&window, 0, page, size);
	log_page_end(request);
}

void cmd_get_log_run(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	const struct log_page *page = log_page_find(ctrl, request->cmd.get_log.lid);
	_Alignas(8) char bytes[LOG_PAGE_MAX_BYTES] = {0};
	struct log_window window;

	if (page->run) {
		page->run(request);
		return;
	}
	if (page->write) {
		window = log_page_window(request);
		page->write(request, &window);
		log_page_end(request);
		return;
	}
	if (page->fill)
		page->fill(request, bytes);
	log_page_answer(request, bytes, page->size);
}
