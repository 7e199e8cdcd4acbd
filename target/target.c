/* SPDX-License-Identifier: MIT */
/*
 * Starts the target's reactors and listeners, waits for signals, and stops all in order. The
 * process's first thread, here called the control thread, has a loop of its own for that.
 */
#include "target/target.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "target/catalog.h"
#include "target/control.h"
#include "target/port.h"
#include "target/reactor.h"
#include "target/reservation_owner.h"

/* I/O that a disk has not done by then is left behind. */
#define TARGET_DRAIN_NS	   10000000000ull
/* Of disks: the control thread does nothing but wait. */
#define TARGET_CONTROL_OPS 32

int target_init(struct target *target, const struct target_settings *settings)
{
	*target = (struct target){.settings = *settings, .options = *settings, .signal_fd = -1};
	/* So few bytes are never cut short (getrandom(2)). */
	if (getrandom(target->share_key, sizeof(target->share_key), 0) < 0)
		return -errno;
	target->max_conns = TARGET_MAX_CONNS;
	publish_init(&target->publish, target);
	change_queue_init(&target->changes, target);
	target->catalog = catalog_create(NULL);
	return target->catalog ? 0 : -ENOMEM;
}

/* --- on the first reactor -------------------------------------------------------------------- */

struct reactor *target_pick_reactor(struct port *port)
{
	struct target *target = port->reactor->target;
	uint32_t best = target->next_reactor;

	assert(target->nr_reactors > 0);
	for (uint32_t i = 0; i < target->nr_reactors; i++) {
		uint32_t index = (target->next_reactor + i) % target->nr_reactors;

		if (target->load[index] < target->load[best])
			best = index;
	}
	target->next_reactor = (best + 1) % target->nr_reactors;
	target->load[best] += TARGET_LOAD_IO;
	target->nr_conns_all++;
	port_add_conn(port);
	return target->reactors[best];
}

static void target_is_stopped(struct loop_message *message);

static void target_try_stopped(struct target *target)
{
	if (!target->stopping || target->nr_draining || target->nr_conns_all || target->stopped.fn)
		return;
	for (uint32_t i = 0; i < target->nr_reactors; i++)
		reactor_exit(target->reactors[i]);
	target->stopped.fn = target_is_stopped;
	loop_send(target->loop, &target->stopped);
}

void target_conn_is_admin(struct reactor *reactor)
{
	reactor->target->load[reactor->index] -= TARGET_LOAD_IO - TARGET_LOAD_ADMIN;
}

void target_conn_gone(struct port *port, struct reactor *reactor, uint32_t load)
{
	struct target *target = reactor->target;

	port_remove_conn(port);
	target->load[reactor->index] -= load;
	target->nr_conns_all--;
	target_try_stopped(target);
}

static void target_unlisten(struct target *target)
{
	const struct catalog *catalog = target->reactors[0]->catalog;

	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		port_unlisten(catalog->port[i]);
}

static void target_stop(struct loop_message *message)
{
	struct target *target = container_of(message, struct target, stop);

	target->stopping = true;
	target_unlisten(target);
	target->nr_draining = target->nr_reactors;
	for (uint32_t i = 0; i < target->nr_reactors; i++)
		reactor_drain(target->reactors[i]);
}

/* All wait for the last one: the end of an admin queue ends queues of other reactors. */
void target_reactor_drained(struct target *target)
{
	if (--target->nr_draining)
		return;
	for (uint32_t i = 0; i < target->nr_reactors; i++)
		reactor_stop(target->reactors[i]);
	target_try_stopped(target);
}

/* --- on the control thread: start ------------------------------------------------------------ */

static uint32_t target_default_reactors(void)
{
	cpu_set_t cpus;
	int nr = 1;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		nr = CPU_COUNT(&cpus);
	nr = min_of(nr, TARGET_MAX_THREADS_DEFAULT);
	return (uint32_t)max_of(nr, 1);
}

/* As told, or as systemd says (systemd.exec(5), the first directory). */
static void target_state_complete(struct target_settings *settings)
{
	const char *given = getenv("STATE_DIRECTORY");

	if (!settings->state[0] && given && strcspn(given, ":") < sizeof(settings->state))
		snprintf(settings->state, sizeof(settings->state), "%.*s", (int)strcspn(given, ":"),
			given);
}

