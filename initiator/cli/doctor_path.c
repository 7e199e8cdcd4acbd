/* SPDX-License-Identifier: MIT */
/*
 * haul doctor URI: to the target and back, one step after the other: name, route, discovery,
 * controller, timed reads.
 */
#include "initiator/cli/doctor.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DOCTOR_READS	  200
#define DOCTOR_READ_BYTES 4096u

static double doctor_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* --- name ----------------------------------------------------------------------------------- */

static bool doctor_resolve(struct doctor *doctor, const struct nvme_uri *uri)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char address[NI_MAXHOST] = "?";
	double start = doctor_now_us();
	int error = getaddrinfo(uri->host, NULL, &hints, &found);

	if (error) {
		doctor_tell(doctor, DOCTOR_PROBLEM, "name",
			"getent ahosts HOST    # then /etc/hosts and /etc/resolv.conf", "%s: %s",
			uri->host, gai_strerror(error));
		return false;
	}
	(void)getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof(address), NULL, 0,
		NI_NUMERICHOST);
	doctor_tell(doctor, DOCTOR_OK, "name", NULL, "%s is %s (%.1f ms)", uri->host, address,
		(doctor_now_us() - start) / 1e3);
	freeaddrinfo(found);
	return true;
}

/* --- discovery and controller ---------------------------------------------------------------- */

/* Connects to URI and tells when it fails; *RET_MS: how long it took. */
static bool doctor_connect(
	struct doctor *doctor, const struct nvme_uri *uri, const char *point, double *ret_ms)
{
	char text[NVME_URI_TEXT_MAX];
	double start = doctor_now_us();
	const char *why = NULL;

	if (nvme_uri_format(uri, text, sizeof(text)) < 0)
		return false;
	if (cli_try_connect(doctor->cli, text, NULL, &why) != CLI_OK) {
		if (why)
			doctor_tell(doctor, DOCTOR_PROBLEM, point, NULL, "%s", why);
		cli_leave(doctor->cli);
		return false;
	}
	*ret_ms = (doctor_now_us() - start) / 1e3;
	return true;
}

static bool doctor_discover(struct doctor *doctor, const struct nvme_uri *named)
{
	struct haul_discovery_log *log = NULL;
	struct nvme_uri *uri = malloc(sizeof(*uri));
	bool connected = false;
	double ms = 0;
	int error;

	if (!uri)
		return false;
	*uri = *named;
	uri->nsid = 0;
	strcpy(uri->nqn, NVME_DISCOVERY_NQN);
	connected = doctor_connect(doctor, uri, "discovery", &ms);
	free(uri);
	if (!connected)
		return false;
	error = haul_discover(doctor->cli->ctrl, &log, 0);
	if (!error)
		error = cli_wait(doctor->cli);
	if (error && error != -EINTR)
		doctor_tell(doctor, DOCTOR_PROBLEM, "discovery", NULL, "%s",
			haul_ctrl_error(doctor->cli->ctrl));
	else if (!error)
		doctor_tell(doctor, DOCTOR_OK, "discovery", NULL,
			"%u entries for this host (connected in %.1f ms)", log->nr, ms);
	free(log);
	cli_leave(doctor->cli);
	return !error;
}

/* --- reads ---------------------------------------------------------------------------------- */

static int doctor_compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* One read after the other; 0 or a negative errno. */
static int doctor_read_loop(
	struct cli *cli, struct haul_queue *queue, uint32_t nsid, struct iovec *iov, double *us)
{
	for (int i = 0; i < DOCTOR_READS; i++) {
		double start = doctor_now_us();
		int error = haul_readv(queue, nsid, iov, 1, 0, 0);

		if (!error)
			error = cli_wait(cli);
		if (error)
			return error;
		us[i] = doctor_now_us() - start;
	}
	qsort(us, DOCTOR_READS, sizeof(*us), doctor_compare_times);
	return 0;
}

