/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes names: the same bytes as an NQN, as a UUID and as a field of Identify.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/nvme/name.h"
#include "tests/fuzz/fuzz.h"

static void check_nqn(const char *bytes, size_t size)
{
	const char *why = NULL;

	if (nvme_nqn_check(bytes, size, NVME_NQN_PEERS, &why) != 0) {
		assert(why && why[0]);
		assert(nvme_nqn_check(bytes, size, NVME_NQN_OURS, NULL) != 0);
		return;
	}
	assert(size >= 1 && size <= NVME_NQN_MAX);
	for (size_t i = 0; i < size; i++)
		assert((unsigned char)bytes[i] >= ' ');
	if (nvme_nqn_check(bytes, size, NVME_NQN_OURS, &why) == 0)
		assert(size > 4 && memcmp(bytes, "nqn.", 4) == 0);
	else
		assert(why && why[0]);
}

static void check_uuid(const char *text)
{
	char again[NVME_UUID_TEXT];
	struct nvme_uuid uuid;

	if (nvme_uuid_parse(text, &uuid) != 0)
		return;
	nvme_uuid_format(&uuid, again);
	assert(strcasecmp(text, again) == 0);
}

static void check_field(const char *bytes, size_t size)
{
	char *text = malloc(size + 1), *field = malloc(size + 1);

	if (text && field) {
		nvme_field_get(bytes, size, text);
		assert(strlen(text) <= size);
		assert(nvme_field_set(field, size, text) == 0);
	}
	free(text);
	free(field);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, input, size);
	text[size] = '\0';
	check_nqn((const char *)input, size);
	check_uuid(text);
	check_field((const char *)input, size);
	free(text);
	return 0;
}
