/* SPDX-License-Identifier: MIT */
/*
 * Two endpoints of proto/link on one loop.
 */
#include "tests/sim/rdma/pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAIR_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static void pair_note_result(struct pair *pair, int result)
{
	if (result && !pair->result)
		pair->result = result;
}

/* --- endpoint events ----------------------------------------------------------------------- */

static struct side *pair_side(struct rdma_ep *ep)
{
	return container_of(ep, struct side, ep);
}

static void pair_received(struct rdma_ep *ep, struct rdma_slot *slot)
{
	struct side *side = pair_side(ep);

	side->nr_messages++;
	if (side->keep_slots)
		list_push_back(&side->slots, &slot->node);
	else
		rdma_slot_put(slot);
}

static void pair_message(struct rdma_ep *ep, struct rdma_recv *recv)
{
	pair_side(ep)->nr_messages++;
	if (ep->state == RDMA_EP_LIVE)
		rdma_ep_receive(ep, recv);
}

static void pair_failed(struct rdma_ep *ep, int result, const char *why)
{
	(void)why;
	pair_side(ep)->nr_failed++;
	pair_side(ep)->failure = result;
}

static void pair_drained(struct rdma_ep *ep)
{
	pair_side(ep)->nr_drained++;
	pair_side(ep)->has_ep = false;
}

static const struct rdma_ep_ops pair_ep_ops = {
	.received = pair_received,
	.message = pair_message,
	.failed = pair_failed,
	.drained = pair_drained,
};

/* --- connecting ---------------------------------------------------------------------------- */

static int pair_make(struct side *side, struct rdma_ep_params *params)
{
	int result = rdma_dev_get(&side->pair->rdma.devs, side->id->verbs, &side->dev);

	if (result)
		side->dev = NULL;
	if (!result && !params->nr_recvs)
		result = rdma_srq_get(side->dev, RDMA_SLOT_PAGE, 1024, &params->srq);
	if (!result)
		result = rdma_ep_create(&side->ep, &pair_ep_ops, side->dev, side->id, params);
	side->has_ep = !result;
	return result;
}

static int pair_client_memory(struct pair *pair)
{
	uint32_t i;

	pair->responses =
		bufpool_get(pair->pool, bufpool_shelf_of(PAIR_NR_RECVS * PAIR_MESSAGE_BYTES));
	pair->memory[0] = bufpool_get(pair->pool, BUFPOOL_SHELF_1M);
	pair->memory[1] = bufpool_get(pair->pool, BUFPOOL_SHELF_1M);
	if (!pair->responses || !pair->memory[0] || !pair->memory[1])
		return -ENOMEM;
	for (i = 0; i < pair->params[0].nr_recvs; i++) {
		pair->recvs[i].bytes =
			(char *)pair->responses->bytes + (size_t)i * PAIR_MESSAGE_BYTES;
		pair->recvs[i].length = PAIR_MESSAGE_BYTES;
		pair->recvs[i].lkey = rdma_dev_buf_mr(pair->client.ep.dev, pair->responses)->lkey;
		rdma_ep_receive(&pair->client.ep, &pair->recvs[i]);
	}
	return 0;
}

static int pair_client_request(struct pair *pair)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	int result = pair_make(&pair->client, &pair->params[0]);

	if (!result)
		result = pair_client_memory(pair);
	if (!result) {
		param.responder_resources =
			(uint8_t)min_of(16, pair->client.ep.dev->attr.max_qp_rd_atom);
		pair->max_reads = min_of(pair->max_reads, (uint32_t)param.responder_resources);
	}
	if (!result && rdma_connect(pair->client.id, &param))
		result = -errno;
	return result;
}

