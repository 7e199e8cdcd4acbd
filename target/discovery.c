/* SPDX-License-Identifier: MIT */
/*
 * The discovery log (NVMe base 2.0 5.16.1.23), made entry by entry when it is read.
 */
#include "target/discovery.h"

#include <stdio.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/siphash.h"
#include "target/catalog.h"
#include "target/cmd.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/reactor.h"
#include "target/subsys.h"
#include "target/target.h"

/* What any controller can do (NVMe base 2.0 5.16.1.23, ASQSZ). */
#define DISCOVERY_MIN_ASQSZ 32

struct discovery_entry {
	struct nvme_disc_ext_entry ext;
	struct nvme_disc_ext_label label; /* directly behind it, as far as it is there */
	size_t size;			  /* of both */
};
static_assert(offsetof(struct discovery_entry, label) == sizeof(struct nvme_disc_ext_entry));
static_assert(SUBSYS_LABEL_MAX <= NVME_DISC_LABEL_MAX);

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
	const struct sockaddr_storage *address, uint16_t port, struct nvme_disc_entry *entry)
{
	char host[ADDRESS_HOST_TEXT];
	char service[8];

	address_host(address, host);
	/* A scope means something on this machine only. */
	host[strcspn(host, "%")] = '\0';
	snprintf(service, sizeof(service), "%u", port);
	entry->adrfam = address->ss_family == AF_INET6 ? NVME_ADRFAM_IPV6 : NVME_ADRFAM_IPV4;
	memset(entry->traddr, ' ', sizeof(entry->traddr));
	memset(entry->trsvcid, ' ', sizeof(entry->trsvcid));
	memcpy(entry->traddr, host, strlen(host));
	memcpy(entry->trsvcid, service, strlen(service));
}

/* What all entries have. TREQ 0: whether TLS is needed is not said. */
static void discovery_begin_entry(struct nvme_disc_entry *entry, uint8_t trtype, const char *nqn)
{
	memset(entry, 0, sizeof(*entry));
	entry->trtype = trtype;
	entry->cntlid = le16(NVME_CNTLID_DYNAMIC);
	memcpy(entry->subnqn, nqn, strlen(nqn));
	if (trtype == NVME_TRTYPE_RDMA) {
		entry->tsas.rdma.qptype = NVME_RDMA_QPTYPE_CONNECTED;
		entry->tsas.rdma.prtype = NVME_RDMA_PRTYPE_NONE;
		entry->tsas.rdma.cms = NVME_RDMA_CMS_RDMA_CM;
	} else {
		entry->tsas.tcp.sectype = NVME_TCP_SECTYPE_NONE;
	}
}

/* Of the other service no more is known than where it is. */
static void discovery_make_referral(const struct referral *referral, struct nvme_disc_entry *entry)
{
	discovery_begin_entry(entry, (uint8_t)referral->trtype, referral->nqn);
	entry->subtype = NVME_SUBTYPE_REFERRAL;
	entry->asqsz = le16(DISCOVERY_MIN_ASQSZ);
	discovery_set_address(&referral->address, address_port(&referral->address), entry);
}

static void discovery_make_entry(const struct conn *conn, const struct port *port,
	const struct subsys *subsys, struct nvme_disc_entry *entry)
{
	struct sockaddr_storage address;

	discovery_begin_entry(entry, port->ops->trtype,
		subsys->discovery ? conn->reactor->target->settings.discovery_nqn : subsys->nqn);
	entry->subtype = subsys->discovery ? NVME_SUBTYPE_CURRENT_DISCOVERY : NVME_SUBTYPE_NVM;
	/* "Not required" would say that the port can do TLS; nvme-cli then insists on a key. */
	entry->treq = NVME_TREQ_SECURE_UNSPECIFIED | NVME_TREQ_NO_SQFLOW;
	entry->asqsz = le16((uint16_t)port->ops->max_admin_depth);
	entry->portid = le16(port->portid);
	discovery_address(conn, port, &address);
	discovery_set_address(&address, address_port(&port->address), entry);
}

