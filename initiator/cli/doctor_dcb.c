/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: data center bridging of a network device, asked of the kernel over netlink. RoCE
 * loses much by every packet lost, so switches are to pause its class (PFC, IEEE 802.1Qbb) or to
 * mark packets early (ECN).
 */
#include "initiator/cli/doctor.h"

#include <errno.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define DOCTOR_DCB_SECONDS 2
#define DOCTOR_DCB_BYTES   4096

struct doctor_dcb_request {
	struct nlmsghdr header;
	struct dcbmsg dcb;
	char attributes[64];
};

static ssize_t doctor_dcb_talk(const char *netdev, char *answer, size_t size)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct timeval patience = {.tv_sec = DOCTOR_DCB_SECONDS};
	struct doctor_dcb_request request = {0};
	struct nlattr *name = (struct nlattr *)request.attributes;
	ssize_t n = -1;

	if (fd < 0)
		return -1;
	request.dcb.cmd = DCB_CMD_IEEE_GET;
	name->nla_type = DCB_ATTR_IFNAME;
	name->nla_len = (unsigned short)(NLA_HDRLEN + strlen(netdev) + 1);
	memcpy((char *)name + NLA_HDRLEN, netdev, strlen(netdev) + 1);
	request.header.nlmsg_len =
		(unsigned)(NLMSG_LENGTH(sizeof(request.dcb)) + NLA_ALIGN(name->nla_len));
	request.header.nlmsg_type = RTM_GETDCB;
	request.header.nlmsg_flags = NLM_F_REQUEST;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, &request, request.header.nlmsg_len, 0) > 0)
		n = recv(fd, answer, size, 0);
	close(fd);
	return n;
}

/* The attribute of TYPE among LENGTH bytes of them, or NULL. */
static const struct nlattr *doctor_attribute(const char *bytes, size_t length, unsigned type)
{
	while (length >= NLA_HDRLEN) {
		const struct nlattr *at = (const struct nlattr *)bytes;
		size_t step = NLA_ALIGN(at->nla_len);

		if (at->nla_len < NLA_HDRLEN || at->nla_len > length)
			return NULL;
		if ((at->nla_type & NLA_TYPE_MASK) == type)
			return at;
		if (step >= length)
			return NULL;
		bytes += step;
		length -= step;
	}
	return NULL;
}

/* The classes that are paused, a bit for each; -1: the device does not say. */
static int doctor_pfc(const char *answer, size_t length)
{
	const struct nlmsghdr *header = (const struct nlmsghdr *)answer;
	const size_t before = NLMSG_SPACE(sizeof(struct dcbmsg));
	const struct nlattr *at;
	struct ieee_pfc pfc;

	if (length < before || header->nlmsg_type != RTM_GETDCB)
		return -1;
	at = doctor_attribute(answer + before, length - before, DCB_ATTR_IEEE);
	if (at)
		at = doctor_attribute((const char *)at + NLA_HDRLEN,
			(size_t)at->nla_len - NLA_HDRLEN, DCB_ATTR_IEEE_PFC);
	if (!at || (size_t)at->nla_len - NLA_HDRLEN < sizeof(pfc))
		return -1;
	memcpy(&pfc, (const char *)at + NLA_HDRLEN, sizeof(pfc));
	return pfc.pfc_en;
}

void doctor_flow_control(struct doctor *doctor, const char *netdev)
{
	_Alignas(struct nlmsghdr) char answer[DOCTOR_DCB_BYTES];
	char cure[256];
	ssize_t n;
	int pfc;

	if (!netdev[0] || strlen(netdev) >= IFNAMSIZ)
		return;
	n = doctor_dcb_talk(netdev, answer, sizeof(answer));
	pfc = n > 0 ? doctor_pfc(answer, (size_t)n) : -1;
	snprintf(cure, sizeof(cure),
		"dcb pfc set dev %s prio-pfc all:off 3:on    # and at the "
		"switch; or ECN there, for DSCP of tos=",
		netdev);
	if (pfc < 0)
		doctor_tell(doctor, DOCTOR_UNKNOWN, "flow control", NULL,
			"%s does not say whether its classes are paused (PFC)", netdev);
	else if (pfc == 0)
		doctor_tell(doctor, DOCTOR_HINT, "flow control", cure,
			"no class of %s is paused (PFC): RoCE is slow where switches drop packets",
			netdev);
	else
		doctor_tell(doctor, DOCTOR_OK, "flow control", NULL,
			"PFC at %s for classes of mask %02xh", netdev, (unsigned)pfc);
}
