/* SPDX-License-Identifier: MIT */
/*
 * Differences between configurations are told in lines, and what is the same is taken over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/catalog.h"
#include "target/config.h"
#include "target/config_text.h"
#include "target/diff.h"
#include "target/port.h"
#include "target/target.h"

#define MAX_LINES 8

#define A      "nqn.2024-01.com.example:a"
#define B      "nqn.2024-01.com.example:b"
#define H      "nqn.2024-01.com.example:h"
#define UUID   "11111111-2222-3333-4444-555555555555"
#define UUID2  "11111111-2222-3333-4444-666666666666"
#define LISTEN "listen: [\"tcp://127.0.0.1:1\"]\n"
#define TO_A   LISTEN "subsystems:\n  - nqn: " A "\n"
#define TO_B   "  - nqn: " B "\n"
#define NS     TO_A "    namespaces:\n"
#define RAM    "      - ram: 1M\n"
#define K1     "DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:"
#define K2     "DHHC-1:01:K5mO3V9CS6u3LUE6uDZ2QXpD17DgTXqcvYUwFHQlOJq9eYUo:"

#define PROOF(key, more)                                                                      \
	TO_A "    allow: [" H "]\n    hosts:\n      - nqn: " H "\n        dhchap_key: \"" key \
	     "\"\n" more
#define CTRL(key) "        dhchap_ctrl_key: \"" key "\"\n"

struct diff_case {
	const char *before, *after;
	const char *lines[MAX_LINES]; /* each: how it begins, whole if it ends with $ */
};

