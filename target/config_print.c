/* SPDX-License-Identifier: MIT */
/*
 * Writes settings and catalog as YAML.
 */
#include "target/config_print.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/ns_identity.h"
#include "target/port.h"
#include "target/size.h"
#include "target/target.h"
#include "target/transport.h"

struct config_print {
	FILE *file;
	char unfit[128]; /* the first value that is no UTF-8, or its start */
};

/* --- values ---------------------------------------------------------------------------------- */

/* It means itself in YAML, wherever it stands. */
static bool config_print_is_plain(const char *text)
{
	size_t length = strlen(text);

	if (!isalnum((unsigned char)text[0]) && text[0] != '/')
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("/._:-@+?=&[]%", text[i]))
			return false;
	return text[length - 1] != ':';
}

/* YAML 1.1 5.1, without what ends a line. */
static bool config_print_may_stand(uint32_t code)
{
	return (code >= ' ' && code <= '~') ||
	       (code >= 0xa0 && code <= 0xfffd && code != 0x2028 && code != 0x2029 &&
		       code != 0xfeff) ||
	       code >= 0x10000;
}

static void config_print_note_unfit(struct config_print *print, const char *text)
{
	if (!print->unfit[0])
		snprintf(print->unfit, sizeof(print->unfit), "%s", text);
}

static void config_print_quoted(struct config_print *print, const char *text)
{
	uint32_t code;
	size_t n;

	fputc('"', print->file);
	for (const char *c = text; *c; c += n) {
		n = nvme_utf8_next(c, strlen(c), &code);
		if (!n) {
			config_print_note_unfit(print, text);
			break;
		}
		if (code == '"' || code == '\\')
			fprintf(print->file, "\\%c", (char)code);
		else if (config_print_may_stand(code))
			fwrite(c, 1, n, print->file);
		else
			fprintf(print->file, "\\u%04" PRIx32, code);
	}
	fputc('"', print->file);
}

static void config_print_text(struct config_print *print, const char *key, const char *text)
{
	fputs(key, print->file);
	if (config_print_is_plain(text))
		fputs(text, print->file);
	else
		config_print_quoted(print, text);
	fputc('\n', print->file);
}

static void config_print_bytes(
	struct config_print *print, const char *key, const uint8_t *bytes, size_t size)
{
	/* Not a number, however its digits look. */
	fprintf(print->file, "%s\"", key);
	for (size_t i = 0; i < size; i++)
		fprintf(print->file, "%02x", bytes[i]);
	fputs("\"\n", print->file);
}

static void config_print_size(struct config_print *print, const char *key, uint64_t bytes)
{
	char text[SIZE_TEXT];

	size_format(bytes, text);
	fprintf(print->file, "%s%s\n", key, text);
}

/* --- listeners and referrals ----------------------------------------------------------------- */

static void config_print_address(struct nvme_uri *uri, const struct sockaddr_storage *address)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

	uri->port = address_port(address);
	uri->ipv6 = address->ss_family == AF_INET6;
	/* Written as an IPv4 address it would be another listener. */
	if (uri->ipv6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		inet_ntop(AF_INET6, &in6->sin6_addr, uri->host, sizeof(uri->host));
	else
		address_host(address, uri->host);
}

static void config_print_port_options(struct nvme_uri *uri, const struct port *port)
{
	for (uint32_t i = 0; i < port->ops->nr_options; i++) {
		const struct transport_option *option = &port->ops->options[i];
		struct nvme_uri_option *to = &uri->option[uri->nr_options];

		if (port->option[i] == option->unless_given)
			continue;
		uri->nr_options++;
		snprintf(to->key, sizeof(to->key), "%s", option->key);
		port_describe_option(option, port->option[i], to->value);
	}
}

static void config_print_uri(
	struct config_print *print, const char *key, const struct nvme_uri *uri)
{
	char text[NVME_URI_TEXT_MAX];

	if (nvme_uri_format(uri, text, sizeof(text)) > 0)
		config_print_text(print, key, text);
}

static void config_print_port(
	struct config_print *print, const char *key, const struct port *port, bool options)
{
	struct nvme_uri uri = {.trtype = port->ops->trtype};

