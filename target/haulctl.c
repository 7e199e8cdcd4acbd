/* SPDX-License-Identifier: MIT */
/*
 * haulctl: asks a running hauld for its status, or to change what it offers. Exit status: 0, 1 when
 * hauld cannot be reached or refuses, 2 for a command line that is wrong.
 */
#include "target/haulctl.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/nvme/name.h"
#include "proto/nvme/uri.h"
#include "target/ana.h"
#include "target/config_text.h"
#include "target/control_json.h"
#include "target/control_path.h"

enum { HAULCTL_OK = 0, HAULCTL_FAILED = 1, HAULCTL_USAGE = 2 };

/* An answer longer than that comes from nothing that this program knows. */
#define HAULCTL_MAX_ANSWER (64u << 20)

struct haulctl {
	struct sockaddr_un address;
	bool is_default;  /* ADDRESS was not given */
	char **arguments; /* as many as the command takes */
	const char *listener;
	bool json;
	bool dry_run;
};

struct haulctl_command {
	const char *name;
	const char *arguments;
	const char *help;
	int nr_arguments;
	int (*run)(const struct haulctl *ctl);
};

static void haulctl_error(const char *format, ...) printf_like(1, 2);

static void haulctl_error(const char *format, ...)
{
	va_list args;

	fputs("haulctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static int haulctl_usage(const char *what, const char *name)
{
	haulctl_error("%s%s; try haulctl --help", what, name);
	return HAULCTL_USAGE;
}

/* --- asking ---------------------------------------------------------------------------------- */

static int haulctl_try(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int error = fd < 0 ? -errno : 0;

	if (!error && connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		error = -errno;
	if (!error)
		return fd;
	if (fd >= 0)
		close(fd);
	return error;
}

/* Root may have a session of its own and still mean the service. */
static int haulctl_connect(const struct haulctl *ctl)
{
	struct sockaddr_un address = ctl->address;
	int fd = haulctl_try(&address);
	int error = fd;

	if (error == -ENOENT && ctl->is_default && !control_path_set(&address, CONTROL_PATH_SYSTEM))
		fd = haulctl_try(&address);
	if (fd < 0)
		haulctl_error("no hauld answers at %s: %s%s", ctl->address.sun_path,
			strerror(-error),
			error == -EACCES ? "" : ": is it running, with that --control?");
	return fd;
}

static bool haulctl_send(int fd, const char *text)
{
	size_t left = strlen(text);

	while (left) {
		ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return false;
		text += sent;
		left -= (size_t)sent;
	}
	return true;
}

/* One line. NULL: the other side has gone, or it is too long. */
static char *haulctl_receive(int fd)
{
	FILE *file = fdopen(fd, "r");
	char *line = NULL;
	size_t size = 0;
	ssize_t length = file ? getline(&line, &size, file) : -1;

	if (file)
		fclose(file);
	if (length > 0 && length <= HAULCTL_MAX_ANSWER && line[length - 1] == '\n')
		return line;
	free(line);
	return NULL;
}

static char *haulctl_exchange(const struct haulctl *ctl, struct json_object *request)
{
	int fd = haulctl_connect(ctl);
	char *answer = NULL;

	if (fd < 0)
		return NULL;
	/* What cannot be sent may have been refused already. */
	(void)(haulctl_send(fd, json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN)) &&
		haulctl_send(fd, "\n"));
	answer = haulctl_receive(fd);
	if (!answer)
		haulctl_error("hauld has closed the connection: it has too many clients, or stops");
	return answer;
}

static struct json_object *haulctl_request(const char *name)
{
	struct json_object *request = json_object_new_object();

	control_json_number(request, "version", 1);
	control_json_text(request, "request", name);
	return request;
}

/* The answer to REQUEST, which it frees; NULL: there is none, or it is an error that has been told.
 */
static struct json_object *haulctl_ask(const struct haulctl *ctl, struct json_object *request)
{
	char *line = haulctl_exchange(ctl, request);
	struct json_object *answer = line ? json_tokener_parse(line) : NULL;
	struct json_object *error;

	json_object_put(request);
	free(line);
	if (!line)
		return NULL;
	if (!json_object_is_type(answer, json_type_object)) {
		haulctl_error("the answer is not understood");
	} else if (json_object_object_get_ex(answer, "error", &error)) {
		haulctl_error("%s", json_object_get_string(error));
	} else {
		return answer;
	}
	json_object_put(answer);
	return NULL;
}

/* --- commands -------------------------------------------------------------------------------- */

static int haulctl_status(const struct haulctl *ctl)
{
	struct json_object *answer = haulctl_ask(ctl, haulctl_request("status"));
	struct json_object *status;

	if (!answer)
		return HAULCTL_FAILED;
	status = json_object_object_get(answer, "status");
	if (ctl->json)
		puts(json_object_to_json_string_ext(
			status, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	else
		haulctl_show(status);
	json_object_put(answer);
	return HAULCTL_OK;
}

static int haulctl_config(const struct haulctl *ctl)
{
	struct json_object *answer = haulctl_ask(ctl, haulctl_request("config"));

	if (!answer)
		return HAULCTL_FAILED;
	fputs(json_object_get_string(json_object_object_get(answer, "config")), stdout);
	json_object_put(answer);
	return HAULCTL_OK;
}

static void haulctl_print_lines(FILE *to, const char *prefix, struct json_object *list)
{
	for (size_t i = 0; list && i < json_object_array_length(list); i++)
		fprintf(to, "%s%s\n", prefix,
			json_object_get_string(json_object_array_get_idx(list, i)));
}

static void haulctl_print_changes(struct json_object *answer)
{
	struct json_object *changes = json_object_object_get(answer, "changes");

	haulctl_print_lines(stdout, "", changes);
	if (!changes || !json_object_array_length(changes))
		puts("nothing changes");
}

/* What cannot be, whatever hauld offers. */
static bool haulctl_ana_is_right(const struct haulctl *ctl, unsigned long *ret_group)
{
	const char *nqn = ctl->arguments[0], *group = ctl->arguments[1];
	const char *fault = NULL;
	enum nvme_ana_state state;
	struct nvme_uri uri;
	char why[256];
	char *end;

	*ret_group = strtoul(group, &end, 10);
	if (nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_OURS, &fault))
		haulctl_error("subsystem '%s': %s", nqn, fault);
	else if (*end || group[0] < '0' || group[0] > '9' || *ret_group < 1 ||
		 *ret_group > ANA_MAX_GROUPS)
		haulctl_error("group %s: not a number from 1 to %u", group, ANA_MAX_GROUPS);
	else if (!ana_state_parse(ctl->arguments[2], &state))
		haulctl_error(
			"state '%s' is not known: " ANA_STATE_NAMES " are", ctl->arguments[2]);
	else if (ctl->listener &&
		 nvme_uri_parse(ctl->listener, NVME_URI_LISTENER, &uri, why, sizeof(why)))
		haulctl_error("listener %s: %s", ctl->listener, why);
	else
		return true;
	return false;
}

static int haulctl_ana(const struct haulctl *ctl)
{
	struct json_object *request, *answer;
	unsigned long group;

	if (!haulctl_ana_is_right(ctl, &group))
		return HAULCTL_USAGE;
	request = haulctl_request("ana");
	control_json_text(request, "subsystem", ctl->arguments[0]);
	control_json_number(request, "group", group);
	control_json_text(request, "state", ctl->arguments[2]);
	if (ctl->listener)
		control_json_text(request, "listener", ctl->listener);
	answer = haulctl_ask(ctl, request);
	if (!answer)
		return HAULCTL_FAILED;
	haulctl_print_changes(answer);
	json_object_put(answer);
	return HAULCTL_OK;
}

static int haulctl_apply(const struct haulctl *ctl)
{
	struct json_object *request, *answer;
	struct config_text text;
	char why[512];

	if (config_text_read(ctl->arguments[0], &text, why, sizeof(why))) {
		haulctl_error("%s", why);
		return HAULCTL_FAILED;
	}
	request = haulctl_request("apply");
	control_json_text(request, "file", text.name);
	control_json_text(request, "directory", text.directory);
	json_object_object_add(
		request, "text", json_object_new_string_len(text.bytes, (int)text.length));
	control_json_flag(request, "dry_run", ctl->dry_run);
	config_text_free(&text);
	answer = haulctl_ask(ctl, request);
	if (!answer)
		return HAULCTL_FAILED;
	haulctl_print_lines(stderr, "haulctl: ", json_object_object_get(answer, "notes"));
	haulctl_print_changes(answer);
	json_object_put(answer);
	return HAULCTL_OK;
}

static const struct haulctl_command haulctl_commands[] = {
	{"status", "[--json]", "what hauld offers, and who uses it", 0, haulctl_status},
	{"config", "", "what hauld offers and runs with, as a configuration file", 0,
		haulctl_config},
	{"apply", "FILE [--dry-run]", "make what it offers what FILE says", 1, haulctl_apply},
	{"ana", "SUBSYSTEM GROUP STATE [--listener URI]", "give an ANA group another state", 3,
		haulctl_ana},
};
#define HAULCTL_NR_COMMANDS ARRAY_SIZE(haulctl_commands)

/* --- the command line ------------------------------------------------------------------------ */

static void haulctl_help(void)
{
	puts("haulctl looks at a running hauld and changes what it offers.\n");
	for (size_t i = 0; i < HAULCTL_NR_COMMANDS; i++)
		printf("  haulctl %s%s%s\n                     %s\n", haulctl_commands[i].name,
			haulctl_commands[i].arguments[0] ? " " : "", haulctl_commands[i].arguments,
			haulctl_commands[i].help);
	puts("\n"
	     "  --control PATH     hauld's socket (default: hauld.sock in $XDG_RUNTIME_DIR or\n"
	     "                     /run/haul)\n"
	     "  --help, --version\n\n"
	     "FILE is as hauld.conf(5) says, or - for standard input. See haulctl(8).");
}

static int haulctl_run(struct haulctl *ctl, int argc, char **argv)
{
	const struct haulctl_command *command = NULL;

	if (optind == argc)
		return haulctl_usage("a command is missing: status, config, apply or ana", "");
	for (size_t i = 0; i < HAULCTL_NR_COMMANDS; i++)
		if (!strcmp(argv[optind], haulctl_commands[i].name))
			command = &haulctl_commands[i];
	if (!command)
		return haulctl_usage("there is no command ", argv[optind]);
	optind++;
	if (argc - optind < command->nr_arguments)
		return haulctl_usage("it takes ", command->arguments);
	ctl->arguments = &argv[optind];
	optind += command->nr_arguments;
	if (optind < argc)
		return haulctl_usage("what is ", argv[optind]);
	if (ctl->dry_run && command->run != haulctl_apply)
		return haulctl_usage("--dry-run is for apply", "");
	if (ctl->json && command->run != haulctl_status)
		return haulctl_usage("--json is for status", "");
	if (ctl->listener && command->run != haulctl_ana)
		return haulctl_usage("--listener is for ana", "");
	return command->run(ctl);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
		{"dry-run", no_argument, NULL, 'n'}, {"listener", required_argument, NULL, 'l'},
		{"control", required_argument, NULL, 'c'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'}, {0}};
	struct haulctl ctl = {0};
	const char *path = NULL;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "hV", options, NULL)) >= 0) {
		switch (option) {
		case 'j':
			ctl.json = true;
			break;
		case 'n':
			ctl.dry_run = true;
			break;
		case 'l':
			ctl.listener = optarg;
			break;
		case 'c':
			path = optarg;
			break;
		case 'h':
			haulctl_help();
			return HAULCTL_OK;
		case 'V':
			puts("haulctl " HAUL_VERSION);
			return HAULCTL_OK;
		default:
			return haulctl_usage("wrong option ", argv[optind - 1]);
		}
	}
	if (path ? control_path_set(&ctl.address, path) : control_path_default(&ctl.address))
		return haulctl_usage("the socket's path is too long: ", path ? path : "");
	ctl.is_default = !path;
	return haulctl_run(&ctl, argc, argv);
}
