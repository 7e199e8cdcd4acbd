/* SPDX-License-Identifier: MIT */
/*
 * I/O: how it is cut, bounded, ordered and ended.
 */
#include "tests/unit/initiator/fake.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/ctrl.h"

struct rig {
	struct haul_loop *hl;
	struct haul_ctrl *ctrl;
	struct haul_queue *queue;
	uint8_t *bytes;
};

#define RIG_BYTES (4u << 20)

static struct rig rig_make(const char *uri, uint32_t depth, uint32_t timeout_ms)
{
	struct rig rig = {.hl = loop_good(), .bytes = malloc(RIG_BYTES)};
	struct haul_ctrl_options options;

	haul_ctrl_options_init(&options);
	options.command_timeout_ms = timeout_ms;
	assert_int_equal(haul_connect(rig.hl, uri, &options, 1, &rig.ctrl), 0);
	assert_int_equal(wait_for(rig.hl, 1), 0);
	rig.queue = queue_good(rig.ctrl, depth);
	for (uint32_t i = 0; i < RIG_BYTES; i++)
		rig.bytes[i] = (uint8_t)(i * 31 + i / 4096);
	return rig;
}

static void rig_free(struct rig *rig)
{
	haul_ctrl_free(rig->ctrl);
	haul_loop_destroy(rig->hl);
	free(rig->bytes);
}

static int rig_read(
	struct rig *rig, void *bytes, size_t length, uint64_t offset, uint64_t user_data)
{
	struct iovec iov = {bytes, length};

	return haul_readv(rig->queue, 1, &iov, 1, offset, user_data);
}

static int rig_write(
	struct rig *rig, void *bytes, size_t length, uint64_t offset, uint64_t user_data)
{
	struct iovec iov = {bytes, length};

	return haul_writev(rig->queue, 1, &iov, 1, offset, 0, user_data);
}

/* --- cutting ---------------------------------------------------------------------------------- */

static void io_is_cut_at_mdts_and_ends_once(void **state)
{
	static const struct {
		uint8_t mdts;
		uint32_t length, nr_commands;
	} cases[] = {{5, 512, 1}, {5, 131072, 1}, {5, 131072 + 512, 2}, {5, 1 << 20, 8},
		{1, 8192, 1}, {1, 1 << 20, 128}, {0, 4 << 20, 4}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t *copy = malloc(cases[i].length);
		struct rig rig;

		fake.id_ctrl.mdts = cases[i].mdts;
		rig = rig_make(FAKE_URI, 4, 30000);
		fake.nr_ios = 0;
		assert_int_equal(rig_write(&rig, rig.bytes, cases[i].length, 512 * 3, 5), 0);
		assert_int_equal(wait_for(rig.hl, 5), 0);
		assert_int_equal(fake.nr_ios, cases[i].nr_commands);
		assert_int_equal(rig_read(&rig, copy, cases[i].length, 512 * 3, 6), 0);
		assert_int_equal(wait_for(rig.hl, 6), 0);
		assert_memory_equal(copy, rig.bytes, cases[i].length);
		assert_true(fake.max_out <= 4);
		rig_free(&rig);
		free(copy);
	}
}

