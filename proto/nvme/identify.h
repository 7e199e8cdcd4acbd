/* SPDX-License-Identifier: MIT */
/*
 * Data structures of Identify (NVMe base 2.0 5.17, NVM command set 1.0 4.1.5), 4096 bytes each.
 */
#ifndef HAUL_PROTO_NVME_IDENTIFY_H
#define HAUL_PROTO_NVME_IDENTIFY_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/nvme/endian.h"
#include "proto/nvme/name.h"

#define NVME_IDENTIFY_SIZE 4096

enum nvme_cns {
	NVME_CNS_NS = 0x00,
	NVME_CNS_CTRL = 0x01,
	NVME_CNS_ACTIVE_NS_LIST = 0x02,
	NVME_CNS_NS_DESC_LIST = 0x03,
	NVME_CNS_NVM_SET_LIST = 0x04,
	NVME_CNS_CSI_NS = 0x05,
	NVME_CNS_CSI_CTRL = 0x06,
	NVME_CNS_CSI_ACTIVE_NS_LIST = 0x07,
	NVME_CNS_INDEPENDENT_NS = 0x08,
	NVME_CNS_ALLOCATED_NS_LIST = 0x10,
	NVME_CNS_ALLOCATED_NS = 0x11,
	NVME_CNS_NS_CTRL_LIST = 0x12,
	NVME_CNS_CTRL_LIST = 0x13,
	NVME_CNS_CSI_ALLOCATED_NS_LIST = 0x1a,
	NVME_CNS_CSI_ALLOCATED_NS = 0x1b,
	NVME_CNS_IO_COMMAND_SETS = 0x1c,
};

#define NVME_CSI_NVM 0x00

enum nvme_cntrltype {
	NVME_CNTRLTYPE_IO = 1,
	NVME_CNTRLTYPE_DISCOVERY = 2,
	NVME_CNTRLTYPE_ADMIN = 3,
};

enum nvme_dctype {
	NVME_DCTYPE_NOT_REPORTED = 0,
	NVME_DCTYPE_DDC = 1,
	NVME_DCTYPE_CDC = 2,
};

struct nvme_power_state {
	le16_t mp;
	uint8_t rsvd2;
	uint8_t flags;
	le32_t enlat;
	le32_t exlat;
	uint8_t rrt;
	uint8_t rrl;
	uint8_t rwt;
	uint8_t rwl;
	le16_t idlp;
	uint8_t ips;
	uint8_t rsvd19;
	le16_t actp;
	uint8_t apws;
	uint8_t rsvd23[9];
};
static_assert(sizeof(struct nvme_power_state) == 32);

