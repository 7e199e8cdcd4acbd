/* SPDX-License-Identifier: MIT */
/*
 * Differences of listeners, subsystems, hosts and namespaces.
 */
#include "target/diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "target/catalog.h"
#include "target/port.h"
#include "target/transport.h"

#define DIFF_LINE_BYTES 2048

static void diff_tell(struct diff *diff, const char *format, ...) printf_like(2, 3);

static void diff_tell(struct diff *diff, const char *format, ...)
{
	char text[DIFF_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	diff->line(diff, text);
}

/* What has changed of one thing, after each other. */
struct diff_list {
	char text[DIFF_LINE_BYTES];
	size_t used;
};

static void diff_list_add(struct diff_list *list, const char *format, ...) printf_like(2, 3);

static void diff_list_add(struct diff_list *list, const char *format, ...)
{
	size_t left = sizeof(list->text) - list->used;
	va_list args;
	int length;

	if (list->used && left > 2) {
		memcpy(list->text + list->used, ", ", 3);
		list->used += 2;
		left -= 2;
	}
	va_start(args, format);
	length = vsnprintf(list->text + list->used, left, format, args);
	va_end(args);
	list->used += min_of((size_t)length, left - 1);
}

/* --- listeners ------------------------------------------------------------------------------- */

static const struct port *diff_find_address(const struct catalog *catalog, const struct port *port)
{
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		if (port_is_same_address(catalog->port[i], port))
			return catalog->port[i];
	return NULL;
}

static void diff_port_option(struct diff_list *list, const struct transport_option *option,
	uint32_t before, uint32_t after)
{
	char text[2][PORT_OPTION_TEXT];

	if (before == after)
		return;
	port_describe_option(option, before, text[0]);
	port_describe_option(option, after, text[1]);
	diff_list_add(list, "%s %s -> %s", option->key, text[0], text[1]);
}

static void diff_port_options(
	struct diff *diff, const struct port *before, const struct port *after)
{
	struct diff_list list = {0};
	char text[PORT_TEXT];

	for (uint32_t i = 0; i < before->ops->nr_options; i++)
		diff_port_option(
			&list, &before->ops->options[i], before->option[i], after->option[i]);
	port_describe(before, text);
	diff_tell(diff, "~ listener %s: %s", text, list.text);
}

static void diff_ports(struct diff *diff, const struct catalog *before, const struct catalog *after)
{
	char text[PORT_TEXT];

	for (uint32_t i = 0; i < before->nr_ports; i++) {
		const struct port *port = before->port[i];
		const struct port *other = diff_find_address(after, port);

		if (catalog_has_port(after, port))
			continue;
		port_describe(port, text);
		if (other && !catalog_has_port(before, other))
			diff_port_options(diff, port, other);
		else
			diff_tell(diff, "- listener %s", text);
	}
	for (uint32_t i = 0; i < after->nr_ports; i++) {
		const struct port *port = after->port[i];
		const struct port *other = diff_find_address(before, port);

		if (catalog_has_port(before, port) || (other && !catalog_has_port(after, other)))
			continue;
		port_describe(port, text);
		diff_tell(diff, "+ listener %s", text);
	}
}

/* --- referrals ------------------------------------------------------------------------------- */

/* Tells of those of ONE that OTHER has not. */
static void diff_referrals(
	struct diff *diff, char sign, const struct catalog *one, const struct catalog *other)
{
	char text[REFERRAL_TEXT];

	for (uint32_t i = 0; i < one->nr_referrals; i++) {
		uint32_t k = 0;

		while (k < other->nr_referrals &&
			!referral_is_same(&one->referrals[i], &other->referrals[k]))
			k++;
		if (k < other->nr_referrals)
			continue;
		referral_describe(&one->referrals[i], text);
		diff_tell(diff, "%c referral %s", sign, text);
	}
}

/* --- hosts ----------------------------------------------------------------------------------- */

struct diff_allowed {
	bool any;
	const struct host_list *hosts; /* NULL: none */
};

/* Tells of those of ONE that OTHER has not. OF: the subsystem, or a namespace of it. */
static void diff_listed(struct diff *diff, char sign, const char *of,
	const struct diff_allowed *one, const struct diff_allowed *other)
{
	for (uint32_t i = 0; one->hosts && i < one->hosts->nr; i++)
		if (!other->hosts || !host_list_has(other->hosts, one->hosts->nqn[i]))
			diff_tell(diff, "%c host %s of %s", sign, one->hosts->nqn[i], of);
}

static void diff_allowed(struct diff *diff, const char *of, const struct diff_allowed *before,
	const struct diff_allowed *after)
{
	if (before->any && !after->any)
		diff_tell(diff, "- host any of %s", of);
	diff_listed(diff, '-', of, before, after);
	diff_listed(diff, '+', of, after, before);
	if (after->any && !before->any)
		diff_tell(diff, "+ host any of %s", of);
}

static void diff_hosts(
	struct diff *diff, const char *nqn, const struct subsys *before, const struct subsys *after)
{
	const struct diff_allowed then = {
		before && before->allow_any, before ? &before->hosts : NULL};
	const struct diff_allowed now = {after->allow_any, &after->hosts};

	diff_allowed(diff, nqn, &then, &now);
}

/* Of one that is new, just those hosts that are named. */
static void diff_referral_hosts(
	struct diff *diff, const struct catalog *before, const struct catalog *after)
{
	for (uint32_t i = 0; i < after->nr_referrals; i++) {
		const struct referral *referral = &after->referrals[i];
		const struct diff_allowed now = {referral->allow_any, &referral->hosts};
		struct diff_allowed then = {referral->allow_any, NULL};
		char text[REFERRAL_TEXT + sizeof("referral ")] = "referral ";

		for (uint32_t k = 0; k < before->nr_referrals; k++)
			if (referral_is_same(&before->referrals[k], referral))
				then = (struct diff_allowed){before->referrals[k].allow_any,
					&before->referrals[k].hosts};
		referral_describe(referral, text + strlen(text));
		diff_allowed(diff, text, &then, &now);
	}
}

static void diff_auth_set(struct diff_list *list, const char *what, uint32_t before, uint32_t after,
	const char *(*name_of)(uint8_t id))
{
	for (uint8_t id = 0; id < 32; id++)
		if ((before ^ after) >> id & 1)
			diff_list_add(list, "%s %s %s", what, name_of(id),
				after >> id & 1 ? "is good enough" : "is not good enough any more");
}

static void diff_auth_changed(struct diff *diff, const char *nqn, const struct host_auth *before,
	const struct host_auth *after)
{
	struct diff_list list = {0};

	if (!host_auth_key_is_same(&before->host, &after->host))
		diff_list_add(&list, "another key");
	if (!host_auth_key_is_same(&before->ctrl, &after->ctrl))
		diff_list_add(&list, !after->ctrl.secret.len   ? "no controller's key any more"
				     : before->ctrl.secret.len ? "another controller's key"
							       : "a controller's key");
	diff_auth_set(&list, "hash", before->hashes, after->hashes, nvme_auth_hash_name);
	diff_auth_set(&list, "group", before->groups, after->groups, nvme_auth_group_name);
	if (list.used)
		diff_tell(
			diff, "~ authentication of host %s of %s: %s", after->nqn, nqn, list.text);
}

static void diff_auth(
	struct diff *diff, const char *nqn, const struct subsys *before, const struct subsys *after)
{
	for (uint32_t i = 0; before && i < before->auth.nr; i++)
		if (!host_auth_find(&after->auth, before->auth.hosts[i]->nqn))
			diff_tell(diff, "- authentication of host %s of %s",
				before->auth.hosts[i]->nqn, nqn);
	for (uint32_t i = 0; i < after->auth.nr; i++) {
		const struct host_auth *now = after->auth.hosts[i];
		const struct host_auth *then =
			before ? host_auth_find(&before->auth, now->nqn) : NULL;

		if (then)
			diff_auth_changed(diff, nqn, then, now);
		else
			diff_tell(diff, "+ authentication of host %s of %s%s", now->nqn, nqn,
				now->ctrl.secret.len ? ", both ways" : "");
	}
}

/* Of a namespace, where not all that may use the subsystem see it, or did not. */
static void diff_ns_hosts(
	struct diff *diff, const char *nqn, const struct ns *before, const struct ns *after)
{
	const struct diff_allowed then = {before && !before->hosts, before ? before->hosts : NULL};
	const struct diff_allowed now = {!after->hosts, after->hosts};
	char of[NVME_NQN_MAX + 32];

	if (!before && !after->hosts)
		return;
	snprintf(of, sizeof(of), "namespace %u of %s", after->nsid, nqn);
	diff_allowed(diff, of, &then, &now);
}

/* --- namespaces ------------------------------------------------------------------------------ */

/* In the largest unit that says it exactly. */
static void diff_size(const struct ns *ns, char ret_text[32])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	uint64_t size = ns->nr_lbas << ns->lba_shift;
	unsigned unit = 0;

	while (size && size % 1024 == 0 && unit + 1 < ARRAY_SIZE(units)) {
		size /= 1024;
		unit++;
	}
	snprintf(ret_text, 32, "%llu %s", (unsigned long long)size, units[unit]);
}

