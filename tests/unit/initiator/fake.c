/* SPDX-License-Identifier: MIT */
/*
 * The target inside the process.
 */
#include "tests/unit/initiator/fake.h"

#include "initiator/ctrl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fake fake;

struct haul_transport_queue {
	struct haul_queue *queue;
	struct list asked; /* struct fake_slot: not looked at yet */
	struct list held;  /* will not be answered, or later */
	struct loop_flush flush;
	struct loop_timer timer;
	int connecting, disconnecting, is_open;
};

struct fake_slot {
	struct list node;
	enum fake_what what;
	enum fake_how how;
};
static_assert(sizeof(struct fake_slot) <= HAUL_REQUEST_TRANSPORT_BYTES);

static struct haul_transport_queue *fake_queues[FAKE_MAX_QUEUES];

static struct fake_slot *fake_slot(struct haul_request *request)
{
	return (struct fake_slot *)request->transport;
}

static struct haul_request *fake_request(struct list *node)
{
	struct fake_slot *slot = container_of(node, struct fake_slot, node);

	return (struct haul_request *)(void *)((char *)slot -
					       offsetof(struct haul_request, transport));
}

/* --- the target's side ------------------------------------------------------------------------ */

static enum fake_what fake_what_fabrics(const struct haul_request *request)
{
	switch (request->cmd.fctype) {
	case NVME_FCTYPE_CONNECT:
		return request->queue->qid ? FAKE_CONNECT_IO : FAKE_CONNECT;
	case NVME_FCTYPE_PROPERTY_SET:
		return FAKE_SET_CC;
	case NVME_FCTYPE_PROPERTY_GET:
		switch (le32_get(request->cmd.property.ofst)) {
		case NVME_PROPERTY_CAP:
			return FAKE_CAP;
		case NVME_PROPERTY_VS:
			return FAKE_VS;
		default:
			return FAKE_CSTS;
		}
	default:
		return FAKE_OTHER;
	}
}

static enum fake_what fake_what_identify(const struct nvme_cmd *cmd)
{
	switch (cmd->identify.cns) {
	case NVME_CNS_CTRL:
		return FAKE_ID_CTRL;
	case NVME_CNS_CSI_CTRL:
		return FAKE_ID_LIMITS;
	case NVME_CNS_ACTIVE_NS_LIST:
		return FAKE_ID_NS_LIST;
	case NVME_CNS_NS:
		return FAKE_ID_NS;
	case NVME_CNS_NS_DESC_LIST:
		return FAKE_ID_DESC;
	default:
		return FAKE_OTHER;
	}
}

static enum fake_what fake_what(const struct haul_request *request)
{
	static const struct {
		uint8_t opcode;
		enum fake_what what;
	} io[] = {{NVME_OPC_READ, FAKE_READ}, {NVME_OPC_WRITE, FAKE_WRITE},
		{NVME_OPC_FLUSH, FAKE_FLUSH}, {NVME_OPC_DSM, FAKE_DSM},
		{NVME_OPC_WRITE_ZEROES, FAKE_ZEROES}},
	  admin[] = {{NVME_OPC_SET_FEATURES, FAKE_SET_QUEUES},
		  {NVME_OPC_KEEP_ALIVE, FAKE_KEEP_ALIVE}, {NVME_OPC_GET_LOG_PAGE, FAKE_LOG}};

	if (request->cmd.opcode == NVME_OPC_FABRICS)
		return fake_what_fabrics(request);
	if (!request->queue->qid && request->cmd.opcode == NVME_OPC_IDENTIFY)
		return fake_what_identify(&request->cmd);
	for (size_t i = 0; i < ARRAY_SIZE(io); i++)
		if (request->queue->qid && io[i].opcode == request->cmd.opcode)
			return io[i].what;
	for (size_t i = 0; i < ARRAY_SIZE(admin); i++)
		if (!request->queue->qid && admin[i].opcode == request->cmd.opcode)
			return admin[i].what;
	return FAKE_OTHER;
}

