/* SPDX-License-Identifier: MIT */
/*
 * The target as a whole: its settings, its catalog, its reactors, and the control thread (the
 * process's first) that starts, changes and stops them. Settings do not change once the reactors
 * run; all else belongs to one reactor or to the control thread.
 */
#ifndef HAUL_TARGET_TARGET_H
#define HAUL_TARGET_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/list.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/nvme/fabrics.h"
#include "target/change.h"
#include "target/host_turns.h"
#include "target/publish.h"

struct catalog;
struct control;
struct port;
struct reactor;
struct reservation_table;

#define TARGET_MAX_REACTORS  64
/* Connections of the process: each is a descriptor and some memory. A host alone may have half. */
#define TARGET_MAX_CONNS     16384
/* Descriptors that are for everything else, if there are so many. */
#define TARGET_OTHER_FDS     512
/* sun_path, with its end. */
#define TARGET_CONTROL_BYTES 108
/* Path of the state directory. */
#define TARGET_STATE_BYTES   1024

struct target_settings {
	uint32_t nr_reactors; /* 0: the CPUs this process may use, at most 8 */
	enum loop_engine engine;
	uint64_t spin_ns;
	uint64_t memory_bytes; /* data buffers of all reactors together */
	uint64_t patience_ns;  /* how long a host may take for its part of a command without data */
	uint32_t kas_ms;       /* the granularity of keep-alive timers, and the least of them */
	uint16_t cntlid_min;   /* controllers have ids from here ... */
	uint16_t cntlid_max;   /* ... to here: another target of the same subsystems has others */
	/* Of its own, beside the well-known one, which it answers to in any case. */
	char discovery_nqn[NVME_NQN_MAX + 1];
	enum log_level log_level;
	char control[TARGET_CONTROL_BYTES]; /* path of the control socket; "": the default, "none"
					     */
	char state[TARGET_STATE_BYTES];	    /* "": $STATE_DIRECTORY, or nothing is kept; "none" */
};
#define TARGET_SETTINGS_DEFAULT                                                           \
	{                                                                                 \
		.engine = LOOP_ENGINE_AUTO, .spin_ns = 20000, .memory_bytes = 512u << 20, \
		.patience_ns = 30000000000ull, .kas_ms = 1000, .cntlid_min = 1,           \
		.cntlid_max = NVME_CNTLID_MAX, .discovery_nqn = NVME_DISCOVERY_NQN,       \
		.log_level = LOG_LEVEL_INFO                                               \
	}
#define TARGET_MAX_THREADS_DEFAULT    8
/* At least one on each reactor. */
#define TARGET_MIN_CNTLIDS	      TARGET_MAX_REACTORS
#define TARGET_MAX_PATIENCE_S	      3600
/* A host that died without a word holds what it has for that long, whatever it has asked for. */
#define TARGET_MAX_KAS_S	      600
/* Each size class of the pool needs a region, on each reactor. */
#define TARGET_MIN_MEMORY_PER_REACTOR (8u << 20)

struct target {
	struct target_settings settings;
	struct target_settings options; /* what they are with a configuration file that is silent */
	uint64_t share_key[2];		/* random; see struct share_table */
	uint32_t nr_reactors;
	struct reactor *reactors[TARGET_MAX_REACTORS];

	/* The first reactor's: it accepts for all and knows how much each has to do. */
	uint32_t load[TARGET_MAX_REACTORS]; /* TARGET_LOAD_* of its connections */
	uint32_t nr_conns_all;
	uint32_t next_reactor;
	bool stopping;
	uint32_t nr_draining; /* reactors that have commands in flight */
	uint32_t max_conns;

	/* The control thread's, and messages between it and the first reactor. */
	struct loop *loop;
	struct catalog *catalog; /* what counts; empty before the first is published */
	struct publish publish;	 /* the change that is under way */
	struct change_queue changes;
	struct host_turns host_turns;	     /* at changes that hosts ask for */
	struct host_turns reservation_turns; /* at storing reservations */
	struct host_turns auth_turns;	     /* at what their authentication takes */
	uint32_t auth_seqnum;		     /* the next challenge's; 0: one at random */
	struct reservation_table *reservations;
	struct control *control;     /* NULL: none, SIGHUP stops */
	int publish_error;	     /* of the first one */
	struct loop_message stop;    /* to the first reactor */
	struct loop_message stopped; /* from it: no connection is left */
	bool is_stopped;
	int run_error;
	int signal_fd;
	struct loop_poll signal_poll;
	struct loop_timer deadline;
	bool draining;
};

/* SETTINGS: those of the command line; a file's may replace them in TARGET until it starts.
 * -ENOMEM. */
int target_init(struct target *target, const struct target_settings *settings) must_check;

/* Puts in what a start makes of what is not set: threads, the least memory, where state is kept. */
void target_settings_complete(struct target_settings *settings);

/* Blocks the signals target_run() waits for, in this thread and those made after. */
int target_block_signals(void) must_check;

/* Makes the reactors, publishes CATALOG, which it takes, and watches the signals: all that can
 * fail. On failure WHY has one line for the user; target_destroy() is due either way. */
int target_start(
	struct target *target, struct catalog *catalog, char *why, size_t why_size) must_check;

/* Until SIGTERM or SIGINT, then drains. 0, or -ETIMEDOUT/-EINTR when connections were left behind
 * after a deadline or a second signal: then nothing may be destroyed, only _exit() is safe. */
int target_run(struct target *target) must_check;

/* After target_start() has failed or target_run() has returned 0, or without either. */
void target_destroy(struct target *target);

/* A change has been published, or not: if a signal came meanwhile, its turn has come. */
void target_change_is_over(struct target *target);

/* What a connection counts for when they are spread over the reactors. Which queue it is turns out
 * at Connect; before, it is taken for what has most to do. An admin queue is not nothing: hosts
 * that have no other (discovery) are spread, too. */
#define TARGET_LOAD_IO	  64
#define TARGET_LOAD_ADMIN 1

/* On the first reactor: the one with the least load, which now has an I/O queue more, from PORT. */
struct reactor *target_pick_reactor(struct port *port);
/* On the first reactor: a connection of REACTOR is an admin queue's. */
void target_conn_is_admin(struct reactor *reactor);
/* On the first reactor: a connection of REACTOR that came in at PORT is over; LOAD was its own. */
void target_conn_gone(struct port *port, struct reactor *reactor, uint32_t load);

/* On the first reactor: no command is in flight on one more reactor, or too long. */
void target_reactor_drained(struct target *target);

#endif
