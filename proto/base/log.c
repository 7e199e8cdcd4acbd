/* SPDX-License-Identifier: MIT */
/*
 * One sink per process, lines built on the caller's stack: see log.h.
 */
#include "proto/base/log.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINE_BYTES	  1024
#define LOG_WINDOW_NS	  10000000000ull
#define LOG_BURST	  10
#define LOG_DROPPED_BYTES 48 /* "(4294967295 like it dropped)" and some */

/* Written before threads start, only read afterwards. */
static log_sink_fn *log_sink;
static enum log_level log_max_level;
static bool log_is_journal;

/* Between the look whether stderr has room and the write: what it guards never blocks. */
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned log_nr_lost; /* lines, since one was written */

/* systemd names device and inode of the stream it gave us; a redirected stderr differs. */
static bool log_stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device;
	uintmax_t inode;
	struct stat status;

	if (!stream || sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &device, &inode) != 2)
		return false;
	return !fstat(STDERR_FILENO, &status) && status.st_dev == device && status.st_ino == inode;
}

void log_set_sink(log_sink_fn *sink, enum log_level max_level)
{
	log_sink = sink;
	log_max_level = max_level;
	log_is_journal = sink == log_to_stderr && log_stderr_is_journal();
}

/* One write a line, so that lines of several threads do not mix; of less than PIPE_BUF, so that it
 * fits whole where there is any room. A reader that has stopped reading must not stop the loop. */
static void log_write(const char *prefix, const char *line)
{
	struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
	char text[LOG_LINE_BYTES + 64];
	int length;

	pthread_mutex_lock(&log_mutex);
	if (poll(&room, 1, 0) != 1 || room.revents != POLLOUT) {
		log_nr_lost++;
		goto unlock;
	}
	if (log_nr_lost)
		length = snprintf(text, sizeof(text), "%s%s (%u lines before it were lost)\n",
			prefix, line, log_nr_lost);
	else
		length = snprintf(text, sizeof(text), "%s%s\n", prefix, line);
	if (write(STDERR_FILENO, text, min_of((size_t)length, sizeof(text) - 1)) == length)
		log_nr_lost = 0;
unlock:
	pthread_mutex_unlock(&log_mutex);
}

void log_to_stderr(enum log_level level, const char *line)
{
	static const struct {
		const char *journal; /* syslog's numbers */
		const char *plain;
	} prefixes[] = {
		[LOG_LEVEL_ERROR] = {"<3>", "error: "},
		[LOG_LEVEL_WARNING] = {"<4>", "warning: "},
		[LOG_LEVEL_INFO] = {"<6>", ""},
		[LOG_LEVEL_DEBUG] = {"<7>", "debug: "},
	};

	log_write(log_is_journal ? prefixes[level].journal : prefixes[level].plain, line);
}

/* Control bytes could forge lines or drive a terminal: they are shown as \xNN. Cuts what is too
 * long. UTF-8 passes. */
static void log_escape(const char *text, char *ret, size_t size)
{
	size_t used = 0;

	for (; *text && used + 5 <= size; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte >= 0x20 && byte != 0x7f)
			ret[used++] = (char)byte;
		else
			used += (size_t)snprintf(ret + used, size - used, "\\x%02x", byte);
	}
	ret[used] = 0;
}

static void log_format(enum log_level level, const char *suffix, const char *format, va_list args)
{
	char text[LOG_LINE_BYTES];
	char line[LOG_LINE_BYTES];
	int length;

	length = vsnprintf(text, sizeof(text) - LOG_DROPPED_BYTES, format, args);
	if (length < 0)
		return;
	length = (int)min_of((size_t)length, sizeof(text) - LOG_DROPPED_BYTES - 1);
	snprintf(text + length, sizeof(text) - (size_t)length, "%s", suffix);
	log_escape(text, line, sizeof(line));
	log_sink(level, line);
}

void log_line(enum log_level level, const char *format, ...)
{
	va_list args;

	if (!log_sink || level > log_max_level)
		return;
	va_start(args, format);
	log_format(level, "", format, args);
	va_end(args);
}

void log_line_limited(
	struct log_limit *limit, uint64_t now_ns, enum log_level level, const char *format, ...)
{
	char suffix[LOG_DROPPED_BYTES] = "";
	va_list args;

	if (!log_sink || level > log_max_level)
		return;
	if (!limit->nr_passed || now_ns - limit->window_start_ns >= LOG_WINDOW_NS) {
		limit->window_start_ns = now_ns;
		limit->nr_passed = 0;
	}
	if (limit->nr_passed >= LOG_BURST) {
		limit->nr_dropped++;
		return;
	}
	limit->nr_passed++;
	if (limit->nr_dropped)
		snprintf(suffix, sizeof(suffix), " (%u like it dropped)", limit->nr_dropped);
	limit->nr_dropped = 0;
	va_start(args, format);
	log_format(level, suffix, format, args);
	va_end(args);
}
