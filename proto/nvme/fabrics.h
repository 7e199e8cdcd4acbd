/* SPDX-License-Identifier: MIT */
/*
 * Fabrics command set and discovery log (NVMe base 2.0 chapter 6 and 5.16.1.23). The command
 * structures are views of bytes 40 to 63 of the 64-byte command in nvme.h.
 */
#ifndef HAUL_PROTO_NVME_FABRICS_H
#define HAUL_PROTO_NVME_FABRICS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/nvme/endian.h"
#include "proto/nvme/name.h"

#define NVME_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
#define NVME_FABRICS_PORT \
	4420 /* registered with IANA for NVMe/RDMA and NVMe/TCP I/O and, by use, discovery */
#define NVME_DISCOVERY_PORT 8009 /* NVMe TCP 1.0c 3.1.1: NVMe/TCP discovery */

enum nvme_fctype {
	NVME_FCTYPE_PROPERTY_SET = 0x00,
	NVME_FCTYPE_CONNECT = 0x01,
	NVME_FCTYPE_PROPERTY_GET = 0x04,
	NVME_FCTYPE_AUTH_SEND = 0x05,
	NVME_FCTYPE_AUTH_RECV = 0x06,
	NVME_FCTYPE_DISCONNECT = 0x08,
};

/* Connect. */
#define NVME_CONNECT_RECFMT	      0
#define NVME_CNTLID_DYNAMIC	      0xffff /* admin Connect, dynamic controller model */
#define NVME_CNTLID_STATIC_ANY	      0xfffe
#define NVME_CNTLID_MAX		      0xffef /* F000h and above are reserved, FFF0h to FFFFh have meanings */
#define NVME_CONNECT_CATTR_PRIO	      0x03
#define NVME_CONNECT_CATTR_NO_SQFLOW  0x04   /* the host asks for SQ flow control to be off */
#define NVME_CONNECT_CATTR_IOQ_DELETE 0x08   /* individual I/O queue deletion */
#define NVME_SQHD_NO_FLOW	      0xffff /* in the Connect response: SQ flow control is off */

struct nvme_connect {
	le16_t recfmt;
	le16_t qid;
	le16_t sqsize; /* 0's based */
	uint8_t cattr;
	uint8_t rsvd47;
	le32_t kato; /* milliseconds; 0: none */
	uint8_t rsvd52[12];
};
static_assert(sizeof(struct nvme_connect) == 24);
static_assert(offsetof(struct nvme_connect, cattr) == 46 - 40);
static_assert(offsetof(struct nvme_connect, kato) == 48 - 40);

struct nvme_connect_data {
	uint8_t hostid[16];
	le16_t cntlid;
	uint8_t rsvd18[238];
	char subnqn[NVME_NQN_FIELD];
	char hostnqn[NVME_NQN_FIELD];
	uint8_t rsvd768[256];
};
static_assert(sizeof(struct nvme_connect_data) == 1024);
static_assert(offsetof(struct nvme_connect_data, cntlid) == 16);
static_assert(offsetof(struct nvme_connect_data, subnqn) == 256);
static_assert(offsetof(struct nvme_connect_data, hostnqn) == 512);

/* First eight bytes of the completion. On success: */
#define NVME_CONNECT_AUTHREQ_ATR  0x02 /* authentication transaction required */
#define NVME_CONNECT_AUTHREQ_ASCR 0x04 /* ... with a secure channel */

struct nvme_connect_ok {
	le16_t cntlid;
	le16_t authreq;
	uint8_t rsvd4[4];
};
static_assert(sizeof(struct nvme_connect_ok) == 8);

/* With status Connect Invalid Parameters: where the culprit is. */
#define NVME_CONNECT_IATTR_DATA                                          \
	0x01 /* IPO is an offset in the Connect data, not in the command \
	      */

struct nvme_connect_invalid {
	le16_t ipo;
	uint8_t iattr;
	uint8_t rsvd3[5];
};
static_assert(sizeof(struct nvme_connect_invalid) == 8);

#define NVME_DISCONNECT_RECFMT 0

struct nvme_disconnect {
	le16_t recfmt;
	uint8_t rsvd42[22];
};
static_assert(sizeof(struct nvme_disconnect) == 24);

/* Property Get and Set; only Set has a value. */
#define NVME_PROPERTY_ATTRIB_SIZE 0x07
#define NVME_PROPERTY_4_BYTES	  0x00
#define NVME_PROPERTY_8_BYTES	  0x01

struct nvme_property {
	uint8_t attrib;
	uint8_t rsvd41[3];
	le32_t ofst;
	le64_t value;
	uint8_t rsvd56[8];
};
static_assert(sizeof(struct nvme_property) == 24);
static_assert(offsetof(struct nvme_property, ofst) == 44 - 40);
static_assert(offsetof(struct nvme_property, value) == 48 - 40);

/* Discovery log. */
enum nvme_trtype {
	NVME_TRTYPE_RDMA = 1,
	NVME_TRTYPE_FC = 2,
	NVME_TRTYPE_TCP = 3,
	NVME_TRTYPE_LOOP = 254,
};

enum nvme_adrfam {
	NVME_ADRFAM_PCI = 0,
	NVME_ADRFAM_IPV4 = 1,
	NVME_ADRFAM_IPV6 = 2,
	NVME_ADRFAM_IB = 3,
	NVME_ADRFAM_FC = 4,
	NVME_ADRFAM_LOOP = 254,
};

enum nvme_subtype {
	NVME_SUBTYPE_REFERRAL = 1, /* another discovery subsystem */
	NVME_SUBTYPE_NVM = 2,
	NVME_SUBTYPE_CURRENT_DISCOVERY = 3,
};

