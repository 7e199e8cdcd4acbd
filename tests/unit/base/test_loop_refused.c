/* SPDX-License-Identifier: MIT */
/*
 * What the loop does where the system refuses something: each case in a child of its own, as
 * filters and limits cannot be taken back.
 */
#include "tests/unit/base/engines.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/bufpool.h"
#include "proto/base/log.h"

/* What children tell with their exit status; anything else is a failed check. */
enum { CHILD_OK = 0, CHILD_FAILED = 1 };

#define check(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			_exit(CHILD_FAILED);                                            \
		}                                                                       \
	} while (0)

static char last_line[1024];
static unsigned nr_lines;

static void keep_line(enum log_level level, const char *line)
{
	(void)level;
	nr_lines++;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

/* Makes SYSCALL fail with ERR, only with second argument SECOND unless that is negative. */
static void refuse(long syscall_nr, int second, int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)syscall_nr, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)second, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JA, second >= 0 ? 1 : 0, 0, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

	check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(SKIPPED);
}

static int in_child(void (*fn)(void))
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		nr_lines = 0;
		log_set_sink(keep_line, LOG_LEVEL_INFO);
		fn();
		_exit(CHILD_OK);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void run_in_child(void (*fn)(void))
{
	int status = in_child(fn);

	if (status == SKIPPED)
		skip();
	assert_int_equal(status, CHILD_OK);
}

static void create(enum loop_engine engine, struct loop **ret)
{
	const struct loop_options options = {.engine = engine, .nr_ops = 64};
	int err = loop_create(&options, ret);

	if (err == -EPERM || err == -ENOSYS)
		_exit(SKIPPED);
	check(!err);
}

static int result(struct loop *loop, struct waited *waited)
{
	while (!waited->nr_done)
		loop_wait(loop, 100000000);
	return waited->res;
}

/* A read of this program's first bytes works. */
static void check_reads(struct loop *loop, int buffer, void *bytes)
{
	struct iovec iov = {bytes, 64};
	struct loop_file file;
	struct waited read;
	int fd = open("/proc/self/exe", O_RDONLY);

	check(!loop_file_add(loop, &file, fd, LOOP_FILE_DISK));
	waited_init(&read);
	loop_read(loop, &read.op, &file, &iov, 1, 0, buffer);
	check(result(loop, &read) == 64);
	check(!memcmp(bytes, "\177ELF", 4));
	loop_file_del(loop, &file);
	close(fd);
}

static void check_falls_back(int err)
{
	struct loop_options options = {.engine = LOOP_ENGINE_URING};
	struct loop *loop = NULL;
	char bytes[64];

	refuse(SYS_io_uring_setup, -1, err);
	check(loop_create(&options, &loop) == -err);
	check(!loop && !nr_lines);
	for (unsigned i = 0; i < 3; i++) {
		check(!loop_create(i ? NULL : &(struct loop_options){}, &loop));
		check(!strcmp(loop_engine_name(loop), "epoll"));
		check_reads(loop, LOOP_BUFFER_NONE, bytes);
		loop_destroy(loop);
	}
	check(nr_lines == 1);
	check(strstr(last_line, "io_uring") && strstr(last_line, "epoll"));
}

static void falls_back_eperm(void)
{
	check_falls_back(EPERM);
	check(strstr(last_line, "kernel.io_uring_disabled"));
}

static void falls_back_enosys(void)
{
	check_falls_back(ENOSYS);
}

static void falls_back_enomem(void)
{
	check_falls_back(ENOMEM);
}

static void auto_falls_back_to_epoll_and_says_so_once(void **state)
{
	(void)state;
	run_in_child(falls_back_eperm);
	run_in_child(falls_back_enosys);
	run_in_child(falls_back_enomem);
}

/* Who may lock memory is not held to the limit; a user's processes share it. */
static void limit_locked_memory(rlim_t bytes)
{
	const struct rlimit limit = {bytes, bytes};
	uid_t user = (uid_t)(60000 + getpid() % 5000);

	check(!setrlimit(RLIMIT_MEMLOCK, &limit));
	if (!geteuid() && setresuid(user, user, user))
		_exit(SKIPPED);
}

/* Newer kernels count the ring itself, too. */
static void memlock_zero(void)
{
	struct loop *loop;
	char bytes[64];

	limit_locked_memory(0);
	create(LOOP_ENGINE_AUTO, &loop);
	check_reads(loop, LOOP_BUFFER_NONE, bytes);
	check(nr_lines == !strcmp(loop_engine_name(loop), "epoll"));
	loop_destroy(loop);
}

static void memlock_below_a_region(void)
{
	struct bufpool *pool;
	struct loop *loop;
	struct buf *buf;

	limit_locked_memory(1 << 20);
	create(LOOP_ENGINE_URING, &loop);
	check(!bufpool_create(loop, 64u << 20, &pool));
	for (unsigned i = 0; i < 3; i++) {
		buf = bufpool_get(pool, BUFPOOL_SHELF_1M);
		check(buf);
		check(buf->region->loop_buffer == LOOP_BUFFER_NONE);
		check_reads(loop, buf->region->loop_buffer, buf->bytes);
		bufpool_put(pool, buf);
		bufpool_shrink(pool, 0);
	}
	check(nr_lines == 1);
	check(strstr(last_line, "1024 KiB") && strstr(last_line, "RLIMIT_MEMLOCK"));
	bufpool_destroy(pool);
	loop_destroy(loop);
}

