/* SPDX-License-Identifier: MIT */
/*
 * Opens a block device or a regular file as a disk: claims it, chooses direct I/O where the file
 * system can, finds size, block size, cache and a stable identity.
 */
#include "target/backend_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "target/identity.h"

#define DISK_PROBE_BYTES     4096
/* The largest block that a local file system has. */
#define DISK_MAX_FS_BLOCK    65536
/* A second in all. */
#define DISK_BUSY_TRIES	     50
#define DISK_BUSY_PAUSE_NS   20000000
/* More would be no help, and fill the line; getgroups() then gives none. */
#define DISK_MAX_GROUPS_TOLD 16
#define DISK_USER_BYTES	     160

/* A line of /sys/dev/block/MAJOR:MINOR/NAME without its newline; "" when there is none. */
static void disk_sysfs(const struct stat *st, const char *name, char *ret, size_t size)
{
	char path[128];
	FILE *file;

	ret[0] = '\0';
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(st->st_rdev),
		minor(st->st_rdev), name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(ret, (int)size, file))
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	fclose(file);
}

/* A partition has no queue of its own. */
static void disk_sysfs_queue(const struct stat *st, const char *name, char *ret, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "queue/%s", name);
	disk_sysfs(st, path, ret, size);
	if (ret[0])
		return;
	snprintf(path, sizeof(path), "../queue/%s", name);
	disk_sysfs(st, path, ret, size);
}

/* --- identity -------------------------------------------------------------------------------- */

/* What the device says of itself; false: nothing. */
static bool disk_device_serial(const struct stat *st, char *ret, size_t size)
{
	static const char *const names[] = {"wwid", "device/wwid", "dm/uuid", "device/serial",
		"serial", "md/uuid", "../wwid", "../device/wwid", "../device/serial", "../serial"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		disk_sysfs(st, names[i], ret, size);
		if (ret[0])
			return true;
	}
	return false;
}

static void disk_identify_device(struct disk *disk, const struct stat *st, const char *path)
{
	struct identity_hash hash;
	char text[256], partition[32];
	char *real = NULL;

	identity_init(&hash, "device");
	disk_sysfs(st, "partition", partition, sizeof(partition));
	if (disk_device_serial(st, text, sizeof(text))) {
		identity_add(&hash, text, strlen(text));
	} else {
		/* A loop device is what lies behind it; the rest is known by its name only. */
		disk_sysfs(st, "loop/backing_file", text, sizeof(text));
		if (!text[0])
			real = realpath(path, NULL);
		identity_add_machine(&hash);
		identity_add(&hash, real ? real : text, strlen(real ? real : text));
		free(real);
	}
	identity_add(&hash, partition, strlen(partition));
	identity_end(&hash, disk->base.geometry.identity);
}

static void disk_identify_file(struct disk *disk, const struct stat *st)
{
	struct identity_hash hash;
	struct statfs fs;
	uint64_t inode = st->st_ino;
	uint64_t device = st->st_dev;

	identity_init(&hash, "file");
	identity_add_machine(&hash);
	/* File systems with an id of their own keep it over a move to another device. */
	if (!fstatfs(disk->fd, &fs) && (fs.f_fsid.__val[0] || fs.f_fsid.__val[1]))
		identity_add(&hash, &fs.f_fsid, sizeof(fs.f_fsid));
	else
		identity_add(&hash, &device, sizeof(device));
	identity_add(&hash, &inode, sizeof(inode));
	identity_end(&hash, disk->base.geometry.identity);
}

/* --- opening --------------------------------------------------------------------------------- */

static bool disk_read_works(int fd, uint32_t block_bytes, uint64_t offset)
{
	void *bytes;
	ssize_t got;

	if (posix_memalign(&bytes, DISK_PROBE_BYTES, DISK_PROBE_BYTES))
		return false;
	got = pread(fd, bytes, block_bytes, (off_t)offset);
	free(bytes);
	return got >= 0;
}

