/* SPDX-License-Identifier: MIT */
/*
 * Endpoints: rdma_getaddrinfo, and ids that do a whole sequence in one blocking call.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

static int ep_copy_addr(
	const struct sockaddr *from, socklen_t len, struct sockaddr **ret_to, socklen_t *ret_len)
{
	*ret_to = malloc(len);
	if (!*ret_to)
		return EAI_MEMORY;
	memcpy(*ret_to, from, len);
	*ret_len = len;
	return 0;
}

static void ep_set_type(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	rai->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	rai->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
	rai->ai_flags = hints ? hints->ai_flags : 0;
}

static int ep_fill(
	struct rdma_addrinfo *rai, const struct addrinfo *ai, const struct rdma_addrinfo *hints)
{
	bool passive = hints && (hints->ai_flags & RAI_PASSIVE);
	int ret;

	ep_set_type(rai, hints);
	rai->ai_family = ai->ai_family;
	if (passive)
		return ep_copy_addr(
			ai->ai_addr, ai->ai_addrlen, &rai->ai_src_addr, &rai->ai_src_len);
	ret = ep_copy_addr(ai->ai_addr, ai->ai_addrlen, &rai->ai_dst_addr, &rai->ai_dst_len);
	if (!ret && hints && hints->ai_src_len)
		ret = ep_copy_addr(
			hints->ai_src_addr, hints->ai_src_len, &rai->ai_src_addr, &rai->ai_src_len);
	return ret;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
	struct rdma_addrinfo **ret_res)
{
	struct addrinfo ai_hints = {.ai_socktype = SOCK_STREAM}, *ai;
	struct rdma_addrinfo *rai;
	int ret;

	if (hints) {
		ai_hints.ai_family = hints->ai_family;
		ai_hints.ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
				    (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	}
	ret = getaddrinfo(node, service, &ai_hints, &ai);
	if (ret)
		return ret;
	rai = calloc(1, sizeof(*rai));
	ret = rai ? ep_fill(rai, ai, hints) : EAI_MEMORY;
	freeaddrinfo(ai);
	if (ret) {
		rdma_freeaddrinfo(rai);
		return ret;
	}
	*ret_res = rai;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}

static int ep_passive(struct cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
	const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->id, res->ai_src_addr))
		return -1;
	id->ep_pd = pd;
	if (!attr)
		return 0;
	id->ep_qp_attr = malloc(sizeof(*attr));
	if (!id->ep_qp_attr)
		return cm_errno(ENOMEM);
	*id->ep_qp_attr = *attr;
	id->ep_qp_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **ret_id, struct rdma_addrinfo *res, struct ibv_pd *pd,
	struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int ret;

	if (rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space))
		return -1;
	if (res->ai_flags & RAI_PASSIVE) {
		ret = ep_passive(cm_of(id), res, pd, attr);
	} else {
		ret = rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000);
		if (!ret)
			ret = rdma_resolve_route(id, 2000);
		if (!ret && attr) {
			attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
			ret = rdma_create_qp(id, pd, attr);
		}
	}
	if (ret) {
		int error = errno;

		rdma_destroy_ep(id);
		return cm_errno(error);
	}
	*ret_id = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **ret_id)
{
	struct cm_id *id = cm_of(listen);
	struct rdma_cm_event *event;

	if (!id->sync)
		return cm_errno(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	listen->event = event;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return cm_errno(EINVAL);
	if (id->ep_qp_attr) {
		struct ibv_qp_init_attr attr = *id->ep_qp_attr;

		if (rdma_create_qp(event->id, id->ep_pd, &attr)) {
			int error = errno;

			rdma_reject(event->id, NULL, 0);
			rdma_destroy_id(event->id);
			return cm_errno(error);
		}
	}
	*ret_id = event->id;
	return 0;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE))
		return cm_errno(EOPNOTSUPP);
	return rdma_create_srq(id, attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL,
		(struct ibv_srq_init_attr *)attr);
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (!id->verbs || id->srq)
		return cm_errno(EINVAL);
	if (!pd)
		pd = cm_device_pd(cm_of(id)->device);
	id->srq = pd ? ibv_create_srq(pd, attr) : NULL;
	return id->srq ? 0 : -1;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
