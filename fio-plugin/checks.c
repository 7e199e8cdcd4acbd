/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a job asks for, against what its namespaces are: wrong sizes and offsets end a job before
 * its first I/O, with a text; nothing is rounded.
 */
#include "fio-plugin/fio_haul.h"

static int check_fail(struct thread_data *td, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_err("fio-haul: %s: %s\n", td->o.name, text);
	td_vmsg(td, EINVAL, text, "haul");
	return EINVAL;
}

static int check_multiple(
	struct thread_data *td, const char *what, unsigned long long value, uint32_t block)
{
	if (value % block == 0)
		return 0;
	return check_fail(
		td, "%s of %llu is not a multiple of the block size %u", what, value, block);
}

static int check_direction(struct thread_data *td, enum fio_ddir ddir, uint32_t block)
{
	const struct thread_options *o = &td->o;
	int error = check_multiple(td, "bs=", o->min_bs[ddir], block);

	if (!error)
		error = check_multiple(td, "bs=", o->max_bs[ddir], block);
	if (!error)
		error = check_multiple(td, "blockalign=", o->ba[ddir], block);
	for (unsigned i = 0; !error && i < o->bssplit_nr[ddir]; i++)
		error = check_multiple(td, "bssplit=", o->bssplit[ddir][i].bs, block);
	return error;
}

static int check_sizes(struct thread_data *td, uint32_t block)
{
	static const enum td_ddir bits[DDIR_RWDIR_CNT] = {
		TD_DDIR_READ, TD_DDIR_WRITE, TD_DDIR_TRIM};
	const struct thread_options *o = &td->o;
	int error = 0;

	for (int ddir = 0; !error && ddir < DDIR_RWDIR_CNT; ddir++)
		if (o->td_ddir & bits[ddir] ||
			(ddir == DDIR_READ && o->verify != VERIFY_NONE && td_write(td)))
			error = check_direction(td, (enum fio_ddir)ddir, block);
	if (!error && o->ddir_seq_add)
		error = check_multiple(td, "the step of rw=",
			(unsigned long long)(o->ddir_seq_add < 0 ? -o->ddir_seq_add
								 : o->ddir_seq_add),
			block);
	if (!error && o->zone_size)
		error = check_multiple(td, "zonesize=", o->zone_size, block);
	if (!error && o->zone_skip)
		error = check_multiple(td, "zoneskip=", o->zone_skip, block);
	if (!error && o->bs_unaligned)
		error = check_fail(
			td, "bs_unaligned cannot be used with blocks of %u bytes", block);
	return error;
}

static int check_range(
	struct thread_data *td, struct fio_file *f, const struct fio_haul_volume *volume)
{
	unsigned long long size = volume->info.nr_blocks * volume->info.block_bytes;

	if (check_multiple(td, "offset=", f->file_offset, volume->info.block_bytes))
		return EINVAL;
	if (td->o.fill_device && f->io_size == -1ULL && f->file_offset <= size)
		f->io_size = size - f->file_offset; /* fio looks for free space in a file system */
	if (f->file_offset > size || f->io_size > size - f->file_offset)
		return check_fail(td,
			"offset=%llu and size=%llu are beyond the end of namespace %u, which has %llu bytes",
			(unsigned long long)f->file_offset, (unsigned long long)f->io_size,
			volume->nsid, size);
	return 0;
}

static int check_abilities(struct thread_data *td, const struct fio_haul_volume *volume)
{
	/* fio 3.33 aborts on its own trims in a job that has none. */
	if (td->o.trim_percentage && !td_trim(td))
		return check_fail(td, "trim_percentage= needs a job that trims (rw=trimwrite)");
	if (td_trim(td) && !volume->info.can_discard)
		return check_fail(
			td, "namespace %u cannot trim (no Dataset Management)", volume->nsid);
	if ((td_write(td) || td_trim(td)) && volume->info.read_only)
		return check_fail(td, "namespace %u is read-only", volume->nsid);
	return 0;
}

int fio_haul_check(struct thread_data *td, const struct fio_haul_job *job)
{
	for (unsigned i = 0; i < job->nr_volumes; i++) {
		const struct fio_haul_volume *volume = &job->volumes[i];
		int error = check_sizes(td, volume->info.block_bytes);

		if (!error)
			error = check_range(td, td->files[i], volume);
		if (!error)
			error = check_abilities(td, volume);
		if (error)
			return error;
	}
	return 0;
}
