/* SPDX-License-Identifier: MIT */
/*
 * Behaviour of proto/link's RDMA endpoints between two ends of one process.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/rdma/pair.h"

#define NR_OPS	 40
#define OP_BYTES 8192u

static struct pair pair;

struct test_op {
	struct rdma_op op;
	struct nvme_sgl_piece pieces[NVME_SGL_MAX_PIECES];
	unsigned nr_ended;
	unsigned ended_as; /* in which order, from 1 */
	int result;
};

static struct test_op ops[NR_OPS];
static unsigned nr_ended;

static void op_ended(struct rdma_op *op, int result)
{
	struct test_op *t = container_of(op, struct test_op, op);

	t->nr_ended++;
	t->ended_as = ++nr_ended;
	t->result = result;
}

static unsigned char pattern(uint32_t i, unsigned salt)
{
	return (unsigned char)(i * 7 + (i >> 8) + salt);
}

static void fill(void *bytes, uint32_t len, unsigned salt)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		((unsigned char *)bytes)[i] = pattern(i, salt);
}

static void assert_filled(const void *bytes, uint32_t len, unsigned salt)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		assert_int_equal(((const unsigned char *)bytes)[i], pattern(i, salt));
}

/* Operation I moves OP_BYTES at I * OP_BYTES of both memories, in NR_PIECES pieces. */
static struct rdma_op *op_prepare(unsigned i, enum rdma_op_kind kind, uint32_t nr_pieces)
{
	struct test_op *t = &ops[i];
	uint32_t len = nr_pieces ? OP_BYTES / nr_pieces : 0, k, at = i * OP_BYTES;
	char *mine = pair.memory[1]->bytes;

	memset(t, 0, sizeof(*t));
	for (k = 0; k < nr_pieces; k++)
		t->pieces[k] = pair_piece(
			&pair, at + k * len, k + 1 < nr_pieces ? len : OP_BYTES - k * len);
	t->op = (struct rdma_op){.ended = op_ended,
		.kind = kind,
		.pieces = t->pieces,
		.nr_pieces = nr_pieces,
		.data_len = nr_pieces ? OP_BYTES : 0,
		.bytes = mine + at,
		.lkey = rdma_dev_buf_mr(pair.server.ep.dev, pair.memory[1])->lkey};
	if (kind == RDMA_OP_SEND) {
		t->op.nr_sges = 1;
		t->op.sge[0] =
			(struct ibv_sge){.addr = (uintptr_t)mine, .length = 16, .lkey = t->op.lkey};
	}
	return &t->op;
}

static int setup(void **state)
{
	(void)state;
	nr_ended = 0;
	return pair_open(&pair);
}

static int setup_connected(void **state)
{
	return setup(state) || pair_connect(&pair) ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	pair_disconnect(&pair);
	pair_close(&pair);
	return 0;
}

/* --- moving -------------------------------------------------------------------------------- */

static void data_and_messages_of_a_turn_are_one_doorbell(void **state)
{
	uint64_t before;
	unsigned i;

	(void)state;
	fill(pair.memory[1]->bytes, 10 * OP_BYTES, 1);
	while (loop_turn(pair.loop))
		;
	before = pair.nr_doorbells;
	for (i = 0; i < 10; i++)
		rdma_ep_post(&pair.server.ep, op_prepare(i, RDMA_OP_SEND, 3));
	loop_turn(pair.loop);
	assert_int_equal(pair.nr_doorbells, before + 1);
	assert_true(pair_wait(&pair, &nr_ended, 10));
	assert_true(pair_wait(&pair, &pair.client.nr_messages, 10));
	for (i = 0; i < 10; i++) {
		assert_int_equal(ops[i].result, 0);
		assert_int_equal(ops[i].nr_ended, 1);
		assert_int_equal(ops[i].ended_as, i + 1);
	}
	assert_filled(pair.memory[0]->bytes, 10 * OP_BYTES, 1);
	assert_int_equal(pair.server.ep.sq_used, 0);
}

