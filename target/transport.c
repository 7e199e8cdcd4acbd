/* SPDX-License-Identifier: MIT */
/*
 * The transports there are.
 */
#include "target/transport.h"

#include <string.h>

const struct transport_ops *const transports[NR_TRANSPORTS] = {
	[TRANSPORT_RDMA] = &transport_rdma_ops,
	[TRANSPORT_TCP] = &transport_tcp_ops,
};

const struct transport_ops *transport_find(uint8_t trtype)
{
	for (unsigned i = 0; i < NR_TRANSPORTS; i++)
		if (transports[i]->trtype == trtype)
			return transports[i];
	return NULL;
}
