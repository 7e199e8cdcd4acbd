/* SPDX-License-Identifier: MIT */
/*
 * The devices soft0.. and their contexts: list, open, close, query.
 * Limits are soft-RoCE's unless a fault asks for others.
 */
#include "tests/softrdma/softrdma.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sr_device devices[SR_MAX_DEVICES];
static int nr_devices;
static LIST_HEAD(, sr_context) contexts = LIST_HEAD_INITIALIZER(contexts);

void (*sr_device_removed_hook)(struct sr_device *dev);

static void devices_init(void)
{
	const char *env = getenv("SOFTRDMA_DEVICES");
	int n = env ? atoi(env) : 1;

	sr_faults_load();
	nr_devices = n < 0 ? 0 : n > SR_MAX_DEVICES ? SR_MAX_DEVICES : n;
	for (int i = 0; i < nr_devices; i++) {
		struct ibv_device *dev = &devices[i].dev;

		devices[i].index = i;
		dev->node_type = sr_faults.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
		dev->transport_type = sr_faults.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		snprintf(dev->name, sizeof(dev->name), "soft%d", i);
		snprintf(dev->dev_name, sizeof(dev->dev_name), "uverbs%d", i);
		snprintf(dev->dev_path, sizeof(dev->dev_path), "/nonexistent/uverbs%d", i);
		snprintf(dev->ibdev_path, sizeof(dev->ibdev_path), "/nonexistent/soft%d", i);
	}
}

int sr_device_count(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, devices_init);
	return nr_devices;
}

struct sr_device *sr_device_get(int index)
{
	return index < sr_device_count() ? &devices[index] : NULL;
}

struct sr_context *sr_context_of(struct ibv_context *context)
{
	return sr_container(context, struct sr_context, vctx.context);
}

bool sr_context_removed(struct sr_context *ctx)
{
	return ctx->dev->removed;
}

struct ibv_device **ibv_get_device_list(int *num)
{
	int count = sr_device_count(), n = 0;
	struct ibv_device **list = calloc((size_t)count + 1, sizeof(*list));

	if (!list)
		return NULL;
	sr_lock();
	for (int i = 0; i < count; i++) {
		if (!devices[i].removed)
			list[n++] = &devices[i].dev;
	}
	sr_unlock();
	if (num)
		*num = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return sr_container(device, struct sr_device, dev)->index;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(
		0x0200000000000000u | (uint64_t)sr_container(device, struct sr_device, dev)->index);
}

static int device_query_ex(struct ibv_context *context,
	const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	(void)input;
	memset(attr, 0, size);
	if (size >= sizeof(*attr))
		attr->phys_port_cnt_ex = 1;
	return ibv_query_device(context, &attr->orig_attr);
}