static void without_locked_memory_io_goes_on_with_one_warning(void **state)
{
	(void)state;
	run_in_child(memlock_zero);
	run_in_child(memlock_below_a_region);
}

static void no_aio_contexts(void)
{
	struct loop_file file;
	struct loop *loop;
	int fd = open("/proc/self/exe", O_RDONLY);

	refuse(SYS_io_setup, -1, EAGAIN);
	create(LOOP_ENGINE_EPOLL, &loop);
	check(loop_file_add(loop, &file, fd, LOOP_FILE_DISK) == -EAGAIN);
	check(nr_lines == 1);
	check(strstr(last_line, "fs.aio-max-nr"));
	check(strstr(last_line, "64 more"));
	check(loop_file_add(loop, &file, fd, LOOP_FILE_DISK) == -EAGAIN);
	loop_destroy(loop);
}

static void a_full_aio_table_is_told_with_limit_and_need(void **state)
{
	(void)state;
	run_in_child(no_aio_contexts);
}

static void no_pwait2(void)
{
	struct loop *loop;
	uint64_t start_ns;

	refuse(SYS_epoll_pwait2, -1, ENOSYS);
	create(LOOP_ENGINE_EPOLL, &loop);
	for (unsigned i = 0; i < 3; i++) {
		loop_turn(loop);
		start_ns = loop_now_ns(loop);
		check(!loop_wait(loop, 1500000));
		check(loop_now_ns(loop) - start_ns >= 1500000);
	}
	loop_destroy(loop);
}

static void without_epoll_pwait2_waits_are_rounded_up(void **state)
{
	(void)state;
	run_in_child(no_pwait2);
}

/* Opcodes of io_uring_register(): tables as before 5.19, then none at all. */
static void no_sparse_tables(void)
{
	struct loop *loop;
	char bytes[64];

	refuse(SYS_io_uring_register, IORING_REGISTER_FILES2, EINVAL);
	refuse(SYS_io_uring_register, IORING_REGISTER_BUFFERS2, EINVAL);
	create(LOOP_ENGINE_URING, &loop);
	check(loop_buffer_register(loop, bytes, sizeof(bytes)) == LOOP_BUFFER_NONE);
	check_reads(loop, LOOP_BUFFER_NONE, bytes);
	loop_destroy(loop);
	refuse(SYS_io_uring_register, IORING_REGISTER_FILES, EINVAL);
	create(LOOP_ENGINE_URING, &loop);
	check_reads(loop, LOOP_BUFFER_NONE, bytes);
	loop_destroy(loop);
}

static void without_tables_of_files_and_buffers_io_works(void **state)
{
	(void)state;
	run_in_child(no_sparse_tables);
}

static void few_descriptors(void)
{
	struct rlimit few = {.rlim_cur = 24, .rlim_max = 24};
	struct loop_file files[24];
	struct loop *loop;
	char bytes[64];
	unsigned nr = 0;
	int fd;

	check(!setrlimit(RLIMIT_NOFILE, &few));
	create(LOOP_ENGINE_URING, &loop);
	while (nr < ARRAY_SIZE(files) && (fd = open("/proc/self/exe", O_RDONLY)) >= 0)
		check(!loop_file_add(loop, &files[nr++], fd, LOOP_FILE_DISK));
	check(nr > 0 && nr < 24);
	/* No descriptor is left: neither loops nor descriptors for outer loops can be made. */
	check(loop_fd(loop) == -EMFILE);
	check(loop_fd(loop) == -EMFILE);
	for (unsigned i = 0; i < 2; i++) {
		const struct loop_options options = {
			.engine = i ? LOOP_ENGINE_URING : LOOP_ENGINE_EPOLL};
		struct loop *other = NULL;

		check(loop_create(&options, &other) == -EMFILE);
		check(!other);
	}
	while (nr) {
		fd = files[--nr].fd;
		loop_file_del(loop, &files[nr]);
		close(fd);
	}
	check(loop_fd(loop) >= 0);
	check_reads(loop, LOOP_BUFFER_NONE, bytes);
	loop_destroy(loop);
}

static void running_out_of_descriptors_is_an_error_and_passes(void **state)
{
	(void)state;
	run_in_child(few_descriptors);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_falls_back_to_epoll_and_says_so_once),
		cmocka_unit_test(without_locked_memory_io_goes_on_with_one_warning),
		cmocka_unit_test(a_full_aio_table_is_told_with_limit_and_need),
		cmocka_unit_test(without_epoll_pwait2_waits_are_rounded_up),
		cmocka_unit_test(without_tables_of_files_and_buffers_io_works),
		cmocka_unit_test(running_out_of_descriptors_is_an_error_and_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
