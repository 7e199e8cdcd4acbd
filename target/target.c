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
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "proto/link/address.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/subsys.h"

/* I/O that a disk has not done by then is left behind. */
#define TARGET_DRAIN_NS	   10000000000ull
/* The control thread does nothing but wait. */
#define TARGET_CONTROL_OPS 32

void target_init(struct target *target, const struct target_settings *settings)
{
	*target = (struct target){.settings = *settings, .signal_fd = -1};
	list_init(&target->subsystems);
	list_init(&target->ports);
}

void target_port_describe(const struct port *port, char ret_text[TARGET_ADDRESS_TEXT])
{
	char address[ADDRESS_TEXT];

	address_format(&port->address, address);
	snprintf(ret_text, TARGET_ADDRESS_TEXT, "%s://%s", port->ops->name, address);
}

/* --- on the first reactor -------------------------------------------------------------------- */

struct reactor *target_pick_reactor(struct target *target)
{
	uint32_t best = target->next_reactor;

	assert(target->nr_reactors > 0);
	for (uint32_t i = 0; i < target->nr_reactors; i++) {
		uint32_t index = (target->next_reactor + i) % target->nr_reactors;

		if (target->nr_conns[index] < target->nr_conns[best])
			best = index;
	}
	target->next_reactor = (best + 1) % target->nr_reactors;
	target->nr_conns[best]++;
	target->nr_conns_all++;
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

void target_conn_gone(struct target *target, struct reactor *reactor)
{
	target->nr_conns[reactor->index]--;
	target->nr_conns_all--;
	target_try_stopped(target);
}

static void target_unlisten(struct target *target)
{
	struct port *port;

	list_for_each_entry (port, &target->ports, node) {
		if (port->listening)
			port->ops->unlisten(port);
		port->listening = false;
	}
}

static void target_listened(struct loop_message *message);

static void target_listen(struct loop_message *message)
{
	struct target *target = container_of(message, struct target, listen);
	struct port *port;

	list_for_each_entry (port, &target->ports, node) {
		target->listen_error =
			port->ops->listen(port, target->start_why, sizeof(target->start_why));
		if (target->listen_error)
			break;
		port->listening = true;
	}
	target->listen.fn = target_listened;
	loop_send(target->loop, &target->listen);
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

/* --- on the control thread: ports ------------------------------------------------------------ */

/* "on" or "off" of the listener's option KEY. */
static int target_parse_switch(
	const struct nvme_uri_option *option, bool *ret, char *why, size_t why_size)
{
	bool on = !strcmp(option->value, "on");

	if (!on && strcmp(option->value, "off")) {
		snprintf(why, why_size, "option %s=%s of the listener is not 'on' or 'off'",
			option->key, option->value);
		return -EINVAL;
	}
	*ret = on;
	return 0;
}

static int target_parse_option(
	struct port *port, const struct nvme_uri_option *option, char *why, size_t why_size)
{
	bool is_tcp = port->ops->trtype == NVME_TRTYPE_TCP;
	char *end;
	unsigned long tos;

	if (is_tcp && !strcmp(option->key, "hdgst"))
		return target_parse_switch(option, &port->header_digest_allowed, why, why_size);
	if (is_tcp && !strcmp(option->key, "ddgst"))
		return target_parse_switch(option, &port->data_digest_allowed, why, why_size);
	if (strcmp(option->key, "tos")) {
		snprintf(why, why_size, "option '%s' of a %s listener is not known: %s",
			option->key, port->ops->name,
			is_tcp ? "hdgst, ddgst and tos are" : "tos is the only one");
		return -EINVAL;
	}
	tos = strtoul(option->value, &end, 0);
	if (*end || end == option->value || option->value[0] == '-' || tos > 255) {
		snprintf(why, why_size,
			"option tos=%s of the listener is not a number from 0 to 255",
			option->value);
		return -EINVAL;
	}
	port->tos = (uint8_t)tos;
	return 0;
}

static int target_resolve(
	const struct nvme_uri *uri, struct sockaddr_storage *ret, char *why, size_t why_size)
{
	int error = address_resolve(uri->host, uri->port, 0, ret);

	if (error)
		snprintf(why, why_size,
			"the listener's host '%s' cannot be found: %s: give an address of this machine, "
			"or 0.0.0.0 or [::]",
			uri->host, gai_strerror(error));
	return error ? -EINVAL : 0;
}

int target_add_port(
	struct target *target, const struct nvme_uri *uri, bool resolve, char *why, size_t why_size)
{
	struct port *port = calloc(1, sizeof(*port));
	int error = 0;

	if (!port)
		return -ENOMEM;
	list_init(&port->node);
	port->ops = transport_find(uri->trtype);
	port->header_digest_allowed = port->data_digest_allowed = true;
	if (target->nr_ports >= TARGET_MAX_PORTS) {
		snprintf(why, why_size,
			"one listener too many: %u are possible; 0.0.0.0 and [::] are all "
			"addresses in one",
			TARGET_MAX_PORTS);
		error = -EINVAL;
		goto free_port;
	}
	if (resolve)
		error = target_resolve(uri, &port->address, why, why_size);
	for (unsigned i = 0; !error && i < uri->nr_options; i++)
		error = target_parse_option(port, &uri->option[i], why, why_size);
	if (error)
		goto free_port;
	port->portid = (uint16_t)++target->nr_ports;
	list_push_back(&target->ports, &port->node);
	return 0;

free_port:
	free(port);
	return error;
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

static void target_listened(struct loop_message *message)
{
	struct target *target = container_of(message, struct target, listen);

	target->nr_starting--;
	target->start_error = target->listen_error;
}

static void target_reactor_started(struct loop_message *message)
{
	struct reactor *reactor = container_of(message, struct reactor, started);
	struct target *target = reactor->target;

	target->nr_starting--;
	if (!reactor->start_error || target->start_error)
		return;
	target->start_error = reactor->start_error;
	snprintf(target->start_why, sizeof(target->start_why),
		"reactor %u cannot open the namespaces: %s", reactor->index,
		strerror(-reactor->start_error));
}

static void target_await_start(struct target *target)
{
	while (target->nr_starting)
		loop_wait(target->loop, -1);
}

static int target_create_reactors(struct target *target, char *why, size_t why_size)
{
	uint32_t nr = target->settings.nr_reactors;
	uint64_t least;

	target->nr_reactors = nr ? nr : target_default_reactors();
	least = (uint64_t)TARGET_MIN_MEMORY_PER_REACTOR * target->nr_reactors;
	if (target->settings.memory_bytes < least) {
		log_warning(
			"memory for data buffers: %llu MiB instead of %llu bytes, the least for "
			"%u threads",
			(unsigned long long)least >> 20,
			(unsigned long long)target->settings.memory_bytes, target->nr_reactors);
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

/* All run, or none when the first thread cannot be made. */
static int target_start_reactors(struct target *target)
{
	for (uint32_t i = 0; i < target->nr_reactors; i++) {
		struct reactor *reactor = target->reactors[i];
		int error;

		reactor->started.fn = target_reactor_started;
		error = reactor_start(reactor);
		if (error) {
			target->start_error = error;
			snprintf(target->start_why, sizeof(target->start_why),
				"thread of reactor %u cannot be made: %s", i, strerror(-error));
			break;
		}
		target->nr_starting++;
	}
	target_await_start(target);
	return target->start_error;
}

static int target_start_listeners(struct target *target)
{
	struct port *port;

	list_for_each_entry (port, &target->ports, node)
		port->reactor = target->reactors[0];
	target->nr_starting = 1;
	target->listen.fn = target_listen;
	loop_send(target->reactors[0]->loop, &target->listen);
	target_await_start(target);
	return target->start_error;
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
	if (target->draining) {
		target->run_error = -EINTR;
		loop_stop(target->loop);
		return;
	}
	target->draining = true;
	log_info("%s: finishing what is in flight", strsignal((int)info.ssi_signo));
	sd_notify(0, "STOPPING=1");
	loop_timer_set(
		target->loop, &target->deadline, loop_now_ns(target->loop) + TARGET_DRAIN_NS);
	target_begin_stop(target);
}

static void target_signal_set(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGHUP); /* a terminal that is closed; there is nothing to reload */
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
	error = loop_timer_reserve(target->loop);
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

int target_start(struct target *target, char *why, size_t why_size)
{
	/* Waiting is all it does: the engine that costs least. */
	const struct loop_options options = {
		.engine = LOOP_ENGINE_EPOLL, .nr_ops = TARGET_CONTROL_OPS};
	int error = loop_create(&options, &target->loop);

	if (error) {
		snprintf(why, why_size, "no event loop: %s", strerror(-error));
		return error;
	}
	error = target_create_reactors(target, why, why_size);
	if (error)
		return error;
	error = target_start_reactors(target);
	if (!error)
		error = target_start_listeners(target);
	if (error) {
		snprintf(why, why_size, "%s", target->start_why);
		return error;
	}
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
	struct list *node;

	if (target->loop && target->nr_reactors)
		target_stop_reactors(target);
	for (uint32_t i = 0; i < target->nr_reactors; i++)
		reactor_destroy(target->reactors[i]);
	while (!list_empty(&target->subsystems))
		subsys_free(container_of(target->subsystems.next, struct subsys, node));
	while ((node = list_pop_front(&target->ports)))
		free(container_of(node, struct port, node));
	/* The poll of the signals is being taken down. */
	while (target->loop && loop_wait(target->loop, 0))
		;
	loop_destroy(target->loop);
	if (target->signal_fd >= 0)
		close(target->signal_fd);
}