static void reads_beyond_the_negotiated_number_wait_in_order(void **state)
{
	unsigned i;

	(void)state;
	fill(pair.memory[0]->bytes, NR_OPS * OP_BYTES, 2);
	for (i = 0; i < NR_OPS; i++)
		rdma_ep_post(&pair.server.ep, op_prepare(i, RDMA_OP_READ, 1 + i % 16));
	while (nr_ended < NR_OPS) {
		loop_turn(pair.loop);
		assert_true(pair.server.ep.nr_reads <= pair.server.ep.max_reads);
	}
	for (i = 0; i < NR_OPS; i++) {
		assert_int_equal(ops[i].result, 0);
		assert_int_equal(ops[i].nr_ended, 1);
		assert_int_equal(ops[i].ended_as, i + 1);
	}
	assert_filled(pair.memory[1]->bytes, NR_OPS * OP_BYTES, 2);
	assert_int_equal(pair.server.ep.nr_reads, 0);
	assert_int_equal(pair.server.ep.sq_used, 0);
}

static int setup_three_reads(void **state)
{
	if (setup(state))
		return -1;
	pair.max_reads = 3;
	return pair_connect(&pair);
}

static void messages_do_not_wait_for_reads(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 20; i++)
		rdma_ep_post(&pair.server.ep, op_prepare(i, RDMA_OP_READ, 16));
	rdma_ep_post(&pair.server.ep, op_prepare(20, RDMA_OP_SEND, 0));
	assert_true(pair_wait(&pair, &nr_ended, 21));
	assert_true(ops[20].ended_as < 20);
}

static int setup_short_queue(void **state)
{
	if (setup(state))
		return -1;
	pair.params[1].nr_sends = RDMA_EP_MIN_SENDS;
	return pair_connect(&pair);
}

static void more_than_the_send_queue_holds_waits(void **state)
{
	unsigned i;

	(void)state;
	fill(pair.memory[1]->bytes, NR_OPS * OP_BYTES, 3);
	for (i = 0; i < NR_OPS; i++)
		rdma_ep_post(&pair.server.ep, op_prepare(i, RDMA_OP_SEND, 16));
	while (nr_ended < NR_OPS) {
		loop_turn(pair.loop);
		assert_true(pair.server.ep.sq_used <= pair.server.ep.sq_size);
	}
	assert_true(pair_wait(&pair, &pair.client.nr_messages, NR_OPS));
	for (i = 0; i < NR_OPS; i++)
		assert_int_equal(ops[i].result, 0);
	assert_filled(pair.memory[0]->bytes, NR_OPS * OP_BYTES, 3);
}

static void only_as_much_as_the_data_is_moved(void **state)
{
	struct rdma_op *op = op_prepare(0, RDMA_OP_SEND, 4);

	(void)state;
	fill(pair.memory[1]->bytes, OP_BYTES, 4);
	memset(pair.memory[0]->bytes, 0, OP_BYTES);
	op->data_len = OP_BYTES / 4 + 512; /* one piece and a part of the second */
	rdma_ep_post(&pair.server.ep, op);
	assert_true(pair_wait(&pair, &nr_ended, 1));
	assert_filled(pair.memory[0]->bytes, OP_BYTES / 4 + 512, 4);
	assert_int_equal(((char *)pair.memory[0]->bytes)[OP_BYTES / 4 + 512], 0);
}

static unsigned nr_bound;

static void window_bound(struct wc_done *done, const struct ibv_wc *wc)
{
	(void)done;
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	nr_bound++;
}

/* A memory window over the client's first page, as hosts make one for each command. */
static uint32_t window_bind(struct ibv_mw *mw, struct ibv_mr *mr)
{
	static struct wc_done done = {.fn = window_bound};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)&done,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = {.mr = mr,
				.addr = (uintptr_t)mr->addr,
				.length = OP_BYTES,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
	struct ibv_send_wr *bad;

	nr_bound = 0;
	assert_int_equal(ibv_post_send(pair.client.ep.qp, &wr, &bad), 0);
	assert_true(pair_wait(&pair, &nr_bound, 1));
	return wr.bind_mw.rkey;
}

