/* SPDX-License-Identifier: MIT */
/*
 * The caller's registered memory: an array of regions sorted by address, which do not overlap, and
 * the region found last. Registering is rare, finding happens for each command.
 */
#include "initiator/haul.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/loop_private.h"

static bool mem_holds(const struct haul_mem *mem, uintptr_t address, size_t length)
{
	uintptr_t base = (uintptr_t)mem->base;

	return address >= base && length <= mem->length && address - base <= mem->length - length;
}

/* How many regions start at or before ADDRESS: the last of them is the only one that may hold it.
 */
static uint32_t mem_rank(const struct haul_loop *hl, uintptr_t address)
{
	uint32_t low = 0, high = hl->nr_by_address;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if ((uintptr_t)hl->by_address[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct haul_mem *haul_mem_find(struct haul_loop *hl, const void *address, size_t length)
{
	struct haul_mem *mem = hl->last_mem;
	uint32_t rank;

	if (mem && mem_holds(mem, (uintptr_t)address, length))
		return mem;
	rank = mem_rank(hl, (uintptr_t)address);
	if (rank == 0 || !mem_holds(hl->by_address[rank - 1], (uintptr_t)address, length))
		return NULL;
	hl->last_mem = hl->by_address[rank - 1];
	return hl->last_mem;
}

static bool mem_overlaps(const struct haul_loop *hl, uintptr_t base, size_t length, uint32_t rank)
{
	if (rank > 0) {
		const struct haul_mem *before = hl->by_address[rank - 1];

		if (base - (uintptr_t)before->base < before->length)
			return true;
	}
	return rank < hl->nr_by_address && (uintptr_t)hl->by_address[rank]->base - base < length;
}

static int mem_make_room(struct haul_loop *hl)
{
	uint32_t room = hl->room_by_address ? 2 * hl->room_by_address : 16;
	struct haul_mem **larger;

	if (hl->nr_by_address < hl->room_by_address)
		return 0;
	larger = reallocarray(hl->by_address, room, sizeof(struct haul_mem *));
	if (!larger)
		return -ENOMEM;
	hl->by_address = larger;
	hl->room_by_address = room;
	return 0;
}

static void mem_unregister_with(struct haul_loop *hl, struct haul_mem *mem, unsigned nr_transports)
{
	while (nr_transports-- > 0)
		if (haul_transports[nr_transports] &&
			haul_transports[nr_transports]->mem_unregister)
			haul_transports[nr_transports]->mem_unregister(hl, mem);
}

static int mem_register_with_all(struct haul_loop *hl, struct haul_mem *mem)
{
	for (unsigned i = 0; i < HAUL_NR_TRANSPORTS; i++) {
		int error = 0;

		if (haul_transports[i] && haul_transports[i]->mem_register)
			error = haul_transports[i]->mem_register(hl, mem);
		if (error) {
			mem_unregister_with(hl, mem, i);
			return error;
		}
	}
	return 0;
}

int haul_mem_register(struct haul_loop *hl, void *base, size_t length, struct haul_mem **ret)
{
	uint32_t rank = mem_rank(hl, (uintptr_t)base);
	struct haul_mem *mem;
	int error;

	if (length == 0 || (uintptr_t)base + length < (uintptr_t)base)
		return -EINVAL;
	if (mem_overlaps(hl, (uintptr_t)base, length, rank))
		return -EEXIST;
	if (mem_make_room(hl))
		return -ENOMEM;
	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return -ENOMEM;
	mem->hl = hl;
	mem->base = base;
	mem->length = length;
	list_init(&mem->node);
	error = mem_register_with_all(hl, mem);
	if (error) {
		free(mem);
		return error;
	}
	memmove(hl->by_address + rank + 1, hl->by_address + rank,
		(hl->nr_by_address - rank) * sizeof(struct haul_mem *));
	hl->by_address[rank] = mem;
	hl->nr_by_address++;
	list_push_back(&hl->mems, &mem->node);
	hl->stats.nr_registered++;
	hl->stats.registered_bytes += length;
	*ret = mem;
	return 0;
}

void haul_mem_unregister(struct haul_mem *mem)
{
	struct haul_loop *hl;
	uint32_t rank;

	if (!mem)
		return;
	hl = mem->hl;
	rank = mem_rank(hl, (uintptr_t)mem->base) - 1;
	assert(hl->by_address[rank] == mem);
	mem_unregister_with(hl, mem, HAUL_NR_TRANSPORTS);
	hl->nr_by_address--;
	memmove(hl->by_address + rank, hl->by_address + rank + 1,
		(hl->nr_by_address - rank) * sizeof(struct haul_mem *));
	if (hl->last_mem == mem)
		hl->last_mem = NULL;
	list_remove(&mem->node);
	hl->stats.nr_registered--;
	hl->stats.registered_bytes -= mem->length;
	free(mem);
}
