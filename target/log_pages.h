/* SPDX-License-Identifier: MIT */
/*
 * What those who make log pages share. A page is made as the host reads it; a long one (or one
 * whose length changes) is copied piece by piece into the window that the host asked for.
 */
#ifndef HAUL_TARGET_LOG_PAGES_H
#define HAUL_TARGET_LOG_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "target/request.h"

struct log_window {
	uint64_t offset;
	uint64_t length;
	char *bytes; /* zeroed */
};

/* The part of [AT, AT + SIZE) of the page that lies in the window. */
void log_window_copy(const struct log_window *window, uint64_t at, const void *from, size_t size);

/* For a page that has to be waited for: the command's end. PAGE is all of it. */
void log_page_answer(struct request *request, const void *page, size_t size);

#endif
