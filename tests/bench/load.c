/* SPDX-License-Identifier: MIT */
/*
 * A load of a fixed number of operations through libhaul, for counting what one costs; or none
 * until the association is lost.
 *
 *	load URI DEPTH COUNT BYTES read|write|idle ENGINE
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/haul.h"

enum { NR_EVENTS = 64 };

struct load {
	struct haul_loop *loop;
	struct haul_ctrl *ctrl;
	struct haul_queue *queue;
	struct haul_mem *mem;
	unsigned char *bytes;
	uint32_t nsid;
	uint64_t nr_blocks_bytes; /* size of the namespace */
	uint32_t depth, size;
	uint64_t nr_left, nr_out;
	bool write;
};

static int load_die(struct load *load, const char *step, int result)
{
	fprintf(stderr, "load: %s: %s: %s\n", step, strerror(-result),
		load->ctrl ? haul_ctrl_error(load->ctrl) : "");
	haul_ctrl_free(load->ctrl);
	fprintf(stderr, "load: everything is freed\n");
	return 1;
}

/* Waits for the one event that is out. */
static int load_step(struct load *load, int started)
{
	struct haul_event event;
	int ret;

	if (started)
		return started;
	do
		ret = haul_loop_wait(load->loop, &event, 1, -1);
	while (ret == 0);
	return ret < 0 ? ret : event.result;
}

static int load_submit(struct load *load, uint32_t slot)
{
	struct iovec iov = {load->bytes + (size_t)slot * load->size, load->size};
	uint64_t offset = load->nr_left * load->size % (load->nr_blocks_bytes - load->size);

	offset -= offset % 4096;
	if (load->write)
		return haul_writev(load->queue, load->nsid, &iov, 1, offset, 0, slot);
	return haul_readv(load->queue, load->nsid, &iov, 1, offset, slot);
}

static int load_run(struct load *load)
{
	struct haul_event events[NR_EVENTS];
	int ret;

	for (uint32_t slot = 0; slot < load->depth && load->nr_left; slot++) {
		ret = load_submit(load, slot);
		if (ret)
			return ret;
		load->nr_left--;
		load->nr_out++;
	}
	while (load->nr_out) {
		int nr = haul_loop_wait(load->loop, events, NR_EVENTS, -1);

		if (nr < 0)
			return nr;
		for (int at = 0; at < nr; at++) {
			load->nr_out--;
			if (events[at].result)
				return events[at].result;
			if (!load->nr_left)
				continue;
			ret = load_submit(load, (uint32_t)events[at].user_data);
			if (ret)
				return ret;
			load->nr_left--;
			load->nr_out++;
		}
	}
	return 0;
}

static int load_idle(struct load *load)
{
	struct haul_event event;
	int ret = 0;

	while (ret >= 0 && haul_ctrl_is_live(load->ctrl))
		ret = haul_loop_wait(load->loop, &event, 1, 100000000);
	return ret < 0 ? ret : -ENOTCONN;
}

static int load_open(struct load *load, const char *uri, const char *engine)
{
	struct haul_loop_options loop_options = {.size = sizeof(loop_options), .engine = engine};
	struct haul_queue_options options = {.size = sizeof(options), .depth = load->depth};
	struct haul_ns_info ns;
	int64_t nsid;
	int ret;

	ret = haul_loop_create(&loop_options, &load->loop);
	if (ret)
		return ret;
	ret = load_step(load, haul_connect(load->loop, uri, NULL, 0, &load->ctrl));
	if (ret)
		return ret;
	nsid = haul_ns_default(load->ctrl);
	if (nsid < 0)
		return (int)nsid;
	load->nsid = (uint32_t)nsid;
	ret = load_step(load, haul_ns_info(load->ctrl, load->nsid, &ns, 0));
	if (ret)
		return ret;
	load->nr_blocks_bytes = ns.nr_blocks * ns.block_bytes;
	load->bytes = aligned_alloc(4096, (size_t)load->depth * load->size);
	if (!load->bytes)
		return -ENOMEM;
	memset(load->bytes, 0x5a, (size_t)load->depth * load->size);
	ret = haul_mem_register(
		load->loop, load->bytes, (size_t)load->depth * load->size, &load->mem);
	if (ret)
		return ret;
	return load_step(load, haul_queue_create(load->ctrl, &options, 0, &load->queue));
}

int main(int argc, char **argv)
{
	struct load load = {0};
	struct haul_loop_stats stats;
	int ret;

	if (argc != 7) {
		fprintf(stderr, "usage: load URI DEPTH COUNT BYTES read|write|idle ENGINE\n");
		return 2;
	}
	load.depth = (uint32_t)atoi(argv[2]);
	load.nr_left = (uint64_t)atoll(argv[3]);
	load.size = (uint32_t)atoi(argv[4]);
	load.write = strcmp(argv[5], "write") == 0;
	ret = load_open(&load, argv[1], argv[6]);
	if (ret)
		return load_die(&load, "open", ret);
	ret = strcmp(argv[5], "idle") ? load_run(&load) : load_idle(&load);
	if (ret)
		return load_die(&load, "run", ret);
	haul_loop_stats(load.loop, &stats);
	printf("syscalls %llu doorbells %llu bounced %llu\n", (unsigned long long)stats.nr_syscalls,
		(unsigned long long)stats.nr_doorbells, (unsigned long long)stats.nr_bounced);
	ret = load_step(&load, haul_queue_close(load.queue, 0));
	if (!ret)
		ret = load_step(&load, haul_disconnect(load.ctrl, 0));
	haul_ctrl_free(load.ctrl);
	haul_mem_unregister(load.mem);
	haul_loop_destroy(load.loop);
	free(load.bytes);
	return ret ? 1 : 0;
}
