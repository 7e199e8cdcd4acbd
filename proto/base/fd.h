/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that libraries have opened, made fit for a loop.
 */
#ifndef HAUL_BASE_FD_H
#define HAUL_BASE_FD_H

#include <errno.h>
#include <fcntl.h>

#include "proto/base/compiler.h"

static inline must_check int fd_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

#endif