/* The response takes back the key that the command lent. */
static void a_message_can_invalidate_the_key_its_data_used(void **state)
{
	struct ibv_pd *pd = pair.client.dev->pd;
	struct ibv_mr *mr = ibv_reg_mr(
		pd, pair.memory[0]->bytes, OP_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	uint32_t key = window_bind(mw, mr);
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		op_prepare(0, RDMA_OP_SEND, 1);
		ops[0].pieces[0].key = key;
		ops[0].op.invalidate = i == 0;
		ops[0].op.invalidate_key = key;
		rdma_ep_post(&pair.server.ep, &ops[0].op);
		assert_true(pair_wait(&pair, &nr_ended, i + 1));
		assert_true(i == 0 ? ops[0].result == 0 : ops[0].result < 0);
	}
	assert_int_equal(pair.client.nr_messages, 1);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void capsules_arrive_in_slots_with_their_data_apart(void **state)
{
	struct rdma_slot *slot;
	struct rdma_op *op = op_prepare(0, RDMA_OP_SEND, 0);
	char *mine = pair.memory[0]->bytes;
	uint32_t lkey = rdma_dev_buf_mr(pair.client.ep.dev, pair.memory[0])->lkey;

	(void)state;
	pair.server.keep_slots = true;
	fill(mine, 64 + 4096, 5);
	op->nr_sges = 1;
	op->sge[0] = (struct ibv_sge){(uintptr_t)mine, 64 + 4096, lkey};
	rdma_ep_post(&pair.client.ep, op);
	assert_true(pair_wait(&pair, &pair.server.nr_messages, 1));
	slot = container_of(pair.server.slots.next, struct rdma_slot, node);
	assert_int_equal(slot->data_len, 4096);
	assert_int_equal((uintptr_t)slot->data % 4096, 0);
	assert_memory_equal(slot->capsule, mine, 64);
	assert_memory_equal(slot->data, mine + 64, 4096);
}

/* --- failing ------------------------------------------------------------------------------- */

/* WRITE and SEND of one operation both fail: it ends once. */
static void a_wrong_key_ends_each_operation_once(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 10; i++) {
		rdma_ep_post(&pair.server.ep, op_prepare(i, RDMA_OP_SEND, 3));
		ops[i].pieces[1].key ^= 0x5a5a00;
	}
	assert_true(pair_wait(&pair, &pair.server.nr_failed, 1));
	rdma_ep_drain(&pair.server.ep);
	assert_true(pair_wait(&pair, &pair.server.nr_drained, 1));
	for (i = 0; i < 10; i++) {
		assert_int_equal(ops[i].nr_ended, 1);
		assert_true(ops[i].result < 0);
	}
	assert_int_equal(pair.server.nr_failed, 1);
	assert_int_equal(pair.server.ep.sq_used, 0);
}

static void a_read_beyond_the_region_ends_each_operation_once(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 10; i++)
		op_prepare(i, RDMA_OP_READ, 8);
	ops[3].pieces[5].addr += 1ull << 40;
	for (i = 0; i < 10; i++)
		rdma_ep_post(&pair.server.ep, &ops[i].op);
	assert_true(pair_wait(&pair, &pair.server.nr_failed, 1));
	rdma_ep_drain(&pair.server.ep);
	assert_true(pair_wait(&pair, &pair.server.nr_drained, 1));
	for (i = 0; i < 10; i++)
		assert_int_equal(ops[i].nr_ended, 1);
	assert_true(ops[3].result < 0 && ops[9].result < 0);
}

