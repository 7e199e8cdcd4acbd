/* SPDX-License-Identifier: MIT */
/*
 * The objects behind the verbs handles. Each begins (or, for the context, ends) with the public
 * struct. Everything is guarded by the engine's lock, except completion queues and event queues
 * (own locks, taken last).
 */
#ifndef SOFTRDMA_H
#define SOFTRDMA_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tests/softrdma/conn.h"
#include "tests/softrdma/engine.h"
#include "tests/softrdma/evq.h"
#include "tests/softrdma/fault.h"

#define SR_MAX_DEVICES 8
#define SR_MAX_SGE     32
#define SR_MAX_INLINE  1024
#define SR_NR_GIDS     2
#define SR_MAX_MSG     (1u << 31)

struct sr_device {
	struct ibv_device dev;
	int index;
	bool removed;
};

struct sr_context {
	struct sr_device *dev;
	struct sr_evq async;
	LIST_ENTRY(sr_context) link;
	LIST_HEAD(, sr_cq) cqs;
	LIST_HEAD(, sr_qp) qps;
	unsigned int users;	   /* protection domains and channels */
	struct verbs_context vctx; /* must be last: the public part grows backwards */
};

struct sr_pd {
	struct ibv_pd pd;
	unsigned int users; /* regions, windows, queues and address handles in it */
};

/* A memory region or a memory window. */
struct sr_mr {
	union {
		struct ibv_mr mr;
		struct ibv_mw mw;
	};
	bool is_mw;
	bool bound; /* of a window: it has a region */
	struct sr_pd *pd;
	uint32_t lkey, rkey;
	uint64_t iova;
	uint64_t length;
	uint8_t *host; /* address of iova in this process */
	unsigned int access;
	uint64_t locked_bytes;
	struct sr_mr *parent; /* region a window is bound to */
	struct sr_qp *owner;  /* queue pair a type 2B window is bound to */
	unsigned int windows; /* bound to this region */
};

struct sr_cqe {
	struct ibv_wc wc;
	struct sr_qp *qp; /* whose slot polling frees; NULL: none, or destroyed */
	uint32_t sq_done; /* send slots up to here are free once this is polled */
	bool is_send;
	bool solicited;
	uint64_t due_ns; /* with delay_cq */
};

struct sr_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct sr_context *ctx;
	pthread_mutex_t lock;
	struct sr_cqe *ring;
	uint32_t size;	       /* of the ring, a power of two */
	uint32_t capacity;     /* as asked for; more is an overrun */
	_Atomic uint32_t head; /* next to poll; written under lock */
	_Atomic uint32_t
		tail;  /* visible to poll; polled without the lock to find the queue empty */
	uint32_t fill; /* next to write: ahead of tail by the delayed ones */
	bool armed, armed_solicited;
	bool overrun, overrun_reported;
	unsigned int users;
	uint32_t events_reported, async_reported;
	struct sr_timer delay;
	struct sr_cqe current; /* of start_poll / next_poll */
	LIST_ENTRY(sr_cq) link;
};

struct sr_channel {
	struct ibv_comp_channel channel;
	struct sr_evq evq;
	unsigned int users;
};

struct sr_rwqe {
	uint64_t wr_id;
	uint32_t length;
	int num_sge;
	struct ibv_sge sge[SR_MAX_SGE];
};

struct sr_rq {
	struct sr_rwqe *ring;
	uint32_t max_wr, max_sge;
	uint32_t head, tail;	 /* taken, posted */
	_Atomic uint32_t polled; /* slots freed; of a queue pair's own queue only by polling */
};

struct sr_srq {
	struct ibv_srq srq;
	struct sr_pd *pd;
	struct sr_rq rq;
	uint32_t limit;
	unsigned int users;
	uint32_t async_reported;
};

struct sr_swqe {
	struct ibv_send_wr wr; /* sg_list and next are not used */
	struct ibv_sge sge[SR_MAX_SGE];
	uint32_t length;
	uint32_t seq;
	uint32_t sent; /* bytes handed to the stream */
	bool on_wire;  /* a request the peer answers; else done locally */
	bool started;
	bool done;
	enum ibv_wc_status status;
	uint32_t received; /* of READ data */
	uint8_t *data;	   /* inline data */
};

struct sr_sq {
	struct sr_swqe *ring;
	uint8_t *inline_mem;
	uint32_t max_wr, max_sge, max_inline;
	uint32_t head;		 /* next to post */
	uint32_t next;		 /* next to send */
	uint32_t done;		 /* next to complete */
	_Atomic uint32_t polled; /* slots freed, by polling */
	uint32_t seq;		 /* of the next request posted */
	uint32_t reads;		 /* READs on the wire */
	uint32_t rnr_tries;
	bool rnr_wait;
	bool stopped; /* a local error waits for its turn to complete */
	struct sr_timer rnr_timer;
	struct sr_timer retry_timer;
};

/* What the responder still has to say, in order. */
struct sr_answer {
	enum sr_msg type;
	uint16_t code;
	uint32_t seq;
	uint32_t rkey;
	uint64_t addr;
	uint32_t total, sent;
};

struct sr_resp {
	uint32_t seq; /* expected */
	uint32_t off;
	bool dead; /* a fatal answer is queued */
	bool has_rwqe;
	bool skip_rnr; /* the fault hook has had its turn for this request */
	struct sr_rwqe rwqe;
	struct sr_answer *ring;
	uint32_t size, head, tail;
	uint32_t reads;
};

