/* SPDX-License-Identifier: MIT */
/*
 * Programs of users of libhaul that do what haul and fio do not: sleep between I/Os, keep two
 * targets on one loop, fork, connect again and again.
 *
 *	user gaps URI ENGINE COUNT     prints the longest time from a start to its event
 *	user two URI URI ENGINE BATCH  reads from both, until the first one dies
 *	user fork URI ENGINE COUNT     writes and reads while COUNT children come and go
 *	user rounds URI ENGINE COUNT   connects, makes queues, reads, closes and disconnects
 *	user borders URI ENGINE        I/O across the borders of registered memory
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "initiator/haul.h"

enum {
	DEPTH = 128,
	BLOCK = 4096,
	MAX_EVENTS = 128,
	BURST_EVENTS = 16, /* taken at once: a burst needs several turns */
	NR_BURSTS = 20,
	NR_QUEUES = 8,
	MORE_READS = 2000, /* of the target that lives on */
};

/* One association with its queue. */
struct user {
	struct haul_loop *loop;
	struct haul_ctrl *ctrl;
	struct haul_queue *queue;
	uint32_t nsid;
	uint32_t number;
	unsigned char *bytes; /* DEPTH blocks */
	struct haul_mem *mem;
	bool out[DEPTH];
	unsigned nr_out, nr_good, nr_bad;
	bool lost;
};

static uint64_t user_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void user_die(const struct user *user, const char *step, int result)
{
	fprintf(stderr, "user: %s: %s: %s\n", step, strerror(-result),
		user->ctrl ? haul_ctrl_error(user->ctrl) : haul_loop_error(user->loop));
	exit(1);
}

static void user_must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "user: not so: %s\n", what);
	exit(1);
}

/* The one event that is out; its result. */
static int user_wait(struct user *user, int started)
{
	struct haul_event event;

	if (started)
		return started;
	while (haul_loop_wait(user->loop, &event, 1, -1) == 0)
		;
	return event.result;
}

static void user_step(struct user *user, const char *step, int started)
{
	int result = user_wait(user, started);

	if (result)
		user_die(user, step, result);
}

static struct haul_loop *user_loop(const char *engine)
{
	const struct haul_loop_options options = {.size = sizeof(options), .engine = engine};
	struct haul_loop *loop = NULL;
	int result = haul_loop_create(&options, &loop);

	if (result) {
		fprintf(stderr, "user: no loop: %s\n", strerror(-result));
		exit(1);
	}
	return loop;
}

static void user_connect(struct user *user, const char *uri)
{
	const struct haul_queue_options options = {.size = sizeof(options), .depth = DEPTH};
	struct haul_ns_info ns;
	int64_t nsid;

	user_step(user, "connect", haul_connect(user->loop, uri, NULL, 0, &user->ctrl));
	nsid = haul_ns_default(user->ctrl);
	if (nsid < 0)
		user_die(user, "namespace", (int)nsid);
	user->nsid = (uint32_t)nsid;
	user_step(user, "namespace", haul_ns_info(user->ctrl, user->nsid, &ns, 0));
	user_step(user, "queue", haul_queue_create(user->ctrl, &options, 0, &user->queue));
}

static void user_disconnect(struct user *user)
{
	user_step(user, "disconnect", haul_disconnect(user->ctrl, 0));
	haul_ctrl_free(user->ctrl);
	user->ctrl = NULL;
}

static void user_memory(struct user *user)
{
	int result;

	user->bytes = aligned_alloc(BLOCK, (size_t)DEPTH * BLOCK);
	user_must(user->bytes, "there is memory");
	memset(user->bytes, 0, (size_t)DEPTH * BLOCK);
	result = haul_mem_register(user->loop, user->bytes, (size_t)DEPTH * BLOCK, &user->mem);
	if (result)
		user_die(user, "register", result);
}

static int user_start(struct user *user, uint32_t slot, bool write)
{
	struct iovec iov = {user->bytes + (size_t)slot * BLOCK, BLOCK};
	uint64_t offset = (uint64_t)slot * BLOCK, data = (uint64_t)user->number << 32 | slot;

	return write ? haul_writev(user->queue, user->nsid, &iov, 1, offset, 0, data)
		     : haul_readv(user->queue, user->nsid, &iov, 1, offset, data);
}

