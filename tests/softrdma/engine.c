/* SPDX-License-Identifier: MIT */
/*
 * The engine thread: epoll over all sockets of the process, timers, and deferred work.
 * It is started at the first use after a fork; a child starts its own.
 */
#include "tests/softrdma/engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ENGINE_BATCH 64

TAILQ_HEAD(sr_timer_list, sr_timer);
TAILQ_HEAD(sr_work_list, sr_work);
LIST_HEAD(sr_source_list, sr_source);

static struct {
	pthread_mutex_t mutex;
	pthread_t thread;
	bool running;
	int epoll_fd;
	int wake_fd;
	int timer_fd;
	uint64_t timer_due;
	struct sr_timer_list timers;
	struct sr_work_list works;
	struct sr_source_list sources;
	struct sr_garbage *garbage;
} engine = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.epoll_fd = -1,
	.wake_fd = -1,
	.timer_fd = -1,
	.timers = TAILQ_HEAD_INITIALIZER(engine.timers),
	.works = TAILQ_HEAD_INITIALIZER(engine.works),
};

void sr_lock(void)
{
	pthread_mutex_lock(&engine.mutex);
}

void sr_unlock(void)
{
	pthread_mutex_unlock(&engine.mutex);
}

bool sr_on_engine(void)
{
	return engine.running && pthread_equal(engine.thread, pthread_self());
}

uint64_t sr_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void engine_wake(void)
{
	uint64_t one = 1;

	if (sr_on_engine())
		return;
	while (write(engine.wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void engine_arm_timerfd(void)
{
	struct sr_timer *first = TAILQ_FIRST(&engine.timers);
	uint64_t due = first ? first->due_ns : 0;
	struct itimerspec when = {
		.it_value = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)},
	};

	if (due == engine.timer_due)
		return;
	engine.timer_due = due;
	timerfd_settime(engine.timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void engine_run_timers(void)
{
	uint64_t now = sr_now_ns();
	struct sr_timer *t;

	while ((t = TAILQ_FIRST(&engine.timers)) && t->due_ns <= now) {
		sr_timer_cancel(t);
		t->fire(t);
	}
}

static void engine_run_works(void)
{
	struct sr_work *w;

	while ((w = TAILQ_FIRST(&engine.works))) {
		sr_work_cancel(w);
		w->run(w);
	}
}

static void engine_free_garbage(void)
{
	while (engine.garbage) {
		struct sr_garbage *g = engine.garbage;

		engine.garbage = g->next;
		free(g->mem);
	}
}

static void engine_drain(int fd)
{
	uint64_t value;

	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
}

static void engine_turn(const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++) {
		struct sr_source *src = events[i].data.ptr;

		if (src->fd >= 0)
			src->ready(src, events[i].events);
	}
	engine_run_timers();
	engine_run_works();
}

/*
 * Two programs that poll on two CPUs would leave none for the engines: the poller does a turn
 * itself. Only the engine's thread frees garbage, as only it may still hold events for it.
 */
void sr_engine_help(void)
{
	struct epoll_event events[ENGINE_BATCH];
	int n;

	if (pthread_mutex_trylock(&engine.mutex))
		return;
	n = epoll_wait(engine.epoll_fd, events, ENGINE_BATCH, 0);
	if (n > 0) {
		engine_turn(events, n);
		engine_arm_timerfd();
	}
	sr_unlock();
}

static void *engine_main(void *arg)
{
	struct epoll_event events[ENGINE_BATCH];

	for (;;) {
		int n = epoll_wait(engine.epoll_fd, events, ENGINE_BATCH, -1);

		sr_lock();
		engine_turn(events, n);
		engine_free_garbage();
		engine_arm_timerfd();
		sr_unlock();
	}
	return arg;
}

static void engine_ready_wake(struct sr_source *src, uint32_t events)
{
	(void)events;
	engine_drain(src->fd);
	if (src->fd == engine.timer_fd)
		engine.timer_due = 0;
}

static struct sr_source engine_wake_source = {.fd = -1, .ready = engine_ready_wake};
static struct sr_source engine_timer_source = {.fd = -1, .ready = engine_ready_wake};

static int engine_open(void)
{
	engine.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	engine.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	engine.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	engine.timer_due = 0;
	if (engine.epoll_fd < 0 || engine.wake_fd < 0 || engine.timer_fd < 0)
		return errno;
	engine_wake_source.fd = engine.wake_fd;
	engine_timer_source.fd = engine.timer_fd;
	sr_source_add(&engine_wake_source, EPOLLIN);
	sr_source_add(&engine_timer_source, EPOLLIN);
	return 0;
}

static void engine_close(void)
{
	struct sr_source *src;

	while ((src = LIST_FIRST(&engine.sources))) {
		LIST_REMOVE(src, link);
		close(src->fd);
		src->fd = -1;
	}
	close(engine.epoll_fd);
	engine.epoll_fd = engine.wake_fd = engine.timer_fd = -1;
}

/* The program's own signals must go to the program's own threads. */
static int engine_spawn(void)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&engine.thread, NULL, engine_main, NULL);
	if (!ret)
		pthread_setname_np(engine.thread, "softrdma");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!ret)
		pthread_detach(engine.thread);
	return ret;
}

