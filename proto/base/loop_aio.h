/* SPDX-License-Identifier: MIT */
/*
 * Disk I/O of the epoll engine by Linux AIO; only loop_epoll.c includes it. The context is made
 * when the first file is added: loops that only have sockets need none.
 */
#ifndef HAUL_BASE_LOOP_AIO_H
#define HAUL_BASE_LOOP_AIO_H

#include <libaio.h>

#include "proto/base/loop_engine.h"

#define LOOP_AIO_BATCH 64

struct loop_aio {
	struct loop *loop;
	io_context_t context;
	int event_fd;	   /* signalled by each completion; -1 until loop_aio_setup() */
	uint32_t nr_max;   /* out at once; what is beyond stays in QUEUE */
	uint32_t nr_out;   /* in the kernel */
	struct list queue; /* operations in state SUBMIT */
	struct iocb iocbs[LOOP_AIO_BATCH];
	struct iocb *iocb_pointers[LOOP_AIO_BATCH];
};

void loop_aio_init(struct loop_aio *aio, struct loop *loop, uint32_t nr_ops);
void loop_aio_exit(struct loop_aio *aio);
/* -EAGAIN: fs.aio-max-nr is too low; it was logged. */
int loop_aio_setup(struct loop_aio *aio) must_check;

void loop_aio_queue(struct loop_aio *aio, struct loop_op *op);
void loop_aio_submit(struct loop_aio *aio);
uint32_t loop_aio_reap(struct loop_aio *aio, uint32_t budget);
bool loop_aio_is_ready(const struct loop_aio *aio);

#endif
