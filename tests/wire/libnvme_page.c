/* SPDX-License-Identifier: MIT */
/*
 * libnvme_page KIND: the NVMe data structure on standard input, read through libnvme's structures.
 * One line "NAME VALUE" a field on standard output: numbers in decimal, texts in quotes,
 * identifiers as their bytes in hexadecimal.
 */
#include <endian.h>
#include <libnvme.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum kind { NUMBER, TEXT, BYTES };

struct field {
	const char *name;
	size_t at, size;
	enum kind kind;
};

#define MEMBER_SIZE(type, member) sizeof(((struct type *)NULL)->member)
#define FIELD(type, member, kind)                                                       \
	{                                                                               \
#member, offsetof(struct type, member), MEMBER_SIZE(type, member), kind \
	}
#define N(type, member) FIELD(type, member, NUMBER)
#define T(type, member) FIELD(type, member, TEXT)
#define B(type, member) FIELD(type, member, BYTES)
#define END                        \
	{                          \
		NULL, 0, 0, NUMBER \
	}

/* What is on standard input; a longer page is an error of whoever asks. */
static _Alignas(16) uint8_t page[1 << 20];
static size_t page_length;

/* Numbers of NVMe are little-endian, whatever their size; those of 16 bytes are told by their lower
 * half. */
static uint64_t number(const uint8_t *at, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, at, size < sizeof value ? size : sizeof value);
	return le64toh(value);
}

static void show(const char *prefix, const struct field *field, size_t base)
{
	const uint8_t *at = page + base + field->at;

	printf("%s%s ", prefix, field->name);
	if (field->kind == NUMBER)
		printf("%llu", (unsigned long long)number(at, field->size));
	else if (field->kind == TEXT)
		printf("'%.*s'", (int)field->size, (const char *)at);
	for (size_t i = 0; field->kind == BYTES && i < field->size; i++)
		printf("%02x", at[i]);
	putchar('\n');
}

static void show_all(const char *prefix, const struct field *field, size_t base)
{
	for (; field->name; field++)
		show(prefix, field, base);
}

static const struct field id_ctrl_fields[] = {
	T(nvme_id_ctrl, sn),
	T(nvme_id_ctrl, mn),
	T(nvme_id_ctrl, fr),
	N(nvme_id_ctrl, cmic),
	N(nvme_id_ctrl, mdts),
	N(nvme_id_ctrl, cntlid),
	N(nvme_id_ctrl, ver),
	N(nvme_id_ctrl, oaes),
	N(nvme_id_ctrl, ctratt),
	N(nvme_id_ctrl, cntrltype),
	N(nvme_id_ctrl, oacs),
	N(nvme_id_ctrl, aerl),
	N(nvme_id_ctrl, lpa),
	N(nvme_id_ctrl, elpe),
	N(nvme_id_ctrl, kas),
	N(nvme_id_ctrl, anatt),
	N(nvme_id_ctrl, anacap),
	N(nvme_id_ctrl, anagrpmax),
	N(nvme_id_ctrl, nanagrpid),
	N(nvme_id_ctrl, sqes),
	N(nvme_id_ctrl, cqes),
	N(nvme_id_ctrl, maxcmd),
	N(nvme_id_ctrl, nn),
	N(nvme_id_ctrl, oncs),
	N(nvme_id_ctrl, fuses),
	N(nvme_id_ctrl, vwc),
	N(nvme_id_ctrl, nwpc),
	N(nvme_id_ctrl, acwu),
	N(nvme_id_ctrl, ocfs),
	N(nvme_id_ctrl, sgls),
	N(nvme_id_ctrl, mnan),
	T(nvme_id_ctrl, subnqn),
	N(nvme_id_ctrl, ioccsz),
	N(nvme_id_ctrl, iorcsz),
	N(nvme_id_ctrl, icdoff),
	N(nvme_id_ctrl, fcatt),
	N(nvme_id_ctrl, msdbd),
	N(nvme_id_ctrl, ofcs),
	N(nvme_id_ctrl, dctype),
	END,
};