static void fake_note_io(const struct haul_request *request)
{
	struct fake_io *io = &fake.ios[fake.nr_ios++ % FAKE_MAX_LOG];

	*io = (struct fake_io){.opcode = request->cmd.opcode,
		.slba = le64_get(request->cmd.rw.slba),
		.nlb = le16_get(request->cmd.rw.nlb) + 1u,
		.control = le16_get(request->cmd.rw.control),
		.data_len = request->data_len,
		.nr_iov = request->nr_iov};
	if (request->cmd.opcode == NVME_OPC_DSM) {
		io->slba = le64_get(request->range.slba);
		io->nlb = le32_get(request->range.nlb);
	}
	if (++fake.nr_out > fake.max_out)
		fake.max_out = fake.nr_out;
}

static void fake_copy(const struct haul_request *request, uint8_t *there)
{
	for (uint32_t i = 0; i < request->nr_iov; i++) {
		if (request->to_host)
			memcpy(request->iov[i].iov_base, there, request->iov[i].iov_len);
		else
			memcpy(there, request->iov[i].iov_base, request->iov[i].iov_len);
		there += request->iov[i].iov_len;
	}
}

static void fake_answer_connect(const struct haul_request *request, struct nvme_cqe *cqe)
{
	const struct nvme_connect_data *data = request->iov[0].iov_base;

	assert_int_equal(request->data_len, sizeof(*data));
	memcpy(fake.last_nqn, data->subnqn, sizeof(data->subnqn));
	fake.last_sqsize = le16_get(request->cmd.connect.sqsize);
	if (!request->queue->qid)
		fake.last_kato = le32_get(request->cmd.connect.kato);
	cqe->connect_ok.cntlid = le16(request->queue->qid ? fake.cntlid_io : fake.cntlid);
}

static uint16_t fake_answer(struct haul_request *request, struct nvme_cqe *cqe)
{
	void *bytes = request->iov[0].iov_base;
	uint64_t at = le64_get(request->cmd.rw.slba) * FAKE_BLOCK;

	switch (fake_slot(request)->what) {
	case FAKE_CONNECT:
	case FAKE_CONNECT_IO:
		fake_answer_connect(request, cqe);
		return 0;
	case FAKE_CAP:
		cqe->property = le64(fake.cap);
		return 0;
	case FAKE_VS:
		cqe->property = le64(fake.vs);
		return 0;
	case FAKE_SET_CC:
		fake.cc = (uint32_t)le64_get(request->cmd.property.value);
		return 0;
	case FAKE_CSTS:
		cqe->property = le64(NVME_CC_SHN(fake.cc) ? NVME_CSTS_SHST_COMPLETE : fake.csts);
		return 0;
	case FAKE_ID_CTRL:
		memcpy(bytes, &fake.id_ctrl, sizeof(fake.id_ctrl));
		return 0;
	case FAKE_ID_LIMITS:
		memcpy(bytes, &fake.id_limits, sizeof(fake.id_limits));
		return 0;
	case FAKE_ID_NS_LIST:
		memset(bytes, 0, NVME_IDENTIFY_SIZE);
		if (fake.ns_list)
			fake.ns_list(&fake, le32_get(request->cmd.nsid), bytes);
		else
			((struct nvme_ns_list *)bytes)->nsid[0] = le32(1);
		return 0;
	case FAKE_ID_NS:
		memcpy(bytes, &fake.id_ns, sizeof(fake.id_ns));
		return 0;
	case FAKE_ID_DESC:
		memset(bytes, 0, NVME_IDENTIFY_SIZE);
		memcpy(bytes, (uint8_t[]){NVME_NIDT_UUID, 16, 0, 0, 0xaa, 0xbb}, 6);
		return 0;
	case FAKE_SET_QUEUES:
		cqe->dw0 = le32(fake.dw0_queues);
		return 0;
	case FAKE_LOG:
		memset(bytes, 0, request->data_len);
		return fake.log ? fake.log(&fake, le64_get(request->cmd.get_log.lpo), bytes,
					  request->data_len,
					  request->cmd.get_log.lsp & NVME_GET_LOG_RAE)
				: 0;
	case FAKE_READ:
	case FAKE_WRITE:
		assert_true(at + request->data_len <= (uint64_t)FAKE_NR_BLOCKS * FAKE_BLOCK);
		fake_copy(request, fake.disk + at);
		return 0;
	default:
		return 0;
	}
}

