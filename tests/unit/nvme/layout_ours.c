/* SPDX-License-Identifier: MIT */
/*
 * Our side of layout.inc.
 */
#include "tests/unit/nvme/layout.h"

#include "proto/base/compiler.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/log.h"
#include "proto/nvme/nvme.h"
#include "proto/nvme/status.h"

#define SIZE(ours, theirs)			{#ours, sizeof(ours)},
#define FIELD(ours, field, theirs, their_field) {#ours "." #field, offsetof(ours, field)},
#define VALUE(ours, theirs)			{#ours, ours},

const struct layout_item layout_ours[] = {
#include "tests/unit/nvme/layout.inc"
};
const size_t layout_nr_ours = ARRAY_SIZE(layout_ours);
