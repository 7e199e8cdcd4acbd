/* SPDX-License-Identifier: MIT */
/*
 * NVMe base 2.0 and NVM command set 1.0: command, completion, opcodes, properties, features and the
 * small data structures of commands. Identify is in identify.h, log pages in log.h, fabrics
 * commands in fabrics.h.
 */
#ifndef HAUL_PROTO_NVME_NVME_H
#define HAUL_PROTO_NVME_NVME_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/nvme/auth.h"
#include "proto/nvme/endian.h"
#include "proto/nvme/fabrics.h"
#include "proto/nvme/sgl.h"

#define NVME_NSID_ALL			     0xffffffffu /* broadcast */
#define NVME_NSID_MAX			     0xfffffffeu
#define NVME_VERSION(major, minor, tertiary) ((uint32_t)(major) << 16 | (minor) << 8 | (tertiary))

/* --- command ------------------------------------------------------------------------------- */

/* Flags of the command (byte 1). */
#define NVME_CMD_FUSE_MASK   0x03
#define NVME_CMD_FUSE_FIRST  0x01
#define NVME_CMD_FUSE_SECOND 0x02
#define NVME_CMD_PSDT_MASK   0xc0
#define NVME_CMD_PSDT_SGL    0x40 /* the only one on fabrics (NVMe base 2.0 3.3.1.1) */

/* Views of CDW10 to CDW15. */
struct nvme_cmd_rw {
	le64_t slba;
	le16_t nlb; /* 0's based */
	le16_t control;
	uint8_t dsm;
	uint8_t rsvd53;
	le16_t dspec;
	le32_t ilbrt;
	le16_t lbat;
	le16_t lbatm;
};
static_assert(sizeof(struct nvme_cmd_rw) == 24);

/* Control of struct nvme_cmd_rw: the upper half of CDW12. */
#define NVME_RW_DEAC	   0x0200 /* Write Zeroes */
#define NVME_RW_STC	   0x0100
#define NVME_RW_PRINFO	   0x3c00
#define NVME_RW_PRACT	   0x2000
#define NVME_RW_FUA	   0x4000
#define NVME_RW_LR	   0x8000 /* limited retry */
#define NVME_RW_DTYPE_MASK 0x00f0

struct nvme_cmd_dsm {
	uint8_t nr; /* ranges, 0's based */
	uint8_t rsvd41[3];
	le32_t attributes;
	uint8_t rsvd48[16];
};
static_assert(sizeof(struct nvme_cmd_dsm) == 24);

#define NVME_DSM_IDR 0x1
#define NVME_DSM_IDW 0x2
#define NVME_DSM_AD  0x4 /* deallocate */

struct nvme_cmd_copy {
	le64_t sdlba;
	uint8_t nr;	/* ranges, 0's based */
	uint8_t format; /* bits 3:0: descriptor format; 7:4 PRINFOR */
	le16_t control;
	le16_t rsvd52;
	le16_t dspec;
	le32_t ilbrt;
	le16_t lbat;
	le16_t lbatm;
};
static_assert(sizeof(struct nvme_cmd_copy) == 24);

struct nvme_cmd_identify {
	uint8_t cns;
	uint8_t rsvd41;
	le16_t cntid;
	le16_t cnssid;
	uint8_t rsvd46;
	uint8_t csi;
	uint8_t rsvd48[8];
	uint8_t uuid_index; /* bits 6:0 */
	uint8_t rsvd57[7];
};
static_assert(sizeof(struct nvme_cmd_identify) == 24);
static_assert(offsetof(struct nvme_cmd_identify, uuid_index) == 56 - 40);

