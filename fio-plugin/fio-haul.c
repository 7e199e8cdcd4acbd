/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fio's engine over libhaul: fio --ioengine=external:.../fio-haul.so --uri=rdma://HOST/NQN/NSID.
 * Its options, and I/O.
 */
#include "fio-plugin/fio_haul.h"

#include <sys/wait.h>
#include <unistd.h>

#define HAUL_OPTION(NAME, TYPE, HELP, ...)                                            \
	{                                                                             \
		.name = #NAME, .lname = "haul " #NAME, .type = TYPE,                  \
		.off1 = offsetof(struct fio_haul_options, NAME), .help = HELP,        \
		.category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID, __VA_ARGS__ \
	}

static struct fio_option options[] = {
	HAUL_OPTION(uri, FIO_OPT_STR_STORE, "Target: rdma://HOST[:PORT]/NQN/NSID or tcp://..."),
	HAUL_OPTION(hostnqn, FIO_OPT_STR_STORE, "NQN of this host"),
	HAUL_OPTION(hostid, FIO_OPT_STR_STORE, "UUID of this host"),
	HAUL_OPTION(haul_engine, FIO_OPT_STR_STORE, "io_uring or epoll, not the best there is"),
	HAUL_OPTION(hdgst, FIO_OPT_BOOL, "TCP: header digest", .def = "0"),
	HAUL_OPTION(ddgst, FIO_OPT_BOOL, "TCP: data digest", .def = "0"),
	HAUL_OPTION(tos, FIO_OPT_INT, "IP traffic class", .def = "0", .maxval = 255),
	HAUL_OPTION(queue_depth, FIO_OPT_INT, "Depth of the queue, instead of iodepth", .def = "0",
		.maxval = 4096),
	HAUL_OPTION(
		keep_alive, FIO_OPT_INT, "Keep-alive timeout in ms, 0 for none", .def = "120000"),
	HAUL_OPTION(command_timeout, FIO_OPT_INT, "Time-out of a command in ms, 0 for none",
		.def = "30000"),
	HAUL_OPTION(connect_timeout, FIO_OPT_INT, "Time-out of the connect in ms", .def = "10000"),
	{.name = NULL},
};

/* --- the job's life ------------------------------------------------------------------------ */

/* What the child finds out: of each file, or why not. */
struct fio_haul_size {
	uint64_t size;
	int error;
};

/* In a child of its own: tells the sizes of all files through FD. */
static void fio_haul_tell_sizes(struct thread_data *td, int fd)
{
	struct fio_haul_size answer = {0};
	struct fio_haul_job *job;

	answer.error = fio_haul_open(td, 0, &job);
	for (unsigned i = 0; !i || i < td->o.nr_files; i++) {
		if (!answer.error)
			answer.size =
				job->volumes[i].info.nr_blocks * job->volumes[i].info.block_bytes;
		if (write(fd, &answer, sizeof(answer)) != sizeof(answer) || answer.error)
			break;
	}
	if (!answer.error)
		fio_haul_close(job);
	fflush(NULL);
}

static int fio_haul_read_sizes(struct thread_data *td, int fd)
{
	struct fio_haul_size answer;
	struct fio_file *f;
	unsigned int i;

	for_each_file(td, f, i)
	{
		if (read(fd, &answer, sizeof(answer)) != sizeof(answer))
			return EIO;
		if (answer.error)
			return answer.error;
		f->filetype = FIO_TYPE_BLOCK;
		f->real_file_size = answer.size;
		fio_file_set_size_known(f);
	}
	return 0;
}

/*
 * In fio's parent, before the jobs are forked. RDMA must not be opened in a process that forks: its
 * device, which librdmacm keeps open, would be shared by all jobs. So a child looks the sizes up.
 */
