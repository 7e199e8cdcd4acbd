/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the configuration file: YAML, shape, schema and all checks, as hauld --check makes them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "target/config.h"
#include "target/config_text.h"
#include "tests/fuzz/fuzz.h"

/* One line of text that begins with the file and a line that it has. */
static void check_mistake(const char *mistake, const char *bytes, size_t size)
{
	unsigned long line, lines = 1;
	char *end;

	for (size_t i = 0; i < size; i++) /* as YAML counts them: also CR, NEL, LS and PS */
		lines += bytes[i] == '\n' || bytes[i] == '\r' || (unsigned char)bytes[i] >= 0x80;
	assert(!strncmp(mistake, "conf:", 5));
	line = strtoul(mistake + 5, &end, 10);
	assert(line >= 1 && line <= lines + 1);
	assert(end[0] == ':' && end[1] == ' ' && end[2]);
	for (const char *c = mistake; *c; c++)
		assert((unsigned char)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static struct config_report report;
	char folder[] = "/";
	struct config_text text = {.name = "conf", .directory = folder, .length = size};

	text.bytes = malloc(size + 1);
	if (!text.bytes)
		return 0;
	memcpy(text.bytes, input, size);
	text.bytes[size] = '\0';
	if (config_check_text(&text, &report))
		check_mistake(report.mistake, text.bytes, size);
	else
		assert(!report.mistake[0]);
	free(text.bytes);
	return 0;
}
