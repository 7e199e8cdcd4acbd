/* SPDX-License-Identifier: MIT */
/*
 * SMART / Health Information (NVMe base 2.0 5.16.1.3): what each reactor has counted for one
 * namespace, or all of a subsystem, added up when a host asks.
 */
#ifndef HAUL_TARGET_SMART_H
#define HAUL_TARGET_SMART_H

#include <stdint.h>

/* Kelvin. There is no sensor: a room's, and limits that a monitor will not find exceeded. */
#define SMART_TEMPERATURE 298
#define SMART_WCTEMP	  343
#define SMART_CCTEMP	  353

struct request;

/* The namespace asked for is one, or none is. */
uint16_t smart_log_check(const struct request *request);
/* Ends the command, later. */
void smart_log_run(struct request *request);

/* The disk of the request's namespace has turned read-only: tells all hosts of the subsystem that
 * want to know, then ends the request, which is in CORE, with STATUS. */
void smart_warn(struct request *request, uint16_t status);

#endif
