/* SPDX-License-Identifier: MIT */
/*
 * The simulated transport and disk, and a host's few words.
 */
#include "tests/sim/target/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/identify.h"
#include "target/reservation_owner.h"

#define SIM_SETTLE_TURNS 200

struct nvme_connect_data sim_connect_data;
const char *sim_host = SIM_HOST;
uint8_t sim_hostid = 7;
struct nvme_reservation_keys sim_pull_keys;
const void *sim_pull_message;
const char *sim_state = "";

static struct sim *sim_of_conn(const struct conn *conn)
{
	return container_of(conn->reactor->target, struct sim, target);
}

static struct sim_conn *sim_conn_of(const struct conn *conn)
{
	struct sim *sim = sim_of_conn(conn);

	for (unsigned i = 0; i < sim->nr_conns; i++)
		if (sim->conns[i].conn == conn)
			return &sim->conns[i];
	fail_msg("a connection that is gone");
	return NULL;
}

static struct sim_request *sim_request(struct request *request)
{
	return (struct sim_request *)request->transport;
}

static void sim_enlist(struct list *list, struct request *request)
{
	struct sim_request *sr = sim_request(request);

	sr->request = request;
	list_init(&sr->node);
	list_push_back(list, &sr->node);
}

static struct request *sim_take(struct list *list)
{
	struct list *node = list_pop_front(list);

	return node ? container_of(node, struct sim_request, node)->request : NULL;
}

/* --- the transport --------------------------------------------------------------------------- */

struct sim_handover {
	struct transport_handover base;
	unsigned index; /* in sim->conns */
};

static int sim_start(struct conn *conn, struct transport_handover *handover)
{
	struct sim *sim = sim_of_conn(conn);
	struct sim_handover *sh = container_of(handover, struct sim_handover, base);
	struct transport_conn *tc = calloc(1, sizeof(*tc));

	tc->conn = conn;
	list_init(&tc->pulling);
	list_init(&tc->replying);
	conn->transport = tc;
	conn->local = conn->port->address;
	sim->conns[sh->index].conn = conn;
	free(sh);
	return 0;
}

static void sim_refuse(struct transport_handover *handover)
{
	free(container_of(handover, struct sim_handover, base));
}

static void sim_pull(struct request *request)
{
	assert_int_equal(request->state, REQUEST_PULL);
	assert_non_null(request->bytes);
	sim_enlist(&request->conn->transport->pulling, request);
	if (sim_of_conn(request->conn)->auto_pull)
		sim_do_pull(sim_conn_of(request->conn), 0);
}

static void sim_reply(struct request *request)
{
	struct sim_conn *sc = sim_conn_of(request->conn);

	assert_int_equal(request->state, REQUEST_REPLY);
	assert_int_equal(request->conn->state, CONN_LIVE);
	sim_of_conn(request->conn)->status[le16_get(request->cmd.cid)] =
		nvme_cqe_status(&request->cqe);
	sc->last = request->cqe;
	sc->last_more = nvme_cqe_status(&sc->last) & NVME_STATUS_MORE;
	nvme_cqe_set_status(&sc->last, nvme_cqe_status(&sc->last) & (uint16_t)~NVME_STATUS_MORE);
	sc->nr_replies++;
	sc->data_len = 0;
	if (request->direction == REQUEST_TO_HOST && !nvme_cqe_status(&request->cqe)) {
		sc->data_len = request->data_len;
		if (sc->data_len)
			memcpy(sc->data, request->bytes, min_of(sc->data_len, 4096u));
	}
	sim_enlist(&request->conn->transport->replying, request);
}

static void sim_close(struct conn *conn)
{
	assert_int_equal(conn->state, CONN_CLOSING);
	assert_false(conn->transport->close_asked);
	conn->transport->close_asked = true;
}

