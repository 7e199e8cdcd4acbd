/* SPDX-License-Identifier: MIT */
/*
 * The disk backend on files: what a path becomes, short and failing I/O, zeroing and discarding
 * where the file system can or cannot. Some of the system's answers are the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target/backend.h"
#include "target/size.h"

#define BLOCKS 64
#define BYTES  (BLOCKS * 512)

static char folder[64];
static char path[128];
static struct loop *loop;
static struct backend *backend;
static struct backend_queue *queue;

/* --- what the system answers ----------------------------------------------------------------- */

static int fallocate_error; /* 0: the real one */
static unsigned nr_fallocates;
static unsigned nr_fdatasyncs;
static uint32_t short_bytes; /* of the next transfers; 0: the real ones */
static unsigned nr_shorts;
static unsigned nr_transfers;

int __real_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length)
{
	nr_fallocates++;
	if (!fallocate_error)
		return __real_fallocate64(fd, mode, offset, length);
	errno = fallocate_error;
	return -1;
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	nr_fdatasyncs++;
	return __real_fdatasync(fd);
}

struct cut {
	struct loop_timer timer;
	struct loop_op *op;
	int res;
};
static struct cut cut;

static void cut_expired(struct loop_timer *timer)
{
	(void)timer;
	cut.op->done.fn(&cut.op->done, cut.res, 0);
}

/* Does the first bytes of a transfer for real and says that this was all. */
static bool cut_short(struct loop_op *op, const struct iovec *iov, uint64_t offset, bool write)
{
	size_t length = min_of((size_t)short_bytes, iov->iov_len);
	ssize_t done;

	nr_transfers++;
	if (!nr_shorts)
		return false;
	nr_shorts--;
	if (write) {
		int fd = open(path, O_WRONLY);

		done = pwrite(fd, iov->iov_base, length, (off_t)offset);
		close(fd);
	} else {
		int fd = open(path, O_RDONLY);

		done = pread(fd, iov->iov_base, length, (off_t)offset);
		close(fd);
	}
	cut.op = op;
	cut.res = (int)done;
	loop_timer_set(loop, &cut.timer, loop_now_ns(loop));
	return true;
}

void __real_loop_read(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer);
void __wrap_loop_read(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer);
void __wrap_loop_read(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer)
{
	if (!cut_short(op, iov, offset, false))
		__real_loop_read(l, op, file, iov, nr_iov, offset, buffer);
}

void __real_loop_write(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer, bool dsync);
void __wrap_loop_write(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer, bool dsync);
void __wrap_loop_write(struct loop *l, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer, bool dsync)
{
	if (!cut_short(op, iov, offset, true))
		__real_loop_write(l, op, file, iov, nr_iov, offset, buffer, dsync);
}

/* --- fixture --------------------------------------------------------------------------------- */

static char why[256];

static int open_path(const char *name, bool read_only, uint32_t block, struct backend **ret)
{
	return backend_disk_ops.open(name, read_only, block, ret, why, sizeof(why));
}

static void write_file(const char *name, size_t bytes)
{
	char *content = malloc(bytes + 1);
	int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	for (size_t i = 0; i < bytes; i++)
		content[i] = (char)(i / 512 + 1);
	assert_int_equal(write(fd, content, bytes), bytes);
	close(fd);
	free(content);
}

static int setup(void **state)
{
	const struct loop_options options = {.engine = LOOP_ENGINE_EPOLL};

	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/haul-disk-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/disk", folder);
	write_file(path, BYTES);
	assert_int_equal(loop_create(&options, &loop), 0);
	assert_int_equal(loop_timers_reserve(loop, 1), 0);
	loop_timer_init(&cut.timer, cut_expired);
	assert_int_equal(open_path(path, false, 512, &backend), 0);
	assert_int_equal(backend->ops->attach(backend, loop, &queue), 0);
	fallocate_error = 0;
	nr_fallocates = nr_fdatasyncs = nr_shorts = nr_transfers = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	queue->ops->detach(queue);
	backend->ops->close(backend);
	loop_timers_unreserve(loop, 1);
	loop_destroy(loop);
	unlink(path);
	return rmdir(folder);
}

