/* SPDX-License-Identifier: MIT */
/*
 * Two processes: the test starts itself again as the passive side, and kills it.
 */
#include "tests/softrdma/harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *self;

/* The passive side: echoes each message, until it is disconnected or killed. */
static int echo_main(void)
{
	struct pair_opts opts = {.srq = true};
	struct rdma_conn_param param = {
		.responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7};
	struct rdma_event_channel *lch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "127.0.0.1", 0);
	struct side s = {.ch = rdma_create_event_channel()};
	struct ibv_qp_init_attr attr;
	struct rdma_cm_event *event;

	printf("%d\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);
	event = event_wait(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	s.id = event->id;
	rdma_ack_cm_event(event);
	rdma_migrate_id(s.id, s.ch);
	side_open(&s, &opts);
	attr = side_qp_attr(&s, &opts);
	if (rdma_create_qp(s.id, s.pd, &attr))
		return 1;
	for (uint32_t i = 0; i < 32; i++)
		post_recv(&s, i, i * 4096, 4096);
	if (rdma_accept(s.id, &param))
		return 1;
	event_expect(s.ch, RDMA_CM_EVENT_ESTABLISHED);
	while (!fd_ready(s.ch->fd, 0)) {
		struct ibv_wc wc;
		struct ibv_sge sge;
		struct ibv_send_wr wr;

		if (ibv_poll_cq(s.cq, 1, &wc) != 1 || !(wc.opcode & IBV_WC_RECV))
			continue;
		sge = side_sge(&s, (uint32_t)wc.wr_id * 4096, wc.byte_len);
		wr = send_wr(IBV_WR_SEND, wc.wr_id, &sge, NULL, 0);
		if (post(&s, &wr))
			return 1;
		wc_expect(s.cq, wc.wr_id, IBV_WC_SUCCESS);
		post_recv(&s, wc.wr_id, (uint32_t)wc.wr_id * 4096, 4096);
	}
	event_expect(s.ch, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(s.id);
	side_close(&s);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(lch);
	return 0;
}

static pid_t echo_start(uint16_t *ret_port)
{
	char line[16] = "";
	int out[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl(self, self, "echo", NULL);
		_exit(127);
	}
	close(out[1]);
	n = read(out[0], line, sizeof(line) - 1);
	assert_true(n > 1);
	close(out[0]);
	*ret_port = (uint16_t)atoi(line);
	return pid;
}

static void echo_connect(struct side *s, uint16_t port)
{
	struct rdma_conn_param param = {
		.responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7};
	struct pair_opts opts = {0};
	struct ibv_qp_init_attr attr;

	memset(s, 0, sizeof(*s));
	s->ch = rdma_create_event_channel();
	s->id = route_to(s->ch, "127.0.0.1", port);
	side_open(s, &opts);
	attr = side_qp_attr(s, &opts);
	assert_int_equal(rdma_create_qp(s->id, s->pd, &attr), 0);
	assert_int_equal(rdma_connect(s->id, &param), 0);
	event_expect(s->ch, RDMA_CM_EVENT_ESTABLISHED);
}

static void echo_round(struct side *s, uint32_t i)
{
	struct ibv_sge sge = side_sge(s, 0, 64 + i % 2000);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, i, &sge, NULL, 0);

	memset(s->buf, (int)i, 4096);
	memset(s->buf + 65536, 0, 4096);
	assert_int_equal(post_recv(s, i, 65536, 4096), 0);
	assert_int_equal(post(s, &wr), 0);
	wc_expect(s->cq, i, IBV_WC_SUCCESS);
	wc_expect(s->cq, i, IBV_WC_SUCCESS);
	assert_memory_equal(s->buf, s->buf + 65536, 64 + i % 2000);
}

static void messages_go_between_processes(void **state)
{
	struct side s;
	uint16_t port;
	pid_t pid = echo_start(&port);
	int status;

	(void)state;
	echo_connect(&s, port);
	for (uint32_t i = 0; i < 500; i++)
		echo_round(&s, i);
	assert_int_equal(rdma_disconnect(s.id), 0);
	event_expect(s.ch, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&s);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void killed_peer_is_a_disconnect_and_exceeded_retries(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct rdma_event_channel *lch;
	struct rdma_cm_id *listener;
	struct side s;
	uint16_t port;
	pid_t pid = echo_start(&port);

	(void)state;
	echo_connect(&s, port);
	echo_round(&s, 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	event_expect(s.ch, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(qp_state(s.id->qp), IBV_QPS_RTS);
	sge = side_sge(&s, 0, 8);
	wr = send_wr(IBV_WR_SEND, 9, &sge, NULL, 0);
	assert_int_equal(post(&s, &wr), 0);
	wc_expect(s.cq, 9, IBV_WC_RETRY_EXC_ERR);
	side_close(&s);
	/* Nothing is left of it: its port can be had again. */
	lch = rdma_create_event_channel();
	listener = listen_on(lch, "127.0.0.1", port);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(lch);
}

/* RDMA in the parent, then a fork: the child starts afresh, the parent's connection is the
 * parent's. */
static void child_of_a_fork_opens_its_own(void **state)
{
	struct pair t;
	int status;
	pid_t pid;

	(void)state;
	pair_open(&t, NULL);
	pid = fork();
	if (!pid) {
		struct pair own;

		pair_open(&own, NULL);
		pair_disconnect(&own);
		pair_close(&own);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pair_disconnect(&t);
	pair_close(&t);
}

/* Each of two devices has its loopback address; an id is bound to the one its address is on. */
static int devices_main(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(),
				  *lch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "0.0.0.0", 0);
	struct rdma_conn_param param = {0};

	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = route_to(
			ch, i ? "127.0.0.2" : "127.0.0.1", ntohs(rdma_get_src_port(listener)));
		struct rdma_cm_event *event;

		assert_string_equal(ibv_get_device_name(id->verbs->device), i ? "soft1" : "soft0");
		assert_int_equal(rdma_connect(id, &param), 0);
		event = event_wait(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_ptr_equal(event->id->verbs, id->verbs);
		rdma_destroy_id(event->id);
		rdma_ack_cm_event(event);
		event_expect(ch, RDMA_CM_EVENT_REJECTED);
		rdma_destroy_id(id);
	}
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
	return 0;
}

static void without_devices_there_is_no_event_channel(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		setenv("SOFTRDMA_DEVICES", "0", 1);
		execl(self, self, "none", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void two_devices_are_told_apart_by_address(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		setenv("SOFTRDMA_DEVICES", "2", 1);
		execl(self, self, "devices", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_go_between_processes),
		cmocka_unit_test(killed_peer_is_a_disconnect_and_exceeded_retries),
		cmocka_unit_test(child_of_a_fork_opens_its_own),
		cmocka_unit_test(two_devices_are_told_apart_by_address),
		cmocka_unit_test(without_devices_there_is_no_event_channel),
	};

	self = argv[0];
	if (argc == 2 && !strcmp(argv[1], "echo"))
		return echo_main();
	if (argc == 2 && !strcmp(argv[1], "devices"))
		return devices_main();
	if (argc == 2 && !strcmp(argv[1], "none"))
		return rdma_create_event_channel() || errno != ENODEV;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