struct nvme_cmd_get_log {
	uint8_t lid;
	uint8_t lsp;  /* bit 7: retain asynchronous event; 6:0 log specific */
	le16_t numdl; /* NUMD is the number of dwords, 0's based */
	le16_t numdu;
	le16_t lsi;
	le64_t lpo;	    /* or an index, with OT */
	uint8_t uuid_index; /* bits 6:0 */
	uint8_t rsvd57;
	uint8_t ot; /* bit 7: the offset is an index */
	uint8_t csi;
	uint8_t rsvd60[4];
};
static_assert(sizeof(struct nvme_cmd_get_log) == 24);
static_assert(offsetof(struct nvme_cmd_get_log, lpo) == 48 - 40);
static_assert(offsetof(struct nvme_cmd_get_log, csi) == 59 - 40);

#define NVME_GET_LOG_RAE 0x80 /* in lsp */
#define NVME_GET_LOG_OT	 0x80 /* in ot */

struct nvme_cmd_features {
	uint8_t fid;
	uint8_t sel; /* Get: bits 2:0 */
	uint8_t rsvd42;
	uint8_t sv; /* Set: bit 7, save */
	le32_t cdw11;
	le32_t cdw12;
	le32_t cdw13;
	uint8_t uuid_index; /* bits 6:0 */
	uint8_t rsvd57[3];
	le32_t cdw15;
};
static_assert(sizeof(struct nvme_cmd_features) == 24);

#define NVME_FEATURES_SV 0x80

enum nvme_feature_select {
	NVME_FEATURE_CURRENT = 0,
	NVME_FEATURE_DEFAULT = 1,
	NVME_FEATURE_SAVED = 2,
	NVME_FEATURE_SUPPORTED = 3, /* capabilities: */
};

#define NVME_FEATURE_CAP_SAVEABLE   0x1
#define NVME_FEATURE_CAP_NS	    0x2 /* namespace specific */
#define NVME_FEATURE_CAP_CHANGEABLE 0x4

struct nvme_cmd_abort {
	le16_t sqid;
	le16_t cid;
	uint8_t rsvd44[20];
};
static_assert(sizeof(struct nvme_cmd_abort) == 24);

struct nvme_cmd_reservation {
	uint8_t action; /* bits 2:0; bit 3 IEKEY */
	uint8_t rtype;	/* Acquire and Release: reservation type */
	uint8_t rsvd42;
	uint8_t cptpl; /* Register: bits 7:6 */
	uint8_t rsvd44[20];
};
static_assert(sizeof(struct nvme_cmd_reservation) == 24);

struct nvme_cmd_reservation_report {
	le32_t numd; /* dwords, 0's based */
	uint8_t eds; /* bit 0: extended data structure */
	uint8_t rsvd45[19];
};
static_assert(sizeof(struct nvme_cmd_reservation_report) == 24);

#define NVME_RESERVATION_REPORT_EDS 0x1

struct nvme_cmd {
	uint8_t opcode;
	uint8_t flags;
	le16_t cid;
	union {
		le32_t nsid;
		uint8_t fctype; /* opcode NVME_OPC_FABRICS */
	};
	le32_t cdw2;
	le32_t cdw3;
	le64_t mptr;
	struct nvme_sgl_desc sgl; /* DPTR */
	union {
		struct {
			le32_t cdw10;
			le32_t cdw11;
			le32_t cdw12;
			le32_t cdw13;
			le32_t cdw14;
			le32_t cdw15;
		};
		struct nvme_cmd_rw
			rw; /* Read, Write, Compare, Write Zeroes, Write Uncorrectable, Verify */
		struct nvme_cmd_dsm dsm;
		struct nvme_cmd_copy copy;
		struct nvme_cmd_identify identify;
		struct nvme_cmd_get_log get_log;
		struct nvme_cmd_features features;
		struct nvme_cmd_abort abort;
		struct nvme_cmd_reservation reservation;
		struct nvme_cmd_reservation_report reservation_report;
		struct nvme_connect connect;
		struct nvme_disconnect disconnect;
		struct nvme_property property;
		struct nvme_auth_cmd auth;
	};
};
static_assert(sizeof(struct nvme_cmd) == 64);
static_assert(offsetof(struct nvme_cmd, cid) == 2);
static_assert(offsetof(struct nvme_cmd, nsid) == 4);
static_assert(offsetof(struct nvme_cmd, fctype) == 4);
static_assert(offsetof(struct nvme_cmd, mptr) == 16);
static_assert(offsetof(struct nvme_cmd, sgl) == 24);
static_assert(offsetof(struct nvme_cmd, cdw10) == 40);
static_assert(offsetof(struct nvme_cmd, cdw12) == 48);
static_assert(offsetof(struct nvme_cmd, rw.nlb) == 48);
static_assert(offsetof(struct nvme_cmd, rw.control) == 50);
static_assert(offsetof(struct nvme_cmd, rw.ilbrt) == 56);
static_assert(offsetof(struct nvme_cmd, copy.nr) == 48);
static_assert(offsetof(struct nvme_cmd, features.cdw11) == 44);
static_assert(offsetof(struct nvme_cmd, features.uuid_index) == 56);

