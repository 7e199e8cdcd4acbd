/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From fio's files to namespaces: names, associations, queues.
 */
#include "fio-plugin/fio_haul.h"

#include <ctype.h>

#define TAG_STEP 1 /* user_data of everything that is not an io_u, whose addresses are even */

/* --- saying why ---------------------------------------------------------------------------- */

static int fio_haul_fail(struct thread_data *td, int error, const char *text)
{
	log_err("fio-haul: %s\n", text);
	td_vmsg(td, -error, text, "haul");
	return -error;
}

/* --- names --------------------------------------------------------------------------------- */

static int name_is_number(const char *name)
{
	if (!*name)
		return 0;
	while (isdigit((unsigned char)*name))
		name++;
	return !*name;
}

/* Where a URI's options start, or its end. */
static size_t uri_path_length(const char *uri)
{
	return strcspn(uri, "?");
}

/* Digits only, 1 to FFFFFFFEh (NVMe base 2.0 3.2.1): what is cut off or read too far is another
 * namespace. */
static int nsid_parse(const char *text, size_t length, uint32_t *ret)
{
	uint64_t value = 0;

	if (length == 0 || length > 10)
		return -EINVAL;
	for (size_t at = 0; at < length; at++) {
		if (!isdigit((unsigned char)text[at]))
			return -EINVAL;
		value = value * 10 + (uint64_t)(text[at] - '0');
	}
	if (value < 1 || value > 0xfffffffe)
		return -EINVAL;
	*ret = (uint32_t)value;
	return 0;
}

static int nsid_refused(struct thread_data *td, const char *text, size_t length)
{
	char line[160];

	snprintf(line, sizeof(line),
		"'%.*s' is no namespace's number: give 1 to 4294967294, in digits",
		(int)min(length, (size_t)64), text);
	return fio_haul_fail(td, -EINVAL, line);
}

/*
 * Cuts the NSID off, if there is one: the last part of scheme://host/NQN/NSID. It is put into
 * RET_NSID (0: none), the rest with the options into RET.
 */
static int uri_cut_nsid(
	struct thread_data *td, const char *uri, char *ret, size_t size, uint32_t *ret_nsid)
{
	size_t path = uri_path_length(uri);
	const char *host = strstr(uri, "://");
	const char *nqn = host ? memchr(host + 3, '/', path - (size_t)(host + 3 - uri)) : NULL;
	const char *nsid = nqn ? memchr(nqn + 1, '/', path - (size_t)(nqn + 1 - uri)) : NULL;
	size_t length;

	*ret_nsid = 0;
	if (!nsid) {
		snprintf(ret, size, "%s", uri);
		return 0;
	}
	snprintf(ret, size, "%.*s%s", (int)(nsid - uri), uri, uri + path);
	nsid++;
	length = path - (size_t)(nsid - uri);
	return nsid_parse(nsid, length, ret_nsid) ? nsid_refused(td, nsid, length) : 0;
}

/*
 * The URI of file number INDEX: the job's uri=; with filename= given, each name is a URI of its own
 * (its colons escaped as fio wants it) or the number of a namespace of uri=.
 */
static int volume_name(
	struct thread_data *td, unsigned index, char *ret, size_t size, uint32_t *ret_nsid)
{
	const struct fio_haul_options *options = td->eo;
	const char *name = td->o.filename ? td->files[index]->file_name : options->uri;
	char text[256];
	int error;

	if (td->o.filename && name_is_number(name)) {
		if (!options->uri)
			return fio_haul_fail(td, -EINVAL,
				"filename= has namespace numbers, but uri= is missing");
		error = uri_cut_nsid(td, options->uri, ret, size, ret_nsid);
		if (!error && nsid_parse(name, strlen(name), ret_nsid))
			error = nsid_refused(td, name, strlen(name));
		return error;
	}
	if (!name)
		return fio_haul_fail(
			td, -EINVAL, "uri= is missing, such as uri=tcp://192.0.2.1/NQN/1");
	if (!strstr(name, "://")) {
		snprintf(text, sizeof(text),
			"filename=%.80s is neither a URI (with its colons escaped: tcp\\://...) nor a "
			"namespace's number",
			name);
		return fio_haul_fail(td, -EINVAL, text);
	}
	return uri_cut_nsid(td, name, ret, size, ret_nsid);
}

/* --- waiting ------------------------------------------------------------------------------- */