static const struct field id_ns_fields[] = {
	N(nvme_id_ns, nsze),
	N(nvme_id_ns, ncap),
	N(nvme_id_ns, nuse),
	N(nvme_id_ns, nsfeat),
	N(nvme_id_ns, nlbaf),
	N(nvme_id_ns, flbas),
	N(nvme_id_ns, nmic),
	N(nvme_id_ns, rescap),
	N(nvme_id_ns, dlfeat),
	N(nvme_id_ns, nacwu),
	N(nvme_id_ns, nvmcap),
	N(nvme_id_ns, npwg),
	N(nvme_id_ns, npda),
	N(nvme_id_ns, mssrl),
	N(nvme_id_ns, mcl),
	N(nvme_id_ns, msrc),
	N(nvme_id_ns, anagrpid),
	N(nvme_id_ns, nsattr),
	B(nvme_id_ns, nguid),
	B(nvme_id_ns, eui64),
	N(nvme_id_ns, lbaf[0].ms),
	N(nvme_id_ns, lbaf[0].ds),
	N(nvme_id_ns, lbaf[1].ds),
	END,
};

static const struct field independent_fields[] = {
	N(nvme_id_independent_id_ns, nmic),
	N(nvme_id_independent_id_ns, rescap),
	N(nvme_id_independent_id_ns, anagrpid),
	N(nvme_id_independent_id_ns, nsattr),
	N(nvme_id_independent_id_ns, nstat),
	END,
};

static const struct field nvm_ctrl_fields[] = {
	N(nvme_id_ctrl_nvm, vsl),
	N(nvme_id_ctrl_nvm, wzsl),
	N(nvme_id_ctrl_nvm, dmrl),
	N(nvme_id_ctrl_nvm, dmrsl),
	N(nvme_id_ctrl_nvm, dmsl),
	END,
};

static const struct field error_fields[] = {
	N(nvme_error_log_page, error_count),
	N(nvme_error_log_page, sqid),
	N(nvme_error_log_page, cmdid),
	N(nvme_error_log_page, status_field),
	N(nvme_error_log_page, parm_error_location),
	N(nvme_error_log_page, lba),
	N(nvme_error_log_page, nsid),
	N(nvme_error_log_page, trtype),
	END,
};

static const struct field smart_fields[] = {
	N(nvme_smart_log, critical_warning),
	N(nvme_smart_log, temperature),
	N(nvme_smart_log, avail_spare),
	N(nvme_smart_log, spare_thresh),
	N(nvme_smart_log, percent_used),
	N(nvme_smart_log, data_units_read),
	N(nvme_smart_log, data_units_written),
	N(nvme_smart_log, host_reads),
	N(nvme_smart_log, host_writes),
	N(nvme_smart_log, power_cycles),
	N(nvme_smart_log, unsafe_shutdowns),
	N(nvme_smart_log, media_errors),
	N(nvme_smart_log, num_err_log_entries),
	END,
};

static const struct field firmware_fields[] = {
	N(nvme_firmware_slot, afi),
	T(nvme_firmware_slot, frs[0]),
	END,
};

static const struct field notification_fields[] = {
	N(nvme_resv_notification_log, lpc),
	N(nvme_resv_notification_log, rnlpt),
	N(nvme_resv_notification_log, nalp),
	N(nvme_resv_notification_log, nsid),
	END,
};

static const struct field ana_fields[] = {
	N(nvme_ana_log, chgcnt),
	N(nvme_ana_log, ngrps),
	END,
};

static const struct field ana_group_fields[] = {
	N(nvme_ana_group_desc, grpid),
	N(nvme_ana_group_desc, nnsids),
	N(nvme_ana_group_desc, chgcnt),
	N(nvme_ana_group_desc, state),
	END,
};

static const struct field resv_fields[] = {
	N(nvme_resv_status, gen),
	N(nvme_resv_status, rtype),
	N(nvme_resv_status, regctl),
	N(nvme_resv_status, ptpls),
	END,
};

static const struct field registrant_fields[] = {
	N(nvme_registered_ctrl, cntlid),
	N(nvme_registered_ctrl, rcsts),
	B(nvme_registered_ctrl, hostid),
	N(nvme_registered_ctrl, rkey),
	END,
};