enum nvme_admin_opcode {
	NVME_OPC_DELETE_SQ = 0x00, /* PCIe only, as the other three of queues */
	NVME_OPC_CREATE_SQ = 0x01,
	NVME_OPC_GET_LOG_PAGE = 0x02,
	NVME_OPC_DELETE_CQ = 0x04,
	NVME_OPC_CREATE_CQ = 0x05,
	NVME_OPC_IDENTIFY = 0x06,
	NVME_OPC_ABORT = 0x08,
	NVME_OPC_SET_FEATURES = 0x09,
	NVME_OPC_GET_FEATURES = 0x0a,
	NVME_OPC_ASYNC_EVENT_REQUEST = 0x0c,
	NVME_OPC_NS_MANAGEMENT = 0x0d,
	NVME_OPC_FW_COMMIT = 0x10,
	NVME_OPC_FW_DOWNLOAD = 0x11,
	NVME_OPC_SELF_TEST = 0x14,
	NVME_OPC_NS_ATTACHMENT = 0x15,
	NVME_OPC_KEEP_ALIVE = 0x18,
	NVME_OPC_DIRECTIVE_SEND = 0x19,
	NVME_OPC_DIRECTIVE_RECV = 0x1a,
	NVME_OPC_VIRT_MANAGEMENT = 0x1c,
	NVME_OPC_MI_SEND = 0x1d,
	NVME_OPC_MI_RECV = 0x1e,
	NVME_OPC_CAPACITY_MANAGEMENT = 0x20,
	NVME_OPC_DISCOVERY_INFO_MANAGEMENT = 0x21,
	NVME_OPC_LOCKDOWN = 0x24,
	NVME_OPC_DOORBELL_BUFFER = 0x7c,
	NVME_OPC_FABRICS = 0x7f, /* on every queue */
	NVME_OPC_FORMAT_NVM = 0x80,
	NVME_OPC_SECURITY_SEND = 0x81,
	NVME_OPC_SECURITY_RECV = 0x82,
	NVME_OPC_SANITIZE = 0x84,
	NVME_OPC_GET_LBA_STATUS = 0x86,
};

enum nvme_io_opcode {
	NVME_OPC_FLUSH = 0x00,
	NVME_OPC_WRITE = 0x01,
	NVME_OPC_READ = 0x02,
	NVME_OPC_WRITE_UNCORRECTABLE = 0x04,
	NVME_OPC_COMPARE = 0x05,
	NVME_OPC_WRITE_ZEROES = 0x08,
	NVME_OPC_DSM = 0x09,
	NVME_OPC_VERIFY = 0x0c,
	NVME_OPC_RESERVATION_REGISTER = 0x0d,
	NVME_OPC_RESERVATION_REPORT = 0x0e,
	NVME_OPC_RESERVATION_ACQUIRE = 0x11,
	NVME_OPC_RESERVATION_RELEASE = 0x15,
	NVME_OPC_COPY = 0x19,
};

/* --- completion ---------------------------------------------------------------------------- */