static void sim_free(struct conn *conn)
{
	assert_true(conn->transport_quiesced);
	assert_true(list_empty(&conn->transport->pulling));
	assert_true(list_empty(&conn->transport->replying));
	assert_int_equal(conn->nr_out, 0);
	assert_int_equal(slots_nr_used(&conn->slots), 0);
	sim_conn_of(conn)->conn = NULL;
	free(conn->transport);
}

static int sim_listen(struct port *port, char *why, size_t why_size)
{
	if (port->portid != SIM_PORT_FAILS)
		return 0;
	snprintf(why, why_size, "the port is told to fail");
	return -EADDRINUSE;
}

static void sim_unlisten(struct port *port)
{
	(void)port;
}

static const struct transport_ops sim_transport = {
	.name = "sim",
	.trtype = NVME_TRTYPE_TCP,
	.sgls = NVME_ID_SGLS_SUPPORTED,
	.msdbd = 1,
	.max_admin_depth = 128,
	.listen = sim_listen,
	.unlisten = sim_unlisten,
	.refuse = sim_refuse,
	.start = sim_start,
	.pull = sim_pull,
	.reply = sim_reply,
	.close = sim_close,
	.free = sim_free,
};

bool sim_do_pull(struct sim_conn *sc, uint16_t status)
{
	return sim_do_any_pull(sc, 0, status);
}

static struct request *sim_take_any(struct list *list, unsigned which)
{
	struct list *node = list->next;
	unsigned nr = 0;

	for (struct list *at = list->next; at != list; at = at->next)
		nr++;
	if (!nr)
		return NULL;
	for (which %= nr; which; which--)
		node = node->next;
	list_remove(node);
	return container_of(node, struct sim_request, node)->request;
}

bool sim_do_any_pull(struct sim_conn *sc, unsigned which, uint16_t status)
{
	struct request *request =
		sc->conn ? sim_take_any(&sc->conn->transport->pulling, which) : NULL;

	if (!request)
		return false;
	if (request->cmd.opcode == NVME_OPC_FABRICS && request->cmd.fctype == NVME_FCTYPE_AUTH_SEND)
		memcpy(request->bytes, sim_pull_message, request->data_len);
	else if (request->cmd.opcode == NVME_OPC_FABRICS &&
		 request->data_len == sizeof(sim_connect_data))
		memcpy(request->bytes, &sim_connect_data, sizeof(sim_connect_data));
	else if (!sim_of_conn(sc->conn)->keeps_data)
		for (uint32_t at = 0; at + 4 <= request->data_len; at += 4)
			memcpy((char *)request->bytes + at, &request->cmd.cdw2, 4);
	if (request->cmd.opcode != NVME_OPC_FABRICS && request->data_len <= sizeof(sim_pull_keys))
		memcpy(request->bytes, &sim_pull_keys, request->data_len);
	request_pulled(request, status);
	return true;
}

bool sim_do_reply(struct sim_conn *sc)
{
	struct request *request = sc->conn ? sim_take(&sc->conn->transport->replying) : NULL;

	if (request)
		request_sent(request);
	return request != NULL;
}

bool sim_do_quiesce(struct sim_conn *sc)
{
	struct transport_conn *tc = sc->conn ? sc->conn->transport : NULL;
	struct request *request;

	if (!tc || !tc->close_asked || sc->conn->transport_quiesced)
		return false;
	while ((request = sim_take(&tc->pulling)) || (request = sim_take(&tc->replying)))
		request_flushed(request);
	conn_quiesced(sc->conn);
	return true;
}

/* --- the disk -------------------------------------------------------------------------------- */

static struct sim *sim_of_queue(struct backend_queue *queue)
{
	/* The only backend there is belongs to the only simulation. */
	extern struct sim *sim_only;

	(void)queue;
	return sim_only;
}

struct sim *sim_only;

static void sim_submit(struct backend_queue *queue, struct backend_io *io)
{
	struct sim *sim = sim_of_queue(queue);

	assert_true(io->offset % 512 == 0 && io->offset < SIM_LBAS * 512ull);
	io->queue = queue;
	list_init(&io->loop_op.node);
	list_push_back(&sim->ios, &io->loop_op.node);
	sim->nr_ios++;
}

