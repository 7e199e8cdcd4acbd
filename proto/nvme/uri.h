/* SPDX-License-Identifier: MIT */
/*
 * The one parser of addresses: rdma://HOST[:PORT][/NQN[/NSID]][?option=value&...] and tcp://...
 * likewise. HOST is a name, an IPv4 address or an IPv6 address in brackets, link-local ones with
 * their scope: [fe80::1%eth0]. It resolves nothing and knows no option.
 */
#ifndef HAUL_PROTO_NVME_URI_H
#define HAUL_PROTO_NVME_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/compiler.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/name.h"

#define NVME_URI_HOST_MAX    253 /* of a DNS name */
#define NVME_URI_OPTIONS_MAX 16
#define NVME_URI_NSID_MAX    0xfffffffeu
#define NVME_URI_KEY_MAX     31
#define NVME_URI_VALUE_MAX   255

struct nvme_uri_option {
	char key[NVME_URI_KEY_MAX + 1];
	char value[NVME_URI_VALUE_MAX + 1]; /* decoded; may be empty */
};

struct nvme_uri {
	enum nvme_trtype trtype;	  /* NVME_TRTYPE_RDMA or NVME_TRTYPE_TCP */
	bool ipv6;			  /* the host is an IPv6 address */
	char host[NVME_URI_HOST_MAX + 1]; /* without brackets, with the scope */
	uint16_t port;
	char nqn[NVME_NQN_MAX + 1]; /* decoded; empty: none given */
	uint32_t nsid;		    /* 0: none given */
	unsigned nr_options;
	struct nvme_uri_option option[NVME_URI_OPTIONS_MAX]; /* in the order given, each key once */
};

/* A listener's address: port 0 (any free one) is good, NQN and NSID are not. */
#define NVME_URI_LISTENER 0x1u

/*
 * Returns 0, or -EINVAL with a message of one line in why: which part is wrong and what would be
 * right. Without a port it is NVME_FABRICS_PORT.
 */
int nvme_uri_parse(const char *text, unsigned flags, struct nvme_uri *ret, char *why,
	size_t why_size) must_check;

/* Room for any URI's text with its NUL. */
#define NVME_URI_TEXT_MAX                            \
	(32 + NVME_URI_HOST_MAX + 3 * NVME_NQN_MAX + \
		NVME_URI_OPTIONS_MAX * (2 + NVME_URI_KEY_MAX + 3 * NVME_URI_VALUE_MAX))

/* The text that parses to the same. Its length, or -ENOSPC when it does not fit. */
int nvme_uri_format(const struct nvme_uri *uri, char *buf, size_t size) must_check;

#endif
