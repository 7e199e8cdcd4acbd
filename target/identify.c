/* SPDX-License-Identifier: MIT */
/*
 * Identify (NVMe base 2.0 5.17). Each answer is a zeroed page in which the facts are set.
 */
#include "proto/nvme/identify.h"

#include <string.h>

#include "target/cmd.h"
#include "target/cmd_copy.h"
#include "target/conn.h"
#include "target/ctrl.h"
#include "target/error_log.h"
#include "target/fused.h"
#include "target/identify_ctrls.h"
#include "target/port.h"
#include "target/reactor.h"
#include "target/smart.h"
#include "target/subsys.h"
#include "target/target.h"
#include "target/transport.h"
#include "target/write_protect.h"

#define IDENTIFY_MODEL	   "haul NVMe-oF target"
#define IDENTIFY_FIRMWARE  HAUL_VERSION
/* Of all namespaces that there can be. */
#define IDENTIFY_MAX_BLOCK 4096u
/* CAP.MPSMIN, which MDTS counts in powers of two. */
#define IDENTIFY_PAGE	   4096u
/* A shutdown takes as long as the disks need to flush. Linux waits this long for it, or 5 s when it
 * is told nothing. */
#define IDENTIFY_RTD3E_US  (CTRL_CAP_TO * 500000u)

static void identify_text(char *field, size_t size, const char *text)
{
	if (nvme_field_set(field, size, text))
		memset(field, ' ', size);
}

static uint8_t identify_mdts(uint32_t bytes)
{
	uint8_t mdts = 0;

	while (IDENTIFY_PAGE << mdts < bytes)
		mdts++;
	return mdts;
}

static uint32_t identify_fused_bytes(const struct ctrl *ctrl)
{
	return min_of(FUSED_MAX_BYTES, ctrl->admin->transfer_max);
}

static void identify_ctrl_common(const struct ctrl *ctrl, struct nvme_id_ctrl *id)
{
	const uint32_t *limit = ctrl->admin->port->option;
	const char *nqn;

	identify_text(id->sn, sizeof(id->sn), ctrl->subsys->serial);
	identify_text(id->mn, sizeof(id->mn), IDENTIFY_MODEL);
	identify_text(id->fr, sizeof(id->fr), IDENTIFY_FIRMWARE);
	id->mdts = identify_mdts(limit[TRANSPORT_MDTS]);
	id->cntlid = le16(ctrl->cntlid);
	id->ver = le32(CTRL_VERSION);
	id->ctratt = le32(NVME_ID_CTRATT_HOSTID_128 | NVME_ID_CTRATT_TBKAS);
	id->aerl = CTRL_MAX_AERS - 1;
	id->elpe = ERROR_LOG_ENTRIES - 1;
	id->kas = le16((uint16_t)(ctrl->reactor->target->settings.kas_ms / 100));
	id->sqes = NVME_SQES << 4 | NVME_SQES;
	id->cqes = NVME_CQES << 4 | NVME_CQES;
	id->maxcmd = le16((uint16_t)limit[TRANSPORT_MAX_QUEUE_SIZE]);
	id->sgls = le32(ctrl->admin->ops->sgls);
	nqn = ctrl->subsys->discovery ? ctrl->reactor->target->settings.discovery_nqn
				      : ctrl->subsys->nqn;
	memcpy(id->subnqn, nqn, strlen(nqn));
	id->ioccsz = le32((uint32_t)(sizeof(struct nvme_cmd) + limit[TRANSPORT_IN_CAPSULE]) / 16);
	id->iorcsz = le32(sizeof(struct nvme_cqe) / 16);
	id->msdbd = (uint8_t)ctrl->admin->msdbd;
}

/* NVMe base 2.0 8.1. A namespace may change its group. */
static void identify_ana(struct nvme_id_ctrl *id)
{
	id->anatt = ANA_TRANSITION_S;
	id->anacap = NVME_ID_ANACAP_OPTIMIZED | NVME_ID_ANACAP_NON_OPTIMIZED |
		     NVME_ID_ANACAP_INACCESSIBLE | NVME_ID_ANACAP_PERSISTENT_LOSS |
		     NVME_ID_ANACAP_CHANGE;
	id->anagrpmax = id->nanagrpid = le32(ANA_MAX_GROUPS);
	id->mnan = le32(SUBSYS_MAX_NSID);
}

