/* SPDX-License-Identifier: MIT */
/*
 * Each verb and each connection manager call fails at its first uses, the device misbehaves: the
 * link must end every operation once and leave nothing behind. tests/softrdma reads its faults once
 * a process, so each is a process of its own; the sanitizers see to leaks.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/rdma/pair.h"

#define NR_OPS	 40
#define OP_BYTES 4096u

extern char **environ;

/* --- one run, under whatever fault there is ------------------------------------------------ */

static struct pair pair;
static struct fault_op {
	struct rdma_op op;
	struct nvme_sgl_piece pieces[4];
	unsigned nr_ended;
} ops[NR_OPS];
static unsigned nr_ended;

static void fault_op_ended(struct rdma_op *op, int result)
{
	(void)result;
	container_of(op, struct fault_op, op)->nr_ended++;
	nr_ended++;
}

static void fault_post(unsigned i)
{
	uint32_t lkey = rdma_dev_buf_mr(pair.server.ep.dev, pair.memory[1])->lkey, k;
	struct fault_op *t = &ops[i];

	for (k = 0; k < 4; k++)
		t->pieces[k] = pair_piece(&pair, i * OP_BYTES + k * 1024, 1024);
	t->op = (struct rdma_op){.ended = fault_op_ended,
		.kind = i % 2 ? RDMA_OP_READ : RDMA_OP_SEND,
		.pieces = t->pieces,
		.nr_pieces = 4,
		.data_len = OP_BYTES,
		.bytes = (char *)pair.memory[1]->bytes + i * OP_BYTES,
		.lkey = lkey,
		.nr_sges = i % 2 ? 0 : 1,
		.sge = {{(uintptr_t)pair.memory[1]->bytes, 16, lkey}}};
	rdma_ep_post(&pair.server.ep, &t->op);
}

/* Until all have ended, or the connection is known to be lost. */
static void fault_wait(void)
{
	uint64_t end = loop_now_ns(pair.loop) + pair.timeout_ns;

	while (nr_ended < NR_OPS && !pair.server.nr_failed && !pair.client.nr_failed &&
		loop_now_ns(pair.loop) < end)
		loop_wait(pair.loop, 10000000);
}

static int fault_check(void)
{
	unsigned i;

	for (i = 0; i < NR_OPS; i++) {
		if (ops[i].nr_ended == 1)
			continue;
		fprintf(stderr, "operation %u ended %u times\n", i, ops[i].nr_ended);
		return 1;
	}
	return 0;
}

static int fault_run(void)
{
	int result = pair_open(&pair), status = 0;
	unsigned i;

	pair.timeout_ns = 1000000000;
	pair.rdma.devs.drain_ns = 100000000;
	if (!result)
		result = pair_connect(&pair);
	for (i = 0; !result && i < NR_OPS; i++)
		fault_post(i);
	if (!result)
		fault_wait();
	pair_disconnect(&pair);
	if (!result)
		status = fault_check();
	pair_close(&pair);
	printf("%s\n", result ? strerror(-result) : pair.server.nr_failed ? "lost" : "good");
	return status;
}

/* --- all of them --------------------------------------------------------------------------- */

static const struct {
	const char *format;
	unsigned nr; /* at the 1st, 2nd ... use */
} faults[] = {
	{"fail:alloc_pd@%u", 1},
	{"fail:reg_mr@%u", 5},
	{"fail:create_channel@%u", 3},
	{"fail:create_cq@%u", 1},
	{"fail:create_srq@%u", 1},
	{"fail:create_qp@%u", 3},
	{"fail:create_qp@%u+", 2},
	{"fail:modify_qp@%u", 10},
	{"fail:modify_qp@%u+", 10},
	{"fail:post_send@%u", 4},
	{"fail:post_send@%u+", 2},
	{"fail:post_recv@%u", 3},
	{"fail:create_id@%u", 2},
	{"fail:listen@%u", 1},
	{"fail:resolve_addr@%u", 1},
	{"fail:connect@%u", 1},
	{"fail:accept@%u", 1},
	{"flush@%u", 8},
	{"reject@%u", 1},
	{"disconnect@%u", 4},
	{"remove_device@%u", 6},
	{"no_flush=%u", 1},
	{"no_flush=1,flush@%u", 3},
	{"no_srq=%u", 1},
	{"memlock=%u", 1},
	{"max_mr=%u", 3},
	{"max_qp=%u", 1},
	{"max_cqe=%u", 1},
	{"max_srq_wr=%u", 1},
	{"port_bounce@%u", 2},
};

/* Exit status of this program under FAULT; 128 and more: it died. */
static int fault_spawn(const char *fault)
{
	char *const argv[] = {
		(char *)(uintptr_t) "test_rdma_faults", (char *)(uintptr_t) "run", NULL};
	int status;
	pid_t pid;

	setenv("SOFTRDMA_FAULT", fault, 1);
	printf("%s: ", fault);
	fflush(stdout);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ))
		return 127;
	if (waitpid(pid, &status, 0) != pid)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	unsigned i, at, nr_bad = 0;
	char fault[64];
	int status;

	(void)argv;
	if (argc > 1)
		return fault_run();
	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		for (at = 1; at <= faults[i].nr; at++) {
			snprintf(fault, sizeof(fault), faults[i].format, at);
			status = fault_spawn(fault);
			nr_bad += status != 0;
			if (status)
				printf("FAILED: %s: exit status %d\n", fault, status);
		}
	}
	return nr_bad != 0;
}
