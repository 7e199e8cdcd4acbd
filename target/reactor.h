/* SPDX-License-Identifier: MIT */
/*
 * A reactor is a thread with one loop and one pool. Connections, their requests and buffers live
 * and die on it. Reactors share nothing but their mailboxes.
 */
#ifndef HAUL_TARGET_REACTOR_H
#define HAUL_TARGET_REACTOR_H

#include <pthread.h>

#include "proto/base/bufpool.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "target/association.h"
#include "target/share.h"
#include "target/transport.h"
#include "target/view_hide.h"

struct target;
struct ctrl;
struct catalog;
struct reactor_ns;

/* Controllers of one reactor; with all reactors never more than there are controller ids. */
#define REACTOR_MAX_CTRLS 1024

#define REACTOR_CTRL_LIMITS 64

enum reactor_stage {
	REACTOR_SERVES,
	REACTOR_SETTLES, /* no connection comes any more; what lies in the sockets is still read */
	REACTOR_DRAINS,	 /* commands that come from now on are held, those before finish */
	REACTOR_CLOSES,
};

struct reactor {
	uint32_t index;
	struct target *target;
	struct loop *loop;
	struct bufpool *pool;
	pthread_t thread;
	bool thread_started;
	struct list conns;
	struct transport_state *transport_state[NR_TRANSPORTS]; /* each transport's own */

	enum reactor_stage stage;
	uint64_t started_ns;
	struct share_table shares;     /* what each host holds of all this */
	uint64_t patience_ns;	       /* see target_settings */
	uint64_t next_conn_number;     /* counts in steps of the number of reactors */
	const struct catalog *catalog; /* what counts here */
	struct list smart_past;	       /* what SMART keeps of namespaces that are gone */
	struct list range_locks; /* of the namespaces that it orders, see target/range_lock.h */
	struct reactor_ns **namespaces;	       /* by place->index, CATALOG_MAX_NAMESPACES */
	struct ctrl *ctrls[REACTOR_MAX_CTRLS]; /* by slot; see ctrl_cntlid() */
	uint32_t nr_ctrls;
	uint32_t next_ctrl_slot; /* round robin: an id is not soon used again */
	/* Who comes and goes, by slot: a burst of many hosts is told, a storm is not. */
	struct log_limit ctrl_log[REACTOR_CTRL_LIMITS];

	struct list fences;		  /* controllers-to-be that wait here: target/fence.h */
	struct loop_timer fence_timer;	  /* the first of their deadlines */
	struct associations associations; /* the first reactor's */
	uint64_t fence_ns;		  /* how long controllers of this reactor wait */

	struct view_hide hide; /* namespaces that some hosts are about to lose sight of */

	struct loop_message drain;     /* to the reactor, and back to the first one */
	struct loop_timer drain_timer; /* the end of SETTLES, then that of DRAINS */
	struct loop_flush drain_check; /* while DRAINS: a request is free again */
	struct loop_message stop;      /* to the reactor: close all */
	struct loop_message exit;      /* to the reactor: nothing is left anywhere */
};

/* Loop and pool, on the control thread. */
int reactor_create(struct target *target, uint32_t index, struct reactor **ret) must_check;

/* Starts its thread, which runs until EXIT. */
int reactor_start(struct reactor *reactor) must_check;

/* From any thread: lets no new connection in and finishes the commands that are in flight, within
 * two seconds; then target_reactor_drained() is called. */
void reactor_drain(struct reactor *reactor);
/* From any thread: closes all connections. */
void reactor_stop(struct reactor *reactor);
/* From any thread: ends the thread. No connection is left on any reactor. */
void reactor_exit(struct reactor *reactor);

/* Waits for the thread, if any, and frees all. NULL is good. */
void reactor_destroy(struct reactor *reactor);

#endif
