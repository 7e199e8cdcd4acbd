/* SPDX-License-Identifier: MIT */
/*
 * The commands: one row each, found by opcode. A row says which way data moves, how its length is
 * found and what runs when the data is here. All checks of a command's own fields are made in
 * PREPARE, before anything moves.
 */
#ifndef HAUL_TARGET_CMD_H
#define HAUL_TARGET_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include "target/request.h"

struct ctrl;

struct cmd {
	const char *name;
	enum request_direction direction;
	bool before_connect; /* legal on a queue without association */
	bool before_proof;   /* legal while the host has to prove who it is: target/auth.h */
	bool before_ready;   /* legal while CSTS.RDY is 0 */
	/* Checks the fields, sets request->data_len (0 is no data) and scratch_len. NULL: no data
	 * and no fields. A status other than 0 ends the command. */
	uint16_t (*prepare)(struct request *request);
	/* The host may describe more than data_len, up to this: then all of it is brought (Linux
	 * always sends room for 256 ranges with Dataset Management). 0: lengths are equal. */
	uint32_t max_len;
	/* Data from the host is at request->bytes, or room for data_len zeroed bytes (unless
	 * fills_all) is there. In CORE. Ends in request_complete(), now or later. */
	void (*run)(struct request *request);
	uint8_t access; /* enum reservation_access: what a reservation may forbid */
	uint8_t counts; /* enum ns_counts, as a success with this NLB */
	/* Of a command made of several I/Os, while one is with the backend: it is not the last, and
	 * the command ends when it fails. NULL: there is but one. */
	bool (*more_parts)(const struct request *request);
	uint8_t fuse;	  /* its bits in the command's flags: part of a pair (target/fused.h) */
	uint32_t effects; /* besides "supported", in the Commands Supported and Effects log */
	bool fills_all;	  /* TO_HOST: run writes each of data_len bytes */
	bool ends_queue;  /* when its response has left, after success, the connection closes if
			     it is not meant to go on */
};

/* NULL: Invalid Opcode. */
const struct cmd *cmd_find(const struct request *request);
const struct cmd *cmd_fabrics_find(uint8_t fctype);
const struct cmd *cmd_admin_find(uint8_t opcode);
const struct cmd *cmd_discovery_find(uint8_t opcode);
const struct cmd *cmd_io_find(uint8_t opcode);

/* The largest buffer that one command has: a listener's "mdts" is no more. */
#define CMD_MAX_BYTES	   (1u << 20)
/* Of Write Zeroes: 65536 blocks of 512 bytes. Linux takes MDTS where it is told none, and cannot
 * send more blocks. */
#define CMD_WZSL	   13
#define CMD_MAX_ZERO_BYTES (4096u << CMD_WZSL)
static_assert(CMD_MAX_ZERO_BYTES == 65536u * 512);

/* Rows and the bodies that several tables share. */
uint16_t cmd_identify_prepare(struct request *request);
void cmd_identify_run(struct request *request);
uint16_t cmd_get_log_prepare(struct request *request);
void cmd_get_log_run(struct request *request);
uint16_t cmd_set_features_prepare(struct request *request);
void cmd_set_features_run(struct request *request);
uint16_t cmd_get_features_prepare(struct request *request);
void cmd_get_features_run(struct request *request);
void cmd_keep_alive_run(struct request *request);
void cmd_async_event_run(struct request *request);
/* A Property Set (EXEC) that has waited for the I/O queues to leave. */
void cmd_property_go_on(struct request *request);
void cmd_abort_run(struct request *request);

/* Flushes the next of the subsystem's namespaces (request->nr_parts counts them). False: there is
 * none. */
bool cmd_flush_next(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags));

#define CMD_INVALID_FIELD (NVME_SC_INVALID_FIELD | NVME_STATUS_DNR)

#endif