static void sim_move_blocks(struct sim *sim, struct backend_io *io)
{
	uint8_t *blocks = sim->media + io->offset;

	if (io->op == BACKEND_READ && !sim->has_media)
		memset(io->bytes, 0x5a, io->length);
	else if (io->op == BACKEND_READ)
		memcpy(io->bytes, blocks, io->length);
	else if (io->op == BACKEND_WRITE)
		memcpy(blocks, io->bytes, io->length);
	else if (io->op == BACKEND_WRITE_ZEROES || io->op == BACKEND_DISCARD)
		memset(blocks, 0, io->extent);
}

bool sim_do_io(struct sim *sim, unsigned which, int result)
{
	struct list *node = sim->ios.next;
	struct backend_io *io;

	if (!sim->nr_ios)
		return false;
	for (which %= sim->nr_ios; which; which--)
		node = node->next;
	list_remove(node);
	sim->nr_ios--;
	io = container_of(node, struct backend_io, loop_op.node);
	if (sim->before_io)
		sim->before_io(sim, io);
	if (!result)
		sim_move_blocks(sim, io);
	io->done.fn(&io->done, result, 0);
	return true;
}

static void sim_backend_close(struct backend *backend)
{
	free(backend);
}

static int sim_backend_attach(
	struct backend *backend, struct loop *loop, struct backend_queue **ret)
{
	struct backend_queue *queue;

	if (!sim_only->attaches_left)
		return -EMFILE;
	sim_only->attaches_left--;
	queue = calloc(1, sizeof(*queue));
	*queue = (struct backend_queue){.ops = backend->ops, .backend = backend, .loop = loop};
	*ret = queue;
	return 0;
}

static void sim_backend_detach(struct backend_queue *queue)
{
	free(queue);
}

static const struct backend_ops sim_backend = {.name = "sim",
	.close = sim_backend_close,
	.attach = sim_backend_attach,
	.detach = sim_backend_detach,
	.submit = sim_submit};

void sim_add_ns(struct catalog *catalog, struct subsys *subsys, uint32_t nsid, bool read_only)
{
	const struct nvme_uuid uuid = {{(uint8_t)nsid}};
	const struct ns_options options = {.nsid = nsid, .uuid = &uuid};
	struct backend *backend = calloc(1, sizeof(*backend));
	char why[128];

	backend->ops = &sim_backend;
	backend->nr_refs = 1;
	backend->path = strdup("sim");
	backend->geometry = (struct backend_geometry){.size_bytes = SIM_LBAS * 512ull,
		.block_bytes = 512,
		.read_only = read_only,
		.can_discard = true,
		.volatile_cache = true};
	assert_int_equal(
		catalog_add_backend(catalog, subsys, &options, backend, why, sizeof(why)), 0);
}

/* --- life ------------------------------------------------------------------------------------ */

static struct catalog *sim_first_catalog(struct sim *sim)
{
	struct catalog *catalog = catalog_create(sim->target.catalog);
	struct subsys *subsys;

	assert_int_equal(catalog_add_subsys(catalog, SIM_NQN, &subsys), 0);
	subsys->allow_any = true;
	sim_add_ns(catalog, subsys, 1, false);
	sim_add_ns(catalog, subsys, 3, true);
	assert_int_equal(catalog_add_subsys(catalog, SIM_OTHER, &subsys), 0);
	subsys->allow_any = true;
	sim_add_ns(catalog, subsys, 1, false);
	assert_int_equal(catalog_add_subsys(catalog, SIM_PRIVATE, &subsys), 0);
	assert_int_equal(subsys_allow_host(subsys, SIM_HOST ":friend"), 0);
	catalog->port[catalog->nr_ports++] = port_get(&sim->port);
	return catalog;
}

static void sim_published(struct publish *publish, int error)
{
	(void)publish;
	sim_only->publish_error = error;
}

