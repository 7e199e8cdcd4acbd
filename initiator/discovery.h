/* SPDX-License-Identifier: MIT */
/*
 * The discovery log, and what to connect to of what it lists.
 */
#ifndef HAUL_INITIATOR_DISCOVERY_H
#define HAUL_INITIATOR_DISCOVERY_H

#include "initiator/ctrl.h"

/* Reads the discovery log; made by log_reader_start(); DONE is called once, then it is freed; LOG
 * is DONE's. */
struct log_reader;
int log_reader_start(struct haul_ctrl *ctrl,
	void (*done)(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
		const char *why, struct haul_discovery_log *log),
	void *context) must_check;
/*
 * The entry to connect to of the only NVM subsystem in LOG; NULL with ret_result and a text in WHY
 * when there is none or more than one.
 */
const struct haul_discovery_entry *discovery_choose(const struct haul_discovery_log *log,
	const struct nvme_uri *uri, int *ret_result, char *why, size_t why_size);

/* Puts ENTRY's address into URI, except a wildcard one. */
void discovery_apply(const struct haul_discovery_entry *entry, struct nvme_uri *uri);

/* ENTRY's own address. False: it is none of ours. */
bool discovery_uri(const struct haul_discovery_entry *entry, struct nvme_uri *ret);

/* Puts HOST, where LOG was read, in place of wildcard addresses. */
void discovery_complete(struct haul_discovery_log *log, const char *host);
/* Puts LOG's entries behind those of *ALL, if there is one, and takes or frees LOG in any case.
 * -EMSGSIZE: they are more than one log may have. -ENOMEM. */
int discovery_merge(struct haul_discovery_log **all, struct haul_discovery_log *log) must_check;

#endif