	config_print_address(&uri, &port->configured);
	if (options)
		config_print_port_options(&uri, port);
	config_print_uri(print, key, &uri);
}

static void config_print_ports(struct config_print *print, const struct catalog *catalog)
{
	fputs("listen:\n", print->file);
	for (uint32_t i = 0; i < catalog->nr_ports; i++) {
		const struct port *port = catalog->port[i];

		if (!address_port(&port->configured) && address_port(&port->address))
			fprintf(print->file, "  # any free port; now it is %u\n",
				address_port(&port->address));
		config_print_port(print, "  - ", port, true);
	}
}

/* Behind INDENT. HOSTS: NULL for all. */
static void config_print_allowed(
	struct config_print *print, const char *indent, const struct host_list *hosts)
{
	char entry[32];

	fprintf(print->file, "%sallow:%s\n", indent, !hosts ? " any" : hosts->nr ? "" : " []");
	snprintf(entry, sizeof(entry), "%s  - ", indent);
	for (uint32_t i = 0; hosts && i < hosts->nr; i++)
		config_print_text(print, entry, hosts->nqn[i]);
}

static void config_print_referrals(struct config_print *print, const struct catalog *catalog)
{
	if (catalog->nr_referrals)
		fputs("referrals:\n", print->file);
	for (uint32_t i = 0; i < catalog->nr_referrals; i++) {
		const struct referral *referral = &catalog->referrals[i];
		struct nvme_uri uri = {.trtype = referral->trtype};

		config_print_address(&uri, &referral->address);
		if (strcmp(referral->nqn, NVME_DISCOVERY_NQN))
			snprintf(uri.nqn, sizeof(uri.nqn), "%s", referral->nqn);
		config_print_uri(print, referral->allow_any ? "  - " : "  - address: ", &uri);
		if (!referral->allow_any)
			config_print_allowed(print, "    ", &referral->hosts);
	}
}

/* --- settings -------------------------------------------------------------------------------- */

/* Those that are not as they are without being given. */
static void config_print_settings(
	struct config_print *print, const struct target_settings *settings)
{
	static const struct target_settings unless_given = TARGET_SETTINGS_DEFAULT;

	if (settings->nr_reactors)
		fprintf(print->file, "threads: %u\n", settings->nr_reactors);
	if (settings->engine != unless_given.engine)
		config_print_text(print,
			"engine: ", settings->engine == LOOP_ENGINE_EPOLL ? "epoll" : "io_uring");
	if (settings->memory_bytes != unless_given.memory_bytes)
		config_print_size(print, "memory: ", settings->memory_bytes);
	if (settings->spin_ns != unless_given.spin_ns)
		fprintf(print->file, "spin_us: %" PRIu64 "\n", settings->spin_ns / 1000);
	if (settings->patience_ns != unless_given.patience_ns)
		fprintf(print->file, "patience_s: %" PRIu64 "\n",
			settings->patience_ns / 1000000000);
	if (settings->kas_ms != unless_given.kas_ms)
		fprintf(print->file, "kas_s: %u\n", settings->kas_ms / 1000);
	if (settings->cntlid_min != unless_given.cntlid_min)
		fprintf(print->file, "cntlid_min: %u\n", settings->cntlid_min);
	if (settings->cntlid_max != unless_given.cntlid_max)
		fprintf(print->file, "cntlid_max: %u\n", settings->cntlid_max);
	if (strcmp(settings->discovery_nqn, unless_given.discovery_nqn))
		config_print_text(print, "discovery_nqn: ", settings->discovery_nqn);
	if (settings->control[0])
		config_print_text(print, "control: ", settings->control);
	if (settings->state[0])
		config_print_text(print, "state: ", settings->state);
}

/* --- subsystems ------------------------------------------------------------------------------ */

/* Secrets are not printed: without them the file is not right until somebody puts them in. */
static void config_print_key(
	struct config_print *print, const char *name, const struct host_auth_key *key)
{
	char text[64];

