/* SPDX-License-Identifier: MIT */
/*
 * The state directory while its system calls fail, each in turn: what was there is there, or what
 * was to be there, never anything else; and the order that makes it so through a loss of power.
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
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/compiler.h"
#include "target/state_dir.h"

#define NAME "state"

/* --- system calls ---------------------------------------------------------------------------- */

/* One letter for each that a change makes: open, write, sync, close, rename, unlink. */
static char calls[64];
static unsigned nr_calls;
static int fail_at; /* counts down; the one at 0 fails; negative: none does */
static int fail_errno;
static bool short_writes;

static bool fails(char call)
{
	if (nr_calls + 1 < sizeof(calls))
		calls[nr_calls++] = call;
	errno = fail_errno;
	return fail_at-- == 0;
}

int __real_openat64(int fd, const char *name, int flags, ...);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode)
{
	if (!(flags & O_CREAT))
		return __real_openat64(fd, name, flags);
	return fails('o') ? -1 : __real_openat64(fd, name, flags, mode);
}

ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
	if (fails('w'))
		return -1;
	return __real_write(fd, bytes, short_writes && length > 1 ? length / 2 : length);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	return fails('s') ? -1 : __real_fsync(fd);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	int res = __real_close(fd);

	return fails('c') ? -1 : res;
}

int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	return fails('r') ? -1 : __real_renameat(from_fd, from, to_fd, to);
}

int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags)
{
	return fails('u') ? -1 : __real_unlinkat(fd, name, flags);
}

static void expect_failure(int at, int error)
{
	memset(calls, 0, sizeof(calls));
	nr_calls = 0;
	fail_at = at;
	fail_errno = error;
}

/* --- set-up ---------------------------------------------------------------------------------- */

static char directory[32];
static struct state_dir dir;

static int setup(void **unused)
{
	char why[256];

	(void)unused;
	expect_failure(-1, 0);
	short_writes = false;
	snprintf(directory, sizeof(directory), "/tmp/haul-state-XXXXXX");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(state_dir_open(&dir, directory, why, sizeof(why)), 0);
	return 0;
}

static int teardown(void **unused)
{
	(void)unused;
	expect_failure(-1, 0);
	assert_int_equal(state_dir_remove(&dir, NAME), 0);
	/* Nothing beside it is left. */
	assert_int_equal(rmdir(directory), 0);
	state_dir_close(&dir);
	return 0;
}

static int put(const char *text)
{
	return state_dir_write(&dir, NAME, text, strlen(text));
}

/* NULL: there is to be none. */
static void assert_holds(const char *text)
{
	size_t length;
	char *found;

	fail_at = -1;
	assert_int_equal(state_dir_read(&dir, NAME, &found, &length), 0);
	assert_int_equal(state_dir_has(&dir, NAME), text != NULL);
	if (text) {
		assert_non_null(found);
		assert_int_equal(length, strlen(text));
		assert_string_equal(found, text);
	} else {
		assert_null(found);
	}
	free(found);
}

/* --- writing --------------------------------------------------------------------------------- */

/* The content is on the disk before it has its name, and the name before anybody is told. */
static void content_then_name_then_directory(void **unused)
{
	(void)unused;
	expect_failure(-1, 0);
	assert_int_equal(put("new"), 0);
	assert_string_equal(calls, "owscrs");
	expect_failure(-1, 0);
	assert_int_equal(state_dir_remove(&dir, NAME), 0);
	assert_string_equal(calls, "us");
}

/* The last one is the directory's fsync: the change has been made, but it is an error. */
static void any_call_may_fail(void **unused)
{
	static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
	static const char *const befores[] = {NULL, "old"};

	(void)unused;
	for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
		for (size_t b = 0; b < ARRAY_SIZE(befores); b++) {
			for (int at = 0; at < 6; at++) {
				if (befores[b])
					assert_int_equal(put(befores[b]), 0);
				else
					assert_int_equal(state_dir_remove(&dir, NAME), 0);
				expect_failure(at, errors[e]);
				assert_int_equal(put("new"), -errors[e]);
				assert_holds(at < 5 ? befores[b] : "new");
			}
		}
	}
}