/* Pieces of all sizes, also such that a block lies in several; compared with plain copies. */
static void scattered_io_is_cut_between_blocks(void **state)
{
	static const char *const uris[] = {FAKE_URI, "rdma://127.0.0.1/" FAKE_NQN};
	static const struct {
		uint8_t msdbd;
		unsigned nr_iov;
		uint32_t piece;
	} cases[] = {{16, 16, 4096}, {16, 17, 4096}, {16, 1024, 512}, {16, 64, 128}, {1, 16, 4096},
		{1, 8, 256}, {2, 32, 512}, {16, 48, 32}, {4, 256, 64}};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		uint32_t length = cases[i / 2].nr_iov * cases[i / 2].piece / 512 * 512;
		struct iovec iov[1024];
		struct rig rig;
		uint32_t at = 0;

		fake.id_ctrl.msdbd = cases[i / 2].msdbd;
		rig = rig_make(uris[i % 2], 3, 30000);
		fake.nr_ios = 0;
		for (unsigned k = 0; k < cases[i / 2].nr_iov; k++) {
			/* a gap between pieces, so that they do not become one */
			iov[k] = (struct iovec){rig.bytes + 2 * at, cases[i / 2].piece};
			at += cases[i / 2].piece;
		}
		iov[cases[i / 2].nr_iov - 1].iov_len -= at - length;
		assert_int_equal(haul_writev(rig.queue, 1, iov, cases[i / 2].nr_iov, 0, 0, 7), 0);
		assert_int_equal(wait_for(rig.hl, 7), 0);
		for (uint32_t b = 0; b < length; b++)
			assert_int_equal(fake.disk[b],
				rig.bytes[b / cases[i / 2].piece * cases[i / 2].piece + b]);
		for (uint32_t k = 0; k < min_of(fake.nr_ios, (uint32_t)FAKE_MAX_LOG); k++) {
			assert_int_equal(fake.ios[k].data_len % 512, 0);
			assert_in_range(fake.ios[k].nr_iov, 1, HAUL_MAX_IOV);
			if (i % 2 && cases[i / 2].piece >= 512)
				assert_in_range(fake.ios[k].nr_iov, 1, cases[i / 2].msdbd);
		}
		rig_free(&rig);
	}
}

static void adjoining_pieces_become_one(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct iovec iov[64];

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		iov[i] = (struct iovec){rig.bytes + i * 512, 512};
	fake.nr_ios = 0;
	assert_int_equal(haul_writev(rig.queue, 1, iov, 64, 0, 0, 7), 0);
	assert_int_equal(wait_for(rig.hl, 7), 0);
	assert_int_equal(fake.nr_ios, 1);
	assert_int_equal(fake.ios[0].nr_iov, 1);
	rig_free(&rig);
}

static void block_in_too_many_pieces_is_refused(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct iovec iov[32];

	(void)state;
	for (unsigned i = 0; i < 32; i++)
		iov[i] = (struct iovec){rig.bytes + i * 64, 16};
	assert_int_equal(haul_writev(rig.queue, 1, iov, 32, 0, 0, 7), -EINVAL);
	rig_free(&rig);
}

static void empty_pieces_are_passed_over(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct iovec iov[4] = {
		{rig.bytes, 0}, {rig.bytes, 512}, {NULL, 0}, {rig.bytes + 4096, 512}};

	(void)state;
	assert_int_equal(haul_writev(rig.queue, 1, iov, 4, 0, 0, 7), 0);
	assert_int_equal(wait_for(rig.hl, 7), 0);
	assert_memory_equal(fake.disk, rig.bytes, 512);
	assert_memory_equal(fake.disk + 512, rig.bytes + 4096, 512);
	rig_free(&rig);
}

static void zeroes_and_discards_stay_within_their_limits(void **state)
{
	static const struct {
		uint8_t wzsl;
		uint32_t dmrsl;
		uint64_t dmsl;
		uint32_t nr_zeroes, nr_discards; /* commands for the whole disk, 65536 blocks */
	} cases[] = {{0, 0, 0, 1, 1}, {3, 0, 0, 1024, 1}, {30, 100000, 0, 1, 1},
		{0, 4096, 0, 1, 16}, {0, 0, 8192, 1, 8}, {255, 4096, 1024, 1, 64}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rig rig;

		fake.id_limits.wzsl = cases[i].wzsl;
		fake.id_limits.dmrsl = le32(cases[i].dmrsl);
		fake.id_limits.dmsl = le64(cases[i].dmsl);
		rig = rig_make(FAKE_URI, 8, 30000);
		fake.nr_ios = 0;
		assert_int_equal(haul_write_zeroes(rig.queue, 1, 0, FAKE_NR_BLOCKS * FAKE_BLOCK,
					 HAUL_FUA | HAUL_DEALLOCATE, 7),
			0);
		assert_int_equal(wait_for(rig.hl, 7), 0);
		assert_int_equal(fake.nr_ios, cases[i].nr_zeroes);
		assert_int_equal(fake.ios[0].control, NVME_RW_FUA | NVME_RW_DEAC);
		fake.nr_ios = 0;
		assert_int_equal(haul_discard(rig.queue, 1, 0, FAKE_NR_BLOCKS * FAKE_BLOCK, 8), 0);
		assert_int_equal(wait_for(rig.hl, 8), 0);
		assert_int_equal(fake.nr_ios, cases[i].nr_discards);
		assert_int_equal(fake.ios[cases[i].nr_discards - 1].slba,
			FAKE_NR_BLOCKS - FAKE_NR_BLOCKS / cases[i].nr_discards);
		rig_free(&rig);
	}
}