static uint16_t identify_ctrl(const struct ctrl *ctrl, struct nvme_id_ctrl *id)
{
	identify_ctrl_common(ctrl, id);
	id->lpa = NVME_ID_LPA_EFFECTS | NVME_ID_LPA_EXTENDED | NVME_ID_LPA_LID0;
	if (ctrl->subsys->discovery) {
		id->cntrltype = NVME_CNTRLTYPE_DISCOVERY;
		id->dctype = NVME_DCTYPE_DDC;
		id->oaes = le32(NVME_AEC_DISCOVERY);
		return 0;
	}
	id->cntrltype = NVME_CNTRLTYPE_IO;
	id->lpa |= NVME_ID_LPA_SMART_NS;
	id->cmic = NVME_ID_CMIC_MULTI_PORT | NVME_ID_CMIC_MULTI_CTRL | NVME_ID_CMIC_ANA;
	identify_ana(id);
	id->rab = NVME_ARBITRATION_AB_NO_LIMIT;
	id->rtd3e = le32(IDENTIFY_RTD3E_US);
	id->crdt[0] = le16(CTRL_CRDT1);
	id->crdt[1] = le16(CTRL_CRDT2);
	id->oaes = le32(NVME_AEC_NS | NVME_AEC_ANA);
	id->acl = CTRL_MAX_ABORTS - 1;
	id->frmw = NVME_ID_FRMW_SLOT1_READONLY | 1 << NVME_ID_FRMW_SLOTS_SHIFT;
	id->wctemp = le16(SMART_WCTEMP);
	id->cctemp = le16(SMART_CCTEMP);
	id->nn = le32(SUBSYS_MAX_NSID);
	id->oncs = le16(NVME_ID_ONCS_COMPARE | NVME_ID_ONCS_DSM | NVME_ID_ONCS_WRITE_ZEROES |
			NVME_ID_ONCS_FEATURES_SAVE | NVME_ID_ONCS_RESERVATIONS |
			NVME_ID_ONCS_TIMESTAMP | NVME_ID_ONCS_VERIFY | NVME_ID_ONCS_COPY);
	id->ocfs = le16(NVME_ID_OCFS_FORMAT_0);
	id->fuses = le16(NVME_ID_FUSES_COMPARE_WRITE);
	/* AWUN, AWUPF: 0, a block. A pair may be as long in blocks of any size. */
	id->acwu = le16((uint16_t)(identify_fused_bytes(ctrl) / IDENTIFY_MAX_BLOCK - 1));
	id->vwc = NVME_ID_VWC_FLUSH_ALL_YES |
		  (ctrl->subsys->volatile_cache ? NVME_ID_VWC_PRESENT : 0);
	if (write_protect_offered(ctrl->reactor->target))
		id->nwpc = NVME_ID_NWPC_SET;
	id->ofcs = le16(NVME_ID_OFCS_DISCONNECT);
	return 0;
}

/* --- namespaces ------------------------------------------------------------------------------ */

/* In blocks, 0 when it is not known, does not fit or is less than a block. */
static uint16_t identify_lbas(const struct ns *ns, uint32_t bytes)
{
	uint32_t lbas = bytes >> ns->lba_shift;

	return lbas <= UINT16_MAX && lbas << ns->lba_shift == bytes ? (uint16_t)lbas : 0;
}

/* NVM command set 1.0 5.8.2. All but NOIOB are 0's based, and what is not known is a block. */
static void identify_ns_optimal(const struct ctrl *ctrl, const struct ns *ns, struct nvme_id_ns *id)
{
	const struct backend_limits *limits = &ns->place->backend->geometry.limits;
	uint32_t write = max_of(identify_lbas(ns, limits->write_bytes), 1);
	uint32_t discard = max_of(identify_lbas(ns, limits->discard_bytes), 1);
	uint32_t optimal = identify_lbas(ns, limits->optimal_bytes);

	id->noiob = le16(identify_lbas(ns, limits->boundary_bytes));
	/* No command writes more than MDTS. */
	if (optimal % write || optimal < write || limits->optimal_bytes > ctrl->admin->transfer_max)
		optimal = write;
	if (write == 1 && discard == 1 && optimal == 1)
		return;
	id->nsfeat |= NVME_ID_NSFEAT_OPTPERF;
	id->npwg = id->npwa = le16((uint16_t)(write - 1));
	id->npdg = id->npda = le16((uint16_t)(discard - 1));
	id->nows = le16((uint16_t)(optimal - 1));
}

/* NAWUN, NAWUPF: 0, as the controller's, which is all that disks promise (NVM command
 * set 1.0 2.1.4).
 */