static const struct diff_case cases[] = {
	{TO_A, TO_A, {NULL}},
	{NS RAM, NS RAM, {NULL}},
	/* The order is no difference, nor are words for what is the default. */
	{TO_A TO_B, LISTEN "subsystems:\n" TO_B "    allow: any\n  - nqn: " A "\n", {NULL}},
	{NS RAM, NS RAM "        nsid: 1\n        readonly: false\n", {NULL}},
	{TO_A "    allow: [" H ", " B "]\n", TO_A "    allow: [" B ", " H ", " H "]\n", {NULL}},
	/* Listeners. */
	{TO_A, "listen: [\"tcp://127.0.0.1:2\"]\nsubsystems:\n  - nqn: " A "\n",
		{"- listener tcp://127.0.0.1:1$", "+ listener tcp://127.0.0.1:2$"}},
	{TO_A, "listen: [\"tcp://127.0.0.1:1?ddgst=off&tos=8\"]\nsubsystems:\n  - nqn: " A "\n",
		{"~ listener tcp://127.0.0.1:1: ddgst on -> off, tos 0 -> 8$"}},
	{TO_A,
		"listen: [\"tcp://127.0.0.1:1?mdts=256K&in_capsule=0&max_queue_size=64\"]\nsubsystems:\n  - nqn: " A
		"\n",
		{"~ listener tcp://127.0.0.1:1: max_queue_size 1024 -> 64, in_capsule 8K -> 0, mdts 1M -> 256K$"}},
	{TO_A,
		"listen: [\"rdma://127.0.0.1:1\", \"tcp://127.0.0.1:1\"]\nsubsystems:\n  - nqn: " A
		"\n",
		{"+ listener rdma://127.0.0.1:1$"}},
	{"listen: [\"tcp://127.0.0.1:0\", \"tcp://127.0.0.1:0\"]\nsubsystems:\n  - nqn: " A "\n",
		"listen: [\"tcp://127.0.0.1:0\"]\nsubsystems:\n  - nqn: " A "\n",
		{"- listener tcp://127.0.0.1:0$"}},
	/* Other discovery services. */
	{TO_A, "referrals: [\"tcp://10.0.0.1:8009\"]\n" TO_A, {"+ referral tcp://10.0.0.1:8009$"}},
	{"referrals: [\"tcp://10.0.0.1:8009\", \"tcp://10.0.0.2:8009\"]\n" TO_A,
		"referrals: [\"tcp://10.0.0.2:8009\"]\n" TO_A, {"- referral tcp://10.0.0.1:8009$"}},
	/* Subsystems and hosts. */
	{TO_A, TO_A TO_B, {"+ subsystem " B ": serial ", "+ host any of " B "$"}},
	{TO_A TO_B, TO_A, {"- subsystem " B "$"}},
	{TO_A, TO_A "    serial: X\n", {"~ subsystem " A ": serial "}},
	{TO_A, TO_A "    duplicate_hosts: refuse\n",
		{"~ subsystem " A ": duplicate hosts that connect allowed -> refused$"}},
	{TO_A "    duplicate_hosts: refuse\n", TO_A "    duplicate_hosts: allow\n",
		{"~ subsystem " A ": duplicate hosts that connect refused -> allowed$"}},
	{TO_A "    serial: X\n", TO_A "    serial: Y\n    max_io_queues: 4\n",
		{"~ subsystem " A
		 ": serial X -> Y, at most 128 -> 4 I/O queues for new controllers$"}},
	{TO_A, TO_A "    allow: []\n", {"- host any of " A "$"}},
	{TO_A, TO_A "    allow: [" H "]\n", {"- host any of " A "$", "+ host " H " of " A "$"}},
	{TO_A "    allow: [" H "]\n", TO_A, {"- host " H " of " A "$", "+ host any of " A "$"}},
	{TO_A "    allow: [" H "]\n", TO_A "    allow: [" B "]\n",
		{"- host " H " of " A "$", "+ host " B " of " A "$"}},
	/* Authentication. */
	{TO_A "    allow: [" H "]\n", PROOF(K1, ""), {"+ authentication of host " H " of " A "$"}},
	{TO_A "    allow: [" H "]\n", PROOF(K1, CTRL(K2)),
		{"+ authentication of host " H " of " A ", both ways$"}},
	{PROOF(K1, ""), TO_A "    allow: [" H "]\n", {"- authentication of host " H " of " A "$"}},
	{PROOF(K1, CTRL(K2)), PROOF(K1, CTRL(K2)), {NULL}},
	{PROOF(K1, ""), PROOF(K2, ""), {"~ authentication of host " H " of " A ": another key$"}},
	{PROOF(K1, ""), PROOF(K1, CTRL(K2)),
		{"~ authentication of host " H " of " A ": a controller's key$"}},
	{PROOF(K1, CTRL(K2)), PROOF(K1, CTRL(K1)),
		{"~ authentication of host " H " of " A ": another controller's key$"}},
	{PROOF(K1, CTRL(K2)), PROOF(K1, ""),
		{"~ authentication of host " H " of " A ": no controller's key any more$"}},
	{PROOF(K1, ""), PROOF(K1, "        dhchap_hashes: [sha512, sha256]\n"),
		{"~ authentication of host " H " of " A
		 ": hash sha384 is not good enough any more$"}},
	{PROOF(K1, "        dhchap_groups: [ffdhe8192]\n"),
		PROOF(K2, "        dhchap_groups: [ffdhe8192, 'null']\n"),
		{"~ authentication of host " H " of " A
		 ": another key, group null is good enough$"}},
	{TO_A, TO_A TO_B "    allow: [" H "]\n    hosts: [{nqn: " H ", dhchap_key: \"" K1 "\"}]\n",
		{"+ subsystem " B ": serial ", "+ host " H " of " B "$",
			"+ authentication of host " H " of " B "$"}},
	/* Namespaces. */
	{TO_A, NS RAM,
		{"+ namespace 1 of " A ": ram:1M, 1 MiB in blocks of 512 bytes, writable, uuid "}},
	{NS RAM, TO_A, {"- namespace 1 of " A ": ram:1M$"}},
	{NS RAM, NS RAM "        readonly: true\n",
		{"~ namespace 1 of " A ": writable -> read-only$"}},
	{NS RAM "        readonly: true\n", NS RAM,
		{"~ namespace 1 of " A ": read-only -> writable$"}},
	{NS RAM, NS RAM "        uuid: " UUID "\n",
		{"~ namespace 1 of " A ": another disk, ram:1M -> ram:1M, uuid "}},
	{NS RAM "        uuid: " UUID "\n", NS RAM, {"~ namespace 1 of " A ": uuid " UUID " -> "}},
	/* The other identities go with it, and are not told beside it. */
	{NS RAM "        uuid: " UUID "\n", NS RAM "        uuid: " UUID2 "\n",
		{"~ namespace 1 of " A ": another disk, ram:1M -> ram:1M, uuid " UUID " -> " UUID2
		 "$"}},
	{NS RAM, NS RAM "        nguid: 0123456789abcdef0123456789abcdef\n",
		{"~ namespace 1 of " A ": another nguid$"}},
	{NS RAM "        eui64: 0123456789abcdef\n", NS RAM,
		{"~ namespace 1 of " A ": another eui64$"}},
	{NS RAM, NS "      - ram: 1536K\n",
		{"~ namespace 1 of " A
		 ": another disk, ram:1M -> ram:1536K, 1 MiB -> 1536 KiB, uuid "}},
	{NS RAM, NS RAM "        block: 4096\n",
		{"~ namespace 1 of " A ": another disk, ram:1M -> ram:1M, "
		 "blocks of 512 -> 4096 bytes, uuid "}},
	{NS RAM, NS RAM "        nsid: 9\n",
		{"- namespace 1 of " A ": ram:1M$", "+ namespace 9 of " A ": ram:1M, "}},
	{NS "      - path: one\n", NS "      - path: ./one\n", {NULL}},
	/* Who sees them. */
	{NS RAM, NS RAM "        allow: any\n", {NULL}},
	{NS RAM "        allow: [" H ", " B "]\n", NS RAM "        allow: [" B ", " H "]\n",
		{NULL}},
	{NS RAM, NS RAM "        allow: []\n", {"- host any of namespace 1 of " A "$"}},
	{NS RAM, NS RAM "        allow: [" H "]\n",
		{"- host any of namespace 1 of " A "$", "+ host " H " of namespace 1 of " A "$"}},
	{NS RAM "        allow: [" H "]\n", NS RAM,
		{"- host " H " of namespace 1 of " A "$", "+ host any of namespace 1 of " A "$"}},
	{NS RAM "        allow: [" H "]\n", NS RAM "        allow: [" B "]\n",
		{"- host " H " of namespace 1 of " A "$", "+ host " B " of namespace 1 of " A "$"}},
	{TO_A, NS RAM "        allow: [" H "]\n",
		{"+ namespace 1 of " A ": ", "+ host " H " of namespace 1 of " A "$"}},
	{NS RAM "        allow: [" H "]\n", TO_A, {"- namespace 1 of " A ": ram:1M$"}},
	{NS RAM "        allow: [" H "]\n", NS "      - ram: 2M\n        allow: [" H "]\n",
		{"~ namespace 1 of " A ": another disk, "}},
	{NS "      - path: one\n", NS "      - path: two\n",
		{"~ namespace 1 of " A ": another disk, "}},
	{NS "      - path: one\n", TO_A TO_B "    namespaces:\n      - path: one\n",
		{"- namespace 1 of " A ": ", "+ subsystem " B, "+ host any of " B "$",
			"+ namespace 1 of " B ": "}},
};

