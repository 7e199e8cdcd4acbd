/* SPDX-License-Identifier: MIT */
/*
 * Options of a connect: the caller's, and those of the URI on top.
 */
#ifndef HAUL_INITIATOR_OPTIONS_H
#define HAUL_INITIATOR_OPTIONS_H

#include "initiator/ctrl.h"

/* The URI's options on top of CTRL's. -EINVAL with a text in WHY. */
int options_read(struct haul_ctrl *ctrl, const struct haul_ctrl_options *options, char *why,
	size_t why_size) must_check;

#endif
