/* SPDX-License-Identifier: MIT */
/*
 * Identify: lists of controllers (NVMe base 2.0 5.17.2.12 and 5.17.2.13), which every reactor has a
 * part of. A namespace is attached to each controller of its subsystem.
 */
#ifndef HAUL_TARGET_IDENTIFY_CTRLS_H
#define HAUL_TARGET_IDENTIFY_CTRLS_H

#include <stdint.h>

struct request;

/* The fields are well; a status. */
uint16_t identify_ctrls_check(const struct request *request);
/* Ends the command, later. */
void identify_ctrls_run(struct request *request);

#endif
