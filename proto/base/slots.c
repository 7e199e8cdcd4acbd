/* SPDX-License-Identifier: MIT */
/*
 * The stack of free slot numbers: see slots.h. The stack's memory is not touched before use.
 */
#include "proto/base/slots.h"

#include <errno.h>
#include <stdlib.h>

int slots_init(struct slots *slots, uint32_t nr)
{
	uint32_t *stack;

	if (!nr || nr == SLOTS_NONE)
		return -EINVAL;
	stack = malloc((size_t)nr * sizeof(*stack));
	if (!stack)
		return -ENOMEM;
	*slots = (struct slots){.free_stack = stack, .nr = nr};
	return 0;
}

int slots_grow(struct slots *slots, uint32_t nr)
{
	uint32_t *stack;

	assert(nr >= slots->nr);
	stack = reallocarray(slots->free_stack, nr, sizeof(*stack));
	if (!stack)
		return -ENOMEM;
	slots->free_stack = stack;
	slots->nr = nr;
	return 0;
}

void slots_destroy(struct slots *slots)
{
	free(slots->free_stack);
	*slots = (struct slots){};
}
