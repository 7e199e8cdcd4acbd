/* SPDX-License-Identifier: MIT */
/*
 * Namespace Write Protection Config (NVMe base 2.0 5.27.1.28 and 8.12): a host protects a namespace
 * against writes of all hosts, or lets them again. The state is the catalog's, so that all reactors
 * and later changes have it; a change is a catalog like any other. The host is answered when
 * nobody writes any more and what was written is on the media.
 */
#ifndef HAUL_TARGET_WRITE_PROTECT_H
#define HAUL_TARGET_WRITE_PROTECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"

struct catalog;
struct ns;
struct request;
struct reservation_table;
struct target;

/* The state of namespace NSID, which is there. */
uint32_t write_protect_get(const struct request *request, uint32_t nsid);
/* Set Features, in CORE: ends the command, later. */
void write_protect_set(struct request *request);

/* On the control thread, before NS is published: it stays as BEFORE was, if it is the same. */
void write_protect_take_over(struct ns *ns, const struct ns *before);
/* ... and those of CATALOG that are new are as a host has left them in an earlier life. Doing it
 * again changes nothing. */
int write_protect_adopt(struct reservation_table *table, const struct catalog *catalog, char *why,
	size_t why_size) must_check;

/* A protected namespace has to be so after a power cycle, too: not without a state directory. */
bool write_protect_offered(const struct target *target);

#endif