/* One operation is out: its result. */
static int job_wait(struct fio_haul_job *job)
{
	struct haul_event event;

	while (haul_loop_wait(job->loop, &event, 1, -1) != 1)
		;
	return event.result;
}

/* --- associations -------------------------------------------------------------------------- */

/* fio gives an engine no turn while a job thinks (thinktime=), and a keep-alive is sent at half of
 * its time. */
static unsigned keep_alive_ms(const struct thread_data *td)
{
	const struct fio_haul_options *options = td->eo;

	return options->keep_alive ? max(options->keep_alive, 2 * (td->o.thinktime / 1000)) : 0;
}

static void ctrl_options(const struct thread_data *td, struct haul_ctrl_options *ret)
{
	const struct fio_haul_options *options = td->eo;

	haul_ctrl_options_init(ret);
	ret->host_nqn = options->hostnqn;
	ret->host_id = options->hostid;
	ret->header_digest = options->hdgst;
	ret->data_digest = options->ddgst;
	ret->tos = options->tos;
	ret->keep_alive_ms = keep_alive_ms(td);
	ret->command_timeout_ms = options->command_timeout;
	ret->connect_timeout_ms = options->connect_timeout;
	ret->max_queues = min(td->o.nr_files, 128U);
}

static int job_connect(struct fio_haul_job *job, const char *uri, struct haul_ctrl **ret)
{
	struct fio_haul_ctrl *entry = &job->ctrls[job->nr_ctrls];
	struct haul_ctrl_options options;
	int error;

	ctrl_options(job->td, &options);
	error = haul_connect(job->loop, uri, &options, TAG_STEP, &entry->ctrl);
	if (error)
		return fio_haul_fail(job->td, error, haul_loop_error(job->loop));
	job->nr_ctrls++;
	entry->uri = strdup(uri);
	error = job_wait(job);
	if (error)
		return fio_haul_fail(job->td, error, haul_ctrl_error(entry->ctrl));
	*ret = entry->ctrl;
	return 0;
}

static int job_find_ctrl(struct fio_haul_job *job, const char *uri, struct haul_ctrl **ret)
{
	for (unsigned i = 0; i < job->nr_ctrls; i++)
		if (job->ctrls[i].uri && !strcmp(job->ctrls[i].uri, uri)) {
			*ret = job->ctrls[i].ctrl;
			return 0;
		}
	return job_connect(job, uri, ret);
}

/* --- volumes ------------------------------------------------------------------------------- */

/* "1, 2, 5": what there is to choose from. */
static void volume_list(const struct haul_ctrl *ctrl, char *ret, size_t size)
{
	uint32_t nsids[16];
	int nr = haul_ns_list(ctrl, nsids, 16);
	size_t used = 0;

	for (int i = 0; i < nr && i < 16 && used < size; i++)
		used += (size_t)snprintf(ret + used, size - used, i ? ", %u" : "%u", nsids[i]);
	if (nr > 16 && used < size)
		snprintf(ret + used, size - used, " and %d more", nr - 16);
}

static int volume_choose(struct fio_haul_job *job, struct fio_haul_volume *volume, const char *uri)
{
	int64_t nsid = volume->nsid;
	char text[768], list[256] = "";

	if (nsid == 0)
		nsid = haul_ns_default(volume->ctrl);
	if (nsid == -ENOTUNIQ) {
		volume_list(volume->ctrl, list, sizeof(list));
		snprintf(text, sizeof(text),
			"%.400s: there are several namespaces (%s): add one, /NQN/NSID", uri, list);
	} else {
		snprintf(text, sizeof(text), "%.400s: there is no namespace", uri);
	}
	if (nsid < 0)
		return fio_haul_fail(job->td, (int)nsid, text);
	volume->nsid = (uint32_t)nsid;
	return 0;
}

static int volume_open(struct fio_haul_job *job, unsigned index)
{
	struct fio_haul_volume *volume = &job->volumes[index];
	char uri[4096];
	int error = volume_name(job->td, index, uri, sizeof(uri), &volume->nsid);

	if (!error)
		error = job_find_ctrl(job, uri, &volume->ctrl);
	if (!error)
		error = volume_choose(job, volume, uri);
	if (error)
		return error;
	error = haul_ns_info(volume->ctrl, volume->nsid, &volume->info, TAG_STEP);
	if (!error)
		error = job_wait(job);
	return error ? fio_haul_fail(job->td, error, haul_ctrl_error(volume->ctrl)) : 0;
}

