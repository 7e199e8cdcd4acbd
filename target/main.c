/* SPDX-License-Identifier: MIT */
/*
 * hauld: configured, started, run and ended. Exit status: 0 after a clean stop, 1 when the target
 * cannot start or was cut short, 2 for a command line or configuration that is wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/base/std_fds.h"
#include "target/catalog.h"
#include "target/config.h"
#include "target/control.h"
#include "target/main_options.h"
#include "target/port.h"
#include "target/quick.h"
#include "target/target.h"

#define MAIN_EXIT_FAILED 1
#define MAIN_EXIT_USAGE	 2
#define MAIN_WHY_BYTES	 512

/* What the file describes, and what is said on the command line, too, which counts. */
static int main_configure_by_file(
	struct target *target, struct catalog *catalog, struct main_arguments *arguments)
{
	int error;

	arguments->settings = (struct target_settings)TARGET_SETTINGS_DEFAULT;
	error = config_load(arguments->config, &arguments->settings, catalog);
	if (!error)
		error = main_parse_options(arguments);
	target->settings = arguments->settings;
	return error;
}

static int main_configure(
	struct target *target, struct catalog *catalog, struct main_arguments *arguments)
{
	char why[MAIN_WHY_BYTES] = "out of memory";
	int error = 0;

	if (arguments->config)
		return main_configure_by_file(target, catalog, arguments);
	for (unsigned i = 0; i < arguments->nr_listens && !error; i++) {
		error = quick_listen(catalog, arguments->listens[i], why, sizeof(why));
		if (error)
			fprintf(stderr, "hauld: --listen %s: %s\n", arguments->listens[i], why);
	}
	for (unsigned i = 0; i < arguments->nr_exports && !error; i++) {
		error = quick_export(catalog, arguments->exports[i], why, sizeof(why));
		if (error)
			fprintf(stderr, "hauld: --export %s: %s\n", arguments->exports[i], why);
	}
	return error;
}

static void main_say_ready(const struct target *target)
{
	char text[PORT_TEXT];

	for (uint32_t i = 0; i < target->catalog->nr_ports; i++) {
		port_describe(target->catalog->port[i], text);
		printf("listening on %s\n", text);
	}
	puts("ready");
	fflush(stdout);
}

/* A connection is a descriptor, a region of the pool is locked memory: all that this process may
 * have. What is refused shows later, where it is missed. */
static void main_raise_limits(void)
{
	static const int resources[] = {RLIMIT_NOFILE, RLIMIT_MEMLOCK};

	for (size_t i = 0; i < ARRAY_SIZE(resources); i++) {
		struct rlimit limit;

		if (getrlimit(resources[i], &limit))
			continue;
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(resources[i], &limit);
	}
}

static int main_serve(struct target *target, struct catalog *catalog, const char *config_file)
{
	char why[MAIN_WHY_BYTES] = "signals cannot be blocked";
	int error = target_block_signals();
	int closed;

	main_raise_limits();
	if (!error)
		error = target_start(target, catalog, why, sizeof(why));
	else
		catalog_free(catalog);
	if (!error)
		error = control_create(target, config_file, &target->control, why, sizeof(why));
	if (error) {
		fprintf(stderr, "hauld: %s\n", why);
		return MAIN_EXIT_FAILED;
	}
	main_say_ready(target);
	error = target_run(target);
	closed = control_close(target->control);
	error = error ? error : closed;
	if (!error)
		return 0;
	if (error == -ETIMEDOUT)
		log_warning("some I/O did not finish in time: leaving it behind");
	/* Threads still run on what would be freed. */
	_exit(MAIN_EXIT_FAILED);
}

/* A mistake in what was written is not a disk that cannot be opened. */
static int main_start(struct target *target, struct main_arguments *arguments)
{
	struct catalog *catalog = catalog_create(target->catalog);
	int error = catalog ? main_configure(target, catalog, arguments) : -ENOMEM;

	if (error) {
		catalog_free(catalog);
		return error == -EINVAL || error == -ERANGE ? MAIN_EXIT_USAGE : MAIN_EXIT_FAILED;
	}
	return main_serve(target, catalog, arguments->config);
}

int main(int argc, char **argv)
{
	struct main_arguments arguments = {
		.argc = argc, .argv = argv, .settings = TARGET_SETTINGS_DEFAULT};
	struct target target;
	int ret;

	if (std_fds_occupy())
		return MAIN_EXIT_FAILED;
	ret = main_parse(&arguments);
	if (ret)
		return ret > 0 ? 0 : MAIN_EXIT_USAGE;
	log_set_sink(log_to_stderr, arguments.settings.log_level);
	if (arguments.check)
		return config_check(arguments.check) ? MAIN_EXIT_USAGE : 0;
	ret = target_init(&target, &arguments.settings) ? MAIN_EXIT_FAILED
							: main_start(&target, &arguments);
	target_destroy(&target);
	control_destroy(target.control);
	return ret;
}
