/* SPDX-License-Identifier: MIT */
/*
 * Limits are exact and each refusal names the culprit.
 */
#include "tests/softrdma/harness.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void send_queue_is_full_until_its_completions_are_polled(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad = NULL;
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.send_wr = 4});
	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 0, &sge, &t.p, 0);
	for (uint64_t i = 0; i < 4; i++) {
		wr.wr_id = i;
		wr.send_flags = i % 2 ? IBV_SEND_SIGNALED : 0;
		assert_int_equal(post(&t.a, &wr), 0);
	}
	/* All four are done at the peer, but the program has not looked. */
	assert_true(fd_ready(t.a.id->verbs->async_fd, 50) == false);
	assert_int_equal(ibv_post_send(t.a.id->qp, &wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	/* A signaled one frees those before it, too. */
	assert_int_equal(post(&t.a, &wr), 0);
	assert_int_equal(post(&t.a, &wr), 0);
	assert_int_equal(post(&t.a, &wr), ENOMEM);
	pair_close(&t);
}

static void chain_is_taken_up_to_the_bad_one(void **state)
{
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_sge sge[2];
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.sge = 1});
	for (uint64_t i = 0; i < 3; i++) {
		sge[0] = sge[1] = side_sge(&t.a, 0, 8);
		wr[i] = send_wr(IBV_WR_RDMA_WRITE, i, sge, &t.p, 0);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = 2;
	assert_int_equal(ibv_post_send(t.a.id->qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	wc_expect(t.a.cq, 0, IBV_WC_SUCCESS);
	assert_true(wc_none(t.a.cq, 20));
	pair_close(&t);
}

static const struct {
	enum ibv_wr_opcode op;
	unsigned int flags;
	uint32_t len;
	int error;
} post_cases[] = {
	{IBV_WR_SEND, IBV_SEND_INLINE, 33, EINVAL},
	{IBV_WR_RDMA_READ, IBV_SEND_INLINE, 8, EINVAL},
	{IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, EINVAL},
	{IBV_WR_TSO, 0, 8, EINVAL},
	{IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 32, 0},
};

static void unsupported_posts_are_invalid(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.inline_bytes = 32});
	for (size_t i = 0; i < sizeof(post_cases) / sizeof(post_cases[0]); i++) {
		struct ibv_sge sge = side_sge(&t.a, 0, post_cases[i].len);
		struct ibv_send_wr wr = send_wr(post_cases[i].op, i, &sge, &t.p, 0);

		wr.send_flags |= post_cases[i].flags;
		assert_int_equal(post(&t.a, &wr), post_cases[i].error);
	}
	pair_close(&t);
}

static void receive_queue_has_its_limits(void **state)
{
	struct ibv_sge sge[2];
	struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = 2};
	struct pair t;

	(void)state;
	pair_open(&t, &(struct pair_opts){.recv_wr = 2, .sge = 1});
	sge[0] = sge[1] = side_sge(&t.p, 0, 8);
	assert_int_equal(ibv_post_recv(t.p.id->qp, &wr, &bad), EINVAL);
	assert_int_equal(post_recv(&t.p, 0, 0, 8), 0);
	assert_int_equal(post_recv(&t.p, 1, 0, 8), 0);
	assert_int_equal(post_recv(&t.p, 2, 0, 8), ENOMEM);
	pair_close(&t);

	pair_open(&t, &(struct pair_opts){.srq = true});
	wr.num_sge = 1;
	assert_int_equal(ibv_post_recv(t.p.id->qp, &wr, &bad), EINVAL);
	for (int i = 0; i < 64; i++)
		assert_int_equal(post_recv(&t.p, 0, 0, 8), 0);
	assert_int_equal(post_recv(&t.p, 0, 0, 8), ENOMEM);
	pair_close(&t);
}

static void region_needs_memory_and_sane_rights(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *mem = mmap(
		NULL, (size_t)page * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	assert_null(ibv_reg_mr(t.a.pd, mem, (size_t)page, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(munmap(mem + page, (size_t)page), 0);
	assert_null(ibv_reg_mr(t.a.pd, mem, (size_t)page * 2, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EFAULT);
	munmap(mem, (size_t)page);
	pair_close(&t);
}

static void states_are_checked(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(),
				  *lch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "127.0.0.1", 0);
	struct rdma_conn_param param = {0};
	struct pair_opts opts = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND};
	struct side s = {.ch = ch};

	(void)state;
	s.id = route_to(ch, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
	side_open(&s, &opts);
	init = side_qp_attr(&s, &opts);
	init.qp_type = IBV_QPT_UD;
	assert_int_equal(rdma_create_qp(s.id, s.pd, &init), -1);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_sge = 33;
	assert_int_equal(rdma_create_qp(s.id, s.pd, &init), -1);
	assert_int_equal(errno, EINVAL);
	init.cap.max_send_sge = 1;
	assert_int_equal(rdma_create_qp(s.id, s.pd, &init), 0);
	assert_int_equal(rdma_create_qp(s.id, s.pd, &init), -1);
	assert_int_equal(ibv_post_send(s.id->qp, &wr, &bad), EINVAL);
	assert_int_equal(ibv_modify_qp(s.id->qp, &attr, IBV_QP_STATE), EINVAL);
	assert_int_equal(post_recv(&s, 0, 0, 64), 0);
	assert_int_equal(rdma_accept(s.id, &param), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_resolve_route(s.id, 100), -1);
	param.initiator_depth = 129;
	assert_int_equal(rdma_connect(s.id, &param), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_disconnect(s.id), -1);
	side_close(&s);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(lch);
}

static void device_says_what_it_can(void **state)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	assert_int_equal(ibv_query_device_ex(t.a.id->verbs, NULL, &attr), 0);
	assert_int_equal(attr.orig_attr.max_sge, 32);
	assert_int_equal(attr.orig_attr.max_qp_rd_atom, 128);
	assert_true(attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	assert_true(attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_int_equal(attr.phys_port_cnt_ex, 1);
	assert_int_equal(ibv_query_port(t.a.id->verbs, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(ibv_query_gid(t.a.id->verbs, 1, 0, &gid), 0);
	assert_memory_equal(gid.raw + 10, "\xff\xff\x7f\0\0\1", 6);
	assert_int_equal(t.a.id->verbs->device->transport_type, IBV_TRANSPORT_IB);
	pair_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_queue_is_full_until_its_completions_are_polled),
		cmocka_unit_test(chain_is_taken_up_to_the_bad_one),
		cmocka_unit_test(unsupported_posts_are_invalid),
		cmocka_unit_test(receive_queue_has_its_limits),
		cmocka_unit_test(region_needs_memory_and_sane_rights),
		cmocka_unit_test(states_are_checked),
		cmocka_unit_test(device_says_what_it_can),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