	if (!key->secret.len)
		return;
	if (!key->file) {
		fprintf(print->file, "        # %s: (given in place, not shown)\n", name);
		return;
	}
	snprintf(text, sizeof(text), "        %s: ", name);
	config_print_text(print, text, key->file);
}

static void config_print_names(struct config_print *print, const char *name, uint32_t set,
	uint32_t all, const char *(*name_of)(uint8_t id))
{
	const char *before = "";

	if (set == all)
		return;
	fprintf(print->file, "        %s: [", name);
	for (uint8_t id = 0; id < 32; id++) {
		if (!(set >> id & 1))
			continue;
		fprintf(print->file, "%s%s", before, name_of(id));
		before = ", ";
	}
	fputs("]\n", print->file);
}

static void config_print_auth(struct config_print *print, const struct host_auth_list *list)
{
	if (list->nr)
		fputs("    hosts:\n", print->file);
	for (uint32_t i = 0; i < list->nr; i++) {
		const struct host_auth *host = list->hosts[i];

		config_print_text(print, "      - nqn: ", host->nqn);
		config_print_key(print, "dhchap_key", &host->host);
		config_print_key(print, "dhchap_ctrl_key", &host->ctrl);
		config_print_names(print, "dhchap_hashes", host->hashes, NVME_AUTH_ALL_HASHES,
			nvme_auth_hash_name);
		config_print_names(print, "dhchap_groups", host->groups, NVME_AUTH_ALL_GROUPS,
			nvme_auth_group_name);
	}
}

static void config_print_ana_state(
	struct config_print *print, const struct subsys *subsys, uint32_t group, uint16_t portid)
{
	fprintf(print->file, "      - group: %u\n        state: %s\n", group,
		ana_state_name(ana_state(subsys, group, portid)));
}

/* One name stands for all listeners of an address, of which there are several with port 0 only. */
static bool config_print_is_first(const struct catalog *catalog, uint32_t which)
{
	for (uint32_t i = 0; i < which; i++)
		if (port_is_same_address(catalog->port[i], catalog->port[which]))
			return false;
	return true;
}

static void config_print_ana_group(struct config_print *print, const struct catalog *catalog,
	const struct subsys *subsys, uint32_t group)
{
	if (ana_is_set(subsys, group, ANA_OTHER_PORTS))
		config_print_ana_state(print, subsys, group, ANA_OTHER_PORTS);
	for (uint32_t i = 0; i < catalog->nr_ports; i++) {
		const struct port *port = catalog->port[i];

		if (!ana_is_set(subsys, group, port->portid) || !config_print_is_first(catalog, i))
			continue;
		config_print_ana_state(print, subsys, group, port->portid);
		fputs("        listeners:\n", print->file);
		config_print_port(print, "          - ", port, false);
	}
}

static bool config_print_has_ana(const struct catalog *catalog, const struct subsys *subsys)
{
	bool has = false;

	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++) {
		has |= ana_is_set(subsys, group, ANA_OTHER_PORTS);
		for (uint32_t i = 0; i < catalog->nr_ports; i++)
			has |= ana_is_set(subsys, group, catalog->port[i]->portid);
	}
	return has;
}

static void config_print_ana(
	struct config_print *print, const struct catalog *catalog, const struct subsys *subsys)
{
	if (!config_print_has_ana(catalog, subsys))
		return;
	fputs("    ana:\n", print->file);
	for (uint32_t group = 1; group <= ANA_MAX_GROUPS; group++)
		config_print_ana_group(print, catalog, subsys, group);
}

static void config_print_disk(struct config_print *print, const struct backend *backend)
{
	static const char *const kinds[] = {"ram", "null"};
	const char *path = backend->path;
	char key[32];

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i]);

		if (strncmp(path, kinds[i], length) || path[length] != ':')
			continue;
		snprintf(key, sizeof(key), "        %s: ", kinds[i]);
		config_print_text(print, key, path + length + 1);
		return;
	}
	config_print_text(print, "        path: ", path);
}

