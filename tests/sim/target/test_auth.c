/* SPDX-License-Identifier: MIT */
/*
 * Authentication: what may come when, what is under way when a connection ends or the keys change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auth/dhchap.h"
#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)
#define T_ID   0x0102

struct proof {
	struct sim *sim;
	struct sim_conn *sc;
	uint32_t groups; /* offered */
	bool both_ways;
	uint8_t key; /* the first byte of our secret */
	uint8_t message[NVME_AUTH_MAX_MESSAGE];
	uint8_t challenge[NVME_AUTH_HASH_MAX_BYTES];
	uint32_t seqnum;
	uint8_t group;
};

static struct nvme_auth_secret secret_of(uint8_t first)
{
	struct nvme_auth_secret secret = {.len = 32, .bytes = {first, 2, 3}};

	return secret;
}

/* In a copy of what counts: SIM_HOST has keys that begin with HOST and CTRL; 0: none. */
static void publish_keys(struct sim *sim, uint8_t host, uint8_t ctrl)
{
	struct catalog *catalog = catalog_clone(sim->target.catalog);
	struct subsys *subsys = catalog_find(catalog, SIM_NQN);
	struct host_auth *auth;

	host_auth_list_free(&subsys->auth);
	if (host) {
		auth = host_auth_create(SIM_HOST);
		assert_non_null(auth);
		auth->host.secret = secret_of(host);
		if (ctrl)
			auth->ctrl.secret = secret_of(ctrl);
		assert_int_equal(host_auth_list_add(&subsys->auth, auth), 0);
	}
	assert_int_equal(sim_publish(sim, catalog), 0);
}

static struct sim *create(void)
{
	struct sim *sim = sim_create(2, MEMORY);

	publish_keys(sim, 1, 2);
	return sim;
}

/* --- the host -------------------------------------------------------------------------------- */

static struct nvme_cmd auth_cmd(uint8_t fctype, uint32_t length)
{
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FABRICS, 0, length);

	cmd.nsid = le32(0);
	cmd.fctype = fctype;
	cmd.auth = (struct nvme_auth_cmd){.spsp0 = NVME_AUTH_SPSP0,
		.spsp1 = NVME_AUTH_SPSP1,
		.secp = NVME_AUTH_SECP,
		.length = le32(length)};
	return cmd;
}

/* A message on its way; what is under way stays so. Its command's id. */
static uint16_t begin_send(struct proof *proof, size_t length)
{
	struct nvme_cmd cmd = auth_cmd(NVME_FCTYPE_AUTH_SEND, (uint32_t)length);

	sim_pull_message = proof->message;
	assert_true(sim_send(proof->sim, proof->sc, &cmd));
	return le16_get(cmd.cid);
}

static uint16_t begin_receive(struct proof *proof)
{
	struct nvme_cmd cmd = auth_cmd(NVME_FCTYPE_AUTH_RECV, 4096);

	assert_true(sim_send(proof->sim, proof->sc, &cmd));
	return le16_get(cmd.cid);
}

static uint16_t status_of(const struct proof *proof, uint16_t cid)
{
	uint16_t status = proof->sim->status[cid];

	return status == SIM_NO_ANSWER ? status : status & NVME_STATUS_CODE_MASK;
}

static struct nvme_auth_header header(uint8_t type, uint8_t id)
{
	return (struct nvme_auth_header){.type = type, .id = id, .t_id = le16(T_ID)};
}

static size_t make_negotiate(struct proof *proof)
{
	struct nvme_auth_negotiate *message = (void *)proof->message;
	struct nvme_auth_protocol *protocol = message->protocol;

	memset(proof->message, 0, sizeof(proof->message));
	message->header = header(NVME_AUTH_COMMON, NVME_AUTH_NEGOTIATE);
	message->napd = 1;
	protocol->authid = NVME_AUTH_DHCHAP;
	protocol->halen = 1;
	protocol->hash[0] = NVME_AUTH_SHA256;
	for (uint8_t id = 0; id < 6; id++)
		if (proof->groups >> id & 1)
			protocol->group[protocol->dhlen++] = id;
	return sizeof(*message) + sizeof(*protocol);
}

