/* SPDX-License-Identifier: MIT */
/*
 * The log of programs and libraries: one line a call, to one sink per process. A library never
 * prints by itself: until a program installs a sink, lines go nowhere.
 */
#ifndef HAUL_BASE_LOG_H
#define HAUL_BASE_LOG_H

#include <stdarg.h>
#include <stdint.h>

#include "proto/base/compiler.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Called on the thread that logs, with a finished line without newline, already made safe to
 * print (bytes from the wire are escaped). Must be callable from several threads at once. */
typedef void log_sink_fn(enum log_level level, const char *line);

/* Before threads start. The sink for programs: stderr, with "<3>"-style priorities when stderr is
 * the journal. It never blocks: lines that find no room are lost, and their number is told. */
void log_set_sink(log_sink_fn *sink, enum log_level max_level);
void log_to_stderr(enum log_level level, const char *line);

void log_line(enum log_level level, const char *format, ...) printf_like(2, 3);

/* At most BURST lines per ten seconds pass through one limiter (an object with static storage or
 * one owned by a single thread); the number swallowed is told with the next line that passes. */
struct log_limit {
	uint64_t window_start_ns;
	uint32_t nr_passed;
	uint32_t nr_dropped;
};
void log_line_limited(struct log_limit *limit, uint64_t now_ns, enum log_level level,
	const char *format, ...) printf_like(4, 5);

#define log_error(...)	 log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
