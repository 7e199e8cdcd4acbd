/* SPDX-License-Identifier: MIT */
/*
 * Makes referrals from URIs.
 */
#include "target/referral.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "proto/link/address.h"

int referral_parse(const struct nvme_uri *uri, struct referral *ret, char *why, size_t why_size)
{
	struct referral referral = {.trtype = uri->trtype, .allow_any = true};

	if (uri->nsid || uri->nr_options) {
		snprintf(why, why_size,
			"a referral has neither namespace nor options: give an address such as "
			"tcp://10.0.0.1:8009");
		return -EINVAL;
	}
	if (strchr(uri->host, '%') ||
		address_resolve(uri->host, uri->port, AI_NUMERICHOST, &referral.address) ||
		address_is_wildcard(&referral.address)) {
		snprintf(why, why_size,
			"the referral's host '%s' is not an address that hosts can use: names, "
			"scopes and wildcards mean something here only",
			uri->host);
		return -EINVAL;
	}
	snprintf(referral.nqn, sizeof(referral.nqn), "%s",
		uri->nqn[0] ? uri->nqn : NVME_DISCOVERY_NQN);
	*ret = referral;
	return 0;
}

bool referral_is_same(const struct referral *one, const struct referral *other)
{
	return one->trtype == other->trtype && !strcmp(one->nqn, other->nqn) &&
	       !memcmp(&one->address, &other->address, sizeof(one->address));
}

int referral_show(struct referral *referral, const struct host_list *hosts)
{
	referral->allow_any = false;
	return host_list_copy(&referral->hosts, hosts);
}

bool referral_is_shown(const struct referral *referral, const char *hostnqn)
{
	return referral->allow_any || host_list_has(&referral->hosts, hostnqn);
}

bool referral_is_shown_as(const struct referral *one, const struct referral *other)
{
	return one->allow_any == other->allow_any && host_list_is_same(&one->hosts, &other->hosts);
}

void referral_describe(const struct referral *referral, char ret_text[REFERRAL_TEXT])
{
	bool well_known = !strcmp(referral->nqn, NVME_DISCOVERY_NQN);
	char address[ADDRESS_TEXT];

	address_format(&referral->address, address);
	snprintf(ret_text, REFERRAL_TEXT, "%s://%s%s%s",
		referral->trtype == NVME_TRTYPE_RDMA ? "rdma" : "tcp", address,
		well_known ? "" : "/", well_known ? "" : referral->nqn);
}