static uint32_t fake_random(uint32_t below)
{
	fake.garble = fake.garble * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(fake.garble >> 33) % below;
}

/* What a target may send is any bytes: some of the right ones are replaced. */
static void fake_garble(struct haul_request *request, struct nvme_cqe *cqe, uint16_t *status)
{
	uint8_t *bytes = request->iov[0].iov_base;
	uint32_t nr = fake_random(3) ? 0 : 1 + fake_random(40);

	if (fake_random(40) == 0)
		*status = (uint16_t)fake_random(0x8000);
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t value = fake_random(3) == 0 ? 0xff : fake_random(256);

		/* most of what matters is at the start of a page */
		if (request->to_host && request->data_len)
			bytes[fake_random(fake_random(2) ? request->data_len : 136)] =
				(uint8_t)value;
		else if (fake_random(8) == 0)
			cqe->property.b[fake_random(8)] = (uint8_t)value;
	}
}

static void fake_complete(struct haul_request *request, uint16_t status)
{
	struct nvme_cqe cqe = {.cid = request->cmd.cid};

	if (request->queue->qid && request->cmd.opcode != NVME_OPC_FABRICS)
		fake.nr_out--;
	if (!status)
		status = fake_answer(request, &cqe);
	if (fake.garble)
		fake_garble(request, &cqe, &status);
	nvme_cqe_set_status(&cqe, status);
	assert_ptr_equal(haul_queue_request_by_cid(request->queue, le16_get(cqe.cid)), request);
	haul_request_done(request, 0, &cqe);
}

static void fake_give_back(struct haul_request *request, int result)
{
	if (request->queue->qid && request->cmd.opcode != NVME_OPC_FABRICS)
		fake.nr_out--;
	haul_request_done(request, result, NULL);
}

static struct fake_rule fake_rule(enum fake_what what)
{
	struct fake_rule rule = fake.rules[what];

	if (fake.nr_asked[what]++ < rule.skip)
		rule.how = FAKE_GOOD;
	return rule;
}

/* --- the transport's side --------------------------------------------------------------------- */

static void fake_handle(struct haul_request *request)
{
	struct haul_transport_queue *tq = request->queue->transport;
	struct fake_slot *slot = fake_slot(request);
	struct fake_rule rule = fake_rule(slot->what);

	slot->how = rule.how;
	switch (rule.how) {
	case FAKE_GOOD:
		if (fake.hold && request->queue->qid && request->cmd.opcode != NVME_OPC_FABRICS)
			list_push_back(&tq->held, &slot->node);
		else
			fake_complete(request, 0);
		return;
	case FAKE_STATUS:
		fake_complete(request, rule.status);
		return;
	case FAKE_ERROR:
		fake_give_back(request, rule.error);
		return;
	case FAKE_BREAK:
		list_push_back(&tq->held, &slot->node);
		haul_queue_failed(request->queue, rule.error, "the connection broke");
		return;
	case FAKE_SILENT:
	case FAKE_LATE:
		list_push_back(&tq->held, &slot->node);
	}
}

static void fake_connected(struct haul_transport_queue *tq)
{
	struct fake_rule rule = fake_rule(FAKE_TRANSPORT);

	tq->connecting = 0;
	if (rule.how == FAKE_SILENT)
		return;
	if (rule.how == FAKE_GOOD) {
		tq->is_open = 1;
		fake.nr_queues_open++;
		if (fake.lower_depth && tq->queue->qid)
			tq->queue->depth = min_of(tq->queue->depth, fake.lower_depth);
	}
	haul_queue_connected(tq->queue, rule.how == FAKE_GOOD ? 0 : rule.error, "no way there");
}