/*
 * What does not fit in the queue would have to be refused as busy, which fio cannot take for an
 * fsync, and would hide the real depth. fio makes its io_us after this.
 */
static void volume_limit_depth(struct thread_data *td, unsigned depth)
{
	if (depth >= td->o.iodepth)
		return;
	log_info("fio-haul: %s: the queue takes %u commands at once: iodepth is %u, not %u\n",
		td->o.name, depth, depth, td->o.iodepth);
	td->o.iodepth = depth;
	td->o.iodepth_low = min(td->o.iodepth_low, depth);
	td->o.iodepth_batch = min(td->o.iodepth_batch, depth);
	td->o.iodepth_batch_complete_min = min(td->o.iodepth_batch_complete_min, depth);
	td->o.iodepth_batch_complete_max = min(td->o.iodepth_batch_complete_max, depth);
}

static int volume_make_queue(struct fio_haul_job *job, struct fio_haul_volume *volume)
{
	const struct fio_haul_options *options = job->td->eo;
	unsigned depth = options->queue_depth ? options->queue_depth : job->td->o.iodepth;
	struct haul_queue_options queue_options = {
		.size = sizeof(queue_options), .depth = min(depth, 4096U)};
	int error = haul_queue_create(volume->ctrl, &queue_options, TAG_STEP, &volume->queue);

	if (!error)
		error = job_wait(job);
	if (error == -EUSERS)
		return fio_haul_fail(job->td, error, "the target grants too few queues");
	if (error)
		return fio_haul_fail(job->td, error, haul_ctrl_error(volume->ctrl));
	volume_limit_depth(job->td, haul_queue_depth(volume->queue));
	return 0;
}

/* --- a job's all --------------------------------------------------------------------------- */

static struct fio_haul_job *job_alloc(struct thread_data *td)
{
	struct fio_haul_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->td = td;
	job->nr_volumes = td->o.nr_files;
	job->ctrls = calloc(td->o.nr_files, sizeof(*job->ctrls));
	job->volumes = calloc(td->o.nr_files, sizeof(*job->volumes));
	job->events = calloc(td->o.iodepth, sizeof(*job->events));
	job->queued = calloc(td->o.iodepth, sizeof(*job->queued));
	if (job->ctrls && job->volumes && job->events && job->queued)
		return job;
	fio_haul_close(job);
	return NULL;
}

int fio_haul_open(struct thread_data *td, int for_io, struct fio_haul_job **ret)
{
	const struct fio_haul_options *options = td->eo;
	struct haul_loop_options loop_options = {.size = sizeof(loop_options),
		.engine = options->haul_engine,
		.spin_us = for_io ? 20 : 0};
	struct fio_haul_job *job = job_alloc(td);
	int error;

	if (!job)
		return fio_haul_fail(td, -ENOMEM, "out of memory");
	error = haul_loop_create(&loop_options, &job->loop);
	if (error)
		error = fio_haul_fail(td, error,
			error == -EINVAL ? "haul_engine= is io_uring or epoll"
					 : "the event loop's engine is refused here");
	for (unsigned i = 0; !error && i < job->nr_volumes; i++)
		error = volume_open(job, i);
	for (unsigned i = 0; !error && for_io && i < job->nr_volumes; i++)
		error = volume_make_queue(job, &job->volumes[i]);
	if (error) {
		fio_haul_close(job);
		return error;
	}
	*ret = job;
	return 0;
}

/* In order, so that the target need not find out by itself; a dead one is cut off. */
static void job_disconnect(struct fio_haul_job *job)
{
	for (unsigned i = 0; i < job->nr_ctrls; i++) {
		struct haul_ctrl *ctrl = job->ctrls[i].ctrl;
		struct haul_event event = {0};

		if (haul_ctrl_is_live(ctrl) && !haul_disconnect(ctrl, TAG_STEP))
			while (event.user_data != TAG_STEP)
				haul_loop_wait(job->loop, &event, 1, -1);
		haul_ctrl_free(ctrl);
		free(job->ctrls[i].uri);
	}
}

void fio_haul_close(struct fio_haul_job *job)
{
	if (!job)
		return;
	if (job->loop)
		job_disconnect(job);
	haul_mem_unregister(job->mem);
	haul_loop_destroy(job->loop);
	free(job->queued);
	free(job->events);
	free(job->volumes);
	free(job->ctrls);
	free(job);
}