struct nvme_id_ctrl {
	le16_t vid;
	le16_t ssvid;
	char sn[20]; /* ASCII, padded with spaces, as mn and fr */
	char mn[40];
	char fr[8];
	uint8_t rab;
	uint8_t ieee[3];
	uint8_t cmic;
	uint8_t mdts; /* 2^n pages of 2^(12 + CAP.MPSMIN) bytes; 0: no limit */
	le16_t cntlid;
	le32_t ver;
	le32_t rtd3r;
	le32_t rtd3e;
	le32_t oaes;
	le32_t ctratt;
	le16_t rrls;
	uint8_t rsvd102[9];
	uint8_t cntrltype;
	uint8_t fguid[16];
	le16_t crdt[3]; /* in 100 ms, for status bits CRD 1 to 3 */
	uint8_t rsvd134[119];
	uint8_t nvmsr;
	uint8_t vwci;
	uint8_t mec;
	le16_t oacs;
	uint8_t acl;  /* 0's based */
	uint8_t aerl; /* 0's based */
	uint8_t frmw;
	uint8_t lpa;
	uint8_t elpe; /* 0's based */
	uint8_t npss; /* 0's based */
	uint8_t avscc;
	uint8_t apsta;
	le16_t wctemp;
	le16_t cctemp;
	le16_t mtfa;
	le32_t hmpre;
	le32_t hmmin;
	le128_t tnvmcap;
	le128_t unvmcap;
	le32_t rpmbs;
	le16_t edstt;
	uint8_t dsto;
	uint8_t fwug;
	le16_t kas; /* granularity of the keep-alive timer in 100 ms; 0: no keep alive */
	le16_t hctma;
	le16_t mntmt;
	le16_t mxtmt;
	le32_t sanicap;
	le32_t hmminds;
	le16_t hmmaxd;
	le16_t nsetidmax;
	le16_t endgidmax;
	uint8_t anatt; /* seconds */
	uint8_t anacap;
	le32_t anagrpmax;
	le32_t nanagrpid;
	le32_t pels;
	le16_t domainid;
	uint8_t rsvd358[10];
	le128_t megcap;
	uint8_t rsvd384[2];
	le16_t cqt; /* command quiesce time in ms, since 2.1 */
	uint8_t rsvd388[124];
	uint8_t sqes; /* 66h: 2^6 required and maximum */
	uint8_t cqes; /* 44h */
	le16_t maxcmd;
	le32_t nn;
	le16_t oncs;
	le16_t fuses;
	uint8_t fna;
	uint8_t vwc;
	le16_t awun;
	le16_t awupf;
	uint8_t icsvscc;
	uint8_t nwpc;
	le16_t acwu;
	le16_t ocfs;
	le32_t sgls;
	le32_t mnan;
	le128_t maxdna;
	le32_t maxcna;
	uint8_t rsvd564[204];
	char subnqn[NVME_NQN_FIELD]; /* terminated by a NUL */
	uint8_t rsvd1024[768];
	le32_t ioccsz; /* in 16 bytes, with the 64 of the command */
	le32_t iorcsz; /* in 16 bytes */
	le16_t icdoff; /* in 16 bytes */
	uint8_t fcatt;
	uint8_t msdbd;
	le16_t ofcs;
	uint8_t dctype;
	uint8_t rsvd1807[241];
	struct nvme_power_state psd[32];
	uint8_t vs[1024];
};
static_assert(sizeof(struct nvme_id_ctrl) == NVME_IDENTIFY_SIZE);
static_assert(offsetof(struct nvme_id_ctrl, cmic) == 76);
static_assert(offsetof(struct nvme_id_ctrl, ver) == 80);
static_assert(offsetof(struct nvme_id_ctrl, oaes) == 92);
static_assert(offsetof(struct nvme_id_ctrl, cntrltype) == 111);
static_assert(offsetof(struct nvme_id_ctrl, crdt) == 128);
static_assert(offsetof(struct nvme_id_ctrl, nvmsr) == 253);
static_assert(offsetof(struct nvme_id_ctrl, oacs) == 256);
static_assert(offsetof(struct nvme_id_ctrl, wctemp) == 266);
static_assert(offsetof(struct nvme_id_ctrl, tnvmcap) == 280);
static_assert(offsetof(struct nvme_id_ctrl, kas) == 320);
static_assert(offsetof(struct nvme_id_ctrl, sanicap) == 328);
static_assert(offsetof(struct nvme_id_ctrl, anatt) == 342);
static_assert(offsetof(struct nvme_id_ctrl, anagrpmax) == 344);
static_assert(offsetof(struct nvme_id_ctrl, domainid) == 356);
static_assert(offsetof(struct nvme_id_ctrl, megcap) == 368);
static_assert(offsetof(struct nvme_id_ctrl, cqt) == 386);
static_assert(offsetof(struct nvme_id_ctrl, sqes) == 512);
static_assert(offsetof(struct nvme_id_ctrl, maxcmd) == 514);
static_assert(offsetof(struct nvme_id_ctrl, nn) == 516);
static_assert(offsetof(struct nvme_id_ctrl, oncs) == 520);
static_assert(offsetof(struct nvme_id_ctrl, vwc) == 525);
static_assert(offsetof(struct nvme_id_ctrl, nwpc) == 531);
static_assert(offsetof(struct nvme_id_ctrl, ocfs) == 534);
static_assert(offsetof(struct nvme_id_ctrl, sgls) == 536);
static_assert(offsetof(struct nvme_id_ctrl, mnan) == 540);
static_assert(offsetof(struct nvme_id_ctrl, maxcna) == 560);
static_assert(offsetof(struct nvme_id_ctrl, subnqn) == 768);
static_assert(offsetof(struct nvme_id_ctrl, ioccsz) == 1792);
static_assert(offsetof(struct nvme_id_ctrl, iorcsz) == 1796);
static_assert(offsetof(struct nvme_id_ctrl, icdoff) == 1800);
static_assert(offsetof(struct nvme_id_ctrl, fcatt) == 1802);
static_assert(offsetof(struct nvme_id_ctrl, msdbd) == 1803);
static_assert(offsetof(struct nvme_id_ctrl, ofcs) == 1804);
static_assert(offsetof(struct nvme_id_ctrl, dctype) == 1806);
static_assert(offsetof(struct nvme_id_ctrl, psd) == 2048);
static_assert(offsetof(struct nvme_id_ctrl, vs) == 3072);

