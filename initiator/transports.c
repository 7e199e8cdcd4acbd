/* SPDX-License-Identifier: MIT */
/*
 * The transports of the initiator: a new one is a row here and a file.
 */
#include "initiator/transport.h"

const struct haul_transport_ops *const haul_transports[HAUL_NR_TRANSPORTS] = {
	[HAUL_TRANSPORT_RDMA] = &haul_transport_rdma_ops,
	[HAUL_TRANSPORT_TCP] = &haul_transport_tcp_ops,
};
