/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the loop share among themselves; nobody else includes it. loop.c owns the
 * turn, an engine moves operations to the kernel and back.
 */
#ifndef HAUL_BASE_LOOP_ENGINE_H
#define HAUL_BASE_LOOP_ENGINE_H

#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/base/loop_watch.h"
#include "proto/base/mailbox.h"

#define LOOP_DEFAULT_OPS 1024u

/* An operation's life: IDLE, then SUBMIT, then one of the three in the middle, then IDLE; an end
 * that comes inside a call of the user's waits in COMPLETED. */
enum loop_op_state {
	LOOP_OP_IDLE,	   /* the caller's */
	LOOP_OP_SUBMIT,	   /* in a list, not yet with the kernel */
	LOOP_OP_WAIT,	   /* epoll engine: in a file's list until that is ready */
	LOOP_OP_RETRY,	   /* in loop->retries */
	LOOP_OP_FLIGHT,	   /* with the kernel */
	LOOP_OP_HELPER,	   /* with the helper threads */
	LOOP_OP_COMPLETED, /* in loop->completed, RES is set */
};

enum loop_op_kind {
	LOOP_OP_READ,
	LOOP_OP_WRITE,
	LOOP_OP_FSYNC,
	LOOP_OP_RECEIVE,
	LOOP_OP_TRANSMIT,
	LOOP_OP_CONNECT,
	LOOP_OP_POLL,
	LOOP_OP_OFFLOAD,
};

#define LOOP_OP_DATA_ONLY 1u /* write: dsync; fsync: fdatasync */
#define LOOP_OP_RETRIED	  2u /* retry_since_ns is set */
#define LOOP_OP_CANCELLED 4u /* it is not tried again */

struct loop_engine_ops {
	const char *name;
	int (*create)(const struct loop_options *options, struct loop **ret);
	void (*destroy)(struct loop *loop);
	int (*file_add)(struct loop *loop, struct loop_file *file, enum loop_file_kind kind);
	void (*file_del)(struct loop *loop, struct loop_file *file);
	int (*buffer_register)(struct loop *loop, void *base, size_t length);
	void (*buffer_unregister)(struct loop *loop, int buffer);
	void (*cancel)(struct loop *loop, struct loop_op *op); /* OP is in FLIGHT */
	uint32_t (*submit)(struct loop *loop);		       /* all of loop->submits */
	uint32_t (*complete)(struct loop *loop, uint32_t budget);
	void (*sleep)(struct loop *loop, int64_t timeout_ns);
	int (*fd)(struct loop *loop);	/* for an outer loop */
	bool (*arm)(struct loop *loop); /* fd() is about to be waited for; false: look again */
};

extern const struct loop_engine_ops loop_uring_ops;
extern const struct loop_engine_ops loop_epoll_ops;

struct loop_offload_pool;

/* Embedded as first member in each engine's own. */
struct loop {
	const struct loop_engine_ops *engine;
	uint64_t now_ns;
	uint64_t last_work_ns;
	uint64_t spin_ns;
	struct list submits;   /* to be given to the engine at the end of the turn */
	struct list completed; /* to be called in the next turn */
	struct list flushes;
	struct list pollers;

	struct loop_timer **timer_heap; /* owned; entries 1 to nr_timers are used */
	uint32_t nr_timers;
	uint32_t nr_timers_reserved;
	uint32_t nr_timers_room;

	struct list retries;
	struct loop_timer retry_timer;
	uint64_t retry_pause_ns;

	struct loop_watch watch;
	struct mailbox mailbox;
	struct loop_poll mailbox_poll;
	struct loop_poll timer_poll; /* for an outer loop only; fd -1 until then */
	uint64_t timer_fd_deadline_ns;

	struct loop_offload_pool *offload; /* owned; NULL until first use */
	bool stopping;
	struct loop_stats stats;
};

/* The engine's share of creation: what is common, before any operation is possible. */
int loop_init(struct loop *loop, const struct loop_engine_ops *engine,
	const struct loop_options *options) must_check;

/* Undoes loop_init(). */
void loop_exit(struct loop *loop);

/* Starts OP, whose other fields are set. */
void loop_op_submit(struct loop *loop, struct loop_op *op, enum loop_op_kind kind);

/* Ends OP now. In the completions step only. */
void loop_op_finish(struct loop *loop, struct loop_op *op, int res);

/* Ends OP in the next turn. OP is in no list. */
static inline void loop_op_complete(struct loop *loop, struct loop_op *op, int res)
{
	op->res = res;
	op->state = LOOP_OP_COMPLETED;
	list_push_back(&loop->completed, &op->node);
}

static inline bool loop_op_is_disk(const struct loop_op *op)
{
	return op->kind <= LOOP_OP_FSYNC;
}

/* --- loop_timer.c */
uint32_t loop_timers_expire(struct loop *loop, uint32_t budget);
/* UINT64_MAX when none is set. */
static inline uint64_t loop_timers_next_ns(const struct loop *loop)
{
	return loop->nr_timers ? loop->timer_heap[1]->deadline_ns : UINT64_MAX;
}

/* --- loop_offload.c */
/* Removes OP if no helper has begun with it; then it is in no list. */
bool loop_offload_cancel(struct loop *loop, struct loop_op *op);
/* Runs FN for an operation that the engine cannot do; OP is in no list and out. */
void loop_offload_op(struct loop *loop, struct loop_op *op, int (*fn)(void *arg), void *arg);
void loop_offload_destroy(struct loop *loop);

#endif
