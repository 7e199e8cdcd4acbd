/* SPDX-License-Identifier: MIT */
/*
 * The end of commands that have been accepted and shall not be carried out any more: those that
 * wait end at once, those whose data is on its way when it is here. What a disk has is waited for.
 * On one reactor.
 */
#ifndef HAUL_TARGET_REVOKE_H
#define HAUL_TARGET_REVOKE_H

#include <stdbool.h>
#include <stdint.h>

struct cmd;
struct conn;
struct request;

struct revoke {
	uint16_t status; /* that they end with */
	/* What a command becomes whose data is on its way: its run ends it with STATUS. */
	const struct cmd *command;
	bool (*concerns)(const struct revoke *revoke, const struct request *request);
	void (*over)(struct revoke *revoke); /* maybe inside revoke_end() */
	uint32_t nr_awaited;		     /* commands; one more between begin and end */
};

/* All but NR_AWAITED is set. Then revoke_commands() for connections, then the end: OVER is called
 * when all the commands are over. */
void revoke_begin(struct revoke *revoke);
void revoke_commands(struct revoke *revoke, struct conn *conn);
void revoke_end(struct revoke *revoke);
/* None of CONN's commands is waited for any more; OVER is not called. */
void revoke_forget(struct revoke *revoke, struct conn *conn);

/* REQUEST, which someone waits for, is over. */
void revoke_request_over(struct request *request);

#endif
