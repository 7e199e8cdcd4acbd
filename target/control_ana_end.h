/* SPDX-License-Identifier: MIT */
/*
 * Ends the ANA state "change": hosts are told how long it may last (ANATT, NVMe base 2.0 figure
 * 275). Whoever has set it has that long for another one; then the group is inaccessible there,
 * which is safe whatever was meant to happen. On the control thread.
 */
#ifndef HAUL_TARGET_CONTROL_ANA_END_H
#define HAUL_TARGET_CONTROL_ANA_END_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/nvme/name.h"
#include "target/change.h"

struct target;

/* A group that is in transition at a listener. */
struct control_ana_changing {
	struct list node;
	char nqn[NVME_NQN_MAX + 1];
	uint32_t group;
	uint16_t portid; /* or ANA_OTHER_PORTS */
	uint64_t until_ns;
	bool still; /* in the catalog that counts */
};

struct control_ana_end {
	struct target *target;
	struct change_watch watch;
	struct loop_timer timer;
	struct change change;
	struct list changing; /* of struct control_ana_changing */
	bool asked;	      /* CHANGE is with the queue */
	bool stopped;
};

int control_ana_end_start(struct control_ana_end *end, struct target *target) must_check;
void control_ana_end_stop(struct control_ana_end *end);

#endif
