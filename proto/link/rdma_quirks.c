/* SPDX-License-Identifier: MIT */
/*
 * The table of what devices do otherwise.
 */
#include "proto/link/rdma_quirks.h"

#include <string.h>

#include "proto/base/compiler.h"

/* A row fits by all that it names. */
struct rdma_quirks_row {
	enum ibv_transport_type transport; /* 0: any */
	uint32_t vendor;		   /* 0: any */
	const char *name;		   /* how the device's begins; NULL: any */
	struct rdma_quirks quirks;
};

/*
 * Not here, for we ask it of no device: LAST_WQE_REACHED, which soft-RoCE and iWARP never deliver
 * (rdma_ep.h), and fields of a failed completion other than its id and status (struct wc_done).
 */
static const struct rdma_quirks_row rdma_quirks_table[] = {
	/* soft-RoCE tells programs that a key was invalidated by the kernel's flag for it
	 * (IB_WC_WITH_INVALIDATE), which has another meaning to them, though none for a connected
	 * queue pair. A host that does not know this invalidates the key again, which Linux 6.12
	 * does not survive: hosts get a plain SEND and invalidate the key themselves. Its vendor
	 * is no number of its own, its name may have been changed: either will do. */
	{.vendor = 0xffffff, .quirks = {.no_invalidate = true, .invalidated_flag = 1u << 2}},
	{.name = "rxe", .quirks = {.no_invalidate = true, .invalidated_flag = 1u << 2}},

	/* iWARP carries out a READ as a write of the peer's, so the memory it fills must be open to
	 * that; and a message that finds no receive ends the connection, so there is no timer of
	 * retries. */
	{.transport = IBV_TRANSPORT_IWARP,
		.quirks = {.no_rnr_timer = true, .read_access = IBV_ACCESS_REMOTE_WRITE}},
};

static bool rdma_quirks_fit(const struct rdma_quirks_row *row, struct ibv_device *device,
	const struct ibv_device_attr *attr)
{
	if (row->transport && row->transport != device->transport_type)
		return false;
	if (row->vendor && row->vendor != attr->vendor_id)
		return false;
	return !row->name ||
	       strncmp(ibv_get_device_name(device), row->name, strlen(row->name)) == 0;
}

struct rdma_quirks rdma_quirks_of(struct ibv_device *device, const struct ibv_device_attr *attr)
{
	struct rdma_quirks all = {0};
	const struct rdma_quirks_row *row;

	for (size_t i = 0; i < ARRAY_SIZE(rdma_quirks_table); i++) {
		row = &rdma_quirks_table[i];
		if (!rdma_quirks_fit(row, device, attr))
			continue;
		all.no_invalidate |= row->quirks.no_invalidate;
		all.no_rnr_timer |= row->quirks.no_rnr_timer;
		all.invalidated_flag |= row->quirks.invalidated_flag;
		all.read_access |= row->quirks.read_access;
	}
	return all;
}
