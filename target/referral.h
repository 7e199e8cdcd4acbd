/* SPDX-License-Identifier: MIT */
/*
 * A referral: where another discovery service is, for the discovery log.
 */
#ifndef HAUL_TARGET_REFERRAL_H
#define HAUL_TARGET_REFERRAL_H

#include <stdbool.h>
#include <sys/socket.h>

#include "proto/nvme/uri.h"
#include "target/host_list.h"

struct referral {
	enum nvme_trtype trtype;
	struct sockaddr_storage address;
	char nqn[NVME_NQN_MAX + 1]; /* the well-known one if none was given */
	bool allow_any;
	struct host_list hosts; /* that are told of it; owned here */
};

/* For any host. -EINVAL, and WHY has a line for the user. Looks no name up: hosts are told an
 * address. */
int referral_parse(
	const struct nvme_uri *uri, struct referral *ret, char *why, size_t why_size) must_check;
/* The same service, whoever is told of it. */
bool referral_is_same(const struct referral *one, const struct referral *other);
/* Only HOSTS are to be told; -ENOMEM. */
int referral_show(struct referral *referral, const struct host_list *hosts) must_check;
bool referral_is_shown(const struct referral *referral, const char *hostnqn);
/* The same hosts are told. */
bool referral_is_shown_as(const struct referral *one, const struct referral *other);

/* "tcp://10.0.0.1:8009". */
#define REFERRAL_TEXT (64 + 3 * NVME_NQN_MAX)
void referral_describe(const struct referral *referral, char ret_text[REFERRAL_TEXT]);

#endif
