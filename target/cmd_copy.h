/* SPDX-License-Identifier: MIT */
/*
 * The limits of Copy, which Identify Namespace tells.
 */
#ifndef HAUL_TARGET_CMD_COPY_H
#define HAUL_TARGET_CMD_COPY_H

#include <stdint.h>

/* One command keeps a disk busy for a second or so, not for a minute. */
#define COPY_MAX_RANGES	     256u	  /* MSRC */
#define COPY_MAX_RANGE_BYTES (16u << 20)  /* MSSRL */
#define COPY_MAX_BYTES	     (128u << 20) /* MCL */

#endif
