/* SPDX-License-Identifier: MIT */
/*
 * Protection domains, memory regions and memory windows; the table of keys and the one check of
 * them. lkey and rkey of a region differ, so that a program that mixes them up fails here.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MR_TABLE_STEP 256u
#define MR_PAGE	      4096u

static struct sr_mr **mr_table;
static uint32_t mr_table_size;
static uint8_t mr_tag;
static uint32_t nr_mrs;
static uint64_t locked_bytes;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context_of(context);
	struct sr_pd *pd;
	int ret = sr_context_removed(ctx) ? EIO : sr_fault_call(SR_CALL_ALLOC_PD);

	pd = ret ? NULL : calloc(1, sizeof(*pd));
	if (!pd) {
		errno = ret ? ret : ENOMEM;
		return NULL;
	}
	pd->pd.context = context;
	sr_lock();
	ctx->users++;
	sr_unlock();
	sr_count(SR_PD, 1);
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct sr_pd *pd = sr_container(ibpd, struct sr_pd, pd);
	bool busy;

	sr_lock();
	busy = pd->users > 0;
	if (!busy)
		sr_context_of(ibpd->context)->users--;
	sr_unlock();
	if (busy)
		return EBUSY;
	free(pd);
	sr_count(SR_PD, -1);
	return 0;
}

static int mr_slot(uint32_t *ret_slot)
{
	struct sr_mr **grown;

	for (uint32_t i = 1; i < mr_table_size; i++) {
		if (!mr_table[i]) {
			*ret_slot = i;
			return 0;
		}
	}
	grown = realloc(mr_table, (mr_table_size + MR_TABLE_STEP) * sizeof(struct sr_mr *));
	if (!grown)
		return ENOMEM;
	mr_table = grown;
	memset(&mr_table[mr_table_size], 0, MR_TABLE_STEP * sizeof(struct sr_mr *));
	*ret_slot = mr_table_size ? mr_table_size : 1;
	mr_table_size += MR_TABLE_STEP;
	return 0;
}

/* The low byte changes with each use of a slot: an old key is an invalid key. */
static int mr_insert(struct sr_mr *mr)
{
	uint32_t slot;
	int ret = mr_slot(&slot);

	if (ret)
		return ret;
	mr_table[slot] = mr;
	mr->lkey = slot << 8 | ++mr_tag;
	mr->rkey = slot << 8 | ++mr_tag;
	return 0;
}

static struct sr_mr *mr_find(uint32_t key)
{
	uint32_t slot = key >> 8;

	return slot < mr_table_size ? mr_table[slot] : NULL;
}

/* Regions are pinned by the kernel, so pages must exist and count against the limit. */
static bool mr_mapped(const uint8_t *addr, size_t length)
{
	uintptr_t page = (uintptr_t)addr & ~(uintptr_t)(MR_PAGE - 1);
	uintptr_t end = (uintptr_t)addr + length;
	unsigned char vec[1024];

	while (page < end) {
		size_t len =
			end - page > sizeof(vec) * MR_PAGE ? sizeof(vec) * MR_PAGE : end - page;

		if (mincore((void *)page, len, vec))
			return false;
		page += len;
	}
	return true;
}

static bool mr_within_memlock(uint64_t bytes)
{
	struct rlimit limit;

	if (sr_faults.memlock)
		return locked_bytes + bytes <= sr_faults.memlock;
	if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &limit))
		return true;
	return limit.rlim_cur == RLIM_INFINITY || locked_bytes + bytes <= limit.rlim_cur;
}

static int mr_check_args(const void *addr, size_t length, unsigned int access)
{
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		!(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_ATOMIC))
		return EOPNOTSUPP;
	if (!length || (uintptr_t)addr + length < (uintptr_t)addr)
		return EINVAL;
	return mr_mapped(addr, length) ? 0 : EFAULT;
}

