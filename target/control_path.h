/* SPDX-License-Identifier: MIT */
/*
 * Where the control socket is: for hauld, which makes it, and for haulctl, which looks for it.
 */
#ifndef HAUL_TARGET_CONTROL_PATH_H
#define HAUL_TARGET_CONTROL_PATH_H

#include <sys/un.h>

#include "proto/base/compiler.h"

/* That of the service. */
#define CONTROL_PATH_SYSTEM "/run/haul/hauld.sock"
/* Under $XDG_RUNTIME_DIR, or that of the service. -ENAMETOOLONG. */
int control_path_default(struct sockaddr_un *ret) must_check;
int control_path_set(struct sockaddr_un *ret, const char *path) must_check;

/* A listening socket at ADDRESS that only this user may connect to. Takes the place of one that
 * nobody listens at any more. -EADDRINUSE: somebody does; -EEXIST: it is no socket. */
int control_path_listen(const struct sockaddr_un *address, int *ret_fd) must_check;

#endif
