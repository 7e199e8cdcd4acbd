/* SPDX-License-Identifier: MIT */
/*
 * The queue of changes.
 */
#include "target/change.h"

#include <errno.h>
#include <stdio.h>

#include "target/publish.h"
#include "target/target.h"

static void change_end_current(struct change_queue *queue, int error, const char *why)
{
	struct change *change = queue->current;

	queue->current = NULL;
	if (!list_empty(&queue->waiting))
		loop_flush_later(queue->target->loop, &queue->next);
	change->over(change, error, why);
}

static void change_published(struct publish *publish, int error)
{
	struct target *target = publish->target;

	if (!error && target->changes.watch)
		target->changes.watch->counts(target->changes.watch);
	change_end_current(&target->changes, error, publish->why);
	target_change_is_over(target);
}

static int change_make(struct change_queue *queue, struct catalog **ret)
{
	struct change *change = queue->current;

	*ret = NULL;
	if (queue->target->draining) {
		snprintf(queue->why, sizeof(queue->why), "the target is about to stop");
		return -ESHUTDOWN;
	}
	queue->why[0] = '\0';
	return change->make(change, queue->target->catalog, ret, queue->why, sizeof(queue->why));
}

static void change_next(struct loop_flush *flush)
{
	struct change_queue *queue = container_of(flush, struct change_queue, next);
	struct catalog *catalog;
	struct list *node;
	int error;

	if (queue->current || publish_is_busy(&queue->target->publish))
		return;
	node = list_pop_front(&queue->waiting);
	if (!node)
		return;
	queue->current = container_of(node, struct change, node);
	error = change_make(queue, &catalog);
	if (!error && catalog)
		publish_start(&queue->target->publish, catalog, change_published);
	else
		change_end_current(queue, error, queue->why);
}

void change_queue_init(struct change_queue *queue, struct target *target)
{
	*queue = (struct change_queue){.target = target};
	list_init(&queue->waiting);
	loop_flush_init(&queue->next, change_next);
}

void change_ask(struct change_queue *queue, struct change *change)
{
	list_init(&change->node);
	list_push_back(&queue->waiting, &change->node);
	loop_flush_later(queue->target->loop, &queue->next);
}

void change_queue_end(struct change_queue *queue)
{
	loop_flush_cancel(&queue->next);
	if (queue->current)
		change_end_current(queue, -ESHUTDOWN, "the target has stopped");
	while (!queue->current && !list_empty(&queue->waiting)) {
		queue->current = container_of(list_pop_front(&queue->waiting), struct change, node);
		change_end_current(queue, -ESHUTDOWN, "the target has stopped");
	}
	loop_flush_cancel(&queue->next);
}