static void a_drain_in_the_middle_brings_everything_back_once(void **state)
{
	unsigned i, k;

	(void)state;
	for (k = 0; k < 8; k++) {
		nr_ended = 0;
		for (i = 0; i < NR_OPS; i++)
			rdma_ep_post(&pair.server.ep,
				op_prepare(i, i % 2 ? RDMA_OP_READ : RDMA_OP_SEND, 1 + i % 16));
		for (i = 0; i < k; i++)
			loop_turn(pair.loop);
		rdma_ep_drain(&pair.server.ep);
		rdma_ep_drain(&pair.server.ep);
		assert_true(pair_wait(&pair, &pair.server.nr_drained, 1));
		assert_int_equal(nr_ended, NR_OPS);
		for (i = 0; i < NR_OPS; i++)
			assert_int_equal(ops[i].nr_ended, 1);
		assert_int_equal(pair.server.ep.state, RDMA_EP_DRAINED);
		assert_false(pair.server.ep.stuck);
		pair_disconnect(&pair);
		assert_int_equal(pair_connect(&pair), 0);
	}
}

static void the_peers_end_is_told_once(void **state)
{
	(void)state;
	rdma_ep_drain(&pair.client.ep);
	(void)rdma_disconnect(pair.client.id);
	assert_true(pair_wait(&pair, &pair.client.nr_drained, 1));
	assert_true(pair_wait(&pair, &pair.server.nr_failed, 1));
	assert_int_equal(pair.client.nr_failed, 0);
	rdma_ep_fail(&pair.server.ep, -EIO, "again");
	loop_turn(pair.loop);
	assert_int_equal(pair.server.nr_failed, 1);
}

static void a_capsule_shorter_than_a_command_fails_the_endpoint(void **state)
{
	struct rdma_op *op = op_prepare(0, RDMA_OP_SEND, 0);

	(void)state;
	op->sge[0].length = 40;
	op->sge[0].lkey = rdma_dev_buf_mr(pair.client.ep.dev, pair.memory[1])->lkey;
	rdma_ep_post(&pair.client.ep, op);
	assert_true(pair_wait(&pair, &pair.server.nr_failed, 1));
	assert_int_equal(pair.server.failure, -EPROTO);
	assert_int_equal(pair.server.nr_messages, 0);
}

static void a_capsule_longer_than_a_slot_fails_the_endpoint(void **state)
{
	struct rdma_op *op = op_prepare(0, RDMA_OP_SEND, 0);

	(void)state;
	op->sge[0].length = 64 + 4096 + 1;
	rdma_ep_post(&pair.client.ep, op);
	assert_true(pair_wait(&pair, &pair.server.nr_failed, 1));
	assert_int_equal(pair.server.nr_messages, 0);
}

/* --- bounds -------------------------------------------------------------------------------- */

static void queues_are_admitted_only_where_there_is_room(void **state)
{
	struct rdma_dev *dev = pair.server.ep.dev;
	struct rdma_srq *srq = pair.server.ep.srq;
	uint32_t used = dev->cq.used, i;

	(void)state;
	/* The SRQ: in all no more commands than slots. */
	assert_int_equal(rdma_srq_admit(srq, 900), 0);
	assert_int_equal(rdma_srq_admit(srq, 61), -ENOSPC);
	assert_int_equal(rdma_srq_admit(srq, 60), 0);
	rdma_srq_release(srq, 960);
	used = dev->cq.used;
	/* The completion queue: it grows, or refuses; its size does not creep. */
	assert_int_equal(rdma_cq_admit(&dev->cq, (uint32_t)dev->attr.max_cqe), -ENOSPC);
	assert_int_equal(dev->cq.used, used);
	for (i = 0; i < 1000; i++) {
		assert_int_equal(rdma_cq_admit(&dev->cq, 512), 0);
		rdma_cq_release(&dev->cq, 512);
	}
	assert_true(dev->cq.size <= 8192);
	assert_int_equal(dev->cq.used, used);
}