struct waiter {
	struct backend_io io;
	bool done;
	int res;
};

static void waiter_done(struct done *done, int res, unsigned flags)
{
	struct waiter *waiter = container_of(done, struct waiter, io.done);

	(void)flags;
	assert_false(waiter->done);
	waiter->done = true;
	waiter->res = res;
}

static int run(struct backend_io io)
{
	struct waiter waiter = {.io = io};

	waiter.io.done.fn = waiter_done;
	waiter.io.loop_buffer = LOOP_BUFFER_NONE;
	queue->ops->submit(queue, &waiter.io);
	assert_false(waiter.done);
	while (!waiter.done)
		loop_wait(loop, 5000000000);
	return waiter.res;
}

static _Alignas(4096) char bytes[BYTES];

static int read_blocks(uint64_t block, uint32_t nr)
{
	memset(bytes, 0xee, sizeof(bytes));
	return run((struct backend_io){
		.op = BACKEND_READ, .bytes = bytes, .length = nr * 512, .offset = block * 512});
}

static void assert_block(uint32_t at, char value)
{
	for (uint32_t i = 0; i < 512; i++)
		assert_int_equal(bytes[at * 512 + i], value);
}

/* --- transfers ------------------------------------------------------------------------------- */

static void short_transfers_go_on_at_a_whole_block(void **state)
{
	static const uint32_t lengths[] = {512, 1024, 513, 4097, 511 + 512, 8192};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		short_bytes = lengths[i];
		nr_shorts = 3;
		assert_int_equal(read_blocks(0, BLOCKS), 0);
		for (uint32_t at = 0; at < BLOCKS; at++)
			assert_block(at, (char)(at + 1));
		memset(bytes, (int)(0x40 + i), sizeof(bytes));
		nr_shorts = 3;
		assert_int_equal(run((struct backend_io){
					 .op = BACKEND_WRITE, .bytes = bytes, .length = BYTES}),
			0);
		assert_int_equal(read_blocks(0, BLOCKS), 0);
		for (uint32_t at = 0; at < BLOCKS; at++)
			assert_block(at, (char)(0x40 + i));
		write_file(path, BYTES);
	}
}

static void transfer_without_progress_fails_after_some_tries(void **state)
{
	(void)state;
	short_bytes = 1;
	nr_shorts = 1000;
	assert_int_equal(read_blocks(0, 8), -EIO);
	assert_true(nr_transfers < 10);
}

static void file_that_was_cut_fails_reads_behind_its_end(void **state)
{
	(void)state;
	assert_int_equal(truncate(path, 512 * 10), 0);
	assert_int_equal(read_blocks(0, 10), 0);
	assert_int_equal(read_blocks(8, 8), -EIO);
	assert_int_equal(read_blocks(20, 8), -EIO);
}

/* --- zeroes and discard ---------------------------------------------------------------------- */

static void check_zeroed(uint64_t first, uint64_t nr)
{
	assert_int_equal(read_blocks(0, BLOCKS), 0);
	for (uint32_t at = 0; at < BLOCKS; at++)
		assert_block(at, at >= first && at < first + nr ? 0 : (char)(at + 1));
}

static void zeroes_are_zero_in_every_way(void **state)
{
	static const int errors[] = {0, EOPNOTSUPP, EINVAL, ENODEV};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		for (unsigned deallocate = 0; deallocate < 2; deallocate++) {
			fallocate_error = errors[i];
			write_file(path, BYTES);
			assert_int_equal(run((struct backend_io){.op = BACKEND_WRITE_ZEROES,
						 .offset = 7 * 512,
						 .extent = 19 * 512,
						 .deallocate = deallocate}),
				0);
			check_zeroed(7, 19);
		}
	}
}