struct nvme_cqe {
	union {
		struct {
			le32_t dw0;
			le32_t dw1;
		};
		le64_t property; /* Property Get */
		struct nvme_connect_ok connect_ok;
		struct nvme_connect_invalid connect_invalid;
	};
	le16_t sqhd;
	le16_t sqid;
	le16_t cid;
	le16_t status; /* bit 0, the phase, is 0 on fabrics; the rest is a status of status.h */
};
static_assert(sizeof(struct nvme_cqe) == 16);
static_assert(offsetof(struct nvme_cqe, sqhd) == 8);
static_assert(offsetof(struct nvme_cqe, cid) == 12);
static_assert(offsetof(struct nvme_cqe, status) == 14);

static inline void nvme_cqe_set_status(struct nvme_cqe *cqe, uint16_t status)
{
	cqe->status = le16((uint16_t)(status << 1));
}

static inline uint16_t nvme_cqe_status(const struct nvme_cqe *cqe)
{
	return le16_get(cqe->status) >> 1;
}

#define NVME_ABORT_NOT_ABORTED 0x1 /* in DW0 of the response to Abort */

/* DW0 of an asynchronous event. */
#define NVME_AER(type, info, lid) ((uint32_t)(type) | (uint32_t)(info) << 8 | (uint32_t)(lid) << 16)
#define NVME_AER_TYPE(dw0)	  ((dw0)&0x7u)
#define NVME_AER_INFO(dw0)	  ((dw0) >> 8 & 0xffu)
#define NVME_AER_LID(dw0)	  ((dw0) >> 16 & 0xffu)

enum nvme_aer_type {
	NVME_AER_ERROR = 0,
	NVME_AER_SMART = 1,
	NVME_AER_NOTICE = 2,
	NVME_AER_IMMEDIATE = 3,
	NVME_AER_IO_SPECIFIC = 6,
	NVME_AER_VENDOR = 7,
};

enum nvme_aer_smart {
	NVME_AER_SMART_RELIABILITY = 0x00,
	NVME_AER_SMART_TEMPERATURE = 0x01,
};

enum nvme_aer_notice {
	NVME_AER_NOTICE_NS_CHANGED = 0x00,
	NVME_AER_NOTICE_FW_ACTIVATION = 0x01,
	NVME_AER_NOTICE_ANA = 0x03,
	NVME_AER_NOTICE_DISCOVERY = 0xf0,
};

enum nvme_aer_io_specific {
	NVME_AER_IO_RESERVATION_LOG = 0x00,
};

/* --- properties ---------------------------------------------------------------------------- */

enum nvme_property_offset {
	NVME_PROPERTY_CAP = 0x00, /* 8 bytes, the others 4 */
	NVME_PROPERTY_VS = 0x08,
	NVME_PROPERTY_CC = 0x14,
	NVME_PROPERTY_CSTS = 0x1c,
	NVME_PROPERTY_NSSR = 0x20,
	NVME_PROPERTY_CRTO = 0x68,
};

/* CRTO: in 500 ms, with and without the media. */
#define NVME_CRTO_CRWMT(half_seconds) ((uint32_t)(half_seconds)&0xffffu)

/* CAP: where each field starts. */
#define NVME_CAP_MQES_SHIFT   0 /* 16 bits, 0's based */
#define NVME_CAP_CQR	      (1ull << 16)
#define NVME_CAP_AMS_SHIFT    17
#define NVME_CAP_TO_SHIFT     24 /* 8 bits, in 500 ms */
#define NVME_CAP_DSTRD_SHIFT  32
#define NVME_CAP_NSSRS	      (1ull << 36)
#define NVME_CAP_CSS_NVM      (1ull << 37)
#define NVME_CAP_CSS_IOCS     (1ull << 43) /* one or more I/O command sets */
#define NVME_CAP_CSS_ADMIN    (1ull << 44) /* no I/O command set */
#define NVME_CAP_MPSMIN_SHIFT 48	   /* 4 bits, 2^(12 + n) */
#define NVME_CAP_MPSMAX_SHIFT 52
#define NVME_CAP_CRMS_CRWMS   (1ull << 59)
#define NVME_CAP_CRMS_CRIMS   (1ull << 60)
#define NVME_CAP_MQES(cap)    ((uint32_t)((cap)&0xffff))
#define NVME_CAP_TO(cap)      ((uint32_t)((cap) >> NVME_CAP_TO_SHIFT & 0xff))
#define NVME_CAP_MPSMIN(cap)  ((uint32_t)((cap) >> NVME_CAP_MPSMIN_SHIFT & 0xf))
#define NVME_CAP_MPSMAX(cap)  ((uint32_t)((cap) >> NVME_CAP_MPSMAX_SHIFT & 0xf))

