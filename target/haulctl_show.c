/* SPDX-License-Identifier: MIT */
/*
 * The status, for people.
 */
#include "target/haulctl.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/nvme/fabrics.h"
#include "target/subsys.h"

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

/* The end of a word after its number. */
static const char *show_plural(uint64_t nr)
{
	return nr == 1 ? "" : "s";
}

/* What is being shown, for names that stand elsewhere in it. */
static struct json_object *show_status;

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
	if (strcmp(show_text(target, "discovery_nqn"), NVME_DISCOVERY_NQN))
		printf("discovery is also %s\n", show_text(target, "discovery_nqn"));
	if (show_number(target, "kas_ms") != 1000)
		printf("keep-alive timeouts are multiples of %" PRIu64 " s\n",
			show_number(target, "kas_ms") / 1000);
	if (show_number(target, "cntlid_min") != 1 ||
		show_number(target, "cntlid_max") != NVME_CNTLID_MAX)
		printf("controller ids %" PRIu64 " to %" PRIu64 "\n",
			show_number(target, "cntlid_min"), show_number(target, "cntlid_max"));
}

static void show_given(struct json_object *option)
{
	printf("  %s", json_object_get_string(option));
}

static void show_listener(struct json_object *listener)
{
	printf("  %s", show_text(listener, "uri"));
	show_each(listener, "given", show_given);
	putchar('\n');
}

static void show_seen_by(struct json_object *host)
{
	printf("                 seen by: %s\n", json_object_get_string(host));
}

/* Who it is, if it is connected, behind the name that reservations know it by. */
static void show_host_of(const char *prefix, const char *id)
{
	struct json_object *hosts = json_object_object_get(show_status, "hosts");

	printf("%s%s", prefix, id);
	for (size_t i = 0; i < show_length(hosts); i++) {
		struct json_object *host = json_object_array_get_idx(hosts, i);

		if (!strcmp(show_text(host, "id"), id))
			printf(" (%s)", show_text(host, "nqn"));
	}
}

static void show_registrant(struct json_object *registrant)
{
	show_host_of("                   registered: ", show_text(registrant, "host"));
	printf("  key %s%s\n", show_text(registrant, "key"),
		show_flag(registrant, "holder") ? "  holds it" : "");
}

/* Nothing, where nobody has ever registered. */
static void show_reservation(struct json_object *reservation)
{
	struct json_object *registrants = json_object_object_get(reservation, "registrants");
	uint64_t nr = show_number(reservation, "nr_registrants");

	if (!nr && !show_number(reservation, "generation"))
		return;
	printf("                 reservation: %s, generation %" PRIu64 ", %" PRIu64
	       " registrant%s, %s\n",
		show_text(reservation, "type"), show_number(reservation, "generation"), nr,
		show_plural(nr),
		show_flag(reservation, "persists") ? "persists through power loss"
						   : "ends with hauld");
	show_each(reservation, "registrants", show_registrant);
	if (nr > show_length(registrants))
		printf("                   and %" PRIu64 " more\n", nr - show_length(registrants));
}

static const char *show_access(struct json_object *ns)
{
	if (show_flag(ns, "write_protected"))
		return "  write-protected by a host";
	return show_flag(ns, "read_only") ? "  read-only" : "";
}