void target_settings_complete(struct target_settings *settings)
{
	uint64_t least;

	if (!settings->nr_reactors)
		settings->nr_reactors = target_default_reactors();
	least = (uint64_t)TARGET_MIN_MEMORY_PER_REACTOR * settings->nr_reactors;
	settings->memory_bytes = max_of(settings->memory_bytes, least);
	target_state_complete(settings);
	if (!settings->state[0])
		snprintf(settings->state, sizeof(settings->state), "none");
}

static int target_create_reactors(struct target *target, char *why, size_t why_size)
{
	struct target_settings complete = target->settings;
	uint64_t least;

	target_settings_complete(&complete);
	target->nr_reactors = complete.nr_reactors;
	least = complete.memory_bytes;
	if (target->settings.memory_bytes < least) {
		log_warning("the memory for data buffers is raised to %llu MiB, the least for %u "
			    "thread%s",
			(unsigned long long)least >> 20, target->nr_reactors,
			target->nr_reactors > 1 ? "s" : "");
		target->settings.memory_bytes = least;
	}
	for (uint32_t i = 0; i < target->nr_reactors; i++) {
		int error = reactor_create(target, i, &target->reactors[i]);

		if (!error)
			continue;
		snprintf(why, why_size, "reactor %u cannot be made: %s", i, strerror(-error));
		return error;
	}
	return 0;
}

static int target_start_reactors(struct target *target, char *why, size_t why_size)
{
	for (uint32_t i = 0; i < target->nr_reactors; i++) {
		int error = reactor_start(target->reactors[i]);

		if (!error)
			continue;
		snprintf(why, why_size, "thread of reactor %u cannot be made: %s", i,
			strerror(-error));
		return error;
	}
	return 0;
}

static void target_published(struct publish *publish, int error)
{
	publish->target->publish_error = error;
}

static int target_publish_first(
	struct target *target, struct catalog *catalog, char *why, size_t why_size)
{
	publish_start(&target->publish, catalog, target_published);
	while (publish_is_busy(&target->publish))
		loop_wait(target->loop, -1);
	if (target->publish_error)
		snprintf(why, why_size, "%s", target->publish.why);
	return target->publish_error;
}

/* --- on the control thread: signals ---------------------------------------------------------- */

static void target_is_stopped(struct loop_message *message)
{
	struct target *target = container_of(message, struct target, stopped);

	target->is_stopped = true;
	loop_stop(target->loop);
}

static void target_begin_stop(struct target *target)
{
	target->stop.fn = target_stop;
	loop_send(target->reactors[0]->loop, &target->stop);
}

void target_change_is_over(struct target *target)
{
	if (target->draining)
		target_begin_stop(target);
}

static void target_deadline(struct loop_timer *timer)
{
	struct target *target = container_of(timer, struct target, deadline);

	target->run_error = -ETIMEDOUT;
	loop_stop(target->loop);
}

static void target_signalled(struct loop_poll *poll, uint32_t events)
{
	struct target *target = container_of(poll, struct target, signal_poll);
	struct signalfd_siginfo info;

	(void)events;
	if (read(target->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP && control_reload(target->control))
		return;
	if (target->draining) {
		target->run_error = -EINTR;
		loop_stop(target->loop);
		return;
	}
	target->draining = true;
	host_turns_hurry(&target->host_turns);
	host_turns_hurry(&target->reservation_turns);
	host_turns_hurry(&target->auth_turns);
	log_info("%s: finishing what is in flight", strsignal((int)info.ssi_signo));
	sd_notify(0, "STOPPING=1");
	loop_timer_set(
		target->loop, &target->deadline, loop_now_ns(target->loop) + TARGET_DRAIN_NS);
	if (!publish_is_busy(&target->publish))
		target_begin_stop(target);
}

static void target_signal_set(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGHUP); /* reload; without a file a terminal that is closed */
}