/* What block SLOT holds on the target of USER. */
static void user_fill(const struct user *user, uint32_t slot, uint32_t salt)
{
	uint32_t *word = (uint32_t *)(void *)(user->bytes + (size_t)slot * BLOCK), i;

	for (i = 0; i < BLOCK / sizeof(*word); i++)
		word[i] = (user->number + 1) * 0x01000193u ^ slot << 16 ^ salt << 4 ^ i;
}

static bool user_holds(const struct user *user, uint32_t slot, uint32_t salt)
{
	const uint32_t *word = (const void *)(user->bytes + (size_t)slot * BLOCK);
	uint32_t i;

	for (i = 0; i < BLOCK / sizeof(*word); i++) {
		if (word[i] != ((user->number + 1) * 0x01000193u ^ slot << 16 ^ salt << 4 ^ i))
			return false;
	}
	return true;
}

/* --- gaps ---------------------------------------------------------------------------------- */

/* As a program with a loop of its own waits: NR events, through the descriptor. */
static int user_take_outside(struct user *user, struct haul_event *events, unsigned nr)
{
	struct pollfd pfd = {.fd = haul_loop_fd(user->loop), .events = POLLIN};
	int found, armed;

	for (;;) {
		found = haul_loop_poll(user->loop, events, nr);
		if (found)
			return found;
		armed = haul_loop_arm(user->loop);
		if (armed < 0)
			return armed;
		if (!armed)
			poll(&pfd, 1, -1);
	}
}

static void user_take(struct user *user, unsigned nr, bool outside)
{
	struct haul_event events[BURST_EVENTS];
	int found, i;

	while (nr) {
		found = outside ? user_take_outside(user, events, BURST_EVENTS)
				: haul_loop_wait(user->loop, events, BURST_EVENTS, -1);
		if (found < 0)
			user_die(user, "wait", found);
		for (i = 0; i < found; i++)
			if (events[i].result)
				user_die(user, "I/O", events[i].result);
		nr -= (unsigned)found;
	}
}

static void user_sleep_us(long us)
{
	const struct timespec pause = {.tv_nsec = us * 1000};

	nanosleep(&pause, NULL);
}

/* Of NR I/Os at once, the time until the last one's event. */
static uint64_t user_burst(struct user *user, unsigned nr, bool write, bool outside)
{
	uint64_t begin = user_now_us();
	uint32_t slot;
	int result;

	for (slot = 0; slot < nr; slot++) {
		result = user_start(user, slot, write);
		if (result)
			user_die(user, "start", result);
	}
	user_take(user, nr, outside);
	return user_now_us() - begin;
}

/* Gaps around what loops spin for, and gaps that send everybody to sleep. */
static int user_gaps(struct user *user, char **arguments)
{
	unsigned count = (unsigned)atoi(arguments[2]), i;
	uint64_t longest = 0, took;

	user_connect(user, arguments[0]);
	user_memory(user);
	for (i = 0; i < count + NR_BURSTS; i++) {
		user_sleep_us(i % 2 ? random() % 300 : random() % 15000);
		took = user_burst(user, i < count ? 1 : DEPTH, i % 3 == 0, i / 2 % 2);
		longest = took > longest ? took : longest;
	}
	printf("longest %llu us\n", (unsigned long long)longest);
	user_disconnect(user);
	haul_mem_unregister(user->mem);
	free(user->bytes);
	return 0;
}

/* --- two targets --------------------------------------------------------------------------- */

static void user_write_all(struct user *user)
{
	uint32_t slot;

	for (slot = 0; slot < DEPTH; slot++)
		user_fill(user, slot, 0);
	user_burst(user, DEPTH, true, false);
}

static void user_read_on(struct user *user, uint32_t slot)
{
	int result;

	memset(user->bytes + (size_t)slot * BLOCK, 0, BLOCK);
	result = user_start(user, slot, false);
	if (result == -ENOTCONN && user->number == 0) {
		user->lost = true;
		return;
	}
	if (result)
		user_die(user, "start", result);
	user->out[slot] = true;
	user->nr_out++;
}

static void user_two_event(struct user *user, const struct haul_event *event)
{
	uint32_t slot = (uint32_t)event->user_data;

	user_must(user->out[slot], "each read ends once");
	user->out[slot] = false;
	user->nr_out--;
	user->nr_bad += event->result != 0;
	user->lost |= event->result != 0;
	user->nr_good += event->result == 0;
	user_must(!event->result || user->number == 0, "the second target's queue does not suffer");
	user_must(event->result || user_holds(user, slot, 0), "what was read is what was written");
	if (!user->lost)
		user_read_on(user, slot);
}

