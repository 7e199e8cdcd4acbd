/* SPDX-License-Identifier: MIT */
/*
 * What a reservation means on a reactor: its state that counts there, conflicts of I/O commands,
 * notices for controllers, and the end of a preempted host's commands. It costs I/O nothing but a
 * test of the namespace's gate while nothing is reserved.
 */
#ifndef HAUL_TARGET_RESERVATION_VISIT_H
#define HAUL_TARGET_RESERVATION_VISIT_H

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct reactor_ns;
struct request;
struct round;
struct reactor;

/* The visit of a change to REACTOR (target/reservation_owner.h). Goes on when the commands of
 * preempted hosts that have to be over are. */
void reservation_visit(struct round *round, struct reactor *reactor);

/* A namespace comes to its reactor, or is described anew: its gate. */
void reservation_set_gate(struct reactor_ns *ns);

/* REQUEST, with its data, is about to run, and the gate says that something is reserved: a status,
 * 0 if it may. */
uint16_t reservation_check(const struct request *request);
/* The same for another namespace than the request's. */
uint16_t reservation_check_ns(const struct request *request, const struct reactor_ns *ns);

#endif
