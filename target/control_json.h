/* SPDX-License-Identifier: MIT */
/*
 * Members of JSON objects. No memory: the member is missing.
 */
#ifndef HAUL_TARGET_CONTROL_JSON_H
#define HAUL_TARGET_CONTROL_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <json-c/json.h>

static inline void control_json_text(struct json_object *json, const char *key, const char *value)
{
	json_object_object_add(json, key, json_object_new_string(value));
}

static inline void control_json_number(struct json_object *json, const char *key, uint64_t value)
{
	json_object_object_add(json, key, json_object_new_uint64(value));
}

static inline void control_json_flag(struct json_object *json, const char *key, bool value)
{
	json_object_object_add(json, key, json_object_new_boolean(value));
}

/* An empty list, or object, that is a member already. */
static inline struct json_object *control_json_list(struct json_object *json, const char *key)
{
	struct json_object *list = json_object_new_array();

	json_object_object_add(json, key, list);
	return list;
}

static inline struct json_object *control_json_object(struct json_object *json, const char *key)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(json, key, object);
	return object;
}

/* An empty object at the end of LIST. */
static inline struct json_object *control_json_entry(struct json_object *list)
{
	struct json_object *object = json_object_new_object();

	json_object_array_add(list, object);
	return object;
}

#endif