static void show_namespace(struct json_object *ns)
{
	char size[32], group[40] = "";

	show_size(show_number(ns, "size_bytes"), size);
	if (show_number(ns, "ana_group") != 1)
		snprintf(
			group, sizeof(group), "  ana group %" PRIu64, show_number(ns, "ana_group"));
	printf("  namespace %-4" PRIu64 " %10s  %4" PRIu64 " B blocks  %s%s%s%s  %s\n",
		show_number(ns, "nsid"), size, show_number(ns, "block_bytes"),
		show_text(ns, "uuid"), group, show_access(ns),
		strcmp(show_text(ns, "state"), "lost") ? "" : "  LOST", show_text(ns, "path"));
	if (!show_flag(ns, "allow_any") && !show_length(json_object_object_get(ns, "allow")))
		puts("                 seen by: no host");
	show_each(ns, "allow", show_seen_by);
	show_reservation(json_object_object_get(ns, "reservation"));
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

static void show_referral(struct json_object *referral)
{
	printf("  %s\n", show_text(referral, "uri"));
	if (!show_flag(referral, "allow_any") &&
		!show_length(json_object_object_get(referral, "allow")))
		puts("  allowed: no host");
	show_each(referral, "allow", show_allowed);
}

static void show_proof(struct json_object *proof)
{
	printf("  authenticates%s: %s  %" PRIu64 " succeeded, %" PRIu64 " refused\n",
		show_flag(proof, "both_ways") ? " both ways" : "", show_text(proof, "host"),
		show_number(proof, "succeeded"), show_number(proof, "refused"));
}

static void show_subsystem(struct json_object *subsys)
{
	printf("%s  serial %s", show_text(subsys, "nqn"), show_text(subsys, "serial"));
	if (show_text(subsys, "admin_label")[0])
		printf(", admin label '%s'", show_text(subsys, "admin_label"));
	if (show_number(subsys, "max_io_queues") != SUBSYS_MAX_IO_QUEUES)
		printf(", at most %" PRIu64 " I/O queue%s", show_number(subsys, "max_io_queues"),
			show_plural(show_number(subsys, "max_io_queues")));
	if (show_flag(subsys, "subsystem_reset"))
		fputs(", hosts may reset it", stdout);
	if (!strcmp(show_text(subsys, "duplicate_hosts"), "refuse"))
		fputs(", duplicate hosts refused", stdout);
	putchar('\n');
	if (show_flag(subsys, "allow_any"))
		puts("  allowed: any host");
	show_each(subsys, "allow", show_allowed);
	show_each(subsys, "authentication", show_proof);
	show_each(subsys, "ana", show_ana);
	show_each(subsys, "namespaces", show_namespace);
}

static void show_queue(struct json_object *queue)
{
	bool proved = json_object_object_get(queue, "authentication");

	printf("    queue %-3" PRIu64 " %-4s %s  depth %" PRIu64 "  reactor %" PRIu64 "  %" PRIu64
	       " command%s, %" PRIu64 " in flight%s%s\n",
		show_number(queue, "qid"), show_text(queue, "transport"), show_text(queue, "peer"),
		show_number(queue, "depth"), show_number(queue, "reactor"),
		show_number(queue, "commands"), show_plural(show_number(queue, "commands")),
		show_number(queue, "in_flight"), proved ? "  authenticated: " : "",
		proved ? show_text(queue, "authentication") : "");
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
	uint64_t nr_conns = show_number(reactor, "connections");
	uint64_t nr_ctrls = show_number(reactor, "controllers");
	uint64_t nr_requests = show_number(reactor, "requests");
	char used[32], mapped[32];

	show_size(show_number(pool, "used_bytes"), used);
	show_size(show_number(pool, "mapped_bytes"), mapped);
	printf("  %-3" PRIu64 " %s: %" PRIu64 " connection%s, %" PRIu64 " controller%s, %" PRIu64
	       " request%s; buffers: %" PRIu64 " (%s) of %s, %" PRIu64 " wait\n",
		show_number(reactor, "index"), show_text(reactor, "engine"), nr_conns,
		show_plural(nr_conns), nr_ctrls, show_plural(nr_ctrls), nr_requests,
		show_plural(nr_requests), show_number(pool, "used_buffers"), used, mapped,
		show_number(pool, "waiting"));
}

/* "3 of 512". */
static void show_held(struct json_object *share, const char *key, char ret_text[48])
{
	struct json_object *held = json_object_object_get(share, key);

	if (held)
		snprintf(ret_text, 48, "%" PRIu64 " of %" PRIu64, show_number(held, "held"),
			show_number(held, "limit"));
	else
		snprintf(ret_text, 48, "-");
}

static void show_held_bytes(struct json_object *share, const char *key, char ret_text[72])
{
	struct json_object *held = json_object_object_get(share, key);
	char bytes[32], limit[32];

	show_size(show_number(held, "held"), bytes);
	show_size(show_number(held, "limit"), limit);
	snprintf(ret_text, 72, "%s of %s", bytes, limit);
}

static void show_share(struct json_object *reactor, struct json_object *share)
{
	char buffers[72], ctrls[48], receives[48], conns[48];

	show_held_bytes(share, "buffer_bytes", buffers);
	show_held(share, "controllers", ctrls);
	show_held(share, "rdma_receives", receives);
	show_held(share, "connections", conns);
	printf("  %-24s %7" PRIu64 "  %-24s %-12s %-14s %-14s %" PRIu64 "\n",
		show_text(share, "address"), show_number(reactor, "index"), buffers, ctrls,
		receives, conns, show_number(share, "waiting"));
}

static void show_shares(struct json_object *reactor)
{
	struct json_object *shares = json_object_object_get(reactor, "shares");

	for (size_t i = 0; i < show_length(shares); i++)
		show_share(reactor, json_object_array_get_idx(shares, i));
}

static bool show_has_shares(struct json_object *status)
{
	struct json_object *reactors = json_object_object_get(status, "reactors");
	bool has = false;

	for (size_t i = 0; i < show_length(reactors); i++)
		has |= show_length(json_object_object_get(
			       json_object_array_get_idx(reactors, i), "shares")) > 0;
	return has;
}

void haulctl_show(struct json_object *status)
{
	show_status = status;
	show_target(json_object_object_get(status, "target"));
	puts("\nListeners");
	show_each(status, "listeners", show_listener);
	if (show_length(json_object_object_get(status, "referrals")))
		puts("\nReferrals");
	show_each(status, "referrals", show_referral);
	puts("\nSubsystems");
	show_each(status, "subsystems", show_subsystem);
	puts("\nHosts");
	show_each(status, "hosts", show_host);
	if (!show_length(json_object_object_get(status, "hosts")))
		puts("  none");
	puts("\nReactors");
	show_each(status, "reactors", show_reactor);
	if (!show_has_shares(status))
		return;
	printf("\n%-26s %7s  %-24s %-12s %-14s %-14s %s\n", "Hosts' shares", "reactor", "buffers",
		"controllers", "RDMA receives", "connections", "waiting");
	show_each(status, "reactors", show_shares);
}