/* Some file systems (ext4) take smaller blocks than the disk has, and go through the page cache. */
static bool disk_is_aligned(int fd, uint32_t block_bytes)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) || !(stx.stx_mask & STATX_DIOALIGN))
		return true; /* not known: found out by use */
	return stx.stx_dio_offset_align && block_bytes % stx.stx_dio_offset_align == 0;
}

/* Direct I/O in blocks of BLOCK_BYTES is possible, not only promised. */
static bool disk_direct_works(int fd, uint32_t block_bytes)
{
	return disk_is_aligned(fd, block_bytes) && disk_read_works(fd, block_bytes, 0) &&
	       disk_read_works(fd, block_bytes, block_bytes);
}

/* A process that was killed with I/O under way keeps its files open for a moment longer: the kernel
 * ends its ring later than itself, and whoever starts it again need not know. */
static bool disk_busy_passes(unsigned *tries)
{
	const struct timespec pause = {.tv_nsec = DISK_BUSY_PAUSE_NS};

	if (++*tries > DISK_BUSY_TRIES)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/* Ours alone, or with other readers: also against another path to the same file, in this process
 * or another one. Goes with the descriptor. */
static int disk_claim(const struct disk *disk, const char *path, char *why, size_t why_size)
{
	int how = disk->base.geometry.read_only ? LOCK_SH : LOCK_EX;
	unsigned tries = 0;
	int error;

	do
		error = flock(disk->fd, how | LOCK_NB);
	while (error && disk_busy_passes(&tries));
	if (!error)
		return 0;
	snprintf(why, why_size,
		"%s is in use already, by this or another process, maybe under another name: "
		"export it once",
		path);
	return -EBUSY;
}

/* Nothing but the writing is in the way, as far as can be told. */
static bool disk_readonly_would_do(const char *path, int flags, int error)
{
	if ((flags & O_ACCMODE) == O_RDONLY)
		return false;
	return error == -EROFS || error == -EPERM || (error == -EACCES && !access(path, R_OK));
}

/*
 * Whom the file has to let in, ", as user haul with groups haul disk"; numbers where there is no
 * name. A service's user is often not the one that the administrator tried it as.
 */
static void disk_describe_user(char *ret, size_t size)
{
	const struct passwd *user = getpwuid(geteuid());
	gid_t groups[DISK_MAX_GROUPS_TOLD + 1] = {getegid()};
	int nr = getgroups(DISK_MAX_GROUPS_TOLD, groups + 1);
	size_t at;

	if (user)
		snprintf(ret, size, ", as user %s with groups", user->pw_name);
	else
		snprintf(ret, size, ", as user %u with groups", geteuid());
	for (int i = 0; i <= max_of(nr, 0); i++) {
		const struct group *group = getgrgid(groups[i]);

		if (i && groups[i] == groups[0])
			continue;
		at = strlen(ret);
		if (group)
			snprintf(ret + at, size - at, " %s", group->gr_name);
		else
			snprintf(ret + at, size - at, " %u", groups[i]);
	}
}

static int disk_open_fd(const char *path, int flags, char *why, size_t why_size)
{
	char user[DISK_USER_BYTES] = "";
	unsigned tries = 0;
	int fd;

	do
		fd = open(path, flags);
	while (fd < 0 && errno == EBUSY && disk_busy_passes(&tries));
	if (fd >= 0)
		return fd;
	fd = -errno;
	if (fd == -EACCES)
		disk_describe_user(user, sizeof(user));
	if (fd == -EBUSY)
		snprintf(why, why_size, "%s is mounted or used by something else: release it first",
			path);
	else if (fd != -EINVAL)
		snprintf(why, why_size, "%s cannot be opened%s: %s%s", path,
			disk_readonly_would_do(path, flags, fd)
				? " for writing (readonly would do without)"
				: "",
			strerror(-fd), user);
	return fd;
}

/* The smallest block, or just ASKED, that direct I/O takes; 0: none. */
static uint32_t disk_direct_block(int fd, uint32_t asked)
{
	static const uint32_t blocks[] = {512, 4096};

	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
		if ((!asked || asked == blocks[i]) && disk_direct_works(fd, blocks[i]))
			return blocks[i];
	return 0;
}

/* With direct I/O where the file system knows it, in blocks of ASKED or, if that is 0, of the size
 * that suits it. */
static int disk_open_best(struct disk *disk, const char *path, int flags, uint32_t asked,
	uint32_t *ret_block, char *why, size_t why_size)
{
	uint32_t block;

	disk->fd = disk_open_fd(path, flags | O_DIRECT, why, why_size);
	block = disk->fd >= 0 ? disk_direct_block(disk->fd, asked) : 0;
	if (block) {
		disk->direct = true;
		*ret_block = block;
		return 0;
	}
	if (disk->fd >= 0)
		close(disk->fd);
	else if (disk->fd != -EINVAL)
		return disk->fd;
	disk->fd = disk_open_fd(path, flags, why, why_size);
	if (disk->fd >= 0) {
		*ret_block = asked ? asked : 512;
		log_info("%s: no direct I/O in blocks of %u bytes there, using the page cache",
			path, *ret_block);
		return 0;
	}
	if (disk->fd == -EINVAL)
		snprintf(why, why_size, "%s cannot be opened: %s", path, strerror(EINVAL));
	return disk->fd;
}

/* --- geometry -------------------------------------------------------------------------------- */

static uint32_t disk_limit(const struct stat *st, const char *name, uint64_t unit_bytes)
{
	char text[32];
	uint64_t bytes;

	disk_sysfs_queue(st, name, text, sizeof(text));
	bytes = strtoull(text, NULL, 10) * unit_bytes;
	return bytes <= UINT32_MAX ? (uint32_t)bytes : 0;
}

/* The minimum is at least a physical block; of a RAID it is a chunk, and the optimum a stripe. */
static void disk_measure_limits(const struct stat *st, struct backend_limits *ret)
{
	*ret = (struct backend_limits){.write_bytes = disk_limit(st, "minimum_io_size", 1),
		.optimal_bytes = disk_limit(st, "optimal_io_size", 1),
		.discard_bytes = disk_limit(st, "discard_granularity", 1),
		.boundary_bytes = disk_limit(st, "chunk_sectors", 512)};
}

static int disk_measure_device(struct disk *disk, const struct stat *st, const char *path,
	uint32_t block_bytes, char *why, size_t why_size)
{
	struct backend_geometry *geometry = &disk->base.geometry;
	char text[32];
	int logical;

	if (ioctl(disk->fd, BLKSSZGET, &logical) ||
		ioctl(disk->fd, BLKGETSIZE64, &geometry->size_bytes)) {
		int error = -errno;

		snprintf(why, why_size, "%s does not tell its size: %s", path, strerror(-error));
		return error;
	}
	geometry->block_bytes = block_bytes ? block_bytes : (uint32_t)logical;
	if (geometry->block_bytes < (uint32_t)logical) {
		snprintf(why, why_size, "block=%u is less than the %d bytes of %s: leave it out",
			block_bytes, logical, path);
		return -EINVAL;
	}
	disk_sysfs_queue(st, "write_cache", text, sizeof(text));
	geometry->volatile_cache = !disk->direct || strcmp(text, "write through") != 0;
	disk_sysfs_queue(st, "discard_max_bytes", text, sizeof(text));
	geometry->can_discard = strtoull(text, NULL, 10) > 0;
	disk_measure_limits(st, &geometry->limits);
	disk_identify_device(disk, st, path);
	return 0;
}

static void disk_measure_file(struct disk *disk, const struct stat *st, uint32_t block_bytes)
{
	struct backend_geometry *geometry = &disk->base.geometry;

	geometry->block_bytes = block_bytes;
	geometry->size_bytes = (uint64_t)st->st_size;
	geometry->volatile_cache = true;
	geometry->can_discard = true;
	geometry->discard_zeroes = true;
	/* Of a network's file system it is something else. */
	if (st->st_blksize <= DISK_MAX_FS_BLOCK)
		geometry->limits.write_bytes = geometry->limits.discard_bytes =
			(uint32_t)st->st_blksize;
	disk_identify_file(disk, st);
}

static int disk_check_size(struct disk *disk, const char *path, char *why, size_t why_size)
{
	struct backend_geometry *geometry = &disk->base.geometry;
	uint64_t rest;

	if (geometry->block_bytes != 512 && geometry->block_bytes != 4096) {
		snprintf(why, why_size, "%s has blocks of %u bytes: only 512 and 4096 are possible",
			path, geometry->block_bytes);
		return -EINVAL;
	}
	rest = geometry->size_bytes % geometry->block_bytes;
	if (rest)
		log_warning("%s: its last %llu bytes are not a whole block and not exported", path,
			(unsigned long long)rest);
	geometry->size_bytes -= rest;
	if (geometry->size_bytes)
		return 0;
	snprintf(why, why_size, "%s is empty: give it a size (truncate -s 1G)", path);
	return -EINVAL;
}

static int disk_open_file(struct disk *disk, const char *path, int flags, uint32_t block_bytes,
	const struct stat *st, char *why, size_t why_size)
{
	uint32_t block;
	int error = disk_open_best(disk, path, flags, block_bytes, &block, why, why_size);

	if (!error)
		disk_measure_file(disk, st, block);
	return error;
}

static int disk_open_device(struct disk *disk, const char *path, int flags, uint32_t block_bytes,
	const struct stat *st, char *why, size_t why_size)
{
	/* O_EXCL: against mounts and other openers, by whatever node, and for partitions. */
	uint32_t block;
	int error = disk_open_best(disk, path, flags | O_EXCL, 4096, &block, why, why_size);

	disk->is_device = true;
	return error ? error : disk_measure_device(disk, st, path, block_bytes, why, why_size);
}

static int disk_open_any(
	struct disk *disk, const char *path, uint32_t block_bytes, char *why, size_t why_size)
{
	int flags = (disk->base.geometry.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
	struct stat st;

	if (stat(path, &st)) {
		int error = -errno;

		snprintf(why, why_size, "%s: %s: give a file or a device that exists", path,
			strerror(-error));
		return error;
	}
	if (S_ISBLK(st.st_mode))
		return disk_open_device(disk, path, flags, block_bytes, &st, why, why_size);
	if (S_ISREG(st.st_mode))
		return disk_open_file(disk, path, flags, block_bytes, &st, why, why_size);
	snprintf(why, why_size, "%s is neither a block device nor a regular file", path);
	return -EINVAL;
}

int disk_open(const char *path, bool read_only, uint32_t block_bytes, struct disk **ret, char *why,
	size_t why_size)
{
	struct disk *disk = calloc(1, sizeof(*disk));
	int error;

	if (!disk)
		return -ENOMEM;
	disk->fd = -1;
	disk->base.ops = &backend_disk_ops;
	disk->base.geometry.read_only = read_only;
	error = disk_open_any(disk, path, block_bytes, why, why_size);
	if (!error)
		error = disk_check_size(disk, path, why, why_size);
	if (!error)
		error = disk_claim(disk, path, why, why_size);
	if (error) {
		disk_close(&disk->base);
		return error;
	}
	*ret = disk;
	return 0;
}

int disk_size(const struct backend *backend, uint64_t *ret_bytes)
{
	const struct disk *disk = container_of(backend, struct disk, base);
	struct stat st;

	if (disk->is_device)
		return ioctl(disk->fd, BLKGETSIZE64, ret_bytes) ? -errno : 0;
	if (fstat(disk->fd, &st))
		return -errno;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

bool disk_is_named(const struct backend *backend)
{
	const struct disk *disk = container_of(backend, struct disk, base);
	struct stat here, there;

	if (fstat(disk->fd, &here) || stat(backend->path, &there))
		return false;
	if (disk->is_device)
		return S_ISBLK(there.st_mode) && here.st_rdev == there.st_rdev;
	return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

void disk_close(struct backend *backend)
{
	struct disk *disk = container_of(backend, struct disk, base);

	if (disk->fd >= 0)
		close(disk->fd);
	free(disk);
}