/* The only attribute that there is (NVMe base 2.1 figures 498 and 499). */
static void discovery_label(const struct subsys *subsys, struct discovery_entry *entry)
{
	size_t length = strlen(subsys->admin_label);
	struct nvme_disc_ext_label *label = &entry->label;
	bool ascii = true;

	memset(label, 0, sizeof(*label));
	entry->size = sizeof(entry->ext);
	if (length) {
		for (size_t i = 0; i < length; i++)
			ascii &= !(subsys->admin_label[i] & 0x80);
		memcpy(label->value, subsys->admin_label, length);
		length = (length + 3) / 4 * 4;
		label->type = le16(ascii ? NVME_EXATTYPE_LABEL_ASCII : NVME_EXATTYPE_LABEL_UTF8);
		label->length = le16((uint16_t)length);
		entry->size += offsetof(struct nvme_disc_ext_label, value) + length;
	}
	entry->ext.tel = le32((uint32_t)entry->size);
	entry->ext.numexat = le16(length > 0);
}

/* EFLAGS of the discovery subsystem: all its ports tell the same, unless there is a wildcard among
 * the listeners, whose entries depend on the address that a host came to. */
static uint16_t discovery_eflags(const struct catalog *catalog)
{
	for (uint32_t i = 0; i < catalog->nr_ports; i++)
		if (address_is_wildcard(&catalog->port[i]->address))
			return NVME_DISC_EFLAGS_EPCSD;
	return NVME_DISC_EFLAGS_EPCSD | NVME_DISC_EFLAGS_DUPRETINFO;
}

/* --- walking --------------------------------------------------------------------------------- */

/* One pass over the entries of a host, each made only to be taken. */
struct discovery_walk {
	const struct conn *conn;
	const char *hostnqn;
	const struct catalog *catalog;
	uint8_t lsp;
	uint16_t eflags;
	void (*take)(struct discovery_walk *walk); /* ENTRY; NULL: they are counted only */
	uint64_t nr, bytes;			   /* of those before ENTRY */
	const struct log_window *window;
	uint64_t digest;
	struct discovery_entry entry;
};

static size_t discovery_entry_size(const struct discovery_walk *walk)
{
	return walk->lsp & NVME_DISC_LSP_EXTDLPE ? walk->entry.size
						 : sizeof(struct nvme_disc_entry);
}

static uint64_t discovery_size(const struct discovery_walk *walk)
{
	return sizeof(struct nvme_disc_log) + walk->bytes;
}

/* ENTRY is whole, but for what need not be made to be counted. */
static void discovery_step(struct discovery_walk *walk)
{
	if (walk->take)
		walk->take(walk);
	walk->nr++;
	walk->bytes += discovery_entry_size(walk);
}

static void discovery_visit(
	struct discovery_walk *walk, const struct port *port, const struct subsys *subsys)
{
	struct sockaddr_storage unused;

	if (!discovery_address(walk->conn, port, &unused))
		return;
	if ((walk->lsp & NVME_DISC_LSP_PLEO) && port != walk->conn->port)
		return;
	if (walk->take) {
		discovery_make_entry(walk->conn, port, subsys, &walk->entry.ext.entry);
		walk->entry.ext.entry.eflags = le16(subsys->discovery ? walk->eflags : 0);
	}
	discovery_label(subsys, &walk->entry);
	discovery_step(walk);
}

static void discovery_walk_subsys(struct discovery_walk *walk, const struct subsys *subsys)
{
	for (uint32_t i = 0; i < walk->catalog->nr_ports; i++)
		discovery_visit(walk, walk->catalog->port[i], subsys);
}

/* The port that the host came in on is the first of the discovery subsystem's. */
static void discovery_walk_self(struct discovery_walk *walk)
{
	const struct port *own = walk->conn->port;

	discovery_visit(walk, own, &subsys_discovery);
	for (uint32_t i = 0; i < walk->catalog->nr_ports; i++)
		if (walk->catalog->port[i] != own)
			discovery_visit(walk, walk->catalog->port[i], &subsys_discovery);
}

static void discovery_walk_referrals(struct discovery_walk *walk)
{
	if (walk->lsp & NVME_DISC_LSP_PLEO)
		return;
	for (uint32_t i = 0; i < walk->catalog->nr_referrals; i++) {
		const struct referral *referral = &walk->catalog->referrals[i];

		if (!referral_is_shown(referral, walk->hostnqn))
			continue;
		if (walk->take)
			discovery_make_referral(referral, &walk->entry.ext.entry);
		discovery_label(&subsys_discovery, &walk->entry);
		discovery_step(walk);
	}
}

