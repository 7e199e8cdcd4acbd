/* SPDX-License-Identifier: MIT */
/*
 * Files of the state directory: replaced atomically, checked when read.
 */
#include "target/reservation_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/reservation.h"

/* A million registrants are less. */
#define RESERVATION_STORE_MAX_BYTES (128u << 20)
#define RESERVATION_STORE_SUFFIX    ".reservation"

struct reservation_name {
	char text[NVME_UUID_TEXT + sizeof(RESERVATION_STORE_SUFFIX ".new")];
};

static struct reservation_name reservation_store_name(
	const struct nvme_uuid *uuid, const char *suffix)
{
	struct reservation_name name;
	char text[NVME_UUID_TEXT];

	nvme_uuid_format(uuid, text);
	snprintf(name.text, sizeof(name.text), "%s%s", text, suffix);
	return name;
}

/* --- the directory --------------------------------------------------------------------------- */

int reservation_store_open(
	struct reservation_store *store, const char *path, char *why, size_t why_size)
{
	*store = (struct reservation_store){
		.path = path, .fd = -1, .max_bytes = RESERVATION_STORE_MAX_BYTES};
	if (!path[0])
		return 0;
	store->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->fd >= 0 && !faccessat(store->fd, ".", W_OK | X_OK, AT_EACCESS) &&
		!flock(store->fd, LOCK_EX | LOCK_NB))
		return 0;
	snprintf(why, why_size, "the state directory %s cannot be used: %s", path,
		errno == EWOULDBLOCK ? "another hauld does" : strerror(errno));
	return -errno;
}

void reservation_store_close(struct reservation_store *store)
{
	if (store->fd >= 0)
		close(store->fd);
	store->fd = -1;
}

/* --- reading --------------------------------------------------------------------------------- */

static int reservation_store_read_fd(int fd, size_t max_bytes, char **ret, size_t *ret_length)
{
	struct stat st;
	ssize_t length;
	char *text;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max_bytes)
		return -EBADMSG;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	length = pread(fd, text, (size_t)st.st_size, 0);
	if (length != st.st_size) {
		free(text);
		return length < 0 ? -errno : -EBADMSG;
	}
	text[length] = '\0';
	*ret = text;
	*ret_length = (size_t)length;
	return 0;
}

int reservation_store_load(const struct reservation_store *store, const struct nvme_uuid *uuid,
	struct reservation **ret, char *why, size_t why_size)
{
	struct reservation_name name = reservation_store_name(uuid, RESERVATION_STORE_SUFFIX);
	const char *fault = NULL;
	char *text = NULL;
	size_t length = 0;
	int fd, error;

	*ret = NULL;
	if (store->fd < 0)
		return 0;
	fd = openat(store->fd, name.text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return 0;
	error = fd < 0 ? -errno : reservation_store_read_fd(fd, store->max_bytes, &text, &length);
	if (!error)
		error = reservation_store_parse(uuid, text, length, ret, &fault);
	if (error && error != -EBADMSG)
		snprintf(why, why_size, "%s/%s, which has a namespace's reservation: %s",
			store->path, name.text, strerror(-error));
	else if (error)
		snprintf(why, why_size,
			"%s/%s, which has a namespace's reservation, is damaged: %s. Restore it, or "
			"remove it and have the hosts register again",
			store->path, name.text,
			fault ? fault : "it is no regular file of its size");
	free(text);
	if (fd >= 0)
		close(fd);
	return error;
}

/* --- writing --------------------------------------------------------------------------------- */

static int reservation_store_write_fd(int fd, const char *text, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t nr = write(fd, text + done, length - done);

		if (nr < 0 && errno != EINTR)
			return -errno;
		done += nr > 0 ? (size_t)nr : 0;
	}
	return fsync(fd) ? -errno : 0;
}

static int reservation_store_write(
	const struct reservation_store *store, const char *name, const char *text, size_t length)
{
	int fd = openat(
		store->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int error;

	if (fd < 0)
		return -errno;
	error = reservation_store_write_fd(fd, text, length);
	if (close(fd) && !error)
		error = -errno;
	return error;
}

static int reservation_store_replace(const struct reservation_store *store,
	const struct nvme_uuid *uuid, const char *text, size_t length)
{
	struct reservation_name name = reservation_store_name(uuid, RESERVATION_STORE_SUFFIX);
	struct reservation_name fresh =
		reservation_store_name(uuid, RESERVATION_STORE_SUFFIX ".new");
	int error = reservation_store_write(store, fresh.text, text, length);

	if (!error && renameat(store->fd, fresh.text, store->fd, name.text))
		error = -errno;
	if (error) {
		(void)unlinkat(store->fd, fresh.text, 0);
		return error;
	}
	return fsync(store->fd) ? -errno : 0;
}

static int reservation_store_remove(
	const struct reservation_store *store, const struct nvme_uuid *uuid)
{
	struct reservation_name name = reservation_store_name(uuid, RESERVATION_STORE_SUFFIX);

	if (unlinkat(store->fd, name.text, 0) && errno != ENOENT)
		return -errno;
	return fsync(store->fd) ? -errno : 0;
}

int reservation_store_save(const struct reservation_store *store, const struct nvme_uuid *uuid,
	const struct reservation *state)
{
	size_t length = 0;
	char *text = NULL;
	int error;

	if (store->fd < 0)
		return -EOPNOTSUPP;
	if (!state->ptpl)
		return reservation_store_remove(store, uuid);
	error = reservation_store_format(uuid, state, &text, &length);
	if (!error && length > store->max_bytes)
		error = -EFBIG;
	if (!error)
		error = reservation_store_replace(store, uuid, text, length);
	free(text);
	return error;
}
