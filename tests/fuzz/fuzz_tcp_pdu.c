/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the check of PDU headers: rules (flags, alignment, two limits in KiB), then the eight
 * bytes.
 */
#include <assert.h>
#include <string.h>

#include "proto/nvme/tcp.h"
#include "tests/fuzz/fuzz.h"

#define RULES_SIZE 4

static void check_good(const struct nvme_tcp_pdu *pdu, const struct nvme_tcp_ch *ch,
	const struct nvme_tcp_pdu_rules *rules)
{
	uint64_t header =
		(uint64_t)pdu->header_len + (pdu->header_digest ? NVME_TCP_DIGEST_SIZE : 0);
	uint64_t end = (uint64_t)pdu->data_offset + pdu->data_len +
		       (pdu->data_digest ? NVME_TCP_DIGEST_SIZE : 0);

	assert(end == le32_get(ch->plen));
	assert(pdu->header_len >= sizeof(*ch) && pdu->header_len <= NVME_TCP_HLEN_MAX);
	assert(pdu->data_offset >= header);
	assert(pdu->data_len > 0 || !pdu->data_digest);
	assert(!pdu->header_digest || rules->header_digest);
	assert(!pdu->data_digest || rules->data_digest);
	assert(rules->initialized || pdu->type <= NVME_TCP_C2H_TERM_REQ);
	if (pdu->type == NVME_TCP_CAPSULE_CMD)
		assert(pdu->data_len <= rules->capsule_data_max);
	else if (pdu->type == NVME_TCP_H2C_DATA || pdu->type == NVME_TCP_C2H_DATA)
		assert(pdu->data_len > 0 && pdu->data_len <= rules->data_max);
	else
		assert(pdu->data_len <= NVME_TCP_TERM_DATA_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct nvme_tcp_pdu_rules rules;
	struct nvme_tcp_fatal fatal = {0};
	struct nvme_tcp_pdu pdu;
	struct nvme_tcp_ch ch;

	if (size < RULES_SIZE + sizeof(ch))
		return 0;
	rules.to_ctrl = input[0] & 1;
	rules.initialized = input[0] & 2;
	rules.header_digest = input[0] & 4;
	rules.data_digest = input[0] & 8;
	rules.pda = input[1] & NVME_TCP_PDA_MAX;
	rules.capsule_data_max = input[2] * 1024u;
	rules.data_max = input[3] * 1024u;
	memcpy(&ch, input + RULES_SIZE, sizeof(ch));
	if (nvme_tcp_pdu_check(&rules, &ch, &pdu, &fatal) == 0)
		check_good(&pdu, &ch, &rules);
	else
		assert(fatal.fes >= NVME_TCP_FES_INVALID_HEADER_FIELD &&
			fatal.fes <= NVME_TCP_FES_UNSUPPORTED_PARAMETER && fatal.fei < sizeof(ch));
	return 0;
}
