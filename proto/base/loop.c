/* SPDX-License-Identifier: MIT */
/*
 * The turn of the loop and what both engines share: see loop.h. Owns the lists an operation goes
 * through outside of the kernel; knows nothing of how an engine talks to it.
 */
#include "proto/base/loop.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/loop_engine.h"

/* What one step of a turn does at most, so that no source starves the others. */
#define LOOP_BUDGET		256
#define LOOP_POLL_BUDGET	64
/* Rounds of work that end-of-turn work itself adds; the rest waits for the next turn. */
#define LOOP_FLUSH_ROUNDS	4
/* Pause before an operation that failed with EAGAIN is tried again; doubles while all fail. */
#define LOOP_RETRY_PAUSE_NS	1000000ull
#define LOOP_RETRY_PAUSE_MAX_NS 64000000ull

#define LOOP_MAX_OPS 32768u /* the kernel's limit on ring entries */

static uint64_t loop_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- creation ------------------------------------------------------------------------------ */

static void loop_mailbox_ready(struct loop_poll *poll, uint32_t events)
{
	(void)events;
	poll->loop->stats.nr_syscalls++;
	mailbox_drain(&poll->loop->mailbox);
}

static void loop_retry_expired(struct loop_timer *timer)
{
	struct loop *loop = container_of(timer, struct loop, retry_timer);
	struct loop_op *op;

	list_for_each_entry (op, &loop->retries, node)
		op->state = LOOP_OP_SUBMIT;
	list_splice_back(&loop->submits, &loop->retries);
	loop->retry_pause_ns = min_of(2 * loop->retry_pause_ns, LOOP_RETRY_PAUSE_MAX_NS);
}

int loop_init(
	struct loop *loop, const struct loop_engine_ops *engine, const struct loop_options *options)
{
	int err;

	loop->engine = engine;
	loop->now_ns = loop_clock_ns();
	loop->last_work_ns = loop->now_ns;
	loop->spin_ns = options->spin_ns;
	list_init(&loop->submits);
	list_init(&loop->completed);
	list_init(&loop->flushes);
	list_init(&loop->pollers);
	list_init(&loop->retries);
	loop_timer_init(&loop->retry_timer, loop_retry_expired);
	loop->retry_pause_ns = LOOP_RETRY_PAUSE_NS;
	loop->mailbox_poll.ready = loop_mailbox_ready;
	loop->timer_poll.fd = -1;
	loop->timer_fd_deadline_ns = UINT64_MAX;
	err = loop_timers_reserve(loop, 1);
	if (err)
		return err;
	err = loop_watch_init(&loop->watch);
	if (err)
		goto free_timers;
	err = mailbox_init(&loop->mailbox);
	if (err)
		goto exit_watch;
	err = loop_poll_add(loop, &loop->mailbox_poll, loop->mailbox.event_fd, POLLIN);
	if (err)
		goto destroy_mailbox;
	return 0;

destroy_mailbox:
	mailbox_destroy(&loop->mailbox);
exit_watch:
	loop_watch_exit(&loop->watch);
free_timers:
	free(loop->timer_heap);
	return err;
}

void loop_exit(struct loop *loop)
{
	loop_offload_destroy(loop);
	mailbox_destroy(&loop->mailbox);
	loop_watch_exit(&loop->watch);
	if (loop->timer_poll.fd >= 0)
		close(loop->timer_poll.fd);
	free(loop->timer_heap);
}

/* Once a process: every reactor would say the same. */
static void loop_log_fallback(int err)
{
	static atomic_flag was_said = ATOMIC_FLAG_INIT;
	const char *reason = strerror(-err);

	if (err == -EPERM)
		reason = "kernel.io_uring_disabled or a seccomp filter forbids it";
	else if (err == -ENOSYS)
		reason = "this kernel or a seccomp filter does not offer it";
	else if (err == -ENOMEM)
		reason = "memory is short; is RLIMIT_MEMLOCK?";
	if (!atomic_flag_test_and_set(&was_said))
		log_info("io_uring cannot be used (%s): using epoll and libaio", reason);
}

int loop_create(const struct loop_options *options, struct loop **ret)
{
	struct loop_options chosen = options ? *options : (struct loop_options){};
	int err;

	chosen.nr_ops = min_of(chosen.nr_ops ? chosen.nr_ops : LOOP_DEFAULT_OPS, LOOP_MAX_OPS);
	if (chosen.engine == LOOP_ENGINE_EPOLL)
		return loop_epoll_ops.create(&chosen, ret);
	err = loop_uring_ops.create(&chosen, ret);
	if (!err || chosen.engine == LOOP_ENGINE_URING)
		return err;
	loop_log_fallback(err);
	return loop_epoll_ops.create(&chosen, ret);
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	assert(list_empty(&loop->retries) && list_empty(&loop->pollers));
	loop->engine->destroy(loop);
}

