/* SPDX-License-Identifier: MIT */
/*
 * Helper threads for calls that may block. Each loop has its own few, started as they are needed
 * and ended with it; answers come back through the mailbox.
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "proto/base/loop_engine.h"

/* Blocking calls of one loop that run at the same time. More wait in a queue, which is bounded by
 * the operations of the loop's users. */
#define LOOP_OFFLOAD_THREADS 4

struct loop_offload_pool {
	struct loop *loop;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t work;  /* QUEUE or ENDING changed */
	struct list queue;    /* of operations no helper has begun with */
	uint32_t nr_queued;
	uint32_t nr_idle;
	bool ending;
	/* the loop's thread only */
	uint32_t nr_threads;
	pthread_t threads[LOOP_OFFLOAD_THREADS];
};

static void loop_offload_answered(struct loop_message *message)
{
	struct loop_op *op = container_of(message, struct loop_op, offload.answer);

	/* Straight to the user: -EAGAIN of FN is the user's to understand. */
	op->state = LOOP_OP_IDLE;
	op->done.fn(&op->done, op->res, 0);
}

/* The lock is held. NULL: end. */
static struct loop_op *loop_offload_next(struct loop_offload_pool *pool)
{
	struct list *node;

	while (list_empty(&pool->queue) && !pool->ending) {
		pool->nr_idle++;
		pthread_cond_wait(&pool->work, &pool->lock);
		pool->nr_idle--;
	}
	node = list_pop_front(&pool->queue);
	if (!node)
		return NULL;
	pool->nr_queued--;
	return container_of(node, struct loop_op, node);
}

static void *loop_offload_thread(void *arg)
{
	struct loop_offload_pool *pool = arg;
	struct loop_op *op;

	pthread_setname_np(pthread_self(), "haul-helper");
	pthread_mutex_lock(&pool->lock);
	while ((op = loop_offload_next(pool))) {
		pthread_mutex_unlock(&pool->lock);
		op->res = op->offload.fn(op->offload.arg);
		op->offload.answer.fn = loop_offload_answered;
		loop_send(pool->loop, &op->offload.answer);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static struct loop_offload_pool *loop_offload_pool(struct loop *loop)
{
	struct loop_offload_pool *pool = loop->offload;

	if (pool)
		return pool;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return NULL;
	pool->loop = loop;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	list_init(&pool->queue);
	loop->offload = pool;
	return pool;
}

/* Signals are for the program's own threads. */
static int loop_offload_start_thread(struct loop_offload_pool *pool)
{
	sigset_t all;
	sigset_t before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&pool->threads[pool->nr_threads], NULL, loop_offload_thread, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pool->nr_threads++;
	return -err;
}

void loop_offload_op(struct loop *loop, struct loop_op *op, int (*fn)(void *arg), void *arg)
{
	struct loop_offload_pool *pool = loop_offload_pool(loop);
	bool needs_thread;
	int err = 0;

	if (!pool) {
		loop_op_complete(loop, op, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	needs_thread = pool->nr_queued >= pool->nr_idle && pool->nr_threads < LOOP_OFFLOAD_THREADS;
	pthread_mutex_unlock(&pool->lock);
	if (needs_thread)
		err = loop_offload_start_thread(pool);
	if (err && !pool->nr_threads) {
		loop_op_complete(loop, op, err);
		return;
	}
	op->state = LOOP_OP_HELPER;
	op->offload.fn = fn;
	op->offload.arg = arg;
	pthread_mutex_lock(&pool->lock);
	list_push_back(&pool->queue, &op->node);
	pool->nr_queued++;
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void loop_offload(struct loop *loop, struct loop_op *op, int (*fn)(void *arg), void *arg)
{
	list_init(&op->node);
	op->flags = 0;
	op->kind = LOOP_OP_OFFLOAD;
	loop->stats.nr_ops++;
	loop_offload_op(loop, op, fn, arg);
}

bool loop_offload_cancel(struct loop *loop, struct loop_op *op)
{
	struct loop_offload_pool *pool = loop->offload;
	bool queued;

	pthread_mutex_lock(&pool->lock);
	queued = !list_empty(&op->node);
	list_remove(&op->node);
	pool->nr_queued -= queued;
	pthread_mutex_unlock(&pool->lock);
	return queued;
}

void loop_offload_destroy(struct loop *loop)
{
	struct loop_offload_pool *pool = loop->offload;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	assert(list_empty(&pool->queue));
	pool->ending = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->nr_threads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
	loop->offload = NULL;
}