int sim_publish(struct sim *sim, struct catalog *catalog)
{
	publish_start(&sim->target.publish, catalog, sim_published);
	while (publish_is_busy(&sim->target.publish))
		sim_settle(sim);
	return sim->publish_error;
}

struct sim *sim_create(unsigned nr_reactors, uint64_t memory_bytes)
{
	struct target_settings settings = TARGET_SETTINGS_DEFAULT;
	const struct loop_options options = {.engine = LOOP_ENGINE_EPOLL};
	struct sim *sim = calloc(1, sizeof(*sim));
	char why[256];

	sim_only = sim;
	settings.engine = LOOP_ENGINE_EPOLL;
	settings.spin_ns = 0;
	settings.memory_bytes = memory_bytes * nr_reactors;
	assert_int_equal(target_init(&sim->target, &settings), 0);
	assert_int_equal(loop_create(&options, &sim->target.loop), 0);
	assert_int_equal(
		reservation_table_create(&sim->target.reservations, sim_state, why, sizeof(why)),
		0);
	assert_int_equal(host_turns_init(&sim->target.host_turns, sim->target.loop), 0);
	assert_int_equal(host_turns_init(&sim->target.reservation_turns, sim->target.loop), 0);
	assert_int_equal(host_turns_init(&sim->target.auth_turns, sim->target.loop), 0);
	sim->target.nr_reactors = nr_reactors;
	list_init(&sim->ios);
	for (unsigned i = 0; i < nr_reactors; i++)
		assert_int_equal(reactor_create(&sim->target, i, &sim->target.reactors[i]), 0);
	sim->port.ops = &sim_transport;
	sim->port.option[TRANSPORT_MAX_QUEUE_SIZE] = 128;
	sim->port.option[TRANSPORT_IN_CAPSULE] = 8192;
	sim->port.option[TRANSPORT_MDTS] = CMD_MAX_BYTES;
	sim->port.reactor = sim->target.reactors[0];
	sim->port.portid = 1;
	sim->port.address.ss_family = AF_INET;
	sim->port.nr_refs = 1;
	sim->attaches_left = UINT32_MAX;
	list_init(&sim->port.early);
	sim->auto_disk = sim->auto_pull = sim->auto_reply = sim->auto_quiesce = true;
	assert_int_equal(sim_publish(sim, sim_first_catalog(sim)), 0);
	return sim;
}

/* What is automatic, once. */
static bool sim_step(struct sim *sim)
{
	bool moved = false;

	while (sim->auto_disk && sim_do_io(sim, 0, sim->next_result))
		moved = true;
	for (unsigned i = 0; i < sim->nr_conns; i++) {
		struct sim_conn *sc = &sim->conns[i];

		while (sim->auto_pull && sim_do_pull(sc, 0))
			moved = true;
		while (sim->auto_reply && sim_do_reply(sc))
			moved = true;
		if (sim->auto_quiesce && sim_do_quiesce(sc))
			moved = true;
	}
	return moved;
}

void sim_settle(struct sim *sim)
{
	for (unsigned idle = 0, turns = 0; idle < 3; turns++) {
		bool moved = sim_step(sim);

		for (unsigned i = 0; i < sim->target.nr_reactors; i++)
			moved |= loop_turn(sim->target.reactors[i]->loop) > 0;
		moved |= loop_turn(sim->target.loop) > 0;
		idle = moved ? 0 : idle + 1;
		assert_true(turns < SIM_SETTLE_TURNS);
	}
}

static void sim_check_empty(struct sim *sim)
{
	struct bufpool_stats stats;

	assert_int_equal(sim->target.nr_conns_all, 0);
	assert_int_equal(sim->nr_ios, 0);
	for (unsigned i = 0; i < sim->target.nr_reactors; i++) {
		struct reactor *reactor = sim->target.reactors[i];

		assert_true(list_empty(&reactor->conns));
		bufpool_stats_get(reactor->pool, &stats);
		assert_int_equal(stats.nr_used, 0);
		assert_int_equal(stats.nr_waiting, 0);
		for (unsigned j = 0; j < REACTOR_MAX_CTRLS; j++)
			assert_null(reactor->ctrls[j]);
		assert_int_equal(reactor->nr_ctrls, 0);
		assert_true(list_empty(&reactor->shares.tried));
		assert_true(list_empty(&reactor->shares.untried));
		for (unsigned j = 0; j < SHARE_NR_ROWS; j++)
			assert_true(list_empty(&reactor->shares.rows[j]));
	}
	for (unsigned i = 0; i < sim->nr_conns; i++)
		assert_null(sim->conns[i].conn);
}

