/* SPDX-License-Identifier: MIT */
/*
 * Entries of hosts that authenticate, and files of secrets.
 */
#include "target/host_auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auth/dhchap.h"

/* --- entries --------------------------------------------------------------------------------- */

struct host_auth *host_auth_create(const char *nqn)
{
	struct host_auth *host = calloc(1, sizeof(*host));

	if (!host)
		return NULL;
	host->nr_refs = 1;
	snprintf(host->nqn, sizeof(host->nqn), "%s", nqn);
	host->hashes = NVME_AUTH_ALL_HASHES;
	host->groups = NVME_AUTH_ALL_GROUPS;
	return host;
}

struct host_auth *host_auth_get(struct host_auth *host)
{
	host->nr_refs++;
	return host;
}

void host_auth_put(struct host_auth *host)
{
	if (!host || --host->nr_refs)
		return;
	free(host->host.file);
	free(host->ctrl.file);
	dhchap_wipe(host, sizeof(*host));
	free(host);
}

bool host_auth_key_is_same(const struct host_auth_key *one, const struct host_auth_key *other)
{
	bool same_place = one->file && other->file ? !strcmp(one->file, other->file)
						   : one->file == other->file;

	return same_place && one->secret.len == other->secret.len &&
	       one->secret.hash == other->secret.hash &&
	       dhchap_is_same(one->secret.bytes, other->secret.bytes, one->secret.len);
}

/* --- lists ----------------------------------------------------------------------------------- */

int host_auth_list_add(struct host_auth_list *list, struct host_auth *host)
{
	struct host_auth **hosts = reallocarray(list->hosts, list->nr + 1, sizeof(*hosts));

	if (!hosts) {
		host_auth_put(host);
		return -ENOMEM;
	}
	list->hosts = hosts;
	hosts[list->nr++] = host;
	return 0;
}

int host_auth_list_copy(struct host_auth_list *list, const struct host_auth_list *from)
{
	int error = 0;

	for (uint32_t i = 0; i < from->nr && !error; i++)
		error = host_auth_list_add(list, host_auth_get(from->hosts[i]));
	return error;
}

void host_auth_list_free(struct host_auth_list *list)
{
	for (uint32_t i = 0; i < list->nr; i++)
		host_auth_put(list->hosts[i]);
	free(list->hosts);
	*list = (struct host_auth_list){0};
}

struct host_auth *host_auth_find(const struct host_auth_list *list, const char *nqn)
{
	for (uint32_t i = 0; i < list->nr; i++)
		if (!strcmp(list->hosts[i]->nqn, nqn))
			return list->hosts[i];
	return NULL;
}

/* --- files ----------------------------------------------------------------------------------- */

/* Whoever can read it can be that host; whoever can write it decides who is. */
static int host_auth_file_check(int fd, char *why, size_t why_size)
{
	struct stat status;

	if (fstat(fd, &status)) {
		snprintf(why, why_size, "cannot be looked at: %s", strerror(errno));
		return -EINVAL;
	}
	if (!S_ISREG(status.st_mode))
		snprintf(why, why_size, "is not a regular file");
	else if (status.st_uid && status.st_uid != geteuid())
		snprintf(why, why_size, "is somebody else's: its owner must be root or user %u",
			geteuid());
	else if (status.st_mode & (S_IRWXO | S_IWGRP))
		snprintf(why, why_size,
			"has mode %04o: others may not read or write a secret, nor its group write "
			"it (chmod 0640 or 0600)",
			status.st_mode & 07777);
	else
		return 0;
	return -EINVAL;
}

static int host_auth_file_parse(
	struct host_auth_key *key, char *text, ssize_t length, char *why, size_t why_size)
{
	const char *fault = NULL;
	size_t line;

	if (length < 0) {
		snprintf(why, why_size, "cannot be read: %s", strerror(errno));
		return -EINVAL;
	}
	text[length] = '\0';
	line = strcspn(text, " \t\r\n");
	/* Nothing but its end may follow. */
	if (text[line + strspn(text + line, " \t\r\n")])
		fault = "has more than a secret in it";
	else if (!nvme_auth_secret_parse(text, line, &key->secret, &fault))
		return 0;
	snprintf(why, why_size, "%s", fault);
	return -EINVAL;
}

int host_auth_key_read(struct host_auth_key *key, const char *file, char *why, size_t why_size)
{
	/* Of a longer file the last byte is something else than the secret. */
	char text[NVME_AUTH_SECRET_TEXT_MAX + 16];
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int error;

	if (fd < 0) {
		error = -errno;
		snprintf(why, why_size, "cannot be opened: %s", strerror(errno));
		return error;
	}
	error = host_auth_file_check(fd, why, why_size);
	if (!error)
		error = host_auth_file_parse(
			key, text, read(fd, text, sizeof(text) - 1), why, why_size);
	close(fd);
	dhchap_wipe(text, sizeof(text));
	if (error)
		return error;
	key->file = strdup(file);
	if (key->file)
		return 0;
	snprintf(why, why_size, "out of memory");
	return -ENOMEM;
}
