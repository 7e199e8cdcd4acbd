/* SPDX-License-Identifier: MIT */
/*
 * Files of the state directory that are there or not.
 */
#include "target/write_protect_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "target/reservation_store.h"

#define WRITE_PROTECT_SUFFIX ".write-protect"

struct write_protect_name {
	char text[NVME_UUID_TEXT + sizeof(WRITE_PROTECT_SUFFIX)];
};

static struct write_protect_name write_protect_store_name(const struct nvme_uuid *uuid)
{
	struct write_protect_name name;
	char text[NVME_UUID_TEXT];

	nvme_uuid_format(uuid, text);
	snprintf(name.text, sizeof(name.text), "%s%s", text, WRITE_PROTECT_SUFFIX);
	return name;
}

bool write_protect_store_is_there(const struct reservation_store *store)
{
	return store->fd >= 0;
}

static int write_protect_store_create(const struct reservation_store *store, const char *name)
{
	int fd = openat(store->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int error;

	if (fd < 0)
		return -errno;
	error = fsync(fd) ? -errno : 0;
	close(fd);
	return error;
}

int write_protect_store_save(
	const struct reservation_store *store, const struct nvme_uuid *uuid, bool protect)
{
	struct write_protect_name name = write_protect_store_name(uuid);
	int error = 0;

	if (protect)
		error = write_protect_store_create(store, name.text);
	else if (unlinkat(store->fd, name.text, 0))
		error = errno == ENOENT ? 0 : -errno;
	if (error)
		return error;
	return fsync(store->fd) ? -errno : 0;
}

int write_protect_store_load(const struct reservation_store *store, const struct nvme_uuid *uuid)
{
	struct write_protect_name name = write_protect_store_name(uuid);

	if (!write_protect_store_is_there(store))
		return 0;
	if (!faccessat(store->fd, name.text, F_OK, AT_SYMLINK_NOFOLLOW))
		return 1;
	return errno == ENOENT ? 0 : -errno;
}
