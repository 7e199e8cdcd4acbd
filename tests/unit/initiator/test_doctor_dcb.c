/* SPDX-License-Identifier: MIT */
/*
 * haul doctor's question for priority flow control, with the kernel's answers made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "initiator/cli/doctor.h"
#include "proto/base/compiler.h"

static struct {
	_Alignas(struct nlmsghdr) char answer[512];
	ssize_t length; /* of the answer; below 0: there is none */
	char asked[16]; /* for which device */
	enum doctor_state state;
	char text[256];
	unsigned nr_told;
} dcb;

void doctor_tell(struct doctor *doctor, enum doctor_state state, const char *point,
	const char *cure, const char *format, ...)
{
	va_list args;

	(void)doctor;
	assert_string_equal(point, "flow control");
	assert_int_equal(cure != NULL, state == DOCTOR_HINT);
	dcb.state = state;
	dcb.nr_told++;
	va_start(args, format);
	vsnprintf(dcb.text, sizeof(dcb.text), format, args);
	va_end(args);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
	const struct nlmsghdr *header = bytes;
	const struct dcbmsg *message = NLMSG_DATA(header);
	const struct nlattr *name =
		(const void *)((const char *)bytes + NLMSG_SPACE(sizeof(*message)));

	(void)fd;
	(void)flags;
	assert_int_equal(header->nlmsg_len, length);
	assert_int_equal(header->nlmsg_type, RTM_GETDCB);
	assert_int_equal(message->cmd, DCB_CMD_IEEE_GET);
	assert_int_equal(name->nla_type, DCB_ATTR_IFNAME);
	snprintf(dcb.asked, sizeof(dcb.asked), "%s", (const char *)name + NLA_HDRLEN);
	return (ssize_t)length;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags)
{
	(void)fd;
	(void)flags;
	if (dcb.length > 0) {
		assert_true((size_t)dcb.length <= length);
		memcpy(bytes, dcb.answer, (size_t)dcb.length);
	}
	return dcb.length;
}

static struct nlattr *dcb_attribute(size_t at, unsigned type, size_t length)
{
	struct nlattr *attribute = (void *)(dcb.answer + at);

	attribute->nla_type = (unsigned short)type;
	attribute->nla_len = (unsigned short)(NLA_HDRLEN + length);
	return attribute;
}

/* As the kernel has it: the device's name, then the nest with ETS before PFC. */
static void dcb_answer(uint8_t enabled)
{
	const size_t begin = NLMSG_SPACE(sizeof(struct dcbmsg));
	const size_t name = NLA_HDRLEN + 8, ets = NLA_HDRLEN + 16;
	struct nlmsghdr *header = (void *)dcb.answer;
	struct ieee_pfc pfc = {.pfc_cap = 8, .pfc_en = enabled};

	memset(&dcb, 0, sizeof(dcb));
	header->nlmsg_type = RTM_GETDCB;
	dcb_attribute(begin, DCB_ATTR_IFNAME, 5);
	dcb_attribute(begin + name, DCB_ATTR_IEEE | NLA_F_NESTED, ets + NLA_HDRLEN + sizeof(pfc));
	dcb_attribute(begin + name + NLA_HDRLEN, DCB_ATTR_IEEE_ETS, 16);
	dcb_attribute(begin + name + NLA_HDRLEN + ets, DCB_ATTR_IEEE_PFC, sizeof(pfc));
	memcpy(dcb.answer + begin + name + NLA_HDRLEN + ets + NLA_HDRLEN, &pfc, sizeof(pfc));
	dcb.length = (ssize_t)(begin + name + NLA_HDRLEN + ets + NLA_HDRLEN + sizeof(pfc));
	header->nlmsg_len = (unsigned)dcb.length;
}

static void paused_classes_are_told(void **state)
{
	(void)state;
	dcb_answer(0x08);
	doctor_flow_control(NULL, "ens1");
	assert_string_equal(dcb.asked, "ens1");
	assert_int_equal(dcb.state, DOCTOR_OK);
	assert_non_null(strstr(dcb.text, "mask 08h"));
}

static void no_paused_class_is_a_hint(void **state)
{
	(void)state;
	dcb_answer(0);
	doctor_flow_control(NULL, "ens1");
	assert_int_equal(dcb.state, DOCTOR_HINT);
}

/* A device without DCB, an answer that is cut anywhere: nothing is known, nothing read beyond. */
static void what_the_device_does_not_say_is_unknown(void **state)
{
	ssize_t whole, length;

	(void)state;
	dcb_answer(0x08);
	whole = dcb.length;
	for (length = -1; length < whole; length++) {
		dcb_answer(0x08);
		memset(dcb.answer + max_of(length, (ssize_t)0), 0xff,
			(size_t)(whole - max_of(length, (ssize_t)0)));
		dcb.length = length;
		doctor_flow_control(NULL, "ens1");
		assert_int_equal(dcb.state, DOCTOR_UNKNOWN);
	}
	dcb_answer(0x08);
	((struct nlmsghdr *)dcb.answer)->nlmsg_type = NLMSG_ERROR;
	doctor_flow_control(NULL, "ens1");
	assert_int_equal(dcb.state, DOCTOR_UNKNOWN);
}

static void a_name_that_cannot_be_is_not_asked_for(void **state)
{
	(void)state;
	dcb_answer(0x08);
	doctor_flow_control(NULL, "");
	doctor_flow_control(NULL, "a-name-of-16-let");
	assert_int_equal(dcb.nr_told, 0);
	assert_string_equal(dcb.asked, "");
	doctor_flow_control(NULL, "a-name-of-15-le");
	assert_int_equal(dcb.nr_told, 1);
	assert_string_equal(dcb.asked, "a-name-of-15-le");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paused_classes_are_told),
		cmocka_unit_test(no_paused_class_is_a_hint),
		cmocka_unit_test(what_the_device_does_not_say_is_unknown),
		cmocka_unit_test(a_name_that_cannot_be_is_not_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
