/* SPDX-License-Identifier: MIT */
/*
 * Set-up and waiting shared by the softrdma tests.
 */
#include "tests/softrdma/harness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct sockaddr_storage addr_of(const char *text, uint16_t port)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	}
	return ss;
}

bool fd_ready(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

struct rdma_cm_event *event_wait(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	assert_true(fd_ready(ch->fd, WAIT_MS));
	assert_int_equal(rdma_get_cm_event(ch, &event), 0);
	assert_string_equal(rdma_event_str(event->event), rdma_event_str(type));
	return event;
}

void event_expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(event_wait(ch, type));
}

struct rdma_cm_id *listen_on(struct rdma_event_channel *ch, const char *addr, uint16_t port)
{
	struct sockaddr_storage ss = addr_of(addr, port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&ss), 0);
	assert_int_equal(rdma_listen(id, 16), 0);
	return id;
}

struct rdma_cm_id *route_to(struct rdma_event_channel *ch, const char *addr, uint16_t port)
{
	struct sockaddr_storage ss = addr_of(addr, port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, 1000), 0);
	event_expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_non_null(id->verbs);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	event_expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

struct ibv_qp_init_attr side_qp_attr(const struct side *s, const struct pair_opts *opts)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.srq = s->srq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = opts->sig_all,
		.cap =
			{
				.max_send_wr = opts->send_wr ? opts->send_wr : 64,
				.max_recv_wr = opts->recv_wr ? opts->recv_wr : 64,
				.max_send_sge = opts->sge ? opts->sge : 4,
				.max_recv_sge = opts->sge ? opts->sge : 4,
				.max_inline_data = opts->inline_bytes,
			},
	};

	return attr;
}

/* Resources of a side whose id has a device. */
void side_open(struct side *s, const struct pair_opts *opts)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 64, .max_sge = 4}};

	s->pd = ibv_alloc_pd(s->id->verbs);
	assert_non_null(s->pd);
	s->cc = ibv_create_comp_channel(s->id->verbs);
	assert_non_null(s->cc);
	s->cq = ibv_create_cq(s->id->verbs, opts->cqe ? (int)opts->cqe : 256, s, s->cc, 0);
	assert_non_null(s->cq);
	if (opts->srq) {
		s->srq = ibv_create_srq(s->pd, &srq);
		assert_non_null(s->srq);
	}
	s->buf = mmap(NULL, SIDE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(s->buf, MAP_FAILED);
	s->mr = ibv_reg_mr(s->pd, s->buf, SIDE_BYTES, ALL_ACCESS);
	assert_non_null(s->mr);
}

void side_close(struct side *s)
{
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->mr)
		assert_int_equal(ibv_dereg_mr(s->mr), 0);
	if (s->srq)
		assert_int_equal(ibv_destroy_srq(s->srq), 0);
	if (s->cq)
		assert_int_equal(ibv_destroy_cq(s->cq), 0);
	if (s->cc)
		assert_int_equal(ibv_destroy_comp_channel(s->cc), 0);
	if (s->pd)
		assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	if (s->id)
		assert_int_equal(rdma_destroy_id(s->id), 0);
	if (s->ch)
		rdma_destroy_event_channel(s->ch);
	if (s->buf)
		munmap(s->buf, SIDE_BYTES);
	memset(s, 0, sizeof(*s));
}

void pair_connect(struct pair *pair, struct side *a, struct side *p)
{
	const struct pair_opts *o = &pair->opts;
	uint8_t reads = o->reads ? o->reads : 16;
	struct rdma_conn_param param = {
		.responder_resources = reads,
		.initiator_depth = reads,
		.retry_count = 7,
		.rnr_retry_count = o->rnr_retry ? (uint8_t)(o->rnr_retry - 1) : 7,
	};
	struct ibv_qp_init_attr attr;
	struct rdma_cm_event *event;

	a->ch = rdma_create_event_channel();
	a->id = route_to(a->ch, "127.0.0.1", ntohs(rdma_get_src_port(pair->listener)));
	side_open(a, o);
	attr = side_qp_attr(a, o);
	assert_int_equal(rdma_create_qp(a->id, a->pd, &attr), 0);
	assert_int_equal(rdma_connect(a->id, &param), 0);

	event = event_wait(pair->lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p->id = event->id;
	rdma_ack_cm_event(event);
	p->ch = rdma_create_event_channel();
	assert_int_equal(rdma_migrate_id(p->id, p->ch), 0);
	if (!p->pd)
		side_open(p, o);
	attr = side_qp_attr(p, o);
	assert_int_equal(rdma_create_qp(p->id, p->pd, &attr), 0);
	assert_int_equal(rdma_accept(p->id, &param), 0);
	event_expect(a->ch, RDMA_CM_EVENT_ESTABLISHED);
	event_expect(p->ch, RDMA_CM_EVENT_ESTABLISHED);
}

void pair_open(struct pair *pair, const struct pair_opts *opts)
{
	memset(pair, 0, sizeof(*pair));
	if (opts)
		pair->opts = *opts;
	pair->lch = rdma_create_event_channel();
	assert_non_null(pair->lch);
	pair->listener = listen_on(pair->lch, "127.0.0.1", 0);
	pair_connect(pair, &pair->a, &pair->p);
}

void pair_disconnect(struct pair *pair)
{
	assert_int_equal(rdma_disconnect(pair->a.id), 0);
	event_expect(pair->p.ch, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(pair->p.id), 0);
	event_expect(pair->a.ch, RDMA_CM_EVENT_DISCONNECTED);
}

void pair_close(struct pair *pair)
{
	side_close(&pair->a);
	side_close(&pair->p);
	rdma_destroy_id(pair->listener);
	rdma_destroy_event_channel(pair->lch);
}

struct ibv_sge side_sge(const struct side *s, uint32_t off, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)s->buf + off, len, s->mr->lkey};
}

int post_recv(struct side *s, uint64_t wr_id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = side_sge(s, off, len);
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->id->qp, &wr, &bad);
}

struct ibv_send_wr send_wr(enum ibv_wr_opcode op, uint64_t wr_id, struct ibv_sge *sge,
	const struct side *peer, uint32_t peer_off)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (peer) {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf + peer_off;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return wr;
}

int post(struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(s->id->qp, wr, &bad);
}

static bool wc_try(struct ibv_cq *cq, int timeout_ms, struct ibv_wc *wc)
{
	int64_t end = now_ms() + timeout_ms;
	struct timespec nap = {.tv_nsec = 20000};

	for (;;) {
		int n = ibv_poll_cq(cq, 1, wc);

		assert_true(n >= 0);
		if (n)
			return true;
		if (now_ms() > end)
			return false;
		nanosleep(&nap, NULL);
	}
}

struct ibv_wc wc_wait(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	assert_true(wc_try(cq, WAIT_MS, &wc));
	return wc;
}

void wc_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wc_wait(cq);

	assert_int_equal(wc.wr_id, wr_id);
	assert_string_equal(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

bool wc_none(struct ibv_cq *cq, int timeout_ms)
{
	struct ibv_wc wc;

	return !wc_try(cq, timeout_ms, &wc);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void qp_wait_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	int64_t end = now_ms() + WAIT_MS;
	struct timespec nap = {.tv_nsec = 20000};

	while (qp_state(qp) != state) {
		assert_true(now_ms() < end);
		nanosleep(&nap, NULL);
	}
}

/* After rdma_create_qp the timer field is 0, which means 655 ms. */
void rnr_timer_short(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = 12};

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
}
