/* SPDX-License-Identifier: MIT */
/*
 * A request's I/O: handed to the backend, or held back, and taken back.
 */
#include "target/request_steps.h"

#include <errno.h>

#include "target/range_lock.h"
#include "target/reactor_ns.h"

static out_of_line void request_start_gated(struct request *request)
{
	struct reactor_ns *ns = request->ns;

	if (range_lock_holds_back(request))
		return;
	/* It was prepared before, and its data has come since. */
	if ((ns->gate & REACTOR_NS_WRITE_PROTECTED) && backend_io_changes(&request->io)) {
		request->io.done.fn(&request->io.done, -EROFS, 0);
		return;
	}
	list_push_back(&ns->out, &request->node);
	ns->queue->ops->submit(ns->queue, &request->io);
}

/* In EXEC: the I/O begins, unless it meets a locked range. */
static inline_always void request_start_io(struct request *request)
{
	struct reactor_ns *ns = request->ns;

	if (unlikely(ns->gate)) {
		request_start_gated(request);
		return;
	}
	list_push_back(&ns->out, &request->node);
	ns->queue->ops->submit(ns->queue, &request->io);
}

void request_submit(
	struct request *request, void (*done)(struct done *done, int res, unsigned flags))
{
	request_step(request, REQUEST_EXEC);
	request->io.done.fn = done;
	request_start_io(request);
}

/* Whoever wants it done sees to its end in any case, for it may have memory of its own. */
void request_resume_io(struct request *request)
{
	if (request->conn->state == CONN_LIVE)
		request_start_io(request);
	else
		request->io.done.fn(&request->io.done, -ECANCELED, 0);
}

bool request_cancel_io(struct request *request)
{
	if (!request->ns || !(request->ns->gate & REACTOR_NS_LOCKED) || !range_lock_let_go(request))
		return false;
	request->io.done.fn(&request->io.done, -ECANCELED, 0);
	return true;
}

/* It is not the disk's any more, if it was. */
static void request_end_io(struct request *request)
{
	if (list_empty(&request->node))
		return;
	list_remove(&request->node);
	if (unlikely(request->ns->gate))
		range_lock_io_ended(request);
}

bool request_executed(struct request *request)
{
	assert(request->state == REQUEST_EXEC);
	request_end_io(request);
	if (request->conn->state != CONN_LIVE) {
		request_free(request);
		return false;
	}
	request_step(request, REQUEST_CORE);
	return true;
}