static void removal_may_fail(void **unused)
{
	(void)unused;
	assert_int_equal(put("old"), 0);
	expect_failure(0, EIO);
	assert_int_equal(state_dir_remove(&dir, NAME), -EIO);
	assert_holds("old");
	/* The directory's fsync. */
	expect_failure(1, EIO);
	assert_int_equal(state_dir_remove(&dir, NAME), -EIO);
	assert_holds(NULL);
	/* It is not taken for done: what is gone already is brought to the disk again. */
	expect_failure(-1, 0);
	assert_int_equal(state_dir_remove(&dir, NAME), 0);
	assert_string_equal(calls, "us");
}

static void interrupted_and_short_writes_go_on(void **unused)
{
	(void)unused;
	short_writes = true;
	assert_int_equal(put("eight...eight..."), 0);
	assert_holds("eight...eight...");
	expect_failure(1, EINTR);
	assert_int_equal(put("another"), 0);
	assert_holds("another");
}

/* A process that was killed has left it. */
static void file_that_was_begun_is_no_obstacle(void **unused)
{
	char path[64];
	FILE *file;

	(void)unused;
	snprintf(path, sizeof(path), "%s/" NAME ".new", directory);
	file = fopen(path, "w");
	fputs("a long text that nobody has finished", file);
	fclose(file);
	assert_holds(NULL);
	assert_int_equal(put("new"), 0);
	assert_holds("new");
}

static void sizes_are_bound(void **unused)
{
	size_t length;
	char *text;

	(void)unused;
	dir.max_bytes = 3;
	assert_int_equal(put("old"), 0);
	assert_int_equal(put("four"), -EFBIG);
	assert_holds("old");
	dir.max_bytes = 2;
	assert_int_equal(state_dir_read(&dir, NAME, &text, &length), -EBADMSG);
	assert_null(text);
}

static void what_is_no_file_is_not_read(void **unused)
{
	char path[64];
	size_t length;
	char *text;

	(void)unused;
	snprintf(path, sizeof(path), "%s/" NAME, directory);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(state_dir_read(&dir, NAME, &text, &length), -EBADMSG);
}

static void without_a_directory_nothing_is_kept(void **unused)
{
	struct state_dir none;
	size_t length;
	char why[256];
	char *text;

	(void)unused;
	assert_int_equal(state_dir_open(&none, "", why, sizeof(why)), 0);
	assert_false(state_dir_is_there(&none));
	assert_int_equal(state_dir_write(&none, NAME, "", 0), -EOPNOTSUPP);
	assert_int_equal(state_dir_remove(&none, NAME), -EOPNOTSUPP);
	assert_int_equal(state_dir_read(&none, NAME, &text, &length), 0);
	assert_null(text);
	assert_int_equal(state_dir_has(&none, NAME), 0);
	state_dir_close(&none);
}

/* --- sealed texts ---------------------------------------------------------------------------- */

static void sealed_texts_are_opened_if_they_are_whole(void **unused)
{
	static const char body[] = "one\ntwo";
	const char *fault = NULL;
	const char *opened;
	size_t length;
	char *text;

	(void)unused;
	assert_int_equal(state_text_seal("thing", 7, body, &text, &length), 0);
	opened = state_text_open("thing", 7, text, length, &fault);
	assert_non_null(opened);
	assert_string_equal(opened, body);
	assert_null(state_text_open("thing", 8, text, length, &fault));
	assert_non_null(strstr(fault, "newer"));
	assert_null(state_text_open("things", 7, text, length, &fault));
	assert_null(state_text_open("thin", 7, text, length, &fault));
	for (size_t cut = 0; cut < length; cut++)
		assert_null(state_text_open("thing", 7, text, cut, &fault));
	for (size_t bit = 0; bit < 8 * length; bit++) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		assert_null(state_text_open("thing", 7, text, length, &fault));
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
	free(text);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(content_then_name_then_directory),
		CASE(any_call_may_fail),
		CASE(removal_may_fail),
		CASE(interrupted_and_short_writes_go_on),
		CASE(file_that_was_begun_is_no_obstacle),
		CASE(sizes_are_bound),
		CASE(what_is_no_file_is_not_read),
		CASE(without_a_directory_nothing_is_kept),
		cmocka_unit_test(sealed_texts_are_opened_if_they_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
