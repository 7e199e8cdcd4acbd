/* SPDX-License-Identifier: MIT */
/*
 * The discovery log (NVMe base 2.0 5.16.1.23), made entry by entry when it is read.
 */
#include "target/discovery.h"

#include <stdio.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/fabrics.h"
#include "target/catalog.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/subsys.h"

/* Where the host can reach PORT: for a wildcard, the address it came to. False: it cannot. */
static bool discovery_address(
	const struct conn *conn, const struct port *port, struct sockaddr_storage *ret)
{
	struct sockaddr_storage local = address_plain(&conn->local);

	*ret = address_plain(&port->address);
	if (!address_is_wildcard(&port->address))
		return true;
	/* A wildcard of IPv6 takes IPv4, too, unless another listener had it first. */
	if (port->address.ss_family == AF_INET && local.ss_family != AF_INET)
		return false;
	if (port->ipv6_only && local.ss_family == AF_INET)
		return false;
	*ret = local;
	return true;
}

static void discovery_set_address(
	const struct conn *conn, const struct port *port, struct nvme_disc_entry *entry)
{
	struct sockaddr_storage address;
	char host[ADDRESS_HOST_TEXT];
	char service[8];

	discovery_address(conn, port, &address);
	address_host(&address, host);
	/* A scope means something on this machine only. */
	host[strcspn(host, "%")] = '\0';
	snprintf(service, sizeof(service), "%u", address_port(&port->address));
	entry->adrfam = address.ss_family == AF_INET6 ? NVME_ADRFAM_IPV6 : NVME_ADRFAM_IPV4;
	memset(entry->traddr, ' ', sizeof(entry->traddr));
	memset(entry->trsvcid, ' ', sizeof(entry->trsvcid));
	memcpy(entry->traddr, host, strlen(host));
	memcpy(entry->trsvcid, service, strlen(service));
}

static void discovery_make_entry(const struct conn *conn, const struct port *port,
	const struct subsys *subsys, struct nvme_disc_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->trtype = port->ops->trtype;
	entry->subtype = subsys->discovery ? NVME_SUBTYPE_CURRENT_DISCOVERY : NVME_SUBTYPE_NVM;
	/* "Not required" would say that the port can do TLS; nvme-cli then insists on a key. */
	entry->treq = NVME_TREQ_SECURE_UNSPECIFIED | NVME_TREQ_NO_SQFLOW;
	entry->portid = le16(port->portid);
	entry->cntlid = le16(NVME_CNTLID_DYNAMIC);
	entry->asqsz = le16(CTRL_ADMIN_DEPTH);
	entry->eflags =
		le16(subsys->discovery ? NVME_DISC_EFLAGS_EPCSD | NVME_DISC_EFLAGS_DUPRETINFO : 0);
	memcpy(entry->subnqn, subsys->nqn, strlen(subsys->nqn));
	discovery_set_address(conn, port, entry);
	if (port->ops->trtype == NVME_TRTYPE_RDMA) {
		entry->tsas.rdma.qptype = NVME_RDMA_QPTYPE_CONNECTED;
		entry->tsas.rdma.prtype = NVME_RDMA_PRTYPE_NONE;
		entry->tsas.rdma.cms = NVME_RDMA_CMS_RDMA_CM;
	} else {
		entry->tsas.tcp.sectype = NVME_TCP_SECTYPE_NONE;
	}
}

/* Copies the part of [AT, AT + SIZE) that lies in the window. */
struct discovery_window {
	uint64_t offset;
	uint64_t length;
	char *bytes;
};

static void discovery_copy(
	const struct discovery_window *window, uint64_t at, const void *from, size_t size)
{
	uint64_t start = max_of(at, window->offset);
	uint64_t end = min_of(at + size, window->offset + window->length);

	if (start < end)
		memcpy(window->bytes + (start - window->offset), (const char *)from + (start - at),
			end - start);
}

/* Into the window, if there is one; returns the number of entries. */
static uint64_t discovery_entries(const struct ctrl *ctrl, const struct discovery_window *window)
{
	const struct conn *conn = ctrl->admin;
	const struct catalog *catalog = ctrl->reactor->catalog;
	struct nvme_disc_entry entry;
	struct sockaddr_storage unused;
	const struct subsys *subsys;
	uint64_t nr = 1;

	if (window) {
		discovery_make_entry(conn, conn->port, &subsys_discovery, &entry);
		discovery_copy(window, sizeof(struct nvme_disc_log), &entry, sizeof(entry));
	}
	list_for_each_entry (subsys, &catalog->subsystems, node) {
		if (!subsys_host_allowed(subsys, ctrl->hostnqn))
			continue;
		for (uint32_t i = 0; i < catalog->nr_ports; i++) {
			const struct port *port = catalog->port[i];

			if (!discovery_address(conn, port, &unused))
				continue;
			if (window) {
				discovery_make_entry(conn, port, subsys, &entry);
				discovery_copy(window,
					sizeof(struct nvme_disc_log) + nr * sizeof(entry), &entry,
					sizeof(entry));
			}
			nr++;
		}
	}
	return nr;
}

uint64_t discovery_log_size(const struct ctrl *ctrl)
{
	return sizeof(struct nvme_disc_log) +
	       discovery_entries(ctrl, NULL) * sizeof(struct nvme_disc_entry);
}

void discovery_log_fill(const struct ctrl *ctrl, uint64_t offset, uint32_t length, void *bytes)
{
	const struct discovery_window window = {.offset = offset, .length = length, .bytes = bytes};
	struct nvme_disc_log header = {.genctr = le64(ctrl->reactor->catalog->generation),
		.recfmt = le16(NVME_DISC_RECFMT)};

	header.numrec = le64(discovery_entries(ctrl, &window));
	discovery_copy(&window, 0, &header, sizeof(header));
}
