/* SPDX-License-Identifier: MIT */
/*
 * Data over softrdma: every operation, order, segments, inline data, windows, completion events.
 */
#include "tests/softrdma/harness.h"

#include <stdlib.h>

static void fill(uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i * 7 + seed + i / 251);
}

static void sends_arrive_in_order_with_length_and_sender(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(post_recv(&t.p, i, i * 4096, 4096), 0);
	for (uint32_t i = 0; i < 16; i++) {
		struct ibv_sge sge = side_sge(&t.a, i * 100, 100 + i);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, 100 + i, &sge, NULL, 0);

		fill(t.a.buf + i * 100, 100 + i, i);
		assert_int_equal(post(&t.a, &wr), 0);
		wc_expect(t.a.cq, 100 + i, IBV_WC_SUCCESS);
	}
	for (uint32_t i = 0; i < 16; i++) {
		struct ibv_wc wc = wc_wait(t.p.cq);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, 100 + i);
		assert_int_equal(wc.qp_num, t.p.id->qp->qp_num);
		assert_int_equal(wc.src_qp, t.a.id->qp->qp_num);
		assert_memory_equal(t.p.buf + i * 4096, t.a.buf + i * 100, 100);
	}
	pair_disconnect(&t);
	pair_close(&t);
}

struct op_case {
	enum ibv_wr_opcode op;
	uint32_t len;
	int sges;
	unsigned int flags;
	enum ibv_wc_opcode wc, peer_wc; /* peer: 0 if it sees nothing */
};

static const struct op_case op_cases[] = {
	{IBV_WR_SEND, 0, 0, 0, IBV_WC_SEND, IBV_WC_RECV},
	{IBV_WR_SEND, 1, 1, 0, IBV_WC_SEND, IBV_WC_RECV},
	{IBV_WR_SEND, 1 << 20, 3, 0, IBV_WC_SEND, IBV_WC_RECV},
	{IBV_WR_SEND, 300, 2, IBV_SEND_INLINE, IBV_WC_SEND, IBV_WC_RECV},
	{IBV_WR_SEND_WITH_IMM, 70000, 2, 0, IBV_WC_SEND, IBV_WC_RECV},
	{IBV_WR_RDMA_WRITE, 0, 0, 0, IBV_WC_RDMA_WRITE, 0},
	{IBV_WR_RDMA_WRITE, 4096, 1, 0, IBV_WC_RDMA_WRITE, 0},
	{IBV_WR_RDMA_WRITE, 1500000, 4, 0, IBV_WC_RDMA_WRITE, 0},
	{IBV_WR_RDMA_WRITE, 200, 1, IBV_SEND_INLINE, IBV_WC_RDMA_WRITE, 0},
	{IBV_WR_RDMA_WRITE_WITH_IMM, 100000, 1, 0, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM},
	{IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM},
	{IBV_WR_RDMA_READ, 4096, 1, 0, IBV_WC_RDMA_READ, 0},
	{IBV_WR_RDMA_READ, 0, 0, 0, IBV_WC_RDMA_READ, 0},
	{IBV_WR_RDMA_READ, 1500000, 4, 0, IBV_WC_RDMA_READ, 0},
};

/* Splits len over the scatter list with gaps, so that order and offsets show. */
static void split(const struct side *s, struct ibv_sge *sge, int n, uint32_t len)
{
	uint32_t off = 0;

	for (int i = 0; i < n; i++) {
		uint32_t part = i + 1 < n ? len / (uint32_t)n - (uint32_t)i : len - off;

		sge[i] = side_sge(s, off + (uint32_t)i * 64, part);
		off += part;
	}
}