/* Until the first target is dead and the second has been read for some while longer. */
static int user_two(struct user *user, char **arguments)
{
	struct user both[2] = {*user, *user};
	struct haul_event events[MAX_EVENTS];
	unsigned batch = (unsigned)atoi(arguments[3]), enough = 0;
	int nr, i;

	for (i = 0; i < 2; i++) {
		both[i].number = (uint32_t)i;
		user_connect(&both[i], arguments[i]);
		user_memory(&both[i]);
		user_write_all(&both[i]);
	}
	for (i = 0; i < 2 * DEPTH; i++)
		user_read_on(&both[i % 2], (uint32_t)i / 2);
	printf("running\n");
	fflush(stdout);
	while (!enough || both[1].nr_good < enough) {
		nr = haul_loop_wait(user->loop, events, batch, -1);
		for (i = 0; i < nr; i++)
			user_two_event(&both[events[i].user_data >> 32], &events[i]);
		if (!enough && both[0].lost && both[0].nr_out == 0)
			enough = both[1].nr_good + MORE_READS;
	}
	printf("the first: %u good %u lost\n", both[0].nr_good, both[0].nr_bad);
	for (i = 0; i < 2; i++) {
		haul_ctrl_free(both[i].ctrl);
		haul_mem_unregister(both[i].mem);
		free(both[i].bytes);
	}
	return 0;
}

/* --- fork ---------------------------------------------------------------------------------- */

/* A child has a copy of the memory, may do with it what it likes, and leaves the library alone. */
static pid_t user_child(const struct user *user, volatile int *neighbour, int ends_with)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	memset(user->bytes, 0xee, (size_t)DEPTH * BLOCK);
	*neighbour = -1;
	/* Not exit(): a device's library may have a thread that held a lock when the fork came. */
	if (ends_with == 0)
		_exit(0);
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

/* Registered memory that begins and ends within a page, and an int of the program's beside it. */
static volatile int *user_odd_memory(struct user *user)
{
	size_t length = (size_t)DEPTH * BLOCK;
	unsigned char *memory = aligned_alloc(BLOCK, length + BLOCK);
	int result;

	user_must(memory, "there is memory");
	memset(memory, 0, length + BLOCK);
	user->bytes = memory + BLOCK / 2;
	result = haul_mem_register(user->loop, user->bytes, length, &user->mem);
	if (result)
		user_die(user, "register", result);
	return (volatile int *)(void *)memory;
}

static int user_fork(struct user *user, char **arguments)
{
	int count = atoi(arguments[2]), i, status;
	volatile int *neighbour;
	uint32_t slot;
	pid_t pid;

	user_connect(user, arguments[0]);
	neighbour = user_odd_memory(user);
	for (i = 0; i < count; i++) {
		slot = (uint32_t)i % (DEPTH - 1);
		*neighbour = i;
		pid = user_child(user, neighbour, i % 2);
		/* These pages are shared with the child now, and written to by CPU and device. */
		user_fill(user, slot, (uint32_t)i);
		user_step(user, "write", user_start(user, slot, true));
		memset(user->bytes + (size_t)slot * BLOCK, 0, BLOCK);
		user_step(user, "read", user_start(user, slot, false));
		user_must(user_holds(user, slot, (uint32_t)i), "the parent reads what it wrote");
		user_must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
			"the child ended well");
		user_must(*neighbour == i, "what lies beside the memory is the parent's");
	}
	pid = fork();
	if (pid == 0) {
		pause(); /* keeps everything open that it has inherited */
		_exit(1);
	}
	user_disconnect(user);
	haul_mem_unregister(user->mem);
	free((void *)(uintptr_t)neighbour);
	printf("disconnected\n");
	fflush(stdout);
	(void)!getchar();
	kill(pid, SIGKILL);
	return waitpid(pid, &status, 0) != pid;
}

/* --- rounds -------------------------------------------------------------------------------- */

/* NR_QUEUES more of little depth, made at once and closed at once. */
static void user_more_queues(struct user *user)
{
	const struct haul_queue_options options = {.size = sizeof(options), .depth = 8};
	struct haul_queue *queues[NR_QUEUES];
	int result, i;

	for (i = 0; i < NR_QUEUES; i++) {
		result = haul_queue_create(user->ctrl, &options, 0, &queues[i]);
		if (result)
			user_die(user, "queue", result);
	}
	user_take(user, NR_QUEUES, false);
	for (i = 0; i < NR_QUEUES; i++) {
		result = haul_queue_close(queues[i], 0);
		if (result)
			user_die(user, "close", result);
	}
	user_take(user, NR_QUEUES, false);
}