/* Both reasons: one may go while the other stays. */
static const char *diff_access(const struct ns *ns)
{
	if (ns->write_protected)
		return ns->always_read_only ? "read-only and write-protected by a host"
					    : "write-protected by a host";
	return ns->always_read_only ? "read-only" : "writable";
}

static void diff_ns_new(struct diff *diff, const char *nqn, const struct ns *ns)
{
	char uuid[NVME_UUID_TEXT];
	char size[32];

	nvme_uuid_format(&ns->uuid, uuid);
	diff_size(ns, size);
	diff_tell(diff, "+ namespace %u of %s: %s, %s in blocks of %u bytes, %s, uuid %s%s",
		ns->nsid, nqn, ns->place->backend->path, size, 1u << ns->lba_shift, diff_access(ns),
		uuid, ns->hosts ? ", not for all hosts" : "");
}

static void diff_ns_changed(
	struct diff *diff, const char *nqn, const struct ns *before, const struct ns *after)
{
	char uuid[2][NVME_UUID_TEXT];
	struct diff_list list = {0};
	char size[2][32];

	diff_size(before, size[0]);
	diff_size(after, size[1]);
	nvme_uuid_format(&before->uuid, uuid[0]);
	nvme_uuid_format(&after->uuid, uuid[1]);
	if (before->place->backend != after->place->backend)
		diff_list_add(&list, "another disk, %s -> %s", before->place->backend->path,
			after->place->backend->path);
	if (strcmp(size[0], size[1]))
		diff_list_add(&list, "%s -> %s", size[0], size[1]);
	if (before->lba_shift != after->lba_shift)
		diff_list_add(&list, "blocks of %u -> %u bytes", 1u << before->lba_shift,
			1u << after->lba_shift);
	if (before->ana_group != after->ana_group)
		diff_list_add(&list, "ana group %u -> %u", before->ana_group, after->ana_group);
	if (strcmp(diff_access(before), diff_access(after)))
		diff_list_add(&list, "%s -> %s", diff_access(before), diff_access(after));
	if (strcmp(uuid[0], uuid[1]))
		diff_list_add(&list, "uuid %s -> %s", uuid[0], uuid[1]);
	/* By itself they change with the UUID only. */
	else if (memcmp(before->nguid, after->nguid, sizeof(after->nguid)))
		diff_list_add(&list, "another nguid");
	if (!strcmp(uuid[0], uuid[1]) && memcmp(before->eui64, after->eui64, sizeof(after->eui64)))
		diff_list_add(&list, "another eui64");
	if (list.used)
		diff_tell(diff, "~ namespace %u of %s: %s", after->nsid, nqn, list.text);
}

