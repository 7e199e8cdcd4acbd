/* SPDX-License-Identifier: MIT */
/*
 * The library's core joined with its real TCP transport: targets that die while an I/O queue is
 * being made, or never say anything, and what must still come to its end then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "initiator/transport.h"
#include "proto/nvme/identify.h"
#include "proto/nvme/tcp.h"

#define SKIPPED	    77
#define PATIENCE_NS 5000000000ll
#define NR_CONNS    2 /* admin queue, one I/O queue */

const struct haul_transport_ops *const haul_transports[HAUL_NR_TRANSPORTS] = {
	[HAUL_TRANSPORT_TCP] = &haul_transport_tcp_ops};

static const char *engine;

/* --- a target of a few lines ----------------------------------------------------------------- */

struct conn {
	int fd; /* -1: none */
	size_t len;
	uint8_t bytes[16384];
};

static struct {
	int listen_fd;
	uint16_t port;
	uint32_t nr_conns;
	struct conn conns[NR_CONNS];
} target;

static void target_open(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	target.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	target.nr_conns = 0;
	for (uint32_t i = 0; i < NR_CONNS; i++)
		target.conns[i] = (struct conn){.fd = -1};
	assert_true(target.listen_fd >= 0);
	assert_int_equal(bind(target.listen_fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(target.listen_fd, 8), 0);
	assert_int_equal(getsockname(target.listen_fd, (struct sockaddr *)&address, &len), 0);
	target.port = ntohs(address.sin_port);
}

/* With a reset, or with the regular end of the stream. */
static void target_hang_up(uint32_t i, bool reset)
{
	const struct linger at_once = {.l_onoff = 1};
	struct conn *conn = &target.conns[i];

	if (conn->fd < 0)
		return;
	if (reset)
		assert_int_equal(
			setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	close(conn->fd);
	conn->fd = -1;
}

static void target_close(void)
{
	for (uint32_t i = 0; i < NR_CONNS; i++)
		target_hang_up(i, false);
	close(target.listen_fd);
}

static void conn_send(const struct conn *conn, const void *bytes, size_t len)
{
	assert_int_equal(send(conn->fd, bytes, len, MSG_NOSIGNAL), len);
}

static void conn_send_ic_resp(const struct conn *conn)
{
	const struct nvme_tcp_ic_resp resp = {
		.ch = {.type = NVME_TCP_IC_RESP, .hlen = sizeof(resp), .plen = le32(sizeof(resp))},
		.maxh2cdata = le32(65536),
	};

	conn_send(conn, &resp, sizeof(resp));
}

static void conn_send_identify(const struct conn *conn, const struct nvme_cmd *cmd)
{
	struct {
		struct nvme_tcp_data header;
		uint8_t page[NVME_IDENTIFY_SIZE];
	} pdu = {.header = {
			 .ch = {.type = NVME_TCP_C2H_DATA,
				 .flags = NVME_TCP_LAST_PDU,
				 .hlen = sizeof(pdu.header),
				 .pdo = sizeof(pdu.header),
				 .plen = le32(sizeof(pdu))},
			 .cccid = cmd->cid,
			 .datal = le32(sizeof(pdu.page)),
		 }};
	struct nvme_id_ctrl *id = (struct nvme_id_ctrl *)pdu.page;

	if (cmd->identify.cns == NVME_CNS_CTRL)
		*id = (struct nvme_id_ctrl){.cntlid = le16(1),
			.kas = le16(10),
			.sqes = 0x66,
			.cqes = 0x44,
			.sgls = le32(NVME_ID_SGLS_SUPPORTED),
			.ioccsz = le32(4),
			.iorcsz = le32(1),
			.cntrltype = NVME_CNTRLTYPE_IO};
	conn_send(conn, &pdu, sizeof(pdu));
}

static uint64_t target_property(const struct nvme_cmd *cmd)
{
	switch (le32_get(cmd->property.ofst)) {
	case NVME_PROPERTY_CAP:
		return 127 | NVME_CAP_CQR | NVME_CAP_CSS_NVM | 1ull << NVME_CAP_TO_SHIFT;
	case NVME_PROPERTY_VS:
		return NVME_VERSION(1, 3, 0);
	default:
		return NVME_CSTS_RDY;
	}
}

static void conn_answer_command(const struct conn *conn, const struct nvme_cmd *cmd)
{
	struct nvme_tcp_capsule_resp resp = {
		.ch = {.type = NVME_TCP_CAPSULE_RESP,
			.hlen = sizeof(resp),
			.plen = le32(sizeof(resp))},
		.cqe.cid = cmd->cid,
	};

	if (cmd->opcode == NVME_OPC_IDENTIFY)
		conn_send_identify(conn, cmd);
	else if (cmd->opcode != NVME_OPC_FABRICS)
		resp.cqe.dw0 = le32(NVME_NUMBER_OF_QUEUES(1, 1));
	else if (cmd->fctype == NVME_FCTYPE_CONNECT)
		resp.cqe.connect_ok.cntlid = le16(1);
	else if (cmd->fctype == NVME_FCTYPE_PROPERTY_GET)
		resp.cqe.property = le64(target_property(cmd));
	conn_send(conn, &resp, sizeof(resp));
}

static void conn_answer(struct conn *conn)
{
	const struct nvme_tcp_ch *ch = (const struct nvme_tcp_ch *)conn->bytes;
	ssize_t n = recv(
		conn->fd, conn->bytes + conn->len, sizeof(conn->bytes) - conn->len, MSG_DONTWAIT);
	struct nvme_cmd cmd;
	uint32_t plen;

	conn->len += n > 0 ? (size_t)n : 0;
	while (conn->len >= sizeof(*ch) && conn->len >= (plen = le32_get(ch->plen))) {
		memcpy(&cmd, conn->bytes + offsetof(struct nvme_tcp_capsule_cmd, cmd), sizeof(cmd));
		if (ch->type == NVME_TCP_IC_REQ)
			conn_send_ic_resp(conn);
		else
			conn_answer_command(conn, &cmd);
		conn->len -= plen;
		memmove(conn->bytes, conn->bytes + plen, conn->len);
	}
}

/* Answers the admin queue; the other is never answered. */
static void target_turn(void)
{
	int fd = accept(target.listen_fd, NULL, NULL);

	if (fd >= 0) {
		assert_true(target.nr_conns < NR_CONNS);
		target.conns[target.nr_conns++].fd = fd;
	}
	if (target.conns[0].fd >= 0)
		conn_answer(&target.conns[0]);
}

/* --- the library ----------------------------------------------------------------------------- */

static int wait_for(struct haul_loop *hl, uint64_t user_data)
{
	struct haul_event event;

	for (int64_t ns = 0; ns < PATIENCE_NS; ns += 1000000) {
		target_turn();
		if (haul_loop_wait(hl, &event, 1, 1000000) != 1)
			continue;
		assert_int_equal(event.user_data, user_data);
		return event.result;
	}
	fail_msg("event %d does not come", (int)user_data);
	return 0;
}

static struct haul_loop *loop_good(void)
{
	struct haul_loop_options options = {.size = sizeof(options), .engine = engine};
	struct haul_loop *hl;

	assert_int_equal(haul_loop_create(&options, &hl), 0);
	return hl;
}

static struct haul_ctrl *connect_good(struct haul_loop *hl)
{
	struct haul_ctrl *ctrl;
	char uri[128];
	int result;

	snprintf(uri, sizeof(uri), "tcp://127.0.0.1:%u/nqn.2014-08.org.example:disk", target.port);
	assert_int_equal(haul_connect(hl, uri, NULL, 1, &ctrl), 0);
	result = wait_for(hl, 1);
	if (result)
		fail_msg("%s", haul_ctrl_error(ctrl));
	return ctrl;
}

/* A queue whose connection waits for ICResp. */
static void create_queue(struct haul_loop *hl, struct haul_ctrl *ctrl)
{
	struct haul_queue *queue;
	struct haul_event event;

	assert_int_equal(haul_queue_create(ctrl, NULL, 2, &queue), 0);
	while (target.nr_conns < NR_CONNS || target.conns[1].len < sizeof(struct nvme_tcp_ic_req)) {
		assert_int_equal(haul_loop_wait(hl, &event, 1, 1000000), 0);
		target_turn();
		if (target.nr_conns == NR_CONNS) {
			struct conn *conn = &target.conns[1];
			ssize_t n = recv(conn->fd, conn->bytes + conn->len,
				sizeof(conn->bytes) - conn->len, MSG_DONTWAIT);

			conn->len += n > 0 ? (size_t)n : 0;
		}
	}
}

static const struct {
	const char *name;
	bool queue_first;     /* of the two */
	bool admin_too;	      /* in the same turn */
	bool reset;	      /* or the regular end of the stream */
	bool caller_gives_up; /* haul_disconnect() before the turn */
} deaths[] = {
	{"queue reset", true, false, true, false},
	{"queue closed", true, false, false, false},
	{"queue reset, then admin", true, true, true, false},
	{"queue closed, then admin", true, true, false, false},
	{"admin reset, then queue", false, true, true, false},
	{"admin closed, then queue", false, true, false, false},
	{"queue reset, given up", true, false, true, true},
	{"both reset, given up", true, true, true, true},
	{"both closed, given up", true, true, false, true},
};

static void a_target_that_dies_during_queue_creation_ends_everything(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(deaths); i++) {
		struct haul_loop *hl;
		struct haul_ctrl *ctrl;

		print_message("%s\n", deaths[i].name);
		target_open();
		hl = loop_good();
		ctrl = connect_good(hl);
		create_queue(hl, ctrl);
		if (deaths[i].caller_gives_up)
			assert_int_equal(haul_disconnect(ctrl, 3), 0);
		/* Both ends arrive at once: nothing turns the loop between them. */
		if (!deaths[i].queue_first)
			target_hang_up(0, deaths[i].reset);
		target_hang_up(1, deaths[i].reset);
		if (deaths[i].queue_first && deaths[i].admin_too)
			target_hang_up(0, deaths[i].reset);
		assert_true(wait_for(hl, 2) < 0);
		assert_int_equal(haul_ctrl_is_live(ctrl),
			!deaths[i].admin_too && !deaths[i].caller_gives_up);
		if (!deaths[i].caller_gives_up)
			assert_int_equal(haul_disconnect(ctrl, 3), 0);
		target_hang_up(0, true);
		assert_int_equal(wait_for(hl, 3), 0);
		haul_ctrl_free(ctrl);
		haul_loop_destroy(hl);
		target_close();
	}
}

static unsigned nr_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned nr = 0;

	assert_non_null(dir);
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}

