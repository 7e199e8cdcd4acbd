/* SPDX-License-Identifier: MIT */
/*
 * The data of Reservation Report (NVMe base 2.0 7.5): one entry for each controller of a
 * registrant, one for a registrant that has none.
 */
#ifndef HAUL_TARGET_RESERVATION_REPORT_H
#define HAUL_TARGET_RESERVATION_REPORT_H

#include <stddef.h>
#include <stdint.h>

struct reactor;
struct reservation;
struct reservation_ctrl;
struct round;

/* Collects the controllers of REACTOR that have the task's namespace. */
void reservation_report_visit(struct round *round, struct reactor *reactor);

/* Sorts CTRLS, fills in as much of the report as LENGTH zeroed BYTES can hold. */
void reservation_report_fill(const struct reservation *state, struct reservation_ctrl *ctrls,
	uint32_t nr_ctrls, void *bytes, size_t length);

#endif
