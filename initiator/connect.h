/* SPDX-License-Identifier: MIT */
/*
 * The steps that connect a controller, under one deadline.
 */
#ifndef HAUL_INITIATOR_CONNECT_H
#define HAUL_INITIATOR_CONNECT_H

#include "initiator/ctrl.h"

void connect_start(struct haul_ctrl *ctrl);
/* The present step has succeeded; has failed. */
void connect_step_done(struct haul_ctrl *ctrl);
void connect_step_failed(struct haul_ctrl *ctrl, int result, const char *format, ...)
	printf_like(3, 4);
void connect_step_expired(struct loop_timer *timer);
void connect_deadline_expired(struct loop_timer *timer);
void connect_admin_closed(struct haul_ctrl *ctrl);

#endif
