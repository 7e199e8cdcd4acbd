/* SPDX-License-Identifier: MIT */
/*
 * A share is the account of one host on one reactor: what its connections hold, together, of what
 * is finite. A host is an IPv4 address or an IPv6 network of 64 bits, the least that is given to
 * one (RFC 6177); a link-local address is one host. What it says it is, its NQN, would not do: it
 * can say another one each time.
 *
 * One rule for everything finite (after Choudhury and Hahne's dynamic thresholds, 1998): a share
 * may take more as long as what it would hold is no more than what would be left free. One host
 * alone has up to half, two have a third each, and there is always something left for one that
 * comes. There is nothing to tune, and nothing is looked up per I/O: connections point to their
 * share. A share that holds nothing may take one of whatever there is.
 *
 * Requests that wait for their share wait in its line, in order. All that can make them go on is
 * something given back, by this share or by another one; each time all lines are tried again, a
 * bounded number a turn. All that waits has something out, hence no wake-up can be lost for good.
 */
#ifndef HAUL_TARGET_SHARE_H
#define HAUL_TARGET_SHARE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/base/bufpool.h"
#include "proto/base/list.h"
#include "proto/base/log.h"
#include "proto/base/loop.h"
#include "proto/link/address.h"

#define SHARE_NR_ROWS	256
#define SHARE_NR_LIMITS 64

/* A reactor's shares. */
struct share_table {
	struct loop *loop;
	struct bufpool *pool;
	uint64_t key[2]; /* hosts choose their addresses, but not their row */
	struct list rows[SHARE_NR_ROWS];
	struct list untried; /* lines in which somebody waits, that may be able to go on */
	struct list tried;   /* ... that cannot before something is given back */
	struct loop_flush serve;
	/* Of lines about hosts: a share ends with its host's last connection, a row here does not.
	 */
	struct log_limit limits[SHARE_NR_LIMITS];
};

struct share_key {
	uint32_t family; /* 0: an address nobody could tell */
	uint32_t scope;
	struct in6_addr address;
};

/* Who waits: for data, or for the reserve, which data does not hold up. */
struct share_line {
	struct share *share;
	uint64_t bytes;	     /* that it holds */
	struct list waiting; /* claims, by their pool_wait's node */
	struct list node;    /* the table's, while somebody waits */
};

struct share {
	struct share_table *table;
	struct list node; /* of its row */
	struct share_key key;
	uint32_t nr_users;		    /* connections and controllers */
	uint64_t bytes[BUFPOOL_NR_SHELVES]; /* that it holds, by shelf */
	uint32_t nr_ctrls;
	uint32_t nr_receives;
	uint32_t nr_conns; /* of all reactors: counted on their port's */
	struct share_line data, reserve;
};

/* A request's wish for a buffer. READY and SHELF of POOL_WAIT are the request's to set. */
struct share_claim {
	struct bufpool_wait pool_wait; /* in the share's line, then in the pool's */
	struct share_line *line;       /* set by share_buf_get() */
	uint32_t bytes;		       /* that the share has agreed to; 0: none yet */
};

/* The rule, for a resource of which LEFT is free now. */
static inline bool share_may_take(uint64_t held, uint64_t want, uint64_t left)
{
	return held ? held + 2 * want <= left : want <= left;
}

/* As far as it could go, were all that is left its own to take: none may have more than others. */
static inline uint64_t share_limit(uint64_t held, uint64_t left)
{
	return left > held ? held + (left - held) / 2 : held;
}

void share_table_init(
	struct share_table *table, struct loop *loop, struct bufpool *pool, const uint64_t key[2]);
/* Nobody uses a share any more. */
void share_table_destroy(struct share_table *table);

/* PEER's share with one user more, made if there is none; NULL: out of memory. */
struct share *share_get(struct share_table *table, const struct sockaddr_storage *peer);
struct share *share_use(struct share *share);
/* One user less; the last one frees it. NULL is allowed. */
void share_put(struct share *share);

/* A buffer now, or NULL: then share_wait(), after which READY is called with it. */
struct buf *share_buf_get(struct share *share, struct share_claim *claim);
void share_buf_wait(struct share_claim *claim);
/* It waits no more. */
void share_buf_cancel(struct share_claim *claim);
/* What FROM has taken is TO's from now on, which has nothing; both are of one host. */
void share_claim_move(struct share_claim *to, struct share_claim *from);
/* The claim is over: its buffer, if BUF is not NULL, goes back to the pool. Idempotent. */
void share_buf_put(struct share *share, struct share_claim *claim, struct buf *buf);

/* "10.0.0.1", or "fd00::/64". */
#define SHARE_TEXT (ADDRESS_HOST_TEXT + 4)
void share_describe(const struct share *share, char ret_text[SHARE_TEXT]);
/* Claims that wait in its lines. */
uint32_t share_nr_waiting(const struct share *share);

/* What bounds the lines about this host in the log; hosts with bad luck share one. */
struct log_limit *share_log_limit(struct share *share);
/* A refusal for the administrator to see, limited for each host: the host has HELD of WHAT, LEFT
 * are free. */
void share_log_refusal(struct share *share, const char *what, uint64_t held, uint64_t left);

#endif
