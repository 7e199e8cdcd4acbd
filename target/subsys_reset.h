/* SPDX-License-Identifier: MIT */
/*
 * NVM Subsystem Reset (NVMe base 2.0 3.7.1): a host resets all controllers of a subsystem, those
 * of other hosts, too. Hence a subsystem offers it only where the configuration says so. The count
 * of resets is the catalog's, so that all reactors and later controllers have it; a reset is a
 * catalog like any other change, and each controller resets itself when it follows (target/ctrl.h).
 * Namespaces, their write protection and their reservations stay as they are.
 */
#ifndef HAUL_TARGET_SUBSYS_RESET_H
#define HAUL_TARGET_SUBSYS_RESET_H

struct request;

/* Property Set of NSSR, in CORE, on a controller that offers it: ends the command when all
 * controllers are reset. Their I/O queues may go on closing. */
void subsys_reset(struct request *request);

#endif
