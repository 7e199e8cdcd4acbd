/* SPDX-License-Identifier: MIT */
/*
 * What a haul_loop is made of, for the library's own files.
 */
#ifndef HAUL_INITIATOR_LOOP_PRIVATE_H
#define HAUL_INITIATOR_LOOP_PRIVATE_H

#include "initiator/transport.h"

struct haul_loop {
	struct loop *loop;
	struct bufpool *pool;
	struct list ctrls;
	struct haul_transport_loop *transport_loop[HAUL_NR_TRANSPORTS];
	struct list mems; /* all registered regions, for devices that come later */
	struct haul_loop_stats stats;
};

#endif
