/* SPDX-License-Identifier: MIT */
/*
 * Log pages of NVMe base 2.0 5.16. The discovery log is in fabrics.h.
 */
#ifndef HAUL_PROTO_NVME_LOG_H
#define HAUL_PROTO_NVME_LOG_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/nvme/endian.h"

enum nvme_log_id {
	NVME_LOG_SUPPORTED = 0x00,
	NVME_LOG_ERROR = 0x01,
	NVME_LOG_SMART = 0x02,
	NVME_LOG_FW_SLOT = 0x03,
	NVME_LOG_CHANGED_NS = 0x04,
	NVME_LOG_EFFECTS = 0x05,
	NVME_LOG_SELF_TEST = 0x06,
	NVME_LOG_TELEMETRY_HOST = 0x07,
	NVME_LOG_TELEMETRY_CTRL = 0x08,
	NVME_LOG_ENDURANCE_GROUP = 0x09,
	NVME_LOG_ANA = 0x0c,
	NVME_LOG_FEATURES = 0x12,
	NVME_LOG_MI_COMMANDS = 0x13,
	NVME_LOG_DISCOVERY = 0x70,
	NVME_LOG_RESERVATION = 0x80,
	NVME_LOG_SANITIZE = 0x81,
};

#define NVME_LOG_MAX_IDS 256

/* 00h */
struct nvme_log_supported {
	le32_t lid[NVME_LOG_MAX_IDS];
};
static_assert(sizeof(struct nvme_log_supported) == 1024);

#define NVME_LOG_LSUPP		0x1u /* this page is there */
#define NVME_LOG_IOS		0x2u /* ... with an index offset */
/* Bits 31:16: what only this page has. */
#define NVME_LOG_SPECIFIC(bits) ((uint32_t)(bits) << 16)

/* 01h: one entry */
struct nvme_log_error {
	le64_t error_count;
	le16_t sqid;
	le16_t cid;
	le16_t status; /* as in the completion, with the phase bit */
	le16_t parameter;
	le64_t lba;
	le32_t nsid;
	uint8_t vs;
	uint8_t trtype;
	uint8_t rsvd30[2];
	le64_t cs;
	le16_t trtype_info;
	uint8_t rsvd42[22];
};
static_assert(sizeof(struct nvme_log_error) == 64);
static_assert(offsetof(struct nvme_log_error, lba) == 16);
static_assert(offsetof(struct nvme_log_error, nsid) == 24);
static_assert(offsetof(struct nvme_log_error, cs) == 32);

/* 02h */
struct nvme_log_smart {
	uint8_t critical_warning;
	le16_t temperature; /* kelvin */
	uint8_t available_spare;
	uint8_t spare_threshold;
	uint8_t percentage_used;
	uint8_t endurance_warning;
	uint8_t rsvd7[25];
	le128_t data_units_read; /* in 1000 x 512 bytes, rounded up */
	le128_t data_units_written;
	le128_t host_reads;
	le128_t host_writes;
	le128_t controller_busy; /* minutes */
	le128_t power_cycles;
	le128_t power_on_hours;
	le128_t unsafe_shutdowns;
	le128_t media_errors;
	le128_t error_entries;
	le32_t warning_temperature_time;
	le32_t critical_temperature_time;
	le16_t temperature_sensor[8];
	le32_t thermal_transitions[2];
	le32_t thermal_time[2];
	uint8_t rsvd232[280];
};
static_assert(sizeof(struct nvme_log_smart) == 512);
static_assert(offsetof(struct nvme_log_smart, data_units_read) == 32);
static_assert(offsetof(struct nvme_log_smart, error_entries) == 176);
static_assert(offsetof(struct nvme_log_smart, temperature_sensor) == 200);
static_assert(offsetof(struct nvme_log_smart, thermal_time) == 224);

/* critical_warning */
#define NVME_SMART_TEMPERATURE 0x02
#define NVME_SMART_READ_ONLY   0x08 /* not by the namespace's write protection */

