/* SPDX-License-Identifier: MIT */
/*
 * What goes wrong: keys, bounds, lengths, depths, retries; and that each work request ends exactly
 * once.
 */
#include "tests/softrdma/harness.h"

#include <stdlib.h>
#include <sys/mman.h>

enum spoil {
	SPOIL_LKEY,
	SPOIL_LKEY_IS_RKEY,
	SPOIL_LOCAL_BOUNDS,
	SPOIL_LOCAL_READONLY,
	SPOIL_RKEY,
	SPOIL_RKEY_IS_LKEY,
	SPOIL_REMOTE_BEFORE,
	SPOIL_REMOTE_BEYOND,
	SPOIL_REMOTE_ACCESS,
	SPOIL_REMOTE_PD,
	SPOIL_REMOTE_GONE,
	SPOIL_RECV_SHORT,
	SPOIL_RECV_LKEY,
};

struct error_case {
	const char *name;
	enum ibv_wr_opcode op;
	enum spoil spoil;
	enum ibv_wc_status status;
	enum ibv_wc_status peer; /* of its receive; SUCCESS: it has none */
	bool peer_fails;	 /* its queue pair goes to error, too */
};

#define LOCAL  IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS, false
#define REMOTE IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS, true

static const struct error_case error_cases[] = {
	{"send with a wrong lkey", IBV_WR_SEND, SPOIL_LKEY, LOCAL},
	{"send with the rkey as lkey", IBV_WR_SEND, SPOIL_LKEY_IS_RKEY, LOCAL},
	{"write from beyond the region", IBV_WR_RDMA_WRITE, SPOIL_LOCAL_BOUNDS, LOCAL},
	{"read into a read-only region", IBV_WR_RDMA_READ, SPOIL_LOCAL_READONLY, LOCAL},
	{"write with a wrong rkey", IBV_WR_RDMA_WRITE, SPOIL_RKEY, REMOTE},
	{"write with the lkey as rkey", IBV_WR_RDMA_WRITE, SPOIL_RKEY_IS_LKEY, REMOTE},
	{"write before the region", IBV_WR_RDMA_WRITE, SPOIL_REMOTE_BEFORE, REMOTE},
	{"write beyond the region", IBV_WR_RDMA_WRITE, SPOIL_REMOTE_BEYOND, REMOTE},
	{"write without the right", IBV_WR_RDMA_WRITE, SPOIL_REMOTE_ACCESS, REMOTE},
	{"write to another domain", IBV_WR_RDMA_WRITE, SPOIL_REMOTE_PD, REMOTE},
	{"write to a region that is gone", IBV_WR_RDMA_WRITE, SPOIL_REMOTE_GONE, REMOTE},
	{"read with a wrong rkey", IBV_WR_RDMA_READ, SPOIL_RKEY, REMOTE},
	{"read beyond the region", IBV_WR_RDMA_READ, SPOIL_REMOTE_BEYOND, REMOTE},
	{"read without the right", IBV_WR_RDMA_READ, SPOIL_REMOTE_ACCESS, REMOTE},
	{"receive too short", IBV_WR_SEND, SPOIL_RECV_SHORT, IBV_WC_REM_INV_REQ_ERR,
		IBV_WC_LOC_LEN_ERR, true},
	{"receive with a wrong lkey", IBV_WR_SEND, SPOIL_RECV_LKEY, IBV_WC_REM_OP_ERR,
		IBV_WC_LOC_PROT_ERR, true},
};

struct spoiler {
	struct ibv_mr *mr;
	struct ibv_pd *pd;
};

