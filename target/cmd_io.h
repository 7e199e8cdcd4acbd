/* SPDX-License-Identifier: MIT */
/*
 * What the I/O commands have in common, and the rows of those that have a file of their own.
 */
#ifndef HAUL_TARGET_CMD_IO_H
#define HAUL_TARGET_CMD_IO_H

#include "target/cmd.h"
#include "target/conn.h"
#include "target/reservation.h"
#include "target/subsys.h"

/* Checks for PREPARE: a status, 0 when all is well. */
uint16_t cmd_io_find_ns(struct request *request);
static inline uint16_t cmd_io_check_range(const struct ns *ns, uint64_t slba, uint64_t nr_lbas)
{
	/* In this order nothing overflows (B063). */
	if (nr_lbas > ns->nr_lbas || slba > ns->nr_lbas - nr_lbas)
		return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
	return 0;
}

static inline uint16_t cmd_io_check_writable(const struct ns *ns)
{
	return ns->read_only ? NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR : 0;
}

/* Of an I/O whose operation is set, with the upper half of CDW12: asked for, or a write while the
 * cache is off. */
static inline bool cmd_io_force_unit_access(const struct request *request, uint16_t control)
{
	return (control & NVME_RW_FUA) ||
	       (request->io.op != BACKEND_READ && unlikely(request->conn->settings.write_through));
}

/* Namespace and range of a command with struct nvme_cmd_rw, into request->io. */
uint16_t cmd_io_prepare_rw(struct request *request, enum backend_op op);
/* ... which moves as much data, within MDTS. */
uint16_t cmd_io_prepare_transfer(struct request *request, enum backend_op op);

/* The status of an I/O that ended with RES. */
uint16_t cmd_io_status(struct backend_io *io, int res);
/* Ends the command with its only I/O. */
void cmd_io_done(struct done *done, int res, unsigned flags);

/*
 * What shall be read with FUA has to come from the medium (NVM command set 1.0 3.2.4): true when a
 * volatile cache is flushed first. Then the command's run is called again.
 */
bool cmd_io_flush_first(struct request *request);

extern const struct cmd cmd_compare;
extern const struct cmd cmd_copy;
extern const struct cmd cmd_dsm;
extern const struct cmd cmd_verify;

#endif
