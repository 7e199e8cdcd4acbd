/* SPDX-License-Identifier: MIT */
/*
 * The check of the common header of NVMe/TCP PDUs: one row a type, the same steps for all.
 */
#include "proto/nvme/tcp.h"

#include <errno.h>

enum tcp_data { TCP_NO_DATA, TCP_MAY_HAVE_DATA, TCP_HAS_DATA };

struct tcp_pdu_type {
	uint8_t hlen;  /* 0: there is no such type */
	uint8_t flags; /* allowed */
	bool to_ctrl;
	bool initialize; /* one of the two that open a connection */
	bool terminate;	 /* allowed in any state */
	enum tcp_data has_data;
};

/* NVMe TCP 1.0c 3.6.2.2 to 3.6.2.11. */
static const struct tcp_pdu_type tcp_pdu_types[] = {
	[NVME_TCP_IC_REQ] = {.hlen = sizeof(struct nvme_tcp_ic_req),
		.to_ctrl = true,
		.initialize = true},
	[NVME_TCP_IC_RESP] = {.hlen = sizeof(struct nvme_tcp_ic_resp), .initialize = true},
	[NVME_TCP_H2C_TERM_REQ] = {.hlen = sizeof(struct nvme_tcp_term_req),
		.to_ctrl = true,
		.terminate = true,
		.has_data = TCP_MAY_HAVE_DATA},
	[NVME_TCP_C2H_TERM_REQ] = {.hlen = sizeof(struct nvme_tcp_term_req),
		.terminate = true,
		.has_data = TCP_MAY_HAVE_DATA},
	[NVME_TCP_CAPSULE_CMD] = {.hlen = sizeof(struct nvme_tcp_capsule_cmd),
		.flags = NVME_TCP_HDGSTF | NVME_TCP_DDGSTF,
		.to_ctrl = true,
		.has_data = TCP_MAY_HAVE_DATA},
	[NVME_TCP_CAPSULE_RESP] = {.hlen = sizeof(struct nvme_tcp_capsule_resp),
		.flags = NVME_TCP_HDGSTF},
	[NVME_TCP_H2C_DATA] = {.hlen = sizeof(struct nvme_tcp_data),
		.flags = NVME_TCP_HDGSTF | NVME_TCP_DDGSTF | NVME_TCP_LAST_PDU,
		.to_ctrl = true,
		.has_data = TCP_HAS_DATA},
	[NVME_TCP_C2H_DATA] = {.hlen = sizeof(struct nvme_tcp_data),
		.flags = NVME_TCP_HDGSTF | NVME_TCP_DDGSTF | NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS,
		.has_data = TCP_HAS_DATA},
	[NVME_TCP_R2T] = {.hlen = sizeof(struct nvme_tcp_r2t), .flags = NVME_TCP_HDGSTF},
};

static int tcp_pdu_fail(uint16_t fes, size_t fei, struct nvme_tcp_fatal *ret_fatal)
{
	ret_fatal->fes = fes;
	ret_fatal->fei = (uint32_t)fei;
	return -EPROTO;
}

static int tcp_pdu_field_fail(size_t offset, struct nvme_tcp_fatal *ret_fatal)
{
	return tcp_pdu_fail(NVME_TCP_FES_INVALID_HEADER_FIELD, offset, ret_fatal);
}

/* The type exists, goes in this direction and is due in this state. */
static int tcp_pdu_check_type(const struct nvme_tcp_pdu_rules *rules, uint8_t type,
	const struct tcp_pdu_type **ret_row, struct nvme_tcp_fatal *ret_fatal)
{
	const struct tcp_pdu_type *row;

	if (type >= ARRAY_SIZE(tcp_pdu_types))
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, type), ret_fatal);
	row = &tcp_pdu_types[type];
	if (row->hlen == 0 || row->to_ctrl != rules->to_ctrl)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, type), ret_fatal);
	if (!row->terminate && row->initialize == rules->initialized)
		return tcp_pdu_fail(NVME_TCP_FES_SEQUENCE, 0, ret_fatal);
	*ret_row = row;
	return 0;
}

/* Without data in the PDU neither PDO nor a data digest means anything, hence PDO is not looked at.
 */