static void queue_pairs_are_found_by_any_number(void **state)
{
	static const uint32_t numbers[] = {
		0, 1, 0x7fffff, 0xffffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x100, 0xffffff00};
	static struct rdma_ep eps[ARRAY_SIZE(numbers)];
	static struct rdma_dev dev;
	unsigned i;

	(void)state;
	for (i = 0; i < RDMA_DEV_EP_ROWS; i++)
		list_init(&dev.eps[i]);
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		eps[i].qp_num = numbers[i];
		list_init(&eps[i].node);
		assert_null(rdma_dev_find(&dev, numbers[i]));
		list_push_back(&dev.eps[numbers[i] % RDMA_DEV_EP_ROWS], &eps[i].node);
	}
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		assert_ptr_equal(rdma_dev_find(&dev, numbers[i]), &eps[i]);
		list_remove(&eps[i].node);
		assert_null(rdma_dev_find(&dev, numbers[i]));
	}
}

static void connections_leave_nothing_behind(void **state)
{
	struct rdma_dev *dev = pair.server.ep.dev;
	uint32_t used, i;

	(void)state;
	pair_disconnect(&pair);
	used = dev->cq.used;
	for (i = 0; i < 20; i++) {
		assert_int_equal(pair_connect(&pair), 0);
		pair_disconnect(&pair);
		assert_int_equal(dev->cq.used, used);
		assert_int_equal(dev->nr_users, 0);
	}
	assert_int_equal(pair_connect(&pair), 0);
}

/* What completed before the notification was asked for notifies nobody. */
static void after_arming_the_queue_is_looked_at_once_more(void **state)
{
	struct rdma_dev *dev = pair.server.ep.dev;

	(void)state;
	while (dev->cq.armed || loop_turn(pair.loop))
		dev->cq.armed = false;
	assert_int_equal(dev->cq.poller.arm(&dev->cq.poller), 1);
	assert_int_equal(dev->cq.poller.arm(&dev->cq.poller), 0);
}

/* A sleeping loop is woken by a completion, again and again. */
static void completions_wake_a_sleeping_loop(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 50; i++) {
		rdma_ep_post(&pair.server.ep, op_prepare(0, RDMA_OP_READ, 1));
		while (nr_ended <= i)
			assert_int_not_equal(loop_wait(pair.loop, 5000000000), 0);
	}
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, setup_connected, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONNECTED(data_and_messages_of_a_turn_are_one_doorbell),
		CONNECTED(reads_beyond_the_negotiated_number_wait_in_order),
		cmocka_unit_test_setup_teardown(
			messages_do_not_wait_for_reads, setup_three_reads, teardown),
		cmocka_unit_test_setup_teardown(
			more_than_the_send_queue_holds_waits, setup_short_queue, teardown),
		CONNECTED(only_as_much_as_the_data_is_moved),
		CONNECTED(a_message_can_invalidate_the_key_its_data_used),
		CONNECTED(capsules_arrive_in_slots_with_their_data_apart),
		CONNECTED(a_wrong_key_ends_each_operation_once),
		CONNECTED(a_read_beyond_the_region_ends_each_operation_once),
		CONNECTED(a_drain_in_the_middle_brings_everything_back_once),
		CONNECTED(the_peers_end_is_told_once),
		CONNECTED(a_capsule_shorter_than_a_command_fails_the_endpoint),
		CONNECTED(a_capsule_longer_than_a_slot_fails_the_endpoint),
		CONNECTED(queues_are_admitted_only_where_there_is_room),
		cmocka_unit_test(queue_pairs_are_found_by_any_number),
		CONNECTED(connections_leave_nothing_behind),
		CONNECTED(after_arming_the_queue_is_looked_at_once_more),
		CONNECTED(completions_wake_a_sleeping_loop),
	};

	if (pair_engine_is_refused()) {
		printf("skipped: this engine is not allowed here\n");
		return 77;
	}
	return cmocka_run_group_tests_name("rdma_ep", tests, NULL, NULL);
}