static void spoil(struct pair *t, enum spoil how, struct ibv_send_wr *wr, struct spoiler *s)
{
	switch (how) {
	case SPOIL_LKEY:
		wr->sg_list->lkey ^= 1;
		break;
	case SPOIL_LKEY_IS_RKEY:
		wr->sg_list->lkey = t->a.mr->rkey;
		break;
	case SPOIL_LOCAL_BOUNDS:
		wr->sg_list->addr = (uintptr_t)t->a.buf + SIDE_BYTES - 7;
		break;
	case SPOIL_LOCAL_READONLY:
		s->mr = ibv_reg_mr(t->a.pd, t->a.buf, 4096, IBV_ACCESS_REMOTE_READ);
		wr->sg_list->lkey = s->mr->lkey;
		break;
	case SPOIL_RKEY:
		wr->wr.rdma.rkey += 256;
		break;
	case SPOIL_RKEY_IS_LKEY:
		wr->wr.rdma.rkey = t->p.mr->lkey;
		break;
	case SPOIL_REMOTE_BEFORE:
		wr->wr.rdma.remote_addr = (uintptr_t)t->p.buf - 1;
		break;
	case SPOIL_REMOTE_BEYOND:
		wr->wr.rdma.remote_addr = (uintptr_t)t->p.buf + SIDE_BYTES - 7;
		break;
	case SPOIL_REMOTE_ACCESS:
		s->mr = ibv_reg_mr(t->p.pd, t->p.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
		wr->wr.rdma.rkey = s->mr->rkey;
		break;
	case SPOIL_REMOTE_PD:
		s->pd = ibv_alloc_pd(t->p.id->verbs);
		s->mr = ibv_reg_mr(s->pd, t->p.buf, 4096, ALL_ACCESS);
		wr->wr.rdma.rkey = s->mr->rkey;
		break;
	case SPOIL_REMOTE_GONE:
		wr->wr.rdma.rkey = t->p.mr->rkey;
		assert_int_equal(ibv_dereg_mr(t->p.mr), 0);
		t->p.mr = NULL;
		break;
	case SPOIL_RECV_SHORT:
		assert_int_equal(post_recv(&t->p, 5, 0, 7), 0);
		break;
	case SPOIL_RECV_LKEY:
		t->p.mr->lkey ^= 1;
		assert_int_equal(post_recv(&t->p, 5, 0, 64), 0);
		t->p.mr->lkey ^= 1;
		break;
	}
}

static void error_run(const struct error_case *c)
{
	struct ibv_sge sge, good;
	struct ibv_send_wr wr, after;
	struct spoiler s = {0};
	struct pair t;

	print_message("  %s\n", c->name);
	pair_open(&t, NULL);
	sge = side_sge(&t.a, 0, 8);
	good = side_sge(&t.a, 64, 8);
	wr = send_wr(c->op, 1, &sge, &t.p, 0);
	after = send_wr(IBV_WR_RDMA_WRITE, 2, &good, &t.p, 64);
	after.send_flags = 0;
	wr.next = &after;
	memset(t.p.buf, 0x33, 128);
	memset(t.a.buf, 0x44, 128);
	if (c->peer == IBV_WC_SUCCESS)
		assert_int_equal(post_recv(&t.p, 6, 0, 64), 0);
	spoil(&t, c->spoil, &wr, &s);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, c->status);
	wc_expect(t.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state(t.a.id->qp), IBV_QPS_ERR);
	if (c->peer != IBV_WC_SUCCESS)
		wc_expect(t.p.cq, 5, c->peer);
	if (c->peer_fails) {
		qp_wait_state(t.p.id->qp, IBV_QPS_ERR);
		if (c->peer == IBV_WC_SUCCESS)
			wc_expect(t.p.cq, 6, IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(t.p.buf[64], 0x33);
	assert_int_equal(t.p.buf[0], 0x33);
	assert_true(wc_none(t.a.cq, 5) && wc_none(t.p.cq, 0));
	if (s.mr)
		assert_int_equal(ibv_dereg_mr(s.mr), 0);
	if (s.pd)
		assert_int_equal(ibv_dealloc_pd(s.pd), 0);
	pair_close(&t);
}

static void bad_access_fails_both_sides_as_specified(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(error_cases) / sizeof(error_cases[0]); i++)
		error_run(&error_cases[i]);
}

static void each_request_is_flushed_once_and_in_order(void **state)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct pair t;
	uint64_t next_recv = 100, next_send = 0;

	(void)state;
	pair_open(&t, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		struct ibv_sge sge = side_sge(&t.a, 0, 4096);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);

		wr.send_flags = i % 2 ? IBV_SEND_SIGNALED : 0;
		assert_int_equal(post_recv(&t.a, 100 + i, 8192, 64), 0);
		assert_int_equal(post(&t.a, &wr), 0); /* the peer has no receive */
	}
	assert_int_equal(ibv_modify_qp(t.a.id->qp, &err, IBV_QP_STATE), 0);
	/* Posts to a queue pair in error are taken, and flushed. */
	assert_int_equal(post_recv(&t.a, 120, 8192, 64), 0);
	for (int i = 0; i < 41; i++) {
		struct ibv_wc wc = wc_wait(t.a.cq);

		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, t.a.id->qp->qp_num);
		if (wc.wr_id >= 100)
			assert_int_equal(wc.wr_id, next_recv++);
		else
			assert_int_equal(wc.wr_id, next_send++);
	}
	assert_true(wc_none(t.a.cq, 20));
	pair_close(&t);
}

static void opcode_of_a_failed_completion_is_garbage(void **state)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	unsigned int seen[256] = {0};
	int different = 0;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(post_recv(&t.a, i, 0, 64), 0);
	assert_int_equal(ibv_modify_qp(t.a.id->qp, &err, IBV_QP_STATE), 0);
	for (int i = 0; i < 64; i++)
		different += !seen[wc_wait(t.a.cq).opcode & 255]++;
	assert_true(different > 2);
	pair_close(&t);
}

static void raw_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};

	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

