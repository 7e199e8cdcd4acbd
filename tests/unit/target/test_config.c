/* SPDX-License-Identifier: MIT */
/*
 * Mistakes in configuration files are told with their line and key, in one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/config.h"

#define LISTEN "listen: [\"tcp://127.0.0.1:0\"]\n"
#define SUBSYS LISTEN "subsystems:\n  - nqn: nqn.2024-01.com.example:a\n"
#define NS     SUBSYS "    namespaces:\n      - ram: 1M\n"
#define REST   "subsystems:\n  - nqn: nqn.2024-01.com.example:a\n"
#define H      "nqn.2024-01.com.example:h"
#define SECRET "DHHC-1:00:4/UtwwjF03rixk/j7gmIHLOKHvpFx+7qv5cXXGtuc7+Ast8X:"
#define PROOF  SUBSYS "    allow: [" H "]\n    hosts:\n      - nqn: " H "\n"
#define KEY    PROOF "        dhchap_key: \"" SECRET "\"\n"

#define TEN(x)		   x x x x x x x x x x
#define BOMB(anchor, what) "      - &" anchor " [" TEN(what ",") "]\n"

struct config_case {
	const char *text;
	unsigned line; /* 0: the file is right */
	const char *key;
};

static const struct config_case cases[] = {
	{NS, 0, NULL},
	{SUBSYS, 0, NULL},
	{NS "        nsid: 7\n        readonly: true\n        block: 4096\n", 0, NULL},
	{SUBSYS "    allow: any\n", 0, NULL},
	{SUBSYS "    allow: []\n", 0, NULL},
	{SUBSYS "    allow: [nqn.2024-01.com.example:h, nqn.2024-01.com.example:i]\n", 0, NULL},
	/* Hosts that authenticate. */
	{SUBSYS "    hosts: []\n", 0, NULL},
	{KEY, 0, NULL},
	{KEY "        dhchap_ctrl_key: \"" SECRET "\"\n", 0, NULL},
	{KEY "        dhchap_hashes: [sha512, sha256]\n        dhchap_groups: [null, ffdhe8192]\n",
		0, NULL},
	{PROOF "        dhchap_key: /etc/haul/a.key\n", 0, NULL}, /* not opened */
	{PROOF, 6, "dhchap_key: is missing"},
	{PROOF "        dhchap_key: []\n", 7, "dhchap_key: is not a plain value"},
	{PROOF "        dhchap_key: \"\"\n", 7, "dhchap_key: is empty"},
	{PROOF "        dhchap_key: \"DHHC-1:00:4/UtwwjF:\"\n", 7, "dhchap_key: is not of 32"},
	{PROOF "        dhchap_key: DHHC-2:00:4/UtwwjF\n", 7, "dhchap_key: is not a secret"},
	{KEY "        dhchap_ctrl_key: \"DHHC-1:04:4/UtwwjF:\"\n", 8, "dhchap_ctrl_key: has a"},
	{KEY "        dhchap_hashes: [md5]\n", 8, "'md5' is not known: sha256"},
	{KEY "        dhchap_hashes: []\n", 8, "dhchap_hashes: is empty"},
	{KEY "        dhchap_groups: [sha256]\n", 8, "'sha256' is not known: null"},
	{KEY "        dhchap_groups: ffdhe2048\n", 8, "dhchap_groups: "},
	{KEY "        key: x\n", 8, "no such key"},
	{KEY "      - {nqn: " H ", dhchap_key: a}\n", 8, "is there twice"},
	{KEY "      - {nqn: " H "h, dhchap_key: a}\n", 8, "may not use the subsystem"},
	{KEY "      - {nqn: \"\\u0001\", dhchap_key: a}\n", 8, "hosts.1.nqn"},
	{SUBSYS "    hosts: [{nqn: " H ", dhchap_key: a}]\n", 4, "must list those that may"},
	{SUBSYS "    allow: []\n    hosts: [" H "]\n", 5, "hosts"},
	{"", 1, "empty"},
	{"# nothing\n", 1, "empty"},
	{"- a\n", 1, "file"},
	{"listen: [\n", 2, "YAML"},
	{"a: b: c\n", 1, "YAML"},
	{"subsystems:\n  - nqn: nqn.2024-01.com.example:a\n", 1, "listen"},
	{"listen: []\n", 1, "listen"},
	{"listen: word\n", 1, "listen"},
	{LISTEN, 1, "subsystems"},
	{LISTEN "subsystems: []\n", 2, "subsystems"},
	{"listen:\n  - tcp://127.0.0.1:0\n  - tcp://127.0.0.1:77777\n", 3, "listen.1"},
	{"listen:\n  - tcp://127.0.0.1:0?colour=red\n", 2, "listen.0"},
	{"listen:\n  - tcp://127.0.0.1:0?colour=red\n", 2,
		"known: max_queue_size, in_capsule, mdts, hdgst, ddgst, tos, priority"},
	{"listen:\n  - rdma://127.0.0.1:0?hdgst=on\n", 2,
		"known: max_queue_size, in_capsule, mdts, tos"},
	{"listen:\n  - tcp://127.0.0.1:0?ddgst=1\n", 2, "ddgst=1"},
	{"listen:\n  - rdma://127.0.0.1:0?tos=256\n", 2, "tos=256"},
	{"listen: [\"tcp://127.0.0.1:0?max_queue_size=2&in_capsule=64K&mdts=8192&tos=0x20\"]\n" REST,
		0, NULL},
	{"listen: [\"rdma://127.0.0.1:0?max_queue_size=1024&in_capsule=0&mdts=1m\"]\n" REST, 0,
		NULL},
	{"listen:\n  - tcp://127.0.0.1:0?max_queue_size=1\n", 2,
		"max_queue_size=1 of the listener"},
	{"listen:\n  - tcp://127.0.0.1:0?max_queue_size=1025\n", 2, "a number from 2 to 1024"},
	{"listen:\n  - tcp://127.0.0.1:0?max_queue_size=-5\n", 2, "max_queue_size=-5"},
	{"listen:\n  - tcp://127.0.0.1:0?max_queue_size=4294967298\n", 2, "max_queue_size=42949"},
	{"listen:\n  - tcp://127.0.0.1:0?in_capsule=8\n", 2, "a multiple of 16 from 0 to 64K"},
	{"listen:\n  - tcp://127.0.0.1:0?in_capsule=65552\n", 2, "in_capsule=65552"},
	{"listen:\n  - rdma://127.0.0.1:0?in_capsule=512\n", 2, "0, 4K, 8K, 12K or 16K"},
	{"listen:\n  - rdma://127.0.0.1:0?in_capsule=20K\n", 2, "in_capsule=20K"},
	{"listen:\n  - tcp://127.0.0.1:0?mdts=0\n", 2,
		"mdts=0 of the listener is not a power of two"},
	{"listen:\n  - tcp://127.0.0.1:0?mdts=4K\n", 2, "from 8K to 1M"},
	{"listen:\n  - tcp://127.0.0.1:0?mdts=2M\n", 2, "mdts=2M"},
	{"listen:\n  - rdma://127.0.0.1:0?mdts=96K\n", 2, "mdts=96K"},
	{"listen: [\"tcp://127.0.0.1:0?priority=6\"]\n" REST, 0, NULL},
	{"listen:\n  - tcp://127.0.0.1:0?priority=7\n", 2, "a number from 0 to 6"},
	{"listen:\n  - rdma://127.0.0.1:0?priority=1\n", 2, "option 'priority' of a rdma listener"},
	{"listen:\n  - tcp://127.0.0.1:0?mdts=\n", 2, "mdts= of the listener"},
	{SUBSYS "referrals: [\"tcp://10.0.0.1:8009\", \"rdma://[fd00::1]:4420/"
		"nqn.2024-01.com.example:discovery\"]\n",
		0, NULL},
	{"referrals: word\n" LISTEN, 1, "referrals"},
	{"referrals:\n  - tcp://10.0.0.1:8009\n  - tcp://10.0.0.1:8009\n" LISTEN, 3, "referrals.1"},
	{"referrals: [\"tcp://no-such-host.invalid\"]\n" LISTEN, 1, "referrals.0"},
	{"referrals: [\"tcp://0.0.0.0\"]\n" LISTEN, 1, "referrals.0"},
	{"referrals: [\"tcp://[fe80::1%lo]\"]\n" LISTEN, 1, "referrals.0"},
	{"referrals: [\"tcp://10.0.0.1:0\"]\n" LISTEN, 1, "referrals.0"},
	{"referrals: [\"tcp://10.0.0.1?hdgst=on\"]\n" LISTEN, 1, "referrals.0"},
	{NS "colour: red\n", 6, "colour"},
	{NS "        colour: red\n", 6, "colour"},
	{SUBSYS "    colour: red\n", 4, "colour"},
	{SUBSYS "    colour: red\n", 4, "allow, hosts, ana and namespaces are known"},
	{NS "        colour: red\n", 6, "ana_group, allow, readonly and block are known"},
	{SUBSYS "    ana:\n      - {group: 1, state: change, colour: red}\n", 5,
		"group, state and listeners are known"},
	{SUBSYS "    nqn: nqn.2024-01.com.example:b\n", 4,
		" subsystems.0.nqn: is here twice (before in line 3)"},
	{NS "listen: []\n", 6, " listen: is here twice (before in line 1)"},
	{NS "        ram: 1M\n", 6, " subsystems.0.namespaces.0.ram: is here twice"},
	{NS "threads: 0\n", 6, "threads"},
	{NS "threads: many\n", 6, "threads"},
	{NS "threads: 65\n", 6, "threads"},
	{NS "engine: steam\n", 6, "engine"},
	{NS "memory: much\n", 6, "memory"},
	{NS "spin_us: 1000001\n", 6, "spin_us"},
	{NS "patience_s: 0\n", 6, "patience_s"},
	{NS "patience_s: 3601\n", 6, "patience_s"},
	{NS "discovery_nqn: a name\n", 6, "discovery_nqn"},
	{NS "kas_s: 600\n", 0, NULL},
	{NS "kas_s: 0\n", 6, "kas_s: 0 is not a number from 1 to 600"},
	{NS "kas_s: 601\n", 6, "kas_s"},
	{NS "kas_s: 1.5\n", 6, "a number from 1 to 600 is right"},
	{NS "cntlid_min: 0\n", 6, "0 to 65519 is not a range"},
	{NS "cntlid_min: 65500\n", 6, "65500 to 65519"},
	{NS "cntlid_max: 63\n", 6, "at least 64"},
	{NS "cntlid_max: 64\n", 0, NULL},
	{NS "cntlid_max: 65520\n", 6, "1 to 65520"},
	{NS "cntlid_min: 200\ncntlid_max: 199\n", 7, "200 to 199"},
	{LISTEN "subsystems:\n  - nqn: a name\n", 3, "subsystems.0.nqn"},
	{LISTEN "subsystems:\n  - nqn: testnqn\n", 3, "subsystems.0.nqn"},
	{LISTEN "subsystems:\n  - serial: x\n", 3, " subsystems.0.nqn: is missing"},
	{SUBSYS "  - serial: x\n", 4, " subsystems.1.nqn: is missing"},
	{LISTEN "subsystems:\n  - nqn: nqn.2014-08.org.nvmexpress.discovery\n", 3,
		"subsystems.0.nqn"},
	{SUBSYS "  - nqn: nqn.2024-01.com.example:a\n", 4, "subsystems.1.nqn"},
	{SUBSYS "    serial: 123456789012345678901\n", 4, "subsystems.0.serial"},
	{SUBSYS "    duplicate_hosts: allow\n", 0, NULL},
	{SUBSYS "    duplicate_hosts: refuse\n", 0, NULL},
	{SUBSYS "    duplicate_hosts: replace\n", 4,
		"subsystems.0.duplicate_hosts: 'replace' is not known: allow and refuse are"},
	{SUBSYS "    duplicate_hosts: []\n", 4, "allow or refuse is right"},
	{SUBSYS "    max_io_queues: 1\n", 0, NULL},
	{SUBSYS "    max_io_queues: 128\n", 0, NULL},
	{SUBSYS "    max_io_queues: 0\n", 4,
		"subsystems.0.max_io_queues: 0 is not a number from 1 to 128"},
	{SUBSYS "    max_io_queues: 129\n", 4, "subsystems.0.max_io_queues: 129 is not"},
	{SUBSYS "    max_io_queues: two\n", 4, "a number from 1 to 128 is right"},
	{SUBSYS "    allow: some\n", 4, "subsystems.0.allow"},
	{SUBSYS "    allow: {a: b}\n", 4, "subsystems.0.allow"},
	{SUBSYS "    allow: [testhost, \"h/\xc3\xb6st\"]\n", 0, NULL},
	{SUBSYS "    allow:\n      - nqn.2024-01.com.example:h\n      - \"no\\nbody\"\n", 6,
		"subsystems.0.allow.1"},
	{SUBSYS "    allow:\n      - nqn.2024-01.com.example:h\n      - any\n", 6, "'allow: any'"},
	{SUBSYS "    allow: ['']\n", 4, "subsystems.0.allow.0"},
	{NS "        allow: any\n", 0, NULL},
	{NS "        allow: []\n", 0, NULL},
	{NS "        allow: [" H ", testhost, " H "]\n", 0, NULL},
	{NS "        allow: some\n", 6, "subsystems.0.namespaces.0.allow: 'some' is neither 'any'"},
	{NS "        allow: {a: b}\n", 6, "subsystems.0.namespaces.0.allow: is neither"},
	{NS "        allow:\n          - " H "\n          - {}\n", 8,
		"subsystems.0.namespaces.0.allow.1: is not the name of a host"},
	{NS "        allow:\n          - any\n", 7, "namespaces.0.allow.0: would be a host"},
	{NS "        allow: [" H ", '']\n", 6, "subsystems.0.namespaces.0.allow.1"},
	{NS "        allow: [" H "]\n        allow: any\n", 7, "allow"},
	{SUBSYS "    allow: [" H "]\n    namespaces:\n      - ram: 1M\n        allow: [" H "]\n", 0,
		NULL},
	/* It can only narrow what the subsystem's says, wherever in the file that is. */
	{SUBSYS "    namespaces:\n      - ram: 1M\n        allow:\n        - " H
		"\n        - testhost\n    allow: [" H "]\n",
		8, "subsystems.0.namespaces.0.allow.1: 'testhost' may not use the subsystem"},
	{SUBSYS "    allow: []\n    namespaces:\n      - ram: 1M\n        allow: [" H "]\n", 7,
		"subsystems.0.namespaces.0.allow.0"},
	{SUBSYS "    namespaces:\n      - nsid: 1\n", 5, "subsystems.0.namespaces.0"},
	{NS "        null: 1M\n", 5, "subsystems.0.namespaces.0"},
	{NS "        nsid: 0\n", 6, "nsid"},
	{NS "        nsid: 1025\n", 6, "nsid"},
	{NS "        nsid: -1\n", 6, "nsid"},
	{NS "        block: 1024\n", 6, "block"},
	{NS "        uuid: 1-2-3\n", 6, "uuid"},
	{NS "        uuid: 00000000-0000-0000-0000-000000000000\n", 6, "zeros"},
	{NS "        nguid: 1234\n", 6, "nguid"},
	{NS "        nguid: '00000000000000000000000000000000'\n", 6, "nguid"},
	{NS "        nguid: 0123456789abcdef0123456789ABCDEF\n", 0, NULL},
	{NS "        eui64: 0123456789abcdeg\n", 6, "eui64"},
	{NS "        eui64: 0123456789abcdef\n", 0, NULL},
	{NS "        eui64: 0123456789abcdef\n      - null: 2M\n        eui64: 0123456789ABCDEF\n",
		8, "namespaces.1.eui64"},
	{NS "        readonly: maybe\n", 6, "readonly"},
	{NS "        nsid: 3\n      - null: 2M\n        nsid: 3\n", 8, "namespaces.1.nsid"},
	{SUBSYS "    namespaces:\n      - ram: 1000\n", 5, "ram"},
	{SUBSYS "    namespaces:\n      - ram: lots\n", 5, "ram"},
	{SUBSYS "    namespaces:\n      - path: /d\n      - path: /d\n", 6, "path"},
	{SUBSYS "    namespaces:\n      - path: ram:1M\n", 5, "'ram: 1M'"},
	{SUBSYS "    namespaces:\n      - path: null:1G\n", 5, "'null: 1G'"},
	{SUBSYS "    namespaces:\n      - path: ram\n", 0, NULL},
	{SUBSYS "    namespaces:\n      - path: ./ram:1M\n", 0, NULL},
	{NS "      - null: 2M\n        nsid: 1\n", 7, "namespaces.1.nsid"},
	{NS "        nsid: 1\n      - null: 2M\n      - null: 2M\n        nsid: 3\n", 0, NULL},
	{NS "        uuid: 11111111-2222-3333-4444-55555555aaaa\n      - null: 2M\n"
	    "        uuid: 11111111-2222-3333-4444-55555555AAAA\n",
		8, "namespaces.1.uuid"},
	{SUBSYS "    namespaces:\n      - ram: 5120\n", 0, NULL},
	{SUBSYS "    namespaces:\n      - ram: 5120\n        block: 4096\n", 5, "multiple of 4096"},
	{SUBSYS "    namespaces:\n      - uuid: {a: b}\n", 5, "hexadecimal"},
	{SUBSYS "    namespaces:\n      - path: [a]\n", 5, "a block device is right"},
	{SUBSYS "    namespaces:\n      - ram: []\n", 5, "a size such as 1G is right"},
	{SUBSYS "    namespaces:\n      - null: ''\n", 5, "is empty: a size such as 1G is right"},
	{SUBSYS "    allow: &h [nqn.2024-01.com.example:h]\n"
		"  - nqn: nqn.2024-01.com.example:b\n    allow: *h\n",
		0, NULL},
	/* Numbers are digits and nothing else. */
	{NS "threads: 1.9\n", 6, " threads: '1.9' is not a number: a number from 1 to 64 is right"},
	{NS "spin_us: 1ms\n", 6, " spin_us: '1ms' is not a number"},
	{NS "patience_s: 2min\n", 6, " patience_s: '2min' is not a number"},
	{NS "cntlid_min: 500-600\n", 6, " cntlid_min: '500-600' is not a number"},
	{NS "threads: 4294967297\n", 6, " threads: '4294967297' is too large"},
	{NS "threads:\n", 6, " threads: is empty: a number from 1 to 64"},
	{NS "threads: [2]\n", 6, " threads: is not a number: a number from 1 to 64"},
	{NS "        nsid: 3-4\n", 6, " subsystems.0.namespaces.0.nsid: '3-4' is not a number"},
	{NS "        nsid: 010\n", 6, " subsystems.0.namespaces.0.nsid: '010' has a 0 in front"},
	{NS "        nsid: 08\n", 6, "'08' has a 0 in front: a number from 1 to 1024"},
	{NS "        nsid: 0x10\n", 6, "'0x10' is not a number"},
	{NS "        nsid: '7'\n", 0, NULL},
	{NS "        nsid: {a: 1}\n", 6, " subsystems.0.namespaces.0.nsid: is not a number"},
	{NS "        ana_group: 2.7\n", 6, ".ana_group: '2.7' is not a number"},
	{NS "        block: 4096k\n", 6, ".block: '4096k' is not a number: 512 or 4096 is right"},
	{NS "        block: 4K\n", 6, "'4K' is not a number: 512 or 4096 is right"},
	{NS "        readonly: [true]\n", 6, ".readonly: is neither true nor false: true or"},
	{SUBSYS "    ana: [{group: 2nd, state: change}]\n", 4,
		" subsystems.0.ana.0.group: '2nd' is not a number: a number from 1 to 128 is right"},
	{SUBSYS "    ana: [{group: 2}]\n", 4,
		" subsystems.0.ana.0.state: is missing: one of optimized, non-optimized,"},
	{SUBSYS "    ana: [{group: 2, state: [change]}]\n", 4,
		" subsystems.0.ana.0.state: is not a plain value: one of optimized,"},
	{SUBSYS "    ana: [{state: optimized}]\n", 4,
		" subsystems.0.ana.0.group: is missing: a number from 1 to 128 is right"},
	{SUBSYS "    ana: [{group: 1, state: change, listeners: []}]\n", 4,
		" subsystems.0.ana.0.listeners: is empty: a list of addresses that 'listen' has"},
	{SUBSYS "    ana: [2]\n", 4, " subsystems.0.ana.0: '2' is not a mapping of keys to values"},
	{SUBSYS "    ana: none\n", 4,
		" subsystems.0.ana: 'none' is not a list: a list with 'group'"},
	/* Each key by itself: what is of another kind is told with what is right. */
	{SUBSYS "    serial: [a]\n", 4,
		" subsystems.0.serial: is not a plain value: at most 20 ASCII"},
	{NS "        nguid: {a: b}\n", 6, ".nguid: is not a plain value: 32 hexadecimal digits"},
	{NS "        eui64: [a]\n", 6, ".eui64: is not a plain value: 16 hexadecimal digits"},
	{NS "engine: [epoll]\n", 6, " engine: is not a plain value: io_uring, epoll or auto"},
	{NS "memory: {a: b}\n", 6, " memory: is not a plain value: a size such as 512M"},
	{NS "control: [a]\n", 6, " control: is not a plain value: the path of a socket"},
	{NS "state: [a]\n", 6, " state: is not a plain value: the path of a directory"},
	{NS "discovery_nqn: {}\n", 6, " discovery_nqn: is not a plain value: a name such as"},
	{NS "cntlid_max: many\n", 6, " cntlid_max: 'many' is not a number: a number from 1"},
	{NS "        uuid: \"1\\0\"\n", 6, ".uuid: '1' has a zero byte: "},
	{NS "memory: " TEN("1234567") "\n", 6, "is too long: a size such as 512M is right"},
	{"listen: [" TEN(TEN("tcp://127.0.0.1:0,")) "]\n", 1,
		" listen: is too long: a list of at most 64 addresses"},
	{SUBSYS "    a.b:\n      - c\n", 4, " subsystems.0.a.b: no such key here: nqn, serial,"},
	{"? [a]\n: b\n", 1, "a list or a mapping as a key"},
	{"? {a: b}\n: c\n", 1, "a list or a mapping as a key"},
	{NS "...\n", 0, NULL},
	{"---\n" NS, 0, NULL},
	{NS "---\n" NS, 6, "second YAML document"},
	{NS "---\n: [\n", 7, "YAML"},
	/* A kilobyte that stands for 10^9 hosts, and lists in lists. */
	{SUBSYS "    allow:\n" BOMB("a", "x") BOMB("b", "*a") BOMB("c", "*b") BOMB("d", "*c")
			BOMB("e", "*d") BOMB("f", "*e") BOMB("g", "*f") BOMB("h", "*g"),
		10, "aliases"},
	{LISTEN TEN(TEN("a: b\n")), 1, "more keys"},
	{"listen: " TEN("[") TEN("["), 1, "deep"},
	{"listen: [tcp://no-such-host.invalid:1]\nsubsystems:\n"
	 "  - nqn: nqn.2024-01.com.example:a\n",
		0, NULL},
};

