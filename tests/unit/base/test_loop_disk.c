/* SPDX-License-Identifier: MIT */
/*
 * Files through the loop: direct and buffered, fixed buffers, vectors, durability, ends of files.
 */
#include "tests/unit/base/engines.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define BLOCK	   4096u
#define FILE_BYTES (64 * BLOCK)

struct disk {
	struct loop_file file;
	char *bytes; /* FILE_BYTES */
	int fd;
};

/* tmpfs had no direct I/O before 6.5: the directory is the build's. */
static void disk_open(struct loop *loop, struct disk *disk, int flags)
{
	char path[] = "loop-disk-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	disk->fd = open(path, O_RDWR | flags);
	close(fd);
	unlink(path);
	assert_true(disk->fd >= 0);
	disk->bytes =
		mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(disk->bytes != MAP_FAILED);
	assert_int_equal(loop_file_add(loop, &disk->file, disk->fd, LOOP_FILE_DISK), 0);
}

static void disk_close(struct loop *loop, struct disk *disk)
{
	loop_file_del(loop, &disk->file);
	munmap(disk->bytes, FILE_BYTES);
	close(disk->fd);
}

static int disk_io(struct loop *loop, struct disk *disk, bool is_write, const struct iovec *iov,
	uint32_t nr_iov, uint64_t offset, int buffer, bool dsync)
{
	struct waited io;

	waited_init(&io);
	if (is_write)
		loop_write(loop, &io.op, &disk->file, iov, nr_iov, offset, buffer, dsync);
	else
		loop_read(loop, &io.op, &disk->file, iov, nr_iov, offset, buffer);
	assert_int_equal(io.nr_done, 0);
	return waited_result(loop, &io);
}

static void what_was_written_is_read(void **state)
{
	static const struct {
		int flags;
		bool registered;
		bool dsync;
		uint32_t nr_iov;
	} cases[] = {
		{O_DIRECT, false, false, 1},
		{O_DIRECT, true, false, 1},
		{O_DIRECT, false, false, 3},
		{O_DIRECT, false, true, 1},
		{O_DIRECT, true, true, 1},
		{0, false, false, 1},
		{0, true, false, 1},
		{0, false, true, 3},
	};
	struct loop *loop = *state;
	struct iovec iov[3];
	struct disk disk;
	int buffer;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		disk_open(loop, &disk, cases[i].flags);
		buffer = LOOP_BUFFER_NONE;
		if (cases[i].registered)
			buffer = loop_buffer_register(loop, disk.bytes, FILE_BYTES);
		for (uint32_t j = 0; j < cases[i].nr_iov; j++) {
			iov[j] = (struct iovec){disk.bytes + (8 + 2 * j) * BLOCK, BLOCK};
			memset(iov[j].iov_base, (int)('a' + j), BLOCK);
		}
		assert_int_equal(disk_io(loop, &disk, true, iov, cases[i].nr_iov, BLOCK, buffer,
					 cases[i].dsync),
			cases[i].nr_iov * BLOCK);
		memset(disk.bytes, 0, FILE_BYTES);
		assert_int_equal(
			disk_io(loop, &disk, false, iov, cases[i].nr_iov, BLOCK, buffer, false),
			cases[i].nr_iov * BLOCK);
		for (uint32_t j = 0; j < cases[i].nr_iov; j++)
			assert_int_equal(disk.bytes[(8 + 2 * j) * BLOCK + 17], 'a' + (int)j);
		loop_buffer_unregister(loop, buffer);
		disk_close(loop, &disk);
	}
}

static void reading_past_the_end_is_short(void **state)
{
	struct loop *loop = *state;
	struct disk disk;
	struct iovec iov;

	disk_open(loop, &disk, O_DIRECT);
	iov = (struct iovec){disk.bytes, 4 * BLOCK};
	assert_int_equal(
		disk_io(loop, &disk, false, &iov, 1, FILE_BYTES - BLOCK, LOOP_BUFFER_NONE, false),
		BLOCK);
	assert_int_equal(
		disk_io(loop, &disk, false, &iov, 1, FILE_BYTES, LOOP_BUFFER_NONE, false), 0);
	disk_close(loop, &disk);
}

static void writing_to_a_file_open_for_reading_is_ebadf(void **state)
{
	struct loop *loop = *state;
	char bytes[16] = "";
	struct iovec iov = {bytes, sizeof(bytes)};
	struct disk disk = {.fd = open("/proc/self/exe", O_RDONLY)};

	assert_int_equal(loop_file_add(loop, &disk.file, disk.fd, LOOP_FILE_DISK), 0);
	assert_int_equal(disk_io(loop, &disk, true, &iov, 1, 0, LOOP_BUFFER_NONE, false), -EBADF);
	loop_file_del(loop, &disk.file);
	close(disk.fd);
}

