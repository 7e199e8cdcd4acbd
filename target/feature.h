/* SPDX-License-Identifier: MIT */
/*
 * A feature (NVMe base 2.0 5.27): how its value is read and set. The rows are in features.c, the
 * commands in cmd_features.c.
 */
#ifndef HAUL_TARGET_FEATURE_H
#define HAUL_TARGET_FEATURE_H

#include <stdbool.h>
#include <stdint.h>

struct ctrl;
struct request;

struct feature {
	uint8_t fid;
	bool discovery;	 /* discovery controllers have it, too */
	bool constant;	 /* not changeable: no SET */
	uint16_t length; /* bytes of data, of Get and of Set; then SET_DATA and GET_DATA */
	uint32_t (*get)(const struct ctrl *ctrl, bool standard);
	/* DW0 of the response in *RET_DW0. */
	uint16_t (*set)(struct ctrl *ctrl, uint32_t value, uint32_t *ret_dw0);
	void (*get_data)(const struct ctrl *ctrl, bool standard, void *bytes);
	uint16_t (*set_data)(struct ctrl *ctrl, const void *bytes);
	/* Instead of GET: what CDW11 of Get selects. CHECK judges that for Get. */
	uint16_t (*check)(uint32_t select);
	uint32_t (*get_selected)(const struct ctrl *ctrl, bool standard, uint32_t select);
	/* Instead of all: it is a namespace's. SET_NS completes, also for NVME_NSID_ALL. */
	uint32_t (*get_ns)(const struct request *request, uint32_t nsid);
	void (*set_ns)(struct request *request);
	bool stays; /* a namespace has it although its data is not accessible (NVMe base 2.0 8.1) */
	bool of_reservations; /* an invalid namespace is an invalid field (5.27.1.26, 5.27.1.27) */
};

/* NULL: controllers of this kind have none of that number. */
const struct feature *feature_find(const struct ctrl *ctrl, uint8_t fid);
/* Of the log page 12h; 0: CTRL does not have the feature. */
uint32_t feature_effects(const struct ctrl *ctrl, uint8_t fid);

#endif