static int fio_haul_setup(struct thread_data *td)
{
	int fds[2], error;
	pid_t child;

	if (!td->o.filename && td->o.nr_files > 1) {
		log_err("fio-haul: nrfiles= needs filename= with as many namespaces\n");
		td_verror(td, EINVAL, "nrfiles");
		return EINVAL;
	}
	if (pipe(fds))
		return errno;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		close(fds[0]);
		fio_haul_tell_sizes(td, fds[1]);
		_exit(0);
	}
	error = child < 0 ? errno : 0;
	close(fds[1]);
	if (!error) {
		error = fio_haul_read_sizes(td, fds[0]);
		waitpid(child, NULL, 0);
	}
	close(fds[0]);
	if (error)
		td_verror(td, error, "haul: finding out the size");
	return error;
}

static int fio_haul_init(struct thread_data *td)
{
	struct fio_haul_job *job;
	int error = fio_haul_open(td, 1, &job);

	if (error)
		return error;
	error = fio_haul_check(td, job);
	if (error) {
		fio_haul_close(job);
		return error;
	}
	td->io_ops_data = job;
	return 0;
}

/* fio's buffers are there now, whatever kind iomem= chose: one registration for all of them. */
static int fio_haul_post_init(struct thread_data *td)
{
	struct fio_haul_job *job = td->io_ops_data;
	int error;

	if (!td->orig_buffer || !td->orig_buffer_size)
		return 0;
	error = haul_mem_register(job->loop, td->orig_buffer, td->orig_buffer_size, &job->mem);
	if (error)
		log_info("fio-haul: %s: fio's buffers cannot be registered (%s; is ulimit -l too "
			 "low?): data will be copied\n",
			td->o.name, strerror(-error));
	return 0;
}

static void fio_haul_cleanup(struct thread_data *td)
{
	fio_haul_close(td->io_ops_data);
	td->io_ops_data = NULL;
}

/* --- I/O ----------------------------------------------------------------------------------- */

static int fio_haul_start(
	struct fio_haul_job *job, struct fio_haul_volume *volume, struct io_u *io_u)
{
	struct iovec iov = {io_u->xfer_buf, io_u->xfer_buflen};
	uint64_t user_data = (uint64_t)(uintptr_t)io_u;

	switch (io_u->ddir) {
	case DDIR_READ:
		return haul_readv(volume->queue, volume->nsid, &iov, 1, io_u->offset, user_data);
	case DDIR_WRITE:
		return haul_writev(volume->queue, volume->nsid, &iov, 1, io_u->offset,
			job->td->o.sync_io ? HAUL_FUA : 0, user_data);
	case DDIR_TRIM:
		return haul_discard(
			volume->queue, volume->nsid, io_u->offset, io_u->xfer_buflen, user_data);
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		return haul_flush(volume->queue, volume->nsid, user_data);
	default:
		return -EOPNOTSUPP; /* sync_file_range and whatever else comes: a disk has none */
	}
}

/* Once for all the commands that go with it. */
static void fio_haul_tell_lost(struct fio_haul_job *job, const struct io_u *io_u)
{
	const struct haul_ctrl *ctrl = job->volumes[io_u->file->fileno].ctrl;

	for (unsigned i = 0; i < job->nr_ctrls; i++) {
		struct fio_haul_ctrl *entry = &job->ctrls[i];

		if (entry->ctrl != ctrl || entry->told || haul_ctrl_is_live(ctrl))
			continue;
		entry->told = true;
		log_err("fio-haul: %s: %s\n", job->td->o.name, haul_ctrl_error(ctrl));
	}
}

static enum fio_q_status fio_haul_queue(struct thread_data *td, struct io_u *io_u)
{
	struct fio_haul_job *job = td->io_ops_data;
	int error;

	fio_ro_check(td, io_u);
	/* Never -EAGAIN: no more than the queues' depth is out (volumes.c has seen to iodepth). */
	error = fio_haul_start(job, &job->volumes[io_u->file->fileno], io_u);
	if (error) {
		fio_haul_tell_lost(job, io_u);
		io_u->engine_data = NULL;
		io_u->error = (unsigned)-error;
		return FIO_Q_COMPLETED;
	}
	job->queued[job->nr_queued++] = io_u;
	return FIO_Q_QUEUED;
}

