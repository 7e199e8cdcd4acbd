/* SPDX-License-Identifier: MIT */
/*
 * Hosts' shares of a reactor's buffers, controllers and receives.
 */
#include "target/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/nvme/siphash.h"

/* Lines tried at once; others of the turn want to work, too. */
#define SHARE_SERVE_BUDGET 64

/* --- hosts ----------------------------------------------------------------------------------- */

static struct share_key share_key_of(const struct sockaddr_storage *peer)
{
	struct sockaddr_storage plain = address_plain(peer);
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&plain;
	struct share_key key = {.family = plain.ss_family};

	if (plain.ss_family == AF_INET) {
		memcpy(&key.address, &((const struct sockaddr_in *)&plain)->sin_addr,
			sizeof(struct in_addr));
	} else if (plain.ss_family == AF_INET6) {
		key.address = in6->sin6_addr;
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			key.scope = in6->sin6_scope_id;
		else
			memset(key.address.s6_addr + 8, 0, 8);
	}
	return key;
}

static struct list *share_row(struct share_table *table, const struct share_key *key)
{
	return &table->rows[nvme_siphash(table->key, key, sizeof(*key)) % SHARE_NR_ROWS];
}

static void share_line_init(struct share_line *line, struct share *share)
{
	line->share = share;
	list_init(&line->waiting);
	list_init(&line->node);
}

struct share *share_get(struct share_table *table, const struct sockaddr_storage *peer)
{
	struct share_key key = share_key_of(peer);
	struct list *row = share_row(table, &key);
	struct share *share;

	list_for_each_entry (share, row, node)
		if (!memcmp(&share->key, &key, sizeof(key)))
			return share_use(share);
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->table = table;
	share->key = key;
	share_line_init(&share->data, share);
	share_line_init(&share->reserve, share);
	list_init(&share->node);
	list_push_front(row, &share->node);
	return share_use(share);
}

struct share *share_use(struct share *share)
{
	share->nr_users++;
	return share;
}

void share_put(struct share *share)
{
	if (!share || --share->nr_users)
		return;
	assert(!share->data.bytes && !share->reserve.bytes);
	assert(!share->nr_ctrls && !share->nr_receives && !share->nr_conns);
	assert(list_empty(&share->data.node) && list_empty(&share->reserve.node));
	list_remove(&share->node);
	free(share);
}

struct log_limit *share_log_limit(struct share *share)
{
	struct share_table *table = share->table;
	uint64_t hash = nvme_siphash(table->key, &share->key, sizeof(share->key));

	return &table->limits[hash % SHARE_NR_LIMITS];
}

void share_describe(const struct share *share, char ret_text[SHARE_TEXT])
{
	struct sockaddr_storage address = {.ss_family = (sa_family_t)share->key.family};
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
	char host[ADDRESS_HOST_TEXT];

	if (address.ss_family == AF_INET6) {
		in6->sin6_addr = share->key.address;
		in6->sin6_scope_id = share->key.scope;
	} else {
		memcpy(&((struct sockaddr_in *)&address)->sin_addr, &share->key.address,
			sizeof(struct in_addr));
	}
	address_host(&address, host);
	snprintf(ret_text, SHARE_TEXT, "%s%s", host,
		address.ss_family == AF_INET6 && !share->key.scope ? "/64" : "");
}

static uint32_t share_line_length(const struct share_line *line)
{
	uint32_t nr = 0;

	for (const struct list *node = line->waiting.next; node != &line->waiting;
		node = node->next)
		nr++;
	return nr;
}

uint32_t share_nr_waiting(const struct share *share)
{
	return share_line_length(&share->data) + share_line_length(&share->reserve);
}

void share_log_refusal(struct share *share, const char *what, uint64_t held, uint64_t left)
{
	char host[SHARE_TEXT];

	share_describe(share, host);
	log_line_limited(share_log_limit(share), loop_now_ns(share->table->loop), LOG_LEVEL_WARNING,
		"host %s is refused more %s: it has %llu, and no host may have more than are left "
		"for others: %llu",
		host, what, (unsigned long long)held, (unsigned long long)left);
}

/* --- buffers --------------------------------------------------------------------------------- */

/* The rule, both of all memory and of what its shelf can give: what is free may be of another size.
 */
