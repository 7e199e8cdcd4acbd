/* SPDX-License-Identifier: MIT */
/*
 * The initiator's RDMA transport: what goes onto the wire, and that each request comes back once.
 * With "io" as argument each command has a key of its own.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/rdma/bare.h"

/* One descriptor, of memory that the target reaches. */
static unsigned keyed(void)
{
	return key_per_io ? NVME_SGL_ID_KEYED_INVALIDATE : NVME_SGL_ID_KEYED;
}

/* --- connecting ---------------------------------------------------------------------------- */

static void the_request_says_what_connect_will_say(void **state)
{
	const struct nvme_rdma_cm_req *req = (const void *)pair.request.private_data;

	(void)state;
	assert_true(pair.request.private_len >= sizeof(*req));
	assert_int_equal(le16_get(req->recfmt), 0);
	assert_int_equal(le16_get(req->qid), 3);
	assert_int_equal(le16_get(req->hsqsize), queue.depth);
	assert_int_equal(le16_get(req->hrqsize), queue.depth + 1);
	assert_true(pair.request.initiator_depth > 0);
}

static void a_reject_is_told_in_words(void **state)
{
	static const uint16_t statuses[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 77};
	unsigned i;

	(void)state;
	pair.reject = true;
	pair.accept_data = &reject_data;
	pair.accept_len = sizeof(reject_data);
	for (i = 0; i < ARRAY_SIZE(statuses); i++) {
		reject_data = (struct nvme_rdma_cm_reject){.sts = le16(statuses[i])};
		nr_connected = 0;
		queue.ops->connect(&queue);
		assert_true(both_wait(&nr_connected, 1));
		assert_int_equal(connected_result, -ECONNREFUSED);
		assert_non_null(strstr(connected_why, nvme_rdma_cm_status_str(statuses[i])));
		rdma_destroy_id(pair.server.id);
		pair.server.id = NULL;
	}
}

static void a_short_answer_is_no_target(void **state)
{
	(void)state;
	pair.accept_len = 0;
	queue.ops->connect(&queue);
	assert_true(both_wait(&nr_connected, 1));
	/* A fabric that pads makes it a right answer, with nothing in it. */
	assert_true(connected_result == -EPROTO || connected_result == 0);
}

static void nobody_listens_is_told_once(void **state)
{
	(void)state;
	rdma_destroy_id(pair.listener);
	pair.listener = NULL;
	queue.ops->connect(&queue);
	assert_true(both_wait(&nr_connected, 1));
	assert_true(connected_result < 0);
	both_turn(50);
	assert_int_equal(nr_connected, 1);
}

static void pool_ready(struct bufpool_wait *wait, struct buf *buf)
{
	(void)wait;
	(void)buf;
	fail();
}

/* Others wait for buffers already: it is not data that a connect needs. */
static void a_busy_pool_holds_up_no_connect(void **state)
{
	struct bufpool_wait wait = {.ready = pool_ready, .shelf = BUFPOOL_SHELF_1M};
	struct list bufs, *node;
	struct buf *buf;

	(void)state;
	list_init(&bufs);
	while ((buf = bufpool_get(hl.pool, BUFPOOL_SHELF_1M)))
		list_push_back(&bufs, &buf->node);
	bufpool_wait(hl.pool, &wait);
	queue.ops->connect(&queue);
	assert_true(both_wait(&nr_connected, 1));
	assert_string_equal(connected_why, "");
	assert_int_equal(connected_result, 0);
	bufpool_wait_cancel(hl.pool, &wait);
	while ((node = list_pop_front(&bufs)))
		bufpool_put(hl.pool, container_of(node, struct buf, node));
}

/* disconnect() while connect() is unanswered: no answer but quiesced. */
static void connecting_can_be_given_up_at_any_time(void **state)
{
	unsigned turns;

	(void)state;
	for (turns = 0; turns < 40; turns++) {
		nr_connected = nr_quiesced = 0;
		queue.ops->connect(&queue);
		both_turn(turns);
		if (nr_connected == 0 || connected_result == 0)
			disconnect();
		assert_true(nr_connected <= 1);
		queue.ops->free(&queue);
		pair_disconnect(&pair);
		pair_reset(&pair);
		assert_int_equal(queue.ops->alloc(&queue), 0);
	}
	nr_quiesced = 1;
}

/* --- data ---------------------------------------------------------------------------------- */

