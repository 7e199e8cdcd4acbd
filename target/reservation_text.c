/* SPDX-License-Identifier: MIT */
/*
 * The text of a stored reservation, sealed JSON.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "target/reservation.h"
#include "target/reservation_store.h"
#include "target/state_dir.h"

#define RESERVATION_TEXT_VERSION 1
#define RESERVATION_TEXT_KIND	 "reservation"
/* What a host's identifier is written in. */
#define RESERVATION_HOST_TEXT	 (2 * RESERVATION_HOST_BYTES + 1)
#define RESERVATION_KEY_TEXT	 (2 + 16 + 1)
#define RESERVATION_JSON_DEPTH	 8

/* --- writing --------------------------------------------------------------------------------- */

static void reservation_text_put_host(FILE *file, const uint8_t host[RESERVATION_HOST_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	char text[RESERVATION_HOST_TEXT] = "";

	for (unsigned i = 0; i < RESERVATION_HOST_BYTES; i++) {
		text[2 * i] = digits[host[i] >> 4];
		text[2 * i + 1] = digits[host[i] & 0xf];
	}
	fputs(text, file);
}

/* There is nothing in it that would have to be escaped. A tree of objects first, as it is read,
 * takes twenty times as long. */
static void reservation_text_put(
	FILE *file, const struct nvme_uuid *uuid, const struct reservation *state)
{
	char text[NVME_UUID_TEXT];

	nvme_uuid_format(uuid, text);
	fprintf(file,
		"{\n  \"uuid\": \"%s\",\n  \"generation\": %" PRIu32
		",\n  \"type\": %d,\n  \"holder\": \"",
		text, state->generation, state->type);
	reservation_text_put_host(file, state->holder);
	fputs("\",\n  \"registrants\": [", file);
	for (uint32_t i = 0; i < state->nr; i++) {
		fprintf(file, "%s\n    { \"host\": \"", i ? "," : "");
		reservation_text_put_host(file, state->registrants[i].host);
		fprintf(file, "\", \"key\": \"0x%016" PRIx64 "\" }", state->registrants[i].key);
	}
	fputs("\n  ]\n}\n", file);
}

int reservation_store_format(const struct nvme_uuid *uuid, const struct reservation *state,
	char **ret, size_t *ret_length)
{
	char *body = NULL;
	size_t length;
	FILE *file = open_memstream(&body, &length);
	int error = -ENOMEM;
	bool whole;

	if (!file)
		return error;
	reservation_text_put(file, uuid, state);
	/* What a lack of memory has left out is found here, before it replaces anything. */
	whole = !ferror(file);
	if (!fclose(file) && whole)
		error = state_text_seal(
			RESERVATION_TEXT_KIND, RESERVATION_TEXT_VERSION, body, ret, ret_length);
	free(body);
	return error;
}

/* --- reading --------------------------------------------------------------------------------- */

static const char *reservation_text_string(struct json_object *json, const char *key)
{
	struct json_object *value = json_object_object_get(json, key);

	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

static bool reservation_text_number(
	struct json_object *json, const char *key, uint64_t max, uint64_t *ret)
{
	struct json_object *value = json_object_object_get(json, key);

	if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0)
		return false;
	*ret = json_object_get_uint64(value);
	return *ret <= max;
}

static bool reservation_text_get_host(
	struct json_object *json, const char *key, uint8_t ret[RESERVATION_HOST_BYTES])
{
	const char *text = reservation_text_string(json, key);

	if (strlen(text) != RESERVATION_HOST_TEXT - 1 ||
		strspn(text, "0123456789abcdef") != RESERVATION_HOST_TEXT - 1)
		return false;
	for (unsigned i = 0; i < RESERVATION_HOST_BYTES; i++) {
		const char pair[3] = {text[2 * i], text[2 * i + 1]};

		ret[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

static bool reservation_text_registrant(struct json_object *json, struct reservation *state)
{
	const char *key = reservation_text_string(json, "key");
	uint8_t host[RESERVATION_HOST_BYTES];

	if (strlen(key) != RESERVATION_KEY_TEXT - 1 || strncmp(key, "0x", 2) ||
		strspn(key + 2, "0123456789abcdef") != 16)
		return false;
	return reservation_text_get_host(json, "host", host) &&
	       reservation_add(state, host, strtoull(key, NULL, 16));
}

/* NULL: it is one that the rules allow. */
static const char *reservation_text_fill(
	struct json_object *json, const struct nvme_uuid *uuid, struct reservation *state)
{
	struct json_object *list = json_object_object_get(json, "registrants");
	uint64_t generation, type;
	struct nvme_uuid own;

	if (nvme_uuid_parse(reservation_text_string(json, "uuid"), &own) ||
		memcmp(&own, uuid, sizeof(own)))
		return "it is another namespace's";
	if (!reservation_text_number(json, "generation", UINT32_MAX, &generation) ||
		!reservation_text_number(
			json, "type", NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL, &type) ||
		!reservation_text_get_host(json, "holder", state->holder))
		return "generation, type or holder is wrong";
	for (size_t i = 0; i < state->room; i++)
		if (!reservation_text_registrant(json_object_array_get_idx(list, i), state))
			return "a registrant is wrong, or there twice";
	state->generation = (uint32_t)generation;
	state->type = (enum nvme_reservation_type)type;
	state->ptpl = true;
	if (state->type && !state->nr)
		return "nobody is registered who could hold it";
	if (state->type && !reservation_is_shared(state) && !reservation_find(state, state->holder))
		return "its holder is not registered";
	return NULL;
}

static struct json_object *reservation_text_parse_json(const char *text, size_t length)
{
	struct json_tokener *tokener = json_tokener_new_ex(RESERVATION_JSON_DEPTH);
	struct json_object *json;

	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	json = json_tokener_parse_ex(tokener, text, (int)length);
	json_tokener_free(tokener);
	return json;
}

int reservation_store_parse(const struct nvme_uuid *uuid, const char *text, size_t length,
	struct reservation **ret, const char **ret_fault)
{
	const char *body = state_text_open(
		RESERVATION_TEXT_KIND, RESERVATION_TEXT_VERSION, text, length, ret_fault);
	struct json_object *json, *list;
	struct reservation *state = NULL;

	if (!body)
		return -EBADMSG;
	json = reservation_text_parse_json(body, length - (size_t)(body - text));
	list = json_object_object_get(json, "registrants");
	*ret_fault = "it is not the JSON of a reservation";
	if (json_object_is_type(list, json_type_array)) {
		state = reservation_create(json_object_array_length(list));
		*ret_fault = state ? reservation_text_fill(json, uuid, state) : NULL;
	}
	json_object_put(json);
	if (*ret_fault) {
		free(state);
		return -EBADMSG;
	}
	*ret = state;
	return state ? 0 : -ENOMEM;
}
