/* SPDX-License-Identifier: MIT */
/*
 * Commands on the admin queue: the library's own and the caller's.
 */
#ifndef HAUL_INITIATOR_ADMIN_H
#define HAUL_INITIATOR_ADMIN_H

#include "initiator/ctrl.h"

/*
 * Sends an admin command; COMPLETED gets the request back with CONTEXT in it, exactly once.
 * TIMEOUT_MS 0: none. -EAGAIN, -ENOTCONN.
 */
int admin_send(struct haul_ctrl *ctrl, const struct nvme_cmd *cmd, void *bytes, uint32_t len,
	int to_host, uint32_t timeout_ms, void (*completed)(struct haul_request *request),
	void *context) must_check;
/* Takes an operation of the caller; NULL: all are out. admin_op_drop(): no event will come. */
struct admin_op *admin_op_get(struct haul_ctrl *ctrl, uint64_t user_data);
void admin_op_drop(struct admin_op *op);
void admin_op_end(struct admin_op *op, int result, uint16_t status, uint64_t value);
/* The errno and the status of a request that came back. */
int request_result(const struct haul_request *request, uint16_t *ret_status);

struct nvme_cmd admin_cmd_identify(uint8_t cns, uint32_t nsid, uint8_t csi);
struct nvme_cmd admin_cmd_property_get(uint32_t offset, bool is_8_bytes);
struct nvme_cmd admin_cmd_property_set(uint32_t offset, uint64_t value);

#endif