static void refused_ways_are_not_tried_again(void **state)
{
	const struct backend_io zero = {.op = BACKEND_WRITE_ZEROES, .extent = 512};
	const struct backend_io discard = {.op = BACKEND_DISCARD, .extent = 512};

	(void)state;
	fallocate_error = EOPNOTSUPP;
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(run(zero), 0);
		assert_int_equal(run(discard), -EOPNOTSUPP);
	}
	assert_int_equal(nr_fallocates, 2);
}

static void full_disk_is_told_as_that(void **state)
{
	(void)state;
	fallocate_error = ENOSPC;
	assert_int_equal(
		run((struct backend_io){.op = BACKEND_WRITE_ZEROES, .extent = 512}), -ENOSPC);
	fallocate_error = 0;
	assert_int_equal(run((struct backend_io){.op = BACKEND_WRITE_ZEROES, .extent = 512}), 0);
	assert_int_equal(nr_fallocates, 2);
}

static void zeroes_with_fua_are_synced(void **state)
{
	(void)state;
	assert_int_equal(run((struct backend_io){.op = BACKEND_WRITE_ZEROES, .extent = 512}), 0);
	assert_int_equal(nr_fdatasyncs, 0);
	assert_int_equal(
		run((struct backend_io){.op = BACKEND_WRITE_ZEROES, .extent = 512, .fua = true}),
		0);
	assert_int_equal(nr_fdatasyncs, 1);
}

static void discarded_blocks_read_as_zeros_and_the_size_stays(void **state)
{
	struct stat st;

	(void)state;
	assert_true(backend->geometry.discard_zeroes);
	assert_int_equal(run((struct backend_io){
				 .op = BACKEND_DISCARD, .offset = 60 * 512, .extent = 4 * 512}),
		0);
	check_zeroed(60, 4);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, BYTES);
}

/* --- opening --------------------------------------------------------------------------------- */

static void a_disk_in_use_is_refused_under_every_name(void **state)
{
	char name[160];
	struct backend *other;

	(void)state;
	assert_int_equal(open_path(path, false, 512, &other), -EBUSY);
	assert_int_equal(open_path(path, true, 512, &other), -EBUSY);
	snprintf(name, sizeof(name), "%s/name", folder);
	assert_int_equal(link(path, name), 0);
	assert_int_equal(open_path(name, false, 512, &other), -EBUSY);
	unlink(name);
	assert_int_equal(symlink(path, name), 0);
	assert_int_equal(open_path(name, false, 512, &other), -EBUSY);
	assert_non_null(strstr(why, name));
	unlink(name);
}

/* As one does that was killed with I/O under way. */
static void a_disk_that_is_just_let_go_of_is_waited_for(void **state)
{
	char name[160];
	struct backend *other;
	int child_has_it[2];
	pid_t child;
	char byte;

	(void)state;
	snprintf(name, sizeof(name), "%s/let-go", folder);
	write_file(name, BYTES);
	assert_int_equal(pipe(child_has_it), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		int fd = open(name, O_RDWR | O_CLOEXEC);

		if (fd < 0 || flock(fd, LOCK_EX) || write(child_has_it[1], "", 1) != 1)
			_exit(1);
		usleep(300000);
		_exit(0);
	}
	assert_int_equal(read(child_has_it[0], &byte, 1), 1);
	assert_int_equal(open_path(name, false, 512, &other), 0);
	other->ops->close(other);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(child_has_it[0]);
	close(child_has_it[1]);
	unlink(name);
}

static void readers_may_share_and_keep_writers_out(void **state)
{
	char name[160];
	struct backend *one, *two, *three;

	(void)state;
	snprintf(name, sizeof(name), "%s/other", folder);
	write_file(name, BYTES);
	assert_int_equal(open_path(name, true, 0, &one), 0);
	assert_int_equal(open_path(name, true, 0, &two), 0);
	assert_int_equal(open_path(name, false, 0, &three), -EBUSY);
	assert_memory_equal(one->geometry.identity, two->geometry.identity, 16);
	assert_memory_not_equal(one->geometry.identity, backend->geometry.identity, 16);
	one->ops->close(one);
	two->ops->close(two);
	unlink(name);
}