static int doctor_read_queue(struct doctor *doctor, uint32_t nsid, struct iovec *iov, double *us)
{
	struct haul_queue_options options = {.size = sizeof(options), .depth = 1};
	struct cli *cli = doctor->cli;
	struct haul_queue *queue;
	struct haul_mem *mem = NULL;
	int error = haul_mem_register(cli->loop, iov->iov_base, iov->iov_len, &mem);

	if (error)
		return error;
	error = haul_queue_create(cli->ctrl, &options, 0, &queue);
	if (!error) {
		error = cli_wait(cli);
		if (!error)
			error = doctor_read_loop(cli, queue, nsid, iov, us);
		if (error != -EINTR && !haul_queue_close(queue, 0))
			(void)cli_wait(cli);
	}
	if (error == -EINTR)
		cli_leave(cli); /* until nothing can touch the memory any more */
	haul_mem_unregister(mem);
	return error;
}

static void doctor_reads(struct doctor *doctor, uint32_t nsid)
{
	struct iovec iov = {.iov_len = DOCTOR_READ_BYTES};
	struct haul_ns_info info;
	double us[DOCTOR_READS];
	int error = haul_ns_info(doctor->cli->ctrl, nsid, &info, 0);

	if (!error)
		error = cli_wait(doctor->cli);
	if (!error) {
		iov.iov_len =
			info.block_bytes > DOCTOR_READ_BYTES ? info.block_bytes : DOCTOR_READ_BYTES;
		error = posix_memalign(&iov.iov_base, DOCTOR_READ_BYTES, iov.iov_len) ? -ENOMEM : 0;
	}
	if (!error)
		error = doctor_read_queue(doctor, nsid, &iov, us);
	if (!error)
		doctor_tell(doctor, DOCTOR_OK, "reads", NULL,
			"%d of %zu bytes, one at a time: min %.0f, median %.0f, max %.0f us",
			DOCTOR_READS, iov.iov_len, us[0], us[DOCTOR_READS / 2],
			us[DOCTOR_READS - 1]);
	else if (error != -EINTR)
		doctor_tell(doctor, DOCTOR_PROBLEM, "reads", NULL, "namespace %u: %s%s%s", nsid,
			strerror(-error), haul_ctrl_error(doctor->cli->ctrl)[0] ? ": " : "",
			haul_ctrl_error(doctor->cli->ctrl));
	free(iov.iov_base);
}

static void doctor_controller(struct doctor *doctor, const struct nvme_uri *uri)
{
	struct haul_ctrl_info info;
	int64_t nsid;
	double ms;

	if (!doctor_connect(doctor, uri, "controller", &ms))
		return;
	if (!haul_ctrl_info(doctor->cli->ctrl, &info))
		doctor_tell(doctor, DOCTOR_OK, "controller", NULL,
			"%s: %s, %u queues of depth %u (connected in %.1f ms)", info.subsystem_nqn,
			info.model, info.max_queues, info.max_queue_depth, ms);
	nsid = haul_ns_default(doctor->cli->ctrl);
	if (nsid == -ENOTUNIQ) {
		uint32_t first;

		haul_ns_list(doctor->cli->ctrl, &first, 1);
		nsid = first;
	}
	if (nsid > 0)
		doctor_reads(doctor, (uint32_t)nsid);
	else
		doctor_tell(doctor, DOCTOR_HINT, "reads", NULL, "no namespace for this host");
	cli_leave(doctor->cli);
}

void doctor_path(struct doctor *doctor)
{
	const struct nvme_uri *uri = doctor->uri;

	if (!doctor_resolve(doctor, uri))
		return;
	if (uri->trtype == NVME_TRTYPE_RDMA)
		doctor_route(doctor, uri->host, uri->port);
	/* Some have their discovery service elsewhere. */
	if (doctor_discover(doctor, uri) || uri->nqn[0])
		doctor_controller(doctor, uri);
}
