/* SPDX-License-Identifier: MIT */
/*
 * The caller's memory and RDMA devices: each region is registered once with each device of the
 * loop, those in use now and those that come later. With keys=region the target reads and writes
 * there under the region's one key, so registering memory is trusting the target with it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "initiator/transport_rdma.h"
#include "proto/base/log.h"

int rdma_mem_access(bool key_per_io)
{
	if (key_per_io)
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
}

static void rdma_mem_explain(struct haul_loop *hl, const struct haul_mem *mem, int result)
{
	struct rlimit limit = {0};

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	snprintf(hl->error, sizeof(hl->error),
		"%zu bytes of memory cannot be registered for RDMA: %s (locked memory is limited to "
		"%llu bytes; raise it with ulimit -l or memlock in limits.conf)",
		mem->length, strerror(-result), (unsigned long long)limit.rlim_cur);
}

static int rdma_mem_add(struct haul_loop *hl, struct haul_mem *mem, struct rdma_dev *dev)
{
	struct ibv_mr *mr;
	int result = rdma_memory_register(dev, mem->base, mem->length, dev->devs->pool_access, &mr);

	if (result)
		rdma_mem_explain(hl, mem, result);
	else
		mem->keys[dev->registrar.index] = mr;
	return result;
}

static void rdma_mem_del(struct haul_mem *mem, struct rdma_dev *dev)
{
	struct ibv_mr *mr = rdma_mem_mr(mem, dev);

	if (mr)
		rdma_memory_deregister(dev, mr);
	mem->keys[dev->registrar.index] = NULL;
}

int rdma_mem_register(struct haul_loop *hl, struct haul_mem *mem)
{
	struct haul_transport_loop *tl = hl->transport_loop[HAUL_TRANSPORT_RDMA];
	struct rdma_dev *dev;
	int result;

	if (!tl)
		return 0;
	list_for_each_entry (dev, &tl->rdma.devs.list, node) {
		result = rdma_mem_add(hl, mem, dev);
		if (result) {
			rdma_mem_unregister(hl, mem);
			return result;
		}
	}
	return 0;
}

void rdma_mem_unregister(struct haul_loop *hl, struct haul_mem *mem)
{
	struct haul_transport_loop *tl = hl->transport_loop[HAUL_TRANSPORT_RDMA];
	struct rdma_dev *dev;

	if (!tl)
		return;
	list_for_each_entry (dev, &tl->rdma.devs.list, node)
		rdma_mem_del(mem, dev);
}

void rdma_mem_revoke(struct haul_loop *hl, struct rdma_dev *dev)
{
	struct haul_mem *mem;

	log_error("rdma: %s keeps a queue pair: memory is not registered with it any more",
		rdma_dev_name(dev));
	list_for_each_entry (mem, &hl->mems, node)
		rdma_mem_del(mem, dev);
}

int rdma_mem_dev_added(struct rdma_devs *devs, struct rdma_dev *dev)
{
	struct haul_transport_loop *tl = container_of(devs, struct haul_transport_loop, rdma.devs);
	struct haul_mem *mem;
	int result;

	list_for_each_entry (mem, &tl->hl->mems, node) {
		result = rdma_mem_add(tl->hl, mem, dev);
		if (result) {
			rdma_mem_dev_removed(devs, dev);
			return result;
		}
	}
	return 0;
}

void rdma_mem_dev_removed(struct rdma_devs *devs, struct rdma_dev *dev)
{
	struct haul_transport_loop *tl = container_of(devs, struct haul_transport_loop, rdma.devs);
	struct haul_mem *mem;

	list_for_each_entry (mem, &tl->hl->mems, node)
		rdma_mem_del(mem, dev);
}
