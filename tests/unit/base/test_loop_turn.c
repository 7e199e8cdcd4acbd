/* SPDX-License-Identifier: MIT */
/*
 * The turn of the loop: timers, polls, pollers, messages, helper threads, end-of-turn work,
 * sleeping, and the descriptor for outer loops.
 */
#include "tests/unit/base/engines.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS_NS 1000000ull

/* --- timers --------------------------------------------------------------------------------- */

#define NR_TIMERS 200

struct ticks {
	struct loop_timer timers[NR_TIMERS];
	unsigned order[NR_TIMERS];
	unsigned nr;
};
static struct ticks ticks;

static void tick(struct loop_timer *timer)
{
	ticks.order[ticks.nr++] = (unsigned)(timer - ticks.timers);
}

static void ticks_reserve(struct loop *loop)
{
	ticks.nr = 0;
	for (unsigned i = 0; i < NR_TIMERS; i++) {
		assert_int_equal(loop_timers_reserve(loop, 1), 0);
		loop_timer_init(&ticks.timers[i], tick);
	}
}

static void timers_expire_in_the_order_of_their_deadlines(void **state)
{
	struct loop *loop = *state;
	uint64_t base_ns = loop_now_ns(loop) + MS_NS;
	uint32_t random = 1;
	unsigned nr_set = 0;

	ticks_reserve(loop);
	for (unsigned i = 0; i < NR_TIMERS; i++) {
		random = random * 1103515245u + 12345u;
		loop_timer_set(loop, &ticks.timers[i], base_ns + random % 4000000);
	}
	/* Every third is moved, every fifth cancelled. */
	for (unsigned i = 0; i < NR_TIMERS; i++) {
		random = random * 1103515245u + 12345u;
		if (i % 3 == 0)
			loop_timer_set(loop, &ticks.timers[i], base_ns + random % 4000000);
		if (i % 5 == 0)
			loop_timer_cancel(loop, &ticks.timers[i]);
		if (i % 10 == 0)
			loop_timer_cancel(loop, &ticks.timers[i]);
		nr_set += loop_timer_is_set(&ticks.timers[i]);
	}
	assert_int_equal(nr_set, NR_TIMERS - NR_TIMERS / 5);
	wait_for(loop, ticks.nr == nr_set);
	for (unsigned i = 1; i < ticks.nr; i++)
		assert_true(ticks.timers[ticks.order[i - 1]].deadline_ns <=
			    ticks.timers[ticks.order[i]].deadline_ns);
	for (unsigned i = 0; i < NR_TIMERS; i++) {
		assert_false(loop_timer_is_set(&ticks.timers[i]));
		loop_timers_unreserve(loop, 1);
	}
}

static void a_timer_never_expires_early(void **state)
{
	struct loop *loop = *state;
	uint64_t deadline_ns;

	ticks_reserve(loop);
	for (unsigned i = 0; i < 20; i++) {
		loop_turn(loop);
		deadline_ns = loop_now_ns(loop) + i * 100000;
		ticks.nr = 0;
		loop_timer_set(loop, &ticks.timers[0], deadline_ns);
		wait_for(loop, ticks.nr);
		assert_true(loop_now_ns(loop) >= deadline_ns);
	}
}

static void wait_ends_at_its_limit(void **state)
{
	struct loop *loop = *state;
	uint64_t before_ns;

	loop_turn(loop);
	before_ns = loop_now_ns(loop);
	while (loop_wait(loop, 5 * (int64_t)MS_NS))
		before_ns = loop_now_ns(loop);
	assert_true(loop_now_ns(loop) >= before_ns + 5 * MS_NS);
	assert_int_equal(loop_wait(loop, 0), 0);
}

/* --- polls ---------------------------------------------------------------------------------- */

struct counted_poll {
	struct loop_poll poll;
	struct loop *loop;
	unsigned nr_ready;
	unsigned nr_deleted;
	bool deletes_itself;
};

static void counted_deleted(struct loop_poll *poll)
{
	container_of(poll, struct counted_poll, poll)->nr_deleted++;
}

static void counted_ready(struct loop_poll *poll, uint32_t events)
{
	struct counted_poll *counted = container_of(poll, struct counted_poll, poll);

	assert_true(events & POLLIN);
	counted->nr_ready++;
	if (counted->deletes_itself)
		loop_poll_del(counted->loop, poll, counted_deleted);
}

static void counted_add(struct loop *loop, struct counted_poll *counted, int fd)
{
	*counted = (struct counted_poll){.loop = loop, .poll.ready = counted_ready};
	assert_int_equal(loop_poll_add(loop, &counted->poll, fd, POLLIN), 0);
}