static void discovery_walk(struct discovery_walk *walk)
{
	const struct subsys *subsys;

	walk->eflags = discovery_eflags(walk->catalog);
	discovery_walk_self(walk);
	list_for_each_entry (subsys, &walk->catalog->subsystems, node)
		if (subsys_host_allowed(subsys, walk->hostnqn))
			discovery_walk_subsys(walk, subsys);
	discovery_walk_referrals(walk);
}

/* --- Get Log Page ---------------------------------------------------------------------------- */

static struct discovery_walk discovery_of_request(const struct request *request)
{
	const struct ctrl *ctrl = request->conn->member.ctrl;

	return (struct discovery_walk){.conn = ctrl->admin,
		.hostnqn = ctrl->hostnqn,
		.catalog = ctrl->reactor->catalog,
		.lsp = request->cmd.get_log.lsp & DISCOVERY_LSP};
}

uint16_t discovery_log_check(const struct request *request)
{
	const uint8_t specific = request->cmd.get_log.lsp & (uint8_t)~NVME_GET_LOG_RAE;

	return specific & ~DISCOVERY_LSP ? CMD_INVALID_FIELD : 0;
}

uint64_t discovery_log_size(const struct request *request)
{
	struct discovery_walk walk = discovery_of_request(request);

	discovery_walk(&walk);
	return discovery_size(&walk);
}

static void discovery_take_for_window(struct discovery_walk *walk)
{
	log_window_copy(
		walk->window, discovery_size(walk), &walk->entry, discovery_entry_size(walk));
}

void discovery_log_write(struct request *request, const struct log_window *window)
{
	struct discovery_walk walk = discovery_of_request(request);
	struct nvme_disc_log header = {
		.genctr = le64(walk.catalog->genctr), .recfmt = le16(NVME_DISC_RECFMT)};

	walk.window = window;
	walk.take = discovery_take_for_window;
	discovery_walk(&walk);
	header.numrec = le64(walk.nr);
	if (walk.lsp & NVME_DISC_LSP_EXTDLPE) {
		header.dlpf = NVME_DISC_DLPF_EXTDLP;
		header.tdlpl = le32((uint32_t)discovery_size(&walk));
	}
	log_window_copy(window, 0, &header, sizeof(header));
}

/* --- changes --------------------------------------------------------------------------------- */

static bool discovery_is_same_subsys(const struct subsys *one, const struct subsys *other)
{
	return !strcmp(one->nqn, other->nqn) && !strcmp(one->admin_label, other->admin_label) &&
	       one->allow_any == other->allow_any && host_list_is_same(&one->hosts, &other->hosts);
}

static bool discovery_has_same_subsystems(const struct catalog *before, const struct catalog *now)
{
	const struct list *one = before->subsystems.next, *other = now->subsystems.next;

	while (one != &before->subsystems && other != &now->subsystems) {
		if (!discovery_is_same_subsys(container_of(one, struct subsys, node),
			    container_of(other, struct subsys, node)))
			return false;
		one = one->next;
		other = other->next;
	}
	return one == &before->subsystems && other == &now->subsystems;
}

bool discovery_is_same(const struct catalog *before, const struct catalog *now)
{
	if (before->nr_ports != now->nr_ports || before->nr_referrals != now->nr_referrals)
		return false;
	for (uint32_t i = 0; i < now->nr_ports; i++)
		if (before->port[i] != now->port[i])
			return false;
	for (uint32_t i = 0; i < now->nr_referrals; i++)
		if (!referral_is_same(&before->referrals[i], &now->referrals[i]) ||
			!referral_is_shown_as(&before->referrals[i], &now->referrals[i]))
			return false;
	return discovery_has_same_subsystems(before, now);
}

static void discovery_take_for_digest(struct discovery_walk *walk)
{
	const uint64_t key[2] = {walk->digest, walk->nr};

	walk->digest = nvme_siphash(key, &walk->entry, walk->entry.size);
}

static uint64_t discovery_digest(const struct ctrl *ctrl, const struct catalog *catalog)
{
	struct discovery_walk walk = {.conn = ctrl->admin,
		.hostnqn = ctrl->hostnqn,
		.catalog = catalog,
		.take = discovery_take_for_digest};

	discovery_walk(&walk);
	return walk.digest;
}

bool discovery_differs(
	const struct ctrl *ctrl, const struct catalog *before, const struct catalog *now)
{
	return discovery_digest(ctrl, before) != discovery_digest(ctrl, now);
}
