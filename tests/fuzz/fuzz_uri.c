/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the parser of addresses: byte 0 holds the flags, the rest is the text.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/uri.h"
#include "tests/fuzz/fuzz.h"

static void check_good(const struct nvme_uri *uri, unsigned flags)
{
	static char text[NVME_URI_TEXT_MAX];
	static struct nvme_uri again;
	char why[128];

	assert(uri->host[0]);
	assert(uri->port || (flags & NVME_URI_LISTENER));
	assert(!uri->nqn[0] ||
		nvme_nqn_check(uri->nqn, strlen(uri->nqn), NVME_NQN_PEERS, NULL) == 0);
	assert(!uri->nsid || uri->nqn[0]);
	assert(uri->nr_options <= NVME_URI_OPTIONS_MAX);
	assert(nvme_uri_format(uri, text, sizeof(text)) > 0);
	assert(nvme_uri_parse(text, flags, &again, why, sizeof(why)) == 0);
	assert(again.trtype == uri->trtype && again.port == uri->port && again.nsid == uri->nsid);
	assert(strcmp(again.host, uri->host) == 0 && strcmp(again.nqn, uri->nqn) == 0);
	assert(again.nr_options == uri->nr_options);
	for (unsigned i = 0; i < uri->nr_options; i++) {
		assert(strcmp(again.option[i].key, uri->option[i].key) == 0);
		assert(strcmp(again.option[i].value, uri->option[i].value) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static struct nvme_uri uri;
	char why[80] = "";
	unsigned flags;
	char *text;

	if (size == 0)
		return 0;
	flags = input[0] & NVME_URI_LISTENER;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, input + 1, size - 1);
	text[size - 1] = '\0';
	if (nvme_uri_parse(text, flags, &uri, why, sizeof(why)) == 0) {
		check_good(&uri, flags);
	} else {
		assert(why[0]);
		for (const char *c = why; *c; c++)
			assert(*c >= ' ' && *c <= '~');
	}
	free(text);
	return 0;
}
