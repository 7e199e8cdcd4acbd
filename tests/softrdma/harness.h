/* SPDX-License-Identifier: MIT */
/*
 * Two connected sides in one process for the tests of softrdma; all waiting is on descriptors, with
 * a deadline. Links against the distribution's libraries: the tests themselves are unchanged
 * programs.
 */
#ifndef SOFTRDMA_HARNESS_H
#define SOFTRDMA_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <string.h>

#define WAIT_MS	   10000
#define SIDE_BYTES (4u << 20)
#define ALL_ACCESS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
		IBV_ACCESS_MW_BIND)

struct side {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *cc;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t *buf;
};

/* What a test wants different from the defaults (0). */
struct pair_opts {
	uint32_t send_wr, recv_wr, sge, inline_bytes, cqe;
	uint8_t reads;	   /* at once, in both directions */
	uint8_t rnr_retry; /* + 1; 0 means 7 */
	bool srq, sig_all;
};

struct pair {
	struct rdma_event_channel *lch;
	struct rdma_cm_id *listener;
	struct side a, p; /* active, passive */
	struct pair_opts opts;
};

struct sockaddr_storage addr_of(const char *text, uint16_t port);
struct rdma_cm_event *event_wait(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
void event_expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
bool fd_ready(int fd, int timeout_ms);

/* A listener on the address; port 0 chooses. */
struct rdma_cm_id *listen_on(struct rdma_event_channel *ch, const char *addr, uint16_t port);
/* An id with a route to the listener. */
struct rdma_cm_id *route_to(struct rdma_event_channel *ch, const char *addr, uint16_t port);
void side_open(struct side *s, const struct pair_opts *opts);
void side_close(struct side *s);
struct ibv_qp_init_attr side_qp_attr(const struct side *s, const struct pair_opts *opts);

void pair_open(struct pair *pair, const struct pair_opts *opts);
/* A further connection on the passive side's resources. */
void pair_connect(struct pair *pair, struct side *a, struct side *p);
void pair_disconnect(struct pair *pair);
void pair_close(struct pair *pair);

struct ibv_sge side_sge(const struct side *s, uint32_t off, uint32_t len);
int post_recv(struct side *s, uint64_t wr_id, uint32_t off, uint32_t len);
struct ibv_send_wr send_wr(enum ibv_wr_opcode op, uint64_t wr_id, struct ibv_sge *sge,
	const struct side *peer, uint32_t peer_off);
int post(struct side *s, struct ibv_send_wr *wr);
struct ibv_wc wc_wait(struct ibv_cq *cq);
void wc_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
bool wc_none(struct ibv_cq *cq, int timeout_ms);
enum ibv_qp_state qp_state(struct ibv_qp *qp);
void qp_wait_state(struct ibv_qp *qp, enum ibv_qp_state state);
void rnr_timer_short(struct ibv_qp *qp);

#endif