static void diff_namespaces(
	struct diff *diff, const char *nqn, const struct subsys *before, const struct subsys *after)
{
	for (uint32_t nsid = 1; nsid <= SUBSYS_MAX_NSID; nsid++) {
		const struct ns *one = before ? subsys_ns(before, nsid) : NULL;
		const struct ns *other = after ? subsys_ns(after, nsid) : NULL;

		if (one && other)
			diff_ns_changed(diff, nqn, one, other);
		else if (one)
			diff_tell(diff, "- namespace %u of %s: %s", nsid, nqn,
				one->place->backend->path);
		else if (other)
			diff_ns_new(diff, nqn, other);
		if (other)
			diff_ns_hosts(diff, nqn, one, other);
	}
}

/* --- ANA groups ------------------------------------------------------------------------------ */

struct diff_catalogs {
	const struct catalog *before, *after;
};

/* At PORT, or, when it is NULL, at all that have no state of their own. */
static void diff_ana_at(struct diff *diff, const struct subsys *before, const struct subsys *after,
	uint32_t group, const struct port *port)
{
	uint16_t portid = port ? port->portid : ANA_OTHER_PORTS;
	enum nvme_ana_state now = ana_state(after, group, portid);
	char text[PORT_TEXT] = "";

	if (port)
		port_describe(port, text);
	if (!before)
		diff_tell(diff, "+ ana group %u of %s%s%s: %s", group, after->nqn,
			port ? " at " : "", text, ana_state_name(now));
	else if (ana_state(before, group, portid) != now)
		diff_tell(diff, "~ ana group %u of %s%s%s: %s -> %s", group, after->nqn,
			port ? " at " : "", text, ana_state_name(ana_state(before, group, portid)),
			ana_state_name(now));
}