/* --- refusing --------------------------------------------------------------------------------- */

static void what_breaks_the_rules_is_refused_at_once(void **state)
{
	static const uint64_t size = (uint64_t)FAKE_NR_BLOCKS * FAKE_BLOCK;
	static const struct {
		uint64_t offset, length;
	} cases[] = {{0, 0}, {1, 512}, {0, 511}, {0, 513}, {size, 512}, {size - 512, 1024},
		{UINT64_MAX - 511, 512}, {UINT64_MAX - 511, 1024}, {0, size + 512}};
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct iovec iov = {rig.bytes, 512};
	struct iovec huge[2] = {{rig.bytes, SIZE_MAX - 511}, {rig.bytes, 1024}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(
			rig_read(&rig, rig.bytes, cases[i].length, cases[i].offset, 7), -EINVAL);
		assert_int_equal(
			haul_discard(rig.queue, 1, cases[i].offset, cases[i].length, 7), -EINVAL);
		assert_int_equal(
			haul_write_zeroes(rig.queue, 1, cases[i].offset, cases[i].length, 0, 7),
			-EINVAL);
	}
	assert_int_equal(haul_readv(rig.queue, 1, huge, 2, 0, 7), -EINVAL);
	assert_int_equal(haul_readv(rig.queue, 1, &iov, 0, 0, 7), -EINVAL);
	assert_int_equal(haul_readv(rig.queue, 1, &iov, HAUL_IO_MAX_IOV + 1, 0, 7), -EINVAL);
	assert_int_equal(haul_writev(rig.queue, 1, &iov, 1, 0, 4, 7), -EINVAL);
	assert_int_equal(haul_write_zeroes(rig.queue, 1, 0, 512, 4, 7), -EINVAL);
	assert_int_equal(haul_readv(rig.queue, 2, &iov, 1, 0, 7), -ENODEV);
	assert_int_equal(haul_flush(rig.queue, 0, 7), -ENODEV);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, size - 512, 8), 0);
	assert_int_equal(wait_for(rig.hl, 8), 0);
	rig_free(&rig);
}

static void commands_the_target_lacks_are_not_sent(void **state)
{
	struct rig rig;

	(void)state;
	fake.id_ctrl.oncs = le16(0);
	rig = rig_make(FAKE_URI, 4, 30000);
	assert_int_equal(haul_discard(rig.queue, 1, 0, 512, 7), -EOPNOTSUPP);
	assert_int_equal(haul_write_zeroes(rig.queue, 1, 0, 512, 0, 7), -EOPNOTSUPP);
	rig_free(&rig);
}

static void full_queue_is_eagain_until_an_event_is_taken(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 8, 30000);
	struct haul_event event;

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(rig_read(&rig, rig.bytes + i * 512, 512, 0, i), 0);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 9), -EAGAIN);
	for (int turn = 0; turn < 10; turn++)
		assert_int_equal(haul_loop_poll(rig.hl, NULL, 0), 0);
	assert_int_equal(fake.nr_out, 0); /* all have ended, none was handed out */
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 9), -EAGAIN);
	assert_int_equal(haul_loop_arm(rig.hl), 1);
	assert_int_equal(haul_loop_poll(rig.hl, &event, 1), 1);
	assert_int_equal(event.user_data, 0);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 9), 0);
	rig_free(&rig);
}