static bool share_take_buf(struct share_claim *claim)
{
	enum bufpool_shelf shelf = claim->pool_wait.shelf;
	uint32_t want = bufpool_shelf_bytes(shelf);
	struct share_line *line = claim->line;
	struct share *share = line->share;

	if (line->bytes && !bufpool_has(share->table->pool, shelf, line->bytes + 2 * want,
				   share->bytes[shelf] + 2 * want))
		return false;
	claim->bytes = want;
	share->bytes[shelf] += want;
	line->bytes += want;
	return true;
}

struct buf *share_buf_get(struct share *share, struct share_claim *claim)
{
	enum bufpool_shelf shelf = claim->pool_wait.shelf;

	claim->line = shelf == BUFPOOL_SHELF_RESERVE ? &share->reserve : &share->data;
	/* Not past others of this host that wait already. */
	if (unlikely(!list_empty(&claim->line->waiting)) || !share_take_buf(claim))
		return NULL;
	return bufpool_get(share->table->pool, shelf);
}

void share_buf_wait(struct share_claim *claim)
{
	struct share_line *line = claim->line;
	struct share_table *table = line->share->table;

	if (claim->bytes) {
		bufpool_wait(table->pool, &claim->pool_wait);
		return;
	}
	list_push_back(&line->waiting, &claim->pool_wait.node);
	if (list_empty(&line->node))
		list_push_back(&table->tried, &line->node);
}

/* Something was given back: what could not go on may do so now, whoever it was. */
static void share_wake(struct share_table *table)
{
	list_splice_back(&table->untried, &table->tried);
	if (!list_empty(&table->untried))
		loop_flush_later(table->loop, &table->serve);
}

/* One claim of the line's, or none, goes on to the pool's line. */
static void share_serve_line(struct share_table *table, struct share_line *line)
{
	struct share_claim *claim =
		container_of(line->waiting.next, struct share_claim, pool_wait.node);

	if (!share_take_buf(claim)) {
		list_push_back(&table->tried, &line->node);
		return;
	}
	list_remove(&claim->pool_wait.node);
	if (!list_empty(&line->waiting))
		list_push_back(&table->untried, &line->node);
	bufpool_wait(table->pool, &claim->pool_wait);
}

static void share_serve(struct loop_flush *flush)
{
	struct share_table *table = container_of(flush, struct share_table, serve);
	struct list *node;

	for (unsigned i = 0; i < SHARE_SERVE_BUDGET; i++) {
		node = list_pop_front(&table->untried);
		if (!node)
			return;
		share_serve_line(table, container_of(node, struct share_line, node));
	}
	loop_flush_later(table->loop, flush);
}

void share_buf_cancel(struct share_claim *claim)
{
	struct share_line *line = claim->line;
	struct share_table *table = line->share->table;

	if (claim->bytes) {
		bufpool_wait_cancel(table->pool, &claim->pool_wait);
		return;
	}
	list_remove(&claim->pool_wait.node);
	if (list_empty(&line->waiting))
		list_remove(&line->node);
	else /* The next one may be content with less. */
		share_wake(table);
}

void share_claim_move(struct share_claim *to, struct share_claim *from)
{
	assert(!to->bytes);
	to->line = from->line;
	to->bytes = from->bytes;
	to->pool_wait.shelf = from->pool_wait.shelf;
	from->bytes = 0;
}

void share_buf_put(struct share *share, struct share_claim *claim, struct buf *buf)
{
	if (buf)
		bufpool_put(share->table->pool, buf);
	if (!claim->bytes)
		return;
	share->bytes[claim->pool_wait.shelf] -= claim->bytes;
	claim->line->bytes -= claim->bytes;
	claim->bytes = 0;
	share_wake(share->table);
}

/* --- life ------------------------------------------------------------------------------------ */

void share_table_init(
	struct share_table *table, struct loop *loop, struct bufpool *pool, const uint64_t key[2])
{
	table->loop = loop;
	table->pool = pool;
	memcpy(table->key, key, sizeof(table->key));
	for (unsigned i = 0; i < SHARE_NR_ROWS; i++)
		list_init(&table->rows[i]);
	list_init(&table->untried);
	list_init(&table->tried);
	loop_flush_init(&table->serve, share_serve);
}

void share_table_destroy(struct share_table *table)
{
	loop_flush_cancel(&table->serve);
	for (unsigned i = 0; i < SHARE_NR_ROWS; i++)
		assert(list_empty(&table->rows[i]));
}
