/* SPDX-License-Identifier: MIT */
/*
 * Connect, the command that makes a queue of a connection.
 */
#ifndef HAUL_TARGET_CMD_CONNECT_H
#define HAUL_TARGET_CMD_CONNECT_H

#include <stddef.h>
#include <stdint.h>

struct request;

uint16_t cmd_connect_prepare(struct request *request);
void cmd_connect_run(struct request *request);

/* The verdict of an I/O queue's controller; REQUEST is in CORE. */
void cmd_connect_joined(struct request *request, uint16_t status);

/* Connect Invalid Parameters, pointing at a field of struct nvme_connect_data or struct
 * nvme_connect. */
uint16_t cmd_connect_refuse_data(struct request *request, size_t offset);
uint16_t cmd_connect_refuse_cmd(struct request *request, size_t offset);

#endif
