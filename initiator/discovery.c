/* SPDX-License-Identifier: MIT */
/*
 * The discovery log (NVMe base 2.0 5.16.1.23): read in pieces, consistent or not at all, and what
 * to connect to.
 */
#include "initiator/discovery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/log.h"
#include "proto/nvme/status.h"
#include "initiator/admin.h"

#define DISCOVERY_MAX_ENTRIES 4096 /* a 4 MiB log: whoever says more is not to be believed */
#define DISCOVERY_MAX_TRIES   8
#define DISCOVERY_PIECE	      32u /* entries a command reads */

struct log_reader {
	struct haul_ctrl *ctrl;
	void (*done)(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
		const char *why, struct haul_discovery_log *log);
	void *context;
	struct haul_discovery_log *log; /* being filled */
	uint64_t generation;
	uint32_t nr;	  /* entries of this generation */
	uint32_t nr_read; /* so far */
	uint32_t nr_tries;
	struct nvme_disc_log header;
	struct nvme_disc_entry piece[DISCOVERY_PIECE];
};

static void log_reader_header(struct log_reader *reader, bool is_last);
static void log_reader_piece(struct log_reader *reader);

static void log_reader_end(struct log_reader *reader, int result, uint16_t status, const char *why)
{
	struct haul_discovery_log *log = reader->log;

	if (result) {
		free(log);
		log = NULL;
	}
	if (!why)
		why = status ? nvme_status_str(status) : strerror(-result);
	reader->done(reader->ctrl, reader->context, result, status, why, log);
	free(reader);
}

static int log_reader_send(struct log_reader *reader, uint64_t offset, void *bytes, uint32_t len,
	bool is_last, void (*answered)(struct haul_request *request))
{
	uint32_t numd = len / 4 - 1; /* 0's based */
	struct nvme_cmd cmd = {.opcode = NVME_OPC_GET_LOG_PAGE,
		.get_log = {.lid = NVME_LOG_DISCOVERY,
			/* An event is to be cleared by the last read only. */
			.lsp = is_last ? 0 : NVME_GET_LOG_RAE,
			.numdl = le16((uint16_t)numd),
			.numdu = le16((uint16_t)(numd >> 16)),
			.lpo = le64(offset)}};

	return admin_send(reader->ctrl, &cmd, bytes, len, 1,
		reader->ctrl->options.command_timeout_ms, answered, reader);
}

/* --- the header ----------------------------------------------------------------------------- */

static int log_reader_make_room(struct log_reader *reader)
{
	struct haul_discovery_log *log = realloc(reader->log,
		sizeof(*log) + (size_t)reader->nr * sizeof(struct haul_discovery_entry));

	if (!log)
		return -ENOMEM;
	log->generation = reader->generation;
	log->nr = reader->nr;
	reader->log = log;
	return 0;
}

/* A new generation: all entries are to be read. */
static void log_reader_begin(struct log_reader *reader)
{
	uint64_t nr = le64_get(reader->header.numrec);

	if (reader->nr_tries++ == DISCOVERY_MAX_TRIES) {
		log_reader_end(reader, -EAGAIN, 0, "the log changes faster than it can be read");
		return;
	}
	if (le16_get(reader->header.recfmt) != NVME_DISC_RECFMT) {
		log_reader_end(reader, -EPROTO, 0, "the log has an unknown format (RECFMT)");
		return;
	}
	if (nr > DISCOVERY_MAX_ENTRIES) {
		log_reader_end(reader, -EMSGSIZE, 0, "the log claims more than 4096 entries");
		return;
	}
	reader->generation = le64_get(reader->header.genctr);
	reader->nr = (uint32_t)nr;
	reader->nr_read = 0;
	if (log_reader_make_room(reader))
		log_reader_end(reader, -ENOMEM, 0, NULL);
	else
		log_reader_piece(reader);
}

static void log_reader_header_answered(struct haul_request *request)
{
	struct log_reader *reader = request->context;
	uint16_t status;
	int result = request_result(request, &status);

	if (result)
		log_reader_end(reader, result, status, NULL);
	else
		log_reader_begin(reader);
}

/* The header after the last piece: the same as before, or everything read is void. */
static void log_reader_check_answered(struct haul_request *request)
{
	struct log_reader *reader = request->context;
	uint16_t status;
	int result = request_result(request, &status);

	if (result)
		log_reader_end(reader, result, status, NULL);
	else if (le64_get(reader->header.genctr) == reader->generation &&
		 le64_get(reader->header.numrec) == reader->nr)
		log_reader_end(reader, 0, 0, NULL);
	else
		log_reader_begin(reader);
}

static void log_reader_header(struct log_reader *reader, bool is_last)
{
	int error = log_reader_send(reader, 0, &reader->header, sizeof(reader->header), is_last,
		is_last ? log_reader_check_answered : log_reader_header_answered);

	if (error)
		log_reader_end(reader, error, 0, NULL);
}

/* --- the entries ---------------------------------------------------------------------------- */

static void log_transport_name(uint8_t trtype, char *text, size_t size)
{
	const char *name = nvme_trtype_name(trtype);

	if (name)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "%u", trtype);
}

