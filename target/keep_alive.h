/* SPDX-License-Identifier: MIT */
/*
 * The keep-alive timer of a controller, traffic based (NVMe base 2.0 3.9 and 5.27.1.12): a command
 * on any of its queues shows that the host lives. Admin commands set the time themselves. An I/O
 * queue only counts its commands; its reactor is asked four times in each KATO whether there were
 * any. Hence a host that has fallen silent is dropped KATO to 1.25 x KATO after its last command,
 * plus half a second of grace; one without I/O queues exactly after KATO and the grace.
 */
#ifndef HAUL_TARGET_KEEP_ALIVE_H
#define HAUL_TARGET_KEEP_ALIVE_H

struct conn;
struct ctrl;
struct ctrl_queue;

/* All but the marked ones on the controller's reactor. */
void keep_alive_init(struct ctrl *ctrl);
/* KATO or what the host has done is new: the timer follows. */
void keep_alive_arm(struct ctrl *ctrl);
void keep_alive_stop(struct ctrl *ctrl);
/* CTRL ends, soon, if its host has been silent for three quarters of KATO: a host that lives says
 * something in half of it (NVMe base 2.0 3.9), and a new controller of that host waits. A fence is
 * told when that has been found out, and OVERDUE_ASKED is false again. */
void keep_alive_end_if_overdue(struct ctrl *ctrl);
/* QUEUE goes: no answer will come of it. */
void keep_alive_left(struct ctrl *ctrl, struct ctrl_queue *queue);

/* On the reactor of an I/O queue that begins to close: the commands that nobody has asked for yet
 * are told with member.closing. */
void keep_alive_closing(struct conn *conn);

#endif