#define NVME_ID_CMIC_MULTI_PORT 0x01
#define NVME_ID_CMIC_MULTI_CTRL 0x02
#define NVME_ID_CMIC_ANA	0x08

#define NVME_ID_CTRATT_HOSTID_128 (1u << 0)
#define NVME_ID_CTRATT_TBKAS	  (1u << 6) /* traffic based keep alive */
#define NVME_ID_CTRATT_ELBAS	  (1u << 15)

#define NVME_ID_OACS_NS_MANAGEMENT (1u << 3)

#define NVME_ID_FRMW_SLOT1_READONLY 0x01
#define NVME_ID_FRMW_SLOTS_SHIFT    1

#define NVME_ID_LPA_SMART_NS 0x01
#define NVME_ID_LPA_EFFECTS  0x02
#define NVME_ID_LPA_EXTENDED 0x04 /* NUMDU and log page offset */
#define NVME_ID_LPA_LID0     0x20 /* log pages 0, 12h, 13h */

#define NVME_ID_ANACAP_OPTIMIZED       0x01
#define NVME_ID_ANACAP_NON_OPTIMIZED   0x02
#define NVME_ID_ANACAP_INACCESSIBLE    0x04
#define NVME_ID_ANACAP_PERSISTENT_LOSS 0x08
#define NVME_ID_ANACAP_CHANGE	       0x10
#define NVME_ID_ANACAP_GRPID_STATIC    0x40
#define NVME_ID_ANACAP_GRPID_NONZERO   0x80

#define NVME_ID_ONCS_COMPARE		 (1u << 0)
#define NVME_ID_ONCS_WRITE_UNCORRECTABLE (1u << 1)
#define NVME_ID_ONCS_DSM		 (1u << 2)
#define NVME_ID_ONCS_WRITE_ZEROES	 (1u << 3)
#define NVME_ID_ONCS_FEATURES_SAVE	 (1u << 4)
#define NVME_ID_ONCS_RESERVATIONS	 (1u << 5)
#define NVME_ID_ONCS_TIMESTAMP		 (1u << 6)
#define NVME_ID_ONCS_VERIFY		 (1u << 7)
#define NVME_ID_ONCS_COPY		 (1u << 8)

#define NVME_ID_OCFS_FORMAT_0 (1u << 0) /* of Copy */

#define NVME_ID_FUSES_COMPARE_WRITE (1u << 0)

#define NVME_ID_VWC_PRESENT	  0x01
#define NVME_ID_VWC_FLUSH_ALL_NO  0x04 /* Flush with NSID FFFFFFFFh is refused */
#define NVME_ID_VWC_FLUSH_ALL_YES 0x06 /* ... flushes all namespaces */