/* 03h */
struct nvme_log_fw_slot {
	uint8_t afi;
	uint8_t rsvd1[7];
	char frs[7][8];
	uint8_t rsvd64[448];
};
static_assert(sizeof(struct nvme_log_fw_slot) == 512);
static_assert(offsetof(struct nvme_log_fw_slot, frs) == 8);

/* 04h: changed namespaces; FFFFFFFFh alone: too many */
#define NVME_LOG_CHANGED_NS_MAX 1024

struct nvme_log_changed_ns {
	le32_t nsid[NVME_LOG_CHANGED_NS_MAX];
};
static_assert(sizeof(struct nvme_log_changed_ns) == 4096);

/* 05h */
struct nvme_log_effects {
	le32_t acs[256];
	le32_t iocs[256];
	uint8_t rsvd2048[2048];
};
static_assert(sizeof(struct nvme_log_effects) == 4096);
static_assert(offsetof(struct nvme_log_effects, iocs) == 1024);

#define NVME_EFFECTS_CSUPP	0x1u  /* supported */
#define NVME_EFFECTS_LBCC	0x2u  /* changes the content of blocks */
#define NVME_EFFECTS_NCC	0x4u  /* changes a namespace's capabilities */
#define NVME_EFFECTS_NIC	0x8u  /* changes the inventory of namespaces */
#define NVME_EFFECTS_CCC	0x10u /* changes the controller's capabilities */
/* Bits 31:20: what the command is about. */
#define NVME_EFFECTS_SCOPE_CTRL (1u << 21)

/* 0Ch: header, then groups, each followed by its NSIDs */
struct nvme_log_ana {
	le64_t chgcnt;
	le16_t ngrps;
	uint8_t rsvd10[6];
};
static_assert(sizeof(struct nvme_log_ana) == 16);

#define NVME_LOG_ANA_RGO 0x01 /* log specific parameter: groups only, without NSIDs */

enum nvme_ana_state {
	NVME_ANA_OPTIMIZED = 0x01,
	NVME_ANA_NON_OPTIMIZED = 0x02,
	NVME_ANA_INACCESSIBLE = 0x03,
	NVME_ANA_PERSISTENT_LOSS = 0x04,
	NVME_ANA_CHANGE = 0x0f,
};

struct nvme_log_ana_group {
	le32_t grpid;
	le32_t nnsids;
	le64_t chgcnt;
	uint8_t state; /* bits 3:0 */
	uint8_t rsvd17[15];
	le32_t nsid[];
};
static_assert(sizeof(struct nvme_log_ana_group) == 32);
static_assert(offsetof(struct nvme_log_ana_group, state) == 16);

/* 12h: feature identifiers supported and effects */
struct nvme_log_features {
	le32_t fid[256];
};
static_assert(sizeof(struct nvme_log_features) == 1024);

#define NVME_LOG_FEATURES_FSUPP	     0x1u
#define NVME_LOG_FEATURES_SCOPE_NS   (1u << 20)
#define NVME_LOG_FEATURES_SCOPE_CTRL (1u << 21)

/* 13h: NVMe-MI commands supported and effects */
struct nvme_log_mi_commands {
	le32_t command[256];
	uint8_t rsvd1024[3072];
};
static_assert(sizeof(struct nvme_log_mi_commands) == 4096);

/* 80h: reservation notification */
enum nvme_reservation_notice {
	NVME_RESERVATION_NOTICE_EMPTY = 0,
	NVME_RESERVATION_NOTICE_REGISTRATION_PREEMPTED = 1,
	NVME_RESERVATION_NOTICE_RELEASED = 2,
	NVME_RESERVATION_NOTICE_PREEMPTED = 3,
};

struct nvme_log_reservation {
	le64_t count;
	uint8_t type;	  /* enum nvme_reservation_notice */
	uint8_t nr_pages; /* others that wait */
	uint8_t rsvd10[2];
	le32_t nsid;
	uint8_t rsvd16[48];
};
static_assert(sizeof(struct nvme_log_reservation) == 64);
static_assert(offsetof(struct nvme_log_reservation, nsid) == 12);

#endif