static void pair_side_event(struct rdma_cm_owner *owner, const struct rdma_cm_note *note)
{
	struct side *side = container_of(owner, struct side, owner);
	struct pair *pair = side->pair;

	switch ((int)note->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		pair_note_result(pair, rdma_resolve_route(side->id, 1000) ? -errno : 0);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		pair_note_result(pair, pair_client_request(pair));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		side->connected = true;
		if (side->has_ep)
			rdma_ep_established(&side->ep, side == &pair->server ? pair->max_reads : 0);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		side->disconnected = true;
		if (side->has_ep)
			rdma_ep_fail(&side->ep, -ECONNRESET, "disconnected");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		pair_note_result(pair, -ECONNREFUSED);
		break;
	}
}

static int pair_accept(struct pair *pair)
{
	struct rdma_conn_param param = {.private_data = pair->accept_data,
		.private_data_len = pair->accept_len,
		.rnr_retry_count = 7};
	int result = rdma_cm_adopt(pair->rdma.cm, pair->server.id, &pair->server.owner);

	if (!result)
		result = pair_make(&pair->server, &pair->params[1]);
	if (!result)
		result = rdma_srq_admit(pair->server.ep.srq, PAIR_SRQ_SLOTS);
	if (!result)
		pair->nr_slots = PAIR_SRQ_SLOTS;
	pair->max_reads = min_of(pair->max_reads, (uint32_t)pair->request.initiator_depth);
	param.initiator_depth = (uint8_t)pair->max_reads;
	return !result && rdma_accept(pair->server.id, &param) ? -errno : result;
}