int target_block_signals(void)
{
	sigset_t set;

	target_signal_set(&set);
	return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int target_watch_signals(struct target *target)
{
	sigset_t set;
	int error;

	loop_timer_init(&target->deadline, target_deadline);
	error = loop_timers_reserve(target->loop, 1);
	if (error)
		return error;
	target_signal_set(&set);
	target->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (target->signal_fd < 0)
		return -errno;
	target->signal_poll.ready = target_signalled;
	return loop_poll_add(target->loop, &target->signal_poll, target->signal_fd, POLLIN);
}

/* --- on the control thread: start and end ---------------------------------------------------- */

/* Where reservations are kept. */
static int target_open_state(struct target *target, char *why, size_t why_size)
{
	const char *path = target->settings.state;

	target_state_complete(&target->settings);
	return reservation_table_create(
		&target->reservations, strcmp(path, "none") ? path : "", why, why_size);
}

static int target_start_threads(struct target *target, char *why, size_t why_size)
{
	/* Waiting is all it does: the engine that costs least. */
	const struct loop_options options = {
		.engine = LOOP_ENGINE_EPOLL, .nr_ops = TARGET_CONTROL_OPS};
	int error = loop_create(&options, &target->loop);

	if (error) {
		snprintf(why, why_size, "no event loop: %s", strerror(-error));
		return error;
	}
	error = host_turns_init(&target->host_turns, target->loop);
	if (!error)
		error = host_turns_init(&target->reservation_turns, target->loop);
	if (!error)
		error = host_turns_init(&target->auth_turns, target->loop);
	if (!error)
		error = target_create_reactors(target, why, why_size);
	return error ? error : target_start_reactors(target, why, why_size);
}

/* Descriptors that others need must not be connections. */
static void target_limit_conns(struct target *target)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) ||
		limit.rlim_cur >= TARGET_MAX_CONNS + TARGET_OTHER_FDS)
		return;
	target->max_conns = limit.rlim_cur > 2 * TARGET_OTHER_FDS
				    ? (uint32_t)limit.rlim_cur - TARGET_OTHER_FDS
				    : (uint32_t)limit.rlim_cur / 2;
}

int target_start(struct target *target, struct catalog *catalog, char *why, size_t why_size)
{
	int error;

	target_limit_conns(target);
	error = target_open_state(target, why, why_size);
	if (!error)
		error = target_start_threads(target, why, why_size);
	if (error) {
		catalog_free(catalog);
		return error;
	}
	error = target_publish_first(target, catalog, why, why_size);
	if (error)
		return error;
	/* Last: nothing waits here any more, so a signal finds all that it is to stop. */
	error = target_watch_signals(target);
	if (error)
		snprintf(why, why_size, "signals cannot be watched: %s", strerror(-error));
	return error;
}

int target_run(struct target *target)
{
	sd_notify(0, "READY=1");
	loop_run(target->loop);
	loop_poll_del(target->loop, &target->signal_poll, NULL);
	loop_timer_cancel(target->loop, &target->deadline);
	return target->run_error;
}

/* Reactors whose threads run end by themselves when there is nothing left. */
static void target_stop_reactors(struct target *target)
{
	bool all_started = true;

	for (uint32_t i = 0; i < target->nr_reactors; i++)
		all_started &= target->reactors[i] && target->reactors[i]->thread_started;
	if (target->is_stopped)
		return;
	if (!all_started) {
		for (uint32_t i = 0; i < target->nr_reactors; i++)
			if (target->reactors[i] && target->reactors[i]->thread_started)
				reactor_exit(target->reactors[i]);
		return;
	}
	target_begin_stop(target);
	while (!target->is_stopped)
		loop_wait(target->loop, -1);
}

void target_destroy(struct target *target)
{
	if (target->loop && target->nr_reactors)
		target_stop_reactors(target);
	for (uint32_t i = 0; i < target->nr_reactors; i++)
		reactor_destroy(target->reactors[i]);
	/* What the reactors have sent, and the poll of the signals that is being taken down. */
	while (target->loop && loop_wait(target->loop, 0))
		;
	change_queue_end(&target->changes);
	publish_forget(&target->publish);
	reservation_table_free(target->reservations);
	loop_destroy(target->loop);
	if (target->signal_fd >= 0)
		close(target->signal_fd);
}