/* Text of a field that ends at its first NUL, at most MAX bytes of it. */
static void log_field(const char *field, size_t max, char *ret_text)
{
	nvme_field_get(field, strnlen(field, max), ret_text);
}

/* As it is where it is a name; otherwise printable at least. */
static void log_nqn(const char *field, char *ret_text)
{
	size_t len = strnlen(field, NVME_NQN_MAX);

	log_field(field, NVME_NQN_MAX, ret_text);
	if (strlen(ret_text) == len && !nvme_nqn_check(field, len, NVME_NQN_PEERS, NULL))
		memcpy(ret_text, field, len);
}

static void log_take_entry(const struct nvme_disc_entry *wire, struct haul_discovery_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	log_transport_name(wire->trtype, entry->transport, sizeof(entry->transport));
	log_field(wire->traddr, sizeof(wire->traddr), entry->address);
	log_field(wire->trsvcid, sizeof(wire->trsvcid), entry->service);
	log_nqn(wire->subnqn, entry->subsystem_nqn);
	entry->subtype = wire->subtype;
	entry->address_family = wire->adrfam;
	entry->treq = wire->treq;
	entry->eflags = le16_get(wire->eflags);
	entry->portid = le16_get(wire->portid);
	entry->cntlid = le16_get(wire->cntlid);
	memcpy(entry->tsas, wire->tsas.b, sizeof(entry->tsas));
}

static uint32_t log_reader_nr_next(const struct log_reader *reader)
{
	uint32_t size = (uint32_t)sizeof(reader->piece[0]);
	uint32_t most = min_of(reader->ctrl->limits.max_transfer_bytes / size, DISCOVERY_PIECE);

	return min_of(reader->nr - reader->nr_read, most);
}

static void log_reader_piece_answered(struct haul_request *request)
{
	struct log_reader *reader = request->context;
	uint32_t nr = log_reader_nr_next(reader);
	uint16_t status;
	int result = request_result(request, &status);

	if (result && !status) {
		log_reader_end(reader, result, 0, NULL);
		return;
	}
	if (status) { /* the log has become shorter, perhaps */
		log_reader_header(reader, false);
		return;
	}
	for (uint32_t i = 0; i < nr; i++)
		log_take_entry(&reader->piece[i], &reader->log->entries[reader->nr_read + i]);
	reader->nr_read += nr;
	log_reader_piece(reader);
}

static void log_reader_piece(struct log_reader *reader)
{
	uint32_t size = (uint32_t)sizeof(reader->piece[0]);
	uint32_t nr = log_reader_nr_next(reader);
	int error;

	if (reader->nr_read == reader->nr) {
		log_reader_header(reader, true);
		return;
	}
	error = log_reader_send(reader, sizeof(reader->header) + (uint64_t)reader->nr_read * size,
		reader->piece, nr * size, false, log_reader_piece_answered);
	if (error)
		log_reader_end(reader, error, 0, NULL);
}

int log_reader_start(struct haul_ctrl *ctrl,
	void (*done)(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
		const char *why, struct haul_discovery_log *log),
	void *context)
{
	struct log_reader *reader = calloc(1, sizeof(*reader));
	int error;

	if (!reader)
		return -ENOMEM;
	reader->ctrl = ctrl;
	reader->done = done;
	reader->context = context;
	error = log_reader_send(reader, 0, &reader->header, sizeof(reader->header), false,
		log_reader_header_answered);
	if (error)
		free(reader);
	return error;
}

/* --- choosing ------------------------------------------------------------------------------- */

static bool discovery_is_subsystem(const struct haul_discovery_entry *entry)
{
	return entry->subtype == NVME_SUBTYPE_NVM &&
	       !nvme_nqn_check(
		       entry->subsystem_nqn, strlen(entry->subsystem_nqn), NVME_NQN_PEERS, NULL);
}

static bool discovery_seen_before(const struct haul_discovery_log *log, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++)
		if (discovery_is_subsystem(&log->entries[i]) &&
			!strcmp(log->entries[i].subsystem_nqn, log->entries[index].subsystem_nqn))
			return true;
	return false;
}

/* All different NQNs, until the text is full. Returns the number of them that was put there. */
static uint32_t discovery_list(const struct haul_discovery_log *log, char *text, size_t size)
{
	uint32_t nr = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < log->nr && at < size; i++) {
		const struct haul_discovery_entry *entry = &log->entries[i];

		if (!discovery_is_subsystem(entry) || discovery_seen_before(log, i))
			continue;
		at += (size_t)snprintf(
			text + at, size - at, "%s%s", nr ? ", " : "", entry->subsystem_nqn);
		nr++;
	}
	return nr;
}

/* An address to listen at, not one to go to. */
static bool discovery_is_wildcard(const char *address)
{
	return !address[0] || !strcmp(address, "0.0.0.0") || !strcmp(address, "::");
}