static void what_is_no_disk_is_refused_with_a_reason(void **state)
{
	char name[160];
	struct backend *other;
	struct stat was, now;

	(void)state;
	assert_int_equal(fstat(0, &was), 0);
	assert_int_equal(open_path(folder, false, 0, &other), -EINVAL);
	assert_non_null(strstr(why, "neither"));
	assert_int_equal(open_path("/dev/null", false, 0, &other), -EINVAL);
	snprintf(name, sizeof(name), "%s/gone", folder);
	assert_int_equal(open_path(name, false, 0, &other), -ENOENT);
	write_file(name, 0);
	assert_int_equal(open_path(name, false, 0, &other), -EINVAL);
	assert_non_null(strstr(why, "empty"));
	write_file(name, 511);
	assert_int_equal(open_path(name, false, 0, &other), -EINVAL);
	/* The last, odd bytes are left out. */
	write_file(name, 512 * 3 + 17);
	assert_int_equal(open_path(name, false, 512, &other), 0);
	assert_int_equal(other->geometry.size_bytes, 512 * 3);
	other->ops->close(other);
	unlink(name);
	/* No error path has closed what it had not opened (B140). */
	assert_int_equal(fstat(0, &now), 0);
	assert_int_equal(now.st_dev, was.st_dev);
	assert_int_equal(now.st_ino, was.st_ino);
}

static void block_size_is_what_was_asked_for(void **state)
{
	char name[160];
	struct backend *other;

	(void)state;
	snprintf(name, sizeof(name), "%s/other", folder);
	write_file(name, 4096 * 3);
	assert_int_equal(open_path(name, false, 4096, &other), 0);
	assert_int_equal(other->geometry.block_bytes, 4096);
	assert_int_equal(other->geometry.size_bytes, 4096 * 3);
	other->ops->close(other);
	unlink(name);
}

static void sizes_have_binary_units(void **state)
{
	static const struct {
		const char *text;
		int error;
		uint64_t size;
	} cases[] = {
		{"1", 0, 1},
		{"4096", 0, 4096},
		{"64k", 0, 64 << 10},
		{"512M", 0, 512u << 20},
		{"1G", 0, 1u << 30},
		{"2T", 0, 2ull << 40},
		{"4096P", 0, 1ull << 62},
		{"4097P", -ERANGE, 0},
		{"0", -ERANGE, 0},
		{"18446744073709551616", -ERANGE, 0},
		{"", -EINVAL, 0},
		{"G", -EINVAL, 0},
		{"-1G", -EINVAL, 0},
		{" 1G", -EINVAL, 0},
		{"1GB", -EINVAL, 0},
		{"1X", -EINVAL, 0},
		{"1.5G", -EINVAL, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t size = 77;

		assert_int_equal(size_parse(cases[i].text, &size), cases[i].error);
		assert_int_equal(size, cases[i].error ? 77 : cases[i].size);
	}
}

#define disk_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		disk_test(short_transfers_go_on_at_a_whole_block),
		disk_test(transfer_without_progress_fails_after_some_tries),
		disk_test(file_that_was_cut_fails_reads_behind_its_end),
		disk_test(zeroes_are_zero_in_every_way),
		disk_test(refused_ways_are_not_tried_again),
		disk_test(full_disk_is_told_as_that),
		disk_test(zeroes_with_fua_are_synced),
		disk_test(discarded_blocks_read_as_zeros_and_the_size_stays),
		disk_test(a_disk_in_use_is_refused_under_every_name),
		disk_test(a_disk_that_is_just_let_go_of_is_waited_for),
		disk_test(readers_may_share_and_keep_writers_out),
		disk_test(what_is_no_disk_is_refused_with_a_reason),
		disk_test(block_size_is_what_was_asked_for),
		cmocka_unit_test(sizes_have_binary_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