/* The moment of the doorbell is the moment of issue, for all of the batch. */
static void fio_haul_stamp(struct thread_data *td, struct fio_haul_job *job)
{
	struct timespec now;

	if (!fio_fill_issue_time(td))
		return;
	fio_gettime(&now, NULL);
	for (unsigned i = 0; i < job->nr_queued; i++) {
		job->queued[i]->issue_time = now;
		io_u_queued(td, job->queued[i]);
	}
	if (td->o.read_iolog_file)
		td->last_issue = now;
}

static int fio_haul_commit(struct thread_data *td)
{
	struct fio_haul_job *job = td->io_ops_data;

	if (!job->nr_queued)
		return 0;
	fio_haul_stamp(td, job);
	haul_loop_poll(job->loop, NULL, 0);
	io_u_mark_submit(td, job->nr_queued);
	job->nr_queued = 0;
	return 0;
}

static int fio_haul_getevents(
	struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct fio_haul_job *job = td->io_ops_data;
	int64_t timeout_ns = t ? (int64_t)t->tv_sec * 1000000000 + t->tv_nsec : -1;
	int n = haul_loop_poll(job->loop, job->events, max);

	while (n < (int)min) {
		int more =
			haul_loop_wait(job->loop, job->events + n, max - (unsigned)n, timeout_ns);

		if (more <= 0)
			break;
		n += more;
	}
	return n;
}

/* fio takes no notice of an error in an fsync that was queued: the job is told here. */
static void fio_haul_sync_failed(struct thread_data *td, const struct io_u *io_u)
{
	unsigned status = (unsigned)(uintptr_t)io_u->engine_data;

	if (status)
		log_err("fio-haul: %s: Flush: NVMe status %03xh: %s\n", td->o.name, status & 0x7ff,
			haul_status_text((uint16_t)status));
	td_verror(td, (int)io_u->error, "haul: Flush");
}

static struct io_u *fio_haul_event(struct thread_data *td, int number)
{
	struct fio_haul_job *job = td->io_ops_data;
	const struct haul_event *event = &job->events[number];
	struct io_u *io_u = (struct io_u *)(uintptr_t)event->user_data;

	/* fio passes over (continue_on_error=) I/O errors only when they are EIO; errdetails says
	 * more. */
	io_u->error = event->status ? EIO : (unsigned)-event->result;
	io_u->engine_data = (void *)(uintptr_t)event->status;
	if (event->result < 0 && !event->status)
		fio_haul_tell_lost(job, io_u);
	if (io_u->error && ddir_sync(io_u->ddir))
		fio_haul_sync_failed(td, io_u);
	return io_u;
}

/* What strerror() cannot say: the target's own words. fio frees the text. */
static char *fio_haul_errdetails(struct io_u *io_u)
{
	unsigned status = (unsigned)(uintptr_t)io_u->engine_data;
	char *text = NULL;

	if (!status)
		return strdup("haul: without a status of the target");
	if (asprintf(&text, "haul: NVMe status %03xh: %s", status & 0x7ff,
		    haul_status_text((uint16_t)status)) < 0)
		return NULL;
	return text;
}

/* --- files: namespaces that are there already ----------------------------------------------- */

static int fio_haul_file_nothing(struct thread_data *td, struct fio_file *f)
{
	(void)td;
	(void)f;
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "haul",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_RAWIO | FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_MEMALIGN |
		 FIO_NOFILEHASH | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.setup = fio_haul_setup,
	.init = fio_haul_init,
	.post_init = fio_haul_post_init,
	.cleanup = fio_haul_cleanup,
	.queue = fio_haul_queue,
	.commit = fio_haul_commit,
	.getevents = fio_haul_getevents,
	.event = fio_haul_event,
	.errdetails = fio_haul_errdetails,
	.open_file = fio_haul_file_nothing,
	.close_file = fio_haul_file_nothing,
	.invalidate = fio_haul_file_nothing,
	.unlink_file = fio_haul_file_nothing,
	.get_file_size = fio_haul_file_nothing,
	.options = options,
	.option_struct_size = sizeof(struct fio_haul_options),
};