static void a_read_of_registered_memory_is_one_descriptor(void **state)
{
	const struct iovec iov = {memory + 512, 65536};
	struct haul_request *request = submit(1, 1, &iov, 1);
	struct rdma_slot *slot = target_take();
	const struct nvme_cmd *cmd = slot->capsule;

	(void)state;
	assert_int_equal(cmd->sgl.id, keyed());
	assert_int_equal(le64_get(cmd->sgl.addr), (uintptr_t)(memory + 512));
	assert_int_equal(le24_get(cmd->sgl.keyed.len), 65536);
	assert_int_equal(slot->data_len, 0);
	target_reply(1, &cmd->sgl, 1);
	assert_true(both_wait(&nr_done, 1));
	assert_int_equal(request->result, 0);
	assert_int_equal(le32_get(request->cqe.dw0), 77);
	assert_read(request);
	assert_int_equal(hl.stats.nr_bounced, 0);
	rdma_slot_put(slot);
}

static void pieces_that_touch_are_one_the_rest_is_a_list(void **state)
{
	const struct iovec iov[] = {{memory, 4096}, {memory + 4096, 4096}, {memory + 16384, 1024},
		{memory + 32768, 8192}};
	struct haul_request *request = submit(0, 1, iov, 4);
	struct rdma_slot *slot = target_take();
	const struct nvme_cmd *cmd = slot->capsule;
	const struct nvme_sgl_desc *list = slot->data;

	(void)state;
	assert_int_equal(cmd->sgl.id, NVME_SGL_ID_LAST_SEGMENT);
	assert_int_equal(le32_get(cmd->sgl.len), 3 * 16);
	assert_int_equal(slot->data_len, 3 * 16);
	assert_int_equal(le24_get(list[0].keyed.len), 8192);
	assert_int_equal(le24_get(list[1].keyed.len), 1024);
	assert_int_equal(le24_get(list[2].keyed.len), 8192);
	target_reply(0, list, 3);
	assert_true(both_wait(&nr_done, 1));
	assert_read(request);
	assert_int_equal(hl.stats.nr_bounced, 0);
	rdma_slot_put(slot);
}

/* What does not fit into the descriptors, or is not registered, goes through a buffer. */
static void other_memory_is_bounced_and_counted(void **state)
{
	struct iovec iov[HAUL_MAX_IOV];
	struct haul_request *request;
	struct rdma_slot *slot;
	const struct nvme_cmd *cmd;
	unsigned i, round;

	(void)state;
	for (round = 0; round < 2; round++) {
		queue.max_segments = round ? NVME_SGL_MAX_PIECES : 2;
		for (i = 0; i < 3; i++) {
			iov[i].iov_base = memory + (round ? MEMORY_BYTES / 2 : 0) + i * 8192;
			iov[i].iov_len = 4096;
		}
		request = submit(round, 1, iov, 3);
		slot = target_take();
		cmd = slot->capsule;
		assert_int_equal(cmd->sgl.id, keyed());
		target_reply(round, &cmd->sgl, 1);
		assert_true(both_wait(&nr_done, round + 1));
		assert_read(request);
		assert_int_equal(hl.stats.nr_bounced, round + 1);
		rdma_slot_put(slot);
	}
}

static void small_writes_travel_in_the_capsule(void **state)
{
	/* Registered, in two stretches; not registered. */
	const struct iovec iov[2][2] = {{{memory, 1024}, {memory + 8192, 3072}},
		{{memory + MEMORY_BYTES / 2, 512}, {memory + MEMORY_BYTES / 2 + 4096, 512}}};
	const unsigned char *data;
	struct rdma_slot *slot;
	unsigned i, k;

	(void)state;
	for (i = 0; i < MEMORY_BYTES; i++)
		memory[i] = (unsigned char)(i * 11 + (i >> 12));
	for (i = 0; i < 2; i++) {
		submit(i, 0, iov[i], 2);
		slot = target_take();
		data = slot->data;
		for (k = 0; k < 2; k++) {
			if (((struct nvme_cmd *)slot->capsule)->sgl.id != NVME_SGL_ID_IN_CAPSULE)
				break; /* a device that gathers no more than one piece */
			assert_memory_equal(data, iov[i][k].iov_base, iov[i][k].iov_len);
			data += iov[i][k].iov_len;
		}
		target_reply(i, NULL, 0);
		assert_true(both_wait(&nr_done, i + 1));
		rdma_slot_put(slot);
	}
	assert_int_equal(hl.stats.nr_bounced, 1);
}

static void a_write_beyond_the_capsule_is_described(void **state)
{
	const struct iovec iov = {memory, 4096 + 512};
	struct rdma_slot *slot;

	(void)state;
	submit(0, 0, &iov, 1);
	slot = target_take();
	assert_int_equal(((struct nvme_cmd *)slot->capsule)->sgl.id, keyed());
	target_reply(0, NULL, 0);
	assert_true(both_wait(&nr_done, 1));
	rdma_slot_put(slot);
}

