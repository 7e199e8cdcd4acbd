/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fio's engine over libhaul: what its files share. Nothing is global: everything belongs to one
 * job, is made after fio's last fork (init) and ends with the job (cleanup).
 */
#ifndef FIO_HAUL_H
#define FIO_HAUL_H

#include <fio.h>
#include <optgroup.h>
#include <verify.h>

#include "initiator/haul.h"

struct fio_haul_options {
	void *pad; /* fio takes offset 0 for "no offset" */
	char *uri;
	char *hostnqn, *hostid, *haul_engine;
	unsigned int hdgst, ddgst, tos;
	unsigned int queue_depth;
	unsigned int keep_alive, command_timeout, connect_timeout; /* milliseconds */
};

/* An association; files of one subsystem share it. */
struct fio_haul_ctrl {
	char *uri; /* without NSID */
	struct haul_ctrl *ctrl;
	bool told; /* that it is lost */
};

/* What one of fio's files is: a namespace and, for I/O, this job's queue to it. */
struct fio_haul_volume {
	struct haul_ctrl *ctrl;
	uint32_t nsid;
	struct haul_ns_info info;
	struct haul_queue *queue;
};

struct fio_haul_job {
	struct thread_data *td;
	struct haul_loop *loop;
	struct fio_haul_ctrl *ctrls;
	unsigned nr_ctrls;
	struct fio_haul_volume *volumes; /* by fio_file's fileno */
	unsigned nr_volumes;
	struct haul_mem *mem;	   /* fio's buffers */
	struct haul_event *events; /* of the last getevents(); iodepth of them */
	struct io_u **queued;	   /* since the last commit() */
	unsigned nr_queued;
};

/*
 * Connects to every volume of TD's files and reads its size; FOR_IO: makes the queues, too. 0 or a
 * positive errno that TD has been told, with a text.
 */
int fio_haul_open(struct thread_data *td, int for_io, struct fio_haul_job **ret);
/* Disconnects in order and frees; NULL is allowed. */
void fio_haul_close(struct fio_haul_job *job);

/* Everything about sizes and offsets that can be known before I/O; 0 or a positive errno. */
int fio_haul_check(struct thread_data *td, const struct fio_haul_job *job);

#endif