static void joined(const struct ibv_sge *sge, int n, uint8_t *to)
{
	for (int i = 0; i < n; i++) {
		memcpy(to, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		to += sge[i].length;
	}
}

static void op_run(struct pair *t, const struct op_case *c)
{
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = send_wr(c->op, 77, sge, &t->p, 256);
	uint8_t *flat = malloc(c->len + 1);

	fill(t->a.buf, SIDE_BYTES / 2, c->len);
	fill(t->p.buf, SIDE_BYTES / 2, c->len + 3);
	split(&t->a, sge, c->sges, c->len);
	wr.num_sge = c->sges;
	wr.send_flags |= c->flags;
	wr.imm_data = htobe32(0xcafe);
	if (c->peer_wc)
		assert_int_equal(post_recv(&t->p, 5, 256, SIDE_BYTES / 2), 0);
	assert_int_equal(post(&t->a, &wr), 0);
	struct ibv_wc wc = wc_wait(t->a.cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, c->wc);
	if (c->peer_wc) {
		wc = wc_wait(t->p.cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, c->peer_wc);
		assert_int_equal(wc.byte_len, c->len);
		bool imm = c->op == IBV_WR_SEND_WITH_IMM || c->op == IBV_WR_RDMA_WRITE_WITH_IMM;
		assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), imm);
		if (imm)
			assert_int_equal(be32toh(wc.imm_data), 0xcafe);
	}
	joined(sge, c->sges, flat);
	assert_memory_equal(flat, t->p.buf + 256, c->len);
	assert_true(wc_none(t->p.cq, 0));
	free(flat);
}

static void each_operation_moves_its_bytes(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.inline_bytes = 300});
	for (size_t i = 0; i < sizeof(op_cases) / sizeof(op_cases[0]); i++)
		op_run(&t, &op_cases[i]);
	pair_close(&t);
}

static void inline_data_is_taken_at_post(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.inline_bytes = 64});
	rnr_timer_short(t.p.id->qp);
	sge = side_sge(&t.a, 0, 64);
	sge.lkey = 0; /* not looked at */
	wr = send_wr(IBV_WR_SEND, 1, &sge, NULL, 0);
	wr.send_flags |= IBV_SEND_INLINE;
	memset(t.a.buf, 0x11, 64);
	/* Refused at first: sent again from the copy. */
	assert_int_equal(post(&t.a, &wr), 0);
	memset(t.a.buf, 0x22, 64);
	assert_int_equal(post_recv(&t.p, 2, 0, 64), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(t.p.buf[0], 0x11);
	assert_int_equal(t.p.buf[63], 0x11);
	pair_close(&t);
}

static void unsignaled_success_is_silent_unless_all_are_signaled(void **state)
{
	(void)state;
	for (int all = 0; all < 2; all++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr;
		struct pair t;

		pair_open(&t, &(struct pair_opts){.sig_all = all});
		sge = side_sge(&t.a, 0, 8);
		wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge, &t.p, 0);
		wr.send_flags = 0;
		assert_int_equal(post(&t.a, &wr), 0);
		if (all)
			wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
		wr.wr_id = 2;
		wr.send_flags = IBV_SEND_SIGNALED;
		assert_int_equal(post(&t.a, &wr), 0);
		wc_expect(t.a.cq, 2, IBV_WC_SUCCESS);
		pair_close(&t);
	}
}

static void reads_beyond_the_depth_wait_in_order(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.reads = 2});
	fill(t.p.buf, 64 * 32768, 9);
	for (uint32_t i = 0; i < 60; i++) {
		struct ibv_sge sge = side_sge(&t.a, i * 32768, 32768);
		struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_READ, i, &sge, &t.p, i * 32768);

		assert_int_equal(post(&t.a, &wr), 0);
	}
	for (uint32_t i = 0; i < 60; i++)
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
	assert_memory_equal(t.a.buf, t.p.buf, 60 * 32768);
	pair_close(&t);
}

/* A fenced WRITE sends what the READ before it brought. */
static void fence_waits_for_reads(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	for (int round = 0; round < 50; round++) {
		struct ibv_sge sge = side_sge(&t.a, 0, 65536);
		struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, 2, &sge, &t.p, 65536);
		struct ibv_send_wr rd = send_wr(IBV_WR_RDMA_READ, 1, &sge, &t.p, 0);

		fill(t.p.buf, 65536, (unsigned int)round);
		rd.next = &wr;
		wr.send_flags |= IBV_SEND_FENCE;
		assert_int_equal(post(&t.a, &rd), 0);
		wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
		wc_expect(t.a.cq, 2, IBV_WC_SUCCESS);
		assert_memory_equal(t.p.buf, t.p.buf + 65536, 65536);
	}
	pair_close(&t);
}