static void no_data_is_a_descriptor_of_length_zero(void **state)
{
	struct rdma_slot *slot;
	const struct nvme_cmd *cmd;

	(void)state;
	submit(0, 0, NULL, 0);
	slot = target_take();
	cmd = slot->capsule;
	assert_int_equal(cmd->sgl.id, NVME_SGL_ID_KEYED);
	assert_int_equal(le24_get(cmd->sgl.keyed.len), 0);
	target_reply(0, NULL, 0);
	assert_true(both_wait(&nr_done, 1));
	rdma_slot_put(slot);
}

/* The device may still read the capsule when the answer is here already. */
static void a_request_waits_for_its_send_after_the_answer(void **state)
{
	const struct iovec iov = {memory, 4096};
	struct haul_request *request = submit(0, 1, &iov, 1);
	struct rdma_request *rr = rdma_request(request);
	struct rdma_slot *slot = target_take();

	(void)state;
	while (!rr->sent)
		both_turn(1);
	rr->sent = false;
	target_reply(0, &((struct nvme_cmd *)slot->capsule)->sgl, 1);
	while (!rr->answered)
		both_turn(1);
	assert_int_equal(nr_done, 0);
	rr->op.ended(&rr->op, 0);
	assert_int_equal(nr_done, 1);
	rdma_slot_put(slot);
}

static void slots_are_used_again_and_again(void **state)
{
	const struct iovec iov = {memory, 4096};
	struct rdma_slot *slot;
	unsigned i, k;

	(void)state;
	for (k = 0; k < 50; k++) {
		for (i = 0; i < DEPTH; i++)
			submit(i, 1, &iov, 1);
		for (i = 0; i < DEPTH; i++) {
			slot = target_take();
			target_reply(i, &((struct nvme_cmd *)slot->capsule)->sgl, 1);
			rdma_slot_put(slot);
		}
		assert_true(both_wait(&nr_done, (k + 1) * DEPTH));
	}
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(nr_done_of[i], 50);
	assert_int_equal(nr_failed, 0);
}

/* --- ends ---------------------------------------------------------------------------------- */

static void an_answer_to_nothing_fails_the_queue(void **state)
{
	const struct iovec iov = {memory, 4096};

	(void)state;
	submit(2, 1, &iov, 1);
	rdma_slot_put(target_take());
	target_reply(5, NULL, 0);
	assert_true(both_wait(&nr_failed, 1));
	assert_int_equal(failed_result, -EPROTO);
	assert_int_equal(nr_done, 0);
	disconnect();
	assert_int_equal(nr_done_of[2], 1);
	assert_int_equal(requests[2].result, -ECANCELED);
}

/* When a request has come back nothing writes to its memory any more. */
static void a_disconnect_brings_everything_back_first(void **state)
{
	const struct iovec iov[2] = {{memory, 65536}, {memory + MEMORY_BYTES / 2, 4096}};
	struct rdma_slot *slot = NULL;
	unsigned i, before;

	(void)state;
	for (i = 0; i < DEPTH; i++)
		submit(i, 1, &iov[i % 2], 1);
	for (i = 0; i < 3; i++) {
		slot = target_take();
		target_reply(i, &((struct nvme_cmd *)slot->capsule)->sgl, 1);
		rdma_slot_put(slot);
	}
	before = nr_done;
	queue.ops->disconnect(&queue);
	assert_int_equal(nr_quiesced, 0);
	assert_int_equal(nr_done, before);
	assert_true(both_wait(&nr_quiesced, 1));
	memset(memory, 0xee, 65536);
	both_turn(200);
	for (i = 0; i < 65536; i++)
		assert_int_equal(memory[i], 0xee);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(nr_done_of[i], 1);
	assert_int_equal(nr_done, DEPTH);
}

static void the_targets_end_is_told_once(void **state)
{
	const struct iovec iov = {memory, 4096};
	unsigned i;

	(void)state;
	for (i = 0; i < DEPTH; i++)
		submit(i, 1, &iov, 1);
	both_turn(3);
	(void)rdma_disconnect(pair.server.id);
	rdma_ep_drain(&pair.server.ep);
	assert_true(both_wait(&nr_failed, 1));
	disconnect();
	assert_int_equal(nr_done, DEPTH);
}

/* Any event in any state, twice: at most the queue ends, once. */
static void events_that_do_not_belong_end_at_most_the_queue(void **state)
{
	struct rdma_cm_note note;
	unsigned type, turns;

	(void)state;
	queue.ops->free(&queue);
	for (type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		for (turns = 0; turns <= 60; turns += 4) {
			queue_init();
			assert_int_equal(queue.ops->alloc(&queue), 0);
			queue.ops->connect(&queue);
			both_turn(turns);
			note = (struct rdma_cm_note){.id = queue.transport->id, .type = type};
			queue.transport->owner.event(&queue.transport->owner, &note);
			queue.transport->owner.event(&queue.transport->owner, &note);
			both_turn(3);
			assert_true(nr_connected <= 1 && nr_failed <= 2);
			if (nr_connected == 0 || connected_result == 0)
				disconnect();
			queue.ops->free(&queue);
			pair_disconnect(&pair);
			pair_reset(&pair);
		}
	}
	assert_int_equal(queue.ops->alloc(&queue), 0);
	nr_quiesced = 1;
}

