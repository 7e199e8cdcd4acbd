/* SPDX-License-Identifier: MIT */
/*
 * Without an NQN in its address a connect first finds the only subsystem there is: it asks the
 * discovery controller at that address and those that it refers to. connect.c makes the
 * connections; the decisions are here.
 */
#ifndef HAUL_INITIATOR_LOOKUP_H
#define HAUL_INITIATOR_LOOKUP_H

#include "initiator/ctrl.h"

struct lookup;

/* CTRL->uri and nqn become those of discovery. -ENOMEM. */
int lookup_begin(struct haul_ctrl *ctrl) must_check;
/* NULL is allowed. */
void lookup_free(struct haul_ctrl *ctrl);

/* Takes the log of the controller that is connected now; a failure of that is told in WHY. */
int lookup_take(struct haul_ctrl *ctrl, struct haul_discovery_log *log, char *why,
	size_t why_size) must_check;
/* The controller asked now has failed. True: it was only referred to, the others may do. */
bool lookup_pass_over(struct haul_ctrl *ctrl, const char *why);
/* What fails from now on fails the connect. */
void lookup_end(struct haul_ctrl *ctrl);
/* CTRL->uri and nqn become those of another discovery controller; false: all were asked. */
bool lookup_next(struct haul_ctrl *ctrl);
/* CTRL->uri and nqn become those of the only subsystem, and the look-up is over. Otherwise a
 * negative errno with a text. */
int lookup_choose(struct haul_ctrl *ctrl, char *why, size_t why_size) must_check;

#endif