/* Reads the challenge that has come, and makes the reply. */
static size_t make_reply(struct proof *proof)
{
	const struct nvme_auth_challenge *challenge = (const void *)proof->sc->data;
	struct nvme_auth_reply *message = (void *)proof->message;
	uint8_t shared[NVME_AUTH_GROUP_MAX_BYTES];
	struct nvme_auth_secret secret = secret_of(proof->key);
	struct dhchap dhchap = {.hash = NVME_AUTH_SHA256,
		.t_id = T_ID,
		.hostnqn = SIM_HOST,
		.subnqn = SIM_NQN,
		.shared = shared,
		.shared_len = nvme_auth_group_bytes(challenge->group)};
	struct dhchap_dh *dh;

	assert_int_equal(challenge->header.id, NVME_AUTH_CHALLENGE);
	memset(proof->message, 0, sizeof(proof->message));
	if (dhchap.shared_len) {
		assert_int_equal(dhchap_dh_create(challenge->group, &dh, message->values + 64), 0);
		assert_int_equal(dhchap_dh_derive(dh, challenge->values + 32, shared), 0);
		dhchap_dh_free(dh);
	}
	message->header = header(NVME_AUTH_DHCHAP, NVME_AUTH_REPLY);
	message->hl = 32;
	message->cvalid = proof->both_ways;
	message->dhvlen = le16((uint16_t)dhchap.shared_len);
	message->seqnum = le32(9);
	assert_int_equal(dhchap_response(&dhchap, DHCHAP_HOST, &secret, challenge->values,
				 le32_get(challenge->seqnum), message->values),
		0);
	message->values[32] = 0x77;
	return sizeof(*message) + 64 + dhchap.shared_len;
}

static size_t make_success2(struct proof *proof)
{
	struct nvme_auth_success2 *message = (void *)proof->message;

	*message =
		(struct nvme_auth_success2){.header = header(NVME_AUTH_DHCHAP, NVME_AUTH_SUCCESS2)};
	return sizeof(*message);
}

/* Step NR of: Negotiate, Challenge, Reply, Success1, Success2. Its command's id; a turn more or
 * less is for the caller. */
static uint16_t begin_step(struct proof *proof, unsigned nr)
{
	switch (nr) {
	case 0:
		return begin_send(proof, make_negotiate(proof));
	case 2:
		return begin_send(proof, make_reply(proof));
	case 4:
		return begin_send(proof, make_success2(proof));
	default:
		return begin_receive(proof);
	}
}

static void run_steps(struct proof *proof, unsigned first, unsigned end)
{
	for (unsigned nr = first; nr < end; nr++) {
		uint16_t cid = begin_step(proof, nr);

		sim_settle(proof->sim);
		assert_int_equal(status_of(proof, cid), 0);
	}
}

static uint8_t failure_of(const struct proof *proof)
{
	const struct nvme_auth_failure *message = (const void *)proof->sc->data;

	assert_int_equal(message->header.type, NVME_AUTH_COMMON);
	assert_int_equal(message->header.id, NVME_AUTH_FAILURE1);
	assert_int_equal(message->rcode, NVME_AUTH_RCODE_FAILURE);
	return message->rcodeex;
}

/* An admin queue that has yet to prove itself. */
static struct proof stranger(struct sim *sim)
{
	struct proof proof = {.sim = sim, .groups = 1, .both_ways = true, .key = 1};
	struct nvme_cmd cmd = sim_connect(SIM_NQN, 0, 31, NVME_CNTLID_DYNAMIC);

	proof.sc = sim_accept(sim);
	assert_int_equal(sim_run(sim, proof.sc, &cmd), 0);
	assert_int_equal(le16_get(proof.sc->last.connect_ok.authreq), NVME_CONNECT_AUTHREQ_ATR);
	return proof;
}

static struct proof friend(struct sim *sim)
{
	struct proof proof = stranger(sim);

	run_steps(&proof, 0, 5);
	assert_int_equal(sim_set_cc(sim, proof.sc, SIM_CC_ENABLE), 0);
	return proof;
}