/* The UUID always, that it stays whatever becomes of the disk; the rest if it does not follow. */
static void config_print_ids(struct config_print *print, const struct ns *ns)
{
	const struct ns_options options = {.uuid = &ns->uuid};
	char uuid[NVME_UUID_TEXT];
	struct ns usual = *ns;

	ns_identity_set(&usual, &options);
	nvme_uuid_format(&ns->uuid, uuid);
	fprintf(print->file, "        uuid: %s\n", uuid);
	if (memcmp(ns->nguid, usual.nguid, sizeof(ns->nguid)))
		config_print_bytes(print, "        nguid: ", ns->nguid, sizeof(ns->nguid));
	if (memcmp(ns->eui64, usual.eui64, sizeof(ns->eui64)))
		config_print_bytes(print, "        eui64: ", ns->eui64, sizeof(ns->eui64));
}

/* A disk that cannot be written to needs no word about it. */
static bool config_print_is_readonly(const struct ns *ns)
{
	const struct backend *backend = ns->place->backend;

	return backend->asked_read_only || (ns->always_read_only && !backend->geometry.read_only);
}

static void config_print_ns(struct config_print *print, const struct ns *ns)
{
	const struct backend *backend = ns->place->backend;

	fprintf(print->file, "      - nsid: %u\n", ns->nsid);
	config_print_disk(print, backend);
	if (backend->asked_block_bytes)
		fprintf(print->file, "        block: %u\n", backend->asked_block_bytes);
	config_print_ids(print, ns);
	if (ns->ana_group != ANA_DEFAULT_GROUP)
		fprintf(print->file, "        ana_group: %u\n", ns->ana_group);
	if (config_print_is_readonly(ns))
		fputs("        readonly: true\n", print->file);
	if (ns->hosts)
		config_print_allowed(print, "        ", ns->hosts);
}

static void config_print_subsys(
	struct config_print *print, const struct catalog *catalog, const struct subsys *subsys)
{
	bool has_any = false;

	config_print_text(print, "  - nqn: ", subsys->nqn);
	config_print_text(print, "    serial: ", subsys->serial);
	if (subsys->admin_label[0])
		config_print_text(print, "    admin_label: ", subsys->admin_label);
	if (subsys->max_io_queues != SUBSYS_MAX_IO_QUEUES)
		fprintf(print->file, "    max_io_queues: %u\n", subsys->max_io_queues);
	if (subsys->one_association)
		fputs("    duplicate_hosts: refuse\n", print->file);
	if (subsys->reset_offered)
		fputs("    subsystem_reset: true\n", print->file);
	config_print_allowed(print, "    ", subsys->allow_any ? NULL : &subsys->hosts);
	config_print_auth(print, &subsys->auth);
	config_print_ana(print, catalog, subsys);
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++) {
		if (!subsys->ns[nsid])
			continue;
		if (!has_any)
			fputs("    namespaces:\n", print->file);
		has_any = true;
		config_print_ns(print, subsys->ns[nsid]);
	}
}

/* --- all of it ------------------------------------------------------------------------------- */

static int config_print_check(const struct config_print *print, int closed, char *why, size_t size)
{
	if (print->unfit[0])
		snprintf(why, size, "'%s' is not UTF-8: no configuration file can name it",
			print->unfit);
	else if (closed)
		snprintf(why, size, "out of memory");
	else
		return 0;
	return closed ? -ENOMEM : -EILSEQ;
}

int config_print(const struct target_settings *settings, const struct catalog *catalog, char **ret,
	char *why, size_t why_size)
{
	struct config_print print = {0};
	const struct subsys *subsys;
	char *text = NULL;
	size_t length;
	int error;

	print.file = open_memstream(&text, &length);
	if (!print.file) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	fputs("# What hauld runs with, as haulctl config prints it; see hauld.conf(5).\n",
		print.file);
	config_print_ports(&print, catalog);
	config_print_referrals(&print, catalog);
	config_print_settings(&print, settings);
	fputs("subsystems:\n", print.file);
	list_for_each_entry (subsys, &catalog->subsystems, node)
		config_print_subsys(&print, catalog, subsys);
	error = ferror(print.file);
	error |= fclose(print.file);
	error = config_print_check(&print, error, why, why_size);
	if (error)
		free(text);
	else
		*ret = text;
	return error;
}