static void a_poll_calls_again_while_readiness_lasts(void **state)
{
	struct counted_poll counted;
	struct loop *loop = *state;
	int fd = eventfd(0, 0);
	uint64_t count;

	counted_add(loop, &counted, fd);
	loop_turn(loop);
	loop_turn(loop);
	assert_int_equal(counted.nr_ready, 0);
	eventfd_write(fd, 1);
	wait_for(loop, counted.nr_ready >= 3);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	/* One event may be on its way. */
	loop_turn(loop);
	loop_turn(loop);
	counted.nr_ready = 0;
	loop_turn(loop);
	loop_turn(loop);
	assert_int_equal(counted.nr_ready, 0);
	eventfd_write(fd, 1);
	wait_for(loop, counted.nr_ready);
	loop_poll_del(loop, &counted.poll, counted_deleted);
	loop_poll_del(loop, &counted.poll, counted_deleted);
	close(fd);
	counted.nr_ready = 0;
	assert_int_equal(counted.nr_deleted, 0);
	wait_for(loop, counted.nr_deleted);
	loop_turn(loop);
	assert_int_equal(counted.nr_ready, 0);
	assert_int_equal(counted.nr_deleted, 1);
}

static void a_poll_may_delete_itself_and_its_descriptor_is_free_at_once(void **state)
{
	struct counted_poll counted[3];
	struct loop *loop = *state;
	int fds[3];

	/* Deleted before its first turn, after some turns, from its own callback. */
	for (unsigned i = 0; i < 3; i++) {
		fds[i] = eventfd(0, 0);
		counted_add(loop, &counted[i], fds[i]);
		counted[i].deletes_itself = i == 2;
		if (i)
			loop_turn(loop);
		if (i == 2) {
			eventfd_write(fds[i], 1);
			wait_for(loop, counted[i].nr_ready);
		} else {
			loop_poll_del(loop, &counted[i].poll, counted_deleted);
		}
		close(fds[i]);
		wait_for(loop, counted[i].nr_deleted);
		loop_turn(loop);
		assert_int_equal(counted[i].nr_ready, i == 2);
		assert_int_equal(counted[i].nr_deleted, 1);
	}
}

static void polls_deleted_with_their_event_on_the_way_are_not_called(void **state)
{
	struct counted_poll counted[8];
	struct loop *loop = *state;
	int fds[8];

	for (unsigned i = 0; i < 8; i++) {
		fds[i] = eventfd(1, 0);
		counted_add(loop, &counted[i], fds[i]);
	}
	loop_turn(loop);
	for (unsigned i = 0; i < 8; i++) {
		counted[i].nr_ready = 0;
		loop_poll_del(loop, &counted[i].poll, counted_deleted);
		close(fds[i]);
	}
	for (unsigned i = 0; i < 8; i++) {
		wait_for(loop, counted[i].nr_deleted);
		assert_int_equal(counted[i].nr_ready, 0);
	}
}

/* --- end-of-turn work, pollers --------------------------------------------------------------- */

static struct loop *flush_loop;
static struct loop_flush flushes[2];
static unsigned nr_flushed[2];

static void flushed(struct loop_flush *flush)
{
	nr_flushed[flush - flushes]++;
	if (flush == &flushes[0])
		loop_flush_later(flush_loop, &flushes[1]);
}

static void end_of_turn_work_added_twice_runs_once(void **state)
{
	struct loop *loop = *state;

	flush_loop = loop;
	nr_flushed[0] = nr_flushed[1] = 0;
	loop_flush_init(&flushes[0], flushed);
	loop_flush_init(&flushes[1], flushed);
	loop_flush_later(loop, &flushes[0]);
	loop_flush_later(loop, &flushes[0]);
	assert_int_equal(nr_flushed[0], 0);
	assert_true(loop_turn(loop) > 0);
	assert_int_equal(nr_flushed[0], 1);
	/* What it added ran in the same turn. */
	assert_int_equal(nr_flushed[1], 1);
	loop_flush_later(loop, &flushes[0]);
	loop_flush_cancel(&flushes[0]);
	loop_flush_cancel(&flushes[0]);
	loop_turn(loop);
	assert_int_equal(nr_flushed[0], 1);
}

struct queue_poller {
	struct loop_poller poller;
	struct loop_poll poll;
	struct loop *loop;
	int fd;
	atomic_uint nr_queued; /* as a completion queue: found by polling; the feeder adds */
	bool armed;	       /* the next entry makes FD readable */
	unsigned nr_taken;
	unsigned nr_armed;
	unsigned nr_late; /* entries that come just before the poller is armed */
	bool deletes_itself;
};

