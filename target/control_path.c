/* SPDX-License-Identifier: MIT */
/*
 * The control socket's name, and the way to take it over from a hauld that was killed.
 */
#include "target/control_path.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Connections that wait to be accepted. */
#define CONTROL_PATH_BACKLOG	64
/* Another hauld that starts in the same folder holds it for a moment only. */
#define CONTROL_PATH_LOCK_TRIES 100
#define CONTROL_PATH_LOCK_MS	10

int control_path_set(struct sockaddr_un *ret, const char *path)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!path[0] || strlen(path) >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	memcpy(ret->sun_path, path, strlen(path) + 1);
	return 0;
}

int control_path_default(struct sockaddr_un *ret)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char path[sizeof(ret->sun_path) + 1];

	if (runtime && runtime[0] == '/')
		snprintf(path, sizeof(path), "%s/hauld.sock", runtime);
	else
		snprintf(path, sizeof(path), CONTROL_PATH_SYSTEM);
	return control_path_set(ret, path);
}

static int control_path_connects(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	error = connect(fd, (const struct sockaddr *)address, sizeof(*address)) ? -errno : 0;
	close(fd);
	return error;
}

/* Removes what nobody listens at. */
static int control_path_clear(const struct sockaddr_un *address)
{
	struct stat st;
	int error;

	if (lstat(address->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	error = control_path_connects(address);
	/* EAGAIN: its backlog is full. */
	if (!error || error == -EAGAIN || error == -EPROTOTYPE)
		return -EADDRINUSE;
	if (error != -ECONNREFUSED)
		return error;
	return unlink(address->sun_path) && errno != ENOENT ? -errno : 0;
}

/* The folder, held against others that would look at the same socket at the same time. */
static int control_path_lock(const struct sockaddr_un *address, int *ret_fd)
{
	char path[sizeof(address->sun_path)];
	int fd;

	memcpy(path, address->sun_path, sizeof(path));
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (i == CONTROL_PATH_LOCK_TRIES) {
			close(fd);
			return -EBUSY;
		}
		poll(NULL, 0, CONTROL_PATH_LOCK_MS);
	}
	*ret_fd = fd;
	return 0;
}

static int control_path_bind(const struct sockaddr_un *address, int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	/* Before it has a name, so that nobody can come in between. */
	if (fchmod(fd, S_IRUSR | S_IWUSR) ||
		bind(fd, (const struct sockaddr *)address, sizeof(*address)) ||
		listen(fd, CONTROL_PATH_BACKLOG)) {
		error = -errno;
		close(fd);
		return error;
	}
	*ret_fd = fd;
	return 0;
}

int control_path_listen(const struct sockaddr_un *address, int *ret_fd)
{
	int lock = -1;
	int error = control_path_lock(address, &lock);

	if (error)
		return error;
	error = control_path_clear(address);
	if (!error)
		error = control_path_bind(address, ret_fd);
	close(lock);
	return error;
}