static void identify_ns_atomic(const struct ctrl *ctrl, const struct ns *ns, struct nvme_id_ns *id)
{
	id->nsfeat |= NVME_ID_NSFEAT_ATOMICS;
	id->nacwu = le16((uint16_t)((identify_fused_bytes(ctrl) >> ns->lba_shift) - 1));
}

static void identify_ns_copy(const struct ns *ns, struct nvme_id_ns *id)
{
	id->mssrl = le16((uint16_t)(COPY_MAX_RANGE_BYTES >> ns->lba_shift));
	id->mcl = le32(COPY_MAX_BYTES >> ns->lba_shift);
	id->msrc = COPY_MAX_RANGES - 1;
}

static uint8_t identify_rescap(const struct ns *ns)
{
	return NVME_ID_RESCAP_TYPES | NVME_ID_RESCAP_IEKEY |
	       (ns->may_persist ? NVME_ID_RESCAP_PTPL : 0);
}

/* NVM command set 1.0 2.1.1: how much is used is not known where it cannot be reached. */
static void identify_ns_ana(const struct ctrl *ctrl, const struct ns *ns, struct nvme_id_ns *id)
{
	enum nvme_ana_state state = ana_state(ctrl->subsys, ns->ana_group, ctrl->portid);

	id->anagrpid = le32(ns->ana_group);
	if (state != NVME_ANA_INACCESSIBLE && state != NVME_ANA_PERSISTENT_LOSS)
		return;
	id->nuse = le64(0);
	id->nvmcap = le128(0);
}

static uint16_t identify_ns(const struct ctrl *ctrl, const struct ns *ns, struct nvme_id_ns *id)
{
	const struct backend_geometry *geometry = &ns->place->backend->geometry;

	id->nsze = id->ncap = id->nuse = le64(ns->nr_lbas);
	id->nmic = NVME_ID_NMIC_SHARED;
	id->rescap = identify_rescap(ns);
	id->dlfeat =
		NVME_ID_DLFEAT_DEAC | (geometry->discard_zeroes ? NVME_ID_DLFEAT_READ_ZEROES : 0);
	id->nvmcap = le128(ns->nr_lbas << ns->lba_shift);
	identify_ns_optimal(ctrl, ns, id);
	identify_ns_atomic(ctrl, ns, id);
	identify_ns_copy(ns, id);
	id->nsattr = ns->read_only ? NVME_ID_NSATTR_WRITE_PROTECTED : 0;
	memcpy(id->nguid, ns->nguid, sizeof(id->nguid));
	memcpy(&id->eui64, ns->eui64, sizeof(id->eui64));
	id->lbaf[0].ds = ns->lba_shift;
	identify_ns_ana(ctrl, ns, id);
	return 0;
}

static uint8_t *identify_add_desc(uint8_t *at, uint8_t nidt, const void *nid, uint8_t size)
{
	struct nvme_ns_desc *desc = (struct nvme_ns_desc *)at;

	desc->nidt = nidt;
	desc->nidl = size;
	memcpy(desc->nid, nid, size);
	return at + sizeof(*desc) + size;
}

static uint16_t identify_ns_descs(const struct ns *ns, void *page)
{
	static const uint8_t csi = NVME_CSI_NVM;
	uint8_t *at = page;

	at = identify_add_desc(at, NVME_NIDT_EUI64, ns->eui64, sizeof(ns->eui64));
	at = identify_add_desc(at, NVME_NIDT_NGUID, ns->nguid, sizeof(ns->nguid));
	at = identify_add_desc(at, NVME_NIDT_UUID, ns->uuid.b, sizeof(ns->uuid.b));
	identify_add_desc(at, NVME_NIDT_CSI, &csi, sizeof(csi));
	return 0;
}

static uint16_t identify_ns_independent(const struct ns *ns, struct nvme_id_ns_independent *id)
{
	id->nmic = NVME_ID_NMIC_SHARED;
	id->rescap = identify_rescap(ns);
	id->nsattr = ns->read_only ? NVME_ID_NSATTR_WRITE_PROTECTED : 0;
	id->anagrpid = le32(ns->ana_group);
	id->nstat = NVME_ID_NSTAT_READY;
	return 0;
}

static uint16_t identify_ns_list(
	const struct subsys *subsys, uint32_t after, struct nvme_ns_list *list)
{
	uint32_t nr = 0;

	if (after >= NVME_NSID_MAX)
		return NVME_SC_INVALID_NS | NVME_STATUS_DNR;
	for (uint32_t nsid = after + 1; nsid < subsys->ns_limit && nr < NVME_NS_LIST_MAX; nsid++)
		if (subsys->ns[nsid])
			list->nsid[nr++] = le32(nsid);
	return 0;
}

