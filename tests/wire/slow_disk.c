/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a hauld on the epoll engine: a disk that does not write while the file named by
 * SLOW_DISK_STOP exists. What is written meanwhile reaches the kernel when the file is gone.
 */
#include <dlfcn.h>
#include <libaio.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOW_MAX_HELD 1024
#define SLOW_LOOK_US  2000

struct slow_io {
	io_context_t context;
	struct iocb iocb; /* a copy, as the kernel would have made one */
};

static struct slow_io slow_held[SLOW_MAX_HELD];
static unsigned slow_nr_held;
static pthread_mutex_t slow_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t slow_once = PTHREAD_ONCE_INIT;
static int (*slow_submit)(io_context_t context, long nr, struct iocb **iocbs);

static bool slow_is_stopped(void)
{
	const char *path = getenv("SLOW_DISK_STOP");

	return path && access(path, F_OK) == 0;
}

static void slow_release(void)
{
	pthread_mutex_lock(&slow_lock);
	for (unsigned i = 0; i < slow_nr_held; i++) {
		struct iocb *iocb = &slow_held[i].iocb;

		if (slow_submit(slow_held[i].context, 1, &iocb) != 1)
			abort();
	}
	slow_nr_held = 0;
	pthread_mutex_unlock(&slow_lock);
}

static void *slow_main(void *arg)
{
	for (;;) {
		usleep(SLOW_LOOK_US);
		if (!slow_is_stopped())
			slow_release();
	}
	return arg;
}

static void slow_start(void)
{
	pthread_t thread;

	slow_submit = (int (*)(io_context_t, long, struct iocb **))dlsym(RTLD_NEXT, "io_submit");
	if (!slow_submit || pthread_create(&thread, NULL, slow_main, NULL))
		abort();
}

static bool slow_hold(io_context_t context, struct iocb *iocb)
{
	bool writes =
		iocb->aio_lio_opcode == IO_CMD_PWRITE || iocb->aio_lio_opcode == IO_CMD_PWRITEV;
	bool held = false;

	if (!writes || !slow_is_stopped())
		return false;
	pthread_mutex_lock(&slow_lock);
	if (slow_nr_held < SLOW_MAX_HELD) {
		slow_held[slow_nr_held++] = (struct slow_io){context, *iocb};
		held = true;
	}
	pthread_mutex_unlock(&slow_lock);
	return held;
}

int io_submit(io_context_t context, long nr, struct iocb **iocbs)
{
	pthread_once(&slow_once, slow_start);
	for (long i = 0; i < nr; i++) {
		int result;

		if (slow_hold(context, iocbs[i]))
			continue;
		result = slow_submit(context, 1, &iocbs[i]);
		if (result != 1)
			return i ? (int)i : result;
	}
	return (int)nr;
}