static uint32_t queue_poller_poll(struct loop_poller *poller, uint32_t budget)
{
	struct queue_poller *queue = container_of(poller, struct queue_poller, poller);
	uint32_t nr_queued = queue->nr_queued;
	uint32_t nr = min_of(nr_queued, budget);

	queue->nr_queued -= nr;
	queue->nr_taken += nr;
	if (nr && queue->deletes_itself)
		loop_poller_del(queue->loop, poller);
	return nr;
}

static int queue_poller_arm(struct loop_poller *poller)
{
	struct queue_poller *queue = container_of(poller, struct queue_poller, poller);

	queue->nr_armed++;
	queue->nr_queued += queue->nr_late;
	queue->nr_late = 0;
	return queue->nr_queued != 0;
}

static void queue_poller_ready(struct loop_poll *poll, uint32_t events)
{
	uint64_t count;

	(void)events;
	assert_int_equal(read(poll->fd, &count, sizeof(count)), sizeof(count));
}

static void *queue_poller_feed(void *arg)
{
	struct queue_poller *queue = arg;

	queue->nr_queued++;
	eventfd_write(queue->fd, 1);
	return NULL;
}

static void an_armed_poller_wakes_the_sleeping_loop(void **state)
{
	struct loop *loop = *state;
	struct queue_poller queue = {
		.poller = {.poll = queue_poller_poll, .arm = queue_poller_arm},
		.poll.ready = queue_poller_ready,
		.loop = loop,
		.fd = eventfd(0, 0),
	};

	loop_poller_add(loop, &queue.poller);
	assert_int_equal(loop_poll_add(loop, &queue.poll, queue.fd, POLLIN), 0);
	while (loop_wait(loop, 0))
		;
	/* Found without sleeping. */
	queue.nr_queued = 100;
	wait_for(loop, queue.nr_taken == 100);
	assert_int_equal(queue.nr_armed, 0);
	/* Found as the poller is armed: the loop must not sleep over it. */
	queue.nr_late = 1;
	queue.nr_taken = 0;
	assert_int_equal(loop_wait(loop, 10 * (int64_t)ENGINES_SECOND_NS), 1);
	assert_int_equal(queue.nr_taken, 1);
	assert_true(queue.nr_armed > 0);
	/* Comes while it sleeps. */
	for (unsigned i = 0; i < 3; i++) {
		pthread_t thread;

		queue.nr_armed = 0;
		queue.nr_taken = 0;
		pthread_create(&thread, NULL, queue_poller_feed, &queue);
		wait_for(loop, queue.nr_taken == 1);
		pthread_join(thread, NULL);
	}
	queue.deletes_itself = true;
	queue.nr_queued = 1;
	wait_for(loop, queue.nr_taken == 2);
	loop_turn(loop);
	loop_poll_del(loop, &queue.poll, NULL);
	close(queue.fd);
	loop_turn(loop);
	loop_turn(loop);
}

/* --- helper threads -------------------------------------------------------------------------- */

static int offloaded(void *arg)
{
	struct timespec pause = {.tv_nsec = 1000000};

	nanosleep(&pause, NULL);
	return *(int *)arg;
}

static void offloaded_calls_bring_their_results(void **state)
{
	enum { NR = 20 };
	struct loop *loop = *state;
	struct waited calls[NR];
	int args[NR];

	for (int i = 0; i < NR; i++) {
		args[i] = i % 2 ? i : -EAGAIN;
		waited_init(&calls[i]);
		loop_offload(loop, &calls[i].op, offloaded, &args[i]);
	}
	for (int i = 0; i < NR; i++)
		assert_int_equal(waited_result(loop, &calls[i]), args[i]);
}

static int blocked(void *arg)
{
	sem_wait(arg);
	return 7;
}

static void an_offloaded_call_is_cancelled_while_it_waits(void **state)
{
	enum { NR = 40, NR_HELPERS = 4 };
	struct loop *loop = *state;
	struct waited calls[NR];
	unsigned nr_cancelled = 0;
	sem_t release;
	int res;

	sem_init(&release, 0, 0);
	for (int i = 0; i < NR; i++) {
		waited_init(&calls[i]);
		loop_offload(loop, &calls[i].op, blocked, &release);
	}
	for (int i = 0; i < NR; i++)
		loop_cancel(loop, &calls[i].op);
	for (int i = 0; i < NR; i++)
		sem_post(&release);
	for (int i = 0; i < NR; i++) {
		res = waited_result(loop, &calls[i]);
		assert_true(res == 7 || res == -ECANCELED);
		nr_cancelled += res == -ECANCELED;
	}
	/* All but those that a helper had begun with. */
	assert_true(nr_cancelled >= NR - NR_HELPERS);
	sem_destroy(&release);
}