/* CC */
#define NVME_CC_EN	     (1u << 0)
#define NVME_CC_CSS_SHIFT    4
#define NVME_CC_MPS_SHIFT    7
#define NVME_CC_AMS_SHIFT    11
#define NVME_CC_SHN_SHIFT    14
#define NVME_CC_IOSQES_SHIFT 16
#define NVME_CC_IOCQES_SHIFT 20
#define NVME_CC_CRIME	     (1u << 24)
#define NVME_CC_CSS(cc)	     ((cc) >> NVME_CC_CSS_SHIFT & 0x7u)
#define NVME_CC_MPS(cc)	     ((cc) >> NVME_CC_MPS_SHIFT & 0xfu)
#define NVME_CC_AMS(cc)	     ((cc) >> NVME_CC_AMS_SHIFT & 0x7u)
#define NVME_CC_SHN(cc)	     ((cc) >> NVME_CC_SHN_SHIFT & 0x3u)
#define NVME_CC_IOSQES(cc)   ((cc) >> NVME_CC_IOSQES_SHIFT & 0xfu)
#define NVME_CC_IOCQES(cc)   ((cc) >> NVME_CC_IOCQES_SHIFT & 0xfu)
#define NVME_CC_RESERVED     0xfe00000eu

enum nvme_cc_css {
	NVME_CC_CSS_NVM = 0,
	NVME_CC_CSS_ALL = 6,
	NVME_CC_CSS_ADMIN = 7,
};

enum nvme_cc_shn {
	NVME_CC_SHN_NONE = 0,
	NVME_CC_SHN_NORMAL = 1,
	NVME_CC_SHN_ABRUPT = 2,
};

#define NVME_SQES 6 /* 2^6: a command; the only size there is */
#define NVME_CQES 4 /* 2^4: a completion */

/* CSTS */
#define NVME_CSTS_RDY		 (1u << 0)
#define NVME_CSTS_CFS		 (1u << 1)
#define NVME_CSTS_SHST_MASK	 (3u << 2)
#define NVME_CSTS_SHST_OCCURRING (1u << 2)
#define NVME_CSTS_SHST_COMPLETE	 (2u << 2)
#define NVME_CSTS_NSSRO		 (1u << 4)

#define NVME_NSSR_RESET 0x4e564d65u /* "NVMe" */

/* --- features ------------------------------------------------------------------------------ */

enum nvme_feature_id {
	NVME_FEAT_ARBITRATION = 0x01,
	NVME_FEAT_POWER_MANAGEMENT = 0x02,
	NVME_FEAT_TEMPERATURE_THRESHOLD = 0x04,
	NVME_FEAT_ERROR_RECOVERY = 0x05,
	NVME_FEAT_VOLATILE_WRITE_CACHE = 0x06,
	NVME_FEAT_NUMBER_OF_QUEUES = 0x07,
	NVME_FEAT_INTERRUPT_COALESCING = 0x08,
	NVME_FEAT_INTERRUPT_VECTOR = 0x09,
	NVME_FEAT_WRITE_ATOMICITY = 0x0a,
	NVME_FEAT_ASYNC_EVENT = 0x0b,
	NVME_FEAT_TIMESTAMP = 0x0e,
	NVME_FEAT_KEEP_ALIVE_TIMER = 0x0f,
	NVME_FEAT_HOST_BEHAVIOR = 0x16,
	NVME_FEAT_IO_COMMAND_SET_PROFILE = 0x19,
	NVME_FEAT_HOST_ID = 0x81,
	NVME_FEAT_RESERVATION_NOTIFICATION_MASK = 0x82,
	NVME_FEAT_RESERVATION_PERSISTENCE = 0x83,
	NVME_FEAT_WRITE_PROTECT = 0x84,
};