static void pair_requested(struct rdma_cm_owner *owner, const struct rdma_cm_note *note)
{
	struct pair *pair = container_of(owner, struct pair, owner);
	int result = -ECONNREFUSED;

	if (note->type != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	if (pair->server.id) {
		/* One more, or one that was given up: there is only one server. */
		(void)rdma_reject(note->id, NULL, 0);
		rdma_destroy_id(note->id);
		return;
	}
	pair->request = *note;
	pair->server.id = note->id;
	if (!pair->reject)
		result = pair_accept(pair);
	pair_note_result(pair, result);
	if (result)
		(void)rdma_reject(pair->server.id, pair->reject ? pair->accept_data : NULL,
			pair->reject ? pair->accept_len : 0);
}

void pair_reset(struct pair *pair)
{
	pair->result = 0;
	pair->client = (struct side){.pair = pair, .owner.event = pair_side_event};
	pair->server = pair->client;
	list_init(&pair->client.slots);
	list_init(&pair->server.slots);
}

struct sockaddr_in pair_address(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *text = getenv("HAUL_TEST_ADDRESS");

	if (text && inet_pton(AF_INET, text, &address.sin_addr) != 1)
		abort();
	return address;
}

int pair_connect(struct pair *pair)
{
	struct sockaddr_in address = pair_address();
	uint64_t end;

	pair_reset(pair);
	address.sin_port = rdma_get_src_port(pair->listener);
	if (rdma_create_id(
		    pair->rdma.cm->channel, &pair->client.id, &pair->client.owner, RDMA_PS_TCP)) {
		pair->client.id = NULL;
		return -errno;
	}
	if (rdma_resolve_addr(pair->client.id, NULL, (struct sockaddr *)&address, 1000))
		return -errno;
	loop_turn(pair->loop);
	end = loop_now_ns(pair->loop) + pair->timeout_ns;
	while (!pair->result && !(pair->client.connected && pair->server.connected)) {
		if (loop_now_ns(pair->loop) > end)
			return -ETIMEDOUT;
		loop_wait(pair->loop, 100000000);
	}
	return pair->result;
}

/* --- the end ------------------------------------------------------------------------------- */

bool pair_wait(struct pair *pair, const unsigned *flag, unsigned value)
{
	uint64_t end = loop_now_ns(pair->loop) + pair->timeout_ns;

	while (*flag < value && loop_now_ns(pair->loop) < end)
		loop_wait(pair->loop, 100000000);
	return *flag >= value;
}

static void pair_side_end(struct side *side)
{
	struct list *node;

	while (!list_empty(&side->slots)) {
		node = list_pop_front(&side->slots);
		rdma_slot_put(container_of(node, struct rdma_slot, node));
	}
	if (side->has_ep) {
		(void)rdma_disconnect(side->id);
		rdma_ep_drain(&side->ep);
		if (!pair_wait(side->pair, &side->nr_drained, 1))
			abort();
	}
	if (side->id)
		rdma_destroy_id(side->id);
	side->id = NULL;
}

static void pair_dev_put(struct side *side)
{
	if (side->dev)
		rdma_dev_put(side->dev);
	side->dev = NULL;
}

void pair_disconnect(struct pair *pair)
{
	unsigned i;

	pair_side_end(&pair->client);
	pair_side_end(&pair->server);
	if (pair->nr_slots)
		rdma_srq_release(pair->server.ep.srq, pair->nr_slots);
	pair->nr_slots = 0;
	pair_dev_put(&pair->client);
	pair_dev_put(&pair->server);
	for (i = 0; i < 2; i++)
		if (pair->memory[i])
			bufpool_put(pair->pool, pair->memory[i]);
	if (pair->responses)
		bufpool_put(pair->pool, pair->responses);
	pair->memory[0] = pair->memory[1] = pair->responses = NULL;
}

void pair_close(struct pair *pair)
{
	if (!pair->pool)
		return;
	if (pair->listener)
		rdma_destroy_id(pair->listener);
	rdma_loop_destroy(&pair->rdma);
	bufpool_destroy(pair->pool);
	loop_destroy(pair->loop);
}

static int pair_loop_create(struct loop **ret)
{
	struct loop_options options = {.spin_ns = 1000};
	const char *engine = getenv("HAUL_TEST_ENGINE");
	int result = engine ? loop_engine_parse(engine, &options.engine) : 0;

	return result ? result : loop_create(&options, ret);
}

bool pair_engine_is_refused(void)
{
	struct loop *loop;
	int result = pair_loop_create(&loop);

	if (!result)
		loop_destroy(loop);
	return result == -ENOSYS || result == -EPERM;
}

int pair_open(struct pair *pair)
{
	static const struct rdma_ep_params client = {
		.nr_sends = 64, .nr_recvs = PAIR_NR_RECVS, .nr_sges = RDMA_WR_SGES};
	static const struct rdma_ep_params server = {
		.nr_sends = 64, .nr_sges = 1, .inline_bytes = 16};
	struct sockaddr_in address = pair_address();
	int result;

	memset(pair, 0, sizeof(*pair));
	pair->params[0] = client;
	pair->params[1] = server;
	pair->max_reads = 16;
	pair->timeout_ns = PAIR_SECONDS * 1000000000ull;
	pair->owner.event = pair_requested;
	list_init(&pair->client.slots);
	list_init(&pair->server.slots);
	result = pair_loop_create(&pair->loop);
	if (!result)
		result = bufpool_create(pair->loop, 64 << 20, &pair->pool);
	if (result)
		return result;
	result = rdma_loop_init(&pair->rdma, pair->loop, pair->pool, PAIR_ACCESS);
	if (result)
		return result;
	pair->rdma.devs.nr_doorbells = &pair->nr_doorbells;
	if (rdma_create_id(pair->rdma.cm->channel, &pair->listener, &pair->owner, RDMA_PS_TCP)) {
		pair->listener = NULL;
		return -errno;
	}
	if (rdma_bind_addr(pair->listener, (struct sockaddr *)&address) ||
		rdma_listen(pair->listener, 8))
		return -errno;
	return 0;
}

struct nvme_sgl_piece pair_piece(const struct pair *pair, uint32_t offset, uint32_t len)
{
	return (struct nvme_sgl_piece){
		.addr = (uintptr_t)pair->memory[0]->bytes + offset,
		.len = len,
		.key = rdma_dev_buf_mr(pair->client.ep.dev, pair->memory[0])->rkey,
	};
}
