/* SPDX-License-Identifier: MIT */
/*
 * Completion queues and completion channels.
 * A queue holds exactly what was asked for: one completion too many is an overrun, as on the worst
 * device.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t sr_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct sr_channel *ch;
	int ret = sr_context_removed(sr_context_of(context))
			  ? EIO
			  : sr_fault_call(SR_CALL_CREATE_CHANNEL);

	ch = ret ? NULL : calloc(1, sizeof(*ch));
	if (ch)
		ret = sr_evq_init(&ch->evq);
	if (!ch || ret) {
		free(ch);
		errno = ret ? ret : ENOMEM;
		return NULL;
	}
	ch->channel.context = context;
	ch->channel.fd = ch->evq.fd;
	sr_count(SR_CHANNEL, 1);
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct sr_channel *ch = sr_container(channel, struct sr_channel, channel);
	bool busy;

	sr_lock();
	busy = ch->users > 0;
	sr_unlock();
	if (busy)
		return EBUSY;
	sr_evq_destroy(&ch->evq);
	free(ch);
	sr_count(SR_CHANNEL, -1);
	return 0;
}

static uint32_t cq_ring_size(uint32_t cqe)
{
	uint32_t size = 1;

	while (size < cqe)
		size <<= 1;
	return size;
}

/* Makes the completions up to to visible and raises the event the program armed for. cq->lock held.
 */
static void cq_publish(struct sr_cq *cq, uint32_t to)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	bool fire = false;

	for (; tail != to; tail++) {
		const struct sr_cqe *cqe = &cq->ring[tail & (cq->size - 1)];

		fire |= cq->armed && (!cq->armed_solicited || cqe->solicited ||
					     cqe->wc.status != IBV_WC_SUCCESS);
	}
	atomic_store_explicit(&cq->tail, tail, memory_order_release);
	if (!fire)
		return;
	cq->armed = false;
	sr_evq_add(&sr_container(cq->cq.channel, struct sr_channel, channel)->evq, 0, cq);
}

/* delay_cq: the completion happened, but the program does not see it yet. */
static void cq_delay_fire(struct sr_timer *timer)
{
	struct sr_cq *cq = sr_container(timer, struct sr_cq, delay);
	uint64_t now = sr_now_ns();
	uint32_t to;

	pthread_mutex_lock(&cq->lock);
	to = cq->tail;
	while (to != cq->fill && cq->ring[to & (cq->size - 1)].due_ns <= now)
		to++;
	cq_publish(cq, to);
	if (to != cq->fill)
		sr_timer_arm(timer, cq->ring[to & (cq->size - 1)].due_ns - now);
	pthread_mutex_unlock(&cq->lock);
}

static void cq_report_overrun(struct sr_cq *cq)
{
	struct sr_qp *qp;

	sr_async_raise(cq->ctx, IBV_EVENT_CQ_ERR, cq);
	LIST_FOREACH(qp, &cq->ctx->qps, link)
	{
		if ((qp->scq == cq || qp->rcq == cq) && qp->state != IBV_QPS_ERR) {
			sr_async_raise(cq->ctx, IBV_EVENT_QP_FATAL, qp);
			sr_qp_error(qp);
		}
	}
}

static bool cq_store(struct sr_cq *cq, const struct sr_cqe *cqe)
{
	if (cq->overrun)
		return false;
	if (cq->fill - cq->head >= cq->capacity) {
		cq->overrun = true;
		return false;
	}
	cq->ring[cq->fill & (cq->size - 1)] = *cqe;
	cq->ring[cq->fill & (cq->size - 1)].due_ns =
		sr_faults.delay_cq_us ? sr_now_ns() + sr_faults.delay_cq_us * 1000ull : 0;
	cq->fill++;
	if (!sr_faults.delay_cq_us)
		cq_publish(cq, cq->fill);
	else if (!cq->delay.due_ns)
		sr_timer_arm(&cq->delay, sr_faults.delay_cq_us * 1000ull);
	return true;
}

void sr_cq_push(struct sr_cq *cq, const struct sr_cqe *cqe)
{
	bool report;

	pthread_mutex_lock(&cq->lock);
	report = !cq_store(cq, cqe) && !cq->overrun_reported;
	cq->overrun_reported |= report;
	pthread_mutex_unlock(&cq->lock);
	if (report)
		cq_report_overrun(cq);
	if (cqe->wc.status == IBV_WC_SUCCESS)
		sr_qp_count_completion(cqe->qp);
}

/* Completions of a destroyed queue pair stay, as on soft-RoCE; with clean_cq they go, as on others.
 */
