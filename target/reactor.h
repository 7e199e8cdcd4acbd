/* SPDX-License-Identifier: MIT */
/*
 * A reactor is a thread with one loop and one pool. Connections, their requests and buffers live
 * and die on it. Reactors share nothing but their mailboxes.
 */
#ifndef HAUL_TARGET_REACTOR_H
#define HAUL_TARGET_REACTOR_H

#include <pthread.h>

#include "proto/base/bufpool.h"
#include "proto/base/loop.h"
#include "target/transport.h"

struct target;

struct reactor {
	uint32_t index;
	struct target *target;
	struct loop *loop;
	struct bufpool *pool;
	pthread_t thread;
	struct list conns;
	uint32_t nr_conns;
	struct transport_state *transport_state[NR_TRANSPORTS]; /* each transport's own */
};

#endif
