/* SPDX-License-Identifier: MIT */
/*
 * Registration of memory with a device.
 */
#include "proto/link/rdma_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "proto/base/log.h"
#include "proto/link/rdma_dev.h"

static void rdma_memory_explain_limit(struct rdma_dev *dev, size_t length, int error)
{
	struct rlimit limit = {0};

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	log_line_limited(&dev->devs->limit, loop_now_ns(dev->devs->loop), LOG_LEVEL_ERROR,
		"rdma: %s: cannot register %zu bytes: %s; locked memory is limited to %llu bytes: "
		"raise it (LimitMEMLOCK= of the unit, memlock in limits.conf, or ulimit -l)",
		rdma_dev_name(dev), length, strerror(error), (unsigned long long)limit.rlim_cur);
}

int rdma_memory_register(
	struct rdma_dev *dev, void *base, size_t length, int access, struct ibv_mr **ret)
{
	struct ibv_mr *mr = ibv_reg_mr(dev->pd, base, length, access);
	int error = errno;

	if (!mr) {
		if (error == ENOMEM || error == EPERM)
			rdma_memory_explain_limit(dev, length, error);
		else
			log_line_limited(&dev->devs->limit, loop_now_ns(dev->devs->loop),
				LOG_LEVEL_ERROR, "rdma: %s: cannot register %zu bytes: %s",
				rdma_dev_name(dev), length, strerror(error));
		return error ? -error : -ENOMEM;
	}
	*ret = mr;
	return 0;
}

int rdma_memory_deregister(struct rdma_dev *dev, struct ibv_mr *mr)
{
	int error = ibv_dereg_mr(mr);

	if (rdma_dev_let_go(dev, error))
		return 0;
	log_error("rdma: %s: cannot deregister memory: %s", rdma_dev_name(dev), strerror(error));
	return -error;
}

/* --- the pool's regions -------------------------------------------------------------------- */

static int rdma_memory_pool_add(
	struct bufpool_registrar *registrar, struct bufpool_region *region, void **ret_key)
{
	struct rdma_dev *dev = container_of(registrar, struct rdma_dev, registrar);
	int access = dev->devs->pool_access | dev->quirks.read_access;
	struct ibv_mr *mr;
	int result = rdma_memory_register(dev, region->base, BUFPOOL_REGION_BYTES, access, &mr);

	if (!result)
		*ret_key = mr;
	return result;
}

static int rdma_memory_pool_del(
	struct bufpool_registrar *registrar, struct bufpool_region *region, void *key)
{
	(void)region;
	return rdma_memory_deregister(container_of(registrar, struct rdma_dev, registrar), key);
}

void rdma_memory_registrar_init(struct bufpool_registrar *registrar)
{
	registrar->add = rdma_memory_pool_add;
	registrar->del = rdma_memory_pool_del;
}

/* --- messages ------------------------------------------------------------------------------ */

int rdma_memory_get(struct rdma_dev *dev, size_t length, struct rdma_memory *ret)
{
	int result;

	ret->length = length;
	ret->bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	result = ret->bytes == MAP_FAILED ? -errno : 0;
	if (result) {
		ret->bytes = NULL;
		return result;
	}
	result = rdma_memory_register(dev, ret->bytes, length, IBV_ACCESS_LOCAL_WRITE, &ret->mr);
	if (result) {
		munmap(ret->bytes, length);
		ret->bytes = NULL;
	}
	return result;
}

void rdma_memory_put(struct rdma_dev *dev, struct rdma_memory *memory)
{
	if (!memory->bytes)
		return;
	if (!rdma_memory_deregister(dev, memory->mr))
		munmap(memory->bytes, memory->length);
	memory->bytes = NULL;
}
