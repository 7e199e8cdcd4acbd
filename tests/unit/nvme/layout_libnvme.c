/* SPDX-License-Identifier: MIT */
/*
 * libnvme's side of layout.inc: an independent reader of the specification.
 */
#include "tests/unit/nvme/layout.h"

#include <nvme/types.h>

#define SIZE(ours, theirs) {#theirs, sizeof(theirs)},
#define FIELD(ours, field, theirs, their_field) \
	{#theirs "." #their_field, offsetof(theirs, their_field)},
#define VALUE(ours, theirs) {#theirs, theirs},

const struct layout_item layout_libnvme[] = {
#include "tests/unit/nvme/layout.inc"
};
const size_t layout_nr_libnvme = sizeof(layout_libnvme) / sizeof(layout_libnvme[0]);
