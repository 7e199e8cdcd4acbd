/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes stored reservations: the same bytes as a whole file, and as what a seal is put on, so that
 * the checksum does not keep everything out.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "target/reservation.h"
#include "target/reservation_store.h"
#include "target/state_dir.h"
#include "tests/fuzz/fuzz.h"

static const struct nvme_uuid uuid = {{0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44,
	0x55, 0x55, 0x55, 0x55, 0x55, 0x55}};

/* What the rules allow, and the same when it is stored again. */
static void check_good(const struct reservation *state)
{
	struct reservation *again = NULL;
	const char *fault = NULL;
	char *text = NULL;
	size_t length;

	assert(state->ptpl && state->nr == state->room);
	assert(state->type <= NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL);
	if (state->type && !reservation_is_shared(state))
		assert(reservation_holds(state, state->holder));
	for (uint32_t i = 0; i < state->nr; i++)
		assert(reservation_find(state, state->registrants[i].host) ==
			&state->registrants[i]);
	if (reservation_store_format(&uuid, state, &text, &length))
		return;
	assert(!reservation_store_parse(&uuid, text, length, &again, &fault));
	assert(again->type == state->type && again->generation == state->generation);
	assert(again->nr == state->nr &&
		!memcmp(again->holder, state->holder, sizeof(again->holder)));
	assert(!memcmp(
		again->registrants, state->registrants, state->nr * sizeof(state->registrants[0])));
	free(text);
	free(again);
}

static void check(const char *text, size_t length)
{
	struct reservation *state = NULL;
	const char *fault = NULL;

	if (reservation_store_parse(&uuid, text, length, &state, &fault)) {
		assert(!state && fault && fault[0]);
		return;
	}
	check_good(state);
	free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	char *text = malloc(size + 1), *sealed = NULL;
	size_t length;

	if (!text)
		return 0;
	memcpy(text, input, size);
	text[size] = '\0';
	check(text, size);
	if (!state_text_seal("reservation", 1, text, &sealed, &length))
		check(sealed, length);
	free(sealed);
	free(text);
	return 0;
}
