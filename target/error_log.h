/* SPDX-License-Identifier: MIT */
/*
 * The Error Information log (NVMe base 2.0 5.16.1.2): what a controller's commands have failed
 * with, the newest first. It is the controller's, on its reactor; errors of I/O queues elsewhere
 * come by message. Nothing of it exists before the first error.
 */
#ifndef HAUL_TARGET_ERROR_LOG_H
#define HAUL_TARGET_ERROR_LOG_H

#include <stdint.h>

#include "proto/nvme/log.h"

struct conn;
struct ctrl;
struct request;

#define ERROR_LOG_ENTRIES 64 /* one page; ELPE says the same 0's based */

struct error_log {
	uint64_t nr_errors; /* over the controller's life; the last entry's error count */
	uint32_t nr_entries;
	uint32_t next;
	struct nvme_log_error entries[ERROR_LOG_ENTRIES];
};

/* REQUEST ends with STATUS, an error. Returns what the host is told: with "more" when there is an
 * entry about it. */
uint16_t error_log_add(struct request *request, uint16_t status);

/* Errors so far. */
uint64_t error_log_count(const struct ctrl *ctrl);
/* All entries, zeroed where there are none. */
void error_log_fill(const struct ctrl *ctrl, struct nvme_log_error ret_entries[ERROR_LOG_ENTRIES]);
/* Controller Level Reset: entries go, the count stays. */
void error_log_reset(struct ctrl *ctrl);

/* The controller, or the connection, is freed. */
void error_log_free(struct ctrl *ctrl);
void error_log_free_report(struct conn *conn);

#endif
