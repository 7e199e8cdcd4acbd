/* SPDX-License-Identifier: MIT */
/*
 * Rows of the reservation commands, and the feature that goes with them.
 */
#ifndef HAUL_TARGET_CMD_RESERVATION_H
#define HAUL_TARGET_CMD_RESERVATION_H

#include "target/cmd.h"

extern const struct cmd cmd_reservation_register;
extern const struct cmd cmd_reservation_acquire;
extern const struct cmd cmd_reservation_release;
extern const struct cmd cmd_reservation_report;

/* Reservation Persistence of namespace NSID. */
uint32_t cmd_persistence_get(const struct request *request, uint32_t nsid);
/* Set Features, of one namespace that is there or of all; completes REQUEST. */
void cmd_persistence_set(struct request *request);

#endif
