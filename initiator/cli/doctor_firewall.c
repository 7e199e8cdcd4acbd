/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: what lets nobody in. A target wants TCP port 4420 (NVMe/TCP) and UDP port 4791
 * (RoCE v2); soft-RoCE wants the latter at hosts, too, for answers come to that port.
 */
#include "initiator/cli/doctor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char doctor_nft[] = "nft -j list ruleset 2>/dev/null";
#define DOCTOR_RULESET_BYTES (4u << 20)

static bool doctor_has_ufw(const struct doctor *doctor)
{
	bool enabled = false;
	FILE *file = doctor_open(doctor, "/etc/ufw/ufw.conf");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		enabled = enabled || !strncmp(line, "ENABLED=yes", strlen("ENABLED=yes"));
	if (file)
		fclose(file);
	return enabled;
}

static const char *doctor_text(struct json_object *json, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(json, key, &value) ? json_object_get_string(value) : "";
}

/* A chain that looks at what comes in and drops what no rule lets through. */
static bool doctor_drops(struct json_object *chain)
{
	return !strcmp(doctor_text(chain, "hook"), "input") &&
	       !strcmp(doctor_text(chain, "policy"), "drop");
}

/* RULES: what nft prints, or NULL. */
static bool doctor_ruleset_drops(struct json_object *rules)
{
	struct json_object *list, *chain;
	bool drops = false;

	if (!rules || !json_object_object_get_ex(rules, "nftables", &list) ||
		!json_object_is_type(list, json_type_array))
		return false;
	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (json_object_object_get_ex(json_object_array_get_idx(list, i), "chain", &chain))
			drops = drops || doctor_drops(chain);
	return drops;
}

static struct json_object *doctor_ruleset(void)
{
	struct json_tokener *tokener = json_tokener_new();
	FILE *nft = tokener ? popen(doctor_nft, "re") : NULL;
	struct json_object *rules = NULL;
	char piece[4096];
	size_t total = 0, n;

	while (nft && total < DOCTOR_RULESET_BYTES &&
		(n = fread(piece, 1, sizeof(piece), nft)) > 0) {
		total += n;
		rules = json_tokener_parse_ex(tokener, piece, (int)n);
		if (rules || json_tokener_get_error(tokener) != json_tokener_continue)
			break;
	}
	if (nft)
		pclose(nft);
	if (tokener)
		json_tokener_free(tokener);
	return rules;
}

static void doctor_nftables(struct doctor *doctor)
{
	struct json_object *rules;

	if (doctor->root[0])
		return;
	if (geteuid() != 0) {
		doctor_tell(doctor, DOCTOR_UNKNOWN, "firewall", "nft list ruleset    # as root",
			"only root may look; a target wants TCP 4420 and, for RoCE v2, UDP 4791");
		return;
	}
	rules = doctor_ruleset();
	if (doctor_ruleset_drops(rules))
		doctor_tell(doctor, DOCTOR_HINT, "firewall",
			"nft add rule inet filter input tcp dport 4420 accept\n"
			"nft add rule inet filter input udp dport 4791 accept",
			"a chain of input drops what no rule lets in; a target wants TCP 4420 "
			"and, for RoCE v2, UDP 4791");
	else if (rules)
		doctor_tell(doctor, DOCTOR_OK, "firewall", NULL, "nftables drop nothing by policy");
	else
		doctor_tell(doctor, DOCTOR_UNKNOWN, "firewall", NULL,
			"nft is not there or cannot say; a target wants TCP 4420 and, for RoCE "
			"v2, UDP 4791");
	json_object_put(rules);
}

void doctor_firewall(struct doctor *doctor)
{
	if (doctor_may(doctor, F_OK, "/run/firewalld"))
		doctor_tell(doctor, DOCTOR_HINT, "firewall",
			"firewall-cmd --permanent --add-port=4420/tcp --add-port=4791/udp\n"
			"firewall-cmd --reload",
			"firewalld is there; a target wants TCP 4420 and, for RoCE v2, UDP 4791");
	else if (doctor_has_ufw(doctor))
		doctor_tell(doctor, DOCTOR_HINT, "firewall",
			"ufw allow 4420/tcp\nufw allow 4791/udp",
			"ufw is on; a target wants TCP 4420 and, for RoCE v2, UDP 4791");
	else
		doctor_nftables(doctor);
}