const char *loop_engine_name(const struct loop *loop)
{
	return loop->engine->name;
}

int loop_engine_parse(const char *name, enum loop_engine *ret)
{
	static const char *const names[] = {
		[LOOP_ENGINE_AUTO] = "auto",
		[LOOP_ENGINE_URING] = "io_uring",
		[LOOP_ENGINE_EPOLL] = "epoll",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], name))
			continue;
		*ret = (enum loop_engine)i;
		return 0;
	}
	return -EINVAL;
}

/* --- the steps of a turn -------------------------------------------------------------------- */

/* Whether RES is the end of one attempt only. */
static bool loop_op_may_retry(const struct loop_op *op, int res)
{
	if (loop_op_is_disk(op))
		return res == -EAGAIN || res == -EINTR;
	return res == -EINTR && op->kind <= LOOP_OP_TRANSMIT;
}

/* Whether OP is tried again, later, instead of ending. */
static bool loop_op_retry(struct loop *loop, struct loop_op *op)
{
	if (!loop_op_is_disk(op)) {
		op->state = LOOP_OP_SUBMIT;
		list_push_back(&loop->submits, &op->node);
		return true;
	}
	if (!(op->flags & LOOP_OP_RETRIED)) {
		op->flags |= LOOP_OP_RETRIED;
		op->retry_since_ns = loop->now_ns;
	} else if (loop->now_ns - op->retry_since_ns > LOOP_RETRY_LIMIT_NS) {
		return false;
	}
	op->state = LOOP_OP_RETRY;
	list_push_back(&loop->retries, &op->node);
	if (!loop_timer_is_set(&loop->retry_timer))
		loop_timer_set(loop, &loop->retry_timer, loop->now_ns + loop->retry_pause_ns);
	return true;
}

void loop_op_finish(struct loop *loop, struct loop_op *op, int res)
{
	if (unlikely(res == -EAGAIN || res == -EINTR) && loop_op_may_retry(op, res)) {
		if (op->flags & LOOP_OP_CANCELLED)
			res = -ECANCELED;
		else if (loop_op_retry(loop, op))
			return;
	}
	if (unlikely(op->flags & LOOP_OP_RETRIED) && res >= 0)
		loop->retry_pause_ns = LOOP_RETRY_PAUSE_NS;
	op->state = LOOP_OP_IDLE;
	op->done.fn(&op->done, res, 0);
}

static uint32_t loop_turn_pollers(struct loop *loop)
{
	struct loop_poller *poller;
	struct list *node;
	struct list due;
	uint32_t nr = 0;

	/* Each is back in its list before it is called: it may delete itself or others. */
	list_init(&due);
	list_splice_back(&due, &loop->pollers);
	while ((node = list_pop_front(&due))) {
		list_push_back(&loop->pollers, node);
		poller = container_of(node, struct loop_poller, node);
		nr += poller->poll(poller, LOOP_POLL_BUDGET);
	}
	return nr;
}

static uint32_t loop_turn_completed(struct loop *loop)
{
	struct loop_op *op;
	struct list *node;
	struct list due;
	uint32_t nr = 0;

	list_init(&due);
	list_splice_back(&due, &loop->completed);
	while ((node = list_pop_front(&due))) {
		op = container_of(node, struct loop_op, node);
		loop_op_finish(loop, op, op->res);
		nr++;
	}
	return nr;
}

static uint32_t loop_turn_flushes(struct loop *loop)
{
	struct loop_flush *flush;
	struct list *node;
	struct list due;
	uint32_t nr = 0;

	list_init(&due);
	for (unsigned i = 0; i < LOOP_FLUSH_ROUNDS && !list_empty(&loop->flushes); i++) {
		list_splice_back(&due, &loop->flushes);
		while ((node = list_pop_front(&due))) {
			flush = container_of(node, struct loop_flush, node);
			flush->fn(flush);
			nr++;
		}
	}
	return nr;
}

