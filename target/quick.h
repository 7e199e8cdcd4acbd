/* SPDX-License-Identifier: MIT */
/*
 * The quick form: what the target offers, described on the command line.
 */
#ifndef HAUL_TARGET_QUICK_H
#define HAUL_TARGET_QUICK_H

#include <stddef.h>

#include "proto/base/compiler.h"

struct catalog;

/* The value of one --listen: "tcp://127.0.0.1:4420". WHY: one line for the user. */
int quick_listen(struct catalog *catalog, const char *uri, char *why, size_t why_size) must_check;

/* The value of one --export: "PATH[,nqn=NQN][,nsid=N][,uuid=UUID][,block=512|4096][,readonly]". */
int quick_export(struct catalog *catalog, const char *text, char *why, size_t why_size) must_check;

#endif
