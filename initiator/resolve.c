/* SPDX-License-Identifier: MIT */
/*
 * From a host's name to an address. The system's look-up blocks, so it runs on the loop's helper
 * thread and may outlive who asked: what it works on is its own.
 */
#include "initiator/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/uri.h"

struct resolve {
	struct loop_op op;
	struct haul_loop *hl;
	struct haul_ctrl *ctrl; /* NULL: abandoned */
	void (*resolved)(struct haul_ctrl *ctrl, int result, const char *why,
		const struct sockaddr_storage *address);
	char host[NVME_URI_HOST_MAX + 1];
	uint16_t port;
	int eai; /* of getaddrinfo() */
	struct sockaddr_storage address;
};

bool resolve_literal(const char *host, uint16_t port, struct sockaddr_storage *ret)
{
	return address_resolve(host, port, AI_NUMERICHOST, ret) == 0;
}

static int resolve_run(void *arg)
{
	struct resolve *resolve = arg;

	resolve->eai =
		address_resolve(resolve->host, resolve->port, AI_ADDRCONFIG, &resolve->address);
	return 0;
}

static int resolve_errno(int eai)
{
	switch (eai) {
	case 0:
		return 0;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
		return -EAGAIN;
	default:
		return -EHOSTUNREACH;
	}
}

static void resolve_finished(struct done *done, int res, unsigned flags)
{
	struct resolve *resolve = container_of(done, struct resolve, op.done);
	int result = res < 0 ? res : resolve_errno(resolve->eai);

	(void)flags;
	resolve->hl->nr_resolving--;
	if (resolve->ctrl)
		resolve->resolved(resolve->ctrl, result,
			res < 0 ? strerror(-res) : gai_strerror(resolve->eai), &resolve->address);
	free(resolve);
}

int resolve_start(struct haul_loop *hl, const char *host, uint16_t port, struct haul_ctrl *ctrl,
	void (*resolved)(struct haul_ctrl *ctrl, int result, const char *why,
		const struct sockaddr_storage *address),
	struct resolve **ret)
{
	struct resolve *resolve = calloc(1, sizeof(*resolve));

	if (!resolve)
		return -ENOMEM;
	resolve->hl = hl;
	resolve->ctrl = ctrl;
	resolve->resolved = resolved;
	resolve->port = port;
	snprintf(resolve->host, sizeof(resolve->host), "%s", host);
	resolve->op.done.fn = resolve_finished;
	hl->nr_resolving++;
	*ret = resolve;
	loop_offload(hl->loop, &resolve->op, resolve_run, resolve);
	return 0;
}

void resolve_abandon(struct resolve *resolve)
{
	resolve->ctrl = NULL;
}