/* B155: as many I/Os as the depth, each of many commands. */
static void large_io_at_full_depth_waits_its_turn(void **state)
{
	struct rig rig;
	unsigned nr = 0;

	(void)state;
	fake.id_ctrl.mdts = 1;
	rig = rig_make(FAKE_URI, 4, 30000);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(rig_write(&rig, rig.bytes + (i << 20), 1 << 20, i << 20, i), 0);
	assert_int_equal(rig_write(&rig, rig.bytes, 512, 0, 9), -EAGAIN);
	while (nr < 4) {
		assert_int_equal(wait_for(rig.hl, nr), 0); /* in the order of their start */
		nr++;
	}
	assert_memory_equal(fake.disk, rig.bytes, 4 << 20);
	assert_int_equal(fake.max_out, 4);
	rig_free(&rig);
}

/* --- failing ---------------------------------------------------------------------------------- */

static void status_of_the_first_failed_part_is_the_result(void **state)
{
	static const struct {
		uint16_t status;
		int result;
	} cases[] = {{NVME_SC_LBA_RANGE, 0}, {NVME_SC_READ_ERROR, 0}, {NVME_SC_INVALID_FIELD, 0},
		{NVME_SC_CAPACITY_EXCEEDED, 0}, {NVME_SC_NS_WRITE_PROTECTED, 0},
		{NVME_SC_ABORT_REQUESTED, 0}, {NVME_SC_INTERNAL_PATH, 0},
		{NVME_SC_ACCESS_DENIED, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rig rig = rig_make(FAKE_URI, 2, 30000);
		struct haul_event event;

		memset(fake.nr_asked, 0, sizeof(fake.nr_asked));
		fake.rules[FAKE_READ] =
			(struct fake_rule){FAKE_STATUS, cases[i].status | NVME_STATUS_DNR, 0, 3};
		assert_int_equal(rig_read(&rig, rig.bytes, 1 << 20, 0, 7), 0);
		event = wait_event(rig.hl);
		assert_int_equal(event.user_data, 7);
		assert_int_equal(event.status, cases[i].status | NVME_STATUS_DNR);
		assert_int_equal(event.result, nvme_status_to_errno(event.status));
		assert_true(event.result < 0);
		assert_true(fake.nr_asked[FAKE_READ] <= 5); /* the rest was not sent */
		assert_int_equal(haul_flush(rig.queue, 1, 8), 0);
		assert_int_equal(wait_for(rig.hl, 8), 0);
		rig_free(&rig);
	}
}

static void silence_ends_all_of_the_association_in_time(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 500);
	struct haul_queue *second = queue_good(rig.ctrl, 4);
	struct iovec iov = {rig.bytes, 4096};
	struct haul_event event;
	uint64_t start_ns = haul_loop_now_ns(rig.hl);

	(void)state;
	fake.rules[FAKE_READ].how = FAKE_SILENT;
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 10), 0);
	assert_int_equal(haul_loop_wait(rig.hl, &event, 1, 25000000), 0);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 11), 0);
	assert_int_equal(haul_readv(second, 1, &iov, 1, 0, 12), 0);
	for (unsigned i = 0; i < 3; i++) {
		event = wait_event(rig.hl);
		assert_in_range(event.user_data, 10, 12);
		assert_int_equal(event.status, 0);
		assert_int_equal(event.result, event.user_data == 10 ? -ETIMEDOUT : -ECANCELED);
	}
	assert_in_range(haul_loop_now_ns(rig.hl) - start_ns, 500000000, 4000000000);
	assert_false(haul_ctrl_is_live(rig.ctrl));
	assert_non_null(strstr(haul_ctrl_error(rig.ctrl), "in time"));
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 13), -ENOTCONN);
	rig_free(&rig);
}

