/* SPDX-License-Identifier: MIT */
/*
 * A disk in memory under several reactors at once: a block is whole, whatever the others do to it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "target/backend.h"

#define BLOCK	   4096u
#define NR_ROUNDS  100000u
#define NR_WRITERS 2u

struct reactor_of_test {
	struct backend *backend;
	pthread_t thread;
	unsigned char value;
	enum backend_op other; /* what a writer does beside writing */
	unsigned nr_torn;
};

struct io_of_test {
	struct backend_io io;
	bool over;
};

static atomic_uint nr_writing;

static void io_done(struct done *done, int res, unsigned flags)
{
	struct io_of_test *io = container_of(done, struct io_of_test, io.done);

	(void)flags;
	io->over = !res;
}

static void do_io(struct loop *loop, struct backend_queue *queue, enum backend_op op, void *bytes)
{
	struct io_of_test io = {.io = {.op = op,
					.bytes = bytes,
					.length = BLOCK,
					.extent = BLOCK,
					.offset = BLOCK,
					.loop_buffer = LOOP_BUFFER_NONE,
					.done.fn = io_done}};

	queue->ops->submit(queue, &io.io);
	while (!io.over)
		loop_turn(loop);
}

static bool is_whole(const unsigned char *block)
{
	return !memcmp(block, block + 1, BLOCK - 1);
}

static void *run(void *arg)
{
	struct reactor_of_test *reactor = arg;
	const struct loop_options options = {.engine = LOOP_ENGINE_EPOLL};
	struct backend *backend = reactor->backend;
	struct backend_queue *queue;
	unsigned char *block = malloc(BLOCK);
	struct loop *loop;
	bool writes = reactor->value;

	if (loop_create(&options, &loop) || backend->ops->attach(backend, loop, &queue))
		abort();
	for (unsigned i = 0; writes ? i < NR_ROUNDS : atomic_load(&nr_writing); i++) {
		memset(block, reactor->value, BLOCK);
		do_io(loop, queue, writes ? BACKEND_WRITE : BACKEND_READ, block);
		if (writes && i % 4 == 0)
			do_io(loop, queue, reactor->other, NULL);
		reactor->nr_torn += !is_whole(block);
	}
	if (writes)
		atomic_fetch_sub(&nr_writing, 1);
	backend->ops->detach(queue);
	loop_destroy(loop);
	free(block);
	return NULL;
}

static void a_block_is_whole(void **state)
{
	struct reactor_of_test reactors[NR_WRITERS + 1] = {0};
	struct backend *backend;
	char why[256];

	(void)state;
	assert_int_equal(backend_open("ram:1M", false, BLOCK, &backend, why, sizeof(why)), 0);
	atomic_store(&nr_writing, NR_WRITERS);
	for (unsigned i = 0; i <= NR_WRITERS; i++) {
		reactors[i] = (struct reactor_of_test){.backend = backend,
			.value = (unsigned char)i,
			.other = i % 2 ? BACKEND_DISCARD : BACKEND_WRITE_ZEROES};
		assert_int_equal(pthread_create(&reactors[i].thread, NULL, run, &reactors[i]), 0);
	}
	for (unsigned i = 0; i <= NR_WRITERS; i++)
		pthread_join(reactors[i].thread, NULL);
	for (unsigned i = 0; i <= NR_WRITERS; i++)
		assert_int_equal(reactors[i].nr_torn, 0);
	backend_put(backend);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