/* B018. The first of them are taken by the backlog and hear nothing, the others find it full. */
static void tries_that_nobody_answers_leave_no_descriptor(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_ctrl_options options;
	struct haul_event event;
	struct haul_ctrl *ctrl;
	unsigned nr_before = 0;
	char uri[128];

	(void)state;
	target_open();
	snprintf(uri, sizeof(uri), "tcp://127.0.0.1:%u/nqn.2014-08.org.example:disk", target.port);
	haul_ctrl_options_init(&options);
	options.connect_timeout_ms = 3;
	for (unsigned i = 0; i <= 100; i++) {
		assert_int_equal(haul_connect(hl, uri, &options, 1, &ctrl), 0);
		assert_int_equal(haul_loop_wait(hl, &event, 1, PATIENCE_NS), 1);
		assert_int_equal(event.result, -ETIMEDOUT);
		haul_ctrl_free(ctrl);
		if (i == 0)
			nr_before = nr_descriptors();
	}
	assert_int_equal(nr_descriptors(), nr_before);
	haul_loop_destroy(hl);
	target_close();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_target_that_dies_during_queue_creation_ends_everything),
		cmocka_unit_test(tries_that_nobody_answers_leave_no_descriptor),
	};
	struct haul_loop_options options = {.size = sizeof(options)};
	struct haul_loop *hl;

	engine = argc > 1 ? argv[1] : "auto";
	options.engine = engine;
	if (haul_loop_create(&options, &hl)) {
		fprintf(stderr, "skipped: %s is refused here\n", engine);
		return SKIPPED;
	}
	haul_loop_destroy(hl);
	/* What hangs in haul_ctrl_free() is a failure too. */
	alarm(50);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