static const struct field registrant_ext_fields[] = {
	N(nvme_registered_ctrl_ext, cntlid),
	N(nvme_registered_ctrl_ext, rcsts),
	B(nvme_registered_ctrl_ext, hostid),
	N(nvme_registered_ctrl_ext, rkey),
	END,
};

static const struct field discovery_fields[] = {
	N(nvmf_discovery_log, genctr),
	N(nvmf_discovery_log, numrec),
	N(nvmf_discovery_log, recfmt),
	END,
};

static const struct field entry_fields[] = {
	N(nvmf_disc_log_entry, treq),
	N(nvmf_disc_log_entry, portid),
	N(nvmf_disc_log_entry, cntlid),
	N(nvmf_disc_log_entry, asqsz),
	N(nvmf_disc_log_entry, eflags),
	T(nvmf_disc_log_entry, trsvcid),
	T(nvmf_disc_log_entry, subnqn),
	T(nvmf_disc_log_entry, traddr),
	END,
};

/* Elements of one size, from FIRST on. */
static void show_list(const struct field *fields, size_t first, size_t size, size_t count)
{
	char prefix[32];

	for (size_t i = 0; i < count && first + (i + 1) * size <= page_length; i++) {
		snprintf(prefix, sizeof prefix, "%zu.", i);
		show_all(prefix, fields, first + i * size);
	}
}

/* Dwords of a page of 256 or more, those that are not 0. */
static void show_words(const char *name, const __le32 *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (words[i])
			printf("%s.%zu %u\n", name, i, le32toh(words[i]));
}

static void show_errors(void)
{
	show_list(error_fields, 0, sizeof(struct nvme_error_log_page), SIZE_MAX);
}

static void show_supported(void)
{
	show_words("page", ((struct nvme_supported_log_pages *)page)->lid_support,
		NVME_LOG_SUPPORTED_LOG_PAGES_MAX);
}

static void show_effects(void)
{
	const struct nvme_cmd_effects_log *log = (const struct nvme_cmd_effects_log *)page;

	show_words("admin", log->acs, 256);
	show_words("io", log->iocs, 256);
}

static void show_feature_effects(void)
{
	show_words("feature", ((struct nvme_fid_supported_effects_log *)page)->fid_support,
		NVME_LOG_FID_SUPPORTED_EFFECTS_MAX);
}

static void show_namespaces(void)
{
	show_words("namespace", ((struct nvme_ns_list *)page)->ns, NVME_ID_NS_LIST_MAX);
}

static void show_controllers(void)
{
	const struct nvme_ctrl_list *list = (const struct nvme_ctrl_list *)page;

	for (size_t i = 0; i < le16toh(list->num) && i < NVME_ID_CTRL_LIST_MAX; i++)
		printf("controller.%zu %u\n", i, le16toh(list->identifier[i]));
}

static void show_command_sets(void)
{
	for (size_t i = 0; i < 512; i++)
		if (((struct nvme_id_iocs *)page)->iocsc[i])
			printf("combination.%zu %llu\n", i,
				(unsigned long long)le64toh(
					((struct nvme_id_iocs *)page)->iocsc[i]));
}

/* Descriptors stand at any place, even or not: each is copied before it is looked at. */
static const char *descriptor_name(const struct nvme_ns_id_desc *desc)
{
	switch (desc->nidt) {
	case NVME_NIDT_EUI64:
		return "eui64";
	case NVME_NIDT_NGUID:
		return "nguid";
	case NVME_NIDT_UUID:
		return "uuid";
	case NVME_NIDT_CSI:
		return "csi";
	default:
		return "unknown";
	}
}

static void show_descriptors(void)
{
	struct nvme_ns_id_desc desc;
	size_t at = 0;

	while (at + sizeof desc <= page_length) {
		memcpy(&desc, page + at, sizeof desc);
		if (!desc.nidl)
			break;
		show(descriptor_name(&desc), &(struct field){"", sizeof desc, desc.nidl, BYTES},
			at);
		at += sizeof desc + desc.nidl;
	}
}