/* Both sides send large amounts at once through small socket buffers. */
static void both_directions_at_once(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	fill(t.a.buf, 1 << 20, 1);
	fill(t.p.buf, 1 << 20, 2);
	for (uint32_t i = 0; i < 20; i++) {
		struct ibv_sge sa = side_sge(&t.a, 0, 1 << 20),
			       sp = side_sge(&t.p, 2 << 20, 1 << 20);
		struct ibv_send_wr wa = send_wr(IBV_WR_RDMA_WRITE, i, &sa, &t.p, 1 << 20);
		struct ibv_send_wr wp = send_wr(IBV_WR_RDMA_READ, i, &sp, &t.a, 0);

		assert_int_equal(post(&t.a, &wa), 0);
		assert_int_equal(post(&t.p, &wp), 0);
	}
	for (uint32_t i = 0; i < 20; i++) {
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
		wc_expect(t.p.cq, i, IBV_WC_SUCCESS);
	}
	assert_memory_equal(t.a.buf, t.p.buf + (1 << 20), 1 << 20);
	assert_memory_equal(t.a.buf, t.p.buf + (2 << 20), 1 << 20);
	pair_close(&t);
}

static struct ibv_mw *window_bind(struct pair *t, uint32_t off, uint32_t len, unsigned int access)
{
	struct ibv_mw *mw = ibv_alloc_mw(t->p.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {
		.wr_id = 50, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	assert_non_null(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){t->p.mr, (uintptr_t)t->p.buf + off, len, access};
	assert_int_equal(post(&t->p, &wr), 0);
	wc_expect(t->p.cq, 50, IBV_WC_SUCCESS);
	mw->rkey = wr.bind_mw.rkey;
	return mw;
}

static void window_gives_access_until_the_peer_invalidates_it(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	mw = window_bind(&t, 4096, 4096, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_dereg_mr(t.p.mr), EBUSY);
	memset(t.a.buf, 0x5a, 4096);
	sge = side_sge(&t.a, 0, 4096);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge, &t.p, 4096);
	wr.wr.rdma.rkey = mw->rkey;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(t.p.buf[4096], 0x5a);

	assert_int_equal(post_recv(&t.p, 9, 0, 64), 0);
	sge = side_sge(&t.a, 0, 16);
	wr = send_wr(IBV_WR_SEND_WITH_INV, 2, &sge, NULL, 0);
	wr.invalidate_rkey = mw->rkey;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 2, IBV_WC_SUCCESS);
	wc = wc_wait(t.p.cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, mw->rkey);

	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 3, &sge, &t.p, 4096);
	wr.wr.rdma.rkey = mw->rkey;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 3, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	pair_close(&t);
}

static void local_invalidate_ends_a_window(void **state)
{
	struct ibv_send_wr inv = {
		.wr_id = 60, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mw *mw;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	mw = window_bind(&t, 0, 4096, IBV_ACCESS_REMOTE_READ);
	sge = side_sge(&t.a, 0, 4096);
	wr = send_wr(IBV_WR_RDMA_READ, 1, &sge, &t.p, 0);
	wr.wr.rdma.rkey = mw->rkey;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	inv.invalidate_rkey = mw->rkey;
	assert_int_equal(post(&t.p, &inv), 0);
	wc_expect(t.p.cq, 60, IBV_WC_SUCCESS);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	pair_close(&t);
}

static void shared_receive_queue_serves_two_connections(void **state)
{
	struct ibv_srq_attr limit = {.srq_limit = 2};
	struct ibv_async_event event;
	struct side second = {0}, second_p = {0};
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.srq = true});
	second_p = t.p;
	second_p.ch = NULL;
	pair_connect(&t, &second, &second_p);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(post_recv(&t.p, i, i * 64, 64), 0);
	assert_int_equal(ibv_modify_srq(t.p.srq, &limit, IBV_SRQ_LIMIT), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct side *from = i % 2 ? &second : &t.a;
		struct ibv_sge sge = side_sge(from, 0, 10 + i);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);
		struct ibv_wc wc;

		assert_int_equal(post(from, &wr), 0);
		wc = wc_wait(t.p.cq);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, 10 + i);
		assert_int_equal(wc.qp_num, (i % 2 ? &second_p : &t.p)->id->qp->qp_num);
		wc_expect(from->cq, i, IBV_WC_SUCCESS);
	}
	assert_true(fd_ready(t.p.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(t.p.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, t.p.srq);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_srq(t.p.srq), EBUSY);
	rdma_destroy_qp(second_p.id);
	rdma_destroy_id(second_p.id);
	rdma_destroy_event_channel(second_p.ch);
	side_close(&second);
	pair_close(&t);
}

