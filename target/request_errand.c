/* SPDX-License-Identifier: MIT */
/*
 * Messages between a request's reactor and the control thread.
 */
#include "target/request_errand.h"

#include "target/conn.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/target.h"

static void request_errand_arrived(struct loop_message *message)
{
	struct request_errand *errand = container_of(message, struct request_errand, message);

	errand->arrive(errand);
}

static void request_errand_at_home(struct loop_message *message)
{
	struct request_errand *errand = container_of(message, struct request_errand, message);

	errand->back(errand);
}

void request_errand_send(struct request_errand *errand, struct request *request,
	void (*arrive)(struct request_errand *errand), void (*back)(struct request_errand *errand))
{
	errand->request = request;
	errand->home = request->conn->reactor;
	errand->arrive = arrive;
	errand->back = back;
	errand->message.fn = request_errand_arrived;
	request_hand_to(request, REQUEST_EXEC);
	loop_send(errand->home->target->loop, &errand->message);
}

void request_errand_return(struct request_errand *errand)
{
	errand->message.fn = request_errand_at_home;
	loop_send(errand->home->loop, &errand->message);
}