/* TREQ */
#define NVME_TREQ_SECURE_MASK	      0x03
#define NVME_TREQ_SECURE_UNSPECIFIED  0x00
#define NVME_TREQ_SECURE_REQUIRED     0x01
#define NVME_TREQ_SECURE_NOT_REQUIRED 0x02
#define NVME_TREQ_NO_SQFLOW	      0x04 /* the controller can do without SQ flow control */

/* EFLAGS */
#define NVME_DISC_EFLAGS_DUPRETINFO 0x01
#define NVME_DISC_EFLAGS_EPCSD	    0x02 /* explicit persistent connection supported */
#define NVME_DISC_EFLAGS_NCC	    0x04 /* no CDC connectivity */

enum nvme_rdma_qptype {
	NVME_RDMA_QPTYPE_CONNECTED = 1,
	NVME_RDMA_QPTYPE_DATAGRAM = 2,
};

enum nvme_rdma_prtype {
	NVME_RDMA_PRTYPE_NONE = 1,
	NVME_RDMA_PRTYPE_IB = 2,
	NVME_RDMA_PRTYPE_ROCE = 3,
	NVME_RDMA_PRTYPE_ROCEV2 = 4,
	NVME_RDMA_PRTYPE_IWARP = 5,
};

enum nvme_rdma_cms {
	NVME_RDMA_CMS_RDMA_CM = 1,
};

enum nvme_tcp_sectype {
	NVME_TCP_SECTYPE_NONE = 0,
	NVME_TCP_SECTYPE_TLS12 = 1,
	NVME_TCP_SECTYPE_TLS13 = 2,
};

union nvme_tsas {
	uint8_t b[256];
	struct {
		uint8_t qptype;
		uint8_t prtype;
		uint8_t cms;
		uint8_t rsvd3[5];
		le16_t pkey;
	} rdma;
	struct {
		uint8_t sectype;
	} tcp;
};
static_assert(sizeof(union nvme_tsas) == 256);
static_assert(offsetof(union nvme_tsas, rdma.pkey) == 8);

#define NVME_TRSVCID_SIZE 32
#define NVME_TRADDR_SIZE  256

struct nvme_disc_entry {
	uint8_t trtype;
	uint8_t adrfam;
	uint8_t subtype;
	uint8_t treq;
	le16_t portid;
	le16_t cntlid;
	le16_t asqsz;
	le16_t eflags;
	uint8_t rsvd12[20];
	char trsvcid[NVME_TRSVCID_SIZE]; /* space padded */
	uint8_t rsvd64[192];
	char subnqn[NVME_NQN_FIELD];   /* terminated by a NUL */
	char traddr[NVME_TRADDR_SIZE]; /* space padded */
	union nvme_tsas tsas;
};
static_assert(sizeof(struct nvme_disc_entry) == 1024);
static_assert(offsetof(struct nvme_disc_entry, portid) == 4);
static_assert(offsetof(struct nvme_disc_entry, eflags) == 10);
static_assert(offsetof(struct nvme_disc_entry, trsvcid) == 32);
static_assert(offsetof(struct nvme_disc_entry, subnqn) == 256);
static_assert(offsetof(struct nvme_disc_entry, traddr) == 512);
static_assert(offsetof(struct nvme_disc_entry, tsas) == 768);

#define NVME_DISC_RECFMT 0

struct nvme_disc_log {
	le64_t genctr;
	le64_t numrec;
	le16_t recfmt;
	uint8_t dlpf;
	uint8_t rsvd19;
	le32_t tdlpl; /* with extended entries: of the whole page */
	uint8_t rsvd24[1000];
	struct nvme_disc_entry entry[];
};
static_assert(sizeof(struct nvme_disc_log) == 1024);
static_assert(offsetof(struct nvme_disc_log, recfmt) == 16);
static_assert(offsetof(struct nvme_disc_log, tdlpl) == 20);

#define NVME_DISC_DLPF_EXTDLP 0x01 /* the entries are extended ones */

/* Log specific parameter of Get Log Page, and the same bits in page 00h: supported. */
#define NVME_DISC_LSP_EXTDLPE 0x01 /* extended entries */
#define NVME_DISC_LSP_PLEO    0x02 /* entries of the port asked only */
#define NVME_DISC_LSP_ALLSUBE 0x04 /* of all subsystems, not just the host's */

/* Extended entry: the 1024 bytes above; its attributes follow. */
struct nvme_disc_ext_entry {
	struct nvme_disc_entry entry;
	le32_t tel; /* of the whole entry with its attributes */
	le16_t numexat;
	uint8_t rsvd1030[2];
};
static_assert(sizeof(struct nvme_disc_ext_entry) == 1032);
static_assert(offsetof(struct nvme_disc_ext_entry, tel) == 1024);
static_assert(offsetof(struct nvme_disc_ext_entry, numexat) == 1028);

enum nvme_exattype {
	NVME_EXATTYPE_HOSTID = 1,
	NVME_EXATTYPE_LABEL_ASCII = 2,
	NVME_EXATTYPE_LABEL_UTF8 = 3,
};

/* An administrative label: the one attribute of subsystems (NVMe base 2.1 figure 499). */
#define NVME_DISC_LABEL_MAX 256

struct nvme_disc_ext_label {
	le16_t type;
	le16_t length; /* of the value that is there: a multiple of 4 */
	char value[NVME_DISC_LABEL_MAX];
};
static_assert(offsetof(struct nvme_disc_ext_label, value) == 4);

#endif
