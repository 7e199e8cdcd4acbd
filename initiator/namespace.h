/* SPDX-License-Identifier: MIT */
/*
 * Namespaces: the list of active ones, and what is known of each.
 */
#ifndef HAUL_INITIATOR_NAMESPACE_H
#define HAUL_INITIATOR_NAMESPACE_H

#include "initiator/ctrl.h"

/* A namespace that queues know. */
struct haul_ns {
	struct haul_ns_info info;
	uint32_t block_shift;
};

/* Reads one namespace; made by the caller with malloc; DONE is called once and frees it. */
struct ns_reader {
	struct haul_ctrl *ctrl;
	uint32_t nsid;
	void (*done)(struct ns_reader *reader, int result, uint16_t status, const char *why);
	void *context;
	struct haul_ns_info info;
	_Alignas(16) uint8_t page[4096];
};
int ns_reader_start(struct ns_reader *reader) must_check;
/* Adds a page of the active list. Positive: it was full, go on after ctrl->nsids' last. */
int ns_list_add_page(struct haul_ctrl *ctrl, const void *page) must_check;
/* NULL: not known. */
struct haul_ns *ns_find(const struct haul_ctrl *ctrl, uint32_t nsid);
bool ns_is_active(const struct haul_ctrl *ctrl, uint32_t nsid);
/* A list such as "1, 2, 7" into TEXT. */
void ns_list_text(const struct haul_ctrl *ctrl, char *text, size_t size);
void ns_free_all(struct haul_ctrl *ctrl);

#endif
