/* SPDX-License-Identifier: MIT */
/*
 * Many producers, one consumer: see mailbox.h.
 */
#include "proto/base/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *mailbox)
{
	atomic_init(&mailbox->posted, NULL);
	atomic_init(&mailbox->sleeping, false);
	mailbox->taken = NULL;
	mailbox->taken_end = &mailbox->taken;
	mailbox->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return mailbox->event_fd < 0 ? -errno : 0;
}

void mailbox_destroy(struct mailbox *mailbox)
{
	close(mailbox->event_fd);
}

static void mailbox_wake(struct mailbox *mailbox)
{
	const uint64_t one = 1;
	ssize_t written;

	do
		written = write(mailbox->event_fd, &one, sizeof(one));
	while (written < 0 && errno == EINTR);
	/* EAGAIN: the counter is full, hence readable already. */
}

bool mailbox_post(struct mailbox *mailbox, struct loop_message *message)
{
	struct loop_message *first;

	first = atomic_load_explicit(&mailbox->posted, memory_order_relaxed);
	do
		message->next = first;
	/* Sequentially consistent, as are the three accesses in mailbox_sleep(): either we see that
	 * the loop's thread sleeps, or it sees our message. MESSAGE is not ours any more. */
	while (!atomic_compare_exchange_weak(&mailbox->posted, &first, message));
	if (!atomic_load(&mailbox->sleeping) || !atomic_exchange(&mailbox->sleeping, false))
		return false;
	mailbox_wake(mailbox);
	return true;
}

/* Appends what other threads have posted, in their order, to what was taken before. */
static void mailbox_take(struct mailbox *mailbox)
{
	struct loop_message *newest;
	struct loop_message *oldest = NULL;
	struct loop_message *next;

	if (!atomic_load_explicit(&mailbox->posted, memory_order_relaxed))
		return;
	/* Acquire: what the posting threads wrote into their messages. */
	newest = atomic_exchange_explicit(&mailbox->posted, NULL, memory_order_acquire);
	struct loop_message **end = &newest->next;

	for (; newest; newest = next) {
		next = newest->next;
		newest->next = oldest;
		oldest = newest;
	}
	*mailbox->taken_end = oldest;
	mailbox->taken_end = end;
}

uint32_t mailbox_deliver(struct mailbox *mailbox, uint32_t budget)
{
	struct loop_message *message;
	uint32_t nr;

	mailbox_take(mailbox);
	for (nr = 0; nr < budget && mailbox->taken; nr++) {
		message = mailbox->taken;
		mailbox->taken = message->next;
		if (!mailbox->taken)
			mailbox->taken_end = &mailbox->taken;
		message->fn(message);
	}
	return nr;
}

bool mailbox_sleep(struct mailbox *mailbox)
{
	if (mailbox->taken)
		return false;
	atomic_store(&mailbox->sleeping, true);
	if (!atomic_load(&mailbox->posted))
		return true;
	atomic_store(&mailbox->sleeping, false);
	return false;
}

void mailbox_awake(struct mailbox *mailbox)
{
	/* Who finds it set in between writes an event that costs one look too many, no more. */
	if (atomic_load_explicit(&mailbox->sleeping, memory_order_relaxed))
		atomic_store_explicit(&mailbox->sleeping, false, memory_order_relaxed);
}

void mailbox_drain(struct mailbox *mailbox)
{
	uint64_t count;
	ssize_t got;

	do
		got = read(mailbox->event_fd, &count, sizeof(count));
	while (got < 0 && errno == EINTR);
}