static bool diff_ana_has(const struct subsys *subsys, uint32_t group, const struct port *port)
{
	return subsys && ana_is_set(subsys, group, port ? port->portid : ANA_OTHER_PORTS);
}

/* A listener's number may have been another one's. */
static void diff_ana(struct diff *diff, const struct diff_catalogs *catalogs,
	const struct subsys *before, const struct subsys *after)
{
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		if (diff_ana_has(before, group, NULL) || diff_ana_has(after, group, NULL))
			diff_ana_at(diff, before, after, group, NULL);
		for (uint32_t i = 0; i < catalogs->after->nr_ports; i++) {
			const struct port *port = catalogs->after->port[i];
			const struct subsys *then =
				catalog_has_port(catalogs->before, port) ? before : NULL;

			if (diff_ana_has(then, group, port) || diff_ana_has(after, group, port))
				diff_ana_at(diff, then, after, group, port);
		}
	}
}

/* --- subsystems ------------------------------------------------------------------------------ */

static void diff_subsys_changed(
	struct diff *diff, const struct subsys *before, const struct subsys *after)
{
	struct diff_list list = {0};

	if (strcmp(before->serial, after->serial))
		diff_list_add(&list, "serial %s -> %s", before->serial, after->serial);
	if (strcmp(before->admin_label, after->admin_label))
		diff_list_add(
			&list, "admin label '%s' -> '%s'", before->admin_label, after->admin_label);
	if (before->max_io_queues != after->max_io_queues)
		diff_list_add(&list, "at most %u -> %u I/O queues for new controllers",
			before->max_io_queues, after->max_io_queues);
	if (before->reset_offered != after->reset_offered)
		diff_list_add(&list, "hosts may %s",
			after->reset_offered ? "reset it" : "not reset it any more");
	if (before->one_association != after->one_association)
		diff_list_add(&list, "duplicate hosts that connect %s",
			after->one_association ? "allowed -> refused" : "refused -> allowed");
	if (list.used)
		diff_tell(diff, "~ subsystem %s: %s", after->nqn, list.text);
}

static void diff_subsys(struct diff *diff, const struct diff_catalogs *catalogs, const char *nqn,
	const struct subsys *before, const struct subsys *after)
{
	if (!after)
		diff_tell(diff, "- subsystem %s", nqn);
	else if (!before)
		diff_tell(diff, "+ subsystem %s: serial %s%s", nqn, after->serial,
			after->reset_offered ? ", hosts may reset it" : "");
	else
		diff_subsys_changed(diff, before, after);
	if (after)
		diff_hosts(diff, nqn, before, after);
	if (after)
		diff_auth(diff, nqn, before, after);
	if (after)
		diff_ana(diff, catalogs, before, after);
	diff_namespaces(diff, nqn, before, after);
}

void diff_catalogs(struct diff *diff, const struct catalog *before, const struct catalog *after)
{
	const struct diff_catalogs both = {before, after};
	const struct subsys *subsys;

	diff_ports(diff, before, after);
	diff_referrals(diff, '-', before, after);
	diff_referrals(diff, '+', after, before);
	diff_referral_hosts(diff, before, after);
	list_for_each_entry (subsys, &before->subsystems, node)
		diff_subsys(diff, &both, subsys->nqn, subsys, catalog_find(after, subsys->nqn));
	list_for_each_entry (subsys, &after->subsystems, node)
		if (!catalog_find(before, subsys->nqn))
			diff_subsys(diff, &both, subsys->nqn, NULL, subsys);
}