void sr_cq_forget_qp(struct sr_cq *cq, struct sr_qp *qp)
{
	uint32_t to;

	pthread_mutex_lock(&cq->lock);
	to = cq->head;
	for (uint32_t i = cq->head; i != cq->fill; i++) {
		struct sr_cqe *cqe = &cq->ring[i & (cq->size - 1)];
		bool mine = cqe->qp == qp;

		if (mine)
			cqe->qp = NULL;
		if (!mine || !sr_faults.clean_cq)
			cq->ring[to++ & (cq->size - 1)] = *cqe;
	}
	if (sr_faults.clean_cq) {
		cq->fill = to;
		cq->tail = to;
	}
	pthread_mutex_unlock(&cq->lock);
}

static void cq_free_slot(const struct sr_cqe *cqe)
{
	if (!cqe->qp)
		return;
	if (cqe->is_send)
		cqe->qp->sq.polled = cqe->sq_done;
	else if (!cqe->qp->srq)
		cqe->qp->rq.polled++;
}

static bool cq_take(struct sr_cq *cq, struct sr_cqe *ret_cqe)
{
	uint32_t head = cq->head;

	if (head == atomic_load_explicit(&cq->tail, memory_order_acquire))
		return false;
	*ret_cqe = cq->ring[head & (cq->size - 1)];
	cq_free_slot(ret_cqe);
	cq->head = head + 1;
	return true;
}

/* Rarely enough that a program which polls once and then sleeps never pays. */
static void cq_polled_in_vain(void)
{
	static _Thread_local unsigned int count;

	if (++count % 16 == 0)
		sr_engine_help();
}

int sr_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct sr_cq *cq = sr_container(ibcq, struct sr_cq, cq);
	struct sr_cqe cqe;
	int n = 0;

	if (cq->head == atomic_load_explicit(&cq->tail, memory_order_acquire)) {
		cq_polled_in_vain();
		return 0;
	}
	pthread_mutex_lock(&cq->lock);
	while (n < num && cq_take(cq, &cqe))
		wc[n++] = cqe.wc;
	pthread_mutex_unlock(&cq->lock);
	return n;
}

int sr_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct sr_cq *cq = sr_container(ibcq, struct sr_cq, cq);

	if (!ibcq->channel)
		return EINVAL;
	pthread_mutex_lock(&cq->lock);
	/* A request for all completions is not weakened by a later one for solicited ones. */
	cq->armed_solicited = solicited_only && (!cq->armed || cq->armed_solicited);
	cq->armed = true;
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

static void cq_event_taken(uint32_t type, void *object)
{
	(void)type;
	((struct sr_cq *)object)->events_reported++;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct sr_channel *ch = sr_container(channel, struct sr_channel, channel);
	uint32_t type;
	void *object;
	int ret = sr_evq_take(&ch->evq, &type, &object, cq_event_taken);

	if (ret) {
		errno = ret;
		return -1;
	}
	*cq = &((struct sr_cq *)object)->cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

static void cq_link(struct sr_cq *cq, struct sr_context *ctx, struct ibv_comp_channel *channel)
{
	static uint32_t handle;

	sr_lock();
	cq->cq.handle = ++handle;
	if (channel)
		sr_container(channel, struct sr_channel, channel)->users++;
	LIST_INSERT_HEAD(&ctx->cqs, cq, link);
	sr_unlock();
	sr_count(SR_CQ, 1);
}

static struct sr_cq *cq_create(struct ibv_context *context, uint32_t cqe, void *cq_context,
	struct ibv_comp_channel *channel, uint32_t vector)
{
	struct sr_context *ctx = sr_context_of(context);
	struct sr_cq *cq = NULL;
	int ret = sr_context_removed(ctx) ? EIO : sr_fault_call(SR_CALL_CREATE_CQ);

	if (!ret && (!cqe || cqe > sr_faults.max_cqe || vector > 0))
		ret = EINVAL;
	if (!ret)
		cq = calloc(1, sizeof(*cq));
	if (cq)
		cq->ring = calloc(cq_ring_size(cqe), sizeof(*cq->ring));
	if (!cq || !cq->ring) {
		free(cq);
		errno = ret ? ret : ENOMEM;
		return NULL;
	}
	cq->size = cq_ring_size(cqe);
	cq->capacity = cqe;
	cq->ctx = ctx;
	cq->delay.fire = cq_delay_fire;
	pthread_mutex_init(&cq->lock, NULL);
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = (int)cqe;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	cq_link(cq, ctx, channel);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	struct sr_cq *cq;

	if (cqe < 0 || comp_vector < 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = cq_create(context, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector);
	return cq ? &cq->cq : NULL;
}

int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct sr_cq *cq = sr_container(ibcq, struct sr_cq, cq);
	uint32_t want = cqe > 0 ? (uint32_t)cqe : 0, size = cq_ring_size(want);
	struct sr_cqe *ring;
	int ret = sr_faults.no_resize ? ENOSYS : sr_fault_call(SR_CALL_RESIZE_CQ);

	if (!ret && (!want || want > sr_faults.max_cqe))
		ret = EINVAL;
	ring = ret ? NULL : calloc(size, sizeof(*ring));
	if (!ring)
		return ret ? ret : ENOMEM;
	sr_lock();
	pthread_mutex_lock(&cq->lock);
	if (cq->fill - cq->head > want) {
		ret = EINVAL;
	} else {
		struct sr_cqe *old = cq->ring;

		for (uint32_t i = cq->head; i != cq->fill; i++)
			ring[i & (size - 1)] = old[i & (cq->size - 1)];
		cq->ring = ring;
		cq->size = size;
		cq->capacity = want;
		cq->cq.cqe = cqe;
		ring = old;
	}
	pthread_mutex_unlock(&cq->lock);
	sr_unlock();
	free(ring);
	return ret;
}

/* The program may still be about to acknowledge events it was given. */
static void cq_wait_acked(struct sr_cq *cq)
{
	struct ibv_cq *ibcq = &cq->cq;

	pthread_mutex_lock(&ibcq->mutex);
	while (ibcq->comp_events_completed != cq->events_reported ||
		ibcq->async_events_completed != cq->async_reported)
		pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
	pthread_mutex_unlock(&ibcq->mutex);
}

int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct sr_cq *cq = sr_container(ibcq, struct sr_cq, cq);

	sr_lock();
	if (cq->users) {
		sr_unlock();
		return EBUSY;
	}
	LIST_REMOVE(cq, link);
	sr_timer_cancel(&cq->delay);
	sr_async_purge(cq->ctx, cq);
	if (ibcq->channel) {
		struct sr_channel *ch = sr_container(ibcq->channel, struct sr_channel, channel);

		sr_evq_purge(&ch->evq, cq);
		ch->users--;
	}
	sr_unlock();
	cq_wait_acked(cq);
	pthread_mutex_destroy(&cq->lock);
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	free(cq->ring);
	free(cq);
	sr_count(SR_CQ, -1);
	return 0;
}