static void fake_disconnected(struct haul_transport_queue *tq)
{
	struct list *node;

	tq->disconnecting = 0;
	list_splice_back(&tq->held, &tq->asked);
	while ((node = list_pop_front(&tq->held))) {
		struct haul_request *request = fake_request(node);

		if (fake_slot(request)->how == FAKE_LATE)
			fake_complete(request, 0);
		else
			fake_give_back(request, -ECANCELED);
	}
	if (tq->is_open)
		fake.nr_queues_open--;
	tq->is_open = 0;
	haul_queue_quiesced(tq->queue);
}

/* Everything is answered from a timer of a later turn, as real ones answer from completions. */
static void fake_turn(struct loop_timer *timer)
{
	struct haul_transport_queue *tq = container_of(timer, struct haul_transport_queue, timer);
	struct list *node;

	if (tq->disconnecting) {
		fake_disconnected(tq);
		return;
	}
	if (tq->connecting)
		fake_connected(tq);
	while (!tq->disconnecting && (node = list_pop_front(&tq->asked)))
		fake_handle(fake_request(node));
}

static void fake_flush(struct loop_flush *flush)
{
	struct haul_transport_queue *tq = container_of(flush, struct haul_transport_queue, flush);

	loop_timer_set(tq->queue->loop, &tq->timer, loop_now_ns(tq->queue->loop));
}

static void fake_later(struct haul_transport_queue *tq)
{
	loop_flush_later(tq->queue->loop, &tq->flush);
}

static int fake_alloc(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = calloc(1, sizeof(*tq));

	assert_non_null(tq);
	assert_int_equal(loop_timers_reserve(queue->loop, 1), 0);
	tq->queue = queue;
	list_init(&tq->asked);
	list_init(&tq->held);
	loop_flush_init(&tq->flush, fake_flush);
	loop_timer_init(&tq->timer, fake_turn);
	queue->transport = tq;
	for (size_t i = 0; i < FAKE_MAX_QUEUES; i++)
		if (!fake_queues[i]) {
			fake_queues[i] = tq;
			return 0;
		}
	fail_msg("too many queues");
	return -ENOMEM;
}

static void fake_connect(struct haul_queue *queue)
{
	if (fake.reached)
		fake.reached(&fake, (const struct sockaddr_in *)&queue->address);
	queue->transport->connecting = 1;
	fake_later(queue->transport);
}

static void fake_submit(struct haul_queue *queue, struct haul_request *request)
{
	struct fake_slot *slot = fake_slot(request);

	list_init(&slot->node);
	slot->what = fake_what(request);
	slot->how = FAKE_GOOD;
	if (queue->qid && request->cmd.opcode != NVME_OPC_FABRICS)
		fake_note_io(request);
	list_push_back(&queue->transport->asked, &slot->node);
	fake_later(queue->transport);
}

static void fake_disconnect(struct haul_queue *queue)
{
	assert_false(queue->transport->disconnecting);
	queue->transport->disconnecting = 1;
	fake_later(queue->transport);
}

static void fake_free(struct haul_queue *queue)
{
	struct haul_transport_queue *tq = queue->transport;

	assert_true(list_empty(&tq->asked) && list_empty(&tq->held));
	loop_flush_cancel(&tq->flush);
	loop_timer_cancel(queue->loop, &tq->timer);
	loop_timers_unreserve(queue->loop, 1);
	for (size_t i = 0; i < FAKE_MAX_QUEUES; i++)
		if (fake_queues[i] == tq)
			fake_queues[i] = NULL;
	free(tq);
}

static const struct haul_transport_ops fake_ops_tcp = {.name = "tcp",
					       .trtype = NVME_TRTYPE_TCP,
					       .alloc = fake_alloc,
					       .connect = fake_connect,
					       .submit = fake_submit,
					       .disconnect = fake_disconnect,
					       .free = fake_free},
				       fake_ops_rdma = {.name = "rdma",
					       .trtype = NVME_TRTYPE_RDMA,
					       .alloc = fake_alloc,
					       .connect = fake_connect,
					       .submit = fake_submit,
					       .disconnect = fake_disconnect,
					       .free = fake_free};