/* Nothing but what the commands' fields can say limits what one may be for (0), and Write Zeroes is
 * recommended to be as long in blocks of any size (NVM command set 1.0 3.2.8): without that, Linux
 * takes MDTS for its limit. */
static uint16_t identify_ctrl_nvm(struct nvme_id_ctrl_nvm *id)
{
	id->wzsl = CMD_WZSL;
	return 0;
}

static uint16_t identify_io_command_sets(struct nvme_id_iocs *id)
{
	id->iocsc[0] = le64(1ull << NVME_CSI_NVM);
	return 0;
}

/* --- the command ----------------------------------------------------------------------------- */

/* Of the page that CNS names; NULL NS: the id is legal but nothing is there. */
static uint16_t identify_fill_ns(const struct request *request, const struct ns *ns, void *page)
{
	const struct nvme_cmd_identify *identify = &request->cmd.identify;

	switch (identify->cns) {
	case NVME_CNS_NS:
	case NVME_CNS_ALLOCATED_NS:
		return ns ? identify_ns(request->conn->member.ctrl, ns, page) : 0;
	case NVME_CNS_NS_DESC_LIST:
		return ns ? identify_ns_descs(ns, page) : CMD_INVALID_FIELD;
	case NVME_CNS_INDEPENDENT_NS:
		return ns ? identify_ns_independent(ns, page) : 0;
	default: /* NVME_CNS_CSI_NS, NVME_CNS_CSI_ALLOCATED_NS: the NVM command set's page has
		  * nothing to say without metadata
		  */
		return identify->csi == NVME_CSI_NVM ? 0 : CMD_INVALID_FIELD;
	}
}

static uint16_t identify_fill(const struct request *request, const struct ctrl *ctrl, void *page)
{
	const struct nvme_cmd_identify *identify = &request->cmd.identify;
	uint32_t nsid = le32_get(request->cmd.nsid);

	if (identify->cns == NVME_CNS_CTRL)
		return identify_ctrl(ctrl, page);
	if (ctrl->subsys->discovery)
		return CMD_INVALID_FIELD;
	switch (identify->cns) {
	case NVME_CNS_NS:
	case NVME_CNS_NS_DESC_LIST:
	case NVME_CNS_CSI_NS:
	case NVME_CNS_INDEPENDENT_NS:
	case NVME_CNS_ALLOCATED_NS:
	case NVME_CNS_CSI_ALLOCATED_NS:
		if (!nsid_valid(nsid))
			return NVME_SC_INVALID_NS | NVME_STATUS_DNR;
		return identify_fill_ns(request, subsys_ns(ctrl->subsys, nsid), page);
	/* What there is is attached to every controller: allocated ones are active. */
	case NVME_CNS_ACTIVE_NS_LIST:
	case NVME_CNS_ALLOCATED_NS_LIST:
		return identify_ns_list(ctrl->subsys, nsid, page);
	case NVME_CNS_CSI_ACTIVE_NS_LIST:
	case NVME_CNS_CSI_ALLOCATED_NS_LIST:
		if (identify->csi != NVME_CSI_NVM)
			return CMD_INVALID_FIELD;
		return identify_ns_list(ctrl->subsys, nsid, page);
	case NVME_CNS_CSI_CTRL:
		return identify->csi == NVME_CSI_NVM ? identify_ctrl_nvm(page) : CMD_INVALID_FIELD;
	case NVME_CNS_IO_COMMAND_SETS:
		return identify_io_command_sets(page);
	default:
		return CMD_INVALID_FIELD;
	}
}

static bool identify_is_of_ctrls(const struct request *request)
{
	uint8_t cns = request->cmd.identify.cns;

	return (cns == NVME_CNS_NS_CTRL_LIST || cns == NVME_CNS_CTRL_LIST) &&
	       !request->conn->subsys->discovery;
}

uint16_t cmd_identify_prepare(struct request *request)
{
	request->data_len = NVME_IDENTIFY_SIZE;
	return 0;
}

void cmd_identify_run(struct request *request)
{
	struct ctrl *ctrl = request->conn->member.ctrl;
	uint16_t status;

	if (!identify_is_of_ctrls(request)) {
		request_complete(request, identify_fill(request, ctrl, request->bytes));
		return;
	}
	status = identify_ctrls_check(request);
	if (status)
		request_complete(request, status);
	else
		identify_ctrls_run(request);
}