uint32_t loop_turn(struct loop *loop)
{
	uint32_t nr = 0;

	loop->now_ns = loop_clock_ns();
	loop->stats.nr_turns++;
	mailbox_awake(&loop->mailbox);
	nr += mailbox_deliver(&loop->mailbox, LOOP_BUDGET);
	nr += loop_turn_pollers(loop);
	nr += loop->engine->complete(loop, LOOP_BUDGET);
	nr += loop_turn_completed(loop);
	nr += loop_timers_expire(loop, LOOP_BUDGET);
	nr += loop_turn_flushes(loop);
	nr += loop->engine->submit(loop);
	if (nr)
		loop->last_work_ns = loop->now_ns;
	return nr;
}

/* --- sleeping ------------------------------------------------------------------------------- */

/* Asks every source for a wake-up. False: there is work already. */
static bool loop_arm_sources(struct loop *loop)
{
	struct loop_poller *poller;
	bool again = false;

	if (!mailbox_sleep(&loop->mailbox))
		return false;
	list_for_each_entry (poller, &loop->pollers, node)
		again |= poller->arm(poller) != 0;
	return !again && list_empty(&loop->completed) && list_empty(&loop->flushes);
}

static void loop_sleep_until(struct loop *loop, uint64_t deadline_ns)
{
	uint64_t until_ns = min_of(deadline_ns, loop_timers_next_ns(loop));
	uint64_t now_ns = loop_clock_ns();

	loop->stats.nr_sleeps++;
	if (until_ns == UINT64_MAX)
		loop->engine->sleep(loop, -1);
	else
		loop->engine->sleep(loop, until_ns > now_ns ? (int64_t)(until_ns - now_ns) : 0);
}

uint32_t loop_wait(struct loop *loop, int64_t timeout_ns)
{
	uint64_t deadline_ns = UINT64_MAX;
	uint32_t nr;

	if (timeout_ns >= 0)
		deadline_ns = loop_clock_ns() + (uint64_t)timeout_ns;
	for (;;) {
		nr = loop_turn(loop);
		if (nr || loop->now_ns >= deadline_ns)
			return nr;
		if (loop->now_ns - loop->last_work_ns < loop->spin_ns)
			continue;
		if (loop_arm_sources(loop))
			loop_sleep_until(loop, deadline_ns);
	}
}

void loop_run(struct loop *loop)
{
	loop->stopping = false;
	while (!loop->stopping)
		loop_wait(loop, -1);
}

void loop_stop(struct loop *loop)
{
	loop->stopping = true;
}

static void loop_timer_fd_ready(struct loop_poll *poll, uint32_t events)
{
	uint64_t count;

	/* EAGAIN: it was set anew meanwhile. The timers themselves are looked at in each turn. */
	(void)events;
	poll->loop->stats.nr_syscalls++;
	if (read(poll->fd, &count, sizeof(count)) == sizeof(count))
		poll->loop->timer_fd_deadline_ns = UINT64_MAX;
}

int loop_fd(struct loop *loop)
{
	int err;
	int fd;

	if (loop->timer_poll.fd < 0) {
		fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (fd < 0)
			return -errno;
		loop->timer_poll.ready = loop_timer_fd_ready;
		err = loop_poll_add(loop, &loop->timer_poll, fd, POLLIN);
		if (err) {
			close(fd);
			loop->timer_poll.fd = -1;
			return err;
		}
	}
	return loop->engine->fd(loop);
}

/* A later deadline does not move the descriptor's: one look too many is cheaper than a system call
 * for each timer that is set and cancelled. False: the deadline has passed. */
static bool loop_arm_timer_fd(struct loop *loop)
{
	struct itimerspec when = {};
	uint64_t next_ns = loop_timers_next_ns(loop);

	if (next_ns == UINT64_MAX)
		return true;
	if (next_ns <= loop_clock_ns())
		return false;
	if (loop->timer_poll.fd < 0 || next_ns >= loop->timer_fd_deadline_ns)
		return true;
	when.it_value.tv_sec = (time_t)(next_ns / 1000000000u);
	when.it_value.tv_nsec = (long)(next_ns % 1000000000u);
	loop->stats.nr_syscalls++;
	if (timerfd_settime(loop->timer_poll.fd, TFD_TIMER_ABSTIME, &when, NULL))
		return false;
	loop->timer_fd_deadline_ns = next_ns;
	return true;
}

int loop_arm(struct loop *loop)
{
	return !loop_arm_sources(loop) || !loop_arm_timer_fd(loop) || !loop->engine->arm(loop);
}

uint64_t loop_now_ns(const struct loop *loop)
{
	return loop->now_ns;
}

/* --- operations ----------------------------------------------------------------------------- */