/* --- sleeping -------------------------------------------------------------------------------- */

static void an_idle_loop_sleeps(void **state)
{
	struct loop_stats before;
	struct loop_stats after;
	struct loop *loop = *state;

	while (loop_wait(loop, 0))
		;
	loop_stats_get(loop, &before);
	assert_int_equal(loop_wait(loop, 50 * (int64_t)MS_NS), 0);
	loop_stats_get(loop, &after);
	assert_in_range(after.nr_sleeps - before.nr_sleeps, 1, 3);
	assert_in_range(after.nr_turns - before.nr_turns, 1, 4);
	assert_in_range(after.nr_syscalls - before.nr_syscalls, 1, 8);
}

static void stop_message(struct loop_message *message);
static struct {
	struct loop_message message;
	struct loop *loop;
} stopper = {.message.fn = stop_message};

static void stop_message(struct loop_message *message)
{
	(void)message;
	loop_stop(stopper.loop);
}

static void *run_loop(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void a_loop_made_here_runs_on_another_thread_until_it_is_stopped(void **state)
{
	struct loop *loop = *state;
	pthread_t thread;

	stopper.loop = loop;
	assert_int_equal(pthread_create(&thread, NULL, run_loop, loop), 0);
	loop_send(loop, &stopper.message);
	pthread_join(thread, NULL);
}

/* --- the descriptor for outer loops ---------------------------------------------------------- */

struct feeder {
	struct loop *loop;
	int fd;
	int socket_fd;
	int stop_fd;
	struct loop_message message;
	unsigned nr_messages;
};

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void feeder_message(struct loop_message *message)
{
	container_of(message, struct feeder, message)->nr_messages++;
}

enum { OUTER_ROUNDS = 600 };

/* Waits for an answer before the next, with a pause of 0 to 1 ms (busy: no sleep is too exact). */
static void *feeder_thread(void *arg)
{
	struct feeder *feeder = arg;
	uint32_t random = 7;
	uint64_t until_ns;
	uint64_t count;

	for (unsigned i = 0; i < OUTER_ROUNDS; i++) {
		random = random * 1103515245u + 12345u;
		until_ns = clock_ns() + (random >> 8) % 1000000;
		while (clock_ns() < until_ns)
			;
		if (i % 3 == 0)
			loop_send(feeder->loop, &feeder->message);
		else if (i % 3 == 1)
			eventfd_write(feeder->fd, 1);
		else if (send(feeder->socket_fd, "x", 1, 0) != 1)
			break;
		if (read(feeder->stop_fd, &count, sizeof(count)) != sizeof(count))
			break;
	}
	return NULL;
}

/* Sleeps in the outer loop as a user of loop_fd() does. Returns false after two seconds of
 * nothing. */
static bool outer_sleep(struct loop *loop, int outer)
{
	struct epoll_event event;

	while (!loop_turn(loop)) {
		if (loop_arm(loop))
			continue;
		if (epoll_wait(outer, &event, 1, 2000) == 0)
			return false;
	}
	return true;
}

static int outer_of(struct loop *loop)
{
	struct epoll_event event = {.events = EPOLLIN};
	int outer = epoll_create1(0);
	int fd = loop_fd(loop);

	assert_true(fd >= 0);
	assert_int_equal(loop_fd(loop), fd);
	assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event), 0);
	return outer;
}

