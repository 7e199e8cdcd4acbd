/* SPDX-License-Identifier: MIT */
/*
 * hauld's options: one function each, and what does not go together.
 */
#include "target/main_options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/size.h"

enum main_option {
	MAIN_WORD = 1, /* getopt's for what is not an option */
	MAIN_LISTEN = 256,
	MAIN_EXPORT,
	MAIN_CONFIG,
	MAIN_CHECK,
	MAIN_THREADS,
	MAIN_ENGINE,
	MAIN_SPIN,
	MAIN_MEMORY,
	MAIN_PATIENCE,
	MAIN_LOG_LEVEL,
	MAIN_CONTROL,
	MAIN_STATE,
	MAIN_HELP,
	MAIN_VERSION,
};

static const struct option main_options[] = {
	{"listen", required_argument, NULL, MAIN_LISTEN},
	{"export", required_argument, NULL, MAIN_EXPORT},
	{"config", required_argument, NULL, MAIN_CONFIG},
	{"check", required_argument, NULL, MAIN_CHECK},
	{"threads", required_argument, NULL, MAIN_THREADS},
	{"engine", required_argument, NULL, MAIN_ENGINE},
	{"spin-us", required_argument, NULL, MAIN_SPIN},
	{"memory", required_argument, NULL, MAIN_MEMORY},
	{"patience-s", required_argument, NULL, MAIN_PATIENCE},
	{"log-level", required_argument, NULL, MAIN_LOG_LEVEL},
	{"control", required_argument, NULL, MAIN_CONTROL},
	{"state", required_argument, NULL, MAIN_STATE},
	{"help", no_argument, NULL, MAIN_HELP},
	{"version", no_argument, NULL, MAIN_VERSION},
	{0},
};

static const char main_usage[] =
	"Usage: hauld --listen URI... --export PATH[,OPTION...]...\n"
	"       hauld --config FILE\n"
	"       hauld --check FILE\n"
	"\n"
	"Exports disks over NVMe over Fabrics (RDMA and TCP).\n"
	"\n"
	"  --listen URI       tcp://HOST[:PORT] or rdma://HOST[:PORT]; 0.0.0.0 and [::] for all\n"
	"                     addresses, port 4420 if absent, 0 for any free one\n"
	"  --export PATH      a file, a block device, ram:SIZE or null:SIZE, then any of\n"
	"                     ,nqn=NQN ,nsid=N ,uuid=UUID ,block=512|4096 ,readonly\n"
	"  --config FILE      read all from a file, see hauld.conf(5)\n"
	"  --check FILE       only say whether such a file is right\n"
	"  --threads N        reactor threads, 1 to 64 (default: CPUs, at most 8)\n"
	"  --engine NAME      io_uring, epoll or auto (default)\n"
	"  --spin-us N        look for work this long before sleeping (default 20)\n"
	"  --memory SIZE      limit of the data buffers (default 512M)\n"
	"  --patience-s N     end hosts that take longer to send or take data (default 30)\n"
	"  --log-level NAME   error, warning, info (default) or debug\n"
	"  --control PATH     socket for haulctl, or none (default: hauld.sock in\n"
	"                     $XDG_RUNTIME_DIR or /run/haul)\n"
	"  --state DIR        where reservations outlive a restart, or none\n"
	"                     (default: $STATE_DIRECTORY, if set)\n"
	"  --version, --help\n";

static int main_wrong(const char *what)
{
	fprintf(stderr, "hauld: %s\n", what);
	return -EINVAL;
}

static int main_number(const char *option, const char *text, unsigned long min, unsigned long max,
	unsigned long *ret)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *end || text[0] < '0' || text[0] > '9' || number < min || number > max) {
		fprintf(stderr, "hauld: --%s %s: not a number from %lu to %lu\n", option, text, min,
			max);
		return -EINVAL;
	}
	*ret = number;
	return 0;
}

static int main_threads(const char *text, struct target_settings *settings)
{
	unsigned long number;
	int error = main_number("threads", text, 1, TARGET_MAX_REACTORS, &number);

	settings->nr_reactors = error ? 0 : (uint32_t)number;
	return error;
}

static int main_spin(const char *text, struct target_settings *settings)
{
	unsigned long number;
	int error = main_number("spin-us", text, 0, 1000000, &number);

	if (!error)
		settings->spin_ns = number * 1000;
	return error;
}

static int main_patience(const char *text, struct target_settings *settings)
{
	unsigned long number;
	int error = main_number("patience-s", text, 1, TARGET_MAX_PATIENCE_S, &number);

	if (!error)
		settings->patience_ns = number * 1000000000;
	return error;
}

static int main_engine(const char *text, struct target_settings *settings)
{
	if (!loop_engine_parse(text, &settings->engine))
		return 0;
	fprintf(stderr, "hauld: --engine %s: io_uring, epoll and auto are known\n", text);
	return -EINVAL;
}