/* Number of Queues: both halves 0's based; FFFFh is illegal (NVMe base 2.0 5.27.1.5). */
#define NVME_NUMBER_OF_QUEUES(nsq, ncq) ((uint32_t)(nsq) | (uint32_t)(ncq) << 16)
#define NVME_NUMBER_OF_QUEUES_SQ(dw)	((dw)&0xffffu)
#define NVME_NUMBER_OF_QUEUES_CQ(dw)	((dw) >> 16)
#define NVME_NUMBER_OF_QUEUES_ILLEGAL	0xffffu

#define NVME_VWC_WCE 0x1u

/* Arbitration: commands taken from a queue at a time, 2^n. */
#define NVME_ARBITRATION_AB_NO_LIMIT 0x7u

/* Power Management. */
#define NVME_POWER_PS(dw) ((dw)&0x1fu)
#define NVME_POWER_WH(dw) ((dw) >> 5 & 0x7u) /* workload hint */
#define NVME_POWER_WH_MAX 2u

/* Temperature Threshold. */
#define NVME_TEMPERATURE_TMPTH(dw)  ((uint16_t)(dw)) /* Kelvin */
#define NVME_TEMPERATURE_TMPSEL(dw) ((dw) >> 16 & 0xfu)
#define NVME_TEMPERATURE_THSEL(dw)  ((dw) >> 20 & 0x3u)
#define NVME_TEMPERATURE_SELECT	    0x003f0000u /* both */
#define NVME_TEMPERATURE_COMPOSITE  0x0u	/* TMPSEL */
#define NVME_TEMPERATURE_ALL	    0xfu	/* of Set: all sensors there are */
#define NVME_TEMPERATURE_OVER	    0u		/* THSEL */
#define NVME_TEMPERATURE_UNDER	    1u

#define NVME_WRITE_ATOMICITY_DN 0x1u /* more than AWUPF is not needed */

#define NVME_IO_COMMAND_SET_INDEX(dw) ((dw)&0x1ffu)

/* Asynchronous Event Configuration, same bits as OAES in Identify Controller. */
#define NVME_AEC_SMART		  0x000000ffu
#define NVME_AEC_NS		  0x00000100u /* attached namespace attribute notices */
#define NVME_AEC_FW		  0x00000200u
#define NVME_AEC_ANA		  0x00000800u
#define NVME_AEC_ENDURANCE_GROUPS 0x00004000u
#define NVME_AEC_DISCOVERY	  0x80000000u

#define NVME_RESERVATION_PTPL 0x1u /* Reservation Persistence */

#define NVME_HOST_ID_EXHID 0x1u /* 128 bits; the only form on fabrics */

/* Timestamp. */
struct nvme_timestamp {
	uint8_t ms[6];	    /* little-endian: since the start of 1970, or since the reset */
	uint8_t attributes; /* Get only */
	uint8_t rsvd7;
};
static_assert(sizeof(struct nvme_timestamp) == 8);
static_assert(offsetof(struct nvme_timestamp, attributes) == 6);

#define NVME_TIMESTAMP_SYNCH	   0x01 /* it may have stood still */
#define NVME_TIMESTAMP_ORIGIN_HOST 0x02 /* bits 3:1: set by the host; else 0, by a reset */

/* Host Behavior Support. */
struct nvme_host_behavior {
	uint8_t acre;
	uint8_t etdas;
	uint8_t lbafee;
	uint8_t rsvd3[509];
};
static_assert(sizeof(struct nvme_host_behavior) == 512);

#define NVME_WRITE_PROTECT_MASK 0x7u

