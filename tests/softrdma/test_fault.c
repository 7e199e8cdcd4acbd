/* SPDX-License-Identifier: MIT */
/*
 * The fault hooks: each case runs in a process of its own, as the environment is read once.
 */
#include "tests/softrdma/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char *self;

static int write_one(struct pair *t, uint64_t wr_id)
{
	struct ibv_sge sge = side_sge(&t->a, 0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, wr_id, &sge, &t->p, 0);

	return post(&t->a, &wr);
}

static void case_fail_reg_mr(void)
{
	struct ibv_mr *mr;
	struct pair t;

	pair_open(&t, NULL); /* two regions */
	mr = ibv_reg_mr(t.a.pd, t.a.buf, 64, 0);
	assert_null(mr);
	assert_int_equal(errno, EAGAIN);
	mr = ibv_reg_mr(t.a.pd, t.a.buf, 64, 0);
	assert_non_null(mr);
	ibv_dereg_mr(mr);
	pair_close(&t);
}

static void case_flush(void)
{
	struct pair t;

	pair_open(&t, NULL);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(write_one(&t, i), 0);
	for (uint64_t i = 0; i < 10; i++)
		wc_expect(t.a.cq, i, i < 3 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
	pair_close(&t);
}

static void case_rnr(void)
{
	struct pair t;

	pair_open(&t, NULL);
	rnr_timer_short(t.p.id->qp);
	for (uint32_t i = 0; i < 10; i++) {
		struct ibv_sge sge = side_sge(&t.a, i * 64, 64);
		struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);

		memset(t.a.buf + i * 64, (int)i + 1, 64);
		assert_int_equal(post_recv(&t.p, i, i * 64, 64), 0);
		assert_int_equal(post(&t.a, &wr), 0);
	}
	for (uint32_t i = 0; i < 10; i++) {
		wc_expect(t.a.cq, i, IBV_WC_SUCCESS);
		wc_expect(t.p.cq, i, IBV_WC_SUCCESS);
	}
	assert_memory_equal(t.a.buf, t.p.buf, 640);
	pair_close(&t);
}

static void case_delay_cq(void)
{
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(ibv_req_notify_cq(t.a.cq, 0), 0);
	assert_int_equal(write_one(&t, 1), 0);
	assert_true(wc_none(t.a.cq, 30));
	assert_true(fd_ready(t.a.cc->fd, WAIT_MS));
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	pair_close(&t);
}

static void case_disconnect(void)
{
	struct pair t;

	pair_open(&t, NULL);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(write_one(&t, i), 0);
	event_expect(t.a.ch, RDMA_CM_EVENT_DISCONNECTED);
	event_expect(t.p.ch, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&t);
}