/* A completion after the request to notify raises one event; those before it none. */
static void one_event_for_each_request_to_notify(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_cq *cq;
	void *context;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge, &t.p, 0);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_req_notify_cq(t.a.cq, 0), 0);
	assert_false(fd_ready(t.a.cc->fd, 20));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(post(&t.a, &wr), 0);
		wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	}
	assert_true(fd_ready(t.a.cc->fd, WAIT_MS));
	assert_int_equal(ibv_get_cq_event(t.a.cc, &cq, &context), 0);
	assert_ptr_equal(cq, t.a.cq);
	assert_ptr_equal(context, &t.a);
	ibv_ack_cq_events(cq, 1);
	assert_false(fd_ready(t.a.cc->fd, 20));
	/* An event nobody fetched goes with its queue. */
	assert_int_equal(ibv_req_notify_cq(t.a.cq, 0), 0);
	assert_int_equal(post(&t.a, &wr), 0);
	assert_true(fd_ready(t.a.cc->fd, WAIT_MS));
	pair_close(&t);
}

static void solicited_only_ignores_the_rest(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	assert_int_equal(ibv_req_notify_cq(t.p.cq, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct ibv_sge sge = side_sge(&t.a, 0, 8);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);

		assert_int_equal(post_recv(&t.p, i, 0, 64), 0);
		wr.send_flags |= i ? IBV_SEND_SOLICITED : 0u;
		assert_int_equal(post(&t.a, &wr), 0);
		wc_expect(t.p.cq, i, IBV_WC_SUCCESS);
		assert_int_equal(fd_ready(t.p.cc->fd, i ? WAIT_MS : 20), i);
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&t);
}

static void refused_send_waits_for_a_receive(void **state)
{
	struct ibv_sge sge;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	rnr_timer_short(t.p.id->qp);
	for (uint32_t i = 0; i < 3; i++) {
		sge = side_sge(&t.a, i * 50000, 50000);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);

		fill(t.a.buf + i * 50000, 50000, i);
		assert_int_equal(post(&t.a, &wr), 0);
	}
	sge = side_sge(&t.a, 200000, 4096);
	struct ibv_send_wr rd = send_wr(IBV_WR_RDMA_READ, 3, &sge, &t.p, 300000);
	assert_int_equal(post(&t.a, &rd), 0);
	assert_true(wc_none(t.a.cq, 50));
	/* The other direction is not held up. */
	sge = side_sge(&t.p, 0, 4096);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, 9, &sge, &t.a, 400000);
	assert_int_equal(post(&t.p, &wr), 0);
	wc_expect(t.p.cq, 9, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(post_recv(&t.p, i, i * 65536, 65536), 0);
	for (uint32_t i = 0; i < 3; i++) {
		wc_expect(t.p.cq, i, IBV_WC_SUCCESS);
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
		assert_memory_equal(t.p.buf + i * 65536, t.a.buf + i * 50000, 50000);
	}
	wc_expect(t.a.cq, 3, IBV_WC_SUCCESS);
	pair_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends_arrive_in_order_with_length_and_sender),
		cmocka_unit_test(each_operation_moves_its_bytes),
		cmocka_unit_test(inline_data_is_taken_at_post),
		cmocka_unit_test(unsignaled_success_is_silent_unless_all_are_signaled),
		cmocka_unit_test(reads_beyond_the_depth_wait_in_order),
		cmocka_unit_test(fence_waits_for_reads),
		cmocka_unit_test(both_directions_at_once),
		cmocka_unit_test(window_gives_access_until_the_peer_invalidates_it),
		cmocka_unit_test(local_invalidate_ends_a_window),
		cmocka_unit_test(shared_receive_queue_serves_two_connections),
		cmocka_unit_test(one_event_for_each_request_to_notify),
		cmocka_unit_test(solicited_only_ignores_the_rest),
		cmocka_unit_test(refused_send_waits_for_a_receive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
