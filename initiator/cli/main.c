/* SPDX-License-Identifier: MIT */
/*
 * haul: look at NVMe over Fabrics targets. The command line, signals, and what all commands need.
 */
#include "initiator/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/std_fds.h"

static const struct cli_command *const cli_commands[] = {&cli_discover, &cli_doctor, &cli_id};
#define CLI_NR_COMMANDS (sizeof(cli_commands) / sizeof(cli_commands[0]))

static struct haul_loop *cli_signal_loop;
static volatile sig_atomic_t cli_signal;

void cli_error(const char *format, ...)
{
	va_list args;

	fputs("haul: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static void cli_signalled(int nr)
{
	cli_signal = nr;
	haul_loop_interrupt(cli_signal_loop);
}

int cli_wait(struct cli *cli)
{
	struct haul_event event;

	for (;;) {
		int n = haul_loop_wait(cli->loop, &event, 1, -1);

		if (cli_signal || n < 0)
			return -EINTR;
		if (n == 1)
			return event.result;
	}
}

int cli_try_connect(struct cli *cli, const char *uri, const struct haul_ctrl_options *options,
	const char **ret_why)
{
	int error = haul_connect(cli->loop, uri, options, 0, &cli->ctrl);

	if (error) {
		*ret_why = haul_loop_error(cli->loop);
		return error == -EINVAL ? CLI_USAGE : CLI_FAILED;
	}
	error = cli_wait(cli);
	if (error == 0)
		return CLI_OK;
	*ret_why = error == -EINTR ? NULL : haul_ctrl_error(cli->ctrl);
	return CLI_FAILED;
}

int cli_connect(struct cli *cli, const char *uri)
{
	const char *why;
	int code = cli_try_connect(cli, uri, NULL, &why);

	if (code == CLI_OK && haul_ctrl_error(cli->ctrl)[0])
		cli_error("warning: %s", haul_ctrl_error(cli->ctrl));
	else if (code != CLI_OK && why)
		cli_error("%s", why);
	return code;
}

void cli_json_text(struct json_object *json, const char *key, const char *value)
{
	json_object_object_add(json, key, json_object_new_string(value));
}

void cli_json_number(struct json_object *json, const char *key, uint64_t value)
{
	json_object_object_add(json, key, json_object_new_uint64(value));
}

void cli_json_flag(struct json_object *json, const char *key, bool value)
{
	json_object_object_add(json, key, json_object_new_boolean(value));
}

void cli_print_json(struct json_object *json)
{
	puts(json_object_to_json_string_ext(
		json, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(json);
}

bool cli_hex(const uint8_t *bytes, unsigned nr, bool is_uuid, char ret_text[40])
{
	bool any = false;
	char *at = ret_text;

	for (unsigned i = 0; i < nr; i++) {
		any = any || bytes[i];
		if (is_uuid && (i == 4 || i == 6 || i == 8 || i == 10))
			*at++ = '-';
		at += sprintf(at, "%02x", bytes[i]);
	}
	return any;
}

static void cli_help(void)
{
	puts("haul looks at NVMe over Fabrics targets.\n");
	for (size_t i = 0; i < CLI_NR_COMMANDS; i++)
		printf("  haul %-8s %-5s [--json]   %s\n", cli_commands[i]->name,
			cli_commands[i]->uri_is_optional ? "[URI]" : "URI", cli_commands[i]->help);
	puts("\n"
	     "  --engine=io_uring|epoll   instead of the best there is\n"
	     "  --sysroot=DIR             doctor: /sys, /proc, /dev and /etc are below DIR\n"
	     "  --help, --version\n\n"
	     "URI is rdma://HOST[:PORT][/NQN[/NSID]][?option=value&...] or tcp://..., such as\n"
	     "  tcp://192.0.2.1    tcp://[2001:db8::1]:4420/nqn.2014-08.org.example:disk/1?hdgst=1\n"
	     "See haul(1) for its options.");
}

static int cli_usage(const char *what, const char *name)
{
	cli_error("%s%s; try haul --help", what, name);
	return CLI_USAGE;
}

static const struct cli_command *cli_find(const char *name)
{
	for (size_t i = 0; i < CLI_NR_COMMANDS; i++)
		if (!strcmp(cli_commands[i]->name, name))
			return cli_commands[i];
	return NULL;
}

void cli_leave(struct cli *cli)
{
	if (cli->ctrl && haul_ctrl_is_live(cli->ctrl) && !cli_signal &&
		!haul_disconnect(cli->ctrl, 0))
		cli_wait(cli);
	haul_ctrl_free(cli->ctrl);
	cli->ctrl = NULL;
}

static int cli_run(const struct cli_command *command, struct cli *cli, const char *engine)
{
	struct haul_loop_options options = {
		.size = sizeof(options), .engine = engine, .spin_us = 0};
	struct sigaction action = {.sa_handler = cli_signalled};
	int error = haul_loop_create(&options, &cli->loop);
	int code;

	if (error == -EINVAL)
		return cli_usage("there is no engine ", engine);
	if (error) {
		cli_error("cannot make an event loop: %s", strerror(-error));
		return CLI_FAILED;
	}
	cli_signal_loop = cli->loop;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = command->run(cli);
	cli_leave(cli);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	haul_loop_destroy(cli->loop);
	if (cli_signal)
		raise(cli_signal); /* so that whoever started us sees why we end */
	return code;
}

static int cli_main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
		{"engine", required_argument, NULL, 'e'}, {"sysroot", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
	const struct cli_command *command;
	struct cli cli = {0};
	const char *engine = NULL;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "hV", options, NULL)) >= 0) {
		switch (option) {
		case 'j':
			cli.json = true;
			break;
		case 'e':
			engine = optarg;
			break;
		case 's':
			cli.sysroot = optarg;
			break;
		case 'h':
			cli_help();
			return CLI_OK;
		case 'V':
			printf("haul %s\n", haul_version());
			return CLI_OK;
		default:
			return cli_usage("wrong option ", argv[optind - 1]);
		}
	}
	if (optind == argc)
		return cli_usage("a command is missing", "");
	command = cli_find(argv[optind]);
	if (!command)
		return cli_usage("there is no command ", argv[optind]);
	if (cli.sysroot && command != &cli_doctor)
		return cli_usage("--sysroot is not for haul ", command->name);
	if (argc - optind < 2 && !command->uri_is_optional)
		return cli_usage("the URI of a target is missing, such as tcp://192.0.2.1", "");
	if (argc - optind > 2)
		return cli_usage("one URI is enough: what is ", argv[optind + 2]);
	cli.uri = argv[optind + 1]; /* or NULL, the array's end */
	return cli_run(command, &cli, engine);
}

/* What was printed may be all that the caller wants: it must have arrived. */
int main(int argc, char **argv)
{
	int code;

	if (std_fds_occupy())
		return CLI_FAILED;
	code = cli_main(argc, argv);
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	cli_error("cannot write the output: %s", strerror(errno ? errno : EIO));
	return code == CLI_OK ? CLI_FAILED : code;
}