struct sr_qp {
	struct ibv_qp qp;
	struct sr_context *ctx;
	struct sr_pd *pd;
	struct sr_cq *scq, *rcq;
	struct sr_srq *srq;
	bool sig_all;
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct sr_conn *conn;
	struct sr_sq sq;
	struct sr_rq rq;
	struct sr_resp resp;
	struct sr_work flush_work;
	struct sr_source raw_listen;
	struct sr_timer raw_timer;
	uint32_t async_reported;
	struct sr_garbage garbage;
	LIST_ENTRY(sr_qp) link;
};

/* device.c */
struct sr_context *sr_context_of(struct ibv_context *context);
struct sr_context *sr_context_open(struct ibv_device *device);
struct sr_device *sr_device_get(int index);
int sr_device_count(void);
bool sr_context_removed(struct sr_context *ctx);
void sr_device_remove(void);
/* What librdmacm wants to know of a removed device. Runs on any thread, lock held. */
extern void (*sr_device_removed_hook)(struct sr_device *dev);
/* Of each device: the port goes down and comes up again. */
void sr_port_bounce(void);
void sr_port_events(void);

/* async.c: events of the device. The object's counter is what its destruction waits for. */
void sr_async_raise(struct sr_context *ctx, enum ibv_event_type type, void *object);
void sr_async_purge(struct sr_context *ctx, void *object);

/* mr.c: the one place where keys are checked. NULL when the access is not allowed. */
uint8_t *sr_lkey_check(struct sr_pd *pd, const struct ibv_sge *sge, unsigned int access);
uint8_t *sr_rkey_check(
	struct sr_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned int access);
struct ibv_mw *sr_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int sr_dealloc_mw(struct ibv_mw *mw);
int sr_mw_bind(struct sr_qp *qp, const struct ibv_send_wr *wr);
/* 0 or -EINVAL: the key cannot be invalidated through this queue pair. */
int sr_key_invalidate(struct sr_qp *qp, uint32_t rkey);
void sr_mw_forget_qp(struct sr_qp *qp);

/* sge.c: copy between a stream segment and scattered user memory, keys checked again. 0 or -EFAULT.
 */
int sr_sge_gather(struct sr_pd *pd, const struct ibv_sge *sge, int num, uint32_t off, uint8_t *to,
	uint32_t len);
int sr_sge_scatter(struct sr_pd *pd, const struct ibv_sge *sge, int num, uint32_t off,
	const uint8_t *from, uint32_t len);
int sr_sge_check(struct sr_pd *pd, const struct ibv_sge *sge, int num, unsigned int access);

/* cq.c */
void sr_cq_push(struct sr_cq *cq, const struct sr_cqe *cqe);
void sr_cq_forget_qp(struct sr_cq *cq, struct sr_qp *qp);
int sr_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
int sr_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *sr_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
uint32_t sr_random(void);

/* srq.c and recv queues */
int sr_rq_init(struct sr_rq *rq, uint32_t max_wr, uint32_t max_sge);
int sr_rq_post(struct sr_rq *rq, const struct ibv_recv_wr *wr);
bool sr_srq_take(struct sr_srq *srq, struct sr_rwqe *rwqe);
int sr_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* qp.c */
struct ibv_qp *sr_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void sr_qp_error(struct sr_qp *qp);
void sr_qp_attach(struct sr_qp *qp, struct sr_conn *conn);
/* As ibv_modify_qp, with the lock held. */
int sr_qp_modify(struct sr_qp *qp, const struct ibv_qp_attr *attr, int mask);
void sr_qp_count_completion(struct sr_qp *qp);
/* What librdmacm does when the fault hook asks for a disconnect. Lock held. */
extern void (*sr_disconnect_hook)(struct sr_conn *conn);
extern void (*sr_cm_event_hook)(struct sr_conn *conn, uint32_t type);

/* qp_raw.c: connecting by queue pair number, without a CM. */
void sr_raw_listen(struct sr_qp *qp);
int sr_raw_connect(struct sr_qp *qp);
void sr_raw_stop(struct sr_qp *qp);

/* qp_send.c */
int sr_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sr_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* requester.c */
void sr_qp_transmit(struct sr_qp *qp);
void sr_qp_answered(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload);
void sr_qp_peer_gone(struct sr_qp *qp);
void sr_sq_init(struct sr_qp *qp);
void sr_sq_flush(struct sr_qp *qp);
void sr_sq_reset(struct sr_qp *qp);

/* responder.c */
int sr_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void sr_qp_message(struct sr_qp *qp, const struct sr_hdr *hdr, const void *payload);
bool sr_resp_transmit(struct sr_qp *qp);
void sr_rq_flush(struct sr_qp *qp);
void sr_resp_reset(struct sr_qp *qp);

/* stats.c: how many objects of a kind live; written to $SOFTRDMA_STATS at exit. */
enum sr_kind {
	SR_PD,
	SR_MR,
	SR_MW,
	SR_CHANNEL,
	SR_CQ,
	SR_SRQ,
	SR_QP,
	SR_AH,
	SR_CM_ID,
	SR_CM_CHANNEL,
	SR_NR_KINDS
};
void sr_count(enum sr_kind kind, int delta);
long sr_counted(enum sr_kind kind);

#endif
