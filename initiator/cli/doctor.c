/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: is this machine fit for NVMe over Fabrics, and is the way to a target?
 */
#include "initiator/cli/doctor.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOCTOR_PATH_BYTES 512

/* --- what was found ------------------------------------------------------------------------- */

static const char *const doctor_states[] = {[DOCTOR_OK] = "ok",
	[DOCTOR_HINT] = "hint",
	[DOCTOR_UNKNOWN] = "unknown",
	[DOCTOR_PROBLEM] = "problem"};

static void doctor_print(
	enum doctor_state state, const char *point, const char *text, const char *cure)
{
	printf("%-8s %-18s %s\n", doctor_states[state], point, text);
	while (cure) {
		const char *end = strchr(cure, '\n');
		int length = end ? (int)(end - cure) : (int)strlen(cure);

		printf("%27s   %.*s\n", "", length, cure);
		cure = end ? end + 1 : NULL;
	}
	fflush(stdout); /* the next one may take its time */
}

void doctor_tell(struct doctor *doctor, enum doctor_state state, const char *point,
	const char *cure, const char *format, ...)
{
	struct json_object *json;
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (state == DOCTOR_PROBLEM)
		doctor->nr_problems++;
	if (!doctor->cli->json) {
		doctor_print(state, point, text, cure);
		return;
	}
	json = json_object_new_object();
	cli_json_text(json, "point", point);
	cli_json_text(json, "state", doctor_states[state]);
	cli_json_text(json, "text", text);
	if (cure)
		cli_json_text(json, "cure", cure);
	json_object_array_add(doctor->points, json);
}

/* --- files ---------------------------------------------------------------------------------- */

static void doctor_path_below(
	const struct doctor *doctor, char path[DOCTOR_PATH_BYTES], const char *format, va_list args)
{
	int length = snprintf(path, DOCTOR_PATH_BYTES, "%s", doctor->root);

	if (length < DOCTOR_PATH_BYTES)
		vsnprintf(path + length, DOCTOR_PATH_BYTES - (size_t)length, format, args);
}

FILE *doctor_open(const struct doctor *doctor, const char *format, ...)
{
	char path[DOCTOR_PATH_BYTES];
	va_list args;

	va_start(args, format);
	doctor_path_below(doctor, path, format, args);
	va_end(args);
	return fopen(path, "re");
}

bool doctor_read(const struct doctor *doctor, char *line, size_t size, const char *format, ...)
{
	char path[DOCTOR_PATH_BYTES];
	va_list args;
	FILE *file;

	va_start(args, format);
	doctor_path_below(doctor, path, format, args);
	va_end(args);
	file = fopen(path, "re");
	if (!file || !fgets(line, (int)size, file))
		line[0] = '\0';
	if (file)
		fclose(file);
	line[strcspn(line, "\r\n")] = '\0';
	return line[0] != '\0';
}

bool doctor_may(const struct doctor *doctor, int mode, const char *format, ...)
{
	char path[DOCTOR_PATH_BYTES];
	va_list args;

	va_start(args, format);
	doctor_path_below(doctor, path, format, args);
	va_end(args);
	return access(path, mode) == 0;
}

static int doctor_is_name(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

struct doctor_names doctor_names(const struct doctor *doctor, const char *format, ...)
{
	struct doctor_names names = {0};
	char path[DOCTOR_PATH_BYTES];
	va_list args;

	va_start(args, format);
	doctor_path_below(doctor, path, format, args);
	va_end(args);
	names.nr = scandir(path, &names.entry, doctor_is_name, versionsort);
	if (names.nr < 0)
		names = (struct doctor_names){0};
	return names;
}

void doctor_names_free(struct doctor_names *names)
{
	for (int i = 0; i < names->nr; i++)
		free(names->entry[i]);
	free(names->entry);
	*names = (struct doctor_names){0};
}

/* --- the command ---------------------------------------------------------------------------- */

static void doctor_print_json(struct doctor *doctor)
{
	struct json_object *json = json_object_new_object();

	cli_json_number(json, "problems", doctor->nr_problems);
	json_object_object_add(json, "points", doctor->points);
	cli_print_json(json);
}

static void doctor_look(struct doctor *doctor)
{
	doctor_system(doctor);
	doctor_firewall(doctor);
	if (doctor->rdma)
		doctor_rdma(doctor);
	if (doctor->uri)
		doctor_path(doctor);
}

/* Parses the URI, if there is one, into memory of the caller's. */
static int doctor_parse(struct cli *cli, struct nvme_uri **ret)
{
	char why[256];

	*ret = NULL;
	if (!cli->uri)
		return CLI_OK;
	*ret = malloc(sizeof(**ret));
	if (!*ret) {
		cli_error("out of memory");
		return CLI_FAILED;
	}
	if (nvme_uri_parse(cli->uri, 0, *ret, why, sizeof(why))) {
		cli_error("%s: %s", cli->uri, why);
		return CLI_USAGE;
	}
	return CLI_OK;
}

static int doctor_run(struct cli *cli)
{
	struct doctor doctor = {.cli = cli, .root = cli->sysroot ? cli->sysroot : ""};
	struct nvme_uri *uri;
	int code = doctor_parse(cli, &uri);

	if (code == CLI_OK && doctor.root[0] && access(doctor.root, R_OK | X_OK)) {
		cli_error("%s cannot be read", doctor.root);
		code = CLI_FAILED;
	}
	if (code == CLI_OK) {
		doctor.uri = uri;
		doctor.rdma = !uri || uri->trtype == NVME_TRTYPE_RDMA;
		doctor.points = cli->json ? json_object_new_array() : NULL;
		doctor_look(&doctor);
		if (cli->json)
			doctor_print_json(&doctor);
		code = doctor.nr_problems ? CLI_FAILED : CLI_OK;
	}
	free(uri);
	return code;
}

const struct cli_command cli_doctor = {
	.name = "doctor",
	.help = "looks at this machine and, with a URI, at the way to the target",
	.uri_is_optional = true,
	.run = doctor_run,
};