static int cq_next_poll(struct ibv_cq_ex *ex)
{
	struct sr_cq *cq = sr_container(ex, struct sr_cq, ex);

	if (!cq_take(cq, &cq->current))
		return ENOENT;
	ex->wr_id = cq->current.wc.wr_id;
	ex->status = cq->current.wc.status;
	return 0;
}

static void cq_end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&sr_container(ex, struct sr_cq, ex)->lock);
}

static int cq_start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct sr_cq *cq = sr_container(ex, struct sr_cq, ex);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->lock);
	ret = cq_next_poll(ex);
	if (ret)
		cq_end_poll(ex);
	return ret;
}

#define CQ_READ(type, name, field)                                                 \
	static type cq_read_##name(struct ibv_cq_ex *ex)                           \
	{                                                                          \
		return (type)sr_container(ex, struct sr_cq, ex)->current.wc.field; \
	}

CQ_READ(enum ibv_wc_opcode, opcode, opcode)
CQ_READ(uint32_t, vendor_err, vendor_err)
CQ_READ(uint32_t, byte_len, byte_len)
CQ_READ(__be32, imm_data, imm_data)
CQ_READ(uint32_t, qp_num, qp_num)
CQ_READ(uint32_t, src_qp, src_qp)
CQ_READ(unsigned int, wc_flags, wc_flags)
CQ_READ(uint32_t, slid, slid)
CQ_READ(uint8_t, sl, sl)
CQ_READ(uint8_t, dlid_path_bits, dlid_path_bits)

struct ibv_cq_ex *sr_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct sr_cq *cq;

	if (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = cq_create(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	cq->ex.start_poll = cq_start_poll;
	cq->ex.next_poll = cq_next_poll;
	cq->ex.end_poll = cq_end_poll;
	cq->ex.read_opcode = cq_read_opcode;
	cq->ex.read_vendor_err = cq_read_vendor_err;
	cq->ex.read_byte_len = cq_read_byte_len;
	cq->ex.read_imm_data = cq_read_imm_data;
	cq->ex.read_qp_num = cq_read_qp_num;
	cq->ex.read_src_qp = cq_read_src_qp;
	cq->ex.read_wc_flags = cq_read_wc_flags;
	cq->ex.read_slid = cq_read_slid;
	cq->ex.read_sl = cq_read_sl;
	cq->ex.read_dlid_path_bits = cq_read_dlid_path_bits;
	return &cq->ex;
}