static void case_remove_device(void)
{
	struct ibv_async_event event;
	struct pair t;

	pair_open(&t, NULL);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(write_one(&t, i), 0);
	event_expect(t.a.ch, RDMA_CM_EVENT_DEVICE_REMOVAL);
	assert_true(fd_ready(t.a.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(t.a.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	assert_null(ibv_alloc_pd(t.a.id->verbs));
	assert_int_equal(errno, EIO);
	for (uint64_t i = 0; i < 3; i++)
		wc_expect(t.a.cq, i, i < 2 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
	pair_close(&t);
}

static void case_no_flush(void)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(post_recv(&t.a, 1, 0, 8), 0);
	assert_int_equal(ibv_modify_qp(t.a.id->qp, &err, IBV_QP_STATE), 0);
	assert_true(wc_none(t.a.cq, 30));
	pair_close(&t);
}

static void case_no_inv(void)
{
	struct ibv_device_attr attr;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV};
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(ibv_query_device(t.a.id->verbs, &attr), 0);
	assert_int_equal(attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS, 0);
	assert_int_equal(post(&t.a, &wr), EINVAL);
	pair_close(&t);
}

static void case_no_mw(void)
{
	struct ibv_device_attr attr;
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(ibv_query_device(t.a.id->verbs, &attr), 0);
	assert_int_equal(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0);
	assert_int_equal(attr.max_mw, 0);
	assert_null(ibv_alloc_mw(t.a.id->pd, IBV_MW_TYPE_2));
	assert_int_equal(errno, EOPNOTSUPP);
	pair_close(&t);
}

static void case_iwarp(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mr *mr;
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(t.a.id->verbs->device->transport_type, IBV_TRANSPORT_IWARP);
	sge = side_sge(&t.a, 0, 64);
	wr = send_wr(IBV_WR_RDMA_READ, 1, &sge, &t.p, 0);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	mr = ibv_reg_mr(t.a.pd, t.a.buf, 64, IBV_ACCESS_LOCAL_WRITE);
	sge.lkey = mr->lkey;
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	ibv_dereg_mr(mr);
	pair_close(&t);
}

static void case_reject(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(),
				  *lch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "127.0.0.1", 0), *id;
	struct rdma_conn_param param = {0};

	id = route_to(ch, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
	assert_int_equal(rdma_connect(id, &param), 0);
	event_expect(ch, RDMA_CM_EVENT_REJECTED);
	assert_false(fd_ready(lch->fd, 0));
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
}

static void case_last_wqe(void)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_async_event event;
	struct pair t;

	pair_open(&t, &(struct pair_opts){.srq = true});
	assert_int_equal(ibv_modify_qp(t.p.id->qp, &err, IBV_QP_STATE), 0);
	assert_true(fd_ready(t.p.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(t.p.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, t.p.id->qp);
	ibv_ack_async_event(&event);
	pair_close(&t);
}

static void case_port_bounce(void)
{
	struct ibv_async_event event;
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(write_one(&t, 1), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_get_async_event(t.a.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_get_async_event(t.a.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(write_one(&t, 2), 0);
	wc_expect(t.a.cq, 2, IBV_WC_SUCCESS);
	pair_close(&t);
}

static void case_cm_event(void)
{
	struct pair t;

	pair_open(&t, NULL);
	assert_int_equal(write_one(&t, 1), 0);
	wc_expect(t.a.cq, 1, IBV_WC_SUCCESS);
	event_expect(t.a.ch, RDMA_CM_EVENT_ADDR_CHANGE);
	assert_int_equal(write_one(&t, 2), 0);
	wc_expect(t.a.cq, 2, IBV_WC_SUCCESS);
	pair_disconnect(&t);
	pair_close(&t);
}

/* The passive side has the data before it hears that the connection stands. */
static void case_delay_established(void)
{
	struct pair_opts opts = {0};
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct pair t = {.lch = rdma_create_event_channel()};
	struct ibv_qp_init_attr attr;
	struct rdma_cm_event *event;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	t.listener = listen_on(t.lch, "127.0.0.1", 0);
	t.a.ch = rdma_create_event_channel();
	t.a.id = route_to(t.a.ch, "127.0.0.1", ntohs(rdma_get_src_port(t.listener)));
	side_open(&t.a, &opts);
	attr = side_qp_attr(&t.a, &opts);
	assert_int_equal(rdma_create_qp(t.a.id, t.a.pd, &attr), 0);
	assert_int_equal(rdma_connect(t.a.id, &param), 0);
	event = event_wait(t.lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	t.p.id = event->id;
	rdma_ack_cm_event(event);
	side_open(&t.p, &opts);
	attr = side_qp_attr(&t.p, &opts);
	assert_int_equal(rdma_create_qp(t.p.id, t.p.pd, &attr), 0);
	assert_int_equal(post_recv(&t.p, 4, 0, 64), 0);
	assert_int_equal(rdma_accept(t.p.id, &param), 0);
	event_expect(t.a.ch, RDMA_CM_EVENT_ESTABLISHED);
	sge = side_sge(&t.a, 0, 8);
	wr = send_wr(IBV_WR_SEND, 1, &sge, NULL, 0);
	assert_int_equal(post(&t.a, &wr), 0);
	wc_expect(t.p.cq, 4, IBV_WC_SUCCESS);
	assert_false(fd_ready(t.lch->fd, 0));
	event_expect(t.lch, RDMA_CM_EVENT_ESTABLISHED);
	pair_close(&t);
}

static void case_limits(void)
{
	struct ibv_qp_init_attr attr;
	struct ibv_device_attr dev;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct pair t;

	pair_open(&t, &(struct pair_opts){.sge = 2, .reads = 4});
	assert_int_equal(ibv_query_device(t.a.id->verbs, &dev), 0);
	assert_int_equal(dev.max_sge, 2);
	assert_int_equal(dev.max_srq, 0);
	assert_int_equal(dev.max_qp_rd_atom, 4);
	assert_null(ibv_create_srq(t.a.pd, &srq));
	attr = side_qp_attr(&t.a, &(struct pair_opts){.sge = 3});
	assert_null(ibv_create_qp(t.a.pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr = side_qp_attr(&t.a, &(struct pair_opts){.sge = 2, .inline_bytes = 1});
	assert_null(ibv_create_qp(t.a.pd, &attr));
	/* The two sides have registered 8 MiB. */
	assert_null(ibv_reg_mr(t.a.pd, t.a.buf, 4096, 0));
	assert_int_equal(errno, ENOMEM);
	pair_close(&t);
}

static const struct {
	const char *name, *fault;
	void (*run)(void);
} cases[] = {
	{"fail_reg_mr", "fail:reg_mr@3=11", case_fail_reg_mr},
	{"flush", "flush@3", case_flush},
	{"rnr", "rnr=3", case_rnr},
	{"delay_cq", "delay_cq=200000", case_delay_cq},
	{"disconnect", "disconnect@2", case_disconnect},
	{"remove_device", "remove_device@2", case_remove_device},
	{"no_flush", "no_flush", case_no_flush},
	{"no_inv", "no_inv", case_no_inv},
	{"no_mw", "no_mw", case_no_mw},
	{"iwarp", "iwarp", case_iwarp},
	{"reject", "reject@1", case_reject},
	{"last_wqe", "last_wqe", case_last_wqe},
	{"delay_established", "delay_established=300", case_delay_established},
	{"limits", "max_sge=2,max_inline=0,no_srq,max_qp_rd_atom=4,memlock=8388608", case_limits},
	{"cm_event", "cm_event=14", case_cm_event},
	{"port_bounce", "port_bounce@1", case_port_bounce},
};

static size_t case_index;

static void case_child(void **state)
{
	(void)state;
	cases[case_index].run();
}

static int child_status(const char *name, const char *fault)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		setenv("SOFTRDMA_FAULT", fault, 1);
		if (!name[0])
			close(2);
		execl(self, self, name, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void each_fault_strikes_as_described(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		print_message("  %s\n", cases[i].fault);
		assert_int_equal(child_status(cases[i].name, cases[i].fault), 0);
	}
}

static void mistyped_fault_ends_the_program(void **state)
{
	(void)state;
	assert_true(WIFSIGNALED(child_status("flush", "flusch@3")));
}

static void leftovers_are_counted_at_exit(void **state)
{
	char path[] = "/tmp/softrdma-stats-XXXXXX", line[256] = "";
	int fd = mkstemp(path);
	FILE *f;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	setenv("SOFTRDMA_STATS", path, 1);
	assert_int_equal(child_status("no_inv", "no_inv"), 0);
	unsetenv("SOFTRDMA_STATS");
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	unlink(path);
	assert_string_equal(
		line, "pd=0 mr=0 mw=0 comp_channel=0 cq=0 srq=0 qp=0 ah=0 cm_id=0 cm_channel=0\n");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest child[] = {cmocka_unit_test(case_child)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fault_strikes_as_described),
		cmocka_unit_test(mistyped_fault_ends_the_program),
		cmocka_unit_test(leftovers_are_counted_at_exit),
	};

	self = argv[0];
	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (case_index = 0; case_index < sizeof(cases) / sizeof(cases[0]); case_index++) {
		if (!strcmp(argv[1], cases[case_index].name))
			return cmocka_run_group_tests(child, NULL, NULL);
	}
	return 2;
}