static int user_rounds(struct user *user, char **arguments)
{
	int count = atoi(arguments[2]), i;
	uint64_t begin = user_now_us();

	user_memory(user);
	for (i = 0; i < count; i++) {
		user_connect(user, arguments[0]);
		user_step(user, "read", user_start(user, 0, false));
		user_more_queues(user);
		user_disconnect(user);
	}
	printf("%d connections in %llu ms\n", count * (NR_QUEUES + 2),
		(unsigned long long)(user_now_us() - begin) / 1000);
	haul_mem_unregister(user->mem);
	free(user->bytes);
	return 0;
}

/* --- borders ------------------------------------------------------------------------------- */

enum { REGION = 64 * 1024 };

static void user_pattern(unsigned char *bytes, size_t length, unsigned salt)
{
	size_t i;

	for (i = 0; i < length; i++)
		bytes[i] = (unsigned char)(salt + i + (i >> 8));
}

/* Writes LENGTH bytes that start AT, and reads them to the same place. */
static void user_cross(struct user *user, size_t at, size_t length, unsigned salt)
{
	unsigned char *expected = malloc(length);
	struct iovec iov = {user->bytes + at, length};

	user_must(expected, "there is memory");
	user_pattern(user->bytes + at, length, salt);
	user_pattern(expected, length, salt);
	user_step(user, "write", haul_writev(user->queue, user->nsid, &iov, 1, 0, 0, 0));
	memset(user->bytes + at, 0, length);
	user_step(user, "read", haul_readv(user->queue, user->nsid, &iov, 1, 0, 0));
	user_must(!memcmp(user->bytes + at, expected, length), "what was written is read");
	free(expected);
}

/* Two regions that touch, and memory behind them that is not registered. */
static int user_borders(struct user *user, char **arguments)
{
	static const struct {
		size_t at, length;
	} cases[] = {{0, REGION}, {REGION, REGION}, {512, 512}, {REGION - 4096, 8192},
		{REGION - 512, 1024}, {REGION - 512, REGION}, {0, 2 * REGION},
		{2 * REGION - 4096, 8192}, {2 * REGION, REGION}, {REGION - 512, 2 * REGION}};
	struct haul_loop_stats stats = {0};
	struct haul_mem *mem[2];
	uint64_t before;
	unsigned i;

	user->bytes = aligned_alloc(BLOCK, 4 * (size_t)REGION);
	user_must(user->bytes, "there is memory");
	for (i = 0; i < 2; i++)
		user_must(!haul_mem_register(
				  user->loop, user->bytes + i * (size_t)REGION, REGION, &mem[i]),
			"two regions are registered");
	user_connect(user, arguments[0]);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		haul_loop_stats(user->loop, &stats);
		before = stats.nr_bounced;
		user_cross(user, cases[i].at, cases[i].length, i);
		haul_loop_stats(user->loop, &stats);
		printf("%zu+%zu: %llu copied\n", cases[i].at, cases[i].length,
			(unsigned long long)(stats.nr_bounced - before));
	}
	user_disconnect(user);
	haul_mem_unregister(mem[0]);
	haul_mem_unregister(mem[1]);
	free(user->bytes);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct user *user, char **arguments);
	int nr_arguments, engine;
} user_programs[] = {
	{"gaps", user_gaps, 3, 1},
	{"two", user_two, 4, 2},
	{"fork", user_fork, 3, 1},
	{"rounds", user_rounds, 3, 1},
	{"borders", user_borders, 2, 1},
};

int main(int argc, char **argv)
{
	struct user user = {0};
	size_t i;
	int ret;

	for (i = 0; i < sizeof(user_programs) / sizeof(user_programs[0]); i++) {
		if (argc != user_programs[i].nr_arguments + 2 ||
			strcmp(argv[1], user_programs[i].name))
			continue;
		user.loop = user_loop(argv[2 + user_programs[i].engine]);
		ret = user_programs[i].run(&user, argv + 2);
		haul_loop_destroy(user.loop);
		return ret;
	}
	fprintf(stderr, "usage: user gaps|two|fork|rounds|borders URI [URI] ENGINE [COUNT]\n");
	return 2;
}
