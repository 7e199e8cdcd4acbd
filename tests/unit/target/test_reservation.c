/* SPDX-License-Identifier: MIT */
/*
 * Reservations against the tables of NVMe base 2.0 8.19: each command and type, by the holder, by
 * another registrant and by a host that is none; what is told to whom; and the stored text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/nvme/crc32c.h"
#include "proto/nvme/status.h"
#include "target/reservation.h"
#include "target/reservation_store.h"
#include "target/state_dir.h"

#define NR_TYPES 7
#define KEY(who) (0x100u + (who))
#define ODD_KEY	 0x999u

/* A has registered first and has the reservation, B is registered, C is nobody. */
enum who { A, B, C, NR_WHO };

static const uint8_t hosts[NR_WHO][RESERVATION_HOST_BYTES] = {{7, 1}, {3, 2}, {5, 3}};

static struct reservation *do_command(struct reservation *state,
	const struct reservation_command *command, uint16_t *ret_status,
	struct reservation_effect *effect)
{
	struct reservation *after = reservation_copy(state);

	assert_non_null(after);
	*ret_status = reservation_apply(after, command, effect);
	if (*ret_status) {
		free(after);
		return state;
	}
	free(state);
	return after;
}

static struct reservation *must(struct reservation *state, struct reservation_command command)
{
	struct reservation_effect effect;
	uint16_t status;

	state = do_command(state, &command, &status, &effect);
	assert_int_equal(status, 0);
	return state;
}

static struct reservation_command command_of(
	enum who who, enum reservation_op op, uint8_t action, uint64_t crkey, uint64_t key)
{
	struct reservation_command command = {
		.op = op, .action = action, .crkey = crkey, .key = key};

	memcpy(command.host, hosts[who], sizeof(command.host));
	return command;
}

static struct reservation *setup(unsigned type)
{
	struct reservation *state = reservation_create(0);
	struct reservation_command acquire =
		command_of(A, RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, KEY(A), 0);

	for (enum who who = A; who <= B; who++)
		state = must(state, command_of(who, RESERVATION_REGISTER, NVME_RESERVATION_REGISTER,
					    0, KEY(who)));
	acquire.type = (uint8_t)type;
	return type ? must(state, acquire) : state;
}

/* --- the table ------------------------------------------------------------------------------- */

enum rtype { SAME, OTHER_TYPE, WRONG }; /* as that which is held; WE when none is */

/* By type 0 to 6: S success, C Reservation Conflict, I Invalid Field. */
struct outcome {
	const char *status;
	const char *type;	/* afterwards */
	const char *registered; /* how many are, afterwards */
};

struct command_case {
	const char *name;
	enum reservation_op op;
	uint8_t action;
	int crkey; /* -1: its own, else that */
	int key;   /* likewise */
	bool iekey;
	enum rtype rtype;
	bool adds_generation;
	struct outcome by[NR_WHO];
};

#define OWN	   -1
#define SAME_STATE "0123456", "2222222"
#define ALL_S	   "SSSSSSS"
#define ALL_C	   "CCCCCCC"
#define ALL_I	   "IIIIIII"

