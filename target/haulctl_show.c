/* SPDX-License-Identifier: MIT */
/*
 * The status, for people.
 */
#include "target/haulctl.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* --- members --------------------------------------------------------------------------------- */

static const char *show_text(struct json_object *json, const char *key)
{
	struct json_object *value = json_object_object_get(json, key);

	return value ? json_object_get_string(value) : "?";
}

static uint64_t show_number(struct json_object *json, const char *key)
{
	return json_object_get_uint64(json_object_object_get(json, key));
}

static bool show_flag(struct json_object *json, const char *key)
{
	return json_object_get_boolean(json_object_object_get(json, key));
}

static size_t show_length(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static void show_each(
	struct json_object *json, const char *key, void (*show)(struct json_object *entry))
{
	struct json_object *list = json_object_object_get(json, key);

	for (size_t i = 0; i < show_length(list); i++)
		show(json_object_array_get_idx(list, i));
}

/* With one digit after the point, where the unit is not the smallest. */
static void show_size(uint64_t bytes, char ret_text[32])
{
	static const char units[] = " KMGTPE";
	double size = (double)bytes;
	unsigned unit = 0;

	while (size >= 1024) {
		size /= 1024;
		unit++;
	}
	if (unit)
		snprintf(ret_text, 32, "%.1f %ciB", size, units[unit]);
	else
		snprintf(ret_text, 32, "%" PRIu64 " B", bytes);
}

/* --- parts ----------------------------------------------------------------------------------- */

static void show_target(struct json_object *target)
{
	uint64_t seconds = show_number(target, "uptime_s");
	char resident[32];

	show_size(show_number(target, "resident_bytes"), resident);
	printf("hauld %s, process %" PRIu64 ", up %" PRIu64 " d %02" PRIu64 ":%02" PRIu64
	       ":%02" PRIu64 ", %s resident, %" PRIu64 " descriptors\n",
		show_text(target, "version"), show_number(target, "pid"), seconds / 86400,
		seconds / 3600 % 24, seconds / 60 % 60, seconds % 60, resident,
		show_number(target, "descriptors"));
}

static void show_listener(struct json_object *listener)
{
	printf("  %s\n", show_text(listener, "uri"));
}

static void show_seen_by(struct json_object *host)
{
	printf("                 seen by: %s\n", json_object_get_string(host));
}

static void show_namespace(struct json_object *ns)
{
	char size[32];

	show_size(show_number(ns, "size_bytes"), size);
	printf("  namespace %-4" PRIu64 " %10s  %4" PRIu64 " B blocks  %s%s%s  %s\n",
		show_number(ns, "nsid"), size, show_number(ns, "block_bytes"),
		show_text(ns, "uuid"), show_flag(ns, "read_only") ? "  read-only" : "",
		strcmp(show_text(ns, "state"), "lost") ? "" : "  LOST", show_text(ns, "path"));
	if (!show_flag(ns, "allow_any") && !show_length(json_object_object_get(ns, "allow")))
		puts("                 seen by: no host");
	show_each(ns, "allow", show_seen_by);
}

static void show_ana(struct json_object *ana)
{
	bool at = json_object_object_get(ana, "listener");

	printf("  ana group %-4" PRIu64 " %s%s%s\n", show_number(ana, "group"),
		show_text(ana, "state"), at ? " at " : "", at ? show_text(ana, "listener") : "");
}

static void show_allowed(struct json_object *host)
{
	printf("  allowed: %s\n", json_object_get_string(host));
}

static void show_subsystem(struct json_object *subsys)
{
	printf("%s  serial %s\n", show_text(subsys, "nqn"), show_text(subsys, "serial"));
	if (show_flag(subsys, "allow_any"))
		puts("  allowed: any host");
	show_each(subsys, "allow", show_allowed);
	show_each(subsys, "ana", show_ana);
	show_each(subsys, "namespaces", show_namespace);
}

static void show_queue(struct json_object *queue)
{
	printf("    queue %-3" PRIu64 " %-4s %s  depth %" PRIu64 "  reactor %" PRIu64 "  %" PRIu64
	       " commands, %" PRIu64 " in flight\n",
		show_number(queue, "qid"), show_text(queue, "transport"), show_text(queue, "peer"),
		show_number(queue, "depth"), show_number(queue, "reactor"),
		show_number(queue, "commands"), show_number(queue, "in_flight"));
}

static void show_controller(struct json_object *ctrl)
{
	printf("  controller %" PRIu64 " of %s%s\n", show_number(ctrl, "cntlid"),
		show_text(ctrl, "subsystem"), show_flag(ctrl, "ready") ? "" : ", not ready");
	show_each(ctrl, "queues", show_queue);
}

static void show_host(struct json_object *host)
{
	printf("%s  id %s\n", show_text(host, "nqn"), show_text(host, "id"));
	show_each(host, "controllers", show_controller);
}

static void show_reactor(struct json_object *reactor)
{
	struct json_object *pool = json_object_object_get(reactor, "pool");
	char used[32], mapped[32];

	show_size(show_number(pool, "used_bytes"), used);
	show_size(show_number(pool, "mapped_bytes"), mapped);
	printf("  %-3" PRIu64 " %s: %" PRIu64 " connections, %" PRIu64 " controllers, %" PRIu64
	       " requests; buffers: %" PRIu64 " (%s) of %s, %" PRIu64 " wait\n",
		show_number(reactor, "index"), show_text(reactor, "engine"),
		show_number(reactor, "connections"), show_number(reactor, "controllers"),
		show_number(reactor, "requests"), show_number(pool, "used_buffers"), used, mapped,
		show_number(pool, "waiting"));
}

void haulctl_show(struct json_object *status)
{
	show_target(json_object_object_get(status, "target"));
	puts("\nListeners");
	show_each(status, "listeners", show_listener);
	puts("\nSubsystems");
	show_each(status, "subsystems", show_subsystem);
	puts("\nHosts");
	show_each(status, "hosts", show_host);
	if (!show_length(json_object_object_get(status, "hosts")))
		puts("  none");
	puts("\nReactors");
	show_each(status, "reactors", show_reactor);
}
