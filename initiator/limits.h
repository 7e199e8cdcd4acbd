/* SPDX-License-Identifier: MIT */
/*
 * What a controller announces about itself, checked once.
 */
#ifndef HAUL_INITIATOR_LIMITS_H
#define HAUL_INITIATOR_LIMITS_H

#include "initiator/ctrl.h"

struct nvme_id_ctrl;
struct nvme_id_ctrl_nvm;
/* Checks Identify Controller and takes what is needed into ctrl->limits. */
int limits_read(struct haul_ctrl *ctrl, const struct nvme_id_ctrl *id, char *why,
	size_t why_size) must_check;
void limits_read_nvm(struct haul_ctrl *ctrl, const struct nvme_id_ctrl_nvm *id);

#endif
