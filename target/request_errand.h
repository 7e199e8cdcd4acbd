/* SPDX-License-Identifier: MIT */
/*
 * A command whose work is the control thread's: it waits in EXEC while a message goes there and
 * comes home again. What the errand needs it takes along, embedded beside a struct request_errand;
 * the request itself stays its reactor's and is not looked at on the way.
 */
#ifndef HAUL_TARGET_REQUEST_ERRAND_H
#define HAUL_TARGET_REQUEST_ERRAND_H

#include "proto/base/loop.h"

struct reactor;
struct request;

struct request_errand {
	struct loop_message message;
	struct request *request; /* in EXEC */
	struct reactor *home;	 /* its reactor */
	void (*arrive)(struct request_errand *errand);
	void (*back)(struct request_errand *errand);
};

/* On the reactor of REQUEST, which is handed from CORE to EXEC. ARRIVE is called on the control
 * thread, and the errand stays there until request_errand_return(); BACK is then called at home,
 * with the request in EXEC still, and may free what ERRAND is part of. */
void request_errand_send(struct request_errand *errand, struct request *request,
	void (*arrive)(struct request_errand *errand), void (*back)(struct request_errand *errand));
/* On the control thread: ERRAND is home's from then on. */
void request_errand_return(struct request_errand *errand);

#endif
