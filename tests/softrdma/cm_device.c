/* SPDX-License-Identifier: MIT */
/*
 * The contexts librdmacm shares among all ids of a process, opened once, never closed.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <stdlib.h>

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
} cm_devices[SR_MAX_DEVICES];

static int cm_nr_devices;
static int cm_init_error;

int cm_errno(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

static void cm_device_removed(struct sr_device *dev)
{
	for (struct cm_id *id = cm_id_first(); id; id = LIST_NEXT(id, link)) {
		if (id->device == dev->index)
			cm_event_simple(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
}

static void cm_init_once(void)
{
	int num = 0;
	struct ibv_device **list = ibv_get_device_list(&num);

	cm_init_error = num ? 0 : ENODEV;
	for (int i = 0; i < num && i < SR_MAX_DEVICES; i++) {
		int index = ibv_get_device_index(list[i]);
		struct ibv_context *context = ibv_open_device(list[i]);

		if (!context) {
			cm_init_error = errno;
			break;
		}
		cm_devices[index].context = context;
		cm_nr_devices = index + 1;
	}
	ibv_free_device_list(list);
	sr_device_removed_hook = cm_device_removed;
	sr_disconnect_hook = cm_force_disconnect;
	sr_cm_event_hook = cm_stray_event;
}

int cm_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ret;

	pthread_once(&once, cm_init_once);
	ret = cm_init_error ? cm_init_error : sr_engine_start();
	return cm_errno(ret);
}

struct ibv_context *cm_device_context(int device)
{
	return device < 0 ? NULL : cm_devices[device].context;
}

/* The default protection domain, made at the first use. */
struct ibv_pd *cm_device_pd(int device)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&mutex);
	if (!cm_devices[device].pd)
		cm_devices[device].pd = ibv_alloc_pd(cm_devices[device].context);
	pthread_mutex_unlock(&mutex);
	return cm_devices[device].pd;
}

struct ibv_context **rdma_get_devices(int *num)
{
	struct ibv_context **list;
	int n = 0;

	if (cm_init())
		return NULL;
	list = calloc((size_t)cm_nr_devices + 1, sizeof(struct ibv_context *));
	for (int i = 0; list && i < cm_nr_devices; i++) {
		if (cm_devices[i].context)
			list[n++] = cm_devices[i].context;
	}
	if (num)
		*num = n;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
