/* SPDX-License-Identifier: MIT */
/*
 * What an operation costs: no allocation, and a bounded number of system calls a batch.
 */
#include "tests/unit/base/engines.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/bufpool.h"

enum { BATCH = 32, NR_ROUNDS = 50 };

static unsigned nr_allocations;

#define COUNTED(name, parameters, arguments)    \
	void *__real_##name parameters;         \
	void *__wrap_##name parameters;         \
	void *__wrap_##name parameters          \
	{                                       \
		nr_allocations++;               \
		return __real_##name arguments; \
	}
COUNTED(malloc, (size_t size), (size))
COUNTED(calloc, (size_t nr, size_t size), (nr, size))
COUNTED(realloc, (void *old, size_t size), (old, size))

static uint64_t nr_syscalls_of(struct loop *loop)
{
	struct loop_stats stats;

	loop_stats_get(loop, &stats);
	return stats.nr_syscalls;
}

static void wait_all(struct loop *loop, struct waited *ops, int res)
{
	for (unsigned i = 0; i < BATCH; i++) {
		assert_int_equal(waited_result(loop, &ops[i]), res);
		ops[i].nr_done = 0;
	}
}

static int open_file(int flags)
{
	char path[] = "loop-cost-XXXXXX";
	int temporary = mkstemp(path);
	int fd;

	assert_true(temporary >= 0);
	assert_int_equal(ftruncate(temporary, BATCH * 4096), 0);
	fd = open(path, O_RDWR | flags);
	close(temporary);
	unlink(path);
	assert_true(fd >= 0);
	return fd;
}

static void a_batch_of_direct_reads_is_few_system_calls_and_no_allocation(void **state)
{
	struct loop *loop = *state;
	struct waited reads[BATCH];
	struct iovec iov[BATCH];
	struct loop_file file;
	uint64_t before;
	int buffer;
	int fd = open_file(O_DIRECT);
	char *bytes = mmap(
		NULL, BATCH * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(loop_file_add(loop, &file, fd, LOOP_FILE_DISK), 0);
	buffer = loop_buffer_register(loop, bytes, BATCH * 4096);
	for (unsigned i = 0; i < BATCH; i++)
		waited_init(&reads[i]);
	loop_turn(loop);
	before = nr_syscalls_of(loop);
	nr_allocations = 0;
	for (unsigned round = 0; round < NR_ROUNDS; round++) {
		for (unsigned i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){bytes + i * 4096, 4096};
			loop_read(loop, &reads[i].op, &file, &iov[i], 1, i * 4096, buffer);
		}
		/* As they complete one by one the loop may look more than once. */
		while (loop_turn(loop))
			;
		wait_all(loop, reads, 4096);
	}
	assert_int_equal(nr_allocations, 0);
	/* One submission a round, and what waiting for a disk of any speed needs. */
	assert_true(nr_syscalls_of(loop) - before < (uint64_t)NR_ROUNDS * BATCH / 2);
	loop_file_del(loop, &file);
	loop_buffer_unregister(loop, buffer);
	munmap(bytes, BATCH * 4096);
	close(fd);
}

static void socket_operations_share_a_system_call_with_io_uring(void **state)
{
	struct loop *loop = *state;
	bool is_uring = !strcmp(loop_engine_name(loop), "io_uring");
	struct waited receives[BATCH];
	struct waited transmits[BATCH];
	struct loop_file files[BATCH][2];
	char got[BATCH][2][64];
	struct iovec in[BATCH][2];
	char digits[] = "0123456789";
	struct iovec out = {digits, 10};
	int fds[BATCH][2];
	uint64_t before;

	for (unsigned i = 0; i < BATCH; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]), 0);
		for (unsigned j = 0; j < 2; j++)
			assert_int_equal(
				loop_file_add(loop, &files[i][j], fds[i][j], LOOP_FILE_SOCKET), 0);
		in[i][0] = (struct iovec){got[i][0], 4};
		in[i][1] = (struct iovec){got[i][1], 60};
		waited_init(&receives[i]);
		waited_init(&transmits[i]);
	}
	loop_turn(loop);
	before = nr_syscalls_of(loop);
	nr_allocations = 0;
	for (unsigned round = 0; round < NR_ROUNDS; round++) {
		for (unsigned i = 0; i < BATCH; i++) {
			loop_receive(loop, &receives[i].op, &files[i][0], in[i], 2);
			loop_transmit(loop, &transmits[i].op, &files[i][1], &out, 1);
		}
		wait_all(loop, transmits, 10);
		wait_all(loop, receives, 10);
	}
	assert_int_equal(nr_allocations, 0);
	/* epoll: a send, at most two receives, and the waiting. */
	assert_true(nr_syscalls_of(loop) - before <
		    (uint64_t)NR_ROUNDS * (is_uring ? 6 : 3 * BATCH + 6));
	for (unsigned i = 0; i < BATCH; i++)
		for (unsigned j = 0; j < 2; j++) {
			loop_file_del(loop, &files[i][j]);
			close(fds[i][j]);
		}
}

static void buffers_come_and_go_without_allocation(void **state)
{
	struct loop *loop = *state;
	struct buf *bufs[BATCH];
	struct bufpool *pool;

	assert_int_equal(bufpool_create(loop, 64u << 20, &pool), 0);
	for (unsigned round = 0; round < NR_ROUNDS; round++) {
		/* The first round makes the regions. */
		if (round == 1)
			nr_allocations = 0;
		for (unsigned i = 0; i < BATCH; i++) {
			bufs[i] = bufpool_get(pool, i % 2 ? BUFPOOL_SHELF_4K : BUFPOOL_SHELF_128K);
			assert_non_null(bufs[i]);
		}
		for (unsigned i = 0; i < BATCH; i++)
			bufpool_put(pool, bufs[i]);
		loop_turn(loop);
	}
	assert_int_equal(nr_allocations, 0);
	bufpool_destroy(pool);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(a_batch_of_direct_reads_is_few_system_calls_and_no_allocation),
		loop_test(socket_operations_share_a_system_call_with_io_uring),
		loop_test(buffers_come_and_go_without_allocation),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
