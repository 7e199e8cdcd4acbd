/* SPDX-License-Identifier: MIT */
/*
 * In place of layout_libnvme.c where libnvme's headers are not installed.
 */
#include "tests/unit/nvme/layout.h"

const struct layout_item layout_libnvme[] = {{NULL, 0}};
const size_t layout_nr_libnvme = 0;
