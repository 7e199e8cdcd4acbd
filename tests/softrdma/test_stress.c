/* SPDX-License-Identifier: MIT */
/*
 * Random traffic on several connections at once, checked byte by byte; then ends in the middle of
 * it.
 */
#include "tests/softrdma/harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONNECTIONS = 4, ROUNDS = 150, DEPTH = 16, SLOT = 100000 };

struct worker {
	struct pair t;
	unsigned int seed;
	uint8_t model[DEPTH * SLOT];
};

static unsigned int next(struct worker *w, unsigned int below)
{
	w->seed = w->seed * 1103515245u + 12345u;
	return (w->seed >> 8) % below;
}

/* A chain of writes to own slots, then fenced READs of all slots in reverse order. */
static void worker_round(struct worker *w)
{
	struct ibv_send_wr wr[2 * DEPTH];
	struct ibv_sge sge[2 * DEPTH];
	unsigned int n = 1 + next(w, DEPTH);

	for (unsigned int i = 0; i < n; i++) {
		uint32_t slot = next(w, DEPTH), off = next(w, 50000), len = next(w, 50000);

		memset(w->t.a.buf + i * SLOT, (int)next(w, 256), len);
		memcpy(w->model + slot * SLOT + off, w->t.a.buf + i * SLOT, len);
		sge[i] = side_sge(&w->t.a, i * SLOT, len);
		wr[i] = send_wr(IBV_WR_RDMA_WRITE, i, &sge[i], &w->t.p, slot * SLOT + off);
		wr[i].send_flags = 0;
		wr[i].next = &wr[i + 1];
	}
	for (unsigned int i = 0; i < DEPTH; i++) {
		uint32_t at = (DEPTH - 1 - i) * SLOT;

		sge[n + i] = side_sge(&w->t.a, 2000000 + at, SLOT);
		wr[n + i] = send_wr(IBV_WR_RDMA_READ, n + i, &sge[n + i], &w->t.p, at);
		wr[n + i].next = i + 1 < DEPTH ? &wr[n + i + 1] : NULL;
	}
	assert_int_equal(post(&w->t.a, wr), 0);
	for (unsigned int i = 0; i < DEPTH; i++)
		wc_expect(w->t.a.cq, n + i, IBV_WC_SUCCESS);
	assert_memory_equal(w->t.a.buf + 2000000, w->model, sizeof(w->model));
}

static void *worker_run(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		worker_round(arg);
	return NULL;
}

static void writes_and_reads_of_many_connections_are_exact(void **state)
{
	struct worker *w = calloc(CONNECTIONS, sizeof(*w));
	pthread_t thread[CONNECTIONS];

	(void)state;
	for (unsigned int i = 0; i < CONNECTIONS; i++) {
		pair_open(&w[i].t, &(struct pair_opts){.reads = (uint8_t)(1 + 5 * i)});
		w[i].seed = i + 1;
	}
	for (int i = 0; i < CONNECTIONS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, worker_run, &w[i]), 0);
	for (int i = 0; i < CONNECTIONS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < CONNECTIONS; i++) {
		pair_disconnect(&w[i].t);
		pair_close(&w[i].t);
	}
	free(w);
}

/* Whatever the moment of the disconnect: every request of both sides ends once. */
static void every_request_ends_once_when_cut_off(void **state)
{
	(void)state;
	for (unsigned int round = 0; round < 60; round++) {
		unsigned int good = 0, flushed = 0, ends[64] = {0};
		struct ibv_sge sge;
		struct pair t;

		pair_open(&t, NULL);
		for (uint32_t i = 0; i < 40; i++)
			assert_int_equal(post_recv(&t.p, i, i * 4096, 4096), 0);
		for (uint32_t i = 0; i < 48; i++) {
			static const enum ibv_wr_opcode ops[] = {
				IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
			struct ibv_send_wr wr;

			sge = side_sge(&t.a, 0, ops[i % 3] == IBV_WR_SEND ? 4096 : 40000);
			wr = send_wr(ops[i % 3], i, &sge, &t.p, 1 << 20);
			assert_int_equal(post(&t.a, &wr), 0);
			if (i == round % 48)
				rdma_disconnect(round % 2 ? t.a.id : t.p.id);
		}
		rdma_disconnect(t.a.id);
		rdma_disconnect(t.p.id);
		for (int i = 0; i < 48; i++) {
			struct ibv_wc wc = wc_wait(t.a.cq);

			ends[wc.wr_id]++;
			good += wc.status == IBV_WC_SUCCESS;
		}
		for (int i = 0; i < 48; i++)
			assert_int_equal(ends[i], 1);
		for (int i = 0; i < 40; i++)
			flushed += wc_wait(t.p.cq).status != IBV_WC_SUCCESS;
		/* A request that ended well at one side did at the other; the reverse need not be.
		 */
		assert_true(40 - flushed + 32 >= good);
		assert_true(wc_none(t.a.cq, 1) && wc_none(t.p.cq, 1));
		pair_close(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_and_reads_of_many_connections_are_exact),
		cmocka_unit_test(every_request_ends_once_when_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