/* B164: an answer that comes when its queue ends does not reach memory or events of others. */
static void late_answers_count_as_what_they_are(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30);

	(void)state;
	fake.rules[FAKE_WRITE].how = FAKE_LATE;
	assert_int_equal(rig_write(&rig, rig.bytes, 512, 0, 10), 0);
	assert_int_equal(wait_for(rig.hl, 10), 0); /* it was done after all */
	assert_false(haul_ctrl_is_live(rig.ctrl));
	rig_free(&rig);
}

static void broken_connection_gives_each_io_back_once(void **state)
{
	struct rig rig;
	uint32_t seen = 0;

	(void)state;
	fake.id_ctrl.mdts = 1;
	rig = rig_make(FAKE_URI, 8, 30000);
	fake.rules[FAKE_READ] = (struct fake_rule){FAKE_BREAK, 0, -ECONNRESET, 6};
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(rig_read(&rig, rig.bytes, 65536, 0, i), 0);
	for (unsigned i = 0; i < 8; i++) {
		struct haul_event event = wait_event(rig.hl);

		assert_int_equal(event.result, -ECONNRESET);
		assert_int_equal(event.status, 0);
		assert_false(seen & 1u << event.user_data);
		seen |= 1u << event.user_data;
	}
	assert_int_equal(haul_queue_close(rig.queue, 20), 0);
	assert_int_equal(wait_for(rig.hl, 20), 0);
	assert_int_equal(haul_disconnect(rig.ctrl, 21), 0);
	assert_int_equal(wait_for(rig.hl, 21), 0);
	rig_free(&rig);
}

/* --- ending ----------------------------------------------------------------------------------- */

static void close_hands_out_the_io_before_itself(void **state)
{
	struct rig rig;

	(void)state;
	fake.id_ctrl.mdts = 1;
	rig = rig_make(FAKE_URI, 4, 30000);
	fake.rules[FAKE_READ].how = FAKE_SILENT;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(rig_read(&rig, rig.bytes, 65536, 0, i), 0);
	haul_loop_poll(rig.hl, NULL, 0);
	assert_int_equal(haul_queue_close(rig.queue, 9), 0);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 8), -ENOTCONN);
	for (unsigned i = 0; i < 4; i++) {
		struct haul_event event = wait_event(rig.hl);

		assert_in_range(event.user_data, 0, 3);
		assert_int_equal(event.result, -ECANCELED);
	}
	assert_int_equal(wait_for(rig.hl, 9), 0);
	assert_true(haul_ctrl_is_live(rig.ctrl));
	rig_free(&rig);
}

static void disconnect_hands_out_the_io_before_itself(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);

	(void)state;
	fake.rules[FAKE_READ].how = FAKE_SILENT;
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 3), 0);
	haul_loop_poll(rig.hl, NULL, 0);
	assert_int_equal(haul_disconnect(rig.ctrl, 9), 0);
	assert_int_equal(wait_for(rig.hl, 3), -ECANCELED);
	assert_int_equal(wait_for(rig.hl, 9), 0);
	rig_free(&rig);
}

/* At each number of turns after the start: nothing may be out when free returns. */
static void free_with_io_out_is_safe_at_any_moment(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 8; turns++)
		for (unsigned how = 0; how < 3; how++) {
			struct rig rig;

			fake.id_ctrl.mdts = 1;
			fake.rules[FAKE_READ].how = turns % 2 ? FAKE_SILENT : FAKE_GOOD;
			rig = rig_make(FAKE_URI, 4, 30000);
			for (unsigned i = 0; i < 4; i++)
				assert_int_equal(rig_read(&rig, rig.bytes, 65536, 0, i), 0);
			for (unsigned i = 0; i < turns; i++)
				haul_loop_poll(rig.hl, NULL, 0);
			if (how == 1)
				haul_queue_close(rig.queue, 9);
			if (how == 2)
				haul_disconnect(rig.ctrl, 9);
			memset(&rig.queue, 0, sizeof(rig.queue));
			haul_ctrl_free(rig.ctrl);
			free(rig.bytes); /* nothing touches it any more */
			assert_int_equal(fake.nr_out, 0);
			haul_loop_destroy(rig.hl);
		}
}