struct told {
	struct diff diff;
	char lines[MAX_LINES][512];
	unsigned nr;
};

static void told_line(struct diff *diff, const char *text)
{
	struct told *told = container_of(diff, struct told, diff);

	assert_true(told->nr < MAX_LINES);
	snprintf(told->lines[told->nr++], sizeof(told->lines[0]), "%s", text);
}

static struct catalog *load(char *folder, const char *text, const struct catalog *previous)
{
	const struct config_text source = {.name = "test",
		.directory = folder,
		.bytes = (char *)(uintptr_t)text,
		.length = strlen(text)};
	struct target_settings settings = TARGET_SETTINGS_DEFAULT;
	struct catalog *catalog = catalog_create(previous);
	static struct config_report report;

	assert_non_null(catalog);
	if (config_load_text(&source, &settings, NULL, catalog, &report))
		fail_msg("%s", report.mistake);
	return catalog;
}

static bool begins(const char *text, const char *start)
{
	size_t length = strlen(start);

	if (start[length - 1] == '$')
		return strlen(text) == length - 1 && !strncmp(text, start, length - 1);
	return !strncmp(text, start, length);
}

static void make_folder(char *folder)
{
	static const char *const names[] = {"one", "two"};
	char path[64];

	assert_non_null(mkdtemp(folder));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		FILE *file;

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		file = fopen(path, "w");
		assert_non_null(file);
		assert_int_equal(ftruncate(fileno(file), 1 << 20), 0);
		fclose(file);
	}
}

static void remove_folder(const char *folder)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/one", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/two", folder);
	unlink(path);
	rmdir(folder);
}

static void just_the_differences_are_told(void **state)
{
	char folder[] = "/tmp/haul-diff-XXXXXX";

	(void)state;
	make_folder(folder);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct catalog *before = load(folder, cases[i].before, NULL);
		struct catalog *after = load(folder, cases[i].after, before);
		struct told told = {.diff.line = told_line};
		unsigned nr = 0;

		diff_catalogs(&told.diff, before, after);
		while (nr < MAX_LINES && cases[i].lines[nr] && nr < told.nr &&
			begins(told.lines[nr], cases[i].lines[nr]))
			nr++;
		if (nr != told.nr || (nr < MAX_LINES && cases[i].lines[nr]))
			fail_msg("case %zu, line %u: '%s' is told, not '%s'", i, nr,
				nr < told.nr ? told.lines[nr] : "",
				cases[i].lines[nr] ? cases[i].lines[nr] : "");
		catalog_free(after);
		catalog_free(before);
	}
	remove_folder(folder);
}

static void what_is_the_same_is_taken_over(void **state)
{
	static const char text[] = NS "      - path: one\n" RAM TO_B;
	char folder[] = "/tmp/haul-diff-XXXXXX";
	struct catalog *before, *after;

	(void)state;
	make_folder(folder);
	before = load(folder, text, NULL);
	after = load(folder, text, before);
	for (uint32_t nsid = 1; nsid <= 2; nsid++)
		assert_ptr_equal(subsys_ns(catalog_find(before, A), nsid)->place,
			subsys_ns(catalog_find(after, A), nsid)->place);
	assert_ptr_equal(before->port[0], after->port[0]);
	assert_int_equal(ns_places_count(after->places), 2);
	/* Either may go first. */
	catalog_free(before);
	after->previous = NULL;
	before = after;
	after = load(folder, TO_A, before);
	catalog_free(before);
	assert_int_equal(ns_places_count(after->places), 0);
	catalog_free(after);
	remove_folder(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(just_the_differences_are_told),
		cmocka_unit_test(what_is_the_same_is_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