static const struct command_case command_cases[] = {
	{"register with its key", RESERVATION_REGISTER, NVME_RESERVATION_REGISTER, 0, OWN, false,
		SAME, true,
		{{ALL_S, SAME_STATE}, {ALL_S, SAME_STATE}, {ALL_S, "0123456", "3333333"}}},
	{"register with another key", RESERVATION_REGISTER, NVME_RESERVATION_REGISTER, OWN, ODD_KEY,
		false, SAME, true,
		{{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_S, "0123456", "3333333"}}},
	{"unregister", RESERVATION_REGISTER, NVME_RESERVATION_UNREGISTER, OWN, 0, false, SAME, true,
		{{ALL_S, "0000056", "1111111"}, {ALL_S, "0123456", "1111111"},
			{ALL_C, SAME_STATE}}},
	{"unregister with a wrong key", RESERVATION_REGISTER, NVME_RESERVATION_UNREGISTER, ODD_KEY,
		0, false, SAME, true,
		{{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"unregister with any key", RESERVATION_REGISTER, NVME_RESERVATION_UNREGISTER, ODD_KEY, 0,
		true, SAME, true,
		{{ALL_S, "0000056", "1111111"}, {ALL_S, "0123456", "1111111"},
			{ALL_C, SAME_STATE}}},
	{"replace", RESERVATION_REGISTER, NVME_RESERVATION_REPLACE, OWN, ODD_KEY, false, SAME, true,
		{{ALL_S, SAME_STATE}, {ALL_S, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"replace with a wrong key", RESERVATION_REGISTER, NVME_RESERVATION_REPLACE, ODD_KEY, OWN,
		false, SAME, true, {{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"replace with any key", RESERVATION_REGISTER, NVME_RESERVATION_REPLACE, ODD_KEY, ODD_KEY,
		true, SAME, true,
		{{ALL_S, SAME_STATE}, {ALL_S, SAME_STATE}, {ALL_S, "0123456", "3333333"}}},
	{"register, reserved action", RESERVATION_REGISTER, 3, OWN, OWN, false, SAME, true,
		{{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"acquire", RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, OWN, 0, false, SAME, false,
		{{ALL_S, "1123456", "2222222"}, {"SCCCCSS", "1123456", "2222222"},
			{ALL_C, SAME_STATE}}},
	{"acquire another type", RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, OWN, 0, false,
		OTHER_TYPE, false,
		{{"SCCCCCC", "1123456", "2222222"}, {"SCCCCCC", "1123456", "2222222"},
			{ALL_C, SAME_STATE}}},
	{"acquire with a wrong key", RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, ODD_KEY, 0,
		false, SAME, false,
		{{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"acquire with any key", RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, OWN, 0, true, SAME,
		false, {{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"acquire, reserved type", RESERVATION_ACQUIRE, NVME_RESERVATION_ACQUIRE, OWN, 0, false,
		WRONG, false, {{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"acquire, reserved action", RESERVATION_ACQUIRE, 3, OWN, 0, false, SAME, false,
		{{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"preempt A's key", RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, OWN, KEY(A), false,
		OTHER_TYPE, true,
		{{ALL_S, "0234156", "1222211"}, {ALL_S, "0234156", "1111111"},
			{ALL_C, SAME_STATE}}},
	{"preempt B's key", RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, OWN, KEY(B), false,
		OTHER_TYPE, true,
		{{ALL_S, "0123456", "1111111"}, {ALL_S, "0123456", "1111111"},
			{ALL_C, SAME_STATE}}},
	{"preempt nobody's key", RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT_ABORT, OWN, ODD_KEY,
		false, OTHER_TYPE, true,
		{{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"preempt all", RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT_ABORT, OWN, 0, false,
		OTHER_TYPE, true,
		{{"CIIIISS", "0123461", "2222211"}, {"CIIIISS", "0123461", "2222211"},
			{ALL_C, SAME_STATE}}},
	{"release", RESERVATION_RELEASE, NVME_RESERVATION_RELEASE, OWN, 0, false, SAME, false,
		{{ALL_S, "0000000", "2222222"}, {ALL_S, "0123400", "2222222"},
			{ALL_C, SAME_STATE}}},
	{"release another type", RESERVATION_RELEASE, NVME_RESERVATION_RELEASE, OWN, 0, false,
		OTHER_TYPE, false,
		{{"SIIIIII", SAME_STATE}, {"SSSSSII", SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"release with a wrong key", RESERVATION_RELEASE, NVME_RESERVATION_RELEASE, ODD_KEY, 0,
		false, SAME, false,
		{{ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}, {ALL_C, SAME_STATE}}},
	{"release with any key", RESERVATION_RELEASE, NVME_RESERVATION_RELEASE, OWN, 0, true, SAME,
		false, {{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"release, reserved action", RESERVATION_RELEASE, 2, OWN, 0, false, SAME, false,
		{{ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}, {ALL_I, SAME_STATE}}},
	{"clear", RESERVATION_RELEASE, NVME_RESERVATION_CLEAR, OWN, 0, false, SAME, true,
		{{ALL_S, "0000000", "0000000"}, {ALL_S, "0000000", "0000000"},
			{ALL_C, SAME_STATE}}},
};

static char status_char(uint16_t status)
{
	switch (status) {
	case 0:
		return 'S';
	case NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR:
		return 'C';
	case NVME_SC_INVALID_FIELD | NVME_STATUS_DNR:
		return 'I';
	default:
		return '?';
	}
}

static uint8_t rtype_of(enum rtype rtype, unsigned held)
{
	if (rtype == WRONG)
		return 7;
	if (!held)
		return NVME_RESERVATION_WRITE_EXCLUSIVE;
	/* 1 to 4 in a ring, 5 to 6, 6 to 1. */
	if (rtype == OTHER_TYPE)
		return (uint8_t)(held == 4 || held == 6 ? 1 : held + 1);
	return (uint8_t)held;
}

static void check_invariants(const struct reservation *state)
{
	for (uint32_t i = 1; i < state->nr; i++)
		assert_true(memcmp(state->registrants[i - 1].host, state->registrants[i].host,
				    RESERVATION_HOST_BYTES) < 0);
	if (state->type)
		assert_true(state->nr > 0);
	if (state->type && !reservation_is_shared(state))
		assert_non_null(reservation_find(state, state->holder));
}

static void run_case(const struct command_case *one, enum who who, unsigned type)
{
	const struct outcome *outcome = &one->by[who];
	struct reservation *state = setup(type);
	uint32_t generation = state->generation;
	struct reservation_command command = command_of(who, one->op, one->action,
		one->crkey == OWN ? KEY(who) : (uint64_t)one->crkey,
		one->key == OWN ? KEY(who) : (uint64_t)one->key);
	struct reservation_effect effect;
	uint16_t status;

	command.iekey = one->iekey;
	command.type = rtype_of(one->rtype, type);
	state = do_command(state, &command, &status, &effect);
	if (status_char(status) != outcome->status[type] ||
		state->type != (unsigned)(outcome->type[type] - '0') ||
		state->nr != (unsigned)(outcome->registered[type] - '0'))
		fail_msg("%s by %c, type %u: %c, then type %d with %u registrants", one->name,
			'A' + (int)who, type, status_char(status), state->type, state->nr);
	assert_int_equal(state->generation, generation + (!status && one->adds_generation));
	check_invariants(state);
	free(state);
}

static void commands_do_what_the_specification_says(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof(command_cases) / sizeof(command_cases[0]); i++)
		for (enum who who = A; who <= C; who++)
			for (unsigned type = 0; type < NR_TYPES; type++)
				run_case(&command_cases[i], who, type);
}

/* --- access (figure 421) --------------------------------------------------------------------- */

static void access_is_as_in_the_table(void **unused)
{
	/* By type; Allowed or Conflict. */
	static const char *const reads[NR_WHO] = {"AAAAAAA", "AACAAAA", "AACACAC"};
	static const char *const writes[NR_WHO] = {"AAAAAAA", "ACCAAAA", "ACCCCCC"};

	(void)unused;
	for (enum who who = A; who <= C; who++) {
		for (unsigned type = 0; type < NR_TYPES; type++) {
			struct reservation *state = setup(type);

			assert_int_equal(reservation_allows(state, hosts[who], RESERVATION_READ),
				reads[who][type] == 'A');
			assert_int_equal(reservation_allows(state, hosts[who], RESERVATION_WRITE),
				writes[who][type] == 'A');
			assert_true(reservation_allows(state, hosts[who], RESERVATION_FREE));
			free(state);
		}
	}
}

/* --- keys ------------------------------------------------------------------------------------ */

/* B066: a holder's key is in one place only. */
static void replaced_key_of_the_holder_is_its_key(void **unused)
{
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE);
	struct reservation_command command =
		command_of(B, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, KEY(B), KEY(A));
	struct reservation_effect effect;
	uint16_t status;

	(void)unused;
	command.type = NVME_RESERVATION_EXCLUSIVE_ACCESS;
	state = must(state,
		command_of(A, RESERVATION_REGISTER, NVME_RESERVATION_REPLACE, KEY(A), ODD_KEY));
	assert_true(reservation_holds(state, hosts[A]));
	state = do_command(state, &command, &status, &effect);
	assert_int_equal(status, NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR);
	command.key = ODD_KEY;
	state = must(state, command);
	assert_true(reservation_holds(state, hosts[B]));
	assert_null(reservation_find(state, hosts[A]));
	free(state);
}

/* B066: one key at two hosts, both go; the host that preempts stays although it has the key, too.
 */
static void hosts_with_one_key_are_preempted_together(void **unused)
{
	struct reservation *state = setup(NVME_RESERVATION_EXCLUSIVE_ACCESS);
	struct reservation_command command =
		command_of(C, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT_ABORT, KEY(A), KEY(A));

	(void)unused;
	command.type = NVME_RESERVATION_WRITE_EXCLUSIVE;
	state = must(state,
		command_of(B, RESERVATION_REGISTER, NVME_RESERVATION_REPLACE, KEY(B), KEY(A)));
	state = must(
		state, command_of(C, RESERVATION_REGISTER, NVME_RESERVATION_REGISTER, 0, KEY(A)));
	state = must(state, command);
	assert_int_equal(state->nr, 1);
	assert_true(reservation_holds(state, hosts[C]));
	assert_int_equal(state->type, NVME_RESERVATION_WRITE_EXCLUSIVE);
	free(state);
}

/* --- who is told ----------------------------------------------------------------------------- */

static enum nvme_reservation_notice told(const struct reservation *before,
	const struct reservation *after, const struct reservation_command *command,
	const struct reservation_effect *effect, enum who who)
{
	if (effect->lost && reservation_lost(before, after, command, hosts[who]))
		return effect->lost;
	if (effect->released && reservation_find(after, hosts[who]) &&
		memcmp(command->host, hosts[who], RESERVATION_HOST_BYTES))
		return NVME_RESERVATION_NOTICE_RELEASED;
	return NVME_RESERVATION_NOTICE_EMPTY;
}

static void check_notice(enum who who, enum reservation_op op, uint8_t action, uint64_t key,
	unsigned held, unsigned type, int to_a, int to_b, bool aborts)
{
	struct reservation *before = setup(held), *after = reservation_copy(before);
	struct reservation_command command = command_of(who, op, action, KEY(who), key);
	struct reservation_effect effect;

	command.type = (uint8_t)type;
	assert_int_equal(reservation_apply(after, &command, &effect), 0);
	assert_int_equal(told(before, after, &command, &effect, A), to_a);
	assert_int_equal(told(before, after, &command, &effect, B), to_b);
	assert_int_equal(effect.abort, aborts);
	free(before);
	free(after);
}

static void others_are_told(void **unused)
{
	enum { NONE, REGISTRATION, RELEASED, PREEMPTED };
	const uint8_t unregister = NVME_RESERVATION_UNREGISTER;

	(void)unused;
	for (unsigned held = 1; held < NR_TYPES; held++) {
		bool only = held == 3 || held == 4, shared = held > 4;

		check_notice(A, RESERVATION_RELEASE, NVME_RESERVATION_RELEASE, 0, held, held, NONE,
			only || shared ? RELEASED : NONE, false);
		check_notice(A, RESERVATION_REGISTER, unregister, 0, held, 0, NONE,
			only ? RELEASED : NONE, false);
		check_notice(B, RESERVATION_REGISTER, unregister, 0, held, 0, NONE, NONE, false);
		check_notice(B, RESERVATION_RELEASE, NVME_RESERVATION_CLEAR, 0, held, 0, PREEMPTED,
			NONE, false);
		check_notice(B, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, KEY(A), held, held,
			REGISTRATION, NONE, false);
		check_notice(A, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT_ABORT, KEY(B), held,
			held, NONE, REGISTRATION, true);
	}
	/* The holder itself changes the type of what it has. */
	check_notice(A, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, KEY(A), 3, 4, NONE, RELEASED,
		false);
	check_notice(
		A, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, KEY(A), 3, 3, NONE, NONE, false);
	check_notice(B, RESERVATION_ACQUIRE, NVME_RESERVATION_PREEMPT, 0, 5, 1, REGISTRATION, NONE,
		false);
}

/* --- many registrants ------------------------------------------------------------------------ */

static void registrants_have_no_limit(void **unused)
{
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS);
	const unsigned nr = 3000;

	(void)unused;
	for (unsigned i = 0; i < nr; i++) {
		struct reservation_command command =
			command_of(C, RESERVATION_REGISTER, NVME_RESERVATION_REGISTER, 0, i);
		unsigned mixed = i * 2654435761u;

		memcpy(command.host + 4, &mixed, sizeof(mixed));
		state = must(state, command);
	}
	assert_int_equal(state->nr, nr + 2);
	check_invariants(state);
	state = must(state, command_of(A, RESERVATION_RELEASE, NVME_RESERVATION_CLEAR, KEY(A), 0));
	assert_int_equal(state->nr, 0);
	free(state);
}

/* --- any commands ---------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *random)
{
	*random = *random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*random >> 33);
}

/* Of few hosts and keys, so that most fit; reserved values, too. */
static struct reservation_command random_command(uint64_t *random)
{
	struct reservation_command command = {
		.op = next_random(random) % 4,
		.action = (uint8_t)(next_random(random) % 4),
		.iekey = next_random(random) % 4 == 0,
		.cptpl = (uint8_t)(next_random(random) % 3 + 1) & ~1u,
		.type = (uint8_t)(next_random(random) % 8),
		.crkey = next_random(random) % 4,
		.key = next_random(random) % 4,
	};

	command.host[next_random(random) % 2] = (uint8_t)(1 + next_random(random) % 4);
	return command;
}

/* What holds whatever has happened. */
static void check_step(const struct reservation *before, const struct reservation *after,
	const struct reservation_command *command, const struct reservation_effect *effect)
{
	check_invariants(after);
	assert_true(after->generation - before->generation <= 1);
	assert_false(reservation_lost(before, after, command, command->host));
	for (uint32_t i = 0; i < before->nr; i++) {
		const uint8_t *host = before->registrants[i].host;

		/* Nobody vanishes without being told. */
		if (reservation_lost(before, after, command, host))
			assert_true(effect->lost);
		if (reservation_allows(after, host, RESERVATION_WRITE))
			assert_true(reservation_allows(after, host, RESERVATION_READ));
	}
	if (effect->abort)
		assert_int_equal(command->action, NVME_RESERVATION_PREEMPT_ABORT);
}

static void rules_hold_after_any_commands(void **unused)
{
	struct reservation *state = reservation_create(0);
	unsigned nr_done = 0, most = 0;
	uint64_t random = 1;

	(void)unused;
	for (unsigned i = 0; i < 300000; i++) {
		struct reservation_command command = random_command(&random);
		struct reservation *after = reservation_copy(state);
		struct reservation_effect effect;

		if (reservation_apply(after, &command, &effect)) {
			free(after);
			continue;
		}
		check_step(state, after, &command, &effect);
		free(state);
		state = after;
		nr_done++;
		most = most > state->nr ? most : state->nr;
	}
	assert_true(nr_done > 10000);
	assert_int_equal(most, 8);
	free(state);
}

/* --- the stored text ------------------------------------------------------------------------- */

static const struct nvme_uuid uuid = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};

static void stored_state_is_read_again(void **unused)
{
	(void)unused;
	for (unsigned type = 0; type < NR_TYPES; type++) {
		struct reservation *state = setup(type), *again = NULL;
		const char *fault = NULL;
		size_t length;
		char *text;

		state->ptpl = true;
		state->generation = UINT32_MAX;
		state->registrants[0].key = UINT64_MAX;
		assert_int_equal(reservation_store_format(&uuid, state, &text, &length), 0);
		assert_int_equal(reservation_store_parse(&uuid, text, length, &again, &fault), 0);
		assert_int_equal(again->nr, state->nr);
		again->room = state->room;
		assert_memory_equal(
			again, state, sizeof(*state) + state->nr * sizeof(state->registrants[0]));
		free(again);
		free(text);
		free(state);
	}
}

/* Cut anywhere, any bit turned: told, never taken. */
static void damaged_text_is_refused(void **unused)
{
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE), *again = NULL;
	const char *fault;
	size_t length;
	char *text;

	(void)unused;
	state->ptpl = true;
	assert_int_equal(reservation_store_format(&uuid, state, &text, &length), 0);
	for (size_t cut = 0; cut < length; cut++) {
		fault = NULL;
		assert_int_equal(
			reservation_store_parse(&uuid, text, cut, &again, &fault), -EBADMSG);
		assert_non_null(fault);
	}
	for (size_t bit = 0; bit < 8 * length; bit++) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(
			reservation_store_parse(&uuid, text, length, &again, &fault), -EBADMSG);
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
	free(text);
	free(state);
}

/* With a right checksum, but not what the rules allow. */
static void impossible_text_is_refused(void **unused)
{
#define REG(n) "{\"host\":\"0000000000000000000000000000000" n "\",\"key\":\"0x0000000000000001\"}"
#define UUID   "\"uuid\":\"01020304-0506-0708-0900-000000000000\","
#define HOLDER "\"holder\":\"00000000000000000000000000000001\","
#define GEN    "\"generation\":1,"
	static const struct {
		const char *json;
		bool right;
	} cases[] = {
		{"{" UUID GEN HOLDER "\"type\":1,\"registrants\":[" REG("1") "]}", true},
		{"{" UUID GEN HOLDER "\"type\":0,\"registrants\":[]}", true},
		{"{" UUID GEN HOLDER "\"type\":5,\"registrants\":[" REG("2") "]}", true},
		{"{" UUID GEN HOLDER "\"type\":1,\"registrants\":[" REG("2") "]}", false},
		{"{" UUID GEN HOLDER "\"type\":5,\"registrants\":[]}", false},
		{"{" UUID GEN HOLDER "\"type\":7,\"registrants\":[" REG("1") "]}", false},
		{"{" UUID GEN HOLDER "\"type\":-1,\"registrants\":[" REG("1") "]}", false},
		{"{" UUID GEN HOLDER "\"type\":1,\"registrants\":[" REG("1") "," REG("1") "]}",
			false},
		{"{" UUID GEN HOLDER "\"type\":1,\"registrants\":[1]}", false},
		{"{" UUID GEN HOLDER "\"type\":1,\"registrants\":{}}", false},
		{"{" UUID GEN HOLDER "\"type\":1}", false},
		{"{" UUID GEN "\"type\":1,\"registrants\":[" REG("1") "]}", false},
		{"{" UUID HOLDER "\"type\":1,\"registrants\":[" REG("1") "]}", false},
		{"{" GEN HOLDER "\"type\":1,\"registrants\":[" REG("1") "]}", false},
		{"{" UUID "\"generation\":4294967296," HOLDER "\"type\":0,\"registrants\":[]}",
			false},
		{"[]", false},
		{"", false},
	};

	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct reservation *state = NULL;
		const char *fault = NULL;
		char text[1024];
		int error;

		snprintf(text, sizeof(text), "haul-reservation 1 %zu %08x\n%s",
			strlen(cases[i].json), nvme_crc32c(0, cases[i].json, strlen(cases[i].json)),
			cases[i].json);
		error = reservation_store_parse(&uuid, text, strlen(text), &state, &fault);
		if (error != (cases[i].right ? 0 : -EBADMSG))
			fail_msg("%s: %d, %s", cases[i].json, error, fault);
		free(state);
	}
}

/* Any change of the JSON under a checksum that is right again: refused, or a state that the rules
 * allow. */
static void any_text_is_refused_or_sound(void **unused)
{
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE);
	unsigned nr_sound = 0;
	uint64_t random = 7;
	size_t length, body;
	char *text;

	(void)unused;
	assert_int_equal(reservation_store_format(&uuid, state, &text, &length), 0);
	body = (size_t)(strchr(text, '\n') + 1 - text);
	for (unsigned i = 0; i < 20000; i++) {
		struct reservation *again = NULL;
		const char *fault = NULL;
		char changed[2048];
		int head;

		head = snprintf(changed, 64, "haul-reservation 1 %zu ", length - body);
		memcpy(changed + head + 9, text + body, length - body);
		for (unsigned nr = next_random(&random) % 3; nr < 3; nr++) {
			char *at = changed + head + 9 + next_random(&random) % (length - body);

			*at = next_random(&random) % 2
				      ? (char)next_random(&random)
				      : text[body + next_random(&random) % (length - body)];
		}
		snprintf(changed + head, 9, "%08x",
			nvme_crc32c(0, changed + head + 9, length - body));
		changed[head + 8] = '\n';
		if (!reservation_store_parse(
			    &uuid, changed, (size_t)head + 9 + length - body, &again, &fault)) {
			check_invariants(again);
			nr_sound++;
		} else {
			assert_non_null(fault);
		}
		free(again);
	}
	assert_true(nr_sound > 100);
	free(text);
	free(state);
}

/* --- the directory --------------------------------------------------------------------------- */

static void store_keeps_what_persists_only(void **unused)
{
	char directory[] = "/tmp/haul-reservation-XXXXXX";
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE), *again = NULL;
	struct state_dir store, second;
	char why[256];

	(void)unused;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(state_dir_open(&store, directory, why, sizeof(why)), 0);
	assert_int_not_equal(state_dir_open(&second, directory, why, sizeof(why)), 0);
	assert_non_null(strstr(why, "another hauld"));
	state_dir_close(&second);
	state->ptpl = true;
	assert_int_equal(reservation_store_save(&store, &uuid, state), 0);
	assert_int_equal(reservation_store_load(&store, &uuid, &again, why, sizeof(why)), 0);
	assert_int_equal(again->nr, 2);
	free(again);
	state->ptpl = false;
	assert_int_equal(reservation_store_save(&store, &uuid, state), 0);
	assert_int_equal(reservation_store_load(&store, &uuid, &again, why, sizeof(why)), 0);
	assert_null(again);
	/* Nothing is left. */
	assert_int_equal(rmdir(directory), 0);
	state->ptpl = true;
	assert_int_not_equal(reservation_store_save(&store, &uuid, state), 0);
	state_dir_close(&store);
	free(state);
}

static void what_could_not_be_read_again_is_not_stored(void **unused)
{
	char directory[] = "/tmp/haul-reservation-XXXXXX";
	struct reservation *state = setup(NVME_RESERVATION_WRITE_EXCLUSIVE), *again = NULL;
	struct state_dir store;
	char why[256];
	char *text;

	(void)unused;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(state_dir_open(&store, directory, why, sizeof(why)), 0);
	state->ptpl = true;
	assert_int_equal(reservation_store_format(&uuid, state, &text, &store.max_bytes), 0);
	free(text);
	assert_int_equal(reservation_store_save(&store, &uuid, state), 0);
	store.max_bytes--;
	assert_int_equal(reservation_store_save(&store, &uuid, state), -EFBIG);
	store.max_bytes++;
	assert_int_equal(reservation_store_load(&store, &uuid, &again, why, sizeof(why)), 0);
	assert_int_equal(again->nr, 2);
	free(again);
	state->ptpl = false;
	assert_int_equal(reservation_store_save(&store, &uuid, state), 0);
	assert_int_equal(rmdir(directory), 0);
	state_dir_close(&store);
	free(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_could_not_be_read_again_is_not_stored),
		cmocka_unit_test(commands_do_what_the_specification_says),
		cmocka_unit_test(access_is_as_in_the_table),
		cmocka_unit_test(replaced_key_of_the_holder_is_its_key),
		cmocka_unit_test(hosts_with_one_key_are_preempted_together),
		cmocka_unit_test(others_are_told),
		cmocka_unit_test(registrants_have_no_limit),
		cmocka_unit_test(rules_hold_after_any_commands),
		cmocka_unit_test(stored_state_is_read_again),
		cmocka_unit_test(damaged_text_is_refused),
		cmocka_unit_test(impossible_text_is_refused),
		cmocka_unit_test(any_text_is_refused_or_sound),
		cmocka_unit_test(store_keeps_what_persists_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
