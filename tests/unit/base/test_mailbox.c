/* SPDX-License-Identifier: MIT */
/*
 * The mailbox under several threads; also built with ThreadSanitizer.
 */
#include "tests/unit/base/engines.h"

#include <pthread.h>

#include "proto/base/mailbox.h"

enum { NR_THREADS = 4, NR_MESSAGES = 5000 };

struct numbered {
	struct loop_message message;
	unsigned thread;
	unsigned number;
};

struct sender {
	pthread_t thread;
	struct loop *loop;
	unsigned index;
	struct numbered messages[NR_MESSAGES];
};

static struct sender senders[NR_THREADS];
static unsigned nr_next[NR_THREADS]; /* the loop's thread only */
static unsigned nr_delivered;

static void numbered_delivered(struct loop_message *message)
{
	const struct numbered *numbered = container_of(message, struct numbered, message);

	assert_int_equal(numbered->number, nr_next[numbered->thread]);
	nr_next[numbered->thread]++;
	nr_delivered++;
}

/* In bursts, so that the loop sleeps in between now and then. */
static void *sender_thread(void *arg)
{
	struct sender *sender = arg;
	struct numbered *numbered;
	unsigned burst = 1 + sender->index * 37;

	for (unsigned i = 0; i < NR_MESSAGES; i++) {
		numbered = &sender->messages[i];
		*numbered = (struct numbered){
			.message.fn = numbered_delivered, .thread = sender->index, .number = i};
		loop_send(sender->loop, &numbered->message);
		if (i % burst == 0)
			sched_yield();
	}
	return NULL;
}

static void messages_of_each_thread_arrive_once_and_in_order(void **state)
{
	struct loop *loop = *state;

	nr_delivered = 0;
	memset(nr_next, 0, sizeof(nr_next));
	for (unsigned i = 0; i < NR_THREADS; i++) {
		senders[i].loop = loop;
		senders[i].index = i;
		assert_int_equal(
			pthread_create(&senders[i].thread, NULL, sender_thread, &senders[i]), 0);
	}
	wait_for(loop, nr_delivered == NR_THREADS * NR_MESSAGES);
	for (unsigned i = 0; i < NR_THREADS; i++)
		pthread_join(senders[i].thread, NULL);
}

static void nothing_delivered(struct loop_message *message)
{
	(void)message;
}

static void only_the_first_message_to_a_sleeper_wakes(void **state)
{
	struct loop_message messages[3] = {
		{nothing_delivered}, {nothing_delivered}, {nothing_delivered}};
	struct mailbox mailbox;

	(void)state;
	assert_int_equal(mailbox_init(&mailbox), 0);
	assert_false(mailbox_post(&mailbox, &messages[0]));
	assert_false(mailbox_sleep(&mailbox));
	assert_int_equal(mailbox_deliver(&mailbox, 8), 1);
	assert_true(mailbox_sleep(&mailbox));
	assert_true(mailbox_post(&mailbox, &messages[0]));
	assert_false(mailbox_post(&mailbox, &messages[1]));
	mailbox_awake(&mailbox);
	assert_false(mailbox_post(&mailbox, &messages[2]));
	/* What is over the budget stays, and keeps the loop awake. */
	assert_int_equal(mailbox_deliver(&mailbox, 2), 2);
	assert_false(mailbox_sleep(&mailbox));
	assert_int_equal(mailbox_deliver(&mailbox, 2), 1);
	assert_int_equal(mailbox_deliver(&mailbox, 2), 0);
	mailbox_destroy(&mailbox);
}

/* Two loops that answer each other: each message must end the other's sleep. */
struct player {
	struct loop *loop;
	struct player *other;
	struct loop_message ball;
	unsigned nr_hits;
};
enum { NR_HITS = 2000 };

static void player_hit(struct loop_message *message)
{
	struct player *player = container_of(message, struct player, ball);

	player->nr_hits++;
	if (player->nr_hits <= NR_HITS)
		loop_send(player->other->loop, &player->other->ball);
	if (player->nr_hits >= NR_HITS)
		loop_stop(player->loop);
}

static void *player_thread(void *arg)
{
	struct player *player = arg;

	loop_run(player->loop);
	return NULL;
}

static void sleeping_loops_wake_each_other(void **state)
{
	const struct loop_options options = {.engine = engines_chosen};
	struct player players[2];
	pthread_t threads[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		players[i] = (struct player){.ball.fn = player_hit, .other = &players[1 - i]};
		assert_int_equal(loop_create(&options, &players[i].loop), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, player_thread, &players[i]);
	loop_send(players[0].loop, &players[0].ball);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(players[i].nr_hits >= NR_HITS);
		loop_destroy(players[i].loop);
	}
}

static struct loop *nested_loop;
static struct loop_message nested_message;
static unsigned nr_nested;

static void nested_delivered(struct loop_message *message)
{
	if (++nr_nested < 600)
		loop_send(nested_loop, message);
}

static void a_message_may_be_sent_again_from_its_own_call(void **state)
{
	nested_loop = *state;
	nested_message.fn = nested_delivered;
	nr_nested = 0;
	loop_send(nested_loop, &nested_message);
	wait_for(nested_loop, nr_nested == 600);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(messages_of_each_thread_arrive_once_and_in_order),
		cmocka_unit_test(only_the_first_message_to_a_sleeper_wakes),
		cmocka_unit_test(sleeping_loops_wake_each_other),
		loop_test(a_message_may_be_sent_again_from_its_own_call),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
