/* SPDX-License-Identifier: MIT */
/*
 * Lines of the log: levels, bytes that could do harm, length, limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/base/log.h"

#define SECOND_NS 1000000000ull

static char line_seen[4096];
static unsigned nr_lines;

static void keep_line(enum log_level level, const char *line)
{
	(void)level;
	nr_lines++;
	snprintf(line_seen, sizeof(line_seen), "%s", line);
}

static int setup(void **state)
{
	(void)state;
	nr_lines = 0;
	line_seen[0] = 0;
	log_set_sink(keep_line, LOG_LEVEL_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	log_set_sink(NULL, LOG_LEVEL_DEBUG);
	return 0;
}

static void lines_below_the_level_and_without_sink_go_nowhere(void **state)
{
	(void)state;
	log_debug("not %s", "seen");
	assert_int_equal(nr_lines, 0);
	log_info("%s", "seen");
	assert_int_equal(nr_lines, 1);
	log_set_sink(NULL, LOG_LEVEL_DEBUG);
	log_error("not seen");
	assert_int_equal(nr_lines, 1);
}

static void control_bytes_are_escaped(void **state)
{
	static const struct {
		const char *given;
		const char *shown;
	} cases[] = {
		{"plain", "plain"},
		{"two\nlines", "two\\x0alines"},
		{"\033[2J", "\\x1b[2J"},
		{"\177\r\t", "\\x7f\\x0d\\x09"},
		{"K\303\244se", "K\303\244se"},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		log_info("%s", cases[i].given);
		assert_string_equal(line_seen, cases[i].shown);
	}
}

static void lines_that_are_too_long_are_cut(void **state)
{
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	log_info("%s", text);
	assert_in_range(strlen(line_seen), 512, 1023);
	memset(text, '\n', sizeof(text) - 1);
	log_info("%s", text);
	assert_in_range(strlen(line_seen), 512, 1023);
	assert_int_equal(strlen(line_seen) % 4, 0);
}

static void a_limiter_passes_a_burst_and_tells_what_it_dropped(void **state)
{
	struct log_limit limit = {};
	uint64_t now_ns = 5 * SECOND_NS;

	(void)state;
	for (unsigned i = 0; i < 25; i++)
		log_line_limited(&limit, now_ns, LOG_LEVEL_ERROR, "%s", "again");
	assert_int_equal(nr_lines, 10);
	assert_string_equal(line_seen, "again");
	now_ns += 9 * SECOND_NS;
	log_line_limited(&limit, now_ns, LOG_LEVEL_ERROR, "again");
	assert_int_equal(nr_lines, 10);
	now_ns += SECOND_NS;
	log_line_limited(&limit, now_ns, LOG_LEVEL_ERROR, "again");
	assert_int_equal(nr_lines, 11);
	assert_string_equal(line_seen, "again (16 like it dropped)");
	log_line_limited(&limit, now_ns, LOG_LEVEL_ERROR, "again");
	assert_string_equal(line_seen, "again");
}

/* What a daemon's log is when nobody reads it. */
static void a_reader_that_has_stopped_stops_nobody(void **state)
{
	enum { NR_LINES = 2000 };
	static char text[1 << 20];
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t length;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_return_code(dup2(fds[1], STDERR_FILENO), 0);
	log_set_sink(log_to_stderr, LOG_LEVEL_INFO);
	alarm(30);
	for (unsigned i = 0; i < NR_LINES; i++)
		log_info("line %u %0200u", i, 0);
	length = read(fds[0], text, sizeof(text) - 1);
	log_info("heard again");
	alarm(0);
	dup2(saved, STDERR_FILENO);
	assert_true(length > 0);
	text[length - 1] = 0;
	assert_int_equal(strncmp(text, "line 0 ", 7), 0);
	length = read(fds[0], text, sizeof(text) - 1);
	assert_true(length > 0);
	text[length] = 0;
	assert_non_null(strstr(text, "heard again ("));
	assert_non_null(strstr(text, " lines before it were lost)\n"));
	close(fds[0]);
	close(fds[1]);
	close(saved);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			lines_below_the_level_and_without_sink_go_nowhere, setup, teardown),
		cmocka_unit_test_setup_teardown(control_bytes_are_escaped, setup, teardown),
		cmocka_unit_test_setup_teardown(lines_that_are_too_long_are_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_limiter_passes_a_burst_and_tells_what_it_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_reader_that_has_stopped_stops_nobody, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
