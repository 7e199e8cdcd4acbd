/* SPDX-License-Identifier: MIT */
/*
 * Register, acquire, preempt, release, clear; and who may do what.
 */
#include "target/reservation.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/compiler.h"
#include "proto/nvme/status.h"

#define RESERVATION_CONFLICT (NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR)
#define RESERVATION_INVALID  (NVME_SC_INVALID_FIELD | NVME_STATUS_DNR)

struct reservation *reservation_create(size_t room)
{
	struct reservation *state = NULL;

	if (room < UINT32_MAX)
		state = calloc(1, sizeof(*state) + room * sizeof(state->registrants[0]));
	if (state)
		state->room = (uint32_t)room;
	return state;
}

struct reservation *reservation_copy(const struct reservation *from)
{
	struct reservation *state = reservation_create((size_t)from->nr + 1);

	if (!state)
		return NULL;
	memcpy(state, from, sizeof(*from) + (size_t)from->nr * sizeof(from->registrants[0]));
	state->room = from->nr + 1;
	return state;
}

/* --- registrants ----------------------------------------------------------------------------- */

/* Where HOST is, or belongs. */
static uint32_t reservation_place(const struct reservation *state, const uint8_t *host)
{
	uint32_t low = 0, high = state->nr;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (memcmp(state->registrants[middle].host, host, RESERVATION_HOST_BYTES) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool reservation_is_at(const struct reservation *state, uint32_t place, const uint8_t *host)
{
	return place < state->nr &&
	       !memcmp(state->registrants[place].host, host, RESERVATION_HOST_BYTES);
}

const struct registrant *reservation_find(const struct reservation *state, const uint8_t *host)
{
	uint32_t place = reservation_place(state, host);

	return reservation_is_at(state, place, host) ? &state->registrants[place] : NULL;
}

bool reservation_add(struct reservation *state, const uint8_t *host, uint64_t key)
{
	uint32_t place = reservation_place(state, host);
	struct registrant *at = &state->registrants[place];

	if (reservation_is_at(state, place, host))
		return false;
	assert(state->nr < state->room);
	memmove(at + 1, at, (state->nr - place) * sizeof(*at));
	memcpy(at->host, host, RESERVATION_HOST_BYTES);
	at->key = key;
	state->nr++;
	return true;
}

bool reservation_holds(const struct reservation *state, const uint8_t *host)
{
	if (!state->type)
		return false;
	if (reservation_is_shared(state))
		return reservation_find(state, host);
	return !memcmp(state->holder, host, RESERVATION_HOST_BYTES);
}

bool reservation_lost(const struct reservation *before, const struct reservation *after,
	const struct reservation_command *command, const uint8_t *host)
{
	return memcmp(command->host, host, RESERVATION_HOST_BYTES) &&
	       reservation_find(before, host) && !reservation_find(after, host);
}

static void reservation_end(struct reservation *state)
{
	state->type = NVME_RESERVATION_NONE;
	memset(state->holder, 0, sizeof(state->holder));
}

static void reservation_begin(struct reservation *state, const uint8_t *host, uint8_t type)
{
	reservation_end(state);
	state->type = type;
	if (!reservation_is_shared(state))
		memcpy(state->holder, host, RESERVATION_HOST_BYTES);
}

/* The holder's registration, or the last one, takes the reservation with it (8.19.4). */
static void reservation_settle(struct reservation *state)
{
	if (!state->type)
		return;
	if (reservation_is_shared(state) ? !state->nr : !reservation_find(state, state->holder))
		reservation_end(state);
}

/* Those with KEY, or with any; EXCEPT (may be NULL) stays. Returns how many they were. */
static uint32_t reservation_remove(
	struct reservation *state, bool any, uint64_t key, const uint8_t *except)
{
	uint32_t nr = 0, removed;

	for (uint32_t i = 0; i < state->nr; i++) {
		const struct registrant *registrant = &state->registrants[i];
		bool stays = (!any && registrant->key != key) ||
			     (except && !memcmp(registrant->host, except, RESERVATION_HOST_BYTES));

		if (stays)
			state->registrants[nr++] = *registrant;
	}
	removed = state->nr - nr;
	state->nr = nr;
	return removed;
}

/* --- register (7.3, 8.19.2 to 8.19.4) -------------------------------------------------------- */

static uint16_t reservation_register(
	struct reservation *state, const struct reservation_command *command)
{
	const struct registrant *registrant = reservation_find(state, command->host);

	if (registrant)
		return registrant->key == command->key ? 0 : RESERVATION_CONFLICT;
	reservation_add(state, command->host, command->key);
	return 0;
}

static uint16_t reservation_unregister(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	uint32_t place = reservation_place(state, command->host);
	struct registrant *at = &state->registrants[place];
	enum nvme_reservation_type type = state->type;

	if (!reservation_is_at(state, place, command->host) ||
		(!command->iekey && at->key != command->crkey))
		return RESERVATION_CONFLICT;
	state->nr--;
	memmove(at, at + 1, (state->nr - place) * sizeof(*at));
	reservation_settle(state);
	effect->released =
		!state->type && (type == NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS ||
					type == NVME_RESERVATION_EXCLUSIVE_ACCESS_REGISTRANTS);
	return 0;
}

static uint16_t reservation_replace(
	struct reservation *state, const struct reservation_command *command)
{
	uint32_t place = reservation_place(state, command->host);
	struct registrant *at = &state->registrants[place];
	bool registered = reservation_is_at(state, place, command->host);

	/* Whoever ignores the key may come without a registration, too (8.19.2). */
	if (!command->iekey && (!registered || at->key != command->crkey))
		return RESERVATION_CONFLICT;
	if (registered)
		at->key = command->key;
	else
		reservation_add(state, command->host, command->key);
	return 0;
}

static uint16_t reservation_apply_register(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	uint16_t status = RESERVATION_INVALID;

	if (command->action == NVME_RESERVATION_REGISTER)
		status = reservation_register(state, command);
	else if (command->action == NVME_RESERVATION_UNREGISTER)
		status = reservation_unregister(state, command, effect);
	else if (command->action == NVME_RESERVATION_REPLACE)
		status = reservation_replace(state, command);
	if (status)
		return status;
	state->generation++;
	if (command->cptpl != RESERVATION_CPTPL_KEEP)
		state->ptpl = command->cptpl == RESERVATION_CPTPL_SET;
	return 0;
}

/* --- acquire (7.2, 8.19.5, 8.19.7) ----------------------------------------------------------- */

static uint16_t reservation_acquire(
	struct reservation *state, const struct reservation_command *command)
{
	if (!state->type)
		reservation_begin(state, command->host, command->type);
	else if (state->type != command->type || !reservation_holds(state, command->host))
		return RESERVATION_CONFLICT;
	return 0;
}

/* The registrants with PRKEY go, the host too if it has it; somebody must. */
static uint16_t reservation_preempt_registrants(
	struct reservation *state, const struct reservation_command *command)
{
	if (!reservation_remove(state, false, command->key, NULL))
		return RESERVATION_CONFLICT;
	reservation_settle(state);
	return 0;
}

/* ... and the reservation becomes the host's. */
static void reservation_preempt_holder(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	effect->released = state->type != command->type;
	reservation_remove(state, reservation_is_shared(state), command->key, command->host);
	reservation_begin(state, command->host, command->type);
}

static uint16_t reservation_preempt(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	uint16_t status = 0;

	if (!state->type)
		status = reservation_preempt_registrants(state, command);
	else if (reservation_is_shared(state)
			 ? !command->key
			 : reservation_find(state, state->holder)->key == command->key)
		reservation_preempt_holder(state, command, effect);
	else if (!command->key)
		status = RESERVATION_INVALID;
	else
		status = reservation_preempt_registrants(state, command);
	if (status)
		return status;
	state->generation++;
	effect->lost = NVME_RESERVATION_NOTICE_REGISTRATION_PREEMPTED;
	effect->abort = command->action == NVME_RESERVATION_PREEMPT_ABORT;
	return 0;
}

/* Acquire and Release are for registrants that know their key. */
static bool reservation_key_fits(
	const struct reservation *state, const struct reservation_command *command)
{
	const struct registrant *registrant = reservation_find(state, command->host);

	return registrant && registrant->key == command->crkey;
}

static uint16_t reservation_apply_acquire(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	if (command->iekey || !reservation_type_valid(command->type) ||
		command->action > NVME_RESERVATION_PREEMPT_ABORT)
		return RESERVATION_INVALID;
	if (!reservation_key_fits(state, command))
		return RESERVATION_CONFLICT;
	if (command->action == NVME_RESERVATION_ACQUIRE)
		return reservation_acquire(state, command);
	return reservation_preempt(state, command, effect);
}

/* --- release (7.4, 8.19.6, 8.19.8) ----------------------------------------------------------- */

static uint16_t reservation_release(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	if (!reservation_holds(state, command->host))
		return 0;
	if (command->type != state->type)
		return RESERVATION_INVALID;
	effect->released = state->type != NVME_RESERVATION_WRITE_EXCLUSIVE &&
			   state->type != NVME_RESERVATION_EXCLUSIVE_ACCESS;
	reservation_end(state);
	return 0;
}

static void reservation_clear(struct reservation *state, struct reservation_effect *effect)
{
	state->nr = 0;
	reservation_end(state);
	state->generation++;
	effect->lost = NVME_RESERVATION_NOTICE_PREEMPTED;
}

static uint16_t reservation_apply_release(struct reservation *state,
	const struct reservation_command *command, struct reservation_effect *effect)
{
	if (command->iekey || command->action > NVME_RESERVATION_CLEAR)
		return RESERVATION_INVALID;
	if (!reservation_key_fits(state, command))
		return RESERVATION_CONFLICT;
	if (command->action == NVME_RESERVATION_RELEASE)
		return reservation_release(state, command, effect);
	reservation_clear(state, effect);
	return 0;
}

uint16_t reservation_apply(struct reservation *state, const struct reservation_command *command,
	struct reservation_effect *ret)
{
	*ret = (struct reservation_effect){0};
	switch (command->op) {
	case RESERVATION_REGISTER:
		return reservation_apply_register(state, command, ret);
	case RESERVATION_ACQUIRE:
		return reservation_apply_acquire(state, command, ret);
	case RESERVATION_RELEASE:
		return reservation_apply_release(state, command, ret);
	case RESERVATION_PERSISTENCE:
		state->ptpl = command->cptpl == RESERVATION_CPTPL_SET;
		return 0;
	}
	return RESERVATION_INVALID;
}

/* --- other commands -------------------------------------------------------------------------- */

bool reservation_allows(
	const struct reservation *state, const uint8_t *host, enum reservation_access access)
{
	bool excludes_reads = state->type == NVME_RESERVATION_EXCLUSIVE_ACCESS ||
			      state->type == NVME_RESERVATION_EXCLUSIVE_ACCESS_REGISTRANTS ||
			      state->type == NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL;

	if (!state->type || access == RESERVATION_FREE)
		return true;
	if (access == RESERVATION_READ && !excludes_reads)
		return true;
	if (state->type == NVME_RESERVATION_WRITE_EXCLUSIVE ||
		state->type == NVME_RESERVATION_EXCLUSIVE_ACCESS)
		return reservation_holds(state, host);
	return reservation_find(state, host);
}
