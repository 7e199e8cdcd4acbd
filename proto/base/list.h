/* SPDX-License-Identifier: MIT */
/*
 * A doubly linked list whose nodes are embedded in what is listed. A node that is in no list
 * points at itself, so that removal is idempotent and membership can be asked.
 */
#ifndef HAUL_BASE_LIST_H
#define HAUL_BASE_LIST_H

#include <stdbool.h>

#include "proto/base/compiler.h"

struct list {
	struct list *next;
	struct list *prev;
};

static inline void list_init(struct list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_insert_before(struct list *node, struct list *next)
{
	assert(list_empty(node));
	node->prev = next->prev;
	node->next = next;
	next->prev->next = node;
	next->prev = node;
}

static inline void list_push_back(struct list *list, struct list *node)
{
	list_insert_before(node, list);
}

static inline void list_push_front(struct list *list, struct list *node)
{
	list_insert_before(node, list->next);
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The first node, taken out; NULL when there is none. */
static inline struct list *list_pop_front(struct list *list)
{
	struct list *node = list->next;

	if (node == list)
		return NULL;
	list_remove(node);
	return node;
}

/* All nodes of FROM, in their order, to the end of LIST; FROM is empty afterwards. */
static inline void list_splice_back(struct list *list, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = list->prev;
	list->prev->next = from->next;
	from->prev->next = list;
	list->prev = from->prev;
	list_init(from);
}

/* ENTRY may be what the list's head would be part of: nothing of it is looked at but its address.
 */
#define list_node_of(entry, member) \
	((struct list *)((uintptr_t)(entry) + offsetof(__typeof__(*(entry)), member)))

#define list_for_each_entry(entry, list, member)                             \
	for (entry = container_of((list)->next, __typeof__(*entry), member); \
		list_node_of(entry, member) != (list);                       \
		entry = container_of(entry->member.next, __typeof__(*entry), member))

/* The entry at hand may be removed (and freed) by the body; its neighbours may not. */
#define list_for_each_entry_safe(entry, after, list, member)                                     \
	for (entry = container_of((list)->next, __typeof__(*entry), member),                     \
	    after = container_of(list_node_of(entry, member)->next, __typeof__(*entry), member); \
		list_node_of(entry, member) != (list); entry = after,                            \
	    after = container_of(list_node_of(after, member)->next, __typeof__(*entry), member))

#endif