static void fsync_succeeds_on_files_and_fails_on_pipes(void **state)
{
	struct loop *loop = *state;
	struct loop_file pipe_file;
	struct waited sync;
	struct disk disk;
	int ends[2];

	disk_open(loop, &disk, 0);
	for (unsigned data_only = 0; data_only < 2; data_only++) {
		waited_init(&sync);
		loop_fsync(loop, &sync.op, &disk.file, data_only);
		assert_int_equal(waited_result(loop, &sync), 0);
	}
	disk_close(loop, &disk);

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(loop_file_add(loop, &pipe_file, ends[1], LOOP_FILE_DISK), 0);
	waited_init(&sync);
	loop_fsync(loop, &sync.op, &pipe_file, true);
	assert_int_equal(waited_result(loop, &sync), -EINVAL);
	loop_file_del(loop, &pipe_file);
	close(ends[0]);
	close(ends[1]);
}

static void more_operations_than_announced_all_complete(void **state)
{
	enum { NR = 1500 };
	struct waited *reads = calloc(NR, sizeof(*reads));
	struct loop *loop = *state;
	struct disk disk;
	struct iovec iov;
	unsigned nr_done;

	disk_open(loop, &disk, O_DIRECT);
	iov = (struct iovec){disk.bytes, BLOCK};
	for (unsigned i = 0; i < NR; i++) {
		waited_init(&reads[i]);
		loop_read(loop, &reads[i].op, &disk.file, &iov, 1, (i % 64) * BLOCK,
			LOOP_BUFFER_NONE);
	}
	do {
		loop_wait(loop, 1000000000);
		nr_done = 0;
		for (unsigned i = 0; i < NR; i++)
			nr_done += reads[i].nr_done;
	} while (nr_done < NR);
	for (unsigned i = 0; i < NR; i++) {
		assert_int_equal(reads[i].nr_done, 1);
		assert_int_equal(reads[i].res, BLOCK);
	}
	disk_close(loop, &disk);
	free(reads);
}

static void ignore_signal(int signal)
{
	(void)signal;
}

static int one(void *arg)
{
	(void)arg;
	return 1;
}

/* Every call of the loop's that can be interrupted is. */
static void a_storm_of_signals_disturbs_nothing(void **state)
{
	const struct itimerval storm = {{0, 1000}, {0, 1000}};
	const struct itimerval calm = {};
	struct sigaction action = {.sa_handler = ignore_signal};
	struct loop *loop = *state;
	struct waited ops[3];
	struct disk disk[2];
	struct iovec iov[2];

	for (unsigned i = 0; i < 2; i++) {
		disk_open(loop, &disk[i], i ? O_DIRECT : 0);
		iov[i] = (struct iovec){disk[i].bytes, BLOCK};
	}
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &storm, NULL), 0);
	for (unsigned i = 0; i < 300; i++) {
		for (unsigned j = 0; j < 3; j++)
			waited_init(&ops[j]);
		loop_read(loop, &ops[0].op, &disk[0].file, &iov[0], 1, 0, LOOP_BUFFER_NONE);
		loop_write(loop, &ops[1].op, &disk[1].file, &iov[1], 1, BLOCK, LOOP_BUFFER_NONE,
			false);
		loop_offload(loop, &ops[2].op, one, NULL);
		assert_int_equal(waited_result(loop, &ops[0]), BLOCK);
		assert_int_equal(waited_result(loop, &ops[1]), BLOCK);
		assert_int_equal(waited_result(loop, &ops[2]), 1);
	}
	setitimer(ITIMER_REAL, &calm, NULL);
	for (unsigned i = 0; i < 2; i++)
		disk_close(loop, &disk[i]);
}

static void disk_io_cancelled_before_the_turn_never_starts(void **state)
{
	struct loop *loop = *state;
	struct waited read;
	struct disk disk;
	struct iovec iov;

	disk_open(loop, &disk, O_DIRECT);
	iov = (struct iovec){disk.bytes, BLOCK};
	waited_init(&read);
	loop_read(loop, &read.op, &disk.file, &iov, 1, 0, LOOP_BUFFER_NONE);
	loop_cancel(loop, &read.op);
	loop_cancel(loop, &read.op);
	assert_int_equal(read.nr_done, 0);
	assert_int_equal(waited_result(loop, &read), -ECANCELED);
	loop_cancel(loop, &read.op);
	loop_turn(loop);
	assert_int_equal(read.nr_done, 0);
	disk_close(loop, &disk);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(what_was_written_is_read),
		loop_test(reading_past_the_end_is_short),
		loop_test(writing_to_a_file_open_for_reading_is_ebadf),
		loop_test(fsync_succeeds_on_files_and_fails_on_pipes),
		loop_test(more_operations_than_announced_all_complete),
		loop_test(a_storm_of_signals_disturbs_nothing),
		loop_test(disk_io_cancelled_before_the_turn_never_starts),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