static void an_outer_loop_misses_no_event(void **state)
{
	struct loop *loop = *state;
	struct counted_poll counted;
	struct feeder feeder = {.loop = loop,
		.fd = eventfd(0, EFD_NONBLOCK),
		.stop_fd = eventfd(0, EFD_SEMAPHORE),
		.message.fn = feeder_message};
	int outer = outer_of(loop);
	unsigned nr_seen = 0;
	struct loop_file file;
	struct waited receive;
	pthread_t thread;
	uint64_t count;
	char byte;
	struct iovec iov = {&byte, 1};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	feeder.socket_fd = fds[1];
	assert_int_equal(loop_file_add(loop, &file, fds[0], LOOP_FILE_SOCKET), 0);
	waited_init(&receive);
	loop_receive(loop, &receive.op, &file, &iov, 1);
	counted_add(loop, &counted, feeder.fd);
	pthread_create(&thread, NULL, feeder_thread, &feeder);
	while (nr_seen < OUTER_ROUNDS) {
		if (!outer_sleep(loop, outer))
			fail_msg("stalled after %u events", nr_seen);
		if (counted.nr_ready && read(feeder.fd, &count, sizeof(count)) > 0) {
			counted.nr_ready = 0;
			nr_seen++;
			eventfd_write(feeder.stop_fd, 1);
		}
		if (feeder.nr_messages) {
			feeder.nr_messages = 0;
			nr_seen++;
			eventfd_write(feeder.stop_fd, 1);
		}
		if (receive.nr_done) {
			assert_int_equal(receive.res, 1);
			receive.nr_done = 0;
			nr_seen++;
			loop_receive(loop, &receive.op, &file, &iov, 1);
			eventfd_write(feeder.stop_fd, 1);
		}
	}
	pthread_join(thread, NULL);
	loop_cancel(loop, &receive.op);
	assert_int_equal(waited_result(loop, &receive), -ECANCELED);
	loop_file_del(loop, &file);
	close(fds[0]);
	close(fds[1]);
	loop_poll_del(loop, &counted.poll, counted_deleted);
	wait_for(loop, counted.nr_deleted);
	close(outer);
	close(feeder.fd);
	close(feeder.stop_fd);
}

static void an_outer_loop_is_woken_by_timers(void **state)
{
	struct loop *loop = *state;
	int outer = outer_of(loop);
	uint64_t deadline_ns;

	ticks_reserve(loop);
	for (unsigned i = 0; i < 10; i++) {
		loop_turn(loop);
		ticks.nr = 0;
		deadline_ns = loop_now_ns(loop) + (10 - i) * MS_NS;
		/* A later one first, and one that is cancelled again. */
		loop_timer_set(loop, &ticks.timers[1], deadline_ns + 1000 * MS_NS);
		loop_timer_set(loop, &ticks.timers[2], deadline_ns - MS_NS / 2);
		loop_arm(loop);
		loop_timer_cancel(loop, &ticks.timers[2]);
		loop_timer_set(loop, &ticks.timers[0], deadline_ns);
		while (!ticks.nr)
			assert_true(outer_sleep(loop, outer));
		assert_int_equal(ticks.order[0], 0);
		loop_timer_cancel(loop, &ticks.timers[1]);
	}
	close(outer);
}

static void an_armed_idle_loop_leaves_its_descriptor_quiet(void **state)
{
	struct loop *loop = *state;
	struct pollfd outer = {.fd = loop_fd(loop), .events = POLLIN};

	while (loop_turn(loop) || loop_arm(loop))
		;
	assert_int_equal(poll(&outer, 1, 20), 0);
}

static void an_engine_is_found_by_name(void **state)
{
	enum loop_engine engine = LOOP_ENGINE_AUTO;

	(void)state;
	assert_int_equal(loop_engine_parse("epoll", &engine), 0);
	assert_int_equal(engine, LOOP_ENGINE_EPOLL);
	assert_int_equal(loop_engine_parse("io_uring", &engine), 0);
	assert_int_equal(engine, LOOP_ENGINE_URING);
	assert_int_equal(loop_engine_parse("auto", &engine), 0);
	assert_int_equal(engine, LOOP_ENGINE_AUTO);
	assert_int_equal(loop_engine_parse("kqueue", &engine), -EINVAL);
	assert_int_equal(loop_engine_parse("", &engine), -EINVAL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(timers_expire_in_the_order_of_their_deadlines),
		loop_test(a_timer_never_expires_early),
		loop_test(wait_ends_at_its_limit),
		loop_test(a_poll_calls_again_while_readiness_lasts),
		loop_test(a_poll_may_delete_itself_and_its_descriptor_is_free_at_once),
		loop_test(polls_deleted_with_their_event_on_the_way_are_not_called),
		loop_test(end_of_turn_work_added_twice_runs_once),
		loop_test(an_armed_poller_wakes_the_sleeping_loop),
		loop_test(offloaded_calls_bring_their_results),
		loop_test(an_offloaded_call_is_cancelled_while_it_waits),
		loop_test(an_idle_loop_sleeps),
		loop_test(a_loop_made_here_runs_on_another_thread_until_it_is_stopped),
		loop_test(an_outer_loop_misses_no_event),
		loop_test(an_outer_loop_is_woken_by_timers),
		loop_test(an_armed_idle_loop_leaves_its_descriptor_quiet),
		cmocka_unit_test(an_engine_is_found_by_name),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
