/* SPDX-License-Identifier: MIT */
/*
 * The rest of librdmacm: multicast, ECE and the socket emulation, which softrdma does not have.
 * They exist so that programs that name them can be loaded.
 */
#include "tests/softrdma/cm.h"

#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	(void)id;
	(void)addr;
	(void)context;
	return cm_errno(EOPNOTSUPP);
}

int rdma_join_multicast_ex(
	struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	(void)attr;
	return rdma_join_multicast(id, NULL, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return rdma_join_multicast(id, addr, NULL);
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	(void)id;
	(void)ece;
	return cm_errno(EOPNOTSUPP);
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	(void)id;
	memset(ece, 0, sizeof(*ece));
	return 0;
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t len)
{
	return rdma_reject(id, private_data, len);
}

/* Programs poll the descriptors of channels with this one. */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return poll(fds, nfds, timeout);
}

#define REST_UNSUPPORTED(type, name, args) \
	type name args                     \
	{                                  \
		errno = EOPNOTSUPP;        \
		return (type)-1;           \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"
REST_UNSUPPORTED(int, rsocket, (int domain, int type, int protocol))
REST_UNSUPPORTED(int, rbind, (int fd, const struct sockaddr *addr, socklen_t len))
REST_UNSUPPORTED(int, rlisten, (int fd, int backlog))
REST_UNSUPPORTED(int, raccept, (int fd, struct sockaddr *addr, socklen_t *len))
REST_UNSUPPORTED(int, rconnect, (int fd, const struct sockaddr *addr, socklen_t len))
REST_UNSUPPORTED(int, rshutdown, (int fd, int how))
REST_UNSUPPORTED(int, rclose, (int fd))
REST_UNSUPPORTED(ssize_t, rrecv, (int fd, void *buf, size_t len, int flags))
REST_UNSUPPORTED(ssize_t, rrecvfrom,
	(int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen))
REST_UNSUPPORTED(ssize_t, rrecvmsg, (int fd, struct msghdr *msg, int flags))
REST_UNSUPPORTED(ssize_t, rsend, (int fd, const void *buf, size_t len, int flags))
REST_UNSUPPORTED(ssize_t, rsendto,
	(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		socklen_t alen))
REST_UNSUPPORTED(ssize_t, rsendmsg, (int fd, const struct msghdr *msg, int flags))
REST_UNSUPPORTED(ssize_t, rread, (int fd, void *buf, size_t len))
REST_UNSUPPORTED(ssize_t, rreadv, (int fd, const struct iovec *iov, int num))
REST_UNSUPPORTED(ssize_t, rwrite, (int fd, const void *buf, size_t len))
REST_UNSUPPORTED(ssize_t, rwritev, (int fd, const struct iovec *iov, int num))
REST_UNSUPPORTED(
	int, rselect, (int nfds, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *timeout))
REST_UNSUPPORTED(int, rgetpeername, (int fd, struct sockaddr *addr, socklen_t *len))
REST_UNSUPPORTED(int, rgetsockname, (int fd, struct sockaddr *addr, socklen_t *len))
REST_UNSUPPORTED(int, rsetsockopt, (int fd, int level, int name, const void *val, socklen_t len))
REST_UNSUPPORTED(int, rgetsockopt, (int fd, int level, int name, void *val, socklen_t *len))
REST_UNSUPPORTED(int, rfcntl, (int fd, int cmd, ...))
REST_UNSUPPORTED(off_t, riomap, (int fd, void *buf, size_t len, int prot, int flags, off_t offset))
REST_UNSUPPORTED(int, riounmap, (int fd, void *buf, size_t len))
REST_UNSUPPORTED(size_t, riowrite, (int fd, const void *buf, size_t count, off_t offset, int flags))
