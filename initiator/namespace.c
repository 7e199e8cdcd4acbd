/* SPDX-License-Identifier: MIT */
/*
 * Namespaces: the list of active ones, and what is known of each (size, format, names).
 */
#include "initiator/namespace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "proto/nvme/status.h"
#include "initiator/admin.h"

/* 512 bytes to 64 KiB: smaller ones are not allowed, larger ones would not fit in a command. */
#define NS_MIN_BLOCK_SHIFT 9
#define NS_MAX_BLOCK_SHIFT 16

/* --- the list ------------------------------------------------------------------------------- */

/* Where NSID is, or is to be put in. */
static uint32_t ns_rank(const struct haul_ctrl *ctrl, uint32_t nsid)
{
	uint32_t low = 0, high = ctrl->nr_ns;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (ctrl->nsids[middle] < nsid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool ns_is_active(const struct haul_ctrl *ctrl, uint32_t nsid)
{
	uint32_t rank = ns_rank(ctrl, nsid);

	return rank < ctrl->nr_ns && ctrl->nsids[rank] == nsid;
}

struct haul_ns *ns_find(const struct haul_ctrl *ctrl, uint32_t nsid)
{
	uint32_t rank = ns_rank(ctrl, nsid);

	return rank < ctrl->nr_ns && ctrl->nsids[rank] == nsid ? ctrl->ns[rank] : NULL;
}

static int ns_make_room(struct haul_ctrl *ctrl)
{
	uint32_t room = ctrl->room_ns ? 2 * ctrl->room_ns : 16;
	struct haul_ns **ns;
	uint32_t *nsids;

	if (ctrl->nr_ns < ctrl->room_ns)
		return 0;
	if (room > CTRL_MAX_NAMESPACES)
		return -E2BIG;
	nsids = reallocarray(ctrl->nsids, room, sizeof(*nsids));
	if (!nsids)
		return -ENOMEM;
	ctrl->nsids = nsids;
	ns = reallocarray(ctrl->ns, room, sizeof(struct haul_ns *));
	if (!ns)
		return -ENOMEM;
	ctrl->ns = ns;
	ctrl->room_ns = room;
	return 0;
}

static int ns_insert(struct haul_ctrl *ctrl, uint32_t nsid)
{
	uint32_t rank = ns_rank(ctrl, nsid);
	int error = ns_make_room(ctrl);

	if (error)
		return error;
	memmove(ctrl->nsids + rank + 1, ctrl->nsids + rank,
		(ctrl->nr_ns - rank) * sizeof(*ctrl->nsids));
	memmove(ctrl->ns + rank + 1, ctrl->ns + rank,
		(ctrl->nr_ns - rank) * sizeof(struct haul_ns *));
	ctrl->nsids[rank] = nsid;
	ctrl->ns[rank] = NULL;
	ctrl->nr_ns++;
	return 0;
}

int ns_list_add_page(struct haul_ctrl *ctrl, const void *page)
{
	const struct nvme_ns_list *list = page;

	for (uint32_t i = 0; i < NVME_NS_LIST_MAX; i++) {
		uint32_t nsid = le32_get(list->nsid[i]);
		int error;

		if (nsid == 0)
			return 0;
		/* Ascending over all pages, hence it ends. */
		if (nsid > NVME_NSID_MAX || (ctrl->nr_ns && nsid <= ctrl->nsids[ctrl->nr_ns - 1]))
			return -EPROTO;
		error = ns_insert(ctrl, nsid);
		if (error)
			return error;
	}
	return 1;
}

void ns_list_text(const struct haul_ctrl *ctrl, char *text, size_t size)
{
	size_t at = 0;

	snprintf(text, size, "none");
	for (uint32_t i = 0; i < ctrl->nr_ns && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%u", i ? ", " : "", ctrl->nsids[i]);
}

void ns_free_all(struct haul_ctrl *ctrl)
{
	for (uint32_t i = 0; i < ctrl->nr_ns; i++)
		free(ctrl->ns[i]);
	free(ctrl->ns);
	free(ctrl->nsids);
}

int haul_ns_list(const struct haul_ctrl *ctrl, uint32_t *nsids, unsigned nr)
{
	for (uint32_t i = 0; i < ctrl->nr_ns && i < nr; i++)
		nsids[i] = ctrl->nsids[i];
	return (int)ctrl->nr_ns;
}

int64_t haul_ns_default(const struct haul_ctrl *ctrl)
{
	if (!ctrl->was_live)
		return -ENOTCONN;
	if (ctrl->default_nsid)
		return ctrl->default_nsid;
	return ctrl->nr_ns ? -ENOTUNIQ : -ENOENT;
}

/* --- one of them ---------------------------------------------------------------------------- */

static int ns_check_format(
	const struct nvme_id_ns *id, uint32_t *ret_block_shift, const char **ret_why)
{
	uint32_t index = NVME_ID_FLBAS_INDEX(id->flbas);
	const struct nvme_lba_format *format = &id->lbaf[index];

	if (le64_get(id->nsze) == 0) {
		*ret_why = "it is not an active namespace";
		return -ENOENT;
	}
	if (index > (uint32_t)id->nlbaf + id->nulbaf) {
		*ret_why = "its format index is beyond the list of formats";
		return -EPROTO;
	}
	if (le16_get(format->ms) != 0) {
		*ret_why = "it is formatted with metadata, which haul cannot carry";
		return -EOPNOTSUPP;
	}
	if (format->ds < NS_MIN_BLOCK_SHIFT || format->ds > NS_MAX_BLOCK_SHIFT) {
		*ret_why = "its block size is not between 512 bytes and 64 KiB";
		return -EOPNOTSUPP;
	}
	if (le64_get(id->nsze) > (uint64_t)INT64_MAX >> format->ds) {
		*ret_why = "its size does not fit in 63 bits";
		return -EPROTO;
	}
	*ret_block_shift = format->ds;
	return 0;
}

static uint32_t ns_max_write_zeroes(const struct ctrl_limits *limits, uint32_t block_shift)
{
	uint64_t blocks = limits->max_write_zeroes_bytes >> block_shift;

	/* NLB has 16 bits, 0's based. */
	return blocks && blocks < 65536 ? (uint32_t)blocks : 65536;
}

static void ns_read_info(const struct haul_ctrl *ctrl, const struct nvme_id_ns *id,
	uint32_t block_shift, struct haul_ns_info *info)
{
	const struct ctrl_limits *limits = &ctrl->limits;

	info->block_bytes = 1u << block_shift;
	info->nr_blocks = le64_get(id->nsze);
	info->capacity_blocks = le64_get(id->ncap);
	info->used_blocks = le64_get(id->nuse);
	memcpy(info->nguid, id->nguid, sizeof(info->nguid));
	memcpy(info->eui64, id->eui64.b, sizeof(info->eui64));
	info->read_only = id->nsattr & NVME_ID_NSATTR_WRITE_PROTECTED;
	info->can_discard = !!(limits->oncs & NVME_ID_ONCS_DSM);
	info->can_write_zeroes = !!(limits->oncs & NVME_ID_ONCS_WRITE_ZEROES);
	info->volatile_cache = limits->vwc & NVME_ID_VWC_PRESENT;
	info->max_discard_blocks = (uint32_t)min_of(
		(uint64_t)limits->max_discard_range_blocks, limits->max_discard_blocks);
	info->max_write_zeroes_blocks = ns_max_write_zeroes(limits, block_shift);
}

static int ns_remember(struct haul_ctrl *ctrl, const struct haul_ns_info *info)
{
	struct haul_ns *ns = ns_find(ctrl, info->nsid);
	int error;

	if (!ns) {
		error = ns_is_active(ctrl, info->nsid) ? 0 : ns_insert(ctrl, info->nsid);
		if (error)
			return error;
		ns = calloc(1, sizeof(*ns));
		if (!ns)
			return -ENOMEM;
		ctrl->ns[ns_rank(ctrl, info->nsid)] = ns;
	}
	ns->info = *info;
	ns->block_shift = (uint32_t)__builtin_ctz(info->block_bytes);
	return 0;
}

/* --- reading it ----------------------------------------------------------------------------- */

static void ns_reader_end(struct ns_reader *reader, int result, uint16_t status, const char *why)
{
	if (!result)
		result = ns_remember(reader->ctrl, &reader->info);
	if (!why)
		why = status ? nvme_status_str(status) : strerror(-result);
	reader->done(reader, result, status, why);
}

/* The list of descriptors (5.17.2.3) is bounded by its page; one that is too long ends it. */
static void ns_read_descriptors(const uint8_t *page, struct haul_ns_info *info)
{
	uint32_t at = 0;

	while (at + sizeof(struct nvme_ns_desc) <= NVME_IDENTIFY_SIZE) {
		const struct nvme_ns_desc *desc = (const struct nvme_ns_desc *)(page + at);
		uint32_t end = at + (uint32_t)sizeof(*desc) + desc->nidl;

		if (desc->nidl == 0 || end > NVME_IDENTIFY_SIZE)
			return;
		if (desc->nidt == NVME_NIDT_UUID && desc->nidl == sizeof(info->uuid))
			memcpy(info->uuid, desc->nid, sizeof(info->uuid));
		else if (desc->nidt == NVME_NIDT_NGUID && desc->nidl == sizeof(info->nguid))
			memcpy(info->nguid, desc->nid, sizeof(info->nguid));
		else if (desc->nidt == NVME_NIDT_EUI64 && desc->nidl == sizeof(info->eui64))
			memcpy(info->eui64, desc->nid, sizeof(info->eui64));
		at = end;
	}
}

/* Names are good to have: a target that has none still has a disk. */
static void ns_descriptors_answered(struct haul_request *request)
{
	struct ns_reader *reader = request->context;
	uint16_t status;
	int result = request_result(request, &status);

	if (!result)
		ns_read_descriptors(reader->page, &reader->info);
	ns_reader_end(reader, request->result, 0, NULL);
}

static int ns_reader_send(
	struct ns_reader *reader, uint8_t cns, void (*answered)(struct haul_request *))
{
	struct nvme_cmd cmd = admin_cmd_identify(cns, reader->nsid, 0);

	return admin_send(reader->ctrl, &cmd, reader->page, sizeof(reader->page), 1,
		reader->ctrl->options.command_timeout_ms, answered, reader);
}

static void ns_identified(struct haul_request *request)
{
	struct ns_reader *reader = request->context;
	const struct nvme_id_ns *id = (const struct nvme_id_ns *)reader->page;
	const char *why = NULL;
	uint32_t block_shift = 0;
	uint16_t status;
	int result = request_result(request, &status);

	if (!result)
		result = ns_check_format(id, &block_shift, &why);
	if (!result && 1u << block_shift > reader->ctrl->limits.max_transfer_bytes) {
		why = "a block of it is more than a command may carry (MDTS)";
		result = -EPROTO;
	}
	if (!result) {
		ns_read_info(reader->ctrl, id, block_shift, &reader->info);
		result = ns_reader_send(reader, NVME_CNS_NS_DESC_LIST, ns_descriptors_answered);
	}
	if (result)
		ns_reader_end(reader, result, status, why);
}

int ns_reader_start(struct ns_reader *reader)
{
	reader->info = (struct haul_ns_info){.nsid = reader->nsid};
	return ns_reader_send(reader, NVME_CNS_NS, ns_identified);
}

/* --- the caller's --------------------------------------------------------------------------- */

struct ns_op {
	struct ns_reader reader;
	struct admin_op *op;
	struct haul_ns_info *ret;
};

static void ns_info_read(struct ns_reader *reader, int result, uint16_t status, const char *why)
{
	struct ns_op *ns_op = container_of(reader, struct ns_op, reader);

	if (result)
		ctrl_set_error(reader->ctrl, "%.300s: namespace %u: %s", reader->ctrl->uri_text,
			reader->nsid, why);
	else
		*ns_op->ret = reader->info;
	admin_op_end(ns_op->op, result, status, 0);
	free(ns_op);
}

int haul_ns_info(
	struct haul_ctrl *ctrl, uint32_t nsid, struct haul_ns_info *ret, uint64_t user_data)
{
	struct ns_op *ns_op;
	int error;

	if (ctrl->state != CTRL_LIVE)
		return -ENOTCONN;
	if (nsid == 0 || nsid > NVME_NSID_MAX)
		return -ENOENT;
	ns_op = calloc(1, sizeof(*ns_op));
	if (!ns_op)
		return -ENOMEM;
	ns_op->ret = ret;
	ns_op->reader.ctrl = ctrl;
	ns_op->reader.nsid = nsid;
	ns_op->reader.done = ns_info_read;
	ns_op->op = admin_op_get(ctrl, user_data);
	error = ns_op->op ? ns_reader_start(&ns_op->reader) : -EAGAIN;
	if (error) {
		if (ns_op->op)
			admin_op_drop(ns_op->op);
		free(ns_op);
	}
	return error;
}