enum nvme_write_protect {
	NVME_WRITE_PROTECT_NONE = 0,
	NVME_WRITE_PROTECT_SET = 1,
	NVME_WRITE_PROTECT_UNTIL_POWER_CYCLE = 2,
	NVME_WRITE_PROTECT_PERMANENT = 3,
};

/* --- data of I/O commands ------------------------------------------------------------------ */

#define NVME_DSM_MAX_RANGES 256

struct nvme_dsm_range {
	le32_t cattr;
	le32_t nlb; /* a count, not 0's based; 0 does nothing */
	le64_t slba;
};
static_assert(sizeof(struct nvme_dsm_range) == 16);

#define NVME_COPY_FORMAT_MASK 0x0f
#define NVME_COPY_FORMAT_0    0

struct nvme_copy_range {
	uint8_t rsvd0[8];
	le64_t slba;
	le16_t nlb; /* 0's based */
	uint8_t rsvd18[6];
	le32_t eilbrt;
	le16_t elbat; /* some peers' headers have these two the other way round */
	le16_t elbatm;
};
static_assert(sizeof(struct nvme_copy_range) == 32);
static_assert(offsetof(struct nvme_copy_range, eilbrt) == 24);
static_assert(offsetof(struct nvme_copy_range, elbat) == 28);

/* --- reservations -------------------------------------------------------------------------- */

enum nvme_reservation_type {
	NVME_RESERVATION_NONE = 0,
	NVME_RESERVATION_WRITE_EXCLUSIVE = 1,
	NVME_RESERVATION_EXCLUSIVE_ACCESS = 2,
	NVME_RESERVATION_WRITE_EXCLUSIVE_REGISTRANTS = 3,
	NVME_RESERVATION_EXCLUSIVE_ACCESS_REGISTRANTS = 4,
	NVME_RESERVATION_WRITE_EXCLUSIVE_ALL = 5,
	NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL = 6,
};

#define NVME_RESERVATION_ACTION_MASK 0x07
#define NVME_RESERVATION_IEKEY	     0x08 /* ignore existing key */
#define NVME_RESERVATION_CPTPL_MASK  0xc0

enum nvme_reservation_register_action { /* RREGA */
	NVME_RESERVATION_REGISTER = 0,
	NVME_RESERVATION_UNREGISTER = 1,
	NVME_RESERVATION_REPLACE = 2,
};

enum nvme_reservation_acquire_action { /* RACQA */
	NVME_RESERVATION_ACQUIRE = 0,
	NVME_RESERVATION_PREEMPT = 1,
	NVME_RESERVATION_PREEMPT_ABORT = 2,
};

enum nvme_reservation_release_action { /* RRELA */
	NVME_RESERVATION_RELEASE = 0,
	NVME_RESERVATION_CLEAR = 1,
};

struct nvme_reservation_keys {
	le64_t crkey;
	le64_t key; /* Register: NRKEY; Acquire: PRKEY; Release has none */
};
static_assert(sizeof(struct nvme_reservation_keys) == 16);

/* Extended form (EDS 1), the only one with 128-bit host identifiers, hence the only one on fabrics.
 */
struct nvme_registrant {
	le16_t cntlid; /* FFFFh: the host has no controller now */
	uint8_t rcsts; /* bit 0: holds the reservation */
	uint8_t rsvd3[5];
	le64_t rkey;
	uint8_t hostid[16];
	uint8_t rsvd32[32];
};
static_assert(sizeof(struct nvme_registrant) == 64);
static_assert(offsetof(struct nvme_registrant, rkey) == 8);
static_assert(offsetof(struct nvme_registrant, hostid) == 16);

struct nvme_reservation_status {
	le32_t gen;
	uint8_t rtype;
	le16_t regctl;
	uint8_t rsvd7[2];
	uint8_t ptpls;
	uint8_t rsvd10[54];
	struct nvme_registrant registrant[];
};
static_assert(sizeof(struct nvme_reservation_status) == 64);
static_assert(offsetof(struct nvme_reservation_status, regctl) == 5);
static_assert(offsetof(struct nvme_reservation_status, ptpls) == 9);

#endif
