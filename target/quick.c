/* SPDX-License-Identifier: MIT */
/*
 * --listen and --export of the command line.
 */
#include "target/quick.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/nvme/uri.h"
#include "target/catalog.h"
#include "target/config_text.h"

struct quick_export {
	struct ns_options ns;
	struct nvme_uuid uuid;
	const char *nqn; /* NULL: from the disk */
	char *resolved;
};

int quick_listen(struct catalog *catalog, const char *text, char *why, size_t why_size)
{
	struct nvme_uri uri;
	int error;

	if (strchr(text, ',')) {
		snprintf(why, why_size, "several addresses are separated by blanks, not by commas");
		return -EINVAL;
	}
	error = nvme_uri_parse(text, NVME_URI_LISTENER, &uri, why, why_size);
	return error ? error : catalog_add_port(catalog, &uri, true, why, why_size);
}

static int quick_parse_nsid(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long nsid = strtoul(text, &end, 10);

	if (end == text || *end || text[0] < '0' || text[0] > '9' || nsid < 1 ||
		nsid > SUBSYS_MAX_NSID)
		return -EINVAL;
	*ret = (uint32_t)nsid;
	return 0;
}

static int quick_nqn(const char *nqn, char *why, size_t why_size)
{
	const char *fault = NULL;
	int error = nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_OURS, &fault);

	if (error)
		snprintf(why, why_size, "nqn=%s: %s", nqn, fault);
	return error;
}

/* A disk in memory whose size was forgotten; a file may have that name. */
static int quick_check_path(const char *path, char *why, size_t why_size)
{
	if (!path[0])
		snprintf(why, why_size,
			"no path: a file, a device, ram:SIZE or null:SIZE is needed");
	else if ((!strcmp(path, "ram") || !strcmp(path, "null")) && access(path, F_OK))
		snprintf(why, why_size, "a size is missing: %s:SIZE, such as %s:1G", path, path);
	else
		return 0;
	return -EINVAL;
}

/* One option, "key=value" or "readonly". */
static int quick_option(struct quick_export *export, const char *text, char *why, size_t why_size)
{
	if (!strcmp(text, "readonly")) {
		export->ns.read_only = true;
		return 0;
	}
	if (!strncmp(text, "nqn=", 4)) {
		export->nqn = text + 4;
		return quick_nqn(export->nqn, why, why_size);
	}
	if (!strncmp(text, "nsid=", 5)) {
		if (!quick_parse_nsid(text + 5, &export->ns.nsid))
			return 0;
		snprintf(why, why_size, "%s is not a number from 1 to %u", text, SUBSYS_MAX_NSID);
		return -EINVAL;
	}
	if (!strncmp(text, "uuid=", 5)) {
		export->ns.uuid = &export->uuid;
		if (!nvme_uuid_parse(text + 5, &export->uuid))
			return 0;
		snprintf(why, why_size,
			"%s is not of the form uuid=xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text);
		return -EINVAL;
	}
	if (!strcmp(text, "block=512") || !strcmp(text, "block=4096")) {
		export->ns.block_bytes = (uint32_t)strtoul(text + 6, NULL, 10);
		return 0;
	}
	snprintf(why, why_size,
		"option '%s' is not known: nqn=NQN, nsid=N, uuid=UUID, block=512, block=4096 and "
		"readonly are; for a path with a comma use --config",
		text);
	return -EINVAL;
}

/* As a configuration file may name it later, from another directory. */
static int quick_resolve(struct quick_export *export)
{
	const char *path = export->ns.path;

	if (!strncmp(path, "ram:", 4) || !strncmp(path, "null:", 5))
		return 0;
	export->ns.path = export->resolved = config_text_resolve(NULL, path);
	return export->resolved ? 0 : -ENOMEM;
}

static int quick_add(
	struct catalog *catalog, const struct quick_export *export, char *why, size_t why_size)
{
	struct subsys *subsys;
	int error;

	if (!export->nqn)
		return catalog_add_disk(catalog, &export->ns, why, why_size);
	subsys = catalog_find(catalog, export->nqn);
	if (!subsys) {
		error = catalog_add_subsys(catalog, export->nqn, &subsys);
		if (error) {
			snprintf(why, why_size, "nqn=%s cannot be used: %s", export->nqn,
				error == -EEXIST
					? "it is the discovery subsystem's: give a name such as "
					  "nqn.2024-01.com.example:disks"
					: strerror(-error));
			return error == -EEXIST ? -EINVAL : error;
		}
		subsys->allow_any = true;
	}
	return catalog_add_ns(catalog, subsys, &export->ns, why, why_size);
}

int quick_export(struct catalog *catalog, const char *text, char *why, size_t why_size)
{
	struct quick_export export = {0};
	char *copy = strdup(text);
	char *rest = copy;
	char *option;
	int error = copy ? 0 : -ENOMEM;

	if (error)
		return error;
	export.ns.path = strsep(&rest, ",");
	error = quick_check_path(export.ns.path, why, why_size);
	while (!error && (option = strsep(&rest, ",")))
		error = quick_option(&export, option, why, why_size);
	if (!error)
		error = quick_resolve(&export);
	if (!error)
		error = quick_add(catalog, &export, why, why_size);
	free(export.resolved);
	free(copy);
	return error;
}