const struct haul_transport_ops *const haul_transports[HAUL_NR_TRANSPORTS] = {
	[HAUL_TRANSPORT_RDMA] = &fake_ops_rdma, [HAUL_TRANSPORT_TCP] = &fake_ops_tcp};

void fake_release(uint32_t n)
{
	for (size_t i = 0; i < FAKE_MAX_QUEUES && n; i++) {
		struct list *node;

		while (fake_queues[i] && n && (node = list_pop_front(&fake_queues[i]->held))) {
			fake_complete(fake_request(node), 0);
			n--;
		}
	}
}

/* --- set-up ----------------------------------------------------------------------------------- */

int fake_setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(fake_queues, 0, sizeof(fake_queues));
	fake.disk = calloc(FAKE_NR_BLOCKS, FAKE_BLOCK);
	fake.cap = 127 | NVME_CAP_CQR | NVME_CAP_CSS_NVM | 1ull << NVME_CAP_TO_SHIFT;
	fake.vs = NVME_VERSION(2, 0, 0);
	fake.csts = NVME_CSTS_RDY;
	fake.cntlid = fake.cntlid_io = 7;
	fake.dw0_queues = NVME_NUMBER_OF_QUEUES(7, 7);
	fake.id_ctrl.cntlid = le16(7);
	fake.id_ctrl.kas = le16(10);
	fake.id_ctrl.mdts = 5;
	fake.id_ctrl.sqes = 0x66;
	fake.id_ctrl.cqes = 0x44;
	fake.id_ctrl.oncs = le16(NVME_ID_ONCS_DSM | NVME_ID_ONCS_WRITE_ZEROES);
	fake.id_ctrl.sgls = le32(NVME_ID_SGLS_SUPPORTED | NVME_ID_SGLS_KEYED | NVME_ID_SGLS_OFFSET);
	fake.id_ctrl.ioccsz = le32(260);
	fake.id_ctrl.iorcsz = le32(1);
	fake.id_ctrl.msdbd = 16;
	fake.id_ctrl.cntrltype = NVME_CNTRLTYPE_IO;
	memset(fake.id_ctrl.sn, ' ', sizeof(fake.id_ctrl.sn));
	fake.id_ns.nsze = fake.id_ns.ncap = fake.id_ns.nuse = le64(FAKE_NR_BLOCKS);
	fake.id_ns.lbaf[0].ds = 9;
	return fake.disk ? 0 : -1;
}

int fake_teardown(void **state)
{
	(void)state;
	free(fake.disk);
	assert_int_equal(fake.nr_queues_open, 0);
	assert_int_equal(fake.nr_out, 0);
	for (size_t i = 0; i < FAKE_MAX_QUEUES; i++)
		assert_null(fake_queues[i]);
	return 0;
}

/* --- again and again -------------------------------------------------------------------------- */

struct haul_loop *loop_good(void)
{
	struct haul_loop *hl;

	assert_int_equal(haul_loop_create(NULL, &hl), 0);
	return hl;
}

struct haul_event wait_event(struct haul_loop *hl)
{
	struct haul_event event;

	if (haul_loop_wait(hl, &event, 1, 60000000000) != 1)
		fail_msg("no event within a minute");
	return event;
}

int wait_for(struct haul_loop *hl, uint64_t user_data)
{
	struct haul_event event = wait_event(hl);

	assert_int_equal(event.user_data, user_data);
	return event.result;
}

struct haul_ctrl *connect_good(struct haul_loop *hl)
{
	struct haul_ctrl *ctrl;
	int result;

	assert_int_equal(haul_connect(hl, FAKE_URI, NULL, 1, &ctrl), 0);
	result = wait_for(hl, 1);
	if (result)
		fail_msg("%s", haul_ctrl_error(ctrl));
	return ctrl;
}

struct haul_queue *queue_good(struct haul_ctrl *ctrl, uint32_t depth)
{
	struct haul_queue_options options = {sizeof(options), depth};
	struct haul_queue *queue;

	assert_int_equal(haul_queue_create(ctrl, &options, 2, &queue), 0);
	assert_int_equal(wait_for(ctrl->hl, 2), 0);
	return queue;
}
