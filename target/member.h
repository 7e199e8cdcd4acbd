/* SPDX-License-Identifier: MIT */
/*
 * How an I/O queue and its controller, which may live on different reactors, come together and
 * part. All by messages; those of one thread keep their order, which the notes below rely on:
 *
 *   join      the Connect request itself, to the owner and back with a verdict in its completion
 *   closing   the queue's end has begun: a new queue of the same id may wait for it
 *   leave     the queue's last message to the owner; comes back as its permission to be freed
 *   expel     the owner wants the queue closed; sent at most once and before leave's return,
 *             hence the memory it lies in, the connection's, is still there when it arrives
 */
#ifndef HAUL_TARGET_MEMBER_H
#define HAUL_TARGET_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct ctrl;
struct ctrl_queue;
struct request;

/* On the queue's reactor. The Connect REQUEST (CORE, data checked) of queue REQUEST->conn asks to
 * join controller CNTLID; the answer completes it. */
void member_join(struct request *request, uint16_t cntlid);
/* The connection has begun to close. */
void member_closing(struct conn *conn);
/* Nothing of the connection is out any more: true when its controller has let go of it, false when
 * conn_try_finish() will be called again. */
bool member_leave(struct conn *conn);

/* On the owner. */
void member_expel_all(struct ctrl *ctrl);
/* The Connect that waits for an id in use has waited long enough: refused. */
void member_stop_waiting(struct ctrl *ctrl, struct ctrl_queue *queue);

#endif
