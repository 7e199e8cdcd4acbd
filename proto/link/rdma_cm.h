/* SPDX-License-Identifier: MIT */
/*
 * The RDMA connection manager's events on a loop. An event is copied and acknowledged before its
 * owner hears of it, so that the owner may destroy or migrate the id at once: rdma_destroy_id() and
 * rdma_migrate_id() wait for acknowledgements and would never return otherwise.
 */
#ifndef HAUL_LINK_RDMA_CM_H
#define HAUL_LINK_RDMA_CM_H

#include <rdma/rdma_cma.h>

#include "proto/base/loop.h"

#define RDMA_CM_PRIVATE_BYTES 256 /* private_data_len is one byte */

struct rdma_cm_note {
	struct rdma_cm_id *id; /* a CONNECT_REQUEST's new id: the receiver's to destroy */
	enum rdma_cm_event_type type;
	int status; /* 0, a negative errno, or the fabric's reject reason */
	uint8_t initiator_depth;
	uint8_t responder_resources;
	uint32_t private_len;
	uint8_t private_data[RDMA_CM_PRIVATE_BYTES];
};

/* What the context of each id on a channel points to. */
struct rdma_cm_owner {
	void (*event)(struct rdma_cm_owner *owner, const struct rdma_cm_note *note);
};

struct rdma_cm {
	struct loop *loop;
	struct rdma_event_channel *channel;
	struct loop_poll poll;
	uint32_t *nr_closing; /* who waits for its end counts here */
};

int rdma_cm_create(struct loop *loop, struct rdma_cm **ret) must_check;
/* No id is on the channel any more. NULL is allowed. Freed in a later turn of the loop; until then
 * *NR_CLOSING (may be NULL) is one more. */
void rdma_cm_destroy(struct rdma_cm *cm, uint32_t *nr_closing);

/*
 * Takes an id that was made on another thread's channel over to CM, and tells its events to OWNER.
 * The event it came with has been acknowledged, hence this does not block.
 */
int rdma_cm_adopt(
	struct rdma_cm *cm, struct rdma_cm_id *id, struct rdma_cm_owner *owner) must_check;

#endif
