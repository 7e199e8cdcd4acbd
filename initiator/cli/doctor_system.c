/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: the event loop's engine, locked memory, huge pages, this host's names, the kernel's
 * own host.
 */
#include "initiator/cli/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/nvme/name.h"

/* A pool's region, some queues' capsules and a few buffers of 1 MiB of the caller's. */
#define DOCTOR_MEMLOCK_LEAST (8ull << 20)
/* What hauld's pool grows to by itself. */
#define DOCTOR_MEMLOCK_GOOD  (512ull << 20)

static void doctor_engine(struct doctor *doctor)
{
	struct haul_loop_options options = {.size = sizeof(options), .engine = "io_uring"};
	struct haul_loop *loop = NULL;
	char line[32];
	int error;

	if (doctor->root[0])
		return;
	error = haul_loop_create(&options, &loop);
	haul_loop_destroy(loop);
	if (!error)
		doctor_tell(doctor, DOCTOR_OK, "io_uring", NULL, "allowed");
	else if (doctor_read(doctor, line, sizeof(line), "/proc/sys/kernel/io_uring_disabled") &&
		 strcmp(line, "0") != 0)
		doctor_tell(doctor, DOCTOR_HINT, "io_uring",
			"sysctl kernel.io_uring_disabled=0    # to stay: a line in /etc/sysctl.d/",
			"switched off (kernel.io_uring_disabled is %s): epoll is used, with more "
			"system calls",
			line);
	else
		doctor_tell(doctor, DOCTOR_HINT, "io_uring",
			"docker run --security-opt seccomp=FILE ...    # a profile that allows "
			"io_uring_setup, _enter and _register",
			"not allowed here (%s; containers often forbid it): epoll is used, with "
			"more system calls",
			strerror(-error));
}

static const char doctor_memlock_cure[] =
	"echo '* - memlock unlimited' >/etc/security/limits.d/haul.conf    # and log in again\n"
	"LimitMEMLOCK=infinity    # in a unit of systemd\n"
	"docker run --ulimit memlock=-1 ...\n"
	"lxc config set CONTAINER limits.kernel.memlock unlimited";

static void doctor_memlock(struct doctor *doctor)
{
	struct rlimit limit;

	if (doctor->root[0] || !doctor->rdma)
		return;
	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		doctor_tell(doctor, DOCTOR_UNKNOWN, "locked memory", NULL, "%s", strerror(errno));
	else if (limit.rlim_cur == RLIM_INFINITY)
		doctor_tell(doctor, DOCTOR_OK, "locked memory", NULL, "unlimited");
	else if (limit.rlim_cur >= DOCTOR_MEMLOCK_GOOD)
		doctor_tell(doctor, DOCTOR_OK, "locked memory", NULL, "up to %llu MiB",
			(unsigned long long)limit.rlim_cur >> 20);
	else if (limit.rlim_cur >= DOCTOR_MEMLOCK_LEAST)
		doctor_tell(doctor, DOCTOR_HINT, "locked memory", doctor_memlock_cure,
			"%llu MiB: enough for some queues, little for many",
			(unsigned long long)limit.rlim_cur >> 20);
	else
		doctor_tell(doctor, DOCTOR_PROBLEM, "locked memory", doctor_memlock_cure,
			"only %llu KiB: RDMA needs all its buffers locked",
			(unsigned long long)limit.rlim_cur >> 10);
}

static void doctor_huge_pages(struct doctor *doctor)
{
	char line[32];

	if (doctor_read(doctor, line, sizeof(line), "/proc/sys/vm/nr_hugepages"))
		doctor_tell(doctor, DOCTOR_OK, "huge pages", NULL, "%s reserved; none are needed",
			line);
}

/* --- names ---------------------------------------------------------------------------------- */

static const char doctor_nqn_cure[] =
	"mkdir -p /etc/nvme && uuidgen >/etc/nvme/hostid\n"
	"echo nqn.2014-08.org.nvmexpress:uuid:$(cat /etc/nvme/hostid) >/etc/nvme/hostnqn";

static void doctor_host_nqn(struct doctor *doctor)
{
	const char *why = "";
	char line[512];

	if (!doctor_read(doctor, line, sizeof(line), "/etc/nvme/hostnqn"))
		doctor_tell(doctor, DOCTOR_HINT, "host NQN", doctor_nqn_cure,
			"/etc/nvme/hostnqn cannot be read: haul makes a name from "
			"/etc/machine-id, the kernel's host wants one of its own");
	else if (nvme_nqn_check(line, strlen(line), NVME_NQN_OURS, &why))
		doctor_tell(doctor, DOCTOR_PROBLEM, "host NQN", doctor_nqn_cure,
			"/etc/nvme/hostnqn: %s", why);
	else
		doctor_tell(doctor, DOCTOR_OK, "host NQN", NULL, "%s", line);
}

static void doctor_host_id(struct doctor *doctor)
{
	size_t prefix = strlen(NVME_NQN_UUID_PREFIX);
	char line[64], nqn[512];
	struct nvme_uuid uuid;

	if (!doctor_read(doctor, line, sizeof(line), "/etc/nvme/hostid"))
		return; /* the one in the NQN is taken */
	if (nvme_uuid_parse(line, &uuid))
		doctor_tell(doctor, DOCTOR_PROBLEM, "host id", doctor_nqn_cure,
			"/etc/nvme/hostid is no UUID");
	else if (doctor_read(doctor, nqn, sizeof(nqn), "/etc/nvme/hostnqn") &&
		 !strncmp(nqn, NVME_NQN_UUID_PREFIX, prefix) && strcasecmp(nqn + prefix, line) != 0)
		doctor_tell(doctor, DOCTOR_HINT, "host id", doctor_nqn_cure,
			"%s, but the UUID in the host NQN is another: targets may refuse one name "
			"with two ids",
			line);
	else
		doctor_tell(doctor, DOCTOR_OK, "host id", NULL, "%s", line);
}

/* --- the kernel's own host ------------------------------------------------------------------ */

static void doctor_kernel_host(struct doctor *doctor)
{
	const char *module = doctor->rdma ? "nvme_rdma" : "nvme_tcp";
	const char *cure = doctor->rdma ? "modprobe nvme-rdma" : "modprobe nvme-tcp";

	if (doctor_may(doctor, F_OK, "/sys/module/%s", module))
		doctor_tell(doctor, DOCTOR_OK, "kernel's host", NULL, "%s is loaded", module);
	else
		doctor_tell(doctor, DOCTOR_HINT, "kernel's host", cure,
			"%s is not loaded: nvme connect wants it, haul does not", module);
}

void doctor_system(struct doctor *doctor)
{
	doctor_engine(doctor);
	doctor_memlock(doctor);
	doctor_huge_pages(doctor);
	doctor_host_nqn(doctor);
	doctor_host_id(doctor);
	doctor_kernel_host(doctor);
}
