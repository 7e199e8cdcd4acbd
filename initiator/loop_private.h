/* SPDX-License-Identifier: MIT */
/*
 * What a haul_loop is made of, for the library's own files.
 */
#ifndef HAUL_INITIATOR_LOOP_PRIVATE_H
#define HAUL_INITIATOR_LOOP_PRIVATE_H

#include <stdarg.h>
#include <stdbool.h>

#include "initiator/transport.h"

#define HAUL_ERROR_BYTES 1024 /* of a message to the user; a list of choices is cut there */
/* What bounce buffers of all queues of a loop may take: 64 commands of the largest size. */
#define HAUL_POOL_BYTES	 (64ull * BUFPOOL_MAX_BYTES)

struct haul_loop {
	struct loop *loop;
	struct bufpool *pool;
	struct list ctrls;
	struct haul_transport_loop *transport_loop[HAUL_NR_TRANSPORTS];
	struct list mems; /* all registered regions, for devices that come later */
	struct haul_loop_stats stats;

	struct list ended; /* struct haul_pending: events that wait to be handed out */
	bool is_turning;   /* the loop's own clock is right */
	bool unsent;	   /* commands were started since the last turn */
	uint64_t now_ns;   /* valid while now_is_fresh: since the last turn */
	bool now_is_fresh;
	volatile int interrupted;
	struct loop_message wake;
	volatile int wake_is_out;
	uint32_t nr_resolving;	      /* name look-ups on the helper thread */
	struct haul_mem **by_address; /* the regions, sorted */
	uint32_t nr_by_address, room_by_address;
	struct haul_mem *last_mem; /* found last */
	char error[HAUL_ERROR_BYTES];
};

/* PENDING has ended: its event is handed out after those before it. */
void pending_end(struct haul_loop *hl, struct haul_pending *pending, int result, uint16_t status,
	uint64_t value);
static inline void pending_init(
	struct haul_pending *pending, uint64_t user_data, void (*taken)(struct haul_pending *))
{
	pending->event = (struct haul_event){.user_data = user_data};
	pending->taken = taken;
	list_init(&pending->node);
}

/* A turn, or with TIMEOUT_NS other than 0 turns until something was done. */
void loop_turn_or_wait(struct haul_loop *hl, int64_t timeout_ns);

/*
 * The time now. Commands are started outside of turns, when the loop's clock may be long past:
 * the clock is read at the first command after each turn.
 */
uint64_t haul_loop_now_ns(struct haul_loop *hl);

#endif