/* B165: everything from the handling of an event. */
static void every_call_is_safe_while_events_are_handled(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct haul_event events[4];
	struct haul_ctrl *other;
	struct haul_queue *queue;
	int n;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(rig_read(&rig, rig.bytes + i * 512, 512, 0, i), 0);
	for (n = 0; n == 0;)
		n = haul_loop_poll(rig.hl, events, 2);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 7), 0);
	assert_int_equal(haul_connect(rig.hl, FAKE_URI, NULL, 8, &other), 0);
	assert_int_equal(haul_queue_create(rig.ctrl, NULL, 9, &queue), 0);
	assert_int_equal(haul_queue_close(queue, 10), 0);
	assert_int_equal(haul_disconnect(rig.ctrl, 11), 0);
	haul_ctrl_free(rig.ctrl); /* with events of it not handed out */
	assert_int_equal(wait_for(rig.hl, 8), 0);
	haul_ctrl_free(other);
	haul_loop_destroy(rig.hl);
	free(rig.bytes);
}

/* --- requests --------------------------------------------------------------------------------- */

static void slot_has_another_cid_each_time(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 1, 30000);
	uint16_t last = 0xffff;

	(void)state;
	for (unsigned i = 0; i < 70000; i++) {
		assert_int_equal(haul_flush(rig.queue, 1, 7), 0);
		assert_int_not_equal(rig.queue->requests[0].cid, last);
		assert_int_not_equal(rig.queue->requests[0].cid, 0xffff);
		assert_null(haul_queue_request_by_cid(rig.queue, last));
		last = rig.queue->requests[0].cid;
		assert_int_equal(wait_for(rig.hl, 7), 0);
		assert_null(haul_queue_request_by_cid(rig.queue, last));
	}
	rig_free(&rig);
}

static void no_cid_finds_a_request_that_is_not_out(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 5, 30000);

	(void)state;
	for (uint32_t cid = 0; cid <= 0xffff; cid++)
		assert_null(haul_queue_request_by_cid(rig.queue, (uint16_t)cid));
	rig_free(&rig);
}

static void io_allocates_nothing(void **state)
{
	struct rig rig;
	struct mallinfo2 before, after;

	(void)state;
	fake.id_ctrl.mdts = 1;
	rig = rig_make(FAKE_URI, 16, 30000);
	for (unsigned round = 0; round < 2; round++) {
		before = mallinfo2();
		for (unsigned i = 0; i < 1000; i++) {
			assert_int_equal(rig_write(&rig, rig.bytes, 65536, 0, 7), 0);
			assert_int_equal(wait_for(rig.hl, 7), 0);
		}
		after = mallinfo2();
	}
	assert_int_equal(after.uordblks, before.uordblks);
	rig_free(&rig);
}

/* --- the loop ----------------------------------------------------------------------------------
 */

static void arm_says_when_a_poll_is_due(void **state)
{
	struct rig rig = rig_make(FAKE_URI, 4, 30000);
	struct haul_event event;

	(void)state;
	while (haul_loop_arm(rig.hl) == 1)
		assert_int_equal(haul_loop_poll(rig.hl, &event, 1), 0);
	assert_true(haul_loop_fd(rig.hl) >= 0);
	assert_int_equal(rig_read(&rig, rig.bytes, 512, 0, 7), 0);
	assert_int_equal(haul_loop_arm(rig.hl), 1); /* the doorbell has not been rung */
	assert_int_equal(wait_for(rig.hl, 7), 0);
	rig_free(&rig);
}

