/* SPDX-License-Identifier: MIT */
/*
 * I/O commands made of several I/Os: what the disk is asked for, in which order, and what happens
 * when one of them fails or the host goes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/target/sim.h"

#define MEMORY (32ull << 20)

static char asked[4096]; /* what the disk was asked for: "F", "R8+1 " */

static void note_io(struct sim *sim, struct backend_io *io)
{
	static const char letters[] = {[BACKEND_READ] = 'R',
		[BACKEND_WRITE] = 'W',
		[BACKEND_FLUSH] = 'F',
		[BACKEND_DISCARD] = 'D',
		[BACKEND_WRITE_ZEROES] = 'Z'};
	size_t at = strlen(asked);
	bool transfer = io->op == BACKEND_READ || io->op == BACKEND_WRITE;
	uint64_t length = transfer ? io->length : io->extent;

	(void)sim;
	if (io->op == BACKEND_FLUSH)
		snprintf(asked + at, sizeof(asked) - at, "F ");
	else
		snprintf(asked + at, sizeof(asked) - at, "%c%llu+%llu%s ", letters[io->op],
			(unsigned long long)(io->offset / 512), (unsigned long long)(length / 512),
			io->fua && io->op != BACKEND_READ ? "!" : "");
}

static struct sim_conn *setup(struct sim **ret)
{
	struct sim *sim = sim_create(2, MEMORY);

	*ret = sim;
	sim->has_media = true;
	sim->before_io = note_io;
	asked[0] = 0;
	for (size_t at = 0; at < sizeof(sim->media); at++)
		sim->media[at] = (uint8_t)(at / 512 * 7 + at);
	return sim_queue(sim, sim_admin(sim, SIM_NQN), 1, 32);
}

static struct nvme_cmd no_data(struct nvme_cmd cmd)
{
	cmd.sgl = (struct nvme_sgl_desc){0};
	return cmd;
}

static struct nvme_cmd with_fua(struct nvme_cmd cmd)
{
	cmd.rw.control = le16(NVME_RW_FUA);
	return cmd;
}

/* --- one command, what the disk sees --------------------------------------------------------- */

struct io_case {
	const char *name;
	uint8_t opcode;
	bool fua;
	uint32_t nr_lbas;
	const char *asked;
};

/* A cache is flushed before what shall come from the medium; zero data equals nothing here. */
static const struct io_case io_cases[] = {
	{"read", NVME_OPC_READ, false, 8, "R8+8 "},
	{"read with FUA", NVME_OPC_READ, true, 8, "F R8+8 "},
	{"write", NVME_OPC_WRITE, false, 8, "W8+8 "},
	{"write with FUA", NVME_OPC_WRITE, true, 8, "W8+8! "},
	{"zeroes", NVME_OPC_WRITE_ZEROES, false, 1000, "Z8+1000 "},
	{"zeroes with FUA", NVME_OPC_WRITE_ZEROES, true, 1000, "Z8+1000! "},
	{"verify", NVME_OPC_VERIFY, false, 600, "R8+256 R264+256 R520+88 "},
	{"verify with FUA", NVME_OPC_VERIFY, true, 1, "F R8+1 "},
	{"compare with FUA", NVME_OPC_COMPARE, true, 8, "F R8+8 "},
};

static void each_command_asks_the_disk_for_just_that(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(io_cases); i++) {
		const struct io_case *io = &io_cases[i];
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		struct nvme_cmd cmd = sim_rw(io->opcode, 8, io->nr_lbas);

		print_message("%s\n", io->name);
		if (io->opcode == NVME_OPC_WRITE_ZEROES || io->opcode == NVME_OPC_VERIFY)
			cmd = no_data(cmd);
		if (io->fua)
			cmd = with_fua(cmd);
		memset(sim->media + 4096, 0, 4096);
		assert_int_equal(sim_run(sim, queue, &cmd), 0);
		assert_string_equal(asked, io->asked);
		sim_destroy(sim);
	}
}

/* A flush that fails is told, and what was to come after it does not happen (PITFALLS B072). */
static void errors_of_flushes_reach_the_host(void **state)
{
	struct nvme_cmd cmds[] = {sim_cmd(NVME_OPC_FLUSH, 1, 0),
		sim_cmd(NVME_OPC_FLUSH, NVME_NSID_ALL, 0), with_fua(sim_rw(NVME_OPC_READ, 8, 8)),
		with_fua(sim_rw(NVME_OPC_WRITE, 8, 8)), with_fua(sim_rw(NVME_OPC_COMPARE, 8, 8))};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cmds); i++) {
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		uint16_t status;

		sim->next_result = -EIO;
		status = sim_run(sim, queue, &cmds[i]) & NVME_STATUS_CODE_MASK;
		assert_true(status == NVME_SC_WRITE_FAULT || status == NVME_SC_READ_ERROR);
		assert_string_equal(asked, cmds[i].opcode == NVME_OPC_WRITE ? "W8+8! " : "F ");
		sim_destroy(sim);
	}
}

/* --- Compare --------------------------------------------------------------------------------- */

/* The data of the host is its CDW2, in every word. */
static void a_compare_of_any_length_finds_the_last_byte(void **state)
{
	static const uint32_t lengths[] = {
		1, 8, 255, 256, 257, 700, 1023, 1024, 1025, 1500, 2040, 2047, 2048};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct sim *sim;
		struct sim_conn *queue = setup(&sim);
		struct nvme_cmd cmd = sim_rw(NVME_OPC_COMPARE, 1, lengths[i]);

		memset(sim->media, 0x3c, sizeof(sim->media));
		cmd.cdw2 = le32(0x3c3c3c3c);
		assert_int_equal(sim_run(sim, queue, &cmd), 0);
		sim->media[(1 + lengths[i]) * 512 - 1] ^= 1;
		assert_int_equal(
			sim_run(sim, queue, &cmd), NVME_SC_COMPARE_FAILED | NVME_STATUS_DNR);
		sim->media[(1 + lengths[i]) * 512 - 1] ^= 1;
		sim->media[512] ^= 1;
		assert_int_equal(
			sim_run(sim, queue, &cmd), NVME_SC_COMPARE_FAILED | NVME_STATUS_DNR);
		sim_destroy(sim);
	}
}

