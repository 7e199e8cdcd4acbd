/* SPDX-License-Identifier: MIT */
/*
 * The initiator's RDMA transport between a core of the tests' own and a target that is a bare
 * endpoint of proto/link.
 */
#include "tests/sim/rdma/bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS 20

struct pair pair; /* the target is its server */
struct haul_loop hl;
struct haul_queue queue;
struct haul_request requests[DEPTH];
static struct haul_mem mem;
unsigned char *memory; /* the first half is registered */
unsigned nr_connected, nr_failed, nr_quiesced, nr_done;
unsigned nr_done_of[DEPTH];
int connected_result, failed_result;
char connected_why[256];
struct nvme_rdma_cm_accept accept_data;
struct nvme_rdma_cm_reject reject_data;
static struct rdma_op replies[DEPTH];
static struct nvme_sgl_piece reply_pieces[DEPTH][NVME_SGL_MAX_PIECES];
unsigned nr_replied;
int replied_result;
bool key_per_io;

/* --- the core ------------------------------------------------------------------------------ */

void haul_queue_connected(struct haul_queue *q, int result, const char *why)
{
	(void)q;
	nr_connected++;
	connected_result = result;
	snprintf(connected_why, sizeof(connected_why), "%s", why ? why : "");
}

void haul_queue_failed(struct haul_queue *q, int result, const char *why)
{
	(void)q;
	print_message("the queue failed: %s\n", why);
	nr_failed++;
	failed_result = result;
}

void haul_queue_quiesced(struct haul_queue *q)
{
	(void)q;
	nr_quiesced++;
}

struct haul_request *haul_queue_request_by_cid(struct haul_queue *q, uint16_t cid)
{
	(void)q;
	return cid < DEPTH && requests[cid].state == HAUL_REQUEST_OUT ? &requests[cid] : NULL;
}

void haul_request_done(struct haul_request *request, int result, const struct nvme_cqe *cqe)
{
	assert_int_equal(request->state, HAUL_REQUEST_OUT);
	request->state = HAUL_REQUEST_FREE;
	request->result = result;
	if (!result)
		request->cqe = *cqe;
	nr_done_of[request->index]++;
	nr_done++;
}

struct haul_mem *haul_mem_find(struct haul_loop *loop, const void *address, size_t length)
{
	const unsigned char *at = address;

	(void)loop;
	return at >= memory && at + length <= memory + MEMORY_BYTES / 2 ? &mem : NULL;
}

/* --- turning both ends --------------------------------------------------------------------- */

bool both_wait(const unsigned *flag, unsigned value)
{
	uint64_t end;

	loop_turn(pair.loop);
	end = loop_now_ns(pair.loop) + SECONDS * 1000000000ull;
	while (*flag < value && loop_now_ns(pair.loop) < end) {
		loop_turn(pair.loop);
		loop_turn(hl.loop);
	}
	return *flag >= value;
}

void both_turn(unsigned nr)
{
	while (nr--) {
		loop_turn(pair.loop);
		loop_turn(hl.loop);
	}
}

void queue_init(void)
{
	struct sockaddr_in address = pair_address();
	unsigned i;

	memset(&queue, 0, sizeof(queue));
	memset(requests, 0, sizeof(requests));
	memset(nr_done_of, 0, sizeof(nr_done_of));
	nr_connected = nr_failed = nr_quiesced = nr_done = nr_replied = 0;
	queue.hl = &hl;
	queue.loop = hl.loop;
	queue.pool = hl.pool;
	queue.ops = &haul_transport_rdma_ops;
	queue.qid = 3;
	queue.depth = DEPTH;
	queue.requests = requests;
	queue.in_capsule_bytes = 4096;
	queue.max_segments = NVME_SGL_MAX_PIECES;
	queue.key_per_io = key_per_io;
	address.sin_port = rdma_get_src_port(pair.listener);
	memcpy(&queue.address, &address, sizeof(address));
	for (i = 0; i < DEPTH; i++) {
		requests[i].queue = &queue;
		requests[i].index = i;
		requests[i].cid = (uint16_t)i;
	}
}

int setup(void **state)
{
	(void)state;
	if (pair_open(&pair))
		return -1;
	pair_reset(&pair);
	accept_data = (struct nvme_rdma_cm_accept){.crqsize = le16(DEPTH + 1)};
	pair.accept_data = &accept_data;
	pair.accept_len = sizeof(accept_data);
	pair.server.keep_slots = true;
	memset(&hl, 0, sizeof(hl));
	list_init(&hl.mems);
	if (loop_create(NULL, &hl.loop) || bufpool_create(hl.loop, 64 << 20, &hl.pool))
		return -1;
	memory = aligned_alloc(4096, MEMORY_BYTES);
	mem = (struct haul_mem){.hl = &hl, .base = memory, .length = MEMORY_BYTES / 2};
	list_init(&mem.node);
	list_push_back(&hl.mems, &mem.node);
	queue_init();
	return queue.ops->alloc(&queue);
}