static void interrupt_ends_a_wait(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_event event;

	(void)state;
	assert_int_equal(haul_loop_wait(hl, &event, 1, 1000000), 0);
	haul_loop_interrupt(hl);
	haul_loop_interrupt(hl);
	assert_int_equal(haul_loop_wait(hl, &event, 1, -1), -EINTR);
	assert_int_equal(haul_loop_wait(hl, &event, 1, 1000000), 0);
	haul_loop_destroy(hl);
}

/* --- memory ------------------------------------------------------------------------------------
 */

static void registered_memory_is_found_by_address(void **state)
{
	struct haul_loop *hl = loop_good();
	struct haul_mem *mem[40], *other;
	struct haul_loop_stats stats;
	static uint8_t bytes[41 * 4096];

	(void)state;
	for (unsigned i = 0; i < 40; i++) { /* in no order */
		unsigned k = i * 7 % 40;

		assert_int_equal(haul_mem_register(hl, bytes + k * 4096, 4000, &mem[k]), 0);
	}
	for (unsigned i = 0; i < 40; i++) {
		assert_ptr_equal(haul_mem_find(hl, bytes + i * 4096, 4000), mem[i]);
		assert_ptr_equal(haul_mem_find(hl, bytes + i * 4096 + 3999, 1), mem[i]);
		assert_null(haul_mem_find(hl, bytes + i * 4096, 4001));
		assert_null(haul_mem_find(hl, bytes + i * 4096 + 4000, 1));
	}
	assert_int_equal(haul_mem_register(hl, bytes + 3999, 1, &other), -EEXIST);
	assert_int_equal(haul_mem_register(hl, bytes + 4000, 97, &other), -EEXIST);
	assert_int_equal(haul_mem_register(hl, bytes, sizeof(bytes), &other), -EEXIST);
	assert_int_equal(haul_mem_register(hl, bytes, 0, &other), -EINVAL);
	assert_int_equal(haul_mem_register(hl, (void *)(UINTPTR_MAX - 10), 100, &other), -EINVAL);
	assert_int_equal(haul_mem_register(hl, bytes + 4000, 96, &other), 0);
	haul_loop_stats(hl, &stats);
	assert_int_equal(stats.nr_registered, 41);
	assert_int_equal(stats.registered_bytes, 40 * 4000 + 96);
	haul_mem_unregister(other);
	for (unsigned i = 0; i < 40; i++) {
		haul_mem_unregister(mem[i * 11 % 40]);
		assert_null(haul_mem_find(hl, bytes + (i * 11 % 40) * 4096, 1));
	}
	haul_loop_destroy(hl);
}

#define TEST(FN) cmocka_unit_test_setup_teardown(FN, fake_setup, fake_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(io_is_cut_at_mdts_and_ends_once),
		TEST(scattered_io_is_cut_between_blocks),
		TEST(adjoining_pieces_become_one),
		TEST(block_in_too_many_pieces_is_refused),
		TEST(empty_pieces_are_passed_over),
		TEST(zeroes_and_discards_stay_within_their_limits),
		TEST(what_breaks_the_rules_is_refused_at_once),
		TEST(commands_the_target_lacks_are_not_sent),
		TEST(full_queue_is_eagain_until_an_event_is_taken),
		TEST(large_io_at_full_depth_waits_its_turn),
		TEST(status_of_the_first_failed_part_is_the_result),
		TEST(silence_ends_all_of_the_association_in_time),
		TEST(late_answers_count_as_what_they_are),
		TEST(broken_connection_gives_each_io_back_once),
		TEST(close_hands_out_the_io_before_itself),
		TEST(disconnect_hands_out_the_io_before_itself),
		TEST(free_with_io_out_is_safe_at_any_moment),
		TEST(every_call_is_safe_while_events_are_handled),
		TEST(slot_has_another_cid_each_time),
		TEST(no_cid_finds_a_request_that_is_not_out),
		TEST(io_allocates_nothing),
		TEST(arm_says_when_a_poll_is_due),
		TEST(interrupt_ends_a_wait),
		TEST(registered_memory_is_found_by_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