/* --- Copy ------------------------------------------------------------------------------------ */

struct range_of_copy {
	uint64_t slba;
	uint32_t nr_lbas;
};

static struct range_of_copy copy_ranges[8];

/* Puts the list in place of what the pull has brought. */
static void bring_list(struct sim *sim, struct sim_conn *queue)
{
	struct request *request = &queue->conn->requests[0];

	(void)sim;
	for (uint32_t i = 0; i < queue->conn->slots.nr_touched; i++)
		if (queue->conn->requests[i].state == REQUEST_PULL)
			request = &queue->conn->requests[i];
	for (uint32_t i = 0; i <= request->cmd.copy.nr; i++) {
		struct nvme_copy_range *range = (struct nvme_copy_range *)request->bytes + i;

		*range = (struct nvme_copy_range){.slba = le64(copy_ranges[i].slba),
			.nlb = le16((uint16_t)(copy_ranges[i].nr_lbas - 1))};
	}
	sim->keeps_data = true;
	assert_true(sim_do_pull(queue, 0));
	sim->keeps_data = false;
}

static struct nvme_cmd copy_cmd(uint64_t to, uint8_t nr)
{
	struct nvme_cmd cmd =
		sim_cmd(NVME_OPC_COPY, 1, nr * (uint32_t)sizeof(struct nvme_copy_range));

	cmd.copy.sdlba = le64(to);
	cmd.copy.nr = nr - 1;
	return cmd;
}

static void send_copy(struct sim *sim, struct sim_conn *queue, uint64_t to, uint8_t nr)
{
	struct nvme_cmd cmd = copy_cmd(to, nr);

	sim->auto_pull = false;
	assert_true(sim_send(sim, queue, &cmd));
	bring_list(sim, queue);
	sim->auto_pull = true;
}

static void a_copy_goes_in_pieces_range_after_range(void **state)
{
	struct sim *sim;
	struct sim_conn *queue = setup(&sim);

	(void)state;
	copy_ranges[0] = (struct range_of_copy){100, 233};
	copy_ranges[1] = (struct range_of_copy){0, 1};
	copy_ranges[2] = (struct range_of_copy){1000, 10};
	send_copy(sim, queue, 990, 3);
	sim_settle(sim);
	assert_int_equal(nvme_cqe_status(&queue->last), 0);
	assert_string_equal(
		asked, "R100+232 W990+232 R332+1 W1222+1 R0+1 W1223+1 R1000+10 W1224+10 ");
	copy_ranges[0] = (struct range_of_copy){0, 300};
	asked[0] = 0;
	send_copy(sim, queue, 5, 1);
	sim_settle(sim);
	/* Its end first: it goes to where it comes from. */
	assert_string_equal(asked, "R68+232 W73+232 R0+68 W5+68 ");
	sim_destroy(sim);
}

/* A copy of three ranges of which the first NR_IOS reads and writes are over. */
static struct sim_conn *copy_up_to(struct sim **ret_sim, unsigned nr_ios)
{
	struct sim_conn *queue = setup(ret_sim);

	for (unsigned i = 0; i < 3; i++)
		copy_ranges[i] = (struct range_of_copy){i * 10, 10};
	(*ret_sim)->auto_disk = false;
	send_copy(*ret_sim, queue, 1000, 3);
	for (unsigned i = 0; i < nr_ios; i++)
		assert_true(sim_do_io(*ret_sim, 0, 0));
	return queue;
}

/* NVM command set 1.0 3.2.2.1: DW0 has the first range that is not copied. */
static void a_copy_that_fails_says_where(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		struct sim *sim;
		struct sim_conn *queue = copy_up_to(&sim, i);

		assert_true(sim_do_io(sim, 0, i % 2 ? -ENOSPC : -EIO));
		sim_settle(sim);
		assert_int_equal(nvme_cqe_status(&queue->last) & NVME_STATUS_CODE_MASK,
			i % 2 ? NVME_SC_CAPACITY_EXCEEDED : NVME_SC_READ_ERROR);
		assert_int_equal(le32_get(queue->last.dw0), i / 2);
		assert_int_equal(sim->nr_ios, 0);
		sim_destroy(sim);
	}
}

static void a_host_may_go_in_the_middle_of_a_copy(void **state)
{
	(void)state;
	for (unsigned i = 0; i <= 6; i++) {
		struct sim *sim;
		struct sim_conn *queue = copy_up_to(&sim, i);

		conn_close(queue->conn, "test");
		sim_settle(sim);
		if (i < 6) {
			assert_non_null(queue->conn);
			assert_true(sim_do_io(sim, 0, 0));
			sim_settle(sim);
		}
		assert_null(queue->conn);
		assert_int_equal(sim->nr_ios, 0);
		sim_destroy(sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_command_asks_the_disk_for_just_that),
		cmocka_unit_test(errors_of_flushes_reach_the_host),
		cmocka_unit_test(a_compare_of_any_length_finds_the_last_byte),
		cmocka_unit_test(a_copy_goes_in_pieces_range_after_range),
		cmocka_unit_test(a_copy_that_fails_says_where),
		cmocka_unit_test(a_host_may_go_in_the_middle_of_a_copy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