/* What config_check() says of TEXT on stderr, in RET. */
static int check(const char *text, char *file, char *ret, size_t size)
{
	char out[] = "/tmp/haul-config-out-XXXXXX";
	int fd = mkstemp(file), err = dup(STDERR_FILENO), to = mkstemp(out);
	ssize_t got;
	int result;

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	fflush(stderr);
	dup2(to, STDERR_FILENO);
	result = config_check(file);
	fflush(stderr);
	dup2(err, STDERR_FILENO);
	close(err);
	got = pread(to, ret, size - 1, 0);
	ret[got > 0 ? got : 0] = '\0';
	close(to);
	unlink(out);
	unlink(file);
	return result;
}

static void mistakes_are_told_with_line_and_key(void **state)
{
	char said[1024], start[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char file[] = "/tmp/haul-config-XXXXXX";
		int result = check(cases[i].text, file, said, sizeof(said));

		snprintf(start, sizeof(start), "%s:%u:", file, cases[i].line);
		if (!cases[i].line ? result == 0 && !said[0]
				   : result != 0 && !strncmp(said, start, strlen(start)) &&
					     strstr(said + strlen(start), cases[i].key) &&
					     strchr(said, '\n') == said + strlen(said) - 1)
			continue;
		fail_msg("case %zu, line %u, key %s:\n%s->%s", i, cases[i].line,
			cases[i].key ? cases[i].key : "-", cases[i].text, said);
	}
}

static void any_bytes_are_survived(void **state)
{
	unsigned seed = 1;
	char text[512], said[4096];

	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		const char *base = cases[(unsigned)rand_r(&seed) % ARRAY_SIZE(cases)].text;
		char file[] = "/tmp/haul-config-XXXXXX";

		snprintf(text, sizeof(text), "%s", base);
		for (unsigned i = 0; text[0] && i < 1 + round % 4; i++)
			text[(unsigned)rand_r(&seed) % strlen(text)] =
				(char)(1 + rand_r(&seed) % 127);
		(void)check(text, file, said, sizeof(said));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mistakes_are_told_with_line_and_key),
		cmocka_unit_test(any_bytes_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