static void connect_anew(void)
{
	queue_init();
	assert_int_equal(queue.ops->alloc(&queue), 0);
	pair.server.keep_slots = true;
	queue.ops->connect(&queue);
	assert_true(both_wait(&nr_connected, 1));
	assert_int_equal(connected_result, 0);
	while (!pair.server.connected)
		both_turn(1);
}

static void one_read(void)
{
	const struct iovec iov = {memory, 4096};
	struct haul_request *request = submit(1, 1, &iov, 1);
	struct rdma_slot *slot = target_take();

	target_reply(1, &((struct nvme_cmd *)slot->capsule)->sgl, 1);
	rdma_slot_put(slot);
	assert_true(both_wait(&nr_done, 1));
	assert_int_equal(request->result, 0);
}

/* To a queue that works, twice: what says nothing about it changes nothing. */
static void an_event_ends_a_queue_only_if_it_tells_of_its_end(void **state)
{
	static const struct {
		enum rdma_cm_event_type type;
		bool ends;
	} cases[] = {
		{RDMA_CM_EVENT_ADDR_RESOLVED, false},
		{RDMA_CM_EVENT_ADDR_ERROR, true},
		{RDMA_CM_EVENT_ROUTE_RESOLVED, false},
		{RDMA_CM_EVENT_ROUTE_ERROR, true},
		{RDMA_CM_EVENT_CONNECT_REQUEST, true},
		{RDMA_CM_EVENT_CONNECT_RESPONSE, true},
		{RDMA_CM_EVENT_CONNECT_ERROR, true},
		{RDMA_CM_EVENT_UNREACHABLE, true},
		{RDMA_CM_EVENT_REJECTED, false},
		{RDMA_CM_EVENT_ESTABLISHED, false},
		{RDMA_CM_EVENT_DISCONNECTED, true},
		{RDMA_CM_EVENT_DEVICE_REMOVAL, true},
		{RDMA_CM_EVENT_MULTICAST_JOIN, false},
		{RDMA_CM_EVENT_MULTICAST_ERROR, false},
		{RDMA_CM_EVENT_ADDR_CHANGE, false},
		{RDMA_CM_EVENT_TIMEWAIT_EXIT, false},
	};
	struct rdma_cm_note note;
	unsigned i;

	(void)state;
	queue.ops->free(&queue);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		connect_anew();
		note = (struct rdma_cm_note){.id = queue.transport->id, .type = cases[i].type};
		queue.transport->owner.event(&queue.transport->owner, &note);
		queue.transport->owner.event(&queue.transport->owner, &note);
		both_turn(3);
		assert_int_equal(nr_failed > 0, cases[i].ends);
		assert_int_equal(nr_connected, 1);
		if (!cases[i].ends)
			one_read();
		disconnect();
		queue.ops->free(&queue);
		pair_disconnect(&pair);
		pair_reset(&pair);
	}
	assert_int_equal(queue.ops->alloc(&queue), 0);
	nr_quiesced = 1;
}

#define PLAIN(test)	cmocka_unit_test_setup_teardown(test, setup, teardown)
#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, setup_connected, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CONNECTED(the_request_says_what_connect_will_say),
		PLAIN(a_reject_is_told_in_words),
		PLAIN(a_short_answer_is_no_target),
		PLAIN(nobody_listens_is_told_once),
		PLAIN(a_busy_pool_holds_up_no_connect),
		PLAIN(connecting_can_be_given_up_at_any_time),
		CONNECTED(a_read_of_registered_memory_is_one_descriptor),
		CONNECTED(pieces_that_touch_are_one_the_rest_is_a_list),
		CONNECTED(other_memory_is_bounced_and_counted),
		CONNECTED(small_writes_travel_in_the_capsule),
		CONNECTED(a_write_beyond_the_capsule_is_described),
		CONNECTED(no_data_is_a_descriptor_of_length_zero),
		CONNECTED(a_request_waits_for_its_send_after_the_answer),
		CONNECTED(slots_are_used_again_and_again),
		CONNECTED(an_answer_to_nothing_fails_the_queue),
		CONNECTED(a_disconnect_brings_everything_back_first),
		CONNECTED(the_targets_end_is_told_once),
		PLAIN(events_that_do_not_belong_end_at_most_the_queue),
		PLAIN(an_event_ends_a_queue_only_if_it_tells_of_its_end),
	};

	if (argc > 1)
		key_per_io = !strcmp(argv[1], "io");
	return cmocka_run_group_tests_name("rdma_initiator", tests, NULL, NULL);
}