static int mr_add(struct sr_mr *mr, uint64_t bytes)
{
	int ret;

	if (nr_mrs >= sr_faults.max_mr || !mr_within_memlock(bytes))
		return ENOMEM;
	ret = mr_insert(mr);
	if (ret)
		return ret;
	mr->locked_bytes = bytes;
	locked_bytes += bytes;
	nr_mrs++;
	mr->pd->users++;
	return 0;
}

static struct ibv_mr *mr_register(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct sr_mr *mr;
	int ret = sr_context_removed(sr_context_of(pd->context)) ? EIO
								 : sr_fault_call(SR_CALL_REG_MR);

	if (!ret)
		ret = mr_check_args(addr, length, access);
	mr = ret ? NULL : calloc(1, sizeof(*mr));
	if (!mr) {
		errno = ret ? ret : ENOMEM;
		return NULL;
	}
	mr->pd = sr_container(pd, struct sr_pd, pd);
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->length = length;
	mr->host = addr;
	mr->access = access;
	sr_lock();
	ret = mr_add(mr, (length + MR_PAGE - 1) / MR_PAGE * MR_PAGE);
	sr_unlock();
	if (ret) {
		free(mr);
		errno = ret;
		return NULL;
	}
	mr->mr = (struct ibv_mr){pd->context, pd, addr, length, mr->lkey >> 8, mr->lkey, mr->rkey};
	sr_count(SR_MR, 1);
	return &mr->mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return mr_register(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return mr_register(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return mr_register(pd, addr, length, iova, access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

int ibv_rereg_mr(
	struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct sr_mr *mr = sr_container(ibmr, struct sr_mr, mr);
	bool move = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	unsigned int want = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : mr->access;

	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (move && (!length || !addr)) ||
		mr_check_args(move ? addr : mr->host, move ? length : mr->length, want)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	sr_lock();
	mr->access = want;
	if (move) {
		mr->host = addr;
		mr->iova = (uintptr_t)addr;
		mr->length = length;
		mr->mr.addr = addr;
		mr->mr.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd->users--;
		mr->pd = sr_container(pd, struct sr_pd, pd);
		mr->pd->users++;
		mr->mr.pd = pd;
	}
	sr_unlock();
	return 0;
}

static void mr_remove(struct sr_mr *mr)
{
	mr_table[mr->lkey >> 8] = NULL;
	locked_bytes -= mr->locked_bytes;
	mr->pd->users--;
}

int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct sr_mr *mr = sr_container(ibmr, struct sr_mr, mr);
	bool busy;

	sr_lock();
	busy = mr->windows > 0;
	if (!busy) {
		mr_remove(mr);
		nr_mrs--;
	}
	sr_unlock();
	if (busy)
		return EBUSY;
	free(mr);
	sr_count(SR_MR, -1);
	return 0;
}

struct ibv_mw *sr_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct sr_mr *mw;
	int ret = sr_faults.no_mw ? EOPNOTSUPP : sr_fault_call(SR_CALL_ALLOC_MW);

	if (sr_context_removed(sr_context_of(pd->context)))
		ret = EIO;
	mw = ret ? NULL : calloc(1, sizeof(*mw));
	if (!mw) {
		errno = ret ? ret : ENOMEM;
		return NULL;
	}
	mw->is_mw = true;
	mw->pd = sr_container(pd, struct sr_pd, pd);
	sr_lock();
	ret = mr_insert(mw);
	if (!ret)
		mw->pd->users++;
	sr_unlock();
	if (ret) {
		free(mw);
		errno = ret;
		return NULL;
	}
	mw->mw = (struct ibv_mw){pd->context, pd, mw->rkey, mw->rkey >> 8, type};
	sr_count(SR_MW, 1);
	return &mw->mw;
}

static void mw_unbind(struct sr_mr *mw)
{
	if (!mw->bound)
		return;
	mw->bound = false;
	mw->parent->windows--;
	mw->parent = NULL;
	mw->owner = NULL;
}

int sr_dealloc_mw(struct ibv_mw *ibmw)
{
	struct sr_mr *mw = sr_container(ibmw, struct sr_mr, mw);

	sr_lock();
	mw_unbind(mw);
	mr_remove(mw);
	sr_unlock();
	free(mw);
	sr_count(SR_MW, -1);
	return 0;
}

static bool mw_bind_allowed(const struct sr_mr *mr, const struct ibv_mw_bind_info *info)
{
	if (!(mr->access & IBV_ACCESS_MW_BIND))
		return false;
	if ((info->mw_access_flags & IBV_ACCESS_REMOTE_WRITE) &&
		!(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return info->addr >= mr->iova && info->length <= mr->length &&
	       info->addr - mr->iova <= mr->length - info->length;
}

/* Type 2: the new key has the window's slot and a tag of the program's choice. 0 or -EINVAL. */
int sr_mw_bind(struct sr_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct sr_mr *mw = sr_container(wr->bind_mw.mw, struct sr_mr, mw);
	struct sr_mr *mr = info->mr ? sr_container(info->mr, struct sr_mr, mr) : NULL;
	bool type1 = mw->mw.type == IBV_MW_TYPE_1;

	if (mr_find(mw->rkey) != mw || !mr || mr_find(mr->lkey) != mr)
		return -EINVAL;
	if (mw->pd != qp->pd || mr->pd != qp->pd || !mw_bind_allowed(mr, info))
		return -EINVAL;
	/* The caller keeps the window's structure up to date: soft-RoCE looks there, too. */
	if (!type1 && (mw->bound || (wr->bind_mw.rkey >> 8) != (mw->rkey >> 8) ||
			      wr->bind_mw.mw->rkey != mw->rkey))
		return -EINVAL;
	mw_unbind(mw);
	mw->rkey = wr->bind_mw.rkey;
	mw->bound = true;
	mw->parent = mr;
	mw->owner = type1 ? NULL : qp;
	mw->iova = info->mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info->addr;
	mw->length = info->length;
	mw->host = mr->host + (info->addr - mr->iova);
	mw->access = info->mw_access_flags;
	mr->windows++;
	return 0;
}

/* Only windows of type 2 can be invalidated: user space has no fast-registered regions. */
int sr_key_invalidate(struct sr_qp *qp, uint32_t rkey)
{
	struct sr_mr *mw = mr_find(rkey);

	if (!mw || !mw->is_mw || mw->rkey != rkey || !mw->bound || mw->owner != qp)
		return -EINVAL;
	mw_unbind(mw);
	return 0;
}

void sr_mw_forget_qp(struct sr_qp *qp)
{
	for (uint32_t i = 0; i < mr_table_size; i++) {
		if (mr_table[i] && mr_table[i]->is_mw && mr_table[i]->owner == qp)
			mw_unbind(mr_table[i]);
	}
}

static uint8_t *mr_range(const struct sr_mr *mr, uint64_t addr, uint64_t len)
{
	if (addr < mr->iova || len > mr->length || addr - mr->iova > mr->length - len)
		return NULL;
	return mr->host + (addr - mr->iova);
}

uint8_t *sr_lkey_check(struct sr_pd *pd, const struct ibv_sge *sge, unsigned int access)
{
	struct sr_mr *mr = mr_find(sge->lkey);

	if (!mr || mr->is_mw || mr->lkey != sge->lkey || mr->pd != pd)
		return NULL;
	if ((mr->access & access) != access)
		return NULL;
	return mr_range(mr, sge->addr, sge->length);
}

uint8_t *sr_rkey_check(
	struct sr_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned int access)
{
	struct sr_mr *mr = mr_find(rkey);

	if (!mr || mr->rkey != rkey || mr->pd != qp->pd)
		return NULL;
	if (mr->is_mw && (!mr->bound || (mr->owner && mr->owner != qp)))
		return NULL;
	if ((mr->access & access) != access || (qp->attr.qp_access_flags & access) != access)
		return NULL;
	return mr_range(mr, addr, len);
}
