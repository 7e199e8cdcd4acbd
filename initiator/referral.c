/* SPDX-License-Identifier: MIT */
/*
 * Which discovery controllers are still to be asked.
 */
#include "initiator/referral.h"

#include <stdlib.h>
#include <string.h>

#include "initiator/discovery.h"

void referrals_init(struct referrals *referrals, const struct nvme_uri *first)
{
	struct referral *referral = &referrals->list[0];

	*referrals = (struct referrals){.nr = 1};
	referral->trtype = first->trtype;
	referral->ipv6 = first->ipv6;
	referral->port = first->port;
	strcpy(referral->host, first->host);
	strcpy(referral->nqn, first->nqn[0] ? first->nqn : NVME_DISCOVERY_NQN);
}

const struct referral *referrals_next(struct referrals *referrals)
{
	if (referrals->nr_asked == referrals->nr)
		return NULL;
	return &referrals->list[referrals->nr_asked++];
}

/* ADDRESS is "192.0.2.1:4420" or "[2001:db8::1]:4420". */
void referrals_found(struct referrals *referrals, const char *address)
{
	struct referral *referral = &referrals->list[referrals->nr_asked - 1];
	const char *end = strrchr(address, ':');
	bool ipv6 = address[0] == '[' && end && end[-1] == ']';
	const char *host = address + ipv6;
	size_t len = end ? (size_t)(end - ipv6 - host) : 0;

	if (len == 0 || len >= sizeof(referral->host))
		return;
	memcpy(referral->host, host, len);
	referral->host[len] = '\0';
	referral->ipv6 = ipv6;
}

static bool referral_is_same(const struct referral *a, const struct referral *b)
{
	return a->trtype == b->trtype && a->port == b->port && !strcmp(a->host, b->host) &&
	       !strcmp(a->nqn, b->nqn);
}

static bool referrals_know(const struct referrals *referrals, const struct referral *referral)
{
	for (unsigned i = 0; i < referrals->nr; i++)
		if (referral_is_same(&referrals->list[i], referral))
			return true;
	return false;
}

/* False: it is no referral, or to nowhere that can be reached. */
static bool referral_read(
	const struct haul_discovery_entry *entry, uint8_t trtype, struct referral *ret)
{
	struct nvme_uri uri;

	if (entry->subtype != NVME_SUBTYPE_REFERRAL || !discovery_uri(entry, &uri))
		return false;
	if (trtype && uri.trtype != trtype)
		return false;
	*ret = (struct referral){.trtype = uri.trtype, .ipv6 = uri.ipv6, .port = uri.port};
	strcpy(ret->host, uri.host);
	strcpy(ret->nqn, uri.nqn);
	return true;
}

void referrals_add(
	struct referrals *referrals, const struct haul_discovery_log *log, uint8_t trtype)
{
	unsigned depth = referrals->list[referrals->nr_asked - 1].depth + 1;

	for (uint32_t i = 0; i < log->nr; i++) {
		struct referral referral;

		if (!referral_read(&log->entries[i], trtype, &referral) ||
			referrals_know(referrals, &referral))
			continue;
		if (depth > REFERRAL_MAX_DEPTH || referrals->nr == REFERRAL_MAX_CTRLS) {
			referrals->nr_left_out++;
			continue;
		}
		referral.depth = depth;
		referrals->list[referrals->nr++] = referral;
	}
}

void referral_apply(const struct referral *referral, struct nvme_uri *uri)
{
	unsigned nr = 0;

	uri->trtype = referral->trtype;
	uri->ipv6 = referral->ipv6;
	uri->port = referral->port;
	uri->nsid = 0;
	strcpy(uri->host, referral->host);
	strcpy(uri->nqn, referral->nqn);
	/* Digests are for TCP only. */
	for (unsigned i = 0; i < uri->nr_options; i++) {
		const char *key = uri->option[i].key;

		if (uri->trtype != NVME_TRTYPE_TCP &&
			(!strcmp(key, "hdgst") || !strcmp(key, "ddgst")))
			continue;
		uri->option[nr++] = uri->option[i];
	}
	uri->nr_options = nr;
}
