/* SPDX-License-Identifier: MIT */
/*
 * The discovery log of one host: the discovery controller itself and every subsystem the host may
 * use, on every port.
 */
#ifndef HAUL_TARGET_DISCOVERY_H
#define HAUL_TARGET_DISCOVERY_H

#include <stdint.h>

struct ctrl;

/* Whole log as CTRL's host sees it now. */
uint64_t discovery_log_size(const struct ctrl *ctrl);
/* Its bytes from OFFSET, LENGTH of them at most; what is behind the end is left alone. */
void discovery_log_fill(const struct ctrl *ctrl, uint64_t offset, uint32_t length, void *bytes);

#endif
