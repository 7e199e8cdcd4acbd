/* SPDX-License-Identifier: MIT */
/*
 * The status as clients see it.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/link/address.h"
#include "target/catalog.h"
#include "target/control_json.h"
#include "target/control_private.h"
#include "target/control_status.h"
#include "target/port.h"
#include "target/reservation_owner.h"
#include "target/target.h"
#include "target/transport.h"

/* Of all namespaces together, 2 MiB of text; what is left out is counted. */
#define DESCRIBE_MAX_REGISTRANTS 16384

/* --- the process ----------------------------------------------------------------------------- */

static uint64_t describe_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t nr = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr > 3 ? nr - 3 : 0; /* ".", ".." and that of DIR */
}

static uint64_t describe_resident(void)
{
	unsigned long long size, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static void describe_target(struct json_object *status, const struct control *control)
{
	struct json_object *json = control_json_object(status, "target");
	const struct target *target = control->target;

	control_json_text(json, "version", HAUL_VERSION);
	control_json_number(json, "pid", (uint64_t)getpid());
	control_json_number(
		json, "uptime_s", (loop_now_ns(target->loop) - control->start_ns) / 1000000000);
	control_json_number(json, "generation", target->catalog->generation);
	control_json_number(json, "namespace_places", ns_places_count(target->catalog->places));
	control_json_number(json, "descriptors", describe_descriptors());
	control_json_number(json, "resident_bytes", describe_resident());
	if (state_dir_is_there(&target->reservations->state_dir))
		control_json_text(json, "state_directory", target->reservations->state_dir.path);
	control_json_text(json, "discovery_nqn", target->settings.discovery_nqn);
	control_json_number(json, "kas_ms", target->settings.kas_ms);
	control_json_number(json, "cntlid_min", target->settings.cntlid_min);
	control_json_number(json, "cntlid_max", target->settings.cntlid_max);
}

/* --- the catalog ----------------------------------------------------------------------------- */

/* All of them, and as an URI has them those that are not as they are without a word. */
static void describe_options(struct json_object *json, const struct port *port)
{
	struct json_object *options = control_json_object(json, "options");
	struct json_object *given = control_json_list(json, "given");
	char value[PORT_OPTION_TEXT], text[PORT_OPTION_TEXT + 32];

	for (uint32_t i = 0; i < port->ops->nr_options; i++) {
		const struct transport_option *option = &port->ops->options[i];

		if (option->kind == TRANSPORT_SWITCH)
			control_json_flag(options, option->key, port->option[i]);
		else
			control_json_number(options, option->key, port->option[i]);
		if (port->option[i] == option->unless_given)
			continue;
		port_describe_option(option, port->option[i], value);
		snprintf(text, sizeof(text), "%s=%s", option->key, value);
		json_object_array_add(given, json_object_new_string(text));
	}
}

static void describe_listeners(struct json_object *status, const struct catalog *catalog)
{
	struct json_object *list = control_json_list(status, "listeners");
	char text[PORT_TEXT];

	for (uint32_t i = 0; i < catalog->nr_ports; i++) {
		struct json_object *json = control_json_entry(list);

		port_describe(catalog->port[i], text);
		control_json_text(json, "uri", text);
		control_json_number(json, "id", catalog->port[i]->portid);
		describe_options(json, catalog->port[i]);
	}
}

static void describe_bytes(
	struct json_object *json, const char *name, const uint8_t *bytes, size_t size)
{
	char text[2 * 16 + 1] = "";

	for (size_t i = 0; i < size && i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	control_json_text(json, name, text);
}

/* LISTED: only those of HOSTS. */
static void describe_allowed(struct json_object *json, bool listed, const struct host_list *hosts)
{
	struct json_object *list;

	control_json_flag(json, "allow_any", !listed);
	list = control_json_list(json, "allow");
	for (uint32_t i = 0; listed && i < hosts->nr; i++)
		json_object_array_add(list, json_object_new_string(hosts->nqn[i]));
}

static void describe_referrals(struct json_object *status, const struct catalog *catalog)
{
	struct json_object *list = control_json_list(status, "referrals");
	char text[REFERRAL_TEXT];

	for (uint32_t i = 0; i < catalog->nr_referrals; i++) {
		const struct referral *referral = &catalog->referrals[i];
		struct json_object *json = control_json_entry(list);

		referral_describe(referral, text);
		control_json_text(json, "uri", text);
		describe_allowed(json, !referral->allow_any, &referral->hosts);
	}
}

static void describe_names(
	struct json_object *json, const char *key, uint32_t set, const char *(*name_of)(uint8_t id))
{
	struct json_object *list = control_json_list(json, key);

	for (uint8_t id = 0; id < 32; id++)
		if (set >> id & 1)
			json_object_array_add(list, json_object_new_string(name_of(id)));
}

/* Of secrets not even that they are alike. */
static void describe_auth(struct json_object *subsys, const struct host_auth_list *hosts)
{
	struct json_object *list = control_json_list(subsys, "authentication");

	for (uint32_t i = 0; i < hosts->nr; i++) {
		const struct host_auth *host = hosts->hosts[i];
		struct json_object *json = control_json_entry(list);

		control_json_text(json, "host", host->nqn);
		control_json_flag(json, "both_ways", host->ctrl.secret.len);
		describe_names(json, "hashes", host->hashes, nvme_auth_hash_name);
		describe_names(json, "groups", host->groups, nvme_auth_group_name);
		control_json_number(json, "succeeded", host->nr_done);
		control_json_number(json, "refused", host->nr_refused);
	}
}

/* --- reservations ---------------------------------------------------------------------------- */

static const char *const describe_reservation_types[] = {
	[NVME_RESERVATION_NONE] = "none",
	[NVME_RESERVATION_WRITE_EXCLUSIVE] = "write-exclusive",
	[NVME_RESERVATION_EXCLUSIVE_ACCESS] = "exclusive-access",
	[NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS] = "write-exclusive-registrants-only",
	[NVME_RESERVATION_EXCLUSIVE_ACCESS_REGISTRANTS] = "exclusive-access-registrants-only",
	[NVME_RESERVATION_WRITE_EXCLUSIVE_ALL] = "write-exclusive-all-registrants",
	[NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL] = "exclusive-access-all-registrants",
};

/* As a host's id elsewhere. */
static void describe_hostid(struct json_object *json, const char *key, const uint8_t *host)
{
	struct nvme_uuid id;
	char text[NVME_UUID_TEXT];

	memcpy(&id, host, sizeof(id));
	nvme_uuid_format(&id, text);
	control_json_text(json, key, text);
}

static void describe_registrant(struct json_object *list, const struct reservation *state,
	const struct registrant *registrant)
{
	struct json_object *json = control_json_entry(list);
	char key[2 + 16 + 1];

	snprintf(key, sizeof(key), "0x%016" PRIx64, registrant->key);
	describe_hostid(json, "host", registrant->host);
	control_json_text(json, "key", key);
	control_json_flag(json, "holder", reservation_holds(state, registrant->host));
}

static void describe_reservation(
	struct json_object *ns, const struct reservation *state, uint32_t *room)
{
	struct json_object *json = control_json_object(ns, "reservation");
	struct json_object *list;

	control_json_text(json, "type", describe_reservation_types[state->type]);
	if (state->type && !reservation_is_shared(state))
		describe_hostid(json, "holder", state->holder);
	control_json_number(json, "generation", state->generation);
	control_json_flag(json, "persists", state->ptpl);
	control_json_number(json, "nr_registrants", state->nr);
	list = control_json_list(json, "registrants");
	for (uint32_t i = 0; i < state->nr && *room; i++, --*room)
		describe_registrant(list, state, &state->registrants[i]);
}

/* ROOM: registrants that may be listed yet. */
static void describe_ns(struct json_object *list, const struct ns *ns, uint32_t *room)
{
	struct json_object *json = control_json_entry(list);
	const struct backend *backend = ns->place->backend;
	char uuid[NVME_UUID_TEXT];

	nvme_uuid_format(&ns->uuid, uuid);
	control_json_number(json, "nsid", ns->nsid);
	control_json_text(json, "path", backend->path);
	control_json_text(json, "uuid", uuid);
	describe_bytes(json, "nguid", ns->nguid, sizeof(ns->nguid));
	describe_bytes(json, "eui64", ns->eui64, sizeof(ns->eui64));
	control_json_number(json, "block_bytes", 1u << ns->lba_shift);
	control_json_number(json, "size_bytes", ns->nr_lbas << ns->lba_shift);
	control_json_flag(json, "read_only", ns->read_only);
	control_json_flag(json, "configured_read_only", ns->always_read_only);
	control_json_flag(json, "write_protected", ns->write_protected);
	control_json_number(json, "ana_group", ns->ana_group);
	control_json_text(json, "state", backend->size_error ? "lost" : "ready");
	describe_allowed(json, ns->hosts, ns->hosts);
	if (ns->reservation)
		describe_reservation(json, ns->reservation->state, room);
}

static void describe_ana_at(struct json_object *list, const struct subsys *subsys, uint32_t group,
	const struct port *port)
{
	struct json_object *json = control_json_entry(list);
	uint16_t portid = port ? port->portid : ANA_OTHER_PORTS;
	char text[PORT_TEXT];

	control_json_number(json, "group", group);
	control_json_text(json, "state", ana_state_name(ana_state(subsys, group, portid)));
	if (!port)
		return;
	port_describe(port, text);
	control_json_text(json, "listener", text);
}

/* What is not in it is optimized. */
static void describe_ana(
	struct json_object *json, const struct catalog *catalog, const struct subsys *subsys)
{
	struct json_object *list = control_json_list(json, "ana");

	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		if (ana_is_set(subsys, group, ANA_OTHER_PORTS))
			describe_ana_at(list, subsys, group, NULL);
		for (uint32_t i = 0; i < catalog->nr_ports; i++)
			if (ana_is_set(subsys, group, catalog->port[i]->portid))
				describe_ana_at(list, subsys, group, catalog->port[i]);
	}
}

static void describe_subsystems(struct json_object *status, const struct catalog *catalog)
{
	struct json_object *list = control_json_list(status, "subsystems");
	uint32_t room = DESCRIBE_MAX_REGISTRANTS;
	const struct subsys *subsys;

	list_for_each_entry (subsys, &catalog->subsystems, node) {
		struct json_object *json = control_json_entry(list);
		struct json_object *namespaces;

		control_json_text(json, "nqn", subsys->nqn);
		control_json_text(json, "serial", subsys->serial);
		control_json_text(json, "admin_label", subsys->admin_label);
		control_json_number(json, "max_io_queues", subsys->max_io_queues);
		control_json_text(
			json, "duplicate_hosts", subsys->one_association ? "refuse" : "allow");
		control_json_flag(json, "subsystem_reset", subsys->reset_offered);
		control_json_number(json, "resets", subsys->nr_resets);
		describe_allowed(json, !subsys->allow_any, &subsys->hosts);
		describe_auth(json, &subsys->auth);
		describe_ana(json, catalog, subsys);
		namespaces = control_json_list(json, "namespaces");
		for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
			if (subsys->ns[nsid])
				describe_ns(namespaces, subsys->ns[nsid], &room);
	}
}

/* --- hosts ----------------------------------------------------------------------------------- */

struct describe_all { /* of all reactors, in order */
	const struct status_ctrl **ctrls;
	const struct status_queue **queues;
	size_t nr_ctrls, nr_queues;
};

static int describe_compare_ctrls(const void *a, const void *b)
{
	const struct status_ctrl *one = *(const struct status_ctrl *const *)a;
	const struct status_ctrl *other = *(const struct status_ctrl *const *)b;
	int order = strcmp(one->hostnqn, other->hostnqn);

	if (!order)
		order = memcmp(one->hostid, other->hostid, sizeof(one->hostid));
	return order ? order : one->cntlid - other->cntlid;
}

static int describe_compare_queues(const void *a, const void *b)
{
	const struct status_queue *one = *(const struct status_queue *const *)a;
	const struct status_queue *other = *(const struct status_queue *const *)b;

	return one->cntlid != other->cntlid ? one->cntlid - other->cntlid : one->qid - other->qid;
}

static bool describe_gather(
	struct describe_all *all, const struct status_reactor *reactors, uint32_t nr_reactors)
{
	size_t nr_ctrls = 0, nr_queues = 0;

	for (uint32_t i = 0; i < nr_reactors; i++) {
		nr_ctrls += reactors[i].nr_ctrls;
		nr_queues += reactors[i].nr_queues;
	}
	all->ctrls = calloc(nr_ctrls + 1, sizeof(*all->ctrls));
	all->queues = calloc(nr_queues + 1, sizeof(*all->queues));
	if (!all->ctrls || !all->queues)
		return false;
	for (uint32_t i = 0; i < nr_reactors; i++) {
		for (uint32_t j = 0; reactors[i].ctrls && j < reactors[i].nr_ctrls; j++)
			all->ctrls[all->nr_ctrls++] = &reactors[i].ctrls[j];
		for (uint32_t j = 0; j < reactors[i].nr_queues; j++)
			all->queues[all->nr_queues++] = &reactors[i].queues[j];
	}
	qsort(all->ctrls, all->nr_ctrls, sizeof(*all->ctrls), describe_compare_ctrls);
	qsort(all->queues, all->nr_queues, sizeof(*all->queues), describe_compare_queues);
	return true;
}

static void describe_proof(struct json_object *json, const struct status_queue *queue)
{
	char text[64];

	if (queue->proof_due)
		control_json_text(json, "authentication", "due");
	if (queue->proof_due || !queue->hash)
		return;
	snprintf(text, sizeof(text), "%s %s%s", nvme_auth_hash_name(queue->hash),
		nvme_auth_group_name(queue->group), queue->both_ways ? " both ways" : "");
	control_json_text(json, "authentication", text);
}

static void describe_queue(struct json_object *list, const struct status_queue *queue)
{
	struct json_object *json = control_json_entry(list);
	char text[ADDRESS_TEXT];

	control_json_number(json, "qid", queue->qid);
	control_json_number(json, "depth", queue->depth);
	control_json_text(json, "transport", queue->transport);
	address_format(&queue->peer, text);
	control_json_text(json, "peer", text);
	address_format(&queue->local, text);
	control_json_text(json, "local", text);
	describe_proof(json, queue);
	control_json_number(json, "connection", queue->number);
	control_json_number(json, "reactor", queue->reactor);
	control_json_number(json, "commands", queue->nr_commands);
	control_json_number(json, "in_flight", queue->nr_in_flight);
}

/* The queues of controller CNTLID are one after the other: the first, by halves. */
static size_t describe_first_queue(const struct describe_all *all, uint16_t cntlid)
{
	size_t low = 0, high = all->nr_queues;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (all->queues[middle]->cntlid < cntlid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void describe_ctrl(
	struct json_object *list, const struct describe_all *all, const struct status_ctrl *ctrl)
{
	struct json_object *json = control_json_entry(list);
	struct json_object *queues;

	control_json_number(json, "cntlid", ctrl->cntlid);
	control_json_text(json, "subsystem", ctrl->subnqn);
	control_json_flag(json, "ready", ctrl->ready);
	control_json_number(json, "keep_alive_ms", ctrl->kato_ms);
	control_json_number(json, "reactor", ctrl->reactor);
	queues = control_json_list(json, "queues");
	for (size_t i = describe_first_queue(all, ctrl->cntlid);
		i < all->nr_queues && all->queues[i]->cntlid == ctrl->cntlid; i++)
		describe_queue(queues, all->queues[i]);
}

static void describe_hosts(
	struct json_object *status, const struct status_reactor *reactors, uint32_t nr_reactors)
{
	struct json_object *list = control_json_list(status, "hosts");
	const struct status_ctrl *before = NULL;
	struct json_object *ctrls = NULL;
	struct describe_all all = {0};
	char text[NVME_UUID_TEXT];

	if (!describe_gather(&all, reactors, nr_reactors))
		goto free_all;
	for (size_t i = 0; i < all.nr_ctrls; i++) {
		const struct status_ctrl *ctrl = all.ctrls[i];
		struct nvme_uuid id;

		if (!before || strcmp(before->hostnqn, ctrl->hostnqn) ||
			memcmp(before->hostid, ctrl->hostid, sizeof(ctrl->hostid))) {
			struct json_object *host = control_json_entry(list);

			memcpy(&id, ctrl->hostid, sizeof(id));
			nvme_uuid_format(&id, text);
			control_json_text(host, "nqn", ctrl->hostnqn);
			control_json_text(host, "id", text);
			ctrls = control_json_list(host, "controllers");
		}
		describe_ctrl(ctrls, &all, ctrl);
		before = ctrl;
	}
free_all:
	free(all.ctrls);
	free(all.queues);
}

/* --- reactors -------------------------------------------------------------------------------- */

static void describe_held(struct json_object *json, const char *key, const struct status_held *held)
{
	struct json_object *part = control_json_object(json, key);

	control_json_number(part, "held", held->held);
	control_json_number(part, "limit", held->limit);
}

static void describe_shares(struct json_object *reactor, const struct status_reactor *from)
{
	struct json_object *list = control_json_list(reactor, "shares");

	for (uint32_t i = 0; from->shares && i < from->nr_shares; i++) {
		const struct status_share *share = &from->shares[i];
		struct json_object *json = control_json_entry(list);

		control_json_text(json, "address", share->address);
		describe_held(json, "buffer_bytes", &share->data);
		describe_held(json, "reserve_bytes", &share->reserve);
		describe_held(json, "controllers", &share->ctrls);
		describe_held(json, "rdma_receives", &share->receives);
		if (share->conns.limit)
			describe_held(json, "connections", &share->conns);
		control_json_number(json, "waiting", share->nr_waiting);
	}
}

static void describe_reactor(
	struct json_object *list, uint32_t index, const struct status_reactor *reactor)
{
	struct json_object *json = control_json_entry(list);
	struct json_object *pool;

	control_json_number(json, "index", index);
	control_json_text(json, "engine", reactor->engine);
	control_json_number(json, "connections", reactor->nr_conns);
	control_json_number(json, "controllers", reactor->nr_ctrls);
	control_json_number(json, "requests", reactor->nr_requests);
	control_json_number(json, "namespaces", reactor->nr_namespaces);
	control_json_number(json, "namespace_requests", reactor->nr_ns_requests);
	control_json_number(json, "hosts", reactor->nr_shares);
	control_json_number(json, "fences", reactor->nr_fences);
	pool = control_json_object(json, "pool");
	control_json_number(pool, "mapped_bytes", reactor->pool.bytes_mapped);
	control_json_number(pool, "used_bytes", reactor->pool.bytes_used);
	control_json_number(pool, "used_buffers", reactor->pool.nr_used);
	control_json_number(pool, "waiting", reactor->pool.nr_waiting);
	control_json_number(pool, "waits", reactor->pool.nr_waits);
	control_json_number(pool, "left_bytes", reactor->pool.bytes_left);
	describe_shares(json, reactor);
}

struct json_object *control_status_describe(
	const struct control *control, const struct status_reactor *reactors, uint32_t nr_reactors)
{
	struct json_object *status = json_object_new_object();
	struct json_object *list;

	describe_target(status, control);
	describe_listeners(status, control->target->catalog);
	describe_referrals(status, control->target->catalog);
	describe_subsystems(status, control->target->catalog);
	describe_hosts(status, reactors, nr_reactors);
	list = control_json_list(status, "reactors");
	for (uint32_t i = 0; i < nr_reactors; i++)
		describe_reactor(list, i, &reactors[i]);
	return status;
}