static int tcp_pdu_check_no_data(const struct tcp_pdu_type *row, const struct nvme_tcp_ch *ch,
	uint64_t body, struct nvme_tcp_pdu *pdu, struct nvme_tcp_fatal *ret_fatal)
{
	if (row->has_data == TCP_HAS_DATA || le32_get(ch->plen) != body)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, plen), ret_fatal);
	if (ch->flags & NVME_TCP_DDGSTF)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, flags), ret_fatal);
	pdu->data_offset = (uint32_t)body;
	pdu->data_len = 0;
	pdu->data_digest = false;
	return 0;
}

/* A termination request's data follows its header: it has no PDO and no digest. */
static int tcp_pdu_check_term_data(
	uint64_t body, uint64_t plen, struct nvme_tcp_pdu *pdu, struct nvme_tcp_fatal *ret_fatal)
{
	if (plen - body > NVME_TCP_TERM_DATA_MAX)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, plen), ret_fatal);
	pdu->data_offset = (uint32_t)body;
	pdu->data_len = (uint32_t)(plen - body);
	pdu->data_digest = false;
	return 0;
}

static int tcp_pdu_check_data(const struct nvme_tcp_pdu_rules *rules, const struct nvme_tcp_ch *ch,
	uint64_t body, struct nvme_tcp_pdu *pdu, struct nvme_tcp_fatal *ret_fatal)
{
	uint64_t plen = le32_get(ch->plen);
	uint64_t digest = rules->data_digest ? NVME_TCP_DIGEST_SIZE : 0;
	uint64_t alignment = (rules->pda + 1u) * 4u;
	uint64_t len;

	if (!(ch->flags & NVME_TCP_DDGSTF) != !rules->data_digest)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, flags), ret_fatal);
	if (ch->pdo < body || ch->pdo % alignment != 0 || ch->pdo > plen)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, pdo), ret_fatal);
	if (plen <= ch->pdo + digest)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, plen), ret_fatal);

	len = plen - ch->pdo - digest;
	if (ch->type == NVME_TCP_CAPSULE_CMD && len > rules->capsule_data_max)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, plen), ret_fatal);
	if (ch->type == NVME_TCP_H2C_DATA && len > rules->data_max)
		return tcp_pdu_fail(NVME_TCP_FES_LIMIT_EXCEEDED, 0, ret_fatal);
	if (ch->type == NVME_TCP_C2H_DATA && len > rules->data_max)
		return tcp_pdu_fail(NVME_TCP_FES_OUT_OF_RANGE, 0, ret_fatal);
	pdu->data_offset = ch->pdo;
	pdu->data_len = (uint32_t)len;
	pdu->data_digest = rules->data_digest;
	return 0;
}

int nvme_tcp_pdu_check(const struct nvme_tcp_pdu_rules *rules, const struct nvme_tcp_ch *ch,
	struct nvme_tcp_pdu *ret, struct nvme_tcp_fatal *ret_fatal)
{
	const struct tcp_pdu_type *row;
	struct nvme_tcp_pdu pdu = {.type = ch->type, .flags = ch->flags};
	uint64_t plen = le32_get(ch->plen);
	uint64_t body; /* where the data may start at the earliest */
	int error;

	error = tcp_pdu_check_type(rules, ch->type, &row, ret_fatal);
	if (error)
		return error;
	/* SUCCESS is for a whole command, hence with its last data only (NVMe TCP 1.0c 3.6.2.9). */
	pdu.header_digest = rules->header_digest && (row->flags & NVME_TCP_HDGSTF);
	if ((ch->flags & ~row->flags) || !(ch->flags & NVME_TCP_HDGSTF) != !pdu.header_digest ||
		((ch->flags & NVME_TCP_SUCCESS) && !(ch->flags & NVME_TCP_LAST_PDU)))
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, flags), ret_fatal);
	if (ch->hlen != row->hlen)
		return tcp_pdu_field_fail(offsetof(struct nvme_tcp_ch, hlen), ret_fatal);

	pdu.header_len = ch->hlen;
	body = ch->hlen + (pdu.header_digest ? NVME_TCP_DIGEST_SIZE : 0u);
	if (plen <= body || row->has_data == TCP_NO_DATA)
		error = tcp_pdu_check_no_data(row, ch, body, &pdu, ret_fatal);
	else if (row->terminate)
		error = tcp_pdu_check_term_data(body, plen, &pdu, ret_fatal);
	else
		error = tcp_pdu_check_data(rules, ch, body, &pdu, ret_fatal);
	if (error)
		return error;
	*ret = pdu;
	return 0;
}