void sim_destroy(struct sim *sim)
{
	sim->auto_disk = sim->auto_pull = sim->auto_reply = sim->auto_quiesce = true;
	for (unsigned i = 0; i < sim->nr_conns; i++)
		if (sim->conns[i].conn)
			conn_close(sim->conns[i].conn, "the test is over");
	sim_settle(sim);
	sim_check_empty(sim);
	for (unsigned i = 0; i < sim->target.nr_reactors; i++) {
		reactor_ns_detach_all(sim->target.reactors[i]);
		reactor_destroy(sim->target.reactors[i]);
	}
	publish_forget(&sim->target.publish);
	assert_int_equal(sim->port.nr_refs, 1);
	sim->target.nr_reactors = 0;
	target_destroy(&sim->target);
	sim_only = NULL;
	free(sim);
}

/* --- a host ---------------------------------------------------------------------------------- */

struct sim_conn *sim_accept(struct sim *sim)
{
	return sim_accept_at(sim, &sim->port);
}

struct sim_conn *sim_accept_at(struct sim *sim, struct port *port)
{
	struct sim_handover *handover = calloc(1, sizeof(*handover));
	unsigned index = sim->nr_conns++;

	assert_true(index < SIM_MAX_CONN);
	handover->index = index;
	handover->base.peer.ss_family = AF_INET;
	((struct sockaddr_in *)&handover->base.peer)->sin_addr.s_addr =
		htonl(0x0a000000 + sim->host);
	conn_accept(port, &handover->base);
	sim_settle(sim);
	return sim->conns[index].conn ? &sim->conns[index] : NULL;
}

bool sim_send(struct sim *sim, struct sim_conn *sc, const struct nvme_cmd *cmd)
{
	struct request *request = sc->conn ? request_get(sc->conn) : NULL;

	(void)sim;
	if (!request)
		return false;
	request->cmd = *cmd;
	sim->status[le16_get(cmd->cid)] = SIM_NO_ANSWER;
	sc->nr_sent++;
	request_received(request);
	return true;
}

uint16_t sim_run(struct sim *sim, struct sim_conn *sc, const struct nvme_cmd *cmd)
{
	unsigned before = sc->nr_replies;

	assert_true(sim_send(sim, sc, cmd));
	sim_settle(sim);
	assert_int_equal(sc->nr_replies, before + 1);
	return nvme_cqe_status(&sc->last);
}

struct nvme_cmd sim_cmd(uint8_t opcode, uint32_t nsid, uint32_t data_len)
{
	static uint16_t cid;

	return (struct nvme_cmd){.opcode = opcode,
		.flags = NVME_CMD_PSDT_SGL,
		.cid = le16(cid++),
		.nsid = le32(nsid),
		.sgl = nvme_sgl_transport(data_len)};
}

struct nvme_cmd sim_rw(uint8_t opcode, uint64_t slba, uint32_t nr_lbas)
{
	struct nvme_cmd cmd = sim_cmd(opcode, 1, nr_lbas * 512);

	cmd.rw.slba = le64(slba);
	cmd.rw.nlb = le16((uint16_t)(nr_lbas - 1));
	return cmd;
}