void loop_op_submit(struct loop *loop, struct loop_op *op, enum loop_op_kind kind)
{
	list_init(&op->node);
	op->kind = (uint8_t)kind;
	op->flags = 0;
	op->state = LOOP_OP_SUBMIT;
	list_push_back(&loop->submits, &op->node);
	loop->stats.nr_ops++;
}

int loop_file_add(struct loop *loop, struct loop_file *file, int fd, enum loop_file_kind kind)
{
	*file = (struct loop_file){.fd = fd, .slot = -1};
	list_init(&file->waiting[0]);
	list_init(&file->waiting[1]);
	return loop->engine->file_add(loop, file, kind);
}

void loop_file_del(struct loop *loop, struct loop_file *file)
{
	assert(list_empty(&file->waiting[0]) && list_empty(&file->waiting[1]));
	loop->engine->file_del(loop, file);
}

int loop_buffer_register(struct loop *loop, void *base, size_t length)
{
	return loop->engine->buffer_register(loop, base, length);
}

void loop_buffer_unregister(struct loop *loop, int buffer)
{
	if (buffer != LOOP_BUFFER_NONE)
		loop->engine->buffer_unregister(loop, buffer);
}

static void loop_submit_vector(struct loop *loop, struct loop_op *op, enum loop_op_kind kind,
	struct loop_file *file, const struct iovec *iov, uint32_t nr_iov)
{
	op->file = file;
	op->iov = iov;
	op->nr_iov = nr_iov;
	loop_op_submit(loop, op, kind);
}

void loop_read(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer)
{
	op->offset = offset;
	op->buffer = nr_iov == 1 ? buffer : LOOP_BUFFER_NONE;
	loop_submit_vector(loop, op, LOOP_OP_READ, file, iov, nr_iov);
}

void loop_write(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer, bool dsync)
{
	op->offset = offset;
	op->buffer = nr_iov == 1 ? buffer : LOOP_BUFFER_NONE;
	loop_submit_vector(loop, op, LOOP_OP_WRITE, file, iov, nr_iov);
	op->flags = dsync ? LOOP_OP_DATA_ONLY : 0;
}

void loop_fsync(struct loop *loop, struct loop_op *op, struct loop_file *file, bool data_only)
{
	loop_submit_vector(loop, op, LOOP_OP_FSYNC, file, NULL, 0);
	op->flags = data_only ? LOOP_OP_DATA_ONLY : 0;
}

void loop_receive(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov)
{
	loop_submit_vector(loop, op, LOOP_OP_RECEIVE, file, iov, nr_iov);
}

void loop_transmit(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov)
{
	loop_submit_vector(loop, op, LOOP_OP_TRANSMIT, file, iov, nr_iov);
}

void loop_connect(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct sockaddr *address, uint32_t length)
{
	assert(length <= sizeof(op->address));
	memcpy(op->address, address, length);
	loop_submit_vector(loop, op, LOOP_OP_CONNECT, file, NULL, 0);
	op->offset = length;
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	switch ((enum loop_op_state)op->state) {
	case LOOP_OP_SUBMIT:
	case LOOP_OP_WAIT:
	case LOOP_OP_RETRY:
		list_remove(&op->node);
		loop_op_complete(loop, op, -ECANCELED);
		break;
	case LOOP_OP_FLIGHT:
		op->flags |= LOOP_OP_CANCELLED;
		loop->engine->cancel(loop, op);
		break;
	case LOOP_OP_HELPER:
		op->flags |= LOOP_OP_CANCELLED;
		if (loop_offload_cancel(loop, op))
			loop_op_complete(loop, op, -ECANCELED);
		break;
	case LOOP_OP_COMPLETED:
		op->flags |= LOOP_OP_CANCELLED;
		break;
	case LOOP_OP_IDLE:
		break;
	}
}

/* --- messages, pollers, end of turn ---------------------------------------------- */

void loop_send(struct loop *loop, struct loop_message *message)
{
	mailbox_post(&loop->mailbox, message);
}

void loop_poller_add(struct loop *loop, struct loop_poller *poller)
{
	list_init(&poller->node);
	list_push_back(&loop->pollers, &poller->node);
}

void loop_poller_del(struct loop *loop, struct loop_poller *poller)
{
	(void)loop;
	list_remove(&poller->node);
}

void loop_flush_later(struct loop *loop, struct loop_flush *flush)
{
	if (list_empty(&flush->node))
		list_push_back(&loop->flushes, &flush->node);
}

void loop_flush_cancel(struct loop_flush *flush)
{
	list_remove(&flush->node);
}

void loop_stats_get(const struct loop *loop, struct loop_stats *ret)
{
	*ret = loop->stats;
}
