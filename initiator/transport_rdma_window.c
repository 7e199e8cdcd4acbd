/* SPDX-License-Identifier: MIT */
/*
 * keys=io: a key for each command. The caller's memory is registered without rights for anybody
 * else; a memory window lends the target just the command's range, in one direction, under a key
 * that is invalid before the command is reported as done. A target that keeps a key, or guesses
 * one, touches nothing.
 */
#include "initiator/transport_rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Beside one for each command: for commands whose memory is in several pieces. */
#define RDMA_WINDOWS_MORE 64

static void rdma_windows_free(struct rdma_windows *windows, const struct rdma_dev *dev)
{
	for (uint32_t i = 0; i < windows->nr; i++)
		rdma_dev_check_destroy(dev, "memory window", ibv_dealloc_mw(windows->all[i]));
	free(windows->all);
	free(windows->spare);
	free(windows->binds);
	memset(windows, 0, sizeof(*windows));
}

static int rdma_windows_alloc(struct rdma_windows *windows, struct ibv_pd *pd, uint32_t depth)
{
	uint32_t nr = depth + RDMA_WINDOWS_MORE;

	windows->all = calloc(nr, sizeof(struct ibv_mw *));
	windows->spare = calloc(nr, sizeof(struct ibv_mw *));
	windows->binds = calloc((size_t)depth * NVME_SGL_MAX_PIECES, sizeof(*windows->binds));
	if (!windows->all || !windows->spare || !windows->binds)
		return -ENOMEM;
	windows->depth = depth;
	for (; windows->nr < nr; windows->nr++) {
		windows->all[windows->nr] = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		if (!windows->all[windows->nr])
			break;
		windows->spare[windows->nr_spare++] = windows->all[windows->nr];
	}
	/* Each command is sure of one; with less than that there is none to lend. */
	return windows->nr < depth ? -ENOSPC : 0;
}

static bool rdma_windows_are_there(const struct rdma_dev *dev)
{
	return dev->attr.device_cap_flags &
	       (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

int rdma_windows_get(struct haul_transport_queue *tq)
{
	int result;

	if (!tq->queue->key_per_io)
		return 0;
	if (!rdma_windows_are_there(tq->dev))
		return -EOPNOTSUPP;
	result = rdma_windows_alloc(&tq->windows, tq->dev->pd, tq->queue->depth);
	if (result)
		rdma_windows_free(&tq->windows, tq->dev);
	return result;
}

void rdma_windows_put(struct haul_transport_queue *tq)
{
	rdma_windows_free(&tq->windows, tq->dev);
}

bool rdma_windows_may_take(const struct haul_transport_queue *tq, uint32_t nr)
{
	const struct rdma_windows *windows = &tq->windows;

	/* What is left is one for each command that holds none. */
	return windows->nr_spare >= nr + (windows->depth - windows->nr_holders - 1);
}

void rdma_windows_take(struct haul_transport_queue *tq, const struct haul_request *request,
	const struct rdma_map *map, struct rdma_op *op)
{
	struct rdma_windows *windows = &tq->windows;
	struct rdma_bind *binds = &windows->binds[request->index * NVME_SGL_MAX_PIECES];

	assert(rdma_windows_may_take(tq, map->nr));
	windows->nr_holders++;
	for (uint32_t i = 0; i < map->nr; i++) {
		struct ibv_mw *mw = windows->spare[--windows->nr_spare];

		binds[i] = (struct rdma_bind){.mw = mw,
			.mr = map->piece[i].mr,
			.addr = map->piece[i].addr,
			.len = map->piece[i].len,
			.access =
				request->to_host ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ,
			.key = ibv_inc_rkey(mw->rkey)};
	}
	op->binds = binds;
	op->nr_binds = map->nr;
	tq->queue->hl->stats.nr_keys += map->nr;
}

void rdma_windows_give_back(struct haul_transport_queue *tq, struct rdma_request *rr)
{
	struct rdma_windows *windows = &tq->windows;

	assert(rr->nr_lent > 0);
	for (uint32_t i = 0; i < rr->nr_lent; i++) {
		struct ibv_mw *mw = rr->op.binds[i].mw;

		/* Now, not before the bind: that is told the key until then, too. */
		mw->rkey = rr->op.binds[i].key;
		windows->spare[windows->nr_spare++] = mw;
	}
	windows->nr_holders--;
	rr->nr_lent = 0;
}