/* The better the entry fits the address asked, the higher; 0: not at all. */
static int discovery_rank(const struct haul_discovery_entry *entry, const struct nvme_uri *uri)
{
	if (!discovery_is_subsystem(entry) ||
		strcmp(entry->transport, nvme_trtype_name((uint8_t)uri->trtype)))
		return 0;
	if (strcmp(entry->address, uri->host))
		return 1;
	return strtoul(entry->service, NULL, 10) == uri->port ? 3 : 2;
}

const struct haul_discovery_entry *discovery_choose(const struct haul_discovery_log *log,
	const struct nvme_uri *uri, int *ret_result, char *why, size_t why_size)
{
	const struct haul_discovery_entry *best = NULL;
	char list[HAUL_ERROR_BYTES / 2];
	uint32_t nr = discovery_list(log, list, sizeof(list));
	int best_rank = 0;

	if (nr != 1) {
		*ret_result = nr ? -ENOTUNIQ : -ENOENT;
		snprintf(why, why_size,
			nr ? "there are several subsystems, add one to the address: %s"
			   : "no subsystem is offered to this host%s",
			list);
		return NULL;
	}
	for (uint32_t i = 0; i < log->nr; i++) {
		int rank = discovery_rank(&log->entries[i], uri);

		if (rank > best_rank) {
			best_rank = rank;
			best = &log->entries[i];
		}
	}
	if (!best) {
		*ret_result = -EPROTONOSUPPORT;
		snprintf(why, why_size,
			"%s is offered over other transports only; try haul discover", list);
	}
	return best;
}

void discovery_apply(const struct haul_discovery_entry *entry, struct nvme_uri *uri)
{
	unsigned long port = strtoul(entry->service, NULL, 10);

	if (port > 0 && port <= UINT16_MAX)
		uri->port = (uint16_t)port;
	if (!discovery_is_wildcard(entry->address) && strlen(entry->address) < sizeof(uri->host))
		strcpy(uri->host, entry->address);
}

bool discovery_uri(const struct haul_discovery_entry *entry, struct nvme_uri *ret)
{
	unsigned long port = strtoul(entry->service, NULL, 10);
	uint8_t trtype = nvme_trtype_by_name(entry->transport, strlen(entry->transport));

	if (trtype != NVME_TRTYPE_RDMA && trtype != NVME_TRTYPE_TCP)
		return false;
	if (port == 0 || port > UINT16_MAX || !entry->address[0] ||
		strlen(entry->address) >= sizeof(ret->host))
		return false;
	*ret = (struct nvme_uri){.trtype = trtype,
		.ipv6 = entry->address_family == NVME_ADRFAM_IPV6,
		.port = (uint16_t)port};
	strcpy(ret->host, entry->address);
	strcpy(ret->nqn, entry->subsystem_nqn);
	return true;
}

/* --- several logs --------------------------------------------------------------------------- */

void discovery_complete(struct haul_discovery_log *log, const char *host)
{
	for (uint32_t i = 0; i < log->nr; i++) {
		struct haul_discovery_entry *entry = &log->entries[i];

		if (discovery_is_wildcard(entry->address))
			snprintf(entry->address, sizeof(entry->address), "%s", host);
	}
}

int discovery_merge(struct haul_discovery_log **all, struct haul_discovery_log *log)
{
	uint32_t nr = *all ? (*all)->nr : 0;
	struct haul_discovery_log *grown;
	int error = 0;

	if (!*all) {
		*all = log;
		return 0;
	}
	if (nr + log->nr > DISCOVERY_MAX_ENTRIES) {
		error = -EMSGSIZE;
		goto free_log;
	}
	grown = realloc(*all, sizeof(*grown) + (nr + log->nr) * sizeof(grown->entries[0]));
	if (!grown) {
		error = -ENOMEM;
		goto free_log;
	}
	memcpy(&grown->entries[nr], log->entries, log->nr * sizeof(grown->entries[0]));
	grown->nr += log->nr;
	*all = grown;
free_log:
	free(log);
	return error;
}

/* --- the caller's --------------------------------------------------------------------------- */

struct discover_op {
	struct admin_op *op;
	struct haul_discovery_log **ret;
};

static void discover_read(struct haul_ctrl *ctrl, void *context, int result, uint16_t status,
	const char *why, struct haul_discovery_log *log)
{
	struct discover_op *discover = context;

	if (result)
		ctrl_set_error(ctrl, "%.300s: reading the discovery log: %s", ctrl->uri_text, why);
	else
		*discover->ret = log;
	admin_op_end(discover->op, result, status, 0);
	free(discover);
}

int haul_discover(struct haul_ctrl *ctrl, struct haul_discovery_log **ret, uint64_t user_data)
{
	struct discover_op *discover;
	int error;

	if (ctrl->state != CTRL_LIVE)
		return -ENOTCONN;
	if (!ctrl->limits.is_discovery)
		return -EINVAL;
	discover = calloc(1, sizeof(*discover));
	if (!discover)
		return -ENOMEM;
	discover->ret = ret;
	discover->op = admin_op_get(ctrl, user_data);
	error = discover->op ? log_reader_start(ctrl, discover_read, discover) : -EAGAIN;
	if (error) {
		if (discover->op)
			admin_op_drop(discover->op);
		free(discover);
	}
	return error;
}