static uint16_t read_status(struct proof *proof)
{
	struct nvme_cmd cmd = sim_rw(NVME_OPC_READ, 0, 1);

	return sim_run(proof->sim, proof->sc, &cmd) & NVME_STATUS_CODE_MASK;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void a_queue_serves_after_its_last_step_and_not_before(void **state)
{
	struct sim *sim = create();

	(void)state;
	for (uint32_t groups = 1; groups <= 2; groups++) {
		struct proof admin = stranger(sim), queue;

		admin.groups = groups;
		for (unsigned nr = 0; nr < 5; nr++) {
			assert_int_equal(
				sim_set_cc(sim, admin.sc, SIM_CC_ENABLE) & NVME_STATUS_CODE_MASK,
				NVME_SC_AUTH_REQUIRED);
			run_steps(&admin, nr, nr + 1);
		}
		assert_int_equal(sim_set_cc(sim, admin.sc, SIM_CC_ENABLE), 0);
		queue = admin;
		queue.sc = sim_queue(sim, admin.sc, 1, 8);
		assert_int_equal(read_status(&queue), NVME_SC_AUTH_REQUIRED);
		queue.both_ways = false;
		run_steps(&queue, 0, 4);
		assert_int_equal(read_status(&queue), 0);
	}
	sim_destroy(sim);
}

static void wrong_secrets_end_the_connection(void **state)
{
	struct sim *sim = create();
	struct proof proof = stranger(sim);
	uint16_t cid;

	(void)state;
	proof.key = 3;
	run_steps(&proof, 0, 3);
	cid = begin_receive(&proof);
	sim_settle(sim);
	assert_int_equal(status_of(&proof, cid), 0);
	assert_int_equal(failure_of(&proof), NVME_AUTH_FAILED);
	assert_null(proof.sc->conn);
	sim_destroy(sim);
}

/* A queue that has not joined yet has no host to be proved: what its Connect ends with counts. */
static void no_proof_comes_before_the_verdict_of_connect(void **state)
{
	struct sim *sim = create();
	struct proof admin = friend(sim);

	(void)state;
	for (unsigned qid = 1; qid <= 2; qid++) {
		bool wrong = qid == 2;
		struct proof queue = admin;
		struct nvme_cmd cmd = sim_connect(
			SIM_NQN, (uint16_t)qid, 7, wrong ? 0x7777 : sim_cntlid(admin.sc));
		uint16_t connect, negotiate;

		queue.sc = sim_accept(sim);
		assert_int_equal(conn_set_depth(queue.sc->conn, 8), 0);
		assert_true(sim_send(sim, queue.sc, &cmd));
		connect = le16_get(cmd.cid);
		assert_int_equal(status_of(&queue, connect), SIM_NO_ANSWER);
		negotiate = begin_step(&queue, 0);
		assert_int_equal(status_of(&queue, negotiate), NVME_SC_COMMAND_SEQUENCE);
		sim_settle(sim);
		assert_int_equal(
			status_of(&queue, connect), wrong ? NVME_SC_CONNECT_INVALID_PARAM : 0);
		if (wrong) {
			negotiate = begin_step(&queue, 0);
			assert_int_equal(status_of(&queue, negotiate), NVME_SC_COMMAND_SEQUENCE);
		} else {
			run_steps(&queue, 0, 5);
			assert_int_equal(read_status(&queue), 0);
		}
	}
	sim_destroy(sim);
}

static void one_message_is_under_way_at_a_time(void **state)
{
	struct sim *sim = create();
	struct proof proof = stranger(sim);
	uint16_t first, second;

	(void)state;
	run_steps(&proof, 0, 1);
	for (unsigned nr = 1; nr <= 2; nr++) {
		first = begin_step(&proof, nr); /* away */
		assert_int_equal(status_of(&proof, first), SIM_NO_ANSWER);
		second = begin_receive(&proof);
		assert_int_equal(status_of(&proof, second), NVME_SC_COMMAND_SEQUENCE);
		second = begin_send(&proof, make_negotiate(&proof));
		assert_int_equal(status_of(&proof, second), NVME_SC_COMMAND_SEQUENCE);
		sim_settle(sim);
		assert_int_equal(status_of(&proof, first), 0);
	}
	run_steps(&proof, 3, 5);
	assert_int_equal(sim_set_cc(sim, proof.sc, SIM_CC_ENABLE), 0);
	sim_destroy(sim);
}

/* The host goes before, during or after each step: nothing is left (sim_destroy sees to that). */
static void each_step_may_be_the_last(void **state)
{
	(void)state;
	for (unsigned at = 0; at < 5; at++) {
		for (unsigned during = 0; during < 2; during++) {
			struct sim *sim = create();
			struct proof proof = stranger(sim);

			proof.groups = 2;
			run_steps(&proof, 0, at);
			if (during)
				begin_step(&proof, at);
			if (proof.sc->conn)
				conn_close(proof.sc->conn, "the test wants it");
			sim_settle(sim);
			assert_null(proof.sc->conn);
			sim_destroy(sim);
		}
	}
}

static void keys_that_change_meanwhile_count_at_once(void **state)
{
	struct sim *sim = create();
	struct proof proof = stranger(sim), other = stranger(sim);
	uint16_t cid;

	(void)state;
	run_steps(&proof, 0, 2);
	run_steps(&other, 0, 2);
	publish_keys(sim, 5, 2);
	proof.key = 5;
	run_steps(&proof, 2, 5);
	run_steps(&other, 2, 3); /* with the key of before */
	cid = begin_receive(&other);
	sim_settle(sim);
	assert_int_equal(status_of(&other, cid), 0);
	assert_int_equal(failure_of(&other), NVME_AUTH_FAILED);
	other = stranger(sim);
	run_steps(&other, 0, 1);
	publish_keys(sim, 0, 0);
	cid = begin_receive(&other);
	sim_settle(sim);
	assert_int_equal(status_of(&other, cid), 0);
	assert_int_equal(failure_of(&other), NVME_AUTH_FAILED);
	assert_int_equal(sim_set_cc(sim, proof.sc, SIM_CC_ENABLE), 0);
	sim_destroy(sim);
}

/* Whoever fails again loses the queue; its I/O finishes at the disk first. */
static void io_in_flight_outlives_a_failure(void **state)
{
	struct sim *sim = create();
	struct proof admin = friend(sim), queue = admin;
	struct nvme_cmd cmd = sim_rw(NVME_OPC_WRITE, 0, 1);

	(void)state;
	queue.sc = sim_queue(sim, admin.sc, 1, 8);
	run_steps(&queue, 0, 5);
	sim->auto_disk = false;
	assert_true(sim_send(sim, queue.sc, &cmd));
	sim_settle(sim);
	assert_int_equal(sim->nr_ios, 1);
	queue.key = 9;
	run_steps(&queue, 0, 3);
	assert_int_equal(status_of(&queue, le16_get(cmd.cid)), SIM_NO_ANSWER);
	begin_receive(&queue);
	sim_settle(sim);
	assert_int_equal(failure_of(&queue), NVME_AUTH_FAILED);
	assert_non_null(queue.sc->conn); /* the disk has it */
	assert_true(sim_do_io(sim, 0, 0));
	sim_settle(sim);
	assert_null(queue.sc->conn);
	assert_non_null(admin.sc->conn);
	sim->auto_disk = true;
	sim_destroy(sim);
}

/* A proof of before goes on counting while another one is under way, and I/O with it. */
static void io_goes_on_during_another_proof(void **state)
{
	struct sim *sim = create();
	struct proof admin = friend(sim), queue = admin;

	(void)state;
	queue.sc = sim_queue(sim, admin.sc, 1, 8);
	run_steps(&queue, 0, 5);
	for (unsigned nr = 0; nr < 5; nr++) {
		assert_int_equal(read_status(&queue), 0);
		run_steps(&queue, nr, nr + 1);
		if (nr == 1) {
			uint8_t data[4096];

			/* The challenge lies where reads leave their data. */
			memcpy(data, queue.sc->data, sizeof(data));
			assert_int_equal(read_status(&queue), 0);
			memcpy(queue.sc->data, data, sizeof(data));
			run_steps(&queue, 2, 3);
			nr++;
		}
	}
	assert_int_equal(read_status(&queue), 0);
	sim_destroy(sim);
}

/* A queue that is over for Disconnect is, whatever comes with it. */
static void disconnect_is_the_end_of_a_proof(void **state)
{
	struct sim *sim = create();
	struct proof admin = friend(sim), queue = admin;
	struct nvme_cmd cmd = sim_cmd(NVME_OPC_FABRICS, 0, 0);

	(void)state;
	cmd.nsid = le32(0);
	cmd.fctype = NVME_FCTYPE_DISCONNECT;
	queue.sc = sim_queue(sim, admin.sc, 1, 8);
	run_steps(&queue, 0, 5);
	run_steps(&queue, 0, 2);
	assert_true(sim_send(sim, queue.sc, &cmd));
	sim_settle(sim);
	assert_int_equal(status_of(&queue, le16_get(cmd.cid)), 0);
	assert_null(queue.sc->conn);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_serves_after_its_last_step_and_not_before),
		cmocka_unit_test(wrong_secrets_end_the_connection),
		cmocka_unit_test(no_proof_comes_before_the_verdict_of_connect),
		cmocka_unit_test(one_message_is_under_way_at_a_time),
		cmocka_unit_test(each_step_may_be_the_last),
		cmocka_unit_test(keys_that_change_meanwhile_count_at_once),
		cmocka_unit_test(io_in_flight_outlives_a_failure),
		cmocka_unit_test(io_goes_on_during_another_proof),
		cmocka_unit_test(disconnect_is_the_end_of_a_proof),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
