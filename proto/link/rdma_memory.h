/* SPDX-License-Identifier: MIT */
/*
 * Memory that one device may read and write: its registrations of the loop's pool, of memory for
 * messages, and of what others bring. Who registers deregisters, before the device goes.
 */
#ifndef HAUL_LINK_RDMA_MEMORY_H
#define HAUL_LINK_RDMA_MEMORY_H

#include <infiniband/verbs.h>
#include <stddef.h>

#include "proto/base/compiler.h"

struct bufpool_registrar;
struct rdma_dev;

/* How a device's registrar works, which the pool asks for each of its regions. */
void rdma_memory_registrar_init(struct bufpool_registrar *registrar);

/* ibv_reg_mr; -ENOMEM and -EPERM say in the log how much locked memory is needed and where to
 * allow it. */
int rdma_memory_register(struct rdma_dev *dev, void *base, size_t length, int access,
	struct ibv_mr **ret) must_check;
/* Not 0, and told in the log: the device may still write to the memory, which must not be used
 * again. */
int rdma_memory_deregister(struct rdma_dev *dev, struct ibv_mr *mr);

/* Memory for messages, registered with one device. Apart from the pool, so that a queue can be made
 * while data waits for buffers there. */
struct rdma_memory {
	void *bytes; /* page-aligned; NULL: there is none */
	size_t length;
	struct ibv_mr *mr;
};
int rdma_memory_get(struct rdma_dev *dev, size_t length, struct rdma_memory *ret) must_check;
/* Where the device keeps its registration the memory stays mapped: it may write there. */
void rdma_memory_put(struct rdma_dev *dev, struct rdma_memory *memory);

#endif
