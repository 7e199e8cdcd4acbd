/* SPDX-License-Identifier: MIT */
/*
 * Abort (NVMe base 2.0 5.1) finds the command on the reactor of its queue, by message. One that
 * waits, for an event or for a buffer, ends at once. One whose data is on its way ends when that is
 * here, for no transport can call it back; one made of several parts ends after the present part.
 * What a disk has whole is not aborted. The Abort is answered when the response of the aborted
 * command is with its transport.
 */
#ifndef HAUL_TARGET_ABORT_H
#define HAUL_TARGET_ABORT_H

#include <stdint.h>

struct conn;
struct request;

/* The connection has begun to close: what was to be aborted will not be. */
void abort_conn_closes(struct conn *conn);

/* REQUEST of CONN could not be pulled and has been completed with that. */
void abort_pull_failed(struct conn *conn, struct request *request);

#endif