static void show_ana(void)
{
	struct nvme_ana_group_desc group;
	size_t at = sizeof(struct nvme_ana_log);
	char prefix[32];

	show_all("", ana_fields, 0);
	for (unsigned n = 0; n < le16toh(((struct nvme_ana_log *)page)->ngrps) &&
			     at + sizeof group <= page_length;
		n++) {
		memcpy(&group, page + at, sizeof group);
		snprintf(prefix, sizeof prefix, "%u.", n);
		show_all(prefix, ana_group_fields, at);
		at += sizeof group;
		for (size_t i = 0; i < le32toh(group.nnsids) && at + 4 <= page_length; i++, at += 4)
			printf("%s%zu %u\n", prefix, i, (unsigned)number(page + at, 4));
	}
}

static size_t resv_registrants(void)
{
	return number(page + offsetof(struct nvme_resv_status, regctl),
		MEMBER_SIZE(nvme_resv_status, regctl));
}

static void show_resv(void)
{
	show_all("", resv_fields, 0);
	show_list(registrant_fields, offsetof(struct nvme_resv_status, regctl_ds),
		sizeof(struct nvme_registered_ctrl), resv_registrants());
}

static void show_resv_ext(void)
{
	show_all("", resv_fields, 0);
	show_list(registrant_ext_fields, offsetof(struct nvme_resv_status, regctl_eds),
		sizeof(struct nvme_registered_ctrl_ext), resv_registrants());
}

/* libnvme has words for what is in an entry; it shows those that it does not know as
 * "unrecognized". */
static void show_discovery(void)
{
	const struct nvmf_discovery_log *log = (const struct nvmf_discovery_log *)page;

	show_all("", discovery_fields, 0);
	show_list(entry_fields, sizeof *log, sizeof log->entries[0], le64toh(log->numrec));
	for (size_t i = 0; i < le64toh(log->numrec) &&
			   sizeof *log + (i + 1) * sizeof log->entries[0] <= page_length;
		i++) {
		const struct nvmf_disc_log_entry *entry = &log->entries[i];

		printf("%zu.trtype '%s'\n%zu.adrfam '%s'\n", i, nvmf_trtype_str(entry->trtype), i,
			nvmf_adrfam_str(entry->adrfam));
		printf("%zu.subtype '%s'\n", i, nvmf_subtype_str(entry->subtype));
		if (entry->trtype == NVMF_TRTYPE_TCP)
			printf("%zu.sectype '%s'\n", i, nvmf_sectype_str(entry->tsas.tcp.sectype));
		if (entry->trtype != NVMF_TRTYPE_RDMA)
			continue;
		printf("%zu.qptype '%s'\n", i, nvmf_qptype_str(entry->tsas.rdma.qptype));
		printf("%zu.prtype '%s'\n", i, nvmf_prtype_str(entry->tsas.rdma.prtype));
		printf("%zu.cms '%s'\n%zu.pkey %u\n", i, nvmf_cms_str(entry->tsas.rdma.cms), i,
			le16toh(entry->tsas.rdma.pkey));
	}
}

static const struct {
	const char *name;
	const struct field *fields;
	void (*show)(void);
} kinds[] = {
	{"id-ctrl", id_ctrl_fields, NULL},
	{"id-ns", id_ns_fields, NULL},
	{"independent", independent_fields, NULL},
	{"nvm-id-ctrl", nvm_ctrl_fields, NULL},
	{"descriptors", NULL, show_descriptors},
	{"namespaces", NULL, show_namespaces},
	{"controllers", NULL, show_controllers},
	{"command-sets", NULL, show_command_sets},
	{"supported", NULL, show_supported},
	{"errors", NULL, show_errors},
	{"smart", smart_fields, NULL},
	{"firmware", firmware_fields, NULL},
	{"effects", NULL, show_effects},
	{"feature-effects", NULL, show_feature_effects},
	{"ana", NULL, show_ana},
	{"notification", notification_fields, NULL},
	{"resv", NULL, show_resv},
	{"resv-ext", NULL, show_resv_ext},
	{"discovery", NULL, show_discovery},
};

int main(int argc, char **argv)
{
	page_length = fread(page, 1, sizeof page, stdin);
	for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		if (kinds[i].fields)
			show_all("", kinds[i].fields, 0);
		else
			kinds[i].show();
		return 0;
	}
	fprintf(stderr, "usage: libnvme_page KIND < PAGE\n");
	return 2;
}