/*
 * A child has none of its parent's objects (as with real devices, where the child must open its
 * own), and no thread. The sockets are the parent's: the child's copies would keep a dead parent's
 * connections up.
 */
static void engine_forked(void)
{
	pthread_mutex_init(&engine.mutex, NULL);
	engine.running = false;
	TAILQ_INIT(&engine.timers);
	TAILQ_INIT(&engine.works);
	engine.garbage = NULL;
	if (engine.epoll_fd >= 0)
		engine_close();
}

int sr_engine_start(void)
{
	static bool registered;
	int ret = 0;

	sr_lock();
	if (!engine.running) {
		if (!registered)
			pthread_atfork(sr_lock, sr_unlock, engine_forked);
		registered = true;
		ret = engine_open();
		if (!ret)
			ret = engine_spawn();
		engine.running = !ret;
	}
	sr_unlock();
	return ret;
}

int sr_source_add(struct sr_source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	src->events = events;
	if (epoll_ctl(engine.epoll_fd, EPOLL_CTL_ADD, src->fd, &ev))
		return errno;
	LIST_INSERT_HEAD(&engine.sources, src, link);
	return 0;
}

void sr_source_want(struct sr_source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	if (src->events == events)
		return;
	src->events = events;
	epoll_ctl(engine.epoll_fd, EPOLL_CTL_MOD, src->fd, &ev);
}

void sr_source_ignore(struct sr_source *src)
{
	if (src->fd >= 0 && !epoll_ctl(engine.epoll_fd, EPOLL_CTL_DEL, src->fd, NULL))
		LIST_REMOVE(src, link);
}

void sr_source_close(struct sr_source *src)
{
	if (src->fd < 0)
		return;
	sr_source_ignore(src);
	close(src->fd);
	src->fd = -1;
}

void sr_timer_arm(struct sr_timer *timer, uint64_t delay_ns)
{
	struct sr_timer *t;

	sr_timer_cancel(timer);
	timer->due_ns = sr_now_ns() + delay_ns;
	TAILQ_FOREACH_REVERSE(t, &engine.timers, sr_timer_list, link)
	{
		if (t->due_ns <= timer->due_ns)
			break;
	}
	if (t)
		TAILQ_INSERT_AFTER(&engine.timers, t, timer, link);
	else
		TAILQ_INSERT_HEAD(&engine.timers, timer, link);
	if (!sr_on_engine())
		engine_arm_timerfd();
}

void sr_timer_cancel(struct sr_timer *timer)
{
	if (!timer->due_ns)
		return;
	timer->due_ns = 0;
	TAILQ_REMOVE(&engine.timers, timer, link);
}

void sr_work_queue(struct sr_work *work)
{
	if (work->queued)
		return;
	if (TAILQ_EMPTY(&engine.works))
		engine_wake();
	work->queued = true;
	TAILQ_INSERT_TAIL(&engine.works, work, link);
}

void sr_work_cancel(struct sr_work *work)
{
	if (!work->queued)
		return;
	work->queued = false;
	TAILQ_REMOVE(&engine.works, work, link);
}

void sr_garbage_add(struct sr_garbage *garbage, void *mem)
{
	garbage->mem = mem;
	garbage->next = engine.garbage;
	engine.garbage = garbage;
	engine_wake();
}
