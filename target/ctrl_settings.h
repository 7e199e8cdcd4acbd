/* SPDX-License-Identifier: MIT */
/*
 * What the features of a controller change for the commands on each of its queues. Queues are on
 * other reactors and never look into their controller: they have a copy, made when they join
 * (target/member.c) and brought by a round when a feature changes.
 */
#ifndef HAUL_TARGET_CTRL_SETTINGS_H
#define HAUL_TARGET_CTRL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct ctrl;
struct request;

/* Command Retry Delay Times, in 100 ms: of a shortage that passes by itself, and of a state that
 * somebody ends. */
#define CTRL_CRDT1 1
#define CTRL_CRDT2 10

struct ctrl_settings {
	bool write_through; /* the volatile write cache is off (NVMe base 2.0 5.27.1.4) */
	bool retry_delays;  /* the host knows Command Interrupted and CRD (5.27.1.18, ACRE) */
};

/* The features of CTRL say something else than its queues know. */
bool ctrl_settings_stale(const struct ctrl *ctrl);
/*
 * A Set Features command that has made it so: ends it when all queues know and, when the cache is
 * off from now on, what was in it is on the media.
 */
void ctrl_settings_spread(struct request *request);

/* An error without DNR as the host of REQUEST may be told it (NVMe base 2.0 figures 92 and 94). */
uint16_t ctrl_settings_retry(const struct request *request, uint16_t status);

#endif
