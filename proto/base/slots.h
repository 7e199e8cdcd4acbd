/* SPDX-License-Identifier: MIT */
/*
 * A fixed number of slots, handed out by number in constant time, last in first out (the warmest
 * first). Memory of slots that were never taken is never touched, so that a deep idle queue costs
 * no resident memory.
 */
#ifndef HAUL_BASE_SLOTS_H
#define HAUL_BASE_SLOTS_H

#include "proto/base/compiler.h"

#define SLOTS_NONE UINT32_MAX

struct slots {
	uint32_t *free_stack; /* owned; entries below nr_free are free numbers */
	uint32_t nr_free;     /* freed ones waiting on the stack */
	uint32_t nr_touched;  /* numbers below this have been handed out at least once */
	uint32_t nr;
};

int slots_init(struct slots *slots, uint32_t nr) must_check;
/* More slots, NR in all, while some may be in use. On failure nothing has changed. */
int slots_grow(struct slots *slots, uint32_t nr) must_check;
void slots_destroy(struct slots *slots);

/* A free number below nr, or SLOTS_NONE. */
static inline uint32_t slots_get(struct slots *slots)
{
	if (slots->nr_free)
		return slots->free_stack[--slots->nr_free];
	return slots->nr_touched < slots->nr ? slots->nr_touched++ : SLOTS_NONE;
}

static inline void slots_put(struct slots *slots, uint32_t number)
{
	assert(number < slots->nr_touched && slots->nr_free < slots->nr_touched);
	slots->free_stack[slots->nr_free++] = number;
}

static inline uint32_t slots_nr_used(const struct slots *slots)
{
	return slots->nr_touched - slots->nr_free;
}

#endif
