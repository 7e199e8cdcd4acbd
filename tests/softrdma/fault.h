/* SPDX-License-Identifier: MIT */
/*
 * Faults and limits asked for by the environment (SOFTRDMA_FAULT, see README.md).
 * Read once, when the first device list or event channel is asked for.
 */
#ifndef SOFTRDMA_FAULT_H
#define SOFTRDMA_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum sr_call {
	SR_CALL_ALLOC_PD,
	SR_CALL_REG_MR,
	SR_CALL_ALLOC_MW,
	SR_CALL_CREATE_CHANNEL,
	SR_CALL_CREATE_CQ,
	SR_CALL_RESIZE_CQ,
	SR_CALL_CREATE_SRQ,
	SR_CALL_CREATE_QP,
	SR_CALL_MODIFY_QP,
	SR_CALL_DESTROY_QP,
	SR_CALL_POST_SEND,
	SR_CALL_POST_RECV,
	SR_CALL_CREATE_ID,
	SR_CALL_LISTEN,
	SR_CALL_RESOLVE_ADDR,
	SR_CALL_CONNECT,
	SR_CALL_ACCEPT,
	SR_CALL_NOTIFY,
	SR_NR_CALLS,
};

#define SR_NO_EVENT UINT32_MAX

/* Values of 0 mean "not asked for", except the limits, which hold the device's own values. */
struct sr_faults {
	uint32_t max_sge;
	uint32_t max_send_wr;
	uint32_t max_srq_wr;
	uint32_t max_inline;
	uint32_t max_qp_rd_atom;
	uint32_t max_mr;
	uint32_t max_cqe;
	uint32_t max_qp;
	uint32_t memlock;
	uint32_t no_srq;
	uint32_t no_inv;
	uint32_t no_mw;
	uint32_t no_resize;
	uint32_t no_flush;
	uint32_t iwarp;
	uint32_t last_wqe;
	uint32_t clean_cq;
	uint32_t rnr;
	uint32_t withhold_at;
	uint32_t withhold_ms;
	uint32_t delay_cq_us;
	uint32_t retry_ms;
	uint32_t timewait_ms;
	uint32_t flush_at;
	uint32_t reject_at;
	uint32_t disconnect_at;
	uint32_t remove_at;
	uint32_t port_bounce_at;
	uint32_t port_events;
	uint32_t cm_event;
	uint32_t cm_event_times;
	uint32_t delay_established_ms;
};

extern struct sr_faults sr_faults;

void sr_faults_load(void);

/* Counts one use of call and returns the errno it must fail with, or 0. */
int sr_fault_call(enum sr_call call);

/* Counts one more event of the kind and tells whether this is the one asked for. */
bool sr_fault_hit(uint32_t at, uint32_t *count);

#endif