#define NVME_ID_NWPC_SET 0x01 /* none and set */

#define NVME_ID_SGLS_SUPPORTED	(1u << 0) /* bits 1:0; byte granularity, no alignment */
#define NVME_ID_SGLS_DWORD	(2u << 0) /* ... dword alignment and granularity */
#define NVME_ID_SGLS_KEYED	(1u << 2)
#define NVME_ID_SGLS_BIT_BUCKET (1u << 16)
#define NVME_ID_SGLS_LONGER	(1u << 18) /* the SGL may be longer than the data */
#define NVME_ID_SGLS_OFFSET	(1u << 20) /* address fields may be offsets: in-capsule data */
#define NVME_ID_SGLS_TRANSPORT	(1u << 21)

#define NVME_ID_FCATT_STATIC	0x01 /* 0: dynamic controller model */
#define NVME_ID_OFCS_DISCONNECT 0x01 /* Disconnect is supported */

struct nvme_lba_format {
	le16_t ms;
	uint8_t ds; /* 2^n bytes */
	uint8_t rp;
};
static_assert(sizeof(struct nvme_lba_format) == 4);

struct nvme_id_ns {
	le64_t nsze;
	le64_t ncap;
	le64_t nuse;
	uint8_t nsfeat;
	uint8_t nlbaf; /* 0's based */
	uint8_t flbas;
	uint8_t mc;
	uint8_t dpc;
	uint8_t dps;
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	uint8_t dlfeat;
	le16_t nawun;
	le16_t nawupf;
	le16_t nacwu;
	le16_t nabsn;
	le16_t nabo;
	le16_t nabspf;
	le16_t noiob;
	le128_t nvmcap;
	le16_t npwg; /* 0's based, as npwa to nows */
	le16_t npwa;
	le16_t npdg;
	le16_t npda;
	le16_t nows;
	le16_t mssrl;
	le32_t mcl;
	uint8_t msrc; /* 0's based */
	uint8_t rsvd81;
	uint8_t nulbaf;
	uint8_t rsvd83[9];
	le32_t anagrpid;
	uint8_t rsvd96[3];
	uint8_t nsattr;
	le16_t nvmsetid;
	le16_t endgid;
	uint8_t nguid[16];
	be64_t eui64;
	struct nvme_lba_format lbaf[64];
	uint8_t vs[3712];
};
static_assert(sizeof(struct nvme_id_ns) == NVME_IDENTIFY_SIZE);
static_assert(offsetof(struct nvme_id_ns, nsfeat) == 24);
static_assert(offsetof(struct nvme_id_ns, nawun) == 34);
static_assert(offsetof(struct nvme_id_ns, nvmcap) == 48);
static_assert(offsetof(struct nvme_id_ns, npwg) == 64);
static_assert(offsetof(struct nvme_id_ns, mssrl) == 74);
static_assert(offsetof(struct nvme_id_ns, msrc) == 80);
static_assert(offsetof(struct nvme_id_ns, anagrpid) == 92);
static_assert(offsetof(struct nvme_id_ns, nsattr) == 99);
static_assert(offsetof(struct nvme_id_ns, nguid) == 104);
static_assert(offsetof(struct nvme_id_ns, eui64) == 120);
static_assert(offsetof(struct nvme_id_ns, lbaf) == 128);
static_assert(offsetof(struct nvme_id_ns, vs) == 384);

#define NVME_ID_NSFEAT_THIN	0x01
#define NVME_ID_NSFEAT_ATOMICS	0x02
#define NVME_ID_NSFEAT_UIDREUSE 0x08
#define NVME_ID_NSFEAT_OPTPERF	0x10 /* npwg to nows are valid */

#define NVME_ID_FLBAS_INDEX(flbas) (((flbas)&0xfu) | ((flbas) >> 1 & 0x30u))
#define NVME_ID_FLBAS_EXTENDED	   0x10 /* metadata at the end of each block */