struct nvme_cmd sim_connect(const char *subnqn, uint16_t qid, uint16_t sqsize, uint16_t cntlid)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FABRICS, 0, sizeof(sim_connect_data));

	cmd.nsid = le32(0);
	cmd.fctype = NVME_FCTYPE_CONNECT;
	cmd.connect.qid = le16(qid);
	cmd.connect.sqsize = le16(sqsize);
	memset(&sim_connect_data, 0, sizeof(sim_connect_data));
	memset(sim_connect_data.hostid, sim_hostid, sizeof(sim_connect_data.hostid));
	sim_connect_data.cntlid = le16(cntlid);
	snprintf(sim_connect_data.subnqn, sizeof(sim_connect_data.subnqn), "%s", subnqn);
	snprintf(sim_connect_data.hostnqn, sizeof(sim_connect_data.hostnqn), "%s", sim_host);
	return cmd;
}

uint16_t sim_cntlid(const struct sim_conn *admin)
{
	return admin->conn->cntlid;
}

struct nvme_cmd sim_property_set_cc(uint32_t cc)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FABRICS, 0, 0);

	cmd.fctype = NVME_FCTYPE_PROPERTY_SET;
	cmd.property.ofst = le32(NVME_PROPERTY_CC);
	cmd.property.value = le64(cc);
	return cmd;
}

uint16_t sim_set_cc(struct sim *sim, struct sim_conn *admin, uint32_t cc)
{
	struct nvme_cmd cmd = sim_property_set_cc(cc);

	return sim_run(sim, admin, &cmd);
}

struct sim_conn *sim_admin(struct sim *sim, const char *subnqn)
{
	struct sim_conn *sc = sim_accept(sim);
	struct nvme_cmd cmd = sim_connect(subnqn, 0, 31, NVME_CNTLID_DYNAMIC);

	assert_non_null(sc);
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	assert_int_equal(sim_set_cc(sim, sc, SIM_CC_ENABLE), 0);
	return sc;
}

struct sim_conn *sim_queue(
	struct sim *sim, const struct sim_conn *admin, uint16_t qid, uint16_t depth)
{
	struct sim_conn *sc = sim_accept(sim);
	struct nvme_cmd cmd = sim_connect(
		admin->conn->subsys->nqn, qid, (uint16_t)(depth - 1), sim_cntlid(admin));

	assert_non_null(sc);
	assert_int_equal(sim_run(sim, sc, &cmd), 0);
	return sc;
}

int sim_host_start(void **state, unsigned nr_reactors, uint64_t memory_bytes, uint16_t depth)
{
	struct sim_host *host = calloc(1, sizeof(*host));

	assert_non_null(host);
	host->sim = sim_create(nr_reactors, memory_bytes);
	host->admin = sim_admin(host->sim, SIM_NQN);
	host->queue = depth ? sim_queue(host->sim, host->admin, 1, depth) : NULL;
	*state = host;
	return 0;
}

int sim_host_end(void **state)
{
	struct sim_host *host = *state;

	sim_destroy(host->sim);
	free(host);
	return 0;
}

uint16_t sim_ask_event(struct sim *sim, struct sim_conn *admin)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_ASYNC_EVENT_REQUEST, 0, 0);

	assert_true(sim_send(sim, admin, &cmd));
	sim_settle(sim);
	return le16_get(cmd.cid);
}

void sim_get_log(struct sim *sim, struct sim_conn *admin, uint8_t lid, uint64_t offset,
	uint32_t length, uint8_t lsp)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_GET_LOG_PAGE, NVME_NSID_ALL, length);

	cmd.get_log.lid = lid;
	cmd.get_log.lsp = lsp;
	cmd.get_log.numdl = le16((uint16_t)(length / 4 - 1));
	cmd.get_log.lpo = le64(offset);
	assert_true(sim_send(sim, admin, &cmd));
	sim_settle(sim);
	assert_int_equal(nvme_cqe_status(&admin->last), 0);
}

void sim_set_feature(struct sim *sim, struct sim_conn *admin, uint8_t fid, uint32_t value)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_SET_FEATURES, 0, 0);

	cmd.features.fid = fid;
	cmd.features.cdw11 = le32(value);
	assert_int_equal(sim_run(sim, admin, &cmd), 0);
}
