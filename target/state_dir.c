/* SPDX-License-Identifier: MIT */
/*
 * Files of the state directory: replaced atomically, checked when read.
 */
#include "target/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/nvme/crc32c.h"

/* A million registrants are less. */
#define STATE_DIR_MAX_BYTES (128u << 20)
#define STATE_NEW_SUFFIX    ".new"
#define STATE_HEAD	    "haul-%s %u %zu %08" PRIx32 "\n"
/* More than the longest first line. */
#define STATE_HEAD_BYTES    96
#define STATE_KIND_BYTES    32

/* --- the directory --------------------------------------------------------------------------- */

int state_dir_open(struct state_dir *dir, const char *path, char *why, size_t why_size)
{
	*dir = (struct state_dir){.path = path, .fd = -1, .max_bytes = STATE_DIR_MAX_BYTES};
	if (!path[0])
		return 0;
	dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd >= 0 && !faccessat(dir->fd, ".", W_OK | X_OK, AT_EACCESS) &&
		!flock(dir->fd, LOCK_EX | LOCK_NB))
		return 0;
	snprintf(why, why_size, "the state directory %s cannot be used: %s", path,
		errno == EWOULDBLOCK ? "another hauld does" : strerror(errno));
	return -errno;
}

void state_dir_close(struct state_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

void state_dir_name(
	const struct nvme_uuid *uuid, const char *suffix, char ret_name[STATE_NAME_BYTES])
{
	char text[NVME_UUID_TEXT];

	nvme_uuid_format(uuid, text);
	snprintf(ret_name, STATE_NAME_BYTES, "%s%s", text, suffix);
}

/* --- writing --------------------------------------------------------------------------------- */

static int state_dir_write_fd(int fd, const char *text, size_t length)
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

static int state_dir_write_beside(
	const struct state_dir *dir, const char *name, const char *text, size_t length)
{
	int fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int error;

	if (fd < 0)
		return -errno;
	error = state_dir_write_fd(fd, text, length);
	if (close(fd) && !error)
		error = -errno;
	return error;
}

int state_dir_write(const struct state_dir *dir, const char *name, const char *text, size_t length)
{
	char fresh[STATE_NAME_BYTES + sizeof(STATE_NEW_SUFFIX)];
	int error;

	if (!state_dir_is_there(dir))
		return -EOPNOTSUPP;
	if (length > dir->max_bytes)
		return -EFBIG;
	snprintf(fresh, sizeof(fresh), "%s" STATE_NEW_SUFFIX, name);
	error = state_dir_write_beside(dir, fresh, text, length);
	if (!error && renameat(dir->fd, fresh, dir->fd, name))
		error = -errno;
	if (error) {
		(void)unlinkat(dir->fd, fresh, 0);
		return error;
	}
	return fsync(dir->fd) ? -errno : 0;
}

/* Also one that is gone already: whether that is on the disk nobody has seen. */
int state_dir_remove(const struct state_dir *dir, const char *name)
{
	if (!state_dir_is_there(dir))
		return -EOPNOTSUPP;
	if (unlinkat(dir->fd, name, 0) && errno != ENOENT)
		return -errno;
	return fsync(dir->fd) ? -errno : 0;
}

/* --- reading --------------------------------------------------------------------------------- */

static int state_dir_read_fd(int fd, size_t max_bytes, char **ret, size_t *ret_length)
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
		int error = length < 0 ? -errno : -EBADMSG;

		free(text);
		return error;
	}
	text[length] = '\0';
	*ret = text;
	*ret_length = (size_t)length;
	return 0;
}

int state_dir_read(const struct state_dir *dir, const char *name, char **ret, size_t *ret_length)
{
	int fd, error;

	*ret = NULL;
	*ret_length = 0;
	if (!state_dir_is_there(dir))
		return 0;
	fd = openat(dir->fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	error = state_dir_read_fd(fd, dir->max_bytes, ret, ret_length);
	close(fd);
	return error;
}

int state_dir_has(const struct state_dir *dir, const char *name)
{
	if (!state_dir_is_there(dir))
		return 0;
	if (!faccessat(dir->fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

/* --- sealed texts ---------------------------------------------------------------------------- */

int state_text_seal(
	const char *kind, unsigned version, const char *body, char **ret, size_t *ret_length)
{
	size_t length = strlen(body);
	char head[STATE_HEAD_BYTES];
	size_t head_length = (size_t)snprintf(head, sizeof(head), STATE_HEAD, kind, version, length,
		nvme_crc32c(0, body, length));
	char *text = malloc(head_length + length + 1);

	if (!text)
		return -ENOMEM;
	memcpy(text, head, head_length);
	memcpy(text + head_length, body, length + 1);
	*ret = text;
	*ret_length = head_length + length;
	return 0;
}

struct state_head {
	unsigned version;
	size_t length;
	uint32_t crc;
};

/* Its length with the end of the line; 0: it is not one. */
static size_t state_head_parse(
	const char *kind, const char *text, size_t length, struct state_head *ret)
{
	const char *end = memchr(text, '\n', min_of(length, (size_t)STATE_HEAD_BYTES - 1));
	char head[STATE_HEAD_BYTES] = "", again[STATE_HEAD_BYTES];
	char found[STATE_KIND_BYTES];

	if (!end)
		return 0;
	memcpy(head, text, (size_t)(end - text) + 1);
	if (sscanf(head, "haul-%31s %u %zu %" SCNx32, found, &ret->version, &ret->length,
		    &ret->crc) != 4 ||
		strcmp(found, kind))
		return 0;
	/* Written in one way only. */
	snprintf(again, sizeof(again), STATE_HEAD, kind, ret->version, ret->length, ret->crc);
	return strcmp(again, head) ? 0 : strlen(head);
}

const char *state_text_open(
	const char *kind, unsigned version, const char *text, size_t length, const char **ret_fault)
{
	struct state_head head;
	size_t head_length = state_head_parse(kind, text, length, &head);

	if (!head_length)
		*ret_fault = "its first line does not say that it is one";
	else if (head.version != version)
		*ret_fault = "its version is not known: a newer hauld has written it";
	else if (head.length != length - head_length)
		*ret_fault = "it is cut short, or longer than it says";
	else if (nvme_crc32c(0, text + head_length, head.length) != head.crc)
		*ret_fault = "its checksum is wrong";
	else
		return text + head_length;
	return NULL;
}
