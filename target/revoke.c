/* SPDX-License-Identifier: MIT */
/*
 * Ends commands, and waits for those that cannot be ended.
 */
#include "target/revoke.h"

#include <stddef.h>

#include "target/cmd.h"
#include "target/conn.h"
#include "target/request.h"

void revoke_begin(struct revoke *revoke)
{
	revoke->nr_awaited = 1;
}

void revoke_end(struct revoke *revoke)
{
	if (--revoke->nr_awaited == 0)
		revoke->over(revoke);
}

/* Those that wait, for a buffer or for the other half of a pair. An answer may end others of the
 * list, too. */
static void revoke_waiting(const struct revoke *revoke, struct list *list)
{
	struct request *request;
	bool found;

	do {
		found = false;
		list_for_each_entry (request, list, node) {
			found = revoke->concerns(revoke, request);
			if (!found)
				continue;
			request_abort(request, revoke->status);
			break;
		}
	} while (found);
}

/* By two at most: a preempting host, and a change of who sees the namespace. */
static void revoke_await(struct revoke *revoke, struct request *request)
{
	if (request->awaited_by) {
		assert(!request->awaited_by_too);
		request->awaited_by_too = request->awaited_by;
	}
	request->awaited = true;
	request->awaited_by = revoke;
	revoke->nr_awaited++;
}

void revoke_commands(struct revoke *revoke, struct conn *conn)
{
	revoke_waiting(revoke, &conn->waiting);
	revoke_waiting(revoke, &conn->held);
	for (uint32_t i = 0; i < conn->slots.nr_touched; i++) {
		struct request *request = &conn->requests[i];

		if (!request->conn || !revoke->concerns(revoke, request))
			continue;
		if (request->state == REQUEST_PULL)
			request->command = revoke->command;
		else if (request->state == REQUEST_EXEC)
			revoke_await(revoke, request);
	}
}

void revoke_forget(struct revoke *revoke, struct conn *conn)
{
	for (uint32_t i = 0; i < conn->slots.nr_touched; i++) {
		struct request *request = &conn->requests[i];

		if (request->awaited_by == revoke) {
			request->awaited_by = request->awaited_by_too;
			request->awaited_by_too = NULL;
		}
		if (request->awaited_by_too == revoke)
			request->awaited_by_too = NULL;
	}
}

void revoke_request_over(struct request *request)
{
	struct revoke *one = request->awaited_by, *other = request->awaited_by_too;

	request->awaited_by = request->awaited_by_too = NULL;
	revoke_end(one);
	if (other)
		revoke_end(other);
}
