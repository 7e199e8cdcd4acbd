/* SPDX-License-Identifier: MIT */
/*
 * Sends rounds from reactor to reactor.
 */
#include "target/round.h"

#include "target/reactor.h"
#include "target/target.h"

static void round_arrive(struct loop_message *message)
{
	struct round *round = container_of(message, struct round, message);

	round->visit(round, round->target->reactors[round->next]);
}

static void round_come_home(struct loop_message *message)
{
	struct round *round = container_of(message, struct round, message);

	round->done(round);
}

static void round_send(struct round *round)
{
	bool over = round->next == round->target->nr_reactors;

	round->message.fn = over ? round_come_home : round_arrive;
	loop_send(over ? round->home : round->target->reactors[round->next]->loop, &round->message);
}

void round_start(struct round *round, struct target *target, struct loop *home,
	void (*visit)(struct round *round, struct reactor *reactor),
	void (*done)(struct round *round))
{
	round->target = target;
	round->home = home;
	round->next = 0;
	round->visit = visit;
	round->done = done;
	round_send(round);
}

void round_go_on(struct round *round)
{
	round->next++;
	round_send(round);
}