static int device_query_port(
	struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr full = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = SR_NR_GIDS,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = SR_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,
		.active_speed = 8,
		.phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	(void)context;
	if (port != 1)
		return EINVAL;
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return device_query_port(context, port, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int device_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	*num = srq->handle;
	return 0;
}

static void context_set_ops(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	v->sz = sizeof(*v);
	v->query_port = device_query_port;
	v->query_device_ex = device_query_ex;
	v->create_cq_ex = sr_create_cq_ex;
	v->create_qp_ex = sr_create_qp_ex;
	v->get_srq_num = device_get_srq_num;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ops->alloc_mw = sr_alloc_mw;
	ops->bind_mw = sr_bind_mw;
	ops->dealloc_mw = sr_dealloc_mw;
	ops->poll_cq = sr_poll_cq;
	ops->req_notify_cq = sr_req_notify_cq;
	ops->post_srq_recv = sr_post_srq_recv;
	ops->post_send = sr_post_send;
	ops->post_recv = sr_post_recv;
}

struct sr_context *sr_context_open(struct ibv_device *device)
{
	struct sr_context *ctx = calloc(1, sizeof(*ctx));
	int ret;

	if (!ctx)
		return NULL;
	ret = sr_engine_start();
	if (!ret)
		ret = sr_evq_init(&ctx->async);
	if (ret) {
		free(ctx);
		errno = ret;
		return NULL;
	}
	ctx->dev = sr_container(device, struct sr_device, dev);
	context_set_ops(&ctx->vctx);
	ctx->vctx.context.device = device;
	ctx->vctx.context.cmd_fd = -1;
	ctx->vctx.context.async_fd = ctx->async.fd;
	ctx->vctx.context.num_comp_vectors = 1;
	pthread_mutex_init(&ctx->vctx.context.mutex, NULL);
	sr_lock();
	LIST_INSERT_HEAD(&contexts, ctx, link);
	sr_unlock();
	return ctx;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct sr_context *ctx;

	if (sr_container(device, struct sr_device, dev)->removed) {
		errno = ENODEV;
		return NULL;
	}
	ctx = sr_context_open(device);
	return ctx ? &ctx->vctx.context : NULL;
}

int ibv_close_device(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context_of(context);
	bool busy;

	sr_lock();
	busy = !LIST_EMPTY(&ctx->cqs) || !LIST_EMPTY(&ctx->qps) || ctx->users;
	if (!busy)
		LIST_REMOVE(ctx, link);
	sr_unlock();
	if (busy) /* objects left: real devices leak the memory, too */
		return 0;
	sr_evq_destroy(&ctx->async);
	pthread_mutex_destroy(&context->mutex);
	free(ctx);
	return 0;
}

static unsigned int device_cap_flags(void)
{
	unsigned int flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
			     IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SRQ_RESIZE;

	if (!sr_faults.no_mw)
		flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	return sr_faults.no_inv ? flags : flags | IBV_DEVICE_MEM_MGT_EXTENSIONS;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct sr_context *ctx = sr_context_of(context);

	if (ctx->dev->removed)
		return EIO;
	*attr = (struct ibv_device_attr){
		.fw_ver = "0.0.0",
		.node_guid = ibv_get_device_guid(context->device),
		.sys_image_guid = ibv_get_device_guid(context->device),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000u,
		.vendor_id = 0xffffff,
		.max_qp = (int)sr_faults.max_qp,
		.max_qp_wr = (int)sr_faults.max_send_wr,
		.device_cap_flags = device_cap_flags(),
		.max_sge = (int)sr_faults.max_sge,
		.max_sge_rd = (int)sr_faults.max_sge,
		.max_cq = 65536,
		.max_cqe = (int)sr_faults.max_cqe,
		.max_mr = (int)sr_faults.max_mr,
		.max_pd = 65536,
		.max_qp_rd_atom = (int)sr_faults.max_qp_rd_atom,
		.max_res_rd_atom = 258048,
		.max_qp_init_rd_atom = (int)sr_faults.max_qp_rd_atom,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_mw = sr_faults.no_mw ? 0 : 65536,
		.max_ah = 32768,
		.max_srq = sr_faults.no_srq ? 0 : 65536,
		.max_srq_wr = sr_faults.no_srq ? 0 : (int)sr_faults.max_srq_wr,
		.max_srq_sge = sr_faults.no_srq ? 0 : (int)sr_faults.max_sge,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (port != 1 || index < 0 || index >= SR_NR_GIDS) {
		errno = EINVAL;
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	if (index == 0) {
		memcpy(gid->raw, mapped, sizeof(mapped));
		gid->raw[12] = 127;
		gid->raw[15] = (uint8_t)(sr_context_of(context)->dev->index + 1);
	} else {
		gid->raw[15] = 1;
	}
	return 0;
}

/* DEVICE_FATAL, queue pairs to error, gone from the list: as when the driver is unbound. */
void sr_device_remove(void)
{
	struct sr_context *ctx;
	struct sr_qp *qp;

	devices[0].removed = true;
	if (sr_device_removed_hook)
		sr_device_removed_hook(&devices[0]);
	LIST_FOREACH(ctx, &contexts, link)
	{
		if (ctx->dev != &devices[0])
			continue;
		sr_async_raise(ctx, IBV_EVENT_DEVICE_FATAL, NULL);
		LIST_FOREACH(qp, &ctx->qps, link)
		sr_qp_error(qp);
	}
}

void sr_port_bounce(void)
{
	struct sr_context *ctx;

	LIST_FOREACH(ctx, &contexts, link)
	{
		sr_async_raise(ctx, IBV_EVENT_PORT_ERR, NULL);
		sr_async_raise(ctx, IBV_EVENT_PORT_ACTIVE, NULL);
	}
}

/* All that a port can say, as when a cable is pulled and put into another switch. */
void sr_port_events(void)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE,
		IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_GID_CHANGE,
		IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_PORT_ACTIVE};
	struct sr_context *ctx;

	LIST_FOREACH(ctx, &contexts, link)
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		sr_async_raise(ctx, types[i], NULL);
}