int setup_connected(void **state)
{
	if (setup(state))
		return -1;
	queue.ops->connect(&queue);
	if (!both_wait(&nr_connected, 1) || connected_result)
		return -1;
	/* The target's side is established last. */
	while (!pair.server.connected)
		both_turn(1);
	return 0;
}

void disconnect(void)
{
	queue.ops->disconnect(&queue);
	assert_true(both_wait(&nr_quiesced, 1));
}

int teardown(void **state)
{
	(void)state;
	if (!nr_quiesced && nr_connected && !connected_result)
		disconnect();
	queue.ops->free(&queue);
	queue.ops->free_loop(&hl);
	bufpool_destroy(hl.pool);
	loop_destroy(hl.loop);
	pair_disconnect(&pair);
	pair_close(&pair);
	free(memory);
	return 0;
}

/* --- the target ---------------------------------------------------------------------------- */

static void reply_ended(struct rdma_op *op, int result)
{
	(void)op;
	replied_result = result;
	nr_replied++;
}

struct rdma_slot *target_take(void)
{
	static unsigned nr_waiting;
	struct list *node;

	while (list_empty(&pair.server.slots)) {
		assert_int_equal(nr_failed, 0);
		nr_waiting = pair.server.nr_messages;
		assert_true(both_wait(&pair.server.nr_messages, nr_waiting + 1));
	}
	node = list_pop_front(&pair.server.slots);
	return container_of(node, struct rdma_slot, node);
}

void target_reply_invalidating(
	unsigned cid, const struct nvme_sgl_desc *descriptors, uint32_t nr, uint32_t key)
{
	struct buf *buf =
		pair.memory[1] ? pair.memory[1] : bufpool_get(pair.pool, BUFPOOL_SHELF_1M);
	uint32_t lkey = rdma_dev_buf_mr(pair.server.ep.dev, buf)->lkey, i;
	struct nvme_cqe *cqe = (struct nvme_cqe *)buf->bytes + cid;
	struct rdma_op *op = &replies[cid];

	pair.memory[1] = buf;
	*cqe = (struct nvme_cqe){.cid = le16((uint16_t)cid), .dw0 = le32(77)};
	*op = (struct rdma_op){.ended = reply_ended,
		.kind = RDMA_OP_SEND,
		.pieces = reply_pieces[cid],
		.nr_pieces = nr,
		.bytes = (unsigned char *)buf->bytes + 4096,
		.lkey = lkey,
		.nr_sges = 1,
		.sge = {{(uintptr_t)cqe, sizeof(*cqe), lkey}}};
	for (i = 0; i < nr; i++) {
		reply_pieces[cid][i] =
			(struct nvme_sgl_piece){.addr = le64_get(descriptors[i].addr),
				.len = le24_get(descriptors[i].keyed.len),
				.key = le32_get(descriptors[i].keyed.key)};
		op->data_len += reply_pieces[cid][i].len;
	}
	for (i = 0; i < op->data_len; i++)
		((unsigned char *)op->bytes)[i] = (unsigned char)(i * 5 + 3);
	op->invalidate = key != 0;
	op->invalidate_key = key;
	rdma_ep_post(&pair.server.ep, op);
}

void target_reply(unsigned cid, const struct nvme_sgl_desc *descriptors, uint32_t nr)
{
	bool invalidate = nr && descriptors[nr - 1].id == NVME_SGL_ID_KEYED_INVALIDATE;

	target_reply_invalidating(
		cid, descriptors, nr, invalidate ? le32_get(descriptors[nr - 1].keyed.key) : 0);
}

/* --- requests ------------------------------------------------------------------------------ */

struct haul_request *submit(unsigned i, int to_host, const struct iovec *iov, unsigned nr)
{
	struct haul_request *request = &requests[i];
	unsigned k;

	request->state = HAUL_REQUEST_OUT;
	request->cmd = (struct nvme_cmd){.opcode = to_host ? NVME_OPC_READ : NVME_OPC_WRITE,
		.flags = NVME_CMD_PSDT_SGL,
		.cid = le16((uint16_t)i)};
	request->to_host = to_host;
	request->nr_iov = nr;
	request->data_len = 0;
	for (k = 0; k < nr; k++) {
		request->iov[k] = iov[k];
		request->data_len += (uint32_t)iov[k].iov_len;
	}
	queue.ops->submit(&queue, request);
	return request;
}

void assert_read(const struct haul_request *request)
{
	uint32_t at = 0, k;
	size_t i;

	for (k = 0; k < request->nr_iov; k++)
		for (i = 0; i < request->iov[k].iov_len; i++, at++)
			assert_int_equal(((unsigned char *)request->iov[k].iov_base)[i],
				(unsigned char)(at * 5 + 3));
}
