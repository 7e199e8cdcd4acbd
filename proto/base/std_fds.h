/* SPDX-License-Identifier: MIT */
/*
 * Descriptors 0 to 2 of a program that was started without some of them. Included by files with a
 * main() only.
 */
#ifndef HAUL_BASE_STD_FDS_H
#define HAUL_BASE_STD_FDS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/*
 * The first thing in main(). A disk or a socket that became descriptor 1 or 2 would get what is
 * printed. What takes the place of each can do only what nobody asks of it, so that printing fails
 * as it does on a closed descriptor. 0 or a negative errno.
 */
static inline int std_fds_occupy(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;

		/* The lowest one that is free: FD itself. */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) != fd)
			return errno ? -errno : -EBADF;
	}
	return 0;
}

#endif