/* Without the CM each side says itself how many READs it sends and takes. */
static void raw_connect(struct ibv_qp *qp, const struct ibv_qp *peer, uint8_t sends, uint8_t takes)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = takes,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1}};

	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = sends};
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void reads_beyond_what_the_peer_takes_are_an_error(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr[8], *bad;
	struct ibv_qp *from, *to;
	struct ibv_sge sge;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	init = side_qp_attr(&t.a, &t.opts);
	from = ibv_create_qp(t.a.pd, &init);
	init = side_qp_attr(&t.p, &t.opts);
	to = ibv_create_qp(t.p.pd, &init);
	raw_init(from);
	raw_init(to);
	raw_connect(from, to, 8, 0);
	raw_connect(to, from, 0, 2);
	sge = side_sge(&t.a, 0, 1 << 20);
	for (uint32_t i = 0; i < 8; i++) {
		wr[i] = send_wr(IBV_WR_RDMA_READ, i, &sge, &t.p, 0);
		wr[i].next = i < 7 ? &wr[i + 1] : NULL;
	}
	assert_int_equal(ibv_post_send(from, wr, &bad), 0);
	wc_expect(t.a.cq, 0, IBV_WC_SUCCESS);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	wc_expect(t.a.cq, 2, IBV_WC_REM_INV_REQ_ERR);
	for (uint32_t i = 3; i < 8; i++)
		wc_expect(t.a.cq, i, IBV_WC_WR_FLUSH_ERR);
	qp_wait_state(to, IBV_QPS_ERR);
	assert_int_equal(ibv_destroy_qp(from), 0);
	assert_int_equal(ibv_destroy_qp(to), 0);
	pair_close(&t);
}

static void retries_of_a_refused_send_are_counted(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.rnr_retry = 1 + 3});
	rnr_timer_short(t.p.id->qp);
	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_SEND, 1, &sge, NULL, 0);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(qp_state(t.a.id->qp), IBV_QPS_ERR);
	/* The responder is not at fault. */
	assert_int_equal(qp_state(t.p.id->qp), IBV_QPS_RTS);
	pair_close(&t);
}

static void requests_to_a_destroyed_queue_pair_exceed_their_retries(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	rdma_destroy_qp(t.p.id);
	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge, &t.p, 0);
	assert_int_equal(post(&t.a, &wr), 0);
	wr.wr_id = 2;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	wc_expect(t.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	/* The CM's connection is still there. */
	assert_false(fd_ready(t.a.ch->fd, 20));
	pair_close(&t);
}

static void objects_in_use_are_busy(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.srq = true});
	assert_int_equal(ibv_destroy_cq(t.p.cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(t.p.srq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(t.p.pd), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(t.p.cc), EBUSY);
	rdma_destroy_qp(t.p.id);
	assert_int_equal(ibv_destroy_comp_channel(t.p.cc), EBUSY);
	assert_int_equal(ibv_dealloc_pd(t.p.pd), EBUSY);
	pair_close(&t);
}

static void completion_too_many_is_an_event_and_fails_the_queue_pair(void **state)
{
	struct ibv_async_event event;
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.cqe = 4});
	for (uint32_t i = 0; i < 5; i++) {
		struct ibv_sge sge = side_sge(&t.a, 0, 8);
		struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, i, &sge, &t.p, 0);

		assert_int_equal(post(&t.a, &wr), 0);
	}
	assert_true(fd_ready(t.a.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(t.a.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, t.a.cq);
	ibv_ack_async_event(&event);
	assert_int_equal(qp_state(t.a.id->qp), IBV_QPS_ERR);
	for (uint32_t i = 0; i < 4; i++)
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
	assert_true(wc_none(t.a.cq, 20));
	pair_close(&t);
}

/* After deregistration returns, a transfer under way neither reads nor writes the memory. */
static void deregistered_memory_is_left_alone(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	struct pair t;

	(void)state;
	for (int round = 0; round < 20; round++) {
		pair_open(&t, NULL);
		sge = side_sge(&t.a, 0, SIDE_BYTES);
		wr = send_wr(round % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, &sge, &t.p, 0);
		assert_int_equal(post(&t.a, &wr), 0);
		assert_int_equal(ibv_dereg_mr(t.p.mr), 0);
		t.p.mr = NULL;
		assert_int_equal(munmap(t.p.buf, SIDE_BYTES), 0);
		t.p.buf = NULL;
		wc = wc_wait(t.a.cq);
		assert_true(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_SUCCESS);
		pair_close(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_access_fails_both_sides_as_specified),
		cmocka_unit_test(each_request_is_flushed_once_and_in_order),
		cmocka_unit_test(opcode_of_a_failed_completion_is_garbage),
		cmocka_unit_test(reads_beyond_what_the_peer_takes_are_an_error),
		cmocka_unit_test(retries_of_a_refused_send_are_counted),
		cmocka_unit_test(requests_to_a_destroyed_queue_pair_exceed_their_retries),
		cmocka_unit_test(objects_in_use_are_busy),
		cmocka_unit_test(completion_too_many_is_an_event_and_fails_the_queue_pair),
		cmocka_unit_test(deregistered_memory_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