#define NVME_ID_NMIC_SHARED 0x01

#define NVME_ID_RESCAP_PTPL  0x01
#define NVME_ID_RESCAP_TYPES 0x7e /* all six types */
#define NVME_ID_RESCAP_IEKEY 0x80 /* "ignore existing key" as of 1.3 */

#define NVME_ID_DLFEAT_READ_ZEROES 0x01 /* bits 2:0: deallocated blocks read as zeroes */
#define NVME_ID_DLFEAT_DEAC	   0x08 /* Write Zeroes deallocates on request */

#define NVME_ID_NSATTR_WRITE_PROTECTED 0x01

/* CNS 05h, NVM command set. */
struct nvme_id_ns_nvm {
	le64_t lbstm;
	uint8_t pic;
	uint8_t rsvd9[3];
	le32_t elbaf[64];
	uint8_t rsvd268[3828];
};
static_assert(sizeof(struct nvme_id_ns_nvm) == NVME_IDENTIFY_SIZE);
static_assert(offsetof(struct nvme_id_ns_nvm, elbaf) == 12);

/* CNS 06h, NVM command set: limits of commands without data, 2^n pages as MDTS, but for the last
 * three. */
struct nvme_id_ctrl_nvm {
	uint8_t vsl;
	uint8_t wzsl;
	uint8_t wusl;
	uint8_t dmrl; /* ranges */
	le32_t dmrsl; /* blocks in a range */
	le64_t dmsl;  /* blocks in a command */
	uint8_t rsvd16[4080];
};
static_assert(sizeof(struct nvme_id_ctrl_nvm) == NVME_IDENTIFY_SIZE);
static_assert(offsetof(struct nvme_id_ctrl_nvm, dmrsl) == 4);
static_assert(offsetof(struct nvme_id_ctrl_nvm, dmsl) == 8);

/* CNS 08h. */
struct nvme_id_ns_independent {
	uint8_t nsfeat;
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	le32_t anagrpid;
	uint8_t nsattr;
	uint8_t rsvd9;
	le16_t nvmsetid;
	le16_t endgid;
	uint8_t nstat;
	uint8_t rsvd15[4081];
};
static_assert(sizeof(struct nvme_id_ns_independent) == NVME_IDENTIFY_SIZE);
static_assert(offsetof(struct nvme_id_ns_independent, anagrpid) == 4);
static_assert(offsetof(struct nvme_id_ns_independent, nstat) == 14);

#define NVME_ID_NSTAT_READY 0x01

/* CNS 02h, 07h, 10h: ascending, ended by 0. */
#define NVME_NS_LIST_MAX 1024

struct nvme_ns_list {
	le32_t nsid[NVME_NS_LIST_MAX];
};
static_assert(sizeof(struct nvme_ns_list) == NVME_IDENTIFY_SIZE);

/* CNS 12h, 13h. */
#define NVME_CTRL_LIST_MAX 2047

struct nvme_ctrl_list {
	le16_t nr;
	le16_t cntlid[NVME_CTRL_LIST_MAX];
};
static_assert(sizeof(struct nvme_ctrl_list) == NVME_IDENTIFY_SIZE);

/* CNS 1Ch. */
struct nvme_id_iocs {
	le64_t iocsc[512]; /* bit n: command set n */
};
static_assert(sizeof(struct nvme_id_iocs) == NVME_IDENTIFY_SIZE);

/* CNS 03h: a sequence of these, ended by one of length 0. */
enum nvme_nidt {
	NVME_NIDT_EUI64 = 1,
	NVME_NIDT_NGUID = 2,
	NVME_NIDT_UUID = 3,
	NVME_NIDT_CSI = 4,
};

struct nvme_ns_desc {
	uint8_t nidt;
	uint8_t nidl; /* 8, 16, 16 and 1 */
	uint8_t rsvd2[2];
	uint8_t nid[];
};
static_assert(sizeof(struct nvme_ns_desc) == 4);

#endif