static int main_memory(const char *text, struct target_settings *settings)
{
	if (!size_parse(text, &settings->memory_bytes))
		return 0;
	fprintf(stderr, "hauld: --memory %s: not a size such as 512M or 2G\n", text);
	return -EINVAL;
}

static int main_log_level(const char *text, struct target_settings *settings)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]))
			continue;
		settings->log_level = (enum log_level)i;
		return 0;
	}
	fprintf(stderr, "hauld: --log-level %s: error, warning, info and debug are known\n", text);
	return -EINVAL;
}

static int main_path(const char *option, const char *text, char *ret, size_t size)
{
	if (!text[0] || strlen(text) >= size) {
		fprintf(stderr, "hauld: --%s %s: not a path of 1 to %zu bytes\n", option, text,
			size - 1);
		return -EINVAL;
	}
	snprintf(ret, size, "%s", text);
	return 0;
}

static int main_append(const char **list, unsigned *nr, const char *value)
{
	if (*nr >= MAIN_MAX_LIST)
		return main_wrong("more than 256 of --listen or --export");
	list[(*nr)++] = value;
	return 0;
}

/* The option getopt has just looked at. */
static const char *main_current(char **argv)
{
	return argv[optind - 1];
}

static int main_append_any(struct main_arguments *arguments, int list, const char *value)
{
	arguments->last = list;
	if (list == MAIN_LISTEN)
		return main_append(arguments->listens, &arguments->nr_listens, value);
	if (list == MAIN_EXPORT)
		return main_append(arguments->exports, &arguments->nr_exports, value);
	fprintf(stderr,
		"hauld: '%s' is not an option: addresses are given with --listen, disks with "
		"--export\n",
		value);
	return -EINVAL;
}

/* 0, 1: all is said (help, version), or -EINVAL. */
static int main_take_option(int option, char **argv, struct main_arguments *arguments)
{
	struct target_settings *settings = &arguments->settings;
	int last = arguments->last;

	arguments->last = option;
	switch (option) {
	case MAIN_WORD:
		return main_append_any(arguments, last, optarg);
	case MAIN_LISTEN:
	case MAIN_EXPORT:
		return main_append_any(arguments, option, optarg);
	case MAIN_CONFIG:
		arguments->config = optarg;
		return 0;
	case MAIN_CHECK:
		arguments->check = optarg;
		return 0;
	case MAIN_THREADS:
		return main_threads(optarg, settings);
	case MAIN_ENGINE:
		return main_engine(optarg, settings);
	case MAIN_SPIN:
		return main_spin(optarg, settings);
	case MAIN_MEMORY:
		return main_memory(optarg, settings);
	case MAIN_PATIENCE:
		return main_patience(optarg, settings);
	case MAIN_LOG_LEVEL:
		return main_log_level(optarg, settings);
	case MAIN_CONTROL:
		return main_path("control", optarg, settings->control, sizeof(settings->control));
	case MAIN_STATE:
		return main_path("state", optarg, settings->state, sizeof(settings->state));
	case MAIN_HELP:
		fputs(main_usage, stdout);
		return 1;
	case MAIN_VERSION:
		puts("hauld " HAUL_VERSION);
		return 1;
	case ':':
		fprintf(stderr, "hauld: %s needs a value; see hauld --help\n", main_current(argv));
		return -EINVAL;
	default:
		fprintf(stderr, "hauld: option %s is not known; see hauld --help\n",
			main_current(argv));
		return -EINVAL;
	}
}

int main_parse_options(struct main_arguments *arguments)
{
	int option, ret = 0;

	opterr = 0;
	optind = 0; /* from the start, also the second time */
	arguments->nr_listens = arguments->nr_exports = 0;
	arguments->last = 0;
	while (!ret && (option = getopt_long(
				arguments->argc, arguments->argv, "-:", main_options, NULL)) != -1)
		ret = main_take_option(option, arguments->argv, arguments);
	return ret;
}

int main_parse(struct main_arguments *arguments)
{
	int ret = main_parse_options(arguments);

	if (ret)
		return ret;
	if (optind < arguments->argc)
		return main_append_any(arguments, 0, arguments->argv[optind]);
	if (arguments->check)
		return arguments->config || arguments->nr_listens || arguments->nr_exports
			       ? main_wrong("--check goes without --config, --listen and --export")
			       : 0;
	if (arguments->config)
		return arguments->nr_listens || arguments->nr_exports
			       ? main_wrong("--config and --listen or --export: give one or the "
					    "other")
			       : 0;
	if (!arguments->nr_listens)
		return main_wrong("no --listen: give at least one address such as "
				  "--listen tcp://0.0.0.0");
	if (!arguments->nr_exports)
		return main_wrong("no --export: give at least one disk such as --export disk.img");
	return 0;
}
