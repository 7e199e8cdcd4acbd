/* SPDX-License-Identifier: MIT */
/*
 * Status texts and the translation to and from errno.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/base/compiler.h"
#include "proto/nvme/nvme.h"
#include "proto/nvme/status.h"

static void any_status_has_a_text_and_an_errno(void **state)
{
	(void)state;
	for (unsigned status = 0; status < 0x8000; status++) {
		assert_true(strlen(nvme_status_str((uint16_t)status)) > 0);
		if ((status & NVME_STATUS_CODE_MASK) == NVME_SC_SUCCESS)
			assert_int_equal(nvme_status_to_errno((uint16_t)status), 0);
		else
			assert_true(nvme_status_to_errno((uint16_t)status) < 0);
	}
}

/* What a backend reports here reaches the caller there. */
static void errno_survives_the_wire(void **state)
{
	static const int errors[] = {0, EINVAL, EOPNOTSUPP, EROFS, EACCES, ERANGE, ENOSPC, EILSEQ,
		EBADE, ENODEV, EPROTO, EFAULT, EBADMSG, ECANCELED, EAGAIN, EBUSY, ENOLINK, EIO};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		uint16_t status = nvme_status_from_errno(-errors[i], true);

		assert_int_equal(nvme_status_to_errno(status), -errors[i]);
	}
}

static void only_what_passes_by_itself_may_be_retried(void **state)
{
	static const struct {
		int error;
		uint16_t read, write;
	} cases[] = {
		{0, 0, 0},
		{-EIO, NVME_SC_READ_ERROR | NVME_STATUS_DNR, NVME_SC_WRITE_FAULT | NVME_STATUS_DNR},
		{-ENODATA, NVME_SC_READ_ERROR | NVME_STATUS_DNR,
			NVME_SC_WRITE_FAULT | NVME_STATUS_DNR},
		{-EINVAL, NVME_SC_INVALID_FIELD | NVME_STATUS_DNR,
			NVME_SC_INVALID_FIELD | NVME_STATUS_DNR},
		{-ENOSPC, NVME_SC_CAPACITY_EXCEEDED | NVME_STATUS_DNR,
			NVME_SC_CAPACITY_EXCEEDED | NVME_STATUS_DNR},
		{-EROFS, NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR,
			NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR},
		{-EAGAIN, NVME_SC_INTERRUPTED, NVME_SC_INTERRUPTED},
		{-EBUSY, NVME_SC_NS_NOT_READY, NVME_SC_NS_NOT_READY},
		{-ENOMEM, NVME_SC_INTERRUPTED, NVME_SC_INTERRUPTED},
		{-ENOTTY, NVME_SC_INTERNAL | NVME_STATUS_DNR, NVME_SC_INTERNAL | NVME_STATUS_DNR},
		{-4095, NVME_SC_INTERNAL | NVME_STATUS_DNR, NVME_SC_INTERNAL | NVME_STATUS_DNR},
		{1, NVME_SC_INTERNAL | NVME_STATUS_DNR, NVME_SC_INTERNAL | NVME_STATUS_DNR},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(nvme_status_from_errno(cases[i].error, false), cases[i].read);
		assert_int_equal(nvme_status_from_errno(cases[i].error, true), cases[i].write);
	}
}

static void retry_bits_do_not_hide_the_code(void **state)
{
	(void)state;
	assert_int_equal(nvme_status_to_errno(NVME_SC_LBA_RANGE | NVME_STATUS_DNR |
					      NVME_STATUS_MORE | NVME_STATUS_CRD_MASK),
		-ERANGE);
	assert_string_equal(
		nvme_status_str(NVME_SC_LBA_RANGE | NVME_STATUS_DNR), "LBA Out of Range");
	assert_string_equal(nvme_status_str(0x3ff), "unknown path error");
	assert_int_equal(nvme_status_to_errno(0x3ff), -ENOLINK);
	assert_int_equal(nvme_status_to_errno(0x7ff), -EIO);
}

static void status_stands_above_the_phase_bit(void **state)
{
	struct nvme_cqe cqe = {0};

	(void)state;
	nvme_cqe_set_status(&cqe, NVME_SC_CONNECT_INVALID_PARAM | NVME_STATUS_DNR);
	assert_int_equal(le16_get(cqe.status), 0x8304);
	assert_int_equal(nvme_cqe_status(&cqe), 0x4182);
	cqe.status = le16(0x8305);
	assert_int_equal(nvme_cqe_status(&cqe), 0x4182);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_status_has_a_text_and_an_errno),
		cmocka_unit_test(errno_survives_the_wire),
		cmocka_unit_test(only_what_passes_by_itself_may_be_retried),
		cmocka_unit_test(retry_bits_do_not_hide_the_code),
		cmocka_unit_test(status_stands_above_the_phase_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
